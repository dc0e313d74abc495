"""Hostile files get one clear error before llama.cpp sees them."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
from mutants import BOOL, FLOAT32, INT32, STRING, UINT32, Element, Field, File

from lcspec import ModelError, SpeculativeLM
from lcspec.hub import cached_path, catalog
from lcspec.llama.gguf_header import read_header, split_files

MUTANTS = 5_000

FUZZ = """
import random, resource, signal, sys
from pathlib import Path
from lcspec import ModelError
from lcspec.llama.gguf_header import read_header, split_files

whole, path, mutants = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]), int(sys.argv[3])
header = whole.index(b"output_norm.weight") + 100
resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))

def hang(*_):
    raise TimeoutError("a check takes more than a second")

signal.signal(signal.SIGPROF, hang)
huge = [0, 1, 0xFF, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1]
passed = refused = 0
for seed in range(mutants):
    r = random.Random(seed)
    mutant = bytearray(whole)
    for _ in range(r.choice([1, 1, 2, 5, 50])):
        position = r.randrange(4, header)
        match r.randrange(5):
            case 0:
                mutant[position] ^= 1 << r.randrange(8)
            case 1:
                mutant[position : position + 8] = r.choice(huge).to_bytes(8, "little")
            case 2:
                mutant[position : position + 4] = (r.choice(huge) % (1 << 32)).to_bytes(4, "little")
            case 3:
                del mutant[position : position + r.randrange(1, 200)]
            case 4:
                other = r.randrange(4, header)
                mutant[position : position + 40] = mutant[other : other + 40]
    if r.random() < 0.2:
        del mutant[r.randrange(len(mutant)) :]
    path.write_bytes(mutant)
    signal.setitimer(signal.ITIMER_PROF, 1.0)  # of processor time, which other processes do not take
    try:
        read_header(path)
        passed += 1
    except ModelError as error:
        assert len(str(error).splitlines()) == 1, error
        refused += 1
    signal.setitimer(signal.ITIMER_PROF, 0)
print(passed, refused)
"""


def test_mutated_files_are_passed_or_refused_but_never_break_the_check(tiny_llama: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", FUZZ, str(tiny_llama), str(tmp_path / "mutant.gguf"), str(MUTANTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    passed, refused = map(int, done.stdout.split())
    assert passed + refused == MUTANTS
    assert refused > MUTANTS // 2
    assert passed > 0


LOAD = """
import os, random, resource, signal, sys
from pathlib import Path
from lcspec import LcspecError
from lcspec.llama import Context, Model
from lcspec.llama.gguf_header import read_header, split_files

whole, path, wanted = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]), int(sys.argv[3])
header = whole.index(b"output_norm.weight") + 100
seed, statuses = 0, []
while len(statuses) < wanted:
    seed += 1
    r = random.Random(seed)
    mutant = bytearray(whole)
    for _ in range(r.choice([1, 1, 2])):
        mutant[r.randrange(4, header)] ^= r.choice([1 << r.randrange(8), r.randrange(1, 256)])
    path.write_bytes(mutant)
    try:
        read_header(path)
    except LcspecError:
        continue
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(30)
        try:
            with Model(path) as model:
                Context(model, 64, threads=1).prefill(model.tokenize("hello there"))
            os._exit(0)
        except LcspecError:
            os._exit(1)
        except BaseException:
            os._exit(2)
    statuses.append((os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), seed))
print([seed for status, seed in statuses if status not in (0, 1)])
print(sum(status == 0 for status, _ in statuses))
"""


def test_lightly_mutated_files_that_pass_load_or_fail_cleanly(tiny_llama: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOAD, str(tiny_llama), str(tmp_path / "mutant.gguf"), "300"]
    environment = os.environ | {"GGML_NO_BACKTRACE": "1"}  # a crash must not start a debugger
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    crashed, loaded = done.stdout.splitlines()
    assert crashed == "[]", done.stderr
    assert 0 < int(loaded) < 300


LOAD_MUTANTS = """
import os, resource, signal, sys
from pathlib import Path
from lcspec import LcspecError
from lcspec.llama import Context, Model, check_memory, read_header
from mutants import mutant

