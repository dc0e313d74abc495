import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # bench is no installed package

from bench.peers import (  # noqa: E402
    Run,
    Setting,
    server_command,
    server_modes,
    speculation_complaint,
    text_of,
    timing_of,
)
from bench.report import ALL, Answer, Results, Timing, plot, summarize, table  # noqa: E402
from bench.server_process import PeerError, last_words  # noqa: E402
from bench.speed import Plan, progress, run_round  # noqa: E402
from bench.workloads import Question  # noqa: E402

EOG = 2


def timing(seconds_per_token: float, *, tokens: int = 11, prefill: float = 1.0, **counts: int) -> Timing:
    return Timing(prefill, seconds_per_token * (tokens - 1), tokens, **counts)


def answer(category: str = "copy", *, oracle: float | None = 4.0, **seconds: list[float]) -> Answer:
    """An answer with these seconds per token in its rounds, the first of which is also the whole request's."""
    rounds = {
        name.replace("_", "-"): tuple(timing(one, passes=4, drafted=10, accepted=6) for one in each)
        for name, each in seconds.items()
    }
    whole = {name: each[0] for name, each in rounds.items()}
    return Answer(category, 100, rounds, whole, dict.fromkeys(rounds, True), oracle)


def results(*answers: Answer, planned: int | None = None, curve_limit: float | None = 4.0) -> Results:
    names = tuple(answers[0].rounds) if answers else ("none", "auto")
    options = {"model": "some-model", "draft": None, "threads": 2, "repeats": 3}
    facts = {"processor": "a processor", "features": "", "library": "a library"}
    return Results(facts, options, names, len(answers) if planned is None else planned, curve_limit, answers)


# figures


def test_seconds_count_for_each_token_behind_the_first() -> None:
    assert Timing(9.0, 2.0, 5).decode_seconds_per_token == 0.5
    assert Timing(9.0, 0.0, 1).decode_seconds_per_token is None
    assert Timing(3.0, 2.0, 5).whole_seconds_per_token == 1.0


def test_a_speed_is_the_ratio_of_the_medians() -> None:
    one = answer(none=[1.0, 8.0, 2.0], auto=[0.5, 1.0, 9.0])
    assert one.speed("auto") == 2.0
    assert one.speed("none") == 1.0
    assert one.speed("somebody") is None


def test_texts_of_different_length_are_compared_by_token() -> None:
    rounds = {"none": (Timing(1.0, 10.0, 11),), "auto": (Timing(1.0, 10.0, 21),)}
    assert Answer("copy", 9, rounds, {}, {}).speed("auto") == 2.0


def test_one_token_alone_gives_no_speed() -> None:
    rounds = {"none": (Timing(1.0, 0.0, 1),), "auto": (Timing(1.0, 0.0, 1),)}
    one = Answer("copy", 9, rounds, {}, {})
    assert one.speed("auto") is None
    assert summarize(results(one))[0].speeds["auto"] is None


def test_whole_requests_count_the_prompt() -> None:
    whole = {"none": Timing(2.0, 8.0, 10), "auto": Timing(2.0, 3.0, 10), "Llama": Timing(4.0, 6.0, 10)}
    one = Answer("copy", 9, {}, whole, {})
    assert one.whole_speed("auto") == 2.0
    assert one.whole_speed("auto", "Llama") == 2.0
    assert one.whole_speed("lookup") is None


def test_a_category_is_the_median_of_its_prompts() -> None:
    speeds = [1.0, 2.0, 8.0]
    (summary,) = summarize(results(*(answer(none=[1.0], auto=[1 / speed]) for speed in speeds)))
    assert summary.prompts == 3
    assert summary.speeds == {"none": 1.0, "auto": 2.0}
    assert summary.lowest == 1.0
    assert summary.tokens_per_pass == 2.5
    assert summary.acceptance_rate == 0.6
    assert summary.of_curve == 0.5
    assert summary.same_texts == {"none": 3, "auto": 3}


