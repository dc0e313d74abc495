"""A pointer into the document that the text is an edit of."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from lcspec.drafters.replacements import Replacement, Replacements, is_at
from lcspec.drafters.suffix_automaton import Match

_ANCHOR = 3  # tokens that have to be the same for a document to be followed,
_ELSEWHERE = 12  # and during an edit, for another part of it
_PROOF = 2  # tokens behind an edit that have to be the document's for it to be over
_REACH = 24  # tokens that an edit may take out, or put in
_SKIPPED = 200  # tokens that a longer match may skip
_RUNS = (0, 2, 4, 8, 16, 32, 64)

_PLACES = (*(f"run{run}" for run in _RUNS), "begun", "met", "alike")
_FIRM = 16  # tokens of the document that were repeated, from which on it is sure to be the one that is edited
_BETWEEN_EDITS = (4, 16)  # tokens, on average, that make edits rarer
_HOLDS = ("loose", "frequent", "regular", "rare")
ALIGNED = tuple(f"{hold} {place}" for hold in _HOLDS for place in _PLACES)
"""What the pointer rests on, in two words. How firm the document is: loose, where little of it was repeated yet, or how
frequent its edits are. And where the text is in it: so many tokens since the last edit; or within an edit, which was
made before, whose last token is the document's again, or which is as long as others."""

LOOSE = frozenset(f"{_HOLDS[0]} {place}" for place in _PLACES)
"""Those of `ALIGNED` that say that the document may be another one."""

MET = frozenset(f"{hold} met" for hold in _HOLDS)
"""Those of `ALIGNED` that say little against what another draft proposes."""

REPLACED, KNOWN = -1, -2
_FEW = 2


class Ahead(NamedTuple):
    """The rest of an edited document.

    Attributes:
        basis: what the pointer rests on, one of `ALIGNED`.
        tokens: the tokens.
        origins: for each its position in the text where it is the document's own; where it replaces others, `REPLACED`
            or, where that was seen behind the same few tokens, `KNOWN`.
    """

    basis: str
    tokens: list[int]
    origins: list[int]


NOTHING = Ahead(ALIGNED[0], [], [])
"""While no document is followed, and within an edit of which nothing is known."""


class _Resumption(NamedTuple):
    """A guess how an edit goes on: with `rest`, and then with the document from `position`."""

    position: int
    rest: tuple[int, ...]
    place: str
    replacement: Replacement | None