path = Path(sys.argv[1])
statuses = []
for whole in map(Path, sys.argv[3:]):
    for seed in range(int(sys.argv[2])):
        path.write_bytes(mutant(whole.read_bytes(), seed))
        try:
            check_memory(read_header(path), None, 64)
        except LcspecError:
            continue
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.alarm(30)
            try:
                with Model(path) as model:
                    tokens = model.tokenize("h\u00e9llo <eos> there\\n")
                    Context(model, 64, threads=1).prefill(tokens or [1])
                os._exit(0)
            except LcspecError:
                os._exit(1)
            except BaseException:
                os._exit(2)
        statuses.append((os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), whole.name, seed))
print([(name, seed) for status, name, seed in statuses if status not in (0, 1)])
print(sum(status == 0 for status, *_ in statuses))
"""


def test_files_with_senseless_values_are_refused_or_load_or_fail_cleanly(
    tiny_llama: Path, tiny_sliding: Path, tiny_recurrent: Path, tmp_path: Path
) -> None:
    models = map(str, (tiny_llama, tiny_sliding, tiny_recurrent))
    command = [sys.executable, "-c", LOAD_MUTANTS, str(tmp_path / "mutant.gguf"), "100", *models]
    environment = os.environ | {"GGML_NO_BACKTRACE": "1", "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    crashed, loaded = done.stdout.splitlines()
    assert crashed == "[]", done.stderr
    assert 50 < int(loaded) < 250


def test_good_files_pass(tiny_llama: Path, tiny_sliding: Path, tiny_recurrent: Path, smollm2: Path) -> None:
    for path in (
        tiny_llama,
        tiny_sliding,
        tiny_recurrent,
        smollm2,
        *filter(None, map(cached_path, catalog().values())),
    ):
        read_header(path)


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def gguf(*, keys: list[bytes] = [], tensors: list[bytes] = [], data: int = 0, version: int = 3) -> bytes:  # noqa: B006
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors)
    return header + bytes(-len(header) % 32 + data)


def key(name: bytes, value: bytes = struct.pack("<II", 4, 7)) -> bytes:
    return string(name) + value


def tensor(name: bytes = b"a", shape: tuple[int, ...] = (8,), kind: int = 0, offset: int = 0) -> bytes:
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return string(name) + sizes + struct.pack("<IQ", kind, offset)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a GGUF file"),
        (b"PK\x03\x04", "not a GGUF file"),
        (b"GGUF", "cut short"),
        (gguf(version=1), "of version 1"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(16), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "metadata keys do not fit"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "tensors do not fit"),
        (gguf(keys=[key(b"a"), key(b"a")]), "a is there twice"),
        (gguf(keys=[key(b"a" * 70_000)]), "70,000 bytes"),
        (gguf(keys=[struct.pack("<Q", 1 << 63) + b"abc" * 9]), "bytes"),
        (gguf(keys=[key(b"a", struct.pack("<I", 13) + bytes(8))]), "unknown type 13"),
        (gguf(keys=[key(b"a", struct.pack("<IQ", 8, 1 << 40))]), "the text of a goes on"),
        (gguf(keys=[key(b"a", struct.pack("<IIQ", 9, 4, 1 << 62))]), "values in a do not fit"),
        (gguf(keys=[key(b"a", struct.pack("<IIQ", 9, 8, 1 << 60))]), "strings in a do not fit"),
        (gguf(keys=[key(b"a", struct.pack("<IIQQ", 9, 8, 1, 1 << 60))]), "a goes on behind its end"),
        (gguf(keys=[key(b"a", struct.pack("<IIQ", 9, 9, 1) + bytes(40))]), "list of unknown type 9"),
        (gguf(keys=[key(b"general.alignment", struct.pack("<II", 4, 24))]), "alignment of 24"),
        (gguf(keys=[key(b"general.alignment", struct.pack("<II", 4, 0))]), "alignment of 0"),
        (gguf(keys=[key(b"general.alignment", struct.pack("<IQ", 10, 32))]), "no 32-bit number"),
        (
            gguf(keys=[key(b"tokenizer.chat_template", struct.pack("<I", 8) + string(b"x" * 2_000_000))]),
            "chat template of 2,000,008 bytes",
        ),
        (
            gguf(keys=[key(b"tokenizer.ggml.tokens", struct.pack("<IIQ", 9, 8, 3) + string(b"a") * 2 + string(b"b"))]),
            "1 of its 3 tokens are there twice",
        ),
        (gguf(tensors=[tensor(), tensor()], data=64), "a is there twice"),
        (gguf(tensors=[tensor(b"a" * 64)], data=32), "64 bytes"),
        (gguf(tensors=[tensor(shape=(8, 1, 1, 1, 1))], data=32), "5 dimensions"),
        (gguf(tensors=[tensor(shape=())], data=32), "0 dimensions"),
        (gguf(tensors=[tensor(shape=(0,))], data=32), "shape"),
        (gguf(tensors=[tensor(shape=(1 << 40, 1 << 40))], data=32), "shape"),
        (gguf(tensors=[tensor(kind=4)], data=32), "type 4"),  # removed from ggml
        (gguf(tensors=[tensor(kind=1 << 31)], data=32), "type 2147483648"),
        (gguf(tensors=[tensor(kind=8)], data=32), "blocks of 32"),
        (gguf(tensors=[tensor(offset=7)], data=64), "not aligned"),
        (gguf(tensors=[tensor(), tensor(b"b")], data=64), "b overlaps another"),
        (gguf(tensors=[tensor(shape=(1 << 30,))], data=32), "incomplete"),
        (gguf(tensors=[tensor(offset=1 << 62)], data=32), "incomplete"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=reason) as error:
        read_header(path)
    assert str(path) in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_the_smallest_good_file_passes(tmp_path: Path) -> None:
    path = tmp_path / "good.gguf"
    path.write_bytes(gguf(keys=[key(b"a")], tensors=[tensor(), tensor(b"b", offset=32)], data=64))
    read_header(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="folder"):
        read_header(tmp_path)
    with pytest.raises(ModelError, match="No such file"):
        read_header(tmp_path / "missing.gguf")
    with pytest.raises(ModelError, match="not an ordinary file"):
        read_header(Path("/dev/zero"))


# what llama.cpp would end the process over


def change(path: Path, folder: Path, **fields: tuple[int, Element | list[Element]]) -> Path:
    """Write the model with other values; a key's dots are written as __."""
    file = File(path.read_bytes())
    for name, (kind, value) in fields.items():
        key = name.replace("__", ".")
        file.fields = [*(field for field in file.fields if field.key != key), Field(key, kind, value)]
    changed = folder / "changed.gguf"
    changed.write_bytes(file.encoded())
    return changed


