"""The planner: numbers in, choices out."""

import itertools
import json
import math
import random
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.calibration import fit_weights
from bench.recordings import Recording, read_recordings
from bench.replay import auto, lookup_oracle, planner_of, replay
from bench.simulate import MACHINES, machine_of, speeds
from lcspec.drafters import LOOKUP_KINDS, MODEL_KINDS
from lcspec.planner import (
    BATCH,
    PLAIN,
    WIDEST,
    AcceptanceTable,
    CostCurve,
    LayoutChoice,
    Length,
    Planner,
    best_length,
    break_even,
    expected_gain,
    reading_cost,
    shipped_priors,
    worth,
)
from lcspec.planner.planner import LOOK_AHEAD, MOST_FOR_PROMPT
from lcspec.planner.priors import LookupPriors

RECORDINGS = read_recordings(Path(__file__).parent / "data" / "recordings.jsonl")
TWO_CORES = {1: 0.05, 2: 0.08, 3: 0.105, 4: 0.14, 7: 0.22, 8: 0.36, 16: 0.45, 32: 0.8, 64: 1.4, 128: 2.5}
GPU = {1: 0.05, 16: 0.06, 64: 0.09, 128: 0.13}
SURE = ["suffix m64 agrees alone d16"] * 127
UNSURE = ["suffix m3 differs alone d0"] * 127


def line(slope: float) -> CostCurve:
    return CostCurve({1: 0.05, WIDEST: 0.05 * (1 + slope * (WIDEST - 1))})


# the length


@given(st.lists(st.floats(0, 1), max_size=12), st.floats(0, 1), st.booleans())
def test_the_best_length_is_that_of_trying_all(chances: list[float], slope: float, at_least_one: bool) -> None:
    shortest = int(at_least_one and bool(chances))
    seconds = np.array([0.05 * (1 + slope * n) for n in range(len(chances) + 1)])
    values = []
    for length in range(len(chances) + 1):
        right = list(itertools.accumulate(chances[:length], lambda a, b: a * b))
        values.append((1 + sum(right)) / seconds[length])
    found = best_length(np.array(chances), seconds, shortest)
    assert found.tokens >= shortest
    assert found.rate == pytest.approx(max(values[shortest:]))
    assert values[found.tokens] == pytest.approx(found.rate)


@given(st.lists(st.floats(0, 1), max_size=12), st.floats(0, 1), st.floats(1, 80))
def test_what_more_is_worth_is_that_of_trying_all(chances: list[float], slope: float, rate: float) -> None:
    seconds = np.array([0.05 * (1 + slope * n) for n in range(len(chances) + 1)])
    right = list(itertools.accumulate(chances, lambda a, b: a * b))
    gains = [sum(right[:n]) - rate * (seconds[n] - seconds[0]) for n in range(len(chances) + 1)]
    assert gains[worth(np.array(chances), seconds, rate)] == pytest.approx(max(gains))


# costs


def test_a_curve_that_knows_nothing_is_dear_and_rises() -> None:
    curve = CostCurve()
    costs = [curve.seconds(width) / curve.seconds(1) for width in range(1, WIDEST + 1)]
    assert costs == sorted(costs)
    assert costs[15] > 9
    assert not curve.has_scale
    assert not curve.is_measured


def test_the_first_pass_gives_the_scale() -> None:
    curve = CostCurve()
    curve.record(1, 100, 0.03)
    assert curve.has_scale
    assert curve.seconds(1) == pytest.approx(0.03)


def test_a_measured_curve_goes_through_its_points() -> None:
    curve = CostCurve(TWO_CORES, {1: 1e-5, 32: 4e-5})
    for width, seconds in TWO_CORES.items():
        assert curve.seconds(width) == pytest.approx(seconds)
    assert TWO_CORES[8] < curve.seconds(12) < TWO_CORES[16]
    assert curve.seconds(1, 1000) == pytest.approx(0.05 + 0.01)
    assert curve.seconds(2 * WIDEST) == pytest.approx(2 * curve.seconds(WIDEST))
    assert curve.best_speedup() == pytest.approx(128 * 0.05 / 2.5)


def test_a_curve_goes_on_behind_its_widest_point() -> None:
    curve = CostCurve({1: 0.05, 4: 0.14})
    assert curve.seconds(7) == pytest.approx(0.23)


