"""What passes cost is measured on the loaded model, kept, and said."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from lcspec import SpeculativeLM
from lcspec.cli import main
from lcspec.costs import keep_costs, known_costs, measure_costs
from lcspec.exactness import LoadOptions
from lcspec.llama import Model, read_header
from lcspec.planner import CostCurve
from lcspec.tuning import tuned_repack, tuned_threads

OPTIONS = LoadOptions(repack=True, batch_invariant=False, threads=1)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("lcspec.measurements.user_cache_path", lambda _: tmp_path)


def test_a_curve_is_measured_and_kept(tiny_llama: Path) -> None:
    header = read_header(tiny_llama)
    assert not known_costs(header, OPTIONS).has_scale
    with Model(tiny_llama) as model:
        costs = measure_costs(model, OPTIONS, seconds=2)
    assert costs is not None
    assert costs.is_measured
    assert {1, 2, 4, 8, 16, 32, 64, 128} <= costs.measured.keys()
    assert all(0 < seconds < 1 for seconds in costs.measured.values())
    keep_costs(header, OPTIONS, costs)
    assert known_costs(header, OPTIONS).measured == pytest.approx(costs.measured)
    other = LoadOptions(repack=True, batch_invariant=False, threads=2)
    assert not known_costs(header, other).has_scale, "with other threads it is another matter"
    assert known_costs(header, OPTIONS, beside=True).measured == pytest.approx(costs.measured), "for a start"
    keep_costs(header, OPTIONS, CostCurve({1: 0.5}), beside=True)
    assert known_costs(header, OPTIONS, beside=True).measured == {1: 0.5}
    assert known_costs(header, OPTIONS).measured == pytest.approx(costs.measured)


@pytest.mark.real
def test_a_real_model_is_measured_in_the_time_it_is_given(smollm2: Path) -> None:
    with Model(smollm2) as model:
        costs = measure_costs(model, OPTIONS, seconds=3.0)
    assert costs is not None
    assert {1, 2, 4} <= costs.measured.keys()
    assert costs.seconds(4) > costs.seconds(1)


def test_what_a_change_of_width_costs_is_part_of_a_pass(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a single token took half as long again behind a pass of another width."""
    widths = [1]

    def time_pass(_: object, width: int) -> float:
        widths.append(width)
        return 1.5 if width == 1 and widths[-2] > 1 else float(width)

    monkeypatch.setattr("lcspec.costs.time_pass", time_pass)
    with Model(tiny_llama) as model:
        costs = measure_costs(model, OPTIONS, seconds=2)
    assert costs is not None
    assert costs.measured == {width: width + 0.5 * (width > 1) for width in costs.measured}


def test_measuring_gives_up_when_it_has_to(tiny_llama: Path) -> None:
    asked = iter([False, False, False, True, True, True])
    with Model(tiny_llama) as model:
        assert measure_costs(model, OPTIONS, should_stop=lambda: next(asked, True)) is None


def test_an_engine_measures_when_asked(tiny_llama: Path, tiny_draft: Path) -> None:
    with SpeculativeLM(tiny_llama, tiny_draft, threads=1) as lm:
        lm.measure_costs(seconds=0.5)
        first = lm.costs
        assert first.is_measured
        lm.measure_costs(seconds=0.5)
        assert lm.costs is first, "once is enough"
        lm.measure_costs(seconds=0.5, again=True)
        assert lm.costs is not first


def test_what_is_seen_while_generating_is_kept(tiny_llama: Path) -> None:
    with SpeculativeLM(tiny_llama, threads=1, measure=False) as lm:
        lm.generate("hello", max_tokens=20)
        assert lm.costs.has_scale
    with SpeculativeLM(tiny_llama, threads=1, measure=False) as lm:
        assert lm.costs.has_scale
        assert not lm.costs.is_measured


@pytest.mark.parametrize("kept", ["{", "[]", '{"conditions": 1}'])
def test_damaged_files_count_as_not_measured(tiny_llama: Path, tmp_path: Path, kept: str) -> None:
    header = read_header(tiny_llama)
    keep_costs(header, OPTIONS, CostCurve({1: 0.1, 2: 0.15}))
    (file,) = (tmp_path / "measured").iterdir()
    file.write_text(kept)
    assert not known_costs(header, OPTIONS).has_scale


# lcspec tune


def tune(*arguments: object) -> str:
    result = CliRunner().invoke(main, ["tune", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_tuning_says_what_is_used_and_why_and_keeps_it(tiny_llama: Path, tiny_draft: Path) -> None:
    text = tune(tiny_llama, "-d", tiny_draft, "--seconds", 1)
    assert text.splitlines()[0].split() == ["THREADS", "WEIGHTS", "1", "TOKEN", "4", "TOKENS"]
    assert text.count("chosen") == 1
    assert "SPEED IF ALL ARE RIGHT" in text
    assert "tokens of a pass" in text
    assert "threads are used" in text
    assert "A draft token costs" in text
    header = read_header(tiny_llama)
    threads = tuned_threads(header)
    assert threads is not None
    with SpeculativeLM(tiny_llama) as lm:
        assert lm.threads == threads
        assert lm.costs.is_measured
    with SpeculativeLM(tiny_llama, threads=threads + 1) as lm:
        assert lm.threads == threads + 1


def test_tuning_as_json(tiny_llama: Path) -> None:
    facts = json.loads(tune(tiny_llama, "--seconds", 1, "--json"))
    assert facts["costs"]["is_measured"] is True
    assert facts["threads"] in {trial["threads"] for trial in facts["trials"]}
    assert facts["other_costs"] is None


def test_what_cannot_be_tuned_is_said_in_one_line(tiny_folder: Path, tmp_path: Path) -> None:
    for arguments, reason in (
        ((tmp_path / "missing.gguf",), "missing.gguf"),
        ((tmp_path / "missing.gguf", "--seconds", 0), "0.0 is not in the range"),
    ):
        result = CliRunner().invoke(main, ["tune", *map(str, arguments)])
        assert result.exit_code != 0
        assert reason in result.output.splitlines()[-1]


def test_untuned_files_take_the_defaults(tiny_llama: Path) -> None:
    assert tuned_threads(read_header(tiny_llama)) is None
    assert tuned_repack(read_header(tiny_llama)) is True