TOKENS: list[Element] = [text.encode() for text in tiny.byte_texts()]
BYTES: list[Element] = [b"<0x%02X>" % byte for byte in range(256)]
NAN, NEGATIVE = (FLOAT32, float("nan")), (FLOAT32, -1.0)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"llama__block_count": (UINT32, 0)}, "0 layers"),
        ({"llama__block_count": (UINT32, 4_000_000)}, "4,000,000 layers"),
        ({"llama__block_count": NAN}, "llama.block_count is nan"),
        ({"llama__block_count": (UINT32, [2, 2])}, r"llama.block_count is \[2, 2\]"),
        ({"llama__embedding_length": (FLOAT32, float("inf"))}, "llama.embedding_length is inf"),
        ({"llama__attention__head_count": NAN}, "llama.attention.head_count is nan"),
        ({"llama__attention__head_count_kv": (FLOAT32, [2.0, float("nan")])}, "head_count_kv is .*nan"),
        ({"llama__attention__head_count_kv": (INT32, -1)}, "head_count_kv is -1"),
        ({"llama__attention__head_count_kv": (UINT32, [2, 31])}, "31 heads do not make up the 64 rows of blk.1.attn_k"),
        ({"llama__nextn_predict_layers": (UINT32, 3)}, "3 of its 2 layers predict"),
        ({"llama__attention__sliding_window": (UINT32, 1 << 31)}, "a sliding window of 2,147,483,648 tokens"),
        ({"llama__expert_count": (UINT32, 100_000)}, "100,000 experts, and llama.cpp takes 1,024"),
        ({"llama__expert_count": (UINT32, 2)}, "uses 0 of 2 experts"),
        ({"llama__expert_used_count": (UINT32, 5)}, "uses 5 of 0 experts"),
        ({"llama__expert_count": (UINT32, 2), "llama__expert_used_count": (UINT32, 5)}, "uses 5 of 2 experts"),
        ({"llama__expert_group_count": (UINT32, 3)}, "groups of 0 experts"),
        ({"llama__rope__scaling__type": (STRING, b"xx")}, "scaled by 'xx'"),
        ({"llama__rope__scaling__type": (STRING, b"")}, "scaled by ''"),
        ({"llama__rope__dimension_count": (UINT32, 64)}, "64 of the 32 dimensions of a head are rotated"),
        ({"llama__rope__dimension_count": (UINT32, 7)}, "7 of the 32 dimensions"),
        ({"llama__attention__layer_norm_rms_epsilon": NEGATIVE}, "layer_norm_rms_epsilon is -1.0"),
        ({"llama__attention__layer_norm_rms_epsilon": NAN}, "layer_norm_rms_epsilon is nan"),
        ({"llama__attention__layer_norm_epsilon": NAN}, "layer_norm_epsilon is nan"),
        ({"tokenizer__ggml__tokens": (STRING, [b"a\0b", *TOKENS])}, "a token has a NUL in it"),
        ({"tokenizer__ggml__tokens": (STRING, [b"", b"[EMPTY_0]", *TOKENS])}, "1 of its 258 tokens are there twice"),
        ({"tokenizer__ggml__model": (STRING, b"llama")}, "lacks <0x00>, the token of a byte"),
        ({"tokenizer__ggml__model": (STRING, b"none")}, "its tokenizer is 'none'"),
        ({"tokenizer__ggml__model": (STRING, b"no_vocab")}, "its tokenizer is 'no_vocab'"),
        ({"tokenizer__ggml__model": (STRING, b"bert")}, "its tokenizer is 'bert'"),
        ({"tokenizer__ggml__model": (STRING, b"t5")}, "its tokenizer is 't5'"),
        ({"tokenizer__ggml__pre": (STRING, b"whitespace")}, "its tokenizer is 'whitespace'"),
        (
            {"tokenizer__ggml__model": (STRING, b"gemma4"), "tokenizer__ggml__bos_token_id": (UINT32, (1 << 32) - 1)},
            "a text begins with a token that its vocabulary lacks",
        ),
        (
            {
                "tokenizer__ggml__pre": (STRING, b"glm4"),
                "tokenizer__ggml__bos_token_id": (UINT32, 1 << 20),
                "tokenizer__ggml__add_bos_token": (BOOL, True),
            },
            "a text begins with a token that its vocabulary lacks",
        ),
        (
            {
                "tokenizer__ggml__model": (STRING, b"gemma4"),
                "tokenizer__ggml__eos_token_id": (UINT32, (1 << 32) - 1),
                "tokenizer__ggml__add_eos_token": (BOOL, True),
            },
            "a text ends with a token that its vocabulary lacks",
        ),
    ],
)
def test_values_that_would_end_the_process_are_refused(
    tiny_llama: Path, tmp_path: Path, fields: dict[str, tuple[int, Element | list[Element]]], reason: str
) -> None:
    path = change(tiny_llama, tmp_path, **fields)
    with pytest.raises(ModelError, match=reason) as error:
        SpeculativeLM(path)
    assert str(error.value).startswith(f"{path} ")
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "fields", "reason"),
    [
        ("tiny_sliding", {"gemma2__attention__layer_norm_rms_epsilon": NEGATIVE}, "epsilon is -1.0"),
        ("tiny_recurrent", {"mamba__attention__layer_norm_rms_epsilon": NAN}, "epsilon is nan"),
        ("tiny_sliding", {"gemma2__attention__sliding_window_pattern": (UINT32, 1)}, "and no layer with one"),
        ("tiny_sliding", {"gemma2__attention__head_count": (UINT32, 0)}, "a layer of no attention heads"),
    ],
)
def test_they_are_refused_in_other_architectures(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    name: str,
    fields: dict[str, tuple[int, Element | list[Element]]],
    reason: str,
) -> None:
    with pytest.raises(ModelError, match=reason):
        read_header(change(request.getfixturevalue(name), tmp_path, **fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"tokenizer__ggml__padding_token_id": (UINT32, (1 << 32) - 1)},
        {"llama__attention__head_count_kv": (UINT32, [2, 2])},
        {"llama__rope__scaling__type": (STRING, b"yarn")},
        {
            "tokenizer__ggml__model": (STRING, b"llama"),
            "tokenizer__ggml__tokens": (STRING, [*BYTES, *(b"token %d" % number for number in range(8))]),
        },
    ],
)
def test_odd_values_that_do_no_harm_pass(
    tiny_llama: Path, tmp_path: Path, fields: dict[str, tuple[int, Element | list[Element]]]
) -> None:
    with SpeculativeLM(change(tiny_llama, tmp_path, **fields)) as lm:
        assert lm.generate("Hello", max_tokens=3).tokens


