"""The estimate of what plain decoding would have taken."""

from pathlib import Path

import pytest

from lcspec import DrafterStats, SpeculativeLM, Stats
from lcspec.cli.report import details, summary
from lcspec.drafters import NO_DRAFT, Draft
from lcspec.loop import Pass
from lcspec.planner import CostCurve, Planner, shipped_priors

PROMPT = "ababababab"  # the tiny model repeats itself behind it, so that lookup finds something
MEASURED = {1: 0.010, 4: 0.016, 16: 0.040}


def planner(costs: CostCurve) -> Planner:
    return Planner(costs, shipped_priors())


def done(emitted: int, plain: float | None, drafted: int = 0) -> Pass:
    draft = Draft((0,) * drafted, "lookup") if drafted else NO_DRAFT
    return Pass(draft, drafted, (0,) * emitted, (), 0, 1 + drafted, 0.02, plain_seconds=plain)


def test_a_pass_over_one_token_is_plain_decoding_itself() -> None:
    assert planner(CostCurve()).plain_seconds(1, 100, 1, 0.033) == 0.033
    assert planner(CostCurve(MEASURED)).plain_seconds(1, 100, 1, 0.033) == 0.033


def test_a_draft_is_held_against_as_many_single_passes() -> None:
    assert planner(CostCurve(MEASURED)).plain_seconds(4, 0, 3, 0.016) == pytest.approx(3 * 0.010)
    deep = CostCurve(MEASURED, {1: 0.0001, 16: 0.0001})
    assert planner(deep).plain_seconds(4, 100, 3, 1.0) == pytest.approx(3 * 0.020)


def test_single_passes_of_a_busy_moment_make_no_gain() -> None:
    costs = CostCurve(MEASURED)
    for _ in range(5):
        costs.record(1, 0, 0.100)
    assert planner(costs).plain_seconds(4, 0, 4, 0.160) == pytest.approx(4 * 0.100), "it is still busy"
    assert planner(costs).plain_seconds(4, 0, 4, 0.016) == pytest.approx(4 * 0.010), "it is not any more"


def test_where_nothing_was_measured_a_single_pass_is_no_dearer_than_the_one_with_the_draft() -> None:
    costs = CostCurve()
    costs.record(1, 0, 0.100)
    assert planner(costs).plain_seconds(4, 0, 4, 0.050) == pytest.approx(4 * 0.050)


def test_what_the_other_layout_evaluated_is_held_against_the_one_that_decodes() -> None:
    one = planner(CostCurve(MEASURED))
    one.layouts.here = 1
    assert one.plain_seconds(1, 0, 1, 0.050) == pytest.approx(0.010)
    unknown = planner(CostCurve())
    unknown.layouts.here = 1
    assert unknown.plain_seconds(1, 0, 1, 0.050) is None


def test_a_move_between_layouts_is_not_plain_decoding() -> None:
    one = planner(CostCurve(MEASURED))
    one.layouts.moving_seconds = 0.5
    assert one.plain_seconds(1, 0, 1, 0.51) == pytest.approx(0.01)


def test_seconds_add_up_behind_the_first_token_and_are_unknown_once_one_is() -> None:
    stats = Stats()
    stats.record(done(1, 9.0))
    assert stats.plain_seconds == 0.0
    stats.record(done(1, 0.02))
    assert stats.speedup is None, "nothing was drafted"
    stats.record(done(4, 0.08, drafted=3))
    assert stats.plain_seconds == pytest.approx(0.10)
    assert stats.speedup == pytest.approx(0.10 / 0.04)
    assert (stats + stats).plain_seconds == pytest.approx(0.20)
    assert (stats + stats).speedup == pytest.approx(2.5)
    stats.record(done(1, None))
    assert stats.plain_seconds is None
    assert stats.speedup is None
    assert (stats + Stats()).plain_seconds is None


def test_the_line_at_the_end_says_that_it_is_estimated_and_claims_nothing_for_plain_decoding() -> None:
    drafted = Stats(
        tokens=9,
        texts=1,
        target_passes=2,
        decode_seconds=0.1,
        plain_seconds=0.176,
        drafters={"lookup": DrafterStats(2, 6, 6)},
    )
    assert "were right; about 1.8 times plain decoding (estimated); exact" in summary(drafted)
    assert "plain decoding  about 0.176 s, 1.76 times as long (estimated)" in details(drafted)
    plain = Stats(tokens=9, texts=1, target_passes=8, decode_seconds=0.1, plain_seconds=0.11)
    assert summary(plain).endswith("one a pass: nothing was drafted; exact")
    assert "estimated" not in details(plain)


def test_a_prompt_may_be_longer_than_any_pass_that_a_curve_knows_of(tiny_llama: Path) -> None:
    with SpeculativeLM(tiny_llama, n_ctx=400, threads=1) as engine:
        engine.generate(PROMPT, max_tokens=5)
    with SpeculativeLM(tiny_llama, n_ctx=400, threads=1) as engine:  # it knows now what passes cost
        assert engine.costs.has_scale
        assert engine.generate("ab" * 150, max_tokens=5).stats.plain_seconds is not None


def test_an_engine_estimates_with_auto_only(tiny_llama: Path) -> None:
    with SpeculativeLM(tiny_llama, n_ctx=200, threads=1) as engine:
        stats = {
            name: engine.generate(PROMPT, max_tokens=60, drafter=name).stats for name in ("auto", "lookup", "none")
        }
    assert stats["auto"].plain_seconds is not None
    assert stats["auto"].plain_seconds > 0
    assert (stats["auto"].speedup is None) == (not stats["auto"].drafters)
    assert stats["auto"].as_dict()["plain_seconds"] == stats["auto"].plain_seconds
    for name in ("lookup", "none"):
        assert stats[name].plain_seconds is None
        assert stats[name].as_dict()["speedup"] is None
