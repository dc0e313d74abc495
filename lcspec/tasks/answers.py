"""What models write around an edited text, and how an answer shows that it is none."""

import re
from difflib import get_close_matches
from itertools import takewhile

_FENCE = re.compile(r"[ \t]{0,3}(?P<marks>`{3,}|~{3,})[ \t]*(?P<info>[^`]*)")

_WHAT = r"(?:file|text|code|version|document|yaml|markdown|list|script|function|class|changes|contents?)"
_DONE = (
    r"(?:edited|corrected|updated|revised|modified|translated|changed|rewritten|fixed|improved|proofread"
    r"|complete|whole|full|final|new|refactored|renamed)"
)
_AGREED = r"(?:sure(?: thing)?|certainly|of course|absolutely|okay|ok)"
_TALK_BEFORE = re.compile(
    rf"{_AGREED}[!.]"
    rf"|(?:{_AGREED}[!.,:]*\s+)?(?:here (?:is|are)|here['’]s|below is) (?:the|your|an?)\b.*\b(?:{_DONE}|{_WHAT})\b.*:"
    rf"|(?:the )?{_DONE} {_WHAT}(?: is)?:",
    re.IGNORECASE,
)
_TALK_BEHIND = re.compile(
    rf"i hope (?:this|that|it)\b|(?:please )?(?:let me know|feel free)\b|is there anything else\b"
    rf"|i(?:['’]ve| have) (?:made|{_DONE})\b|i (?:made|{_DONE}) the\b"
    rf"|(?:the|this|in the|in this) (?:above |{_DONE} )+{_WHAT}\b|the {_WHAT} (?:has|have) been {_DONE}\b"
    r"|(?:the )?(?:changes|corrections) (?:made|are|i made)\b.*|explanation of (?:the )?changes\b",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"(?:i['’]?m (?:very |so )?sorry|i am sorry|sorry|i apologi[sz]e|as an ai|i can(?:no|['’])t|i can not|unfortunately"
    r"|i['’]m (?:not able|unable)|i am (?:not able|unable))\b",
    re.IGNORECASE,
)
_OF_ASSISTANTS = re.compile(
    r"\b(?:assist|help|request|language model|ai|provide|fulfil|edit|file|access)\b", re.IGNORECASE
)
_SHORTENING = re.compile(
    r"\b(?:short|brief|concise|summar|abbreviat|abridg|condens|compact|compress|minif|trim|cut|crop|delet|remov|drop"
    r"|strip|erase|discard|omit|without|reduc|extract|only|dedup|duplicat|simplif|shrink|less|fewer|clear|empty"
    r"|get rid|take out|leave out|kürz|lösch|entfern|streich|zusammenfass)",
    re.IGNORECASE,
)
_ALIKE = 0.6  # from where on a line is an edited one of the original, as difflib measures
_LEAST = 0.5  # of the original's length, unless it was to become shorter


def clean(answer: str, original: str) -> str:
    """Return the edited text that an answer has, without what models put around it.

    That is a code fence around all of it, and talk before and behind ("Here is the corrected text:", "I hope this
    helps"). What is like that in the original stays: its lines are never taken for talk, and a fence with which it
    begins or ends is its own.

    Args:
        answer: what the model wrote, with LF at the ends of lines.
        original: what it was to edit, with LF as well.
    """
    answer = _without_blanks(answer)
    own = _filled(original)
    if not own:
        return answer
    answer = _without_talk_before(answer, original, own)
    answer = _without_talk_behind(answer, original, own)
    return _without_fence(answer, own)


def problem_of(edited: str, original: str, instruction: str, *, is_complete: bool) -> str | None:
    """Return what shows that a text is not the edited original, None if nothing does.

    Args:
        edited: the text that `clean` returned.
        original: what was to be edited.
        instruction: what was to be done with it.
        is_complete: whether the model came to an end, and was not cut off.
    """
    if not is_complete:
        return "was cut off before its end, as it became too long (max_tokens, --max-tokens)"
    if not edited.strip():
        return "is empty"
    start, began = edited.lstrip()[:300], original.lstrip()
    if _REFUSAL.match(start) and _OF_ASSISTANTS.search(start) and not _REFUSAL.match(began):
        return f"is a refusal ({' '.join(start.split())[:60]}...)"
    if edited.count("\ufffd") > original.count("\ufffd"):
        return "has characters that are broken"
    length, was = len(edited.strip()), len(original.strip())
    if length < _LEAST * was and not _SHORTENING.search(instruction):
        return f"has {length:,} characters where there were {was:,}, without having been asked to shorten"
    return None