def test_the_share_of_the_oracle_is_taken_by_prompt() -> None:
    answers = [answer(none=[1.0], auto=[0.5], oracle=oracle) for oracle in (2.0, 4.0, 8.0, None)]
    assert summarize(results(*answers))[0].of_oracle == 0.5


def test_several_categories_have_a_sum() -> None:
    summaries = summarize(results(answer("copy", none=[1.0], auto=[0.5]), answer("edit", none=[1.0], auto=[0.25])))
    assert [(one.category, one.speeds["auto"]) for one in summaries] == [("copy", 2.0), ("edit", 4.0), (ALL, 3.0)]


def test_the_best_server_is_the_one_that_auto_is_ahead_of_the_least() -> None:
    rounds = {"none": 1.0, "auto": 0.5, "llama-server": 0.9, "llama-server ngram-mod": 0.6, "Llama": 0.4}
    whole = {name: timing(seconds, prefill=0.0) for name, seconds in rounds.items()}
    one = Answer("copy", 9, {name: (each,) for name, each in whole.items()}, whole, {})
    (summary,) = summarize(results(one))
    best = summary.auto_over_best("llama-server")
    assert best is not None
    assert best[0] == "llama-server ngram-mod"
    assert best[1] == pytest.approx(1.2)
    assert summary.auto_over["Llama"] == pytest.approx(0.8)
    assert "1.20 (ngram-mod)" in table(results(one))


# reports


def test_the_table_has_a_row_for_each_category() -> None:
    text = table(results(answer("edit: rename", none=[1.0], lookup=[0.8], auto=[0.5])))
    (row, *_) = [line for line in text.splitlines() if line.startswith("edit: rename")]
    assert row.split() == ["edit:", "rename", "1", "1.25", "2.00", "2.00", "2.50", "60%", "50%", "50%"]
    assert "interrupted" not in text


def test_what_is_not_known_is_a_dash() -> None:
    text = table(results(answer(none=[1.0], auto=[0.5], oracle=None), curve_limit=None))
    (row, *_) = [line for line in text.splitlines() if line.startswith("copy")]
    assert row.split()[-2:] == ["-", "-"]


def test_an_interrupted_run_is_reported_as_such() -> None:
    text = table(results(answer(none=[1.0], auto=[0.5]), answer(none=[1.0], auto=[0.5]), planned=40))
    assert "2 prompts of 40, since the run was interrupted" in text
    assert table(results(planned=40)) == "Nothing was measured."


def test_a_contender_that_was_lost_has_what_it_had() -> None:
    kept, lost = answer(none=[1.0], auto=[0.5], Llama=[2.0]), answer(none=[1.0], auto=[0.5])
    (summary,) = summarize(replace(results(kept, lost)))
    assert summary.speeds["Llama"] == 0.5
    assert summary.same_texts["Llama"] == 1


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "speed.json"
    written = results(answer(none=[1.0, 2.0], auto=[0.5, 1.0]), planned=2)
    for _ in range(2):
        written.write(file)
    assert Results.read(file) == written
    assert list(tmp_path.iterdir()) == [file]


def test_the_plot_is_an_image(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lost = answer("edit", none=[1.0])
    plot(results(answer("copy", none=[1.0], auto=[0.5]), lost), tmp_path / "speed.svg")
    assert "</svg>" in (tmp_path / "speed.svg").read_text(encoding="utf-8")


def test_progress_says_what_is_next_and_how_long_the_rest_takes() -> None:
    questions = [Question("copy", "", 9), Question("edit", "", 9), Question("edit", "", 9)]
    one = answer(none=[1.0], auto=[0.5])
    assert progress(results(planned=3), questions, 0.0) == "1 of 3: copy"
    assert progress(results(one, planned=3), questions, 300.0) == "2 of 3: edit, about 10 min left"
    assert progress(results(one, one, one), questions, 100.0) == "3 questions in 100 s"


# the order of rounds


class Contender:
    once = False

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, prompt: object, max_tokens: int, *, fresh: bool) -> Run:
        raise NotImplementedError


