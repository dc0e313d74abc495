"""What models take, what there is, and what is refused."""

import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from lcspec import ModelError, SpeculativeLM
from lcspec.llama import Context, Header, Model, check_memory, free_memory, memory_need, read_header
from lcspec.llama import memory as memory_module

MIB = 1 << 20
ALLOCATED = re.compile(r"(KV|compute|model) buffer size += +([\d.]+) MiB")


def allocated(path: Path, n_ctx: int, caplog: pytest.LogCaptureFixture) -> dict[str, float]:
    """Return llama.cpp's own account of its buffers, in bytes."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "lcspec.llama.cpp"), Model(path, repack=False) as model:
        Context(model, n_ctx).close()
    sizes = {"KV": 0.0, "compute": 0.0, "model": 0.0}
    for kind, mebibytes in ALLOCATED.findall(caplog.text):
        sizes[kind] += float(mebibytes) * MIB
    return sizes


@pytest.mark.parametrize("n_ctx", [256, 500])
@pytest.mark.parametrize("name", ["tiny_llama", "tiny_sliding"])
def test_the_cache_is_estimated_as_llama_cpp_has_it(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, name: str, n_ctx: int
) -> None:
    path = request.getfixturevalue(name)
    logged = allocated(path, n_ctx, caplog)["KV"]  # rounded to hundredths of a mebibyte, for each of two caches
    assert logged == pytest.approx(memory_need(read_header(path), n_ctx).cache, abs=0.011 * MIB)


def test_a_model_without_heads_has_no_keys_and_values() -> None:
    assert memory_need(Header([Path("x")], {"general.architecture": "mamba", "mamba.block_count": 4}), 512).cache == 0


@pytest.mark.real
@pytest.mark.parametrize("n_ctx", [512, 4096, 8192])
def test_the_need_of_a_real_model_is_estimated(smollm2: Path, caplog: pytest.LogCaptureFixture, n_ctx: int) -> None:
    real, need = allocated(smollm2, n_ctx, caplog), memory_need(read_header(smollm2), n_ctx)
    assert need.weights == pytest.approx(real["model"], rel=0.01)
    assert need.cache == pytest.approx(real["KV"], rel=0.01)
    assert real["compute"] * 0.9 < need.buffers < real["compute"] * 1.4
    assert sum(real.values()) * 0.98 < need.total < sum(real.values()) * 1.1


def test_heads_can_be_counted_by_layer() -> None:
    header = Header(
        [Path("x")],
        {
            "general.architecture": "mixed",
            "mixed.block_count": 4,
            "mixed.attention.head_count": [8, 8, 8, 8],
            "mixed.attention.head_count_kv": [0, 2, 0, 2],
            "mixed.embedding_length": 512,
        },
    )
    assert memory_need(header, 256).cache == 256 * (2 + 2) * (64 + 64) * 2


# what there is


class Groups:
    """The files under /sys and /proc that tell of control groups."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def join(self, line: str) -> None:
        self.write("proc/self/cgroup", line)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Groups:
    monkeypatch.setattr(memory_module, "_address_space", list)
    return Groups(tmp_path)


def test_without_limits_what_is_available_is_free(groups: Groups) -> None:
    free = free_memory(groups.root)
    assert free == pytest.approx(psutil.virtual_memory().available, rel=0.1)


def test_a_group_of_version_2_limits_memory_and_its_file_pages_count_as_free(groups: Groups) -> None:
    groups.join("0::/app/worker")
    groups.write("sys/fs/cgroup/app/worker/memory.max", "1000000")
    groups.write("sys/fs/cgroup/app/worker/memory.current", "700000")
    groups.write(
        "sys/fs/cgroup/app/worker/memory.stat", "anon 300000\nfile 400000\ninactive_file 150000\nactive_file 50000"
    )
    assert free_memory(groups.root) == 500_000
    groups.write("sys/fs/cgroup/app/memory.max", "900000")
    groups.write("sys/fs/cgroup/app/memory.current", "800000")
    assert free_memory(groups.root) == 100_000
    groups.write("sys/fs/cgroup/app/memory.max", "max")
    assert free_memory(groups.root) == 500_000


