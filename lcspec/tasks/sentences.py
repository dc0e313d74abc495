"""Sentences of a text that is still being written."""

import re

_MARK = r"(?:[-*+•‣·–]|\d{1,3}[.)])\s"  # what begins an item of a list
_SENTENCE_ENDS = re.compile(
    r"[.!?…]+[\"'”’»)\]*_]*\s+(?=\S)"
    r"|[。！？]+[」』”’）]*\s*(?=[^\s。！？」』”’）])"
    r"|\n[^\S\n]*\n\s*(?=\S)"
    rf"|\n\s*(?={_MARK}|\#{{1,6}}\s)"
)
_ITEM_ENDS = re.compile(rf"\n(?=\S)|\n[^\S\n]*\n\s*(?=\S)|\n\s*(?={_MARK})")
_NO_END = re.compile(
    r"(?:^|\W)(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|vs|cf|Nr|Fig|Eq|Sec|Vol|pp|e\.g|i\.e|z\.B|d\.h|[^\W\d_])\.$"
    r"|(?:^|\n)\s*\d{1,3}\.$"  # the number of an item
)
_SCRIPTS_WITHOUT_SPACES = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_SCRIPTS_WITHOUT_SPACES}]|[^\s{_SCRIPTS_WITHOUT_SPACES}]*\w[^\s{_SCRIPTS_WITHOUT_SPACES}]*")


def count_words(text: str) -> int:
    """Return how many words a text has; of scripts that put no spaces between words, how many characters."""
    return len(_WORD.findall(text))


class Sentences:
    """Cuts a text that comes in parts into sentences, each as soon as it is certain where it ends.

    How the text is divided into parts does not matter, and the sentences and the rest joined are the text.

    Args:
        as_items: cut at the items of a list instead.
    """

    def __init__(self, as_items: bool = False) -> None:
        self._ends = _ITEM_ENDS if as_items else _SENTENCE_ENDS
        self.rest = ""
        """What has not ended."""

    def add(self, text: str) -> list[str]:
        """Add a part, and return the sentences that end in it, with the white space behind them."""
        self.rest += text
        sentences = []
        while end := self._first_end():
            sentences.append(self.rest[:end])
            self.rest = self.rest[end:]
        return sentences

    def _first_end(self) -> int:
        """Return where the first sentence ends, 0 where that is not certain."""
        for found in self._ends.finditer(self.rest):
            if found.start() and not self._goes_on(found):
                return found.end()
        return 0

    def _goes_on(self, found: re.Match[str]) -> bool:
        """Tell whether a full stop or the like ends an abbreviation, or something quoted, rather than a sentence."""
        if not found[0].strip() or "\n\n" in found[0]:
            return False
        if self.rest[found.end()].islower():
            return True
        return found[0].rstrip() == "." and _NO_END.search(self.rest[: found.start() + 1]) is not None
