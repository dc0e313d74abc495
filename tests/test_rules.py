"""The text has the target's distribution, whatever drafts: with statistics, and with mutants that they have to see.

The target is a Markov chain of eight tokens. Each case emits 200,000 tokens: 50,000 texts, each of its own seed, of
which the first four tokens count. The first token, each pair of neighbours and all four together are compared with
the chain by a chi-square test. Noise is looked up in a table that is made for all seeds at once.

Seeds are fixed, so no test fails by chance; with others each of the 40 p-values would be below `ALARM` once in a
million times, and the file fail wrongly once in 25,000 changes of seeds.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import numpy as np
import pytest
from chi_square import p_value
from hypothesis import given, settings
from hypothesis import strategies as st

from lcspec import GREEDY, PromptError, SamplingParams
from lcspec import verify as verify_module
from lcspec.drafters import Draft
from lcspec.drafters.base import NO_DRAFT
from lcspec.noise import ACCEPTANCE, CORRECTION, COUPLED, PROPOSAL, sample, uniform
from lcspec.rules import RULES, CoupledRule, GreedyRule, RejectionRule, RuleName, make_rule
from lcspec.sampling import Distribution, distribution
from lcspec.verify import Verdict, coupled, greedy, rejection

ALARM = 1e-6
BLATANT = 1e-12  # a p-value that a mutant has to be below
SIZE = 8
COUNTED = 4
TEXTS = 50_000
FEW_TEXTS = 10_000  # enough to see a mutant
POSITIONS = 10  # that any text looks at
START = 0

Chain = list[Distribution | None]
"""What follows each token; None where the draft is certain of the likeliest token of the target."""


def matrix(seed: int, evenness: float) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(SIZE, evenness), size=SIZE)


def without(probabilities: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
    left = probabilities.copy()
    left[:, tokens] = 0
    return left / left.sum(axis=1, keepdims=True)


def chain(probabilities: np.ndarray) -> list[Distribution]:
    """Return the rows as distributions that lack the impossible tokens."""
    return [Distribution(np.flatnonzero(row), np.log(row[row > 0])) for row in probabilities]


TARGET = matrix(0, 2.0)
FAR = 0.03 + 0.97 * np.roll(TARGET[:, ::-1] ** 3, 3, axis=0)
FAR /= FAR.sum(axis=1, keepdims=True)
TARGETS = {"equal": TARGET, "far": TARGET, "zeros": without(TARGET, [1, 6]), "certain": TARGET}
DRAFTS = {"equal": TARGET, "far": FAR, "zeros": without(FAR, [2, 3, 7]), "certain": None}
CASES = tuple(TARGETS)


def mixed(x: np.ndarray) -> np.ndarray:
    """Return the finalizer of SplitMix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@cache