@given(st.dictionaries(st.integers(2, WIDEST), st.floats(0.01, 10), max_size=8), st.integers(0, 4000))
def test_padding_never_costs_more_and_is_never_narrower(points: dict[int, float], depth: int) -> None:
    curve = CostCurve({1: 0.05} | points, {1: 1e-6, 64: 1e-5})
    least, widths = curve.padded(depth)
    for width in range(1, WIDEST + 1):
        assert widths[width] >= width
        assert least[width] <= curve.seconds(width, depth) * (1 + 1e-9)
        assert least[width] == pytest.approx(curve.seconds(int(widths[width]), depth), rel=0.01)
    assert list(least) == sorted(least)


def seen(curve: CostCurve, ratios: dict[int, float], repeats: int, scale: float = 0.05) -> None:
    rng = random.Random(1)
    for _ in range(repeats):
        for width, ratio in ratios.items():
            curve.record(width, 100, scale * ratio * rng.uniform(0.97, 1.03))


def test_a_curve_learns_from_passes() -> None:
    curve = CostCurve()
    seen(curve, {1: 1.0, 2: 1.1, 4: 1.3, 16: 2.5}, repeats=12)
    for width, ratio in {2: 1.1, 4: 1.3, 16: 2.5}.items():
        assert curve.seconds(width) / curve.seconds(1) == pytest.approx(ratio, rel=0.15)
    assert 1.3 < curve.seconds(8) / curve.seconds(1) < 2.5


def test_a_curve_survives_busy_moments() -> None:
    curve = CostCurve(TWO_CORES)
    seen(curve, {1: 1.0, 4: 2.8}, repeats=9)
    for _ in range(3):
        curve.record(4, 100, 5.0)
        curve.record(1, 100, 2.0)
    assert curve.seconds(4) / curve.seconds(1) == pytest.approx(2.8, rel=0.1)
    assert curve.seconds(1) == pytest.approx(0.05, rel=0.1)


def test_a_curve_follows_a_machine_that_gets_slower_without_seeing_every_width() -> None:
    curve = CostCurve(TWO_CORES)
    seen(curve, {1: 1.0}, repeats=20, scale=0.15)
    assert curve.seconds(1) == pytest.approx(0.15, rel=0.05)
    assert curve.seconds(16) == pytest.approx(3 * TWO_CORES[16], rel=0.1)


def test_a_curve_follows_a_machine_on_which_drafts_stop_to_pay() -> None:
    curve = CostCurve(GPU)
    seen(curve, {1: 1.0, 4: 3.0}, repeats=20)
    assert curve.seconds(4) / curve.seconds(1) > 2


def test_what_a_token_takes_longer_behind_a_wider_pass_counts_as_part_of_that() -> None:
    curve = CostCurve({1: 0.05, 4: 0.14})
    for _ in range(20):
        for width, seconds in (1, 0.05), (1, 0.05), (4, 0.14), (1, 0.07):
            curve.record(width, 100, seconds)
    assert curve.seconds(1) == pytest.approx(0.05)
    assert curve.seconds(4) == pytest.approx(0.16, rel=0.02)


@given(st.lists(st.tuples(st.integers(1, WIDEST), st.floats(1e-3, 10)), max_size=60), st.integers(0, 4000))
def test_proportions_are_those_of_the_seconds(passes: list[tuple[int, float]], depth: int) -> None:
    curve = CostCurve(TWO_CORES, {1: 1e-6, 64: 1e-5})
    for width, seconds in passes:
        curve.record(width, depth, seconds)
        expected = curve.padded(depth)[0] / curve.padded(depth)[0][1]
        assert curve.proportions(depth) == pytest.approx(expected)


@pytest.mark.parametrize("is_measured", [True, False])
def test_a_curve_can_be_kept(is_measured: bool) -> None:
    """As measured, so that a busy moment stays one; or else as seen."""
    curve = CostCurve(TWO_CORES, {1: 1e-5})
    curve.is_measured = is_measured
    seen(curve, {1: 1.0, 4: 2.0}, repeats=9)
    again = CostCurve.from_dict(curve.as_dict())
    assert again is not None
    assert again.is_measured is is_measured
    expected = CostCurve(TWO_CORES, {1: 1e-5}) if is_measured else curve
    for width in (1, 4, 16, 128):
        assert again.seconds(width, 500) == pytest.approx(expected.seconds(width, 500), rel=0.05)


