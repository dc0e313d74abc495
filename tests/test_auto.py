"""The drafter 'auto' with a draft model and lookup together."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from chi_square import p_value

import lcspec.auto
from bench.recordings import Recording, read_recordings
from bench.replay import Machine, Replay, full_lookup, planner_of, replay
from bench.simulate import machine_of
from lcspec.auto import AutoDrafter
from lcspec.drafters import NO_DRAFT, Draft, LookupDrafter, Propose
from lcspec.drafters.model import kind_of
from lcspec.noise import PROPOSAL, sample
from lcspec.planner import Planner, shipped_priors
from lcspec.sampling import Distribution
from lcspec.verify import rejection

RECORDINGS = read_recordings(Path(__file__).parent / "data" / "recordings.jsonl")
ALARM, BLATANT = 1e-6, 1e-9
SIZE = 6
TEXTS = 6_000
COUNTED = 2
PROMPT = [0, 1, 2, 3, 4, 5, 0, 1, 2]  # lookup proposes 3 behind it

TARGET = np.random.default_rng(4).dirichlet(np.full(SIZE, 2.0), size=SIZE)
TARGET[2] = 0.2, 0.2, 0.2, 0.2, 0.1, 0.1
MODEL = 0.5 * TARGET + 0.5 * np.roll(np.eye(SIZE), 1, axis=1)  # which overrates what lookup proposes


SURE = np.full((SIZE, SIZE), 0.002)
SURE[np.arange(SIZE), np.roll(np.arange(SIZE), -1)] = 0.99
SHORT_MATCH = ("suffix m3 unseen alone d0", "suffix m3 unseen alone d1")


def distributions(probabilities: np.ndarray) -> list[Distribution]:
    return [Distribution(np.arange(SIZE), np.log(row)) for row in probabilities]


class ChainModel:
    """A draft model that is a Markov chain, sampled for the rejection rule or always at its likeliest token."""

    name = "model"
    moving_seconds = moved_seconds = 0.0

    def __init__(self, chain: np.ndarray, drawn: bool = True) -> None:
        self.chain, self.drawn = distributions(chain), drawn
        self.n_evaluated = 0
        self.seed = 0
        self.text: list[int] = []

    @property
    def n_behind(self) -> int:
        return 1

    def begin(self, prompt: Sequence[int], propose: Propose) -> None:
        self.text = list(prompt)

    def propose(self, limit: int, goes_on: Callable[[Draft], bool] = lambda _: True) -> Draft:
        draft = Draft((), self.name)
        last = self.text[-1]
        while True:
            self.n_evaluated += 1
            row = self.chain[last]
            position = len(self.text) + len(draft.tokens)
            token = row.likeliest
            if self.drawn:
                token = sample(self.seed, position, PROPOSAL, row.tokens, row.log_probs)
            kind = kind_of(float(np.exp(row.log_prob(token))), len(draft.tokens))
            drawn_from = row if self.drawn else None
            draft = Draft((*draft.tokens, token), self.name, (*draft.distributions, drawn_from), (*draft.kinds, kind))
            if len(draft.tokens) == limit or not goes_on(draft):
                return draft
            last = token

    def commit(self, tokens: Sequence[int], seconds: float) -> None:
        self.text += tokens

    def close(self) -> None:
        pass


def auto_of(model: ChainModel, machine_name: str) -> AutoDrafter:
    """Return 'auto' on a machine where draft models pay."""
    machine = machine_of(machine_name, with_draft=True)
    planner = Planner(machine.target, shipped_priors(), machine.draft)
    return AutoDrafter(planner, LookupDrafter(lambda _: False, 127, min_match=3), model, clock=lambda: 0.0)


def texts(machine_name: str, n: int = TEXTS) -> tuple[np.ndarray, dict[str, int]]:
    """Return the first tokens of texts by the rejection rule, and how many drafts there were of each drafter."""
    target, model = distributions(TARGET), ChainModel(MODEL)
    auto = auto_of(model, machine_name)
    found, by_drafter = [], {"lookup": 0, "model": 0, "none": 0}
    for seed in range(n):
        model.seed = seed
        auto.begin(PROMPT, lambda *_: (0, None))
        text = list(PROMPT)
        while len(text) < len(PROMPT) + COUNTED:
            draft = auto.propose(8)
            by_drafter[draft.drafter] += 1
            rows = (target[token] for token in (text[-1], *draft.tokens))
            proposals = draft.distributions or (None,) * len(draft.tokens)
            verdict = rejection(rows, draft.tokens, proposals, seed, len(text))
            emitted = [*draft.tokens[: verdict.accepted], verdict.token]
            auto.commit(emitted, 0.05)
            text += emitted
        found.append(text[len(PROMPT) : len(PROMPT) + COUNTED])
    return np.array(found), by_drafter


def worst(found: np.ndarray) -> float:
    """Return the smallest p-value of the texts' first token and pairs, were they the target's."""
    alone = TARGET[PROMPT[-1]]
    values = [p_value(np.bincount(found[:, 0], minlength=SIZE), len(found) * alone)]
    for i in range(COUNTED - 1):
        pairs = np.bincount(found[:, i] * SIZE + found[:, i + 1], minlength=SIZE**2)
        values.append(p_value(pairs, len(found) * alone[:, None] * TARGET))
        alone = alone @ TARGET
    return min(values)


@pytest.mark.parametrize("machine_name", ["8-cores", "2-cores-bf16"])
def test_rejection_writes_the_targets_text_whoever_auto_lets_draft(machine_name: str) -> None:
    """With other seeds it would fail by chance three times in a million."""
    found, by_drafter = texts(machine_name)
    assert worst(found) > ALARM
    assert min(by_drafter["lookup"], by_drafter["model"]) > TEXTS / 20


def test_going_on_with_lookup_without_saying_what_was_drawn_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(draft: Draft, **changes: object) -> Draft:
        return Draft(draft.tokens, draft.drafter, (), draft.kinds)

    monkeypatch.setattr(lcspec.auto, "replace", forgetful)
    assert worst(texts("2-cores-bf16")[0]) < BLATANT


def test_a_draft_model_that_agrees_with_lookup_leaves_the_rest_to_it() -> None:
    model = ChainModel(SURE, drawn=False)
    auto = auto_of(model, "8-cores")
    while auto.planner.plan([SHORT_MATCH], 9, 5).drafter == "lookup":  # until lookup alone is not worth a pass
        auto.planner.record_draft("lookup", SHORT_MATCH, 0)
    auto.begin(PROMPT, lambda *_: (0, None))
    draft = auto.propose(5)
    assert model.n_evaluated == 1
    assert (draft.drafter, draft.tokens) == ("lookup", (3, 4, 5, 0, 1))


def test_a_draft_model_that_differs_from_lookup_goes_on() -> None:
    model = ChainModel(SURE, drawn=False)
    auto = auto_of(model, "8-cores")
    while auto.planner.plan([SHORT_MATCH], 9, 5).drafter == "lookup":
        auto.planner.record_draft("lookup", SHORT_MATCH, 0)
    auto.begin([1, 2, 5, 0, 3, 1, 2], lambda *_: (0, None))
    draft = auto.propose(5)
    assert model.n_evaluated == 5
    assert (draft.drafter, draft.tokens) == ("model", (3, 4, 5, 0, 1))


@pytest.mark.parametrize("prompt", [PROMPT, [1, 2, 5, 0, 3, 4]], ids=["lookup drafts", "nobody drafts"])
def test_a_model_that_may_propose_nothing_is_asked_once_in_a_text(prompt: list[int]) -> None:
    class Forbidden(ChainModel):
        def propose(self, limit: int, goes_on: Callable[[Draft], bool] = lambda _: True) -> Draft:
            self.n_evaluated += 1
            return NO_DRAFT

    model = Forbidden(SURE, drawn=False)
    auto = auto_of(model, "8-cores")
    while auto.planner.plan([SHORT_MATCH], 9, 5).drafter == "lookup":
        auto.planner.record_draft("lookup", SHORT_MATCH, 0)
    for texts_begun in (1, 2):
        auto.begin(prompt, lambda *_: (0, None))
        for _ in range(5):
            assert auto.propose(5).drafter != "model"
            auto.commit([9], 0.05)
        assert model.n_evaluated == texts_begun


class Busy:
    """A machine on which everything between two looks at the clock takes a while."""

    def __init__(self, machine: Machine, seconds: float) -> None:
        self.machine, self.seconds = machine, seconds
        self.n = 0

    def clock(self) -> float:
        self.n += 1
        self.machine.now += self.seconds
        return self.machine.now


def looked(recording: Recording, seconds: float) -> tuple[Replay, AutoDrafter, Busy]:
    """Replay a recording where looking for drafts takes time."""
    machine = machine_of("2-cores-135m", with_draft=False)
    busy = Busy(machine, seconds)
    auto = AutoDrafter(planner_of(machine, machine.target), full_lookup(recording), clock=busy.clock)
    return replay(recording, machine, auto), auto, busy


def test_looking_in_vain_takes_little_time() -> None:
    recording = next(one for one in RECORDINGS if one.category == "chat")
    _, _, often = looked(recording, 0.00005)
    result, auto, seldom = looked(recording, 0.0005)
    assert seldom.n < 0.6 * often.n
    assert sum(auto.explain().passes.values()) == result.widths.total()  # of each pass is learned
    assert auto.planner.target.seconds(1) == pytest.approx(0.05, rel=0.05)


def test_what_repeats_is_drafted_also_where_looking_takes_time() -> None:
    for recording in RECORDINGS:
        if recording.category.startswith("edit"):
            seldom, always = (looked(recording, seconds)[0] for seconds in (0.0005, 0.0))
            assert seldom.speed > 0.9 * always.speed