class Alignment:
    """Follows a document while the text repeats it with changes.

    The document is a part of the committed text that a long match says is being repeated. While the text says the
    same, the pointer moves along. At an edit it stays, until the text is the document's again, and where it goes on
    then tells whether tokens were replaced, inserted or deleted. What was replaced by what is expected again.

    Args:
        text: prompt and output. It grows, and `follow` is called behind each token.
        digits: as of `Counting`.
    """

    def __init__(self, text: Sequence[int], digits: Sequence[int] = ()) -> None:
        self._text = text
        self._position: int | None = None  # of the document's next token
        self._run = 0  # tokens since the last edit
        self._repeated = 0  # tokens of the document, since it is followed
        self._n_edits = 0  # since then
        self._copied_from = 0  # where the text began to repeat the document
        self._edited: int | None = None  # where the edit in progress began in the text,
        self._resumption: _Resumption | None = None  # and how it may go on
        self._replacements = Replacements(digits)
        self._sizes: Counter[tuple[int, int]] = Counter()  # tokens that edits took out and put in

    @property
    def expects(self) -> bool:
        """Whether anything of a document is expected next."""
        return self._position is not None and (self._edited is None or self._resumption is not None)

    def follow(self, match: Match) -> None:
        """Go on by the last token of the text, of which `match` is the longest suffix that occurred before."""
        if self._position is None:
            if match.length >= _ANCHOR:
                self._anchor(match)
            return
        if self._edited is not None:
            self._go_on_editing(self._position, self._edited, match)
        elif self._text[-1] != self._text[self._position]:
            self._edited = len(self._text) - 1
            self._go_on_editing(self._position, self._edited, match)
        else:
            if self._replacements.expected(self._text, self._position) is not None:
                self._replacements.spare(self._text, self._position)
            self._position += 1
            self._run += 1
            self._repeated += 1
        if self._position is not None and self._position >= len(self._text):
            self._position = None
        self._resumption = None
        if self._position is not None and self._edited is not None:
            self._resumption = self._resumed(self._position, tuple(self._text[self._edited :]))

    def ahead(self, limit: int) -> Ahead:
        """Return the next tokens of the edited document, about `limit` of them."""
        if self._position is None:
            return NOTHING
        if self._edited is None:
            place = _PLACES[bisect_right(_RUNS, self._run) - 1]
            return self._document(_Resumption(self._position, (), place, None), limit)
        return NOTHING if self._resumption is None else self._document(self._resumption, limit)

    def _document(self, resumption: _Resumption, limit: int) -> Ahead:
        text, position, passing = self._text, resumption.position, resumption.replacement
        basis = f"{self._hold()} {resumption.place}"
        tokens, origins = list(resumption.rest), [KNOWN] * len(resumption.rest)
        places = self._replacements.beginnings | ({passing.old[0]} if passing else set())
        if places.isdisjoint(text[position : position + limit]):
            document = text[position : position + limit]
            origins += range(position, position + len(document))
            return Ahead(basis, [*tokens, *document], origins)
        while position < len(text) and len(tokens) < limit:
            token = text[position]
            found = self._replacements.expected(text, position) if token in places else None
            if found is not None:
                replacement, origin = found.replacement, KNOWN if found.alike >= _FEW else REPLACED
            elif passing is not None and token == passing.old[0] and is_at(passing.old, text, position):
                replacement, origin = passing, REPLACED
            else:
                tokens.append(token)
                origins.append(position)
                position += 1
                continue
            tokens += replacement.new
            origins += [origin] * len(replacement.new)
            position += len(replacement.old)
        return Ahead(basis, tokens, origins)

    def _hold(self) -> str:
        """Return how sure the document is, and how often it was edited."""
        if self._repeated < _FIRM:
            return _HOLDS[0]
        return _HOLDS[1 + bisect_right(_BETWEEN_EDITS, self._repeated / (1 + self._n_edits))]

    def _resumed(self, start: int, written: tuple[int, ...]) -> _Resumption | None:
        """Guess how the edit goes on that replaces the document from `start`, where `written` is put in so far."""
        text, n = self._text, len(written)
        begun = self._replacements.begun(text, start, written)
        if begun is not None:
            old, new = begun.old, begun.new
            return _Resumption(start + len(old), new[n:], "begun", begun)
        skipped = 0 if n > 1 else 1
        reached = text[start + skipped : min(start + _REACH, len(text) - n)]
        if written[-1] in reached:
            taken = skipped + reached.index(written[-1])
            return _Resumption(start + taken + 1, (), "met", self._replacement(start, taken, written[:-1]))
        alike = [(count, taken) for (taken, put), count in self._sizes.items() if put == n]
        if not alike:
            return None  # that as many are replaced is right for fewer than one in ten
        taken = max(alike)[1]
        return _Resumption(start + taken, (), "alike", self._replacement(start, taken, written))

    def _replacement(self, start: int, taken: int, put: tuple[int, ...]) -> Replacement | None:
        """Return what an edit replaces by what, None where it only inserts or deletes."""
        return Replacement(tuple(self._text[start : start + taken]), put) if taken and put else None

    def _go_on_editing(self, start: int, edited: int, match: Match) -> None:
        """See whether the edit is over: where the document goes on from `start` and the text since `edited`."""
        text = self._text
        written = tuple(text[edited:])
        n = len(written)
        begun = self._replacements.begun(text, start, written)
        if begun is not None and begun.new == written:
            self._finish(start, len(begun.old), written, 0)
            return
        if n >= _PROOF and written[-1] in text[start : start + _REACH + _PROOF]:
            for taken in range(_REACH):
                again = start + taken
                if (taken or n > _PROOF) and again + _PROOF <= edited and is_at(written[-_PROOF:], text, again):
                    self._finish(start, taken, written[:-_PROOF], _PROOF)
                    return
        if begun is not None:
            return
        if match.length >= _ANCHOR and start < match.end <= min(start + _SKIPPED, self._copied_from):
            self._position, self._run, self._edited = match.end, match.length, None
            self._n_edits += 1
        elif n > _REACH or match.length >= _ELSEWHERE:
            self._position = self._edited = None
            if match.length >= _ANCHOR:
                self._anchor(match)

    def _finish(self, start: int, taken: int, put: tuple[int, ...], proof: int) -> None:
        self._sizes[taken, len(put)] += 1
        self._n_edits += 1
        old = tuple(self._text[start : start + taken])
        if not old:  # an insertion: the token before which it is made is replaced by itself and more
            old = (self._text[start],)
            put += old
        self._replacements.learn(self._text, start, old, put)
        self._position = start + taken + proof
        self._run = proof
        self._repeated += proof
        self._edited = None

    def _anchor(self, match: Match) -> None:
        self._position, self._run, self._edited = match.end, match.length, None
        self._repeated = match.length
        self._n_edits = 0
        self._copied_from = len(self._text) - match.length