def test_what_was_seen_of_a_width_is_forgotten_after_a_while() -> None:
    curve = CostCurve(TWO_CORES)
    measured = curve.seconds(4) / curve.seconds(1)
    seen(curve, {1: 1.0, 4: 9.0, 2: 1.9}, repeats=9)
    assert curve.seconds(4) / curve.seconds(1) > 2 * measured
    for _ in range(4_000):
        seen(curve, {1: 1.0, 2: 1.9}, repeats=1)
    assert curve.seconds(4) / curve.seconds(1) < 1.5 * measured
    assert curve.seconds(2) / curve.seconds(1) == pytest.approx(1.9, rel=0.1)


@pytest.mark.parametrize(
    "kept",
    [
        None,
        [],
        {},
        {"seconds": {}, "seconds_per_cell": {"1": 0}, "is_measured": True},
        {"seconds": {"1": -1}, "seconds_per_cell": {"1": 0}, "is_measured": True},
        {"seconds": {"1": float("nan")}, "seconds_per_cell": {"1": 0}, "is_measured": True},
        {"seconds": {"x": 1}, "seconds_per_cell": {"1": 0}, "is_measured": True},
        {"seconds": {"1": 1, "1000": 2}, "seconds_per_cell": {"1": 0}, "is_measured": True},
        {"seconds": {"1": 1}, "seconds_per_cell": {"1": 9}, "is_measured": True},
    ],
)
def test_a_damaged_curve_is_not_used(kept: object) -> None:
    assert CostCurve.from_dict(kept) is None


def test_impossible_passes_teach_nothing() -> None:
    curve = CostCurve(TWO_CORES)
    curve.record(0, 0, 1.0)
    curve.record(WIDEST + 1, 0, 1.0)
    curve.record(1, 0, 0.0)
    assert curve.seconds(1) == pytest.approx(0.05)


# acceptance


@given(st.floats(0.05, 0.95), st.floats(0.05, 0.95), st.integers(0, 2**32))
def test_an_estimate_goes_from_the_prior_to_what_happens(prior: float, real: float, seed: int) -> None:
    # The mean of 400 tokens is within 0.13 of its expectation but for 3 in 10 million runs (Hoeffding).
    rng = random.Random(seed)
    table = AcceptanceTable({"a": prior, "b": 0.5})
    assert table.chance("a") == pytest.approx(prior)
    for _ in range(400):
        table.record(["a"], int(rng.random() < real))
    assert table.chance("a") == pytest.approx(real, abs=0.16)
    assert table.chance("b") == 0.5


def test_what_is_behind_a_wrong_token_tells_nothing() -> None:
    table = AcceptanceTable({"a": 0.5, "b": 0.5, "c": 0.5})
    table.record(["a", "b", "c"], 1)
    assert table.chance("a") > 0.5 > table.chance("b")
    assert table.chance("c") == 0.5


def test_a_new_request_soon_outweighs_the_last_ones() -> None:
    table = AcceptanceTable({"a": 0.5})
    for _ in range(1000):
        table.record(["a"], 1)
    table.begin()
    assert table.chance("a") > 0.9
    for _ in range(40):
        table.record(["a"], 0)
    assert table.chance("a") < 0.5


def test_shipped_priors_are_chances_of_all_kinds() -> None:
    priors = shipped_priors()
    assert set(priors["model"]) == set(MODEL_KINDS)
    assert all(0 < chance < 1 for chance in priors["model"].values())


def test_each_word_of_a_kind_was_fitted() -> None:
    path = resources.files("lcspec.planner").joinpath("priors.json")
    weights = json.loads(path.read_text(encoding="utf-8"))["lookup"]["weights"]
    words = {word for kind in LOOKUP_KINDS for word in kind.split()} - {"stored"}
    assert words <= weights.keys()
    assert all(len(kind.split()) == 5 for kind in LOOKUP_KINDS)


def test_better_evidence_has_better_priors() -> None:
    priors = shipped_priors()
    assert priors["lookup"]["suffix m3 differs alone d0"] < priors["lookup"]["suffix m64 agrees alone d16"]
    assert priors["model"]["0.0 0"] < priors["model"]["0.99 0"]


def test_a_kind_that_was_never_seen_is_like_those_that_share_its_words() -> None:
    priors = LookupPriors({"": 0.0, "suffix": 1.0, "m8": 2.0, "suffix m8": -1.0, "d0": -0.5})
    assert priors["suffix m8 never d0"] == pytest.approx(1 / (1 + math.exp(-1.5)))
    assert priors["stored m8 never d0"] == priors["suffix m8 never d0"]
    assert priors["other"] == 0.5


