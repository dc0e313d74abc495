"""GGUF files that say other things than they should: every value well-formed, hardly any of them sensible."""

import random
import struct
from dataclasses import dataclass
from typing import TypeAlias

ALIGNMENT = 32

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = 4, 5, 6, 7, 8, 9, 10
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
FLOATS = (6, 12)

INTEGERS = [-(1 << 31), -1, 0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33, 64, 255, 256, 300, 512, 100_000, (1 << 31) - 1]
INTEGERS += [1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1]
REALS = [0.0, -0.0, -1.0, 1.0, 0.5, 1e-5, -1e-5, 1e30, -1e30, float("nan"), float("inf"), float("-inf")]
TEXTS = [b"", b"xx", b"a\0b", b"\xff\xfe", b"x" * 5_000, "▁ü".encode(), b"none", b"no_vocab", b"linear", b"yarn"]
TEXTS += [b"longrope", b"gpt2", b"llama", b"bert", b"t5", b"rwkv", b"test", b"plamo2", b"gemma4", b"hybriddna"]
TEXTS += [b"whitespace", b"default", b"llama-bpe", b"chatglm-bpe", b"qwen2", b"tekken", b"gemma2", b"mamba", b"qwen3"]

SPECIAL = ["bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "mask", "fim_pre", "suffix"]
ADDED = [f"tokenizer.ggml.{name}_token_id" for name in SPECIAL]
ADDED += [f"tokenizer.ggml.{name}" for name in ("add_bos_token", "add_eos_token", "add_sep_token", "add_space_prefix")]
ADDED += [f"tokenizer.ggml.{name}" for name in ("remove_extra_whitespaces", "scores", "suppress_tokens", "pre")]
ADDED += ["tokenizer.ggml.precompiled_charsmap", "tokenizer.ggml.token_type_count", "general.name", "split.count"]
KEYS_OF_ARCHITECTURE = """
vocab_size context_length embedding_length embedding_length_out block_count feed_forward_length expert_count
expert_used_count expert_shared_count expert_group_count expert_group_used_count expert_weights_scale
expert_gating_func nextn_predict_layers pooling_type logit_scale attn_logit_softcapping final_logit_softcapping
residual_scale embedding_scale attention.head_count attention.head_count_kv attention.max_alibi_bias
attention.clamp_kqv attention.key_length attention.value_length attention.layer_norm_epsilon
attention.layer_norm_rms_epsilon attention.causal attention.sliding_window attention.sliding_window_pattern
attention.scale attention.key_length_swa attention.value_length_swa attention.temperature_scale
rope.dimension_count rope.dimension_count_swa rope.dimension_sections rope.freq_base rope.freq_base_swa
rope.scale_linear rope.scaling.type rope.scaling.factor rope.scaling.attn_factor
rope.scaling.original_context_length rope.scaling.yarn_log_multiplier rope.scaling.yarn_ext_factor
rope.scaling.yarn_beta_fast rope.scaling.yarn_beta_slow ssm.conv_kernel ssm.inner_size ssm.state_size
ssm.time_step_rank ssm.group_count ssm.dt_b_c_rms classifier.output_labels classifier.pooling_type
"""
OF_ARCHITECTURE = KEYS_OF_ARCHITECTURE.split()

Element: TypeAlias = int | float | bool | bytes


@dataclass
class Field:
    """A metadata key with its value, or with a list of `kind`."""

    key: str
    kind: int
    value: Element | list[Element]

    def encoded(self) -> bytes:
        name = struct.pack("<Q", len(self.key.encode())) + self.key.encode()
        if not isinstance(self.value, list):
            return name + struct.pack("<I", self.kind) + encode(self.kind, self.value)
        elements = b"".join(encode(self.kind, element) for element in self.value)
        return name + struct.pack("<IIQ", ARRAY, self.kind, len(self.value)) + elements


class File:
    """A GGUF file taken apart into its metadata and the rest."""

    def __init__(self, content: bytes) -> None:
        self._content, self._position = content, 8
        self._n_tensors, n_fields = self._take("Q"), self._take("Q")
        self.fields = [self._field() for _ in range(n_fields)]
        start = self._position
        for _ in range(self._n_tensors):
            self._text()
            n_dimensions = self._take("I")
            self._position += 8 * n_dimensions + 4 + 8
        self._tensors = content[start : self._position]
        self._data = content[-(-self._position // ALIGNMENT) * ALIGNMENT :]

    def encoded(self) -> bytes:
        head = b"GGUF" + struct.pack("<IQQ", 3, self._n_tensors, len(self.fields))
        head += b"".join(field.encoded() for field in self.fields) + self._tensors
        return head + bytes(-len(head) % ALIGNMENT) + self._data

    def _take(self, form: str) -> int:
        (value,) = struct.unpack_from(f"<{form}", self._content, self._position)
        self._position += struct.calcsize(f"<{form}")
        return value  # type: ignore[no-any-return]

    def _text(self) -> bytes:
        n = self._take("Q")
        self._position += n
        return self._content[self._position - n : self._position]

    def _element(self, kind: int) -> Element:
        return self._text() if kind == STRING else self._take(SCALARS[kind])

    def _field(self) -> Field:
        key, kind = self._text().decode(), self._take("I")
        if kind != ARRAY:
            return Field(key, kind, self._element(kind))
        kind = self._take("I")
        return Field(key, kind, [self._element(kind) for _ in range(self._take("Q"))])


def encode(kind: int, element: Element) -> bytes:
    if kind == STRING:
        assert isinstance(element, bytes)
        return struct.pack("<Q", len(element)) + element
    form = SCALARS[kind]
    if kind in FLOATS:
        try:
            return struct.pack(f"<{form}", element)
        except OverflowError:
            return struct.pack(f"<{form}", float("inf"))
    size = struct.calcsize(form)
    return (int(element) % (1 << 8 * size)).to_bytes(size, "little") if kind != BOOL else bytes([bool(element)])


def mutant(content: bytes, seed: int) -> bytes:
    """Return the file with one value changed, added or removed, at times two."""
    r = random.Random(seed)
    file = File(content)
    for _ in range(r.choice([1, 1, 1, 2])):
        choice = r.random()
        if choice < 0.3:
            _add(file, r)
        elif choice < 0.33:
            file.fields.pop(r.randrange(1, len(file.fields)))
        else:
            _change(r.choice(file.fields), r)
    return file.encoded()


def _add(file: File, r: random.Random) -> None:
    architecture = next((field.value for field in file.fields if field.key == "general.architecture"), None)
    prefix = architecture.decode("latin-1") if isinstance(architecture, bytes) else "llama"
    key = r.choice(ADDED) if r.random() < 0.3 else f"{prefix}.{r.choice(OF_ARCHITECTURE)}"
    old = [field for field in file.fields if field.key == key]
    field = old[0] if old else Field(key, UINT32, 0)
    if not old:
        file.fields.append(field)
    kind = r.choice([UINT32, UINT32, FLOAT32, FLOAT32, BOOL, STRING, INT32])
    field.kind, field.value = kind, _some(kind, r)
    if r.random() < 0.15:
        field.value = [_some(kind, r) for _ in range(r.choice([0, 1, 2, 2, 2, 4, 264]))]


def _change(field: Field, r: random.Random) -> None:
    if isinstance(field.value, list):
        _change_list(field, field.value, r)
    elif r.random() < 0.75:
        field.value = _some(field.kind, r)
    elif r.random() < 0.5:
        field.kind = r.choice([*SCALARS, STRING])
        field.value = _some(field.kind, r)
    else:
        field.value = [field.value if r.random() < 0.5 else _some(field.kind, r) for _ in range(r.choice([0, 1, 2, 2]))]


def _change_list(field: Field, values: list[Element], r: random.Random) -> None:
    if not values:
        return
    match r.randrange(8):
        case 0:
            r.shuffle(values)
        case 1:
            del values[r.randrange(len(values)) :]
        case 2:
            values[r.randrange(len(values))] = r.choice(values)
        case 3 | 4:
            for _ in range(r.choice([1, 1, 3, 100])):
                values[r.randrange(len(values))] = _some(field.kind, r)
        case 5:
            values[:] = [_some(field.kind, r)] * len(values)
        case 6:
            values += [_some(field.kind, r) for _ in range(r.choice([1, 8]))]
        case 7:
            field.kind = r.choice([UINT32, INT32, FLOAT32, UINT64, BOOL, STRING])
            values[:] = [_some(field.kind, r) for _ in values]


def _some(kind: int, r: random.Random) -> Element:
    if kind == STRING:
        return r.choice(TEXTS) if r.random() < 0.8 else bytes(r.choices(b"abcdefgh", k=r.randrange(1, 9)))
    if kind in FLOATS:
        return r.choice(REALS)
    return r.choice(INTEGERS)
