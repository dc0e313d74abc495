"""Choosing tokens, exactness and `lcspec inspect` from the command line."""

import json
import math
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lcspec.cli import main

STORY = "The fox ran to the river. The fox ran to the river. The fox"


@pytest.fixture(autouse=True)
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lcspec.measurements.user_cache_path", lambda name: tmp_path)


def lcspec(*arguments: str | Path, status: int = 0) -> Result:
    with warnings.catch_warnings():  # the command replaces how warnings are shown
        result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == status, result.output
    return result


def generate(model: Path, *arguments: str | Path) -> dict[str, Any]:
    result = lcspec("generate", "-m", model, "-t", "1", "--raw", "-n", "40", "--json", *arguments, STORY)
    completion: dict[str, Any] = json.loads(result.stdout)
    return completion


def test_a_seed_gives_the_same_text_again_whoever_drafts(tiny_llama: Path, tiny_draft: Path) -> None:
    options = ("-T", "1.0", "--seed", "5", "--exact", "-d", tiny_draft)
    texts = [generate(tiny_llama, *options, "--drafter", drafter) for drafter in ("none", "lookup", "model", "auto")]
    assert len({json.dumps(one["tokens"]) for one in texts}) == 1
    assert all(one["seed"] == 5 and one["stats"]["exact"] is True for one in texts)
    assert generate(tiny_llama, "-T", "1.0", "--seed", "6")["tokens"] != texts[0]["tokens"]


def test_without_a_seed_one_is_drawn_and_told(tiny_llama: Path) -> None:
    result = lcspec("generate", "-m", tiny_llama, "-t", "1", "--raw", "-n", "40", "-T", "1.5", STORY)
    seed = re.search(r"; seed (\d+)$", result.stderr.strip())
    assert seed
    again = lcspec("generate", "-m", tiny_llama, "-t", "1", "--raw", "-n", "40", "-T", "1.5", "--seed", seed[1], STORY)
    assert again.stdout == result.stdout


def test_every_sampling_option_reaches_the_text(tiny_llama: Path) -> None:
    base = ("-T", "1.0", "--seed", "5")
    plain = generate(tiny_llama, *base)["tokens"]
    for option in (
        ("--top-k", "2"),
        ("--top-p", "0.1"),
        ("--min-p", "0.9"),
        ("--typical-p", "0.1"),
        ("--repeat-penalty", "5"),
        ("--frequency-penalty", "5"),
        ("--presence-penalty", "9"),
        ("--logit-bias", f"{plain[0]}=-inf"),
    ):
        assert generate(tiny_llama, *base, *option)["tokens"] != plain, option
    repeat = ("--presence-penalty", "2")
    assert generate(tiny_llama, *repeat, "--penalty-last-n", "5") != generate(
        tiny_llama, *repeat, "--penalty-last-n", "-1"
    )


def test_log_probabilities_are_in_the_json(tiny_llama: Path) -> None:
    done = generate(tiny_llama, "--logprobs", "3")
    assert [one["token"] for one in done["logprobs"]] == done["tokens"]
    for one in done["logprobs"]:
        assert len(one["top"]) == 3
        assert one["top"][0] == [one["token"], one["logprob"]], "greedy takes the likeliest"
        assert math.exp(one["logprob"]) <= 1
    assert generate(tiny_llama)["logprobs"] == []


@pytest.mark.parametrize(
    ("options", "status", "reason"),
    [
        (("-T", "nan"), 2, "temperature is nan; it must be 0 to 1e+06"),
        (("-T", "-1"), 2, "temperature is -1.0; it must be 0 to 1e+06"),
        (("-T", "warm"), 2, "'warm' is not a valid float"),
        (("-T", "1", "--top-p", "1.5"), 2, "top_p is 1.5; it must be 0 to 1"),
        (("-T", "1", "--top-k", "-2"), 2, "top_k is -2"),
        (("-T", "1", "--seed", "-1"), 2, "seed is -1"),
        (("--top-p", "0.5"), 2, "--top-p means nothing at temperature 0, the default: give a --temperature"),
        (("--seed", "1", "--rule", "rejection"), 2, "--seed, --rule means nothing at temperature 0"),
        (("-T", "1", "--rule", "greedy"), 2, "'greedy' is not one of"),
        (("--logit-bias", "a=1"), 2, "--logit-bias takes TOKEN=BIAS, a token's id and a number, not 'a=1'"),
        (("--logit-bias", "5"), 2, "--logit-bias takes TOKEN=BIAS"),
        (("--logit-bias", "5=nan"), 2, "the logit_bias of token 5 is nan"),
        (("--logit-bias", "99999=1"), 1, "99999 is not a token of llama.gguf"),
        (("--presence-penalty", "1", "--penalty-last-n", "0"), 2, "penalty_last_n is 0"),
        (("--logit-bias", "5=1", "--logit-bias", "5=2"), 2, "--logit-bias is given twice for a token"),
        (("--logprobs", "2"), 2, "--logprobs needs --json"),
        (("--stop", ""), 2, "--stop needs a text that is not empty"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    tiny_llama: Path, options: tuple[str, ...], status: int, reason: str
) -> None:
    result = lcspec("generate", "-m", tiny_llama, "--raw", *options, STORY, status=status)
    assert reason in result.stderr.splitlines()[-1]


def test_the_statistics_say_whether_a_text_is_exact(tiny_llama: Path) -> None:
    def said(*options: str) -> str:
        result = lcspec("generate", "-m", tiny_llama, "-t", "1", "--raw", "-n", "40", *options, STORY)
        return result.stderr.strip()

    assert said("--drafter", "none").endswith("; exact; cut off there")
    assert said("--exact").endswith("; exact; cut off there")
    assert re.search(r"; known to be exact for [\d,]+ tokens \(--exact: for all\)", said("--drafter", "lookup"))
    known = r"exact  known of the first \d+ tokens \(see lcspec inspect\)"
    assert re.search(known, said("--stats", "--drafter", "lookup"))
    lcspec("inspect", tiny_llama, "-t", "1")
    assert said("--drafter", "lookup").endswith("; exact; cut off there"), "now the widths are known"


def test_a_model_is_inspected(tiny_llama: Path) -> None:
    text = lcspec("inspect", tiny_llama, "-t", "1").stdout
    for line in (
        rf"file +{tiny_llama}",
        r"model +llama .*parameters, 0 MB",
        r"trained for +512 tokens of context",
        r"vocabulary +264 tokens, gpt2, pre-tokenizer gpt-2 \(bos 257, eos 256, eot 258\)",
        r"chat template +yes",
        r"cache +can be truncated",
        r"memory +\d+ MB with 4,096 tokens of context",
        r"with --exact +up to \d+ tokens at any depth \(probed with 1 threads\)",
    ):
        assert re.search(line, text), line
    facts = json.loads(lcspec("inspect", tiny_llama, "-t", "1", "--json").stdout)
    assert facts["vocabulary"]["tokens"] == 264
    assert facts["exact"]["exact_widths"]["deep"] >= 16


def test_a_recurrent_model_is_inspected(tiny_recurrent: Path) -> None:
    assert "can't be truncated: no drafts" in lcspec("inspect", tiny_recurrent, "-t", "1").stdout


def test_what_is_no_model_cannot_be_inspected(tmp_path: Path) -> None:
    assert "can't be read" in lcspec("inspect", tmp_path / "absent.gguf", status=1).stderr
