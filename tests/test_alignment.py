"""Following a document that is being edited."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lcspec.drafters import LookupDrafter
from lcspec.drafters.alignment import ALIGNED, Alignment
from lcspec.drafters.suffix_automaton import SuffixAutomaton

ANY_TIME = settings(deadline=None)
ASK, ANSWER = [9001, 9002, 9003], [9004, 9005]  # around the document
HEAD = [8001, 8002, 8003, 8004]


class Editing:
    """A text that is written token by token, with the draft for the rest at each of them."""

    def __init__(self, document: Sequence[int]) -> None:
        self.automaton = SuffixAutomaton(3, 64)
        self.automaton.extend([*ASK, *document, *ANSWER])
        self.alignment = Alignment(self.automaton.tokens)

    def write(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self.automaton.extend([token])
            self.alignment.follow(self.automaton.match)

    def expected(self, n: int = 40) -> list[int]:
        return self.alignment.ahead(n).tokens[:n]

    @property
    def hold(self) -> str:
        return self.alignment.ahead(1).basis.split()[0]

    @property
    def place(self) -> str:
        return self.alignment.ahead(1).basis.split()[1]


def document(n: int, of: Callable[[int], list[int]]) -> list[int]:
    """Return a headline and n lines that begin with their number, so that no two are alike."""
    return [*HEAD, *(token for line in range(n) for token in (1000 + line, *of(line)))]


def test_what_is_copied_is_expected_to_go_on() -> None:
    source = document(20, lambda line: [line, 2000 + line])
    editing = Editing(source)
    editing.write(source[:2])
    assert editing.expected() == [], "two tokens can be chance"
    editing.write(source[2:6])
    assert editing.expected(30) == source[6:36]
    assert editing.place == "run4"


@pytest.mark.parametrize(
    ("old", "new"),
    [([7], [8]), ([7], [8, 81]), ([7, 71], [8]), ([7, 71, 72], [8, 81, 82]), ([7], [])],
    ids=["a token", "by more", "by less", "several", "deleted"],
)
def test_what_was_replaced_once_is_expected_to_be_again(old: list[int], new: list[int]) -> None:
    source, wanted = document(9, lambda line: [5, *old, 6]), document(9, lambda line: [5, *new, 6])
    editing = Editing(source)
    written = 4 + 2 * (3 + len(new))  # two lines
    editing.write(wanted[:written])
    assert editing.expected(20) == wanted[written:][:20]


def test_what_was_inserted_is_expected_before_the_same_token() -> None:
    editing = Editing(document(9, lambda line: [5, 6]))
    editing.write([*HEAD, 1000, 5, 61, 62, 6, 1001])
    assert editing.expected(10) == [5, 61, 62, 6, 1002, 5, 61, 62, 6, 1003]


def test_within_an_edit_the_document_is_expected_where_the_text_meets_it() -> None:
    source = document(20, lambda line: [line, 2000 + line])
    editing = Editing(source)
    editing.write(source[:11])
    editing.write([77])  # in place of source[11]
    assert editing.expected(9) == [], "as little is known of it as of any new text"
    editing.write([78, 79, source[12]])
    assert editing.place == "met"
    assert editing.expected(9) == source[13:22]
    editing.write([source[13]])
    assert editing.place == "run2"
    assert editing.expected(9) == source[14:23]


def test_an_edit_that_was_made_before_is_known_by_its_beginning() -> None:
    source = document(9, lambda line: [5, 7, 6])
    editing = Editing(source)
    editing.write(document(2, lambda line: [5, 81, 82, 6]))
    editing.write([1002, 5, 81])
    assert editing.expected(4) == [82, 6, 1003, 5]


def test_a_known_edit_is_not_taken_for_a_copy_of_the_last_one() -> None:
    """Records are alike but for one token, so the text behind an edit also reads like that behind the last one."""
    record = [*range(20, 35), 7, 71, *range(40, 55)]
    source = [*HEAD, *(token for line in range(6) for token in (1000 + line, *record))]
    edited = [8, 81]
    changed = [*record[:15], *edited, *record[17:]]
    editing = Editing(source)
    editing.write([*HEAD, 1000, *changed, 1001, *changed[:16]])
    assert editing.expected(20) == [*changed[16:], 1002, *changed[:3]]


def test_a_token_that_both_drafts_propose_has_one_chance() -> None:
    source = document(9, lambda line: [5, 51, 7, 6, 61, 62])
    drafter = LookupDrafter(lambda _: False, 20, min_match=3)
    drafter.begin([*ASK, *source, *ANSWER], lambda *_: (0, None))
    drafter.commit([*document(4, lambda line: [5, 51, 8, 6, 61, 62]), 1004])
    suffix, aligned = drafter.offers(20)
    assert suffix.tokens[:3] == (5, 51, 7)
    assert aligned.tokens[:3] == (5, 51, 8)
    assert suffix.kinds[:2] == aligned.kinds[:2]
    assert suffix.kinds[2] != aligned.kinds[2]


def test_how_often_a_document_is_edited_is_told() -> None:
    source = document(40, lambda line: [2000 + line, 3000 + line, 4000 + line])
    untouched, touched = Editing(source), Editing(source)
    untouched.write(source[:80])
    touched.write([token + 50_000 * (i % 4 == 3) for i, token in enumerate(source[:80])])
    assert untouched.hold == "rare"
    assert touched.hold == "frequent"


def test_what_stayed_is_expected_to_stay_where_it_reads_alike() -> None:
    """`30` becomes `60` behind `timeout:`, and stays behind `port:`."""
    timeout, port, thirty, sixty = [1, 3], [2, 3], 30, 60
    lines = [timeout, port] * 6
    source = [token for i, name in enumerate(lines) for token in (1000 + i, *name, thirty)]
    wanted = [
        token for i, name in enumerate(lines) for token in (1000 + i, *name, sixty if name is timeout else thirty)
    ]
    editing = Editing(source)
    editing.write(wanted[:16])
    assert editing.expected(len(wanted) - 16) == wanted[16:]


def test_a_document_that_is_left_is_not_followed_any_more() -> None:
    source = document(9, lambda line: [5, 6])
    editing = Editing(source)
    editing.write(source[:9])
    editing.write(list(range(3000, 3040)))
    assert editing.expected() == []
    editing.write(source[:5])
    assert editing.expected(3) == source[5:8], "and is again, when it is copied again"


@ANY_TIME
@given(st.lists(st.integers(0, 3), max_size=80), st.lists(st.integers(0, 3), max_size=80), st.integers(0, 50))
def test_any_tokens_can_be_followed(prompt: list[int], text: list[int], limit: int) -> None:
    drafter = LookupDrafter(lambda token: token == 3, min_match=1)
    drafter.begin(prompt, lambda *_: (0, None))
    for token in text:
        drafter.commit([token])
        offers = drafter.offers(limit)
        assert drafter.has_offers or not offers
        for draft in offers:
            assert 0 < len(draft.tokens) <= limit
            assert len(draft.kinds) == len(draft.tokens)
            assert 3 not in draft.tokens
        ahead = drafter._alignment.ahead(limit)
        assert ahead.basis in ALIGNED
        assert len(ahead.origins) == len(ahead.tokens)


DIGITS = list(range(10))


def digits_of(number: int) -> list[int]:
    return [int(digit) for digit in str(number)]


def counted(n: int, start: int = 5, step: int = 1) -> list[int]:
    return [token for i in range(n) for token in (51, 52, *digits_of(start + i * step), 53, 54, 55)]


@pytest.mark.parametrize(("start", "step"), [(5, 1), (1, 2), (97, 1), (130, -10)])
def test_numbers_go_on_counting(start: int, step: int) -> None:
    """`server_7` after `server_6`, over the next power of ten as well."""
    text = counted(12, start, step)
    drafter = LookupDrafter(lambda _: False, 40, min_match=3, digits=DIGITS)
    drafter.begin([], lambda *_: (0, None))
    written = len(counted(6, start, step)) + 2
    drafter.commit(text[:written])
    drafts = [draft.tokens for draft in drafter.offers(40)]
    n = len(digits_of(start + 6 * step)) + 5
    assert any(draft[:n] == tuple(text[written : written + n]) for draft in drafts), drafts


def test_numbers_that_stay_are_not_expected_to_count() -> None:
    text = [*counted(4), *counted(1, 8), *counted(1, 8)]
    drafter = LookupDrafter(lambda _: False, 40, min_match=3, digits=DIGITS)
    drafter.begin([], lambda *_: (0, None))
    drafter.commit([*text, 51, 52])
    assert all(draft.tokens[:2] == (8, 53) for draft in drafter.offers(40))