def _without_blanks(text: str) -> str:
    """Return a text without empty lines at its beginning and blanks at its end."""
    return re.sub(r"\A(?:[^\S\n]*\n)+", "", text).rstrip()


def _has_more(answer: str, original: str) -> bool:
    """Whether an answer has lines or paragraphs that an edit of the original need not have."""
    return len(_paragraphs(answer)) > len(_paragraphs(original)) or len(_filled(answer)) > len(_filled(original))


def _paragraphs(text: str) -> list[str]:
    return re.split(r"\n\s*\n", text.strip())


def _filled(text: str) -> list[str]:
    """Return the lines that are not empty, without the blanks around them."""
    return [line for line in map(str.strip, text.split("\n")) if line]


def _is_own(line: str, own: list[str]) -> bool:
    """Whether a line is the original's, perhaps edited."""
    return bool(get_close_matches(line, own, n=1, cutoff=_ALIKE))


def _without_talk_before(answer: str, original: str, own: list[str]) -> str:
    while _has_more(answer, original):
        first, _, rest = answer.partition("\n")
        talk = first.strip(" *")
        if not _TALK_BEFORE.fullmatch(talk) or not rest.strip() or _is_own(talk, own):
            break
        answer = _without_blanks(rest)
    return answer


def _without_talk_behind(answer: str, original: str, own: list[str]) -> str:
    while _has_more(answer, original):
        ends = [found.span() for found in re.finditer(r"\n\s*\n", answer)][-1:]
        ends += [(last, last + 1) for last in [answer.rfind("\n")] if last > 0]
        for end, start in ends:  # the last paragraph, the last line
            talk = answer[start:].partition("\n")[0].strip(" *")
            if _TALK_BEHIND.match(talk) and not _is_own(talk, own):
                answer = answer[:end].rstrip()
                break
        else:
            break
    return answer


def _without_fence(answer: str, own: list[str]) -> str:
    """Take off a fence that is around all of an answer, or the half of one that is left of it."""
    lines = answer.split("\n")
    fences = [i for i, line in enumerate(lines) if _FENCE.fullmatch(line)]
    is_odd = len(fences) % 2 == 1
    if _fences_at_start(_filled(answer)) > _fences_at_start(own):
        inside = _inside(lines, fences, own)
        if inside is None and is_odd:  # what would close it did not come
            inside = lines[1:]
        if inside is not None:
            return _without_blanks("\n".join(inside))
    if is_odd and not _info(lines[-1]) and _fences_at_start(_filled(answer)[::-1]) > _fences_at_start(own[::-1]):
        return _without_blanks("\n".join(lines[:-1]))
    return answer


def _fences_at_start(filled: list[str]) -> int:
    return sum(1 for _ in takewhile(_FENCE.fullmatch, filled))


def _inside(lines: list[str], fences: list[int], own: list[str]) -> list[str] | None:
    """Return the lines within a fence that opens with the first one, None if it does not enclose the text."""
    opening = _marks(lines[0])
    for number, end in enumerate(fences[1:]):
        within = fences[1 : number + 1]
        if not _marks(lines[end]).startswith(opening) or _info(lines[end]):
            continue
        if any(_marks(lines[i]).startswith(opening) for i in within) and not _are_blocks(lines, within, own):
            continue
        inside, behind = lines[1:end], _filled("\n".join(lines[end + 1 :]))
        is_long = sum(map(len, inside)) >= _LEAST * sum(map(len, own))
        if not behind or (is_long and not any(line in own for line in behind)):
            return inside
    return None


def _are_blocks(lines: list[str], fences: list[int], own: list[str]) -> bool:
    """Whether fences are pairs within another, and do not rather close that and open the next."""
    enclosed = sum(1 for line in own if _FENCE.fullmatch(line))
    return len(fences) % 2 == 0 and (bool(_info(lines[fences[0]])) or len(fences) == enclosed)


def _marks(line: str) -> str:
    found = _FENCE.fullmatch(line)
    return found["marks"] if found else ""


def _info(line: str) -> str:
    found = _FENCE.fullmatch(line)
    return found["info"].strip() if found else ""