def test_fitted_weights_give_the_shares_that_were_seen() -> None:
    """Three kinds of two words, in numbers that leave the penalty little to say; the fourth follows from them."""
    chances = {"a c": 0.9, "a d": 0.6, "b c": 0.5}
    seen = dict.fromkeys(chances, 1_000_000.0)
    priors = LookupPriors(fit_weights(seen, {kind: chance * seen[kind] for kind, chance in chances.items()}))
    for kind, chance in chances.items():
        assert priors[kind] == pytest.approx(chance, abs=0.01)
    assert priors["b d"] < priors["b c"]


# the plan


def chooser_of(target: CostCurve, draft: CostCurve | None = None) -> Planner:
    return Planner(target, shipped_priors(), draft)


def test_without_a_scale_nothing_is_drafted() -> None:
    assert chooser_of(CostCurve()).plan([SURE], 100, 127) == PLAIN


def test_near_certain_tokens_make_a_long_draft() -> None:
    assert chooser_of(CostCurve(GPU)).plan([SURE], 100, 127).width > 64


def test_unlikely_tokens_are_not_worth_a_pass_on_two_cores() -> None:
    assert chooser_of(CostCurve(TWO_CORES)).plan([UNSURE], 100, 127) == PLAIN


def test_no_draft_is_worth_passes_that_cost_as_much_as_several() -> None:
    assert chooser_of(line(1.0)).plan([SURE], 100, 127) == PLAIN


@pytest.mark.parametrize(("chance", "length"), [(0.6, 0), (0.7, 1)], ids=["as good as plain decoding", "better"])
def test_a_draft_has_to_be_clearly_worth_its_pass(chance: float, length: int) -> None:
    planner = Planner(CostCurve({1: 0.05, 2: 0.075}), {"lookup": {"a": chance}})
    assert planner.plan([["a"]], 100, 127).length == length


def test_a_pass_is_padded_where_that_is_cheaper() -> None:
    plan = chooser_of(CostCurve({1: 0.05, 2: 0.08, 3: 0.2, 4: 0.09, 128: 9.0})).plan([SURE[:2]], 100, 127)
    assert plan.length == 2
    assert plan.width == 4


@given(
    st.lists(st.sampled_from(sorted(LOOKUP_KINDS)), max_size=127),
    st.integers(0, 127),
    st.integers(1, 4000),
    st.none() | st.integers(1, 3000),
    st.floats(0, 1.2),
    st.floats(0.05, 1.0),
)
def test_plans_respect_the_limit(
    kinds: list[str], limit: int, depth: int, behind: int | None, slope: float, ratio: float
) -> None:
    draft = CostCurve({1: 0.05 * ratio, WIDEST: 3.0 * ratio})
    plan = chooser_of(line(slope), draft).plan([kinds], depth, limit, behind)
    assert plan.drafter in ("none", "lookup", "model")
    assert 0 <= plan.length <= limit
    assert 1 <= plan.width <= limit + 1
    assert (plan.length == 0) == (plan.drafter == "none")
    if plan.drafter == "lookup":
        assert plan.length <= len(kinds)
    if behind is None:
        assert plan.drafter != "model"


@pytest.mark.parametrize(
    ("machine", "pays"),
    [("2-cores", False), ("2-cores-avx512", False), ("2-cores-bf16", True), ("8-cores", True), ("gpu", True)],
)
def test_a_draft_model_is_used_where_it_pays(machine: str, pays: bool) -> None:
    simulated = machine_of(machine, with_draft=True)
    plan = chooser_of(simulated.target, simulated.draft).plan([], 200, 127, behind=1)
    assert (plan.drafter == "model") == pays


def test_a_draft_model_catches_up_when_it_would_have_saved_as_much() -> None:
    simulated = machine_of("2-cores-bf16", with_draft=True)
    assert simulated.draft is not None
    chooser = chooser_of(simulated.target, simulated.draft)
    passes = 0
    while chooser.plan([], 1000, 127, behind=1000).drafter == "none":
        chooser.record_pass(PLAIN, 1, 1000, 1, 0.05, 0.0)
        passes += 1
        assert passes < 2000
    assert chooser.model is not None
    saved = 0.05 - 1 / chooser.model.length(simulated.target, 1000, 127).rate
    assert passes * saved == pytest.approx(simulated.draft.seconds(1000), rel=0.1)


