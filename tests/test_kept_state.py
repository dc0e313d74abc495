"""Caches kept in files: a conversation goes on as if the engine had never ended, or is evaluated anew."""

import hashlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from lcspec import BusyError, ClosedError, Completion, SamplingParams, SpeculativeLM
from lcspec.kept_state import KeptState, keep_state, recall_state
from lcspec.layouts import TwoLayouts
from lcspec.llama import Context, Model, State
from lcspec.planner import CostCurve, LayoutChoice

PROMPT = "the fox and the hen and the fox and the hen"
MAGIC = b"lcspec kv state 1\n"


def load(model: Path, draft: Path | None = None, **options: Any) -> SpeculativeLM:
    return SpeculativeLM(model, draft, **{"n_ctx": 250, "threads": 1, "measure": False, **options})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "states" / "a.kv"


@pytest.fixture(scope="module")
def engine(tiny_llama: Path) -> Iterator[SpeculativeLM]:
    with load(tiny_llama) as engine:
        yield engine


@pytest.fixture(scope="module")
def kept(engine: SpeculativeLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state of the engine behind the prompt and 20 tokens."""
    path = tmp_path_factory.mktemp("kept") / "a.kv"
    engine.clear()
    engine.generate(PROMPT, max_tokens=20)
    assert engine.save_state(path)
    return path


def follow(engine: SpeculativeLM, first: Completion, **options: Any) -> Completion:
    """Go on behind the first text with two more tokens."""
    return engine.generate([*engine.target.tokenize(PROMPT), *first.tokens, 65, 66], max_tokens=30, **options)


# going on


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", ["tiny_llama", "tiny_sliding"])
def test_a_restored_engine_goes_on_as_if_it_had_not_ended(
    request: pytest.FixtureRequest, path: Path, name: str, exact: bool
) -> None:
    model = request.getfixturevalue(name)
    with load(model, exact=exact) as engine:
        first = engine.generate(PROMPT, max_tokens=30)
        assert engine.save_state(path)
        expected = follow(engine, first, logprobs=3)
        engine.clear()
        anew = follow(engine, first, logprobs=3)
    with load(model, exact=exact) as engine:
        assert engine.restore_state(path) == len(PROMPT) + len(first.tokens) - (first.finish_reason == "length")
        found = follow(engine, first, logprobs=3)
    assert found.stats.cached_tokens == expected.stats.cached_tokens >= len(PROMPT) + len(first.tokens) - 1
    assert found.tokens == expected.tokens
    assert found.logprobs == expected.logprobs
    if exact:
        assert found.stats.exact is True
        assert found.tokens == anew.tokens
        assert found.logprobs == anew.logprobs


@pytest.mark.parametrize("drafter", ["none", "lookup", "model", "auto"])
def test_drafters_go_on_too(tiny_llama: Path, tiny_draft: Path, path: Path, drafter: Any) -> None:
    sampling = SamplingParams(temperature=0.7, seed=4)
    with load(tiny_llama, tiny_draft) as engine:
        first = engine.generate(PROMPT, max_tokens=30, sampling=sampling)
        assert engine.save_state(path)
        expected = follow(engine, first, drafter="none", sampling=sampling)
    with load(tiny_llama, tiny_draft) as engine:
        assert engine.restore_state(path)
        found = follow(engine, first, drafter=drafter, sampling=sampling)
        assert found.tokens == expected.tokens
        assert found.stats.cached_tokens == len(PROMPT) + 29


@pytest.mark.parametrize("exact", [False, True])
def test_a_sliding_window_is_evaluated_anew_where_what_is_kept_ends_earlier(
    tiny_sliding: Path, path: Path, exact: bool
) -> None:
    """llama.cpp saves what the window shows at the end, and no more."""
    with load(tiny_sliding, exact=exact) as engine:
        prompt = engine.target.tokenize(PROMPT)
        for n in (1, 10, 40):
            other = prompt[:n] + list(range(70, 90))
            engine.clear()
            expected = engine.generate(other, max_tokens=20, logprobs=1)
            engine.generate(PROMPT, max_tokens=30)
            assert engine.save_state(path)
            engine.clear()
            assert engine.restore_state(path)
            found = engine.generate(other, max_tokens=20, logprobs=1)
            assert found.stats.cached_tokens == 0
            assert found.tokens == expected.tokens
            assert found.logprobs == expected.logprobs


def test_a_prompt_that_differs_is_evaluated_from_there(engine: SpeculativeLM, kept: Path) -> None:
    prompt = engine.target.tokenize(PROMPT)
    prompt[20] += 1
    engine.clear()
    expected = engine.generate(prompt, max_tokens=20)
    engine.generate("something else")
    assert engine.restore_state(kept) == len(PROMPT) + 19
    found = engine.generate(prompt, max_tokens=20)
    assert found.stats.cached_tokens == 20
    assert found.tokens == expected.tokens


def test_what_was_not_read_is_not_kept(engine: SpeculativeLM, path: Path) -> None:
    engine.clear()
    with engine.stream(PROMPT, max_tokens=60, drafter="lookup") as stream:
        for piece in stream:
            if piece.drafter:
                break  # the target's own token of this pass was not read
        read = len(stream.completion.tokens)
    assert len(engine._loaded.context.tokens) > len(PROMPT) + read - 1
    assert engine.save_state(path)
    assert engine.restore_state(path) == len(PROMPT) + read - 1


@pytest.mark.filterwarnings("ignore:.*can't be truncated")
def test_a_recurrent_state_is_kept_as_a_whole(tiny_recurrent: Path, path: Path) -> None:
    with load(tiny_recurrent) as engine:
        first = engine.generate(PROMPT, max_tokens=20)
        assert engine.save_state(path)
        expected = follow(engine, first)
    with load(tiny_recurrent) as engine:
        assert engine.restore_state(path) == len(PROMPT) + 19
        found = follow(engine, first)
    assert found.stats.cached_tokens == expected.stats.cached_tokens == len(PROMPT) + 19
    assert found.tokens == expected.tokens


def test_what_was_not_exact_is_not_so_later(tiny_llama: Path, path: Path) -> None:
    with load(tiny_llama, drafter="none") as engine:
        first = engine.generate(PROMPT, max_tokens=20)
        engine._loaded._cells.mark(100)
        assert engine.save_state(path)
        assert engine.restore_state(path), "a mark behind the cells in use is none"
        assert follow(engine, first).stats.exact is True
        engine._loaded._cells.mark(30)
        assert engine.save_state(path)
    with load(tiny_llama) as engine:
        engine.restore_state(path)
        assert follow(engine, first).stats.exact == 0
        assert engine.generate(PROMPT[:25], max_tokens=2).stats.exact is True


def test_a_state_moves_between_layouts_through_the_one_that_decodes(tiny_llama: Path, path: Path) -> None:
    with load(tiny_llama) as engine, Model(tiny_llama) as other:
        tokens = engine.target.tokenize(PROMPT)
        expected = engine.generate(tokens, max_tokens=20, drafter="none").tokens
        context = engine._loaded._decoding
        two = TwoLayouts(context, lambda: Context(other, 250, threads=1), LayoutChoice((CostCurve(), None)))
        engine._loaded.context = two
        engine._loaded.caches._context = two
        engine.clear()
        two.prefill(tokens[:20])
        two.choice.wanted = 1
        two.evaluate(tokens[20:30])
        engine._last_mark.n_tokens = 30
        assert two.layout == 1
        assert engine.save_state(path)
        assert engine.restore_state(path) == 30
        assert two.layout == 0
        assert context.tokens == tokens[:30]
        again = engine.generate(tokens, max_tokens=20, drafter="none")
        assert again.stats.cached_tokens == 30
        assert again.tokens == expected
        assert again.stats.exact == 0, "some of it was evaluated in the other layout"


# what is not used


def test_without_a_file_nothing_happens(engine: SpeculativeLM, tmp_path: Path) -> None:
    first = engine.generate(PROMPT, max_tokens=5)
    (tmp_path / "folder").mkdir()
    for name in ("nowhere", "folder", "folder/nowhere", "\0"):
        assert engine.restore_state(tmp_path / name) == 0
    assert follow(engine, first).stats.cached_tokens == len(PROMPT) + 4, "the cache is as it was"


def test_nothing_is_kept_of_an_empty_cache(tiny_llama: Path, path: Path) -> None:
    with load(tiny_llama) as engine:
        assert not engine.save_state(path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        ({}, {"exact": True}),
        ({"exact": True}, {}),
        ({"exact": True, "threads": 1}, {"exact": True, "threads": 2}),
    ],
)
def test_a_state_of_another_way_to_load_is_not_used(
    tiny_llama: Path, path: Path, saved: dict[str, Any], loaded: dict[str, Any]
) -> None:
    with load(tiny_llama, **saved) as engine:
        engine.generate(PROMPT, max_tokens=5)
        assert engine.save_state(path)
    with load(tiny_llama, **loaded) as engine:
        assert engine.restore_state(path) == 0
    with load(tiny_llama, **saved) as engine:
        assert engine.restore_state(path) > 0


def test_a_state_fits_another_number_of_threads_or_longer_context(tiny_llama: Path, kept: Path) -> None:
    for options in ({"threads": 2}, {"n_ctx": 500}, {"n_ctx": 63}, {"one_layout": True}):
        with load(tiny_llama, **options) as engine:
            assert engine.restore_state(kept) == len(PROMPT) + 19
    with load(tiny_llama, n_ctx=61) as engine:
        assert engine.restore_state(kept) == 0
        assert engine.generate(PROMPT, max_tokens=5).stats.cached_tokens == 0


def test_a_state_of_other_weights_is_not_used(tiny_folder: Path, tiny_llama: Path, kept: Path) -> None:
    other = tiny.write_model(tiny_folder / "other.gguf", seed=7)  # a file of the same header and size
    padded = tiny.write_model(tiny_folder / "padded-vocabulary.gguf", n_vocab=tiny.N_VOCAB + 2)
    copy = shutil.copy(tiny_llama, tiny_folder / "copy.gguf")
    for model, fits in ((other, False), (padded, False), (copy, True)):
        with load(model) as engine:
            assert (engine.restore_state(kept) > 0) == fits


def test_a_state_of_another_library_is_not_used(
    engine: SpeculativeLM, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lcspec.caches.machine", lambda: {"library": "llama-cpp-python 99"})
    assert engine.restore_state(kept) == 0


# damage


@pytest.fixture(scope="module")
def watched(engine: SpeculativeLM) -> Iterator[Callable[[Path], int]]:
    """Restore with what llama.cpp is given counted: it must be none of what is damaged."""
    given = []
    with pytest.MonkeyPatch.context() as patch:
        real = llama_cpp.llama_state_seq_set_data

        def set_data(*arguments: Any) -> int:
            given.append(arguments)
            return int(real(*arguments))

        patch.setattr(llama_cpp, "llama_state_seq_set_data", set_data)

        def restore(path: Path) -> int:
            given.clear()
            n = engine.restore_state(path)
            assert bool(given) == bool(n)
            return n

        yield restore


@given(data=st.data())
@settings(deadline=None, max_examples=200)
def test_a_flipped_bit_is_noticed(kept: Path, watched: Callable[[Path], int], data: st.DataObject) -> None:
    content = bytearray(kept.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        near_the_header = data.draw(st.booleans())
        at = data.draw(st.integers(0, 600 if near_the_header else len(content) - 1))
        content[at] ^= data.draw(st.integers(1, 255))
    damaged = kept.with_name("damaged.kv")
    damaged.write_bytes(content)
    assert watched(damaged) == (len(PROMPT) + 19 if content == kept.read_bytes() else 0)


@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_a_cut_or_longer_file_is_noticed(kept: Path, watched: Callable[[Path], int], data: st.DataObject) -> None:
    content = kept.read_bytes()
    n = data.draw(st.one_of(st.integers(1, 600), st.integers(1, len(content) - 1)))
    more = data.draw(st.binary(min_size=1, max_size=100))
    damaged = kept.with_name("damaged.kv")
    for changed in (content[:n], content + more, content[n:], content[:n] + more + content[n:], more):
        damaged.write_bytes(changed)
        assert watched(damaged) == 0


def sealed(header: Any, tokens: bytes, cells: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    body = struct.pack("<I", len(text)) + text + tokens + cells
    return MAGIC + hashlib.sha256(body).digest() + body


def opened(content: bytes) -> tuple[dict[str, Any], bytes, bytes]:
    start = len(MAGIC) + 32
    (length,) = struct.unpack_from("<I", content, start)
    start += 4
    header = json.loads(content[start : start + length])
    end = start + length + 4 * header["n_tokens"]
    return header, content[start + length : end], content[end:]


def test_a_sealed_file_that_makes_no_sense_is_not_used(kept: Path, watched: Callable[[Path], int]) -> None:
    content = kept.read_bytes()
    header, tokens, cells = opened(content)
    assert sealed(header, tokens, cells) == content
    damaged = kept.with_name("damaged.kv")
    n = header["n_tokens"]
    for wrong in (
        *(b"", b"null", b"[]", b"{}", b"[" * 100_000, b"\xff"),
        *({key: value for key, value in header.items() if key != missing} for missing in header),
        *({**header, "n_tokens": other} for other in (None, "5", -1, 0, n - 1, n + 1, 1 << 70, 1.5)),
        *({**header, "n_bytes": other} for other in (None, "5", -1, 0, len(cells) - 1, 1 << 70)),
        {**header, "n_tokens": 0, "n_bytes": len(cells) + 4 * n},
        *({**header, "inexact_from": other} for other in ("x", -1, 1.5, [], n + 1)),
    ):
        damaged.write_bytes(sealed(wrong, tokens, cells))
        assert watched(damaged) == 0, wrong
    for token in (-1, tiny.N_VOCAB, 2**31 - 1, -(2**31)):
        damaged.write_bytes(sealed(header, struct.pack("<i", token) + tokens[4:], cells))
        assert watched(damaged) == 0
    damaged.write_bytes(struct.pack("<I", 1 << 31).join([content[: len(MAGIC) + 32], content[len(MAGIC) + 36 :]]))
    assert watched(damaged) == 0


def test_what_llama_cpp_refuses_leaves_an_empty_cache(engine: SpeculativeLM, kept: Path) -> None:
    header, tokens, cells = opened(kept.read_bytes())
    refused = kept.with_name("refused.kv")
    refused.write_bytes(sealed(header, tokens, bytes(len(cells))))
    first = engine.generate(PROMPT, max_tokens=20)
    assert engine.restore_state(refused) == 0
    again = engine.generate(PROMPT, max_tokens=20)
    assert again.stats.cached_tokens == 0
    assert again.tokens == first.tokens


# files


def a_state(n: int, size: int = 1000) -> KeptState:
    cells = np.random.default_rng(n).integers(0, 256, size, dtype=np.uint8)
    return KeptState(State(tuple(range(n)), cells), None)


def recall(path: Path) -> KeptState | None:
    return recall_state(path, {"a": 1}, n_vocab=1000, n_ctx=1000)


@given(st.integers(1, 50), st.integers(0, 1000), st.one_of(st.none(), st.integers(0, 50)))
@settings(deadline=None, max_examples=30)
def test_what_is_kept_is_recalled(
    tmp_path_factory: pytest.TempPathFactory, n: int, size: int, inexact_from: int | None
) -> None:
    path = tmp_path_factory.mktemp("kept") / "a.kv"
    state = KeptState(a_state(n, size).state, inexact_from if inexact_from is None else min(inexact_from, n))
    assert keep_state(path, state, {"a": 1})
    found = recall(path)
    assert found is not None
    assert found.state.tokens == state.state.tokens
    assert found.state.cells.tobytes() == state.state.cells.tobytes()
    assert found.inexact_from == state.inexact_from
    assert recall_state(path, {"a": 2}, n_vocab=1000, n_ctx=1000) is None


@pytest.mark.skipif(os.name == "nt", reason="permissions are POSIX's")
def test_nobody_else_can_read_it(path: Path) -> None:
    assert keep_state(path, a_state(3), {"a": 1})
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_states_take_a_bounded_space_and_the_least_recently_used_go(path: Path) -> None:
    assert keep_state(path, a_state(3), {"a": 1})
    limit = 3 * path.stat().st_size + 20
    names = ["a", "b", "c", "d", "e"]
    for i, name in enumerate(names[1:]):
        other = path.with_name(f"{name}.kv")
        for kept in path.parent.glob("*.kv"):
            os.utime(kept, (kept.stat().st_mtime - 100, kept.stat().st_mtime - 100))
        if i == 1:
            assert recall(path) is not None, "used again"
        assert keep_state(other, a_state(3), {"a": 1}, limit)
        assert sum(kept.stat().st_size for kept in path.parent.glob("*.kv")) <= limit
        if i == 2:
            assert sorted(kept.stem for kept in path.parent.glob("*.kv")) == ["a", "c", "d"]
    assert sorted(kept.stem for kept in path.parent.glob("*.kv")) == ["c", "d", "e"]
    assert keep_state(path.with_name("d.kv"), a_state(3), {"a": 1}, limit)
    assert sorted(kept.stem for kept in path.parent.glob("*.kv")) == ["c", "d", "e"], "it replaces itself"


def test_a_state_that_is_too_large_pushes_nothing_out(path: Path) -> None:
    assert keep_state(path, a_state(3), {"a": 1})
    assert not keep_state(path.with_name("b.kv"), a_state(3, 5000), {"a": 1}, limit=4000)
    assert not keep_state(path, a_state(3, 5000), {"a": 1}, limit=4000)
    assert recall(path) is not None


def test_other_files_stay(path: Path) -> None:
    path.parent.mkdir()
    others = [path.with_name(name) for name in ("other.kv", "x.txt", "short.kv")]
    for other, content in zip(others, (b"something else" * 50, b"x" * 5000, b"l"), strict=True):
        other.write_bytes(content)
    (path.parent / "folder.kv").mkdir()
    (path.parent / ".z.kv.abc.new").write_bytes(b"left by a writer that was killed")
    assert keep_state(path, a_state(3), {"a": 1}, limit=2000)
    assert all(other.exists() for other in others)
    assert not (path.parent / ".z.kv.abc.new").exists()


def test_what_cannot_be_written_is_only_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "states" / "a.kv").mkdir(parents=True)
    for path in (tmp_path / "file" / "a.kv", tmp_path / "states" / "a.kv", tmp_path / "states" / "\0.kv"):
        caplog.clear()
        assert not keep_state(path, a_state(3), {"a": 1})
        assert "can't be kept" in caplog.text
    assert [path.name for path in (tmp_path / "states").iterdir() if path.name != ".lock"] == ["a.kv"]


def test_a_full_disk_keeps_the_old_state(tmp_path: Path, engine: SpeculativeLM) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        engine.clear()
        first = engine.generate(PROMPT, max_tokens=20)
        assert engine.save_state(disk / "a.kv")
        with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        longer = follow(engine, first)
        assert not engine.save_state(disk / "a.kv")
        assert not engine.save_state(disk / "b.kv")
        assert sorted(path.name for path in disk.iterdir()) == [".lock", "a.kv", "filler"]
        assert engine.restore_state(disk / "a.kv") == len(PROMPT) + 19
        assert follow(engine, first).tokens == longer.tokens
    finally:
        subprocess.run(["umount", disk], check=True)


WRITER = """
import sys
from pathlib import Path
import numpy as np
from lcspec.kept_state import KeptState, keep_state
from lcspec.llama import State
n = 0
while True:
    n += 1
    cells = np.full(3_000_000, n % 256, dtype=np.uint8)
    assert keep_state(Path(sys.argv[1]), KeptState(State((n,), cells), None), {"a": 1})
    if n == 1:
        print("begun", flush=True)
"""


def test_a_kill_leaves_the_old_or_the_new_state(path: Path) -> None:
    chance = random.Random(2)
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        found = recall_state(path, {"a": 1}, n_vocab=100_000, n_ctx=10)
        assert found is not None
        assert set(found.state.cells.tolist()) == {found.state.tokens[0] % 256}
    assert keep_state(path, a_state(3), {"a": 1}), "the lock of the dead is free"
    assert sorted(kept.name for kept in path.parent.iterdir()) == [".lock", "a.kv"]


# who may


def test_an_engine_that_is_at_work_or_closed_keeps_nothing(tiny_llama: Path, path: Path) -> None:
    engine = load(tiny_llama)
    uses = (lambda: engine.save_state(path), lambda: engine.restore_state(path), lambda: engine.shift_to([1, 2]))
    with engine.stream(PROMPT, max_tokens=9) as stream:
        next(stream)
        for use in uses:
            with pytest.raises(BusyError):
                use()
    engine.close()
    for use in uses:
        with pytest.raises(ClosedError):
            use()


# a real model


@pytest.mark.real
def test_a_resumed_chat_evaluates_only_what_is_new(smollm2: Path, path: Path) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Name three colors of flowers."},
    ]
    with load(smollm2, n_ctx=512, exact=True) as engine:
        first = engine.chat(messages, max_tokens=40)
        assert engine.save_state(path)
        messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "And three animals."}]
        expected = engine.chat(messages, max_tokens=30, logprobs=2)
        engine.clear()
        anew = engine.chat(messages, max_tokens=30, logprobs=2)
    with load(smollm2, n_ctx=512, exact=True) as engine:
        n = engine.restore_state(path)
        assert n >= first.stats.prompt_tokens + len(first.tokens) - 1
        found = engine.chat(messages, max_tokens=30, logprobs=2)
    assert found.stats.cached_tokens >= first.stats.prompt_tokens + len(first.tokens) - 1
    assert found.stats.prompt_tokens - found.stats.cached_tokens < 20
    assert found.text == expected.text == anew.text
    assert found.logprobs == expected.logprobs == anew.logprobs
    assert found.stats.exact is True
    assert path.stat().st_size < 24_000 * n, "only the cells in use"
