"""Replays of drafts, and other projects' lookups in them."""

from pathlib import Path

from click.testing import CliRunner

from bench import drafts
from bench.drafts import LlamaLookup, ServerLookup, replays
from bench.recordings import read_recordings

RECORDINGS = Path(__file__).parent / "data" / "recordings.jsonl"


def no_logits(*_: object) -> tuple[int, None]:
    raise AssertionError


def test_the_server_drafts_what_followed_twelve_tokens() -> None:
    server = ServerLookup()
    block = list(range(100, 112))
    prompt = [0, *block, *range(200, 260), *block]
    server.begin(prompt, no_logits)
    assert server.propose(100).tokens == tuple(range(200, 248))
    assert server.propose(5).tokens == tuple(range(200, 205))
    server.begin([0, *block[1:], *range(200, 260), *block[1:]], no_logits)
    assert server.propose(100).tokens == (), "eleven are too few"
    server.begin([0, *block, *range(200, 208), *range(300, 360)], no_logits)
    server.commit(block, 0.0)
    assert len(server.propose(100).tokens) == 48


def test_llama_cpp_drafts_ten_tokens_behind_two() -> None:
    llama = LlamaLookup()
    llama.begin([1, 2, *range(10, 30), 1, 2], no_logits)
    assert llama.propose(100).tokens == tuple(range(10, 20))
    llama.commit([10], 0.0)
    assert llama.propose(3).tokens == (11, 12, 13)


def test_all_of_a_text_is_counted() -> None:
    recording = read_recordings(RECORDINGS)[0]
    for by_drafter in replays([recording], "2-cores-avx512").values():
        assert by_drafter.keys() == {"llama_cpp", "ngram-simple", "suffix", "auto"}
        for result in by_drafter.values():
            assert result.widths.total() + result.accepted.total() == len(recording.text) - 1
            assert result.drafted.total() >= result.accepted.total()


def test_the_command_prints_each_category_and_drafter(tmp_path: Path) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("".join(RECORDINGS.read_text().splitlines(keepends=True)[:2]))
    result = CliRunner().invoke(drafts.main, [str(few)])
    assert result.exit_code == 0, result.output
    assert [line.split()[-5] for line in result.output.splitlines()[1:5]] == [
        "llama_cpp", "ngram-simple", "suffix", "auto",
    ]  # fmt: skip