def test_a_draft_ends_where_the_next_token_does_not_pay() -> None:
    simulated = machine_of("2-cores-bf16", with_draft=True)
    chooser = chooser_of(simulated.target, simulated.draft)
    assert chooser.plan([], 200, 127, behind=1).drafter == "model"
    assert chooser.goes_on(["0.99 0"], 200, 127)
    assert not chooser.goes_on(["0.0 0"], 200, 127)
    assert not chooser.goes_on(["0.99 0"], 200, limit=1)
    assert not chooser.goes_on(["0.99 0"] * 40, 200, 127)


def test_what_is_not_worth_verifying_is_cut() -> None:
    simulated = machine_of("2-cores-bf16", with_draft=True)
    chooser = chooser_of(simulated.target, simulated.draft)
    plan = chooser.plan([], 200, 127, behind=1)
    kinds = ["0.99 0", "0.99 1", "0.0 1"]
    assert chooser.cut(plan, kinds, 200, 127).length == 2
    assert chooser.cut(plan, kinds, 200, 127, is_drawn=True).length == 3


def test_a_draft_model_that_proves_worse_than_expected_is_switched_off_and_said() -> None:
    simulated = machine_of("2-cores-bf16", with_draft=True)
    chooser = chooser_of(simulated.target, simulated.draft)
    chooser.begin()
    for _ in range(30):
        chooser.record_draft("model", ["0.5 0"], 0)
    plan = chooser.plan([], 200, 127, behind=1)
    assert plan == PLAIN
    chooser.record_pass(plan, 1, 200, 1, 0.05, 0.0)
    explanation = chooser.explain(200)
    assert explanation.reasons[1].startswith("draft model off: a draft token costs 0.28 of a target pass")
    assert explanation.draft_chance is not None
    assert explanation.draft_chance < 0.4
    assert explanation.passes == {"none": 1}
    assert explanation.as_dict()["pass_costs"]["4"] == pytest.approx(1.8)


def test_a_long_prompt_lets_drafts_lose_a_little_more() -> None:
    """Drafts of which all is believed and nothing is ever right."""
    lost = []
    for n_prompt in (0, 100, 1_000, 100_000):
        chooser = chooser_of(CostCurve(TWO_CORES))
        chooser.begin(n_prompt)
        seconds = tokens = 0
        while tokens < 100:
            plan = chooser.plan([SURE], 200, 127)
            taken = CostCurve(TWO_CORES).seconds(plan.width)
            chooser.record_pass(plan, plan.width, 200, 1, taken, 0.0)
            seconds, tokens = seconds + taken, tokens + 1
        lost.append(seconds / 0.05 - tokens)
    assert lost == sorted(lost)
    assert lost[0] < lost[1] < lost[2] == lost[3]
    assert lost[3] <= lost[0] + MOST_FOR_PROMPT + 1


def test_what_drafts_lost_before_is_taken_from_the_credit() -> None:
    planner = chooser_of(line(0.3))
    planner.begin(300)
    at_first = planner.longest(100)
    planner.record_pass(planner.plan([SURE], 100, 16), 17, 100, 1, 0.29, 0.0)
    planner.begin(300)
    assert LOOK_AHEAD <= planner.longest(100) < at_first
    for _ in range(400):
        planner.record_pass(PLAIN, 1, 100, 1, 0.05, 0.0)
    assert planner.longest(100) >= at_first
    planner.record_pass(planner.plan([SURE], 100, 16), 17, 100, 17, 0.29, 0.0)
    planner.begin(300)
    assert planner.longest(100) == at_first  # what was gained is not for another request


@pytest.mark.parametrize(
    ("in_vain", "looking", "passes"),
    [(1_000, 0.0004, 0), (1_000, 0.0006, 1), (1_000, 0.01, 2), (2, 0.01, 0)],
    ids=["cheap", "dear", "very dear", "only begun"],
)
def test_a_look_that_is_dear_and_in_vain_is_followed_by_a_pause(in_vain: int, looking: float, passes: int) -> None:
    assert chooser_of(line(0.6)).pause(in_vain, 0, looking) == passes
    assert chooser_of(line(0.6), line(0.6)).pause(in_vain, 0, looking) == 0  # a draft model drafts at any time


def test_exploring_costs_little() -> None:
    """A planner that thinks that drafts pay little, on a machine where they never do."""
    chooser = chooser_of(line(0.8))
    chooser.begin()
    lost = spent = 0.0
    explored = 0
    for _ in range(5000):
        plan = chooser.plan([["suffix m3 unseen alone d0"]], 200, 127)
        seconds = 0.05 * (1 + 0.8 * (plan.width - 1))
        chooser.record_pass(plan, plan.width, 200, 1, seconds, 0.0)
        spent += seconds
        lost += seconds - 0.05
        explored += plan.exploring
    assert explored > 0
    assert lost < 0.004 * spent


