"""Which sentences of what a model writes become a summary."""

import re
from collections.abc import Iterator
from typing import Literal

from lcspec.tasks.sentences import Sentences, count_words

Ending = Literal["eog", "length", "repetition"]

_TALK = re.compile(
    r"(?:(?:sure|certainly|of course|absolutely|okay|ok)\b[^.:!\n]{0,40}[.:!]+\s*)?"
    r"(?:(?:here(?:['’]s|\s+is|\s+are)|below\s+(?:is|are))\b[^:\n]{0,120}:\s*"
    r"|(?:the|some)\s[^.:\n]{0,80}\b(?:points?|summar\w+|follow\w+|text)\b[^.:\n]{0,60}:\s*(?:\n|$)"
    r"|[*_#\s]*(?:summary|(?:main|key) points|tl;dr)\s*(?::[*_]*|[*_]*:|[*_]*\s*(?:\n|$))\s*)?",
    re.IGNORECASE,
)
_FAREWELL = re.compile(
    r"(?:i hope (?:this|that|it)|(?:please )?(?:let me know|feel free)\b.*\b(?:if|to))\b", re.IGNORECASE
)
_MARK = re.compile(r"\s*(?:(?:[-*+•‣·–]|\(?\d{1,3}[.)])\s+|[-•](?=[^\s\d-]))")
_ALIKE = 0.75  # of a sentence's runs of three words: so much of it was there before, and it is a repetition
_REPEATS = 2  # of sentences, until a model is taken to go round in circles


class Selection:
    """Takes what a model writes, and lets out what becomes the summary, sentence by sentence.

    Left out are talk around the summary ("Here is a summary:"), sentences that were there before (small models go
    round in circles), and those that are too many. How the text is divided into parts does not matter.

    Args:
        words: of the summary at the most, though it has at least one sentence.
        bullets: let out the items of a list, each a line that begins with '- '.
    """

    def __init__(self, words: int, bullets: bool = False) -> None:
        self._words = words
        self._bullets = bullets
        self._sentences = Sentences(as_items=bullets)
        self._begun = False  # whether talk before the summary is over
        self._gap = ""  # between the last sentence and the next
        self._seen: set[tuple[str, ...]] = set()
        self._repeats = 0
        self.items: list[str] = []
        """The sentences, or the items of the list without their marks."""
        self.text = ""
        """The summary so far."""
        self.ended: Ending | None = None
        """Why nothing more is taken: 'length' where the summary has its words, 'repetition' where the model had no
        more to say; None as long as more is."""

    def add(self, text: str) -> Iterator[str]:
        """Take a part of what the model writes; yield what the summary goes on with."""
        for sentence in self._sentences.add(text):
            if self.ended is None:
                yield from self._take(sentence)

    def finish(self, is_whole: bool) -> Iterator[str]:
        """Take what was held back, as the model wrote its last.

        Args:
            is_whole: whether it came to an end. If not, its last sentence is left out, unless there is no other one:
                then it is cut off, and ends with an ellipsis.
        """
        rest, self._sentences.rest = self._sentences.rest, ""
        if self.ended is None and rest.strip():
            if is_whole:
                yield from self._take(rest)
            elif not self.items:
                yield from self._take(rest.rstrip() + " …")
        if self.ended is None:
            self.ended = "eog" if is_whole else "length"

    @property
    def _mark(self) -> str:
        return "- " if self._bullets else ""

    def _take(self, sentence: str) -> Iterator[str]:
        kept = self._tidy(self._without_talk(sentence))
        if not kept:
            return
        self._begun = True
        runs = _runs_of(kept)
        if _FAREWELL.match(kept):
            self.ended = "eog"
        elif len(runs & self._seen) >= _ALIKE * len(runs):
            self._repeats += 1
            if self._repeats == _REPEATS:
                self.ended = "repetition"
        elif self.items and count_words(self.text) + count_words(kept) > self._words:
            self.ended = "length"
        else:
            self._seen |= runs
            self.items.append(kept)
            more = self._gap + self._mark + kept
            self._gap = "\n" if self._bullets else self._gap_behind(sentence)
            self.text += more
            yield more

    def _without_talk(self, sentence: str) -> str:
        if self._begun:
            return sentence
        found = _TALK.match(sentence.lstrip())
        return sentence.lstrip()[found.end() :] if found else sentence

    def _tidy(self, sentence: str) -> str:
        if self._bullets:
            sentence = _MARK.sub("", sentence, count=1)
        return " ".join(sentence.split())

    def _gap_behind(self, sentence: str) -> str:
        newlines = sentence[len(sentence.rstrip()) :].count("\n")
        return " " if newlines == 0 else "\n" * min(newlines, 2)


def _runs_of(sentence: str) -> set[tuple[str, ...]]:
    """Return the runs of three words of a sentence, numbers left out; of a shorter one, all of it."""
    words = re.findall(r"[^\W\d_]+", sentence.casefold()) or [sentence]
    return {tuple(words[i : i + 3]) for i in range(max(1, len(words) - 2))}