def test_rounds_begin_with_another_each_and_lose_only_who_fails(capsys: pytest.CaptureFixture[str]) -> None:
    contenders = [Contender(name) for name in ("none", "auto", "Llama")]

    def run(contender: Contender) -> Run:
        if contender.name == "Llama":
            raise PeerError("it is gone")
        return Run(timing(1.0), (1,))

    orders = [list(run_round(contenders, run, turn)[0]) for turn in range(4)]  # type: ignore[arg-type]
    assert orders == [["none", "auto"], ["auto", "none"], ["none", "auto"], ["none", "auto"]]
    assert [one.name for one in run_round(contenders, run, 0)[1]] == ["Llama"]  # type: ignore[arg-type]
    assert "it is gone; going on without Llama" in capsys.readouterr().err


def test_categories_are_chosen_by_a_part_of_their_names() -> None:
    plan = Plan("m", None, None, 2, 1, ("copy", "rename"), None, None, False, None)
    assert [one.category for one in plan.asked()] == ["edit: rename"] * 2 + ["copy"] * 2


# llama-server


def test_a_servers_timings_are_read() -> None:
    timings = {"prompt_ms": 1500.0, "predicted_ms": 2000.0, "predicted_n": 41, "draft_n": 12, "draft_n_accepted": 9}
    assert timing_of(timings) == Timing(1.5, 2.0, 41, drafted=12, accepted=9)
    assert timing_of({"prompt_ms": 1.0, "predicted_ms": 2.0, "predicted_n": 3}).drafted == 0


def test_a_server_is_given_the_same_as_the_others() -> None:
    setting = Setting(Path("m.gguf"), n_ctx=4096, threads=2, is_eog=lambda token: token == EOG)
    modes = server_modes(Path("d.gguf"))
    commands = [server_command(Path("llama-server"), setting, mode, 8080) for mode in modes]
    shared = "llama-server --host 127.0.0.1 --port 8080 --no-webui --model m.gguf --ctx-size 4096 --threads 2"
    assert all(" ".join(command).startswith(shared) for command in commands)
    assert commands[-1][-4:] == ["--spec-type", "draft-simple", "--model-draft", "d.gguf"]
    assert "--spec-type" not in commands[0]
    assert [mode.name for mode in server_modes(None)] == [mode.name for mode in modes[:-1]]


def test_only_modes_that_forget_are_asked_again() -> None:
    assert [mode.name for mode in server_modes(Path("d.gguf")) if not mode.once] == ["", "ngram-simple", "draft-simple"]


def test_a_text_does_not_have_its_end() -> None:
    assert text_of([5, 6, EOG], lambda token: token == EOG) == (5, 6)
    assert text_of([5, 6], lambda token: token == EOG) == (5, 6)
    assert text_of([], lambda token: token == EOG) == ()


def test_a_servers_log_says_what_went_wrong() -> None:
    assert last_words("loading\nerror: unknown speculative type: x\n\nbye\n") == "error: unknown speculative type: x"
    assert last_words("loading\nstopped\n") == "stopped"
    assert last_words("") == "it said nothing"
    complaint = "srv load_model: failed to initialize speculative decoding context: no"
    assert speculation_complaint(f"a\n{complaint}\nb") == complaint
    assert speculation_complaint("speculative decoding context initialized") is None


# for real


@pytest.mark.real
def test_a_short_run_and_its_report(smollm2: Path, tmp_path: Path) -> None:
    out = tmp_path / "speed.json"
    asked = ("--per-category", "1", "--category", "proofread", "--repeats", "1", "--max-tokens", "8")
    done = speed("--model", str(smollm2), "--threads", "1", *asked, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "1 of 1: edit: proofread" in done.stderr
    measured = Results.read(out)
    assert measured.contenders == ("none", "lookup", "auto")
    (only,) = measured.answers
    assert all(each.decode_seconds > 0 for rounds in only.rounds.values() for each in rounds)
    assert set(only.whole) == {"none", "auto"}
    assert only.rounds["none"][0].tokens == 8
    assert out.with_suffix(".svg").exists()
    assert done.stdout.rstrip("\n") == table(measured)
    assert speed("--show", str(out)).stdout == done.stdout


def speed(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.speed", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