def test_a_machine_that_gets_better_is_noticed() -> None:
    """Passes over several tokens become nearly free, which only exploring can show."""
    chooser = chooser_of(line(0.9))
    chooser.begin()
    drafted = 0
    for i in range(3000):
        plan = chooser.plan([["suffix m5 unseen alone d0"]], 200, 127)
        chooser.record_pass(plan, plan.width, 200, 1 + (plan.width > 1), 0.05 * (1 + 0.02 * (plan.width - 1)), 0.0)
        drafted += plan.width > 1 and i >= 2900
    assert drafted > 90


# layouts


def layouts(here: float, there: float | None, move: float = 1e-4, loaded: bool = True) -> LayoutChoice:
    choice = LayoutChoice((CostCurve(TWO_CORES), None))
    choice.record_batch(0, BATCH, here * BATCH)
    if there is not None:
        choice.record_batch(1, BATCH, there * BATCH)
    choice.record_move(0, 1000, move * 1000)
    if loaded:
        choice.record_loading(1.0)
    return choice


def test_a_long_prompt_goes_where_it_is_faster() -> None:
    choice = layouts(0.022, 0.018)
    assert choice.for_batch(1000, 0) == 1
    choice.here = 1
    assert choice.for_batch(500, 500) == 1
    assert choice.speedup() == pytest.approx(0.022 / 0.018)


def test_a_short_prompt_or_a_small_gain_is_not_worth_moving() -> None:
    assert layouts(0.022, 0.018, move=1e-3).for_batch(100, 2000) == 0
    assert layouts(0.022, 0.021).for_batch(4000, 0) == 0
    assert layouts(0.022, 0.018, loaded=False).for_batch(200, 0) == 0


def test_busy_moments_do_not_hide_a_faster_layout() -> None:
    """They are kept, and a layout that seems slower is not tried again."""
    choice = layouts(0.022, 0.018)
    for seconds in (0.05, 0.2, 0.04):
        choice.record_batch(1, BATCH, seconds * BATCH)
    assert choice.for_batch(1000, 0) == 1
    assert choice.speedup() == pytest.approx(0.022 / 0.018)


def test_what_is_unknown_is_tried_on_a_long_prompt_only() -> None:
    choice = layouts(0.022, None)
    assert choice.for_batch(300, 0) == 0
    assert choice.for_batch(1500, 0) == 1
    fresh = LayoutChoice((CostCurve(), None))
    assert fresh.for_batch(4000, 0) == 0


def test_text_is_decoded_in_the_first_layout_unless_the_other_is_as_fast() -> None:
    choice = layouts(0.022, 0.018)
    assert choice.for_text(1000) == 0
    choice.curves = CostCurve(TWO_CORES), CostCurve(TWO_CORES)
    assert choice.for_text(1000) == 1
    choice.curves = CostCurve(TWO_CORES), CostCurve({width: 1.2 * seconds for width, seconds in TWO_CORES.items()})
    assert choice.for_text(1000) == 0


def test_a_draft_model_pays_from_where_its_shortest_draft_does() -> None:
    free = CostCurve({1: 1e-9, WIDEST: 1e-7})
    found = break_even(line(0.6), free)
    assert found == 0.61, "the next whole percent: a second token costs 0.6"
    assert break_even(line(0.6), line(0.6)) is None
    dear = break_even(line(0.1), CostCurve({1: 0.05 * 0.5, WIDEST: 5.0}))
    assert dear == pytest.approx(0.61, abs=0.011), "0.1 for the pass and 0.5 for the token"


def two_curves() -> LayoutChoice:
    choice = layouts(0.022, 0.018)
    choice.curves = CostCurve(TWO_CORES), CostCurve({1: 0.06, 8: 0.3, 128: 1.2})
    return choice


def pass_over(costs: CostCurve, width: int) -> Length:
    return Length(width - 1, width / costs.seconds(width), costs.seconds(width))


@given(st.lists(st.integers(1, 128), min_size=1, max_size=300))
def test_moving_between_layouts_is_never_much_worse_than_staying(widths: list[int]) -> None:
    choice = two_curves()
    depth, seconds, moves = 1000, 0.0, 0
    for width in widths:
        assert choice.alternative is not None
        if choice.weigh(pass_over(choice.costs, width), pass_over(choice.alternative, width), depth):
            choice.record_move(choice.wanted, depth, 0.1)
            moves += 1
        seconds += choice.costs.seconds(width)
    stays = min(sum(curve.seconds(width) for width in widths) for curve in choice.curves if curve)
    assert seconds + 0.1 * moves <= 2 * stays + 0.3


