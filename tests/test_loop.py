"""Speculative equals plain, token for token, and the cache always holds what is committed."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lcspec.auto import AutoDrafter
from lcspec.drafters import Draft, Drafter, LookupDrafter, ModelDrafter, NoDrafter, Propose
from lcspec.llama import MAX_WIDTH, Context, Model
from lcspec.loop import speculate
from lcspec.planner import CostCurve, Planner, shipped_priors
from lcspec.rules import GreedyRule

N_CTX = 200  # under 256 cells, where any pass width is exact
PLAIN = NoDrafter()
WIDEST_EXACT = 63


class Rig:
    """A tiny target and draft, and both ways to continue a prompt."""

    def __init__(self, target: Path, draft: Path) -> None:
        self.model = Model(target)
        self.target = Context(self.model, N_CTX, threads=1)
        self.lookup = LookupDrafter(self.model.is_eog)
        self.eager_lookup = LookupDrafter(self.model.is_eog, 6, min_match=1)
        self.draft = ModelDrafter(Context(Model(draft), N_CTX, threads=1), self.model.n_vocab, 5)
        cheap, cheaper = CostCurve({1: 3e-4, 128: 6e-4}), CostCurve({1: 3e-5, 128: 6e-5})
        self.auto = AutoDrafter(
            Planner(cheap, shipped_priors(), cheaper),
            LookupDrafter(self.model.is_eog, 127, min_match=3, max_match=64),
            ModelDrafter(Context(Model(draft), N_CTX, threads=1), self.model.n_vocab, 127),
            WIDEST_EXACT - 1,
        )
        self.itself = ModelDrafter(Context(Model(target), N_CTX, threads=1), self.model.n_vocab, 5)

    def run(self, prompt: list[int], drafter: Drafter, max_tokens: int, n_ctx: int = N_CTX) -> list[int]:
        """Generate, checking the cache after every pass."""
        self.target.n_ctx = n_ctx
        self.n_passes = self.widest = 0
        committed = list(prompt)
        passes = speculate(self.target, prompt, drafter, GreedyRule(), max_tokens=max_tokens, is_eog=self.model.is_eog)
        for done in passes:
            self.n_passes += 1
            self.widest = max(self.widest, len(done.draft.tokens) + 1)
            committed += done.emitted
            assert self.target.tokens == committed[:-1]
            assert self.target.n_tokens == len(committed) - 1
            assert done.emitted[: done.accepted] == done.draft.tokens[: done.accepted]
        return committed[len(prompt) :]

    def close(self) -> None:
        self.draft.close()
        self.auto.close()
        self.itself.close()
        self.model.close()


@pytest.fixture(scope="module", params=["llama", "sliding window"])
def rig(request: pytest.FixtureRequest, tiny_llama: Path, tiny_sliding: Path, tiny_draft: Path) -> Iterator[Rig]:
    rig = Rig(tiny_llama if request.param == "llama" else tiny_sliding, tiny_draft)
    yield rig
    rig.close()


def random_prompt(seed: int) -> list[int]:
    """Return a prompt of 1 to 120 bytes, with repetitions to look up."""
    random = np.random.default_rng(seed)
    alphabet = random.integers(0, 256, random.integers(1, 30))
    prompt: list[int] = random.choice(alphabet, random.integers(1, 60)).tolist()
    return prompt + prompt[: random.integers(0, len(prompt) + 1)]


@pytest.mark.parametrize("name", ["lookup", "eager_lookup", "draft", "itself", "auto"])
def test_every_drafter_gives_the_plain_text_on_500_prompts(rig: Rig, name: str) -> None:
    drafter = getattr(rig, name)
    fewer_passes = 0
    for seed in range(500):
        prompt = random_prompt(seed)
        rig.target.clear()
        plain = rig.run(prompt, PLAIN, max_tokens=24)
        rig.target.clear()
        assert rig.run(prompt, drafter, max_tokens=24) == plain, f"prompt {seed}"
        fewer_passes += rig.n_passes < len(plain)
    assert fewer_passes > 0


class Scripted:
    """Drafts the true continuation up to a depth, then wrong tokens, as a script says."""

    def __init__(self, plain: Sequence[int], script: Sequence[tuple[int, int]]) -> None:
        self._plain = plain
        self._script = list(script)
        self._emitted = 0

    def begin(self, prompt: Sequence[int], propose: Propose) -> None:
        self._emitted = 0

    def commit(self, tokens: Sequence[int], seconds: float) -> None:
        self._emitted += len(tokens)

    def propose(self, limit: int) -> Draft:
        right, wrong = self._script.pop(0) if self._script else (0, 0)
        rest = list(self._plain[self._emitted :])
        true = rest[:right]
        others = [(token + 1) % 256 for token in (rest[len(true) :] + [0] * wrong)[:wrong]]
        return Draft((*true, *others), "scripted")

    def close(self) -> None:
        pass


scripts = st.lists(
    st.one_of(
        st.tuples(st.just(0), st.integers(0, 9)),  # never right
        st.tuples(st.integers(1, 9), st.just(0)),  # always right
        st.tuples(st.integers(0, 9), st.integers(0, 9)),  # right to some depth
        st.tuples(st.integers(0, 31), st.integers(0, 31)),  # up to the 63 to which a pass is exact
    ),
    max_size=20,
)


@given(seed=st.integers(0, 10_000), script=scripts, max_tokens=st.integers(1, 80), room=st.integers(1, 80))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_draft_gives_the_plain_text(
    rig: Rig, seed: int, script: list[tuple[int, int]], max_tokens: int, room: int
) -> None:
    prompt = random_prompt(seed)
    n_ctx = len(prompt) + room
    rig.target.clear()
    plain = rig.run(prompt, PLAIN, max_tokens, n_ctx)
    rig.target.clear()
    assert rig.run(prompt, Scripted(plain, script), max_tokens, n_ctx) == plain


def test_drafts_that_are_always_right_need_few_passes(rig: Rig) -> None:
    prompt = next(p for seed in range(100) if len(plain := rig.run(p := random_prompt(seed), PLAIN, 61)) == 61)
    plain = rig.run(prompt, PLAIN, 61)
    rig.run(prompt, Scripted(plain, [(9, 0)] * 99), 61)
    assert rig.n_passes == 1 + 6


def test_nothing_is_kept_behind_an_end_of_generation_in_a_draft(rig: Rig) -> None:
    for seed in range(300):
        prompt = random_prompt(seed)
        plain = rig.run(prompt, PLAIN, 60)
        if rig.model.is_eog(plain[-1]) and len(plain) > 2:
            break
    else:
        pytest.fail("no prompt ended")
    drafted = Scripted([*plain, 1, 2, 3], [(len(plain) + 2, 0)])
    assert rig.run(prompt, drafted, 60) == plain


def test_the_end_of_the_context_ends_the_text(rig: Rig) -> None:
    prompt = random_prompt(1)
    n_ctx = len(prompt) + 7
    texts = [rig.run(prompt, drafter, 1000, n_ctx) for drafter in (PLAIN, rig.itself, rig.eager_lookup)]
    assert texts[0] == texts[1] == texts[2]
    assert len(texts[0]) == 7 or rig.model.is_eog(texts[0][-1])


def test_a_draft_is_never_wider_than_a_pass(rig: Rig) -> None:
    rig.run([65], Scripted([], [(0, 300)] * 9), max_tokens=190)
    assert rig.widest == MAX_WIDTH


def test_tiny_models_end_now_and_then(rig: Rig) -> None:
    ends = sum(rig.model.is_eog(rig.run(random_prompt(seed), PLAIN, 60)[-1]) for seed in range(100))
    assert 0 < ends < 100