def noise_table(purpose: int) -> np.ndarray:
    """Return the uniform noise of all seeds, positions and tokens."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    keys = mixed(np.arange(TEXTS, dtype=np.uint64))[:, None] + np.arange(POSITIONS, dtype=np.uint64) * golden
    keys = mixed(mixed(keys) + np.full(1, purpose + 1, dtype=np.uint64) * golden)
    hashes = mixed(keys[:, :, None] + np.arange(1, SIZE + 1, dtype=np.uint64) * golden)
    return ((hashes >> np.uint64(12)) + 0.5) / 2.0**52


@cache
def gumbel_table(purpose: int) -> np.ndarray:
    return -np.log(-np.log(noise_table(purpose)))


def quick_uniform(seed: int, position: int, purpose: int, tokens: np.ndarray) -> np.ndarray:
    return noise_table(purpose)[seed, position, tokens]


def quick_sample(seed: int, position: int, purpose: int, tokens: np.ndarray, log_probs: np.ndarray) -> int:
    return int(tokens[(log_probs + gumbel_table(purpose)[seed, position, tokens]).argmax()])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_module, "uniform", quick_uniform)
    monkeypatch.setattr(verify_module, "sample", quick_sample)


def test_the_table_holds_the_noise() -> None:
    random = np.random.default_rng(0)
    tokens = np.arange(SIZE)
    for seed in [0, TEXTS - 1, *random.integers(TEXTS, size=500).tolist()]:
        position, purpose = int(random.integers(POSITIONS)), int(random.integers(4))
        log_probs = np.log(TARGET[seed % SIZE])
        assert np.array_equal(quick_uniform(seed, position, purpose, tokens), uniform(seed, position, purpose, tokens))
        place = (seed, position, purpose, tokens, log_probs)
        assert quick_sample(*place) == sample(*place)


class Case:
    """A rule, a target and a drafter; what is drafted has 1 to 3 tokens."""

    def __init__(self, name: str, verify: Callable[..., Verdict], purpose: int) -> None:
        self.expected = TARGETS[name]
        self.target = chain(self.expected)
        drafts = DRAFTS[name]
        self.drafts: Chain = [None] * SIZE if drafts is None else list(chain(drafts))
        self.verify = verify
        self.purpose = purpose

    def draft(self, seed: int, position: int, last: int) -> tuple[list[int], Chain]:
        tokens: list[int] = []
        proposals: Chain = []
        for i in range(1 + (seed + position) % 3):
            proposal = self.drafts[last]
            if proposal is None:
                last = self.target[last].likeliest
            else:
                last = quick_sample(seed, position + i, self.purpose, proposal.tokens, proposal.log_probs)
            tokens.append(last)
            proposals.append(proposal)
        return tokens, proposals

    def text(self, seed: int) -> tuple[list[int], bool]:
        """Return a text, and whether its first draft token was accepted."""
        text: list[int] = []
        was_accepted = None
        while len(text) < COUNTED:
            last = text[-1] if text else START
            draft, proposals = self.draft(seed, len(text), last)
            targets = (self.target[token] for token in (last, *draft))
            verdict = self.verify(targets, draft, proposals, seed, len(text))
            if was_accepted is None:
                was_accepted = verdict.accepted > 0
            text += [*draft[: verdict.accepted], verdict.token]
        return text[:COUNTED], bool(was_accepted)

    def texts(self, n: int) -> tuple[np.ndarray, float]:
        """Return many texts, and how often the first draft token was accepted."""
        texts, accepted = zip(*(self.text(seed) for seed in range(n)), strict=True)
        return np.array(texts), float(np.mean(accepted))

    def p_values(self, texts: np.ndarray) -> list[float]:
        """Compare the first token, all pairs of neighbours and the whole texts with the chain."""
        alone = [self.expected[START]]
        for _ in range(COUNTED - 1):
            alone.append(alone[-1] @ self.expected)
        values = [p_value(np.bincount(texts[:, 0], minlength=SIZE), len(texts) * alone[0])]
        for i in range(COUNTED - 1):
            pairs = np.bincount(texts[:, i] * SIZE + texts[:, i + 1], minlength=SIZE**2)
            values.append(p_value(pairs, len(texts) * alone[i][:, None] * self.expected))
        whole = np.bincount(texts @ SIZE ** np.arange(COUNTED)[::-1], minlength=SIZE**COUNTED)
        p = self.expected
        together = np.einsum("a,ab,bc,cd->abcd", p[START], p, p, p)
        return [*values, p_value(whole, len(texts) * together)]

    def sees(self, n: int = FEW_TEXTS) -> float:
        """Return the smallest p-value."""
        return min(self.p_values(self.texts(n)[0]))


def couple(
    targets: Iterable[Distribution], draft: Sequence[int], proposals: Chain, seed: int, position: int
) -> Verdict:
    return coupled(targets, draft, seed, position)


def reject(name: str) -> Case:
    return Case(name, rejection, PROPOSAL)


def distance(name: str) -> float:
    """Return the total variation distance of target and draft at the first token."""
    p, drafts = TARGETS[name][START], DRAFTS[name]
    q = np.eye(SIZE)[p.argmax()] if drafts is None else drafts[START]
    return float(np.abs(p - q).sum() / 2)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", CASES)
def test_rejection_writes_the_targets_text_and_accepts_as_often_as_can_be(name: str) -> None:
    case = reject(name)
    texts, accepted = case.texts(TEXTS)
    assert min(case.p_values(texts)) > ALARM
    assert abs(accepted - (1 - distance(name))) < 5 / math.sqrt(4 * TEXTS)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", CASES)
def test_coupled_writes_the_targets_text_and_accepts_as_often_as_promised(name: str) -> None:
    case = Case(name, couple, COUPLED)
    texts, accepted = case.texts(TEXTS)
    assert min(case.p_values(texts)) > ALARM
    d = distance(name)
    error = 5 / math.sqrt(4 * TEXTS)
    if DRAFTS[name] is None:  # nothing is coupled
        assert abs(accepted - (1 - d)) < error
    else:
        assert (1 - d) / (1 + d) - error < accepted <= 1 - d + error


def test_the_drafts_are_near_and_far() -> None:
    assert distance("equal") == 0
    assert 0.3 < distance("certain") < 0.9
    assert distance("far") > 0.3
    p, q = TARGETS["zeros"], DRAFTS["zeros"]
    assert q is not None
    assert ((p > 0) & (q == 0)).any(axis=1).all()
    assert ((p == 0) & (q > 0)).any(axis=1).all()


def log_ratio(target: Distribution, proposal: Distribution | None, token: int) -> float:
    return target.log_prob(token) - (0.0 if proposal is None else proposal.log_prob(token))


def rest(target: Distribution, proposal: Distribution | None, token: int) -> Distribution:
    q = np.zeros(SIZE)
    if proposal is None:
        q[token] = 1
    else:
        q[proposal.tokens] = np.exp(proposal.log_probs)
    left = np.maximum(np.exp(target.log_probs) - q[target.tokens], 0)
    return Distribution(target.tokens[left > 0], np.log(left[left > 0])) if left.any() else target


def rebuilt(
    ratio: Callable[..., float] = log_ratio,
    left: Callable[..., Distribution] = rest,
    acceptance: int = ACCEPTANCE,
    correction: int = CORRECTION,
    step: int = 1,
) -> Callable[..., Verdict]:
    """Return rejection built from parts, which can be wrong ones."""

    def verify(
        targets: Iterable[Distribution], draft: Sequence[int], proposals: Chain, seed: int, position: int
    ) -> Verdict:
        for i, target in enumerate(targets):
            where = position + step * i
            if i < len(draft):
                accepted = ratio(target, proposals[i], draft[i])
                if math.log(quick_uniform(seed, where, acceptance, np.zeros(1, dtype=np.int64))[0]) < accepted:
                    continue
                target = left(target, proposals[i], draft[i])
            return Verdict(i, quick_sample(seed, where, correction, target.tokens, target.log_probs))
        raise AssertionError

    return verify


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", CASES)
def test_rejection_is_what_its_parts_make(name: str) -> None:
    right, parts = reject(name), Case(name, rebuilt(), PROPOSAL)
    assert [right.text(seed) for seed in range(1000)] == [parts.text(seed) for seed in range(1000)]


MUTANTS = {
    "from p": rebuilt(left=lambda target, proposal, token: target),
    "q/p": rebuilt(ratio=lambda target, proposal, token: -log_ratio(target, proposal, token)),
    "always": rebuilt(ratio=lambda target, proposal, token: 0.0),
    "one noise for all positions": rebuilt(step=0),
    "acceptance by the draft's noise": rebuilt(acceptance=PROPOSAL),
    "correction by the draft's noise": rebuilt(correction=PROPOSAL),
}
FOR_CERTAIN_DRAFTS = ("from p", "q/p", "always")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("name", "mutant"), [*(("zeros", mutant) for mutant in MUTANTS), *(("certain", one) for one in FOR_CERTAIN_DRAFTS)]
)
def test_wrong_rejection_is_seen(name: str, mutant: str) -> None:
    assert Case(name, MUTANTS[mutant], PROPOSAL).sees() < BLATANT


class Hiding(Case):
    """A drafter that keeps a sampled token to itself because of which one it is."""

    def draft(self, seed: int, position: int, last: int) -> tuple[list[int], Chain]:
        tokens, proposals = super().draft(seed, position, last)
        n = tokens.index(4) if 4 in tokens else len(tokens)
        return tokens[:n], proposals[:n]


@pytest.mark.usefixtures("quick")
def test_a_draft_that_hides_a_sampled_token_spoils_rejection_but_not_coupling() -> None:
    assert Hiding("equal", rejection, PROPOSAL).sees() < BLATANT
    assert Hiding("equal", couple, COUPLED).sees() > ALARM


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "mutant",
    [
        lambda targets, draft, proposals, seed, position: coupled(targets, draft, seed, position + len(draft)),
        lambda targets, draft, proposals, seed, position: coupled(targets, draft, seed, 0),
        lambda targets, draft, proposals, seed, position: Verdict(0, draft[0]),
    ],
    ids=["noise by the length of the draft", "noise that repeats", "the draft's own text"],
)
def test_wrong_coupling_is_seen(mutant: Callable[..., Verdict]) -> None:
    assert Case("far", mutant, COUPLED).sees() < BLATANT


@pytest.mark.usefixtures("quick")
def test_coupling_without_shared_noise_is_seen() -> None:
    _, accepted = Case("equal", couple, PROPOSAL).texts(FEW_TEXTS)
    assert accepted < 0.5  # where the same noise accepts all
    assert Case("equal", couple, COUPLED).texts(FEW_TEXTS)[1] == 1


token_ids = st.integers(0, SIZE - 1)
PENALTIES = {"repeat_penalty": 1.3, "presence_penalty": 0.5, "penalty_last_n": 5}


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1),
    drafts=st.lists(st.lists(token_ids, max_size=5), max_size=30),
    hints=st.lists(st.integers(0, 6), min_size=30, max_size=30),
    temperature=st.sampled_from([0.0, 0.5, 2.0]),
    penalties=st.booleans(),
)
def test_the_coupled_text_does_not_depend_on_drafts(
    seed: int, drafts: list[list[int]], hints: list[int], temperature: float, penalties: bool
) -> None:
    logits = np.log(TARGET).astype(np.float32)
    params = SamplingParams(temperature=temperature, top_k=6, **PENALTIES if penalties else {})
    rule = CoupledRule(params, seed)
    alone = [START]
    while len(alone) < 40:
        alone.append(rule.verify(logits[alone[-1:]], NO_DRAFT, alone).token)
    text = [START]
    for hint, guess in zip(hints, drafts, strict=False):
        draft = [*alone[len(text) : len(text) + hint], *guess]  # right at first, most of the time
        verdict = rule.verify(logits[[text[-1], *draft]], Draft(tuple(draft), "any"), text)
        text += [*draft[: verdict.accepted], verdict.token]
    shared = min(len(text), len(alone))
    assert text[:shared] == alone[:shared]


@settings(deadline=None)
@given(seed=st.integers(0, 2**64 - 1), k=st.integers(0, 3), committed=st.lists(token_ids, min_size=1, max_size=9))
def test_the_rules_verify_and_propose_by_their_parameters(seed: int, k: int, committed: list[int]) -> None:
    logits = np.random.default_rng(seed).normal(size=(k + 1, SIZE)).astype(np.float32)
    params = SamplingParams(temperature=1.3, top_k=5, **PENALTIES)
    for rule, purpose in ((CoupledRule(params, seed), COUPLED), (RejectionRule(params, seed), PROPOSAL)):
        history = list(committed)
        tokens: list[int] = []
        proposals: Chain = []
        for row in logits[:k][::-1]:
            token, proposal = rule.propose(row, history)
            drafted = distribution(row, params, history)
            assert token == sample(seed, len(history), purpose, drafted.tokens, drafted.log_probs)
            tokens.append(token)
            proposals.append(proposal)
            history.append(token)
        targets = [distribution(row, params, committed + tokens[:i]) for i, row in enumerate(logits)]
        found = rule.verify(logits, Draft(tuple(tokens), "model", tuple(proposals)), committed)
        if isinstance(rule, CoupledRule):
            assert proposals == [None] * k
            assert found == coupled(targets, tokens, seed, len(committed))
        else:
            assert None not in proposals
            assert found == rejection(targets, tokens, proposals, seed, len(committed))
            certain = rule.verify(logits, Draft(tuple(tokens), "lookup"), committed)
            assert certain == rejection(targets, tokens, [None] * k, seed, len(committed))


@pytest.mark.parametrize("proposed", [True, False])
def test_rejection_never_accepts_what_the_target_forbids(proposed: bool) -> None:
    target = Distribution(np.array([0, 1]), np.log([0.5, 0.5]))
    proposal = Distribution(np.array([2 if proposed else 3]), np.zeros(1))
    for seed in range(100):
        verdict = rejection([target, target], [2], [proposal], seed, 0)
        assert verdict.accepted == 0
        assert verdict.token in (0, 1)


@pytest.mark.parametrize("verify", [couple, rejection])
def test_a_target_that_is_certain_writes_what_it_is_certain_of(verify: Callable[..., Verdict]) -> None:
    certain = Distribution(np.array([5]), np.zeros(1))
    for seed in range(100):
        assert verify([certain, certain], [5], [None], seed, 0) == Verdict(1, 5)
        assert verify([certain, certain], [3], [None], seed, 0) == Verdict(0, 5)


@pytest.mark.parametrize("verify", [couple, rejection])
def test_there_must_be_a_target_behind_the_draft(verify: Callable[..., Verdict]) -> None:
    certain = Distribution(np.array([5]), np.zeros(1))
    with pytest.raises(ValueError, match="one behind them"):
        verify([certain], [5], [None], 0, 0)


@pytest.mark.parametrize("name", [None, "greedy"])
def test_temperature_zero_is_greedy(name: RuleName | None) -> None:
    rule = make_rule(GREEDY, name, seed=1)
    assert isinstance(rule, GreedyRule)
    logits = np.random.default_rng(0).normal(size=(3, SIZE)).astype(np.float32)
    best = logits.argmax(axis=1).tolist()
    for draft in (best[:2], [best[0], (best[1] + 1) % SIZE], [(best[0] + 1) % SIZE, best[1]]):
        assert rule.verify(logits, Draft(tuple(draft), "any"), [1]) == greedy(logits, draft)
    assert rule.propose(logits[0], [1]) == (best[0], None)


@pytest.mark.parametrize("name", [None, "greedy"])
def test_greedy_with_penalties_takes_the_likeliest_of_what_they_leave(name: RuleName | None) -> None:
    rule = make_rule(SamplingParams(temperature=0, presence_penalty=100.0), name, seed=1)
    row = np.arange(SIZE, dtype=np.float32)
    verdict = rule.verify(np.stack([row] * 3), Draft((SIZE - 1, SIZE - 2), "any"), [0])
    assert verdict == Verdict(2, SIZE - 3)


@pytest.mark.parametrize(
    ("name", "kind"), [(None, CoupledRule), ("coupled", CoupledRule), ("rejection", RejectionRule)]
)
def test_above_temperature_zero_the_rule_is_coupled_or_rejection(name: RuleName | None, kind: type) -> None:
    rule = make_rule(SamplingParams(), name, seed=5)
    assert isinstance(rule, kind)
    assert rule.seed == 5


@pytest.mark.parametrize(
    ("params", "name", "message"),
    [
        (GREEDY, "coupled", "with a temperature of 0 the rule is greedy, not coupled"),
        (GREEDY, "rejection", "with a temperature of 0 the rule is greedy, not rejection"),
        (SamplingParams(), "greedy", "with a temperature of 0.8 the rule is coupled or rejection, not greedy"),
        (GREEDY, "typical", f"'typical' is no rule; choose from {', '.join(RULES)}"),
        (SamplingParams(), "", "'' is no rule"),
    ],
)
def test_a_rule_that_does_not_fit_is_refused(params: SamplingParams, name: RuleName, message: str) -> None:
    with pytest.raises(PromptError) as caught:
        make_rule(params, name, seed=0)
    assert str(caught.value).startswith(message)