def test_leaving_has_to_save_the_way_back_and_coming_back_has_not() -> None:
    """Moving takes 0.1 s; passes over 16 tokens save 0.06 in the other layout, those over one 0.01 in the first."""
    choice = two_curves()
    choice.curves = CostCurve({1: 0.05, 16: 0.42, 128: 2.5}), CostCurve({1: 0.06, 16: 0.36, 128: 1.2})
    wanted = [choice.weigh(pass_over(choice.costs, 16), Length(15, 16 / 0.36, 0.36), 1000) for _ in range(4)]
    assert wanted == [False, False, False, True]
    choice.record_move(1, 1000, 0.1)
    assert choice.weigh(pass_over(choice.costs, 1), Length(0, 1 / 0.05, 0.05), 1000)
    assert choice.wanted == 0


def test_a_move_that_failed_is_not_wanted_any_more() -> None:
    choice = two_curves()
    while not choice.weigh(pass_over(choice.costs, 128), Length(127, 128 / 1.2, 1.2), 1000):
        pass
    assert (choice.here, choice.wanted) == (0, 1)
    choice.stay()
    assert choice.costs is choice.curves[0]
    assert not choice.weigh(pass_over(choice.costs, 2), Length(1, 2 / 0.079, 0.079), 1000)


def test_copying_moves_to_the_layout_of_wide_passes_and_what_is_not_copied_back() -> None:
    """A pass is planned for both layouts: here the draft would be short, there it is long."""
    planner = Planner(CostCurve({1: 0.05, 4: 0.13, 128: 6.0}), shipped_priors())
    planner.layouts.curves = planner.target, CostCurve({1: 0.06, 8: 0.3, 128: 1.2})
    planner.layouts.record_loading(0.0)
    planner.begin()
    layouts = planner.layouts

    def passes(n: int, kinds: list[str], right: bool) -> list[int]:
        widths = []
        for _ in range(n):
            plan = planner.plan([kinds], 500, 127)
            if layouts.wanted != layouts.here:
                layouts.record_move(layouts.wanted, 500, 0.05)
            taken = layouts.costs.seconds(plan.width) + layouts.moving_seconds
            emitted = plan.length + 1 if right else 1
            planner.record_pass(plan, plan.width, 500, emitted, taken, 0.0)
            planner.record_draft("lookup", kinds[: plan.length], plan.length if right else 0)
            widths.append(plan.width)
        return widths

    assert passes(12, SURE, right=True)[-1] > 64
    assert layouts.here == 1
    assert passes(40, [], right=False)[-1] == 1
    assert layouts.here == 0
    single = planner.layouts.curves[0].seconds(1)
    assert single == pytest.approx(0.05, rel=0.01), "a move is no part of a pass's costs"


def test_layouts_can_be_kept() -> None:
    choice = LayoutChoice((CostCurve(TWO_CORES), None))
    choice.restore(layouts(0.022, 0.018).as_dict())
    assert choice.speedup() == pytest.approx(0.022 / 0.018)
    for kept in (None, {}, {"prefill": [[1]], "loading": 1}, {"prefill": [["x"], []], "loading": 1}):
        fresh = LayoutChoice((CostCurve(TWO_CORES), None))
        fresh.restore(kept)
        assert fresh.speedup() is None


# recordings


def total(
    machine: str, recordings: list[Recording], *, with_draft: bool = False, layouts: int = 2, align: bool = True
) -> float:
    plain = seconds = 0.0
    for recording in recordings:
        simulated = machine_of(machine, with_draft)
        if layouts == 1:
            simulated.other = None
        planner = planner_of(simulated, machine_of(machine, False).target)
        result = replay(recording, simulated, auto(recording, simulated, planner, align=align))
        plain, seconds = plain + result.plain, seconds + result.seconds
    return plain / seconds


def of_kind(word: str) -> list[Recording]:
    found = [recording for recording in RECORDINGS if word in recording.category]
    assert found
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_no_recording_is_slower_than_plain_decoding(machine: str) -> None:
    for recording in RECORDINGS:
        assert total(machine, [recording], with_draft=True) > 0.93, recording.category


