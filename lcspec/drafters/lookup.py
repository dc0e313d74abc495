"""Lookup: what followed where the text read like this before."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from lcspec.drafters.alignment import ALIGNED, LOOSE, MET, REPLACED, Ahead, Alignment
from lcspec.drafters.base import NO_DRAFT, Draft, Propose
from lcspec.drafters.suffix_automaton import SuffixAutomaton
from lcspec.drafters.witnesses import LENGTH, Witnesses

_LONGEST = 15
_WITNESSED = 64  # draft tokens for which witnesses are asked
_MATCHES = (3, 4, 5, 6, 8, 16, 32, 64)  # tokens of a match, and
_DEPTHS = (0, 1, 2, 4, 8, 16)  # of the draft before a token, from which on it is of another kind
_LONGEST_KINDS = 128
_WITNESS = ("unseen", "agrees", "differs")  # what a witness says of a token
_VOTES = ("alone", "seconded", "opposed")  # what the other draft says of a token, as long as both are the same
_ORIGINS = ("own", "own+", "own-", "new", "known")  # of a token of an edited document, with what a witness says

_BY_DEPTH = [bisect_right(_DEPTHS, depth) - 1 for depth in range(_LONGEST_KINDS)]


def _kinds(basis: str, says: Sequence[str]) -> list[list[list[str]]]:
    """Return the kinds of tokens of a basis, by what is said of them, vote, and depth."""
    table = []
    for word in says:
        by_vote = [[f"{basis} {word} {vote} d{depth}" for depth in _DEPTHS] for vote in _VOTES]
        table.append([[of_depth[i] for i in _BY_DEPTH] for of_depth in by_vote])
    return table


_SUFFIX_KINDS = {match: _kinds(f"suffix m{match}", _WITNESS) for match in _MATCHES}
_ALIGNED_KINDS = {basis: _kinds(basis, _ORIGINS) for basis in ALIGNED}
_STORED_KINDS = {match: _kinds(f"stored m{match}", _WITNESS[:1]) for match in _MATCHES}
LOOKUP_KINDS = frozenset(
    kind
    for table in (*_SUFFIX_KINDS.values(), *_ALIGNED_KINDS.values(), *_STORED_KINDS.values())
    for by_vote in table
    for by_depth in by_vote
    for kind in by_depth
)
"""All kinds of tokens, each of five words: where the draft is from, by how long a match or what an alignment rests on,
by witness or origin, by vote, and by depth."""


class Continued(Protocol):
    """What followed in a stored text, and how many tokens before were the same."""

    @property
    def tokens(self) -> tuple[int, ...]: ...  # noqa: D102

    @property
    def match(self) -> int: ...  # noqa: D102


class Store(Protocol):
    """Texts that were written earlier."""

    def find(self, suffix: Sequence[int], limit: int) -> Continued | None:
        """Return up to `limit` tokens that followed the last tokens of a text elsewhere."""


class LookupDrafter:
    """Proposes what followed the same tokens before, and the rest of a document that is being edited.

    Prompt and output are searched alike. The longest suffix of the text that occurred before, of several the latest
    occurrence, gives one draft: after Saxena 2023, "Prompt Lookup Decoding", and Yang et al. 2023, "Inference with
    Reference". An `Alignment` gives another, which does not lose its place at an edit; whoever can weigh the two asks
    for both. They vote: tokens in which they agree are of better kinds.

    Args:
        is_eog: tells tokens that end a generation; a draft stops before one.
        length: tokens of a draft. By default half as many as matched, since a short match is weak
            evidence, and 15 at the most, which with the token before them fill a pass of 16.
        min_match: shortest suffix, in tokens, that makes a draft; at least 1.
        max_match: longest suffix that is told apart; longer matches count as this long. At least `min_match`.
        align: also follow documents that are edited.
        digits: the tokens of 0 to 9, so that numbers go on counting; empty where digits have none of their own.
        store: earlier texts, which give another draft.
    """

    name = "lookup"

    def __init__(
        self,
        is_eog: Callable[[int], bool],
        length: int | None = None,
        *,
        min_match: int = 4,
        max_match: int = 32,
        align: bool = True,
        digits: Sequence[int] = (),
        store: Store | None = None,
    ) -> None:
        self._is_eog = is_eog
        self._length = length
        self._min_match, self._max_match = min_match, max_match
        self._align = align
        self._digits = digits
        self._store = store
        self._forget()

    def _forget(self) -> None:
        self._automaton = SuffixAutomaton(self._min_match, self._max_match)
        self._text = self._automaton.tokens
        self._witnesses = Witnesses(self._text)
        self._ends: set[int] = set()  # tokens of the text that end a generation

    def begin(self, prompt: Sequence[int], propose: Propose) -> None:
        """Search `prompt` from now on; where it goes on with what was searched before, only the rest is new."""
        if list(prompt[: len(self._text)]) != self._text:
            self._forget()
        self._ends.update(filter(self._is_eog, set(prompt[len(self._text) :])))
        self._automaton.extend(prompt[len(self._text) :])
        self._witnesses.extend()
        self._alignment = Alignment(self._text, self._digits)

    def commit(self, tokens: Sequence[int], seconds: float = 0.0) -> None:
        """Append `tokens` to what is searched."""
        self._ends.update(filter(self._is_eog, tokens))
        for token in tokens:
            self._automaton.extend((token,))
            if self._align:
                self._alignment.follow(self._automaton.match)

    def propose(self, limit: int) -> Draft:
        """Return up to `limit` tokens of what followed the longest match."""
        followed = self._what_followed(min(limit, self._length or min(self._automaton.match.length // 2, _LONGEST)))
        return Draft(tuple(followed), self.name) if followed else NO_DRAFT

    @property
    def has_offers(self) -> bool:
        """Whether there may be any: most tokens of most texts are behind nothing that was read before."""
        return bool(self._automaton.match.length) or self._alignment.expects or self._store is not None

    def offers(self, limit: int) -> list[Draft]:
        """Return drafts of up to `limit` tokens: what followed here, another rest of the document, and the store's."""
        limit = min(limit, self._length or limit)
        if limit <= 0 or not self.has_offers:
            return []
        self._witnesses.extend()
        followed = self._what_followed(limit)
        ahead = self._alignment.ahead(limit)
        aligned = ahead.tokens[: min(limit, self._end(ahead.tokens))]
        if aligned and ahead.origins[0] == self._automaton.match.end and ahead.basis in LOOSE:
            aligned = []  # the same place, for no other reason
        same = _n_same(followed, aligned)
        kinds = self._aligned_kinds(ahead, _votes(same, len(followed), len(aligned))) if same < len(aligned) else ()
        shared = kinds[:same]  # a token that several propose has one chance
        opposing = same if ahead.basis in MET else len(aligned)
        suffix_kinds = shared + self._suffix_kinds(followed, len(shared), same, opposing)
        here = Draft(tuple(followed), self.name, kinds=suffix_kinds)
        offers = [here, Draft(tuple(aligned), self.name, kinds=kinds)] if kinds else [here]
        if self._store is not None and (found := self._store.find(self._text[-self._max_match :], limit)) is not None:
            stored = self._stored(found, here)
            offers = [*(_with_shared_kinds(offer, stored) for offer in offers), stored]
        return [offer for offer in offers if offer.kinds]

    def _stored(self, stored: Continued, here: Draft) -> Draft:
        """Return what followed in an earlier text, if it is not what followed here."""
        end = next((i for i, token in enumerate(stored.tokens) if self._is_eog(token)), len(stored.tokens))
        tokens = stored.tokens[:end]
        same = _n_same(here.tokens, tokens)
        if same == len(tokens):
            return NO_DRAFT
        [kinds] = _STORED_KINDS[_MATCHES[bisect_right(_MATCHES, max(stored.match, _MATCHES[0])) - 1]]
        votes = _votes(same, len(here.tokens), len(tokens))
        return Draft(tokens, self.name, kinds=tuple(kinds[vote][i] for i, vote in enumerate(votes)))

    def _what_followed(self, limit: int) -> list[int]:
        match, text = self._automaton.match, self._text
        if not match.length or limit <= 0:
            return []
        followed = text[match.end : match.end + limit]
        if len(followed) < limit:  # a match that overlaps the suffix goes on in circles
            followed = (followed * (limit // len(followed) + 1))[:limit]
        return followed[: self._end(followed)]

    def _end(self, tokens: list[int]) -> int:
        """Return where the first token is that ends a generation; their number where none does."""
        return min((tokens.index(token) for token in self._ends if token in tokens), default=len(tokens))

    def _suffix_kinds(self, draft: Sequence[int], start: int, same: int, aligned: int) -> tuple[str, ...]:
        """Say what is known of each token that followed the match, from the `start`-th on."""
        match, text = self._automaton.match, self._text
        kinds = _SUFFIX_KINDS[_MATCHES[bisect_right(_MATCHES, max(match.length, _MATCHES[0])) - 1]]
        n, votes = len(text), _votes(same, aligned, len(draft))
        found = []
        for depth in range(start, len(votes)):
            witness, position = 0, match.end + depth
            if depth < _WITNESSED and position < n:
                place = position if match.length + depth >= LENGTH else n
                witness = self._witness(place, position, draft[depth])
            found.append(kinds[witness][votes[depth]][depth])
        return tuple(found)

    def _aligned_kinds(self, ahead: Ahead, votes: Sequence[int]) -> tuple[str, ...]:
        """Say what is known of each token of the document's rest."""
        kinds, origins = _ALIGNED_KINDS[ahead.basis], ahead.origins
        found = []
        for depth, vote in enumerate(votes):
            position = origins[depth]
            if position < 0:
                origin = 3 if position == REPLACED else 4
            elif LENGTH <= depth < _WITNESSED and origins[depth - LENGTH] == position - LENGTH:
                origin = self._witness(position, position, ahead.tokens[depth])
            else:
                origin = 0
            found.append(kinds[origin][vote][depth])
        return tuple(found)

    def _witness(self, place: int, position: int, token: int) -> int:
        """Return what another place like this one says of a token at `position`, by index of `_WITNESS`."""
        other = self._witnesses.of(place, but=position)
        if other < 0:
            return 0
        return 1 if self._text[other] == token else 2

    def close(self) -> None:
        """Nothing is held."""


def _n_same(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two drafts begin with in common."""
    n = min(len(one), len(other))
    if one[:n] == other[:n]:
        return n
    return next(i for i in range(n) if one[i] != other[i])


def _with_shared_kinds(draft: Draft, other: Draft) -> Draft:
    """Return a draft whose tokens that it has in common with another one are of the same kinds."""
    same = _n_same(draft.tokens, other.tokens)
    return replace(draft, kinds=other.kinds[:same] + draft.kinds[same:])


def _votes(same: int, other: int, n: int) -> list[int]:
    """Return what another draft of `other` tokens, the first `same` of which are the same, says of each of `n`."""
    return ([1] * same + [2] * (same < other) + [0] * n)[: min(n, _LONGEST_KINDS)]