# several files


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """A model in several files."""
    tiny.write_model(tmp_path / "tiny.gguf", tensors_in_a_file=8)
    return sorted(tmp_path.glob("tiny-0000?-of-0000?.gguf"))


def test_a_split_model_loads_as_one_by_any_of_its_files(parts: list[Path], tiny_llama: Path) -> None:
    assert len(parts) == 3
    with SpeculativeLM(tiny_llama) as whole, SpeculativeLM(parts[0]) as split, SpeculativeLM(parts[2]) as by_last:
        expected = whole.generate("Hello", max_tokens=40).tokens
        assert split.generate("Hello", max_tokens=40).tokens == expected
        assert by_last.generate("Hello", max_tokens=40).tokens == expected
        assert split.target.path == by_last.target.path == parts[0]
    header = read_header(parts[1])
    assert header.files == parts
    assert header.size == read_header(tiny_llama).size
    assert header.file_size == sum(part.stat().st_size for part in parts)


def test_a_missing_part_is_named(parts: list[Path]) -> None:
    parts[1].unlink()
    with pytest.raises(ModelError, match=r"tiny-00002-of-00003.gguf can't be read \(part 2 of 3\): No such file"):
        read_header(parts[0])


def test_a_damaged_part_is_named(parts: list[Path]) -> None:
    content = parts[2].read_bytes()
    parts[2].write_bytes(content[:-100])
    with pytest.raises(ModelError, match=r"tiny-00003-of-00003.gguf is incomplete"):
        read_header(parts[0])


def test_parts_in_the_wrong_order_are_refused(parts: list[Path]) -> None:
    content = parts[1].read_bytes()
    parts[1].write_bytes(parts[2].read_bytes())
    parts[2].write_bytes(content)
    with pytest.raises(ModelError, match=r"says that it is file 2 \(from 0\) of 3, its name that it is 1 of 3"):
        read_header(parts[0])


def test_a_part_under_another_name_is_refused(parts: list[Path]) -> None:
    renamed = parts[0].rename(parts[0].with_name("renamed.gguf"))
    with pytest.raises(ModelError, match=r"says that it is file 0 \(from 0\) of 3, its name that it is 0 of 1"):
        read_header(renamed)


@pytest.mark.parametrize("name", ["a-00000-of-00002.gguf", "a-00003-of-00002.gguf", "a-00001-of-99999.gguf"])
def test_odd_numbers_in_a_name_are_no_parts(tmp_path: Path, name: str) -> None:
    assert split_files(tmp_path / name) == [tmp_path / name]