def test_a_group_of_version_1_limits_memory(groups: Groups) -> None:
    groups.join("4:memory:/app\n3:cpu:/other")
    groups.write("sys/fs/cgroup/memory/app/memory.limit_in_bytes", "1000000")
    groups.write("sys/fs/cgroup/memory/app/memory.usage_in_bytes", "700000")
    stat = "inactive_file 1\nactive_file 1\ntotal_inactive_file 20000\ntotal_active_file 30000"
    groups.write("sys/fs/cgroup/memory/app/memory.stat", stat)
    assert free_memory(groups.root) == 350_000


def test_a_group_over_its_limit_leaves_nothing(groups: Groups) -> None:
    groups.join("0::/")
    groups.write("sys/fs/cgroup/memory.max", "1000")
    groups.write("sys/fs/cgroup/memory.current", "2000")
    assert free_memory(groups.root) == 0


# what is refused


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    def set_free(n_bytes: float) -> None:
        monkeypatch.setattr(memory_module, "free_memory", lambda: int(n_bytes))

    return set_free


def suggested(message: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"([\d,]+) tokens (?:of context|without)", message)]


def test_what_fits_is_not_refused(tiny_llama: Path, tiny_draft: Path, free: Callable[[float], None]) -> None:
    target, draft = read_header(tiny_llama), read_header(tiny_draft)
    free(memory_need(target, 512).total + memory_need(draft, 512).total)
    check_memory(target, draft, 512)


def test_a_smaller_context_or_no_draft_is_suggested_and_fits(
    tiny_llama: Path, tiny_draft: Path, free: Callable[[float], None]
) -> None:
    target, draft = read_header(tiny_llama), read_header(tiny_draft)
    free(memory_need(target, 2048).total + memory_need(draft, 2048).total)
    with pytest.raises(ModelError) as error:
        check_memory(target, draft, 8192)
    message = str(error.value)
    assert "are needed with 8,192 tokens of context" in message
    assert "llama.gguf: weights" in message
    assert "draft.gguf: weights" in message
    assert suggested(message) == [8192, 2048, 4096]
    check_memory(target, draft, 2048)
    check_memory(target, None, 4096)
    with pytest.raises(ModelError):
        check_memory(target, draft, 2049)
    with pytest.raises(ModelError):
        check_memory(target, None, 4097)


def test_where_nothing_fits_that_is_said(tiny_llama: Path, free: Callable[[float], None]) -> None:
    free(1000)
    with pytest.raises(ModelError, match="no context would fit: take a smaller model"):
        check_memory(read_header(tiny_llama), None, 512)


def test_an_engine_is_refused_before_anything_is_loaded(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, free: Callable[[float], None]
) -> None:
    free(10 * MIB)
    monkeypatch.setattr("lcspec.loaded.Model", lambda header: pytest.fail("it is loaded"))
    with pytest.raises(ModelError, match=r"needed with 100,000 tokens .* 6,656 tokens of context would fit"):
        SpeculativeLM(tiny_llama, n_ctx=100_000)


def test_a_file_that_asks_for_a_huge_cache_is_refused(tiny_folder: Path) -> None:
    """A malicious count of heads must not become an allocation."""
    whole = (tiny_folder / "llama.gguf").read_bytes()
    key = b"llama.attention.head_count_kv"
    at = whole.index(key) + len(key) + 4
    path = tiny_folder / "greedy.gguf"
    path.write_bytes(whole[:at] + (1 << 30).to_bytes(4, "little") + whole[at + 4 :])
    with pytest.raises(ModelError, match="of memory are needed"):
        SpeculativeLM(path)


STARVED = """
import resource, sys
from lcspec import ModelError, SpeculativeLM
from lcspec.llama import memory
import psutil
limit = psutil.Process().memory_info().vms + memory._unused_addresses() + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    lm = SpeculativeLM(sys.argv[1], n_ctx=int(sys.argv[3]))
except ModelError as error:
    print(error)
else:
    print(repr(lm.chat([{"role": "user", "content": "Tell a story."}], max_tokens=5).text))
"""


@pytest.mark.real
def test_a_process_with_little_address_space_is_told_what_fits(smollm2: Path) -> None:
    def load(n_ctx: int) -> str:
        command = [sys.executable, "-c", STARVED, str(smollm2), str(300 * MIB), str(n_ctx)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    message = load(8192)
    assert re.match(r"\d+ MB of memory are needed with 8,192 tokens of context and 3\d\d MB are free", message)
    assert re.match("['\"]", load(suggested(message)[-1])), "what is said to fit does"