@pytest.mark.parametrize("machine", MACHINES)
def test_an_oracle_is_never_slower_than_the_planner_by_much(machine: str) -> None:
    simulated = machine_of(machine, False)
    for recording in RECORDINGS[::3]:
        oracle = lookup_oracle(recording, simulated.target)
        assert oracle >= 1
        assert total(machine, [recording], layouts=1) <= oracle * 1.02


@pytest.mark.parametrize(("align", "share"), [(False, 0.85), (True, 0.8)], ids=["one draft", "two to choose from"])
@pytest.mark.parametrize("machine", ["2-cores", "2-cores-avx512"])
def test_the_planner_gets_most_of_what_lookup_offers(machine: str, align: bool, share: float) -> None:
    """The oracle knows for how long a draft is right, and which of two for longer; the planner learns as it goes on."""
    simulated = machine_of(machine, False)
    simulated.other = None
    planner = planner_of(simulated, machine_of(machine, False).target)
    ours = oracle = 0.0
    for recording in RECORDINGS:
        result = replay(recording, simulated, auto(recording, simulated, planner, align=align))
        ours += len(recording.text) / result.speed
        oracle += len(recording.text) / lookup_oracle(recording, simulated.target, align=align)
    assert oracle / ours >= share


def test_a_new_planner_gets_most_of_what_lookup_offers() -> None:
    """With nothing but the shipped priors, which were fitted on other work."""
    curve = machine_of("2-cores-avx512", False).target
    ours = sum(len(r.text) / total("2-cores-avx512", [r], layouts=1) for r in RECORDINGS)
    assert sum(len(r.text) / lookup_oracle(r, curve) for r in RECORDINGS) / ours >= 0.78


def test_following_an_edited_document_pays() -> None:
    """Against the longest suffix alone, with the same planner."""
    edits = [recording for recording in RECORDINGS if "edit" in recording.category]
    for machine in ("2-cores-avx512", "2-cores-vnni"):
        assert total(machine, edits) > 1.1 * total(machine, edits, align=False)


def test_the_planner_matches_the_best_fixed_setting_on_flat_curves() -> None:
    """The best in hindsight, by category; where that is a draft model, `auto` first waits until it would have paid."""
    shares = []
    for machine in ("4-cores", "8-cores", "16-cores", "gpu"):
        for category, found in speeds(machine, RECORDINGS).items():
            fixed = max(value for setting, value in found.items() if setting.split()[0] in ("lookup", "model"))
            shares.append(found["auto"] / max(fixed, 1.0))
            assert shares[-1] >= 0.95, (machine, category, found)
    assert np.mean(shares) >= 1


def test_a_planner_that_was_measured_wrong_recovers() -> None:
    """It believes in a GPU, and runs on two cores."""
    recording = max(of_kind("configuration"), key=lambda one: len(one.text))
    simulated = machine_of("2-cores", False)
    wrong = CostCurve(GPU)
    result = replay(recording, simulated, auto(recording, simulated, planner_of(simulated, wrong)))
    assert result.speed > 0.85


def test_a_draft_that_reads_the_prompt_itself_brings_less() -> None:
    target = CostCurve({1: 0.05, 4: 0.06, 64: 0.3, 128: 0.6})
    free = expected_gain(target, 0.2, [0.9])
    reading = reading_cost(CostCurve({1: 0.01, 64: 0.1, 128: 0.2}), 0.05)
    assert reading == pytest.approx(0.1 / 64 / 0.05, rel=0.05)
    read = expected_gain(target, 0.2, [0.9], reading)
    assert read.tokens == free.tokens
    assert 128 / read.speed == pytest.approx(128 / free.speed + 200 * reading)


def test_a_measured_draft_model_is_trusted_from_the_first_token_on() -> None:
    target, draft = CostCurve({1: 0.05, 4: 0.08, 128: 2.0}), CostCurve({1: 0.03, 128: 1.0})
    unknown = Planner(target, shipped_priors(), draft)
    measured = Planner(target, shipped_priors(), draft, usual=0.98)
    for planner in (unknown, measured):
        planner.begin()
    assert measured.model is not None
    assert unknown.model is not None
    assert measured.model.chance == pytest.approx(0.98, abs=0.02)
    assert measured.model.chance > unknown.model.chance
    assert measured.plan([], 100, 50, behind=1).drafter == "model"
    hopeless = Planner(target, shipped_priors(), draft, usual=0.3)
    hopeless.begin()
    assert hopeless.plan([], 100, 50, behind=1).drafter == "none"
