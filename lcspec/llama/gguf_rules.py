"""What llama.cpp takes for granted in the metadata of a model, and ends the process over where it is not so.

Values of a wrong type are not looked at, but where lcspec computes with them: llama.cpp refuses those itself.
(Its src/llama-model.cpp, load_hparams; src/llama-vocab.cpp; ggml's rope and norms.)
"""

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import TypeAlias

Value: TypeAlias = int | float | bool | str | list[int | float | bool]

_MOST_EXPERTS = 1024  # LLAMA_MAX_EXPERTS
_MOST_LAYERS = 512  # LLAMA_MAX_LAYERS
_LARGEST_WINDOW = (1 << 24) - 1  # tokens of a sliding window, for each of 256 sequences within 32 bits
_ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")
_NORM_EPSILONS = ("layer_norm_epsilon", "layer_norm_rms_epsilon", "group_norm_epsilon")
_COUNTS = ("embedding_length", "attention.head_count", "attention.key_length", "attention.value_length")
_COUNTS_BY_LAYER = ("attention.head_count", "attention.head_count_kv")
_HEAD_SIZES = tuple(f"attention.key_length{kind}" for kind in ("", "_swa", "_mla", "_mla_swa"))
_ROTATED_WHOLE = ("qwen2", "qwen2moe", "qwen3", "qwen3moe")  # heads of which no part may be left unrotated
_DIVIDED_BY_HEADS = ("gemma2", "gemma3")

_TOKENIZERS = ("gpt2", "llama", "gemma4", "rwkv", "plamo2")
_DEFAULT_BOS = {"gpt2": 11, "llama": 1, "plamo2": 1}
_DEFAULT_EOS = {"gpt2": 11, "llama": 2, "plamo2": 2}
_WITHOUT_DEFAULT_BOS = ("chatglm-bpe", "glm4", "glm5")
_NO_PRE_TOKENIZER = "whitespace"  # leaves blanks in words, which merges do not allow


def first_problem(metadata: Mapping[str, Value], tokens: Set[bytes], n_tokens: int) -> str | None:
    """Return what is wrong with the metadata of a model, in words that go on from the file's name.

    Args:
        metadata: numbers, texts and short lists.
        tokens: the texts of the vocabulary.
        n_tokens: how many they are.
    """
    values = _Values(metadata)
    rules = [_counts(values), _layers(values), _experts(values), _rope(values), _norms(values)]
    if n_tokens:
        rules += [_tokenizer(metadata, tokens, n_tokens), _token_texts(tokens, n_tokens)]
    return next(chain(*rules), None)


class _Values:
    """The values under the architecture's name."""

    def __init__(self, metadata: Mapping[str, Value]) -> None:
        self._metadata = metadata
        self.architecture = str(metadata.get("general.architecture", "unknown"))

    def any(self, key: str) -> Value | None:
        return self._metadata.get(f"{self.architecture}.{key}")

    def number(self, key: str, default: int = 0) -> int:
        """Return a whole number, of a list the largest."""
        value = self.any(key)
        if isinstance(value, list):
            value = max((one for one in value if isinstance(one, int)), default=default)
        return value if isinstance(value, int) else default


def _counts(values: _Values) -> Iterator[str]:
    """Memory is estimated from these."""
    for key in ("block_count", *_COUNTS, *_COUNTS_BY_LAYER):
        value = values.any(key)
        listed = value if isinstance(value, list) and key in _COUNTS_BY_LAYER else [value]
        if value is not None and not all(type(one) is int and one >= 0 for one in listed):
            yield f"is damaged: {values.architecture}.{key} is {_shown(value)}"


def _layers(values: _Values) -> Iterator[str]:
    n_layers = values.number("block_count", 1)
    if not 1 <= n_layers <= _MOST_LAYERS:
        yield f"is damaged: a model of {n_layers:,} layers"
    if n_layers <= (n_predicting := values.number("nextn_predict_layers")):
        yield f"is damaged: {n_predicting:,} of its {n_layers:,} layers predict further tokens"
    if (window := values.number("attention.sliding_window")) > _LARGEST_WINDOW:
        yield f"is damaged: a sliding window of {window:,} tokens"
    pattern = values.any("attention.sliding_window_pattern")
    is_empty = pattern == 1 or (isinstance(pattern, list) and not any(pattern[:n_layers]))
    if is_empty and (window or values.architecture.startswith("gemma")):
        yield "is damaged: it has a sliding window, and no layer with one"
    heads = values.any("attention.head_count")
    if values.architecture in _DIVIDED_BY_HEADS and (heads == 0 or (isinstance(heads, list) and heads[:1] == [0])):
        yield "is damaged: a layer of no attention heads"


def _experts(values: _Values) -> Iterator[str]:
    count, used = values.number("expert_count"), values.number("expert_used_count")
    groups, used_groups = values.number("expert_group_count"), values.number("expert_group_used_count")
    if values.architecture.startswith("hunyuan") and count <= 1:
        count = used = 0
    if count > _MOST_EXPERTS:
        yield f"can't be used: it has {count:,} experts, and llama.cpp takes {_MOST_EXPERTS:,}"
    if used > count or (count and not used):
        yield f"is damaged: it uses {used:,} of {count:,} experts"
    if groups and (groups >= count or (groups > 1 and (count % groups or not 0 < used_groups < groups))):
        yield f"is damaged: it uses {used_groups:,} of {groups:,} groups of {count:,} experts"


def _rope(values: _Values) -> Iterator[str]:
    scaling = values.any("rope.scaling.type")
    if isinstance(scaling, str) and scaling not in _ROPE_SCALINGS:
        yield f"can't be used: its positions are scaled by {scaling[:40]!r}, which is none of {_ROPE_SCALINGS}"
    n_heads = values.number("attention.head_count")
    head = values.number("attention.key_length", values.number("embedding_length") // n_heads if n_heads else 0)
    for key, size in (
        ("rope.dimension_count", head),
        ("rope.dimension_count_swa", values.number("attention.key_length_swa", head)),
    ):
        rotated = values.number(key, size)
        whole = values.architecture in _ROTATED_WHOLE
        if n_heads and (rotated > size or rotated % 2 or (whole and rotated != size)):
            yield f"is damaged: {rotated:,} of the {size:,} dimensions of a head are rotated"


def heads_problem(metadata: Mapping[str, Value], shapes: Mapping[str, Sequence[int]]) -> str | None:
    """Return where heads that are counted by layer are not those of the tensors: llama.cpp compares the first layer.

    Args:
        metadata: numbers, texts and short lists.
        shapes: of all tensors, by name; rows last.
    """
    values = _Values(metadata)
    counts = [values.any(key) for key in _COUNTS_BY_LAYER]
    if all(not isinstance(count, list) or len(set(count)) == 1 for count in counts) or values.any("kda.head_dim"):
        return None
    by_layer = [count if isinstance(count, list) else [count] * values.number("block_count") for count in counts]
    sizes = {size for key in _HEAD_SIZES if (size := values.number(key))}
    n_heads = values.number("attention.head_count")
    sizes |= {values.number("embedding_length") // n_heads} if n_heads else set()
    for layer, (queries, keys) in enumerate(zip(*by_layer, strict=False)):
        for name, n in (("attn_q", queries), ("attn_k", keys), ("attn_qkv", queries + 2 * keys)):
            shape = shapes.get(f"blk.{layer}.{name}.weight")
            if shape is not None and shape[-1] not in {n * size for size in sizes}:
                return f"is damaged: {n:,} heads do not make up the {shape[-1]:,} rows of blk.{layer}.{name}.weight"
    return None


def _norms(values: _Values) -> Iterator[str]:
    for key in _NORM_EPSILONS:
        epsilon = values.any(f"attention.{key}")
        if isinstance(epsilon, float) and not (math.isfinite(epsilon) and epsilon >= 0):
            yield f"is damaged: {values.architecture}.attention.{key} is {epsilon}"


def _tokenizer(metadata: Mapping[str, Value], tokens: Set[bytes], n_tokens: int) -> Iterator[str]:
    tokenizer = metadata.get("tokenizer.ggml.model")
    if not isinstance(tokenizer, str):
        return
    pre_tokenizer = metadata.get("tokenizer.ggml.pre")
    if tokenizer not in _TOKENIZERS or pre_tokenizer == _NO_PRE_TOKENIZER:
        name = tokenizer if tokenizer not in _TOKENIZERS else _NO_PRE_TOKENIZER
        yield f"can't be used: its tokenizer is {name[:40]!r}, and lcspec knows {', '.join(_TOKENIZERS)}"
    if tokenizer in ("llama", "plamo2") and (absent := _absent_byte(tokens, tokenizer)) is not None:
        yield f"is damaged: its vocabulary lacks <0x{absent:02X}>, the token of a byte"

    def special(name: str, default: int | None) -> int | None:
        stated = metadata.get(f"tokenizer.ggml.{name}_token_id")
        ids = [one for one in (stated, default) if isinstance(one, int) and 0 <= one < n_tokens]
        return ids[0] if ids else None

    default_bos = None if pre_tokenizer in _WITHOUT_DEFAULT_BOS else _DEFAULT_BOS.get(tokenizer)
    adds_bos = metadata.get("tokenizer.ggml.add_bos_token", default_bos is not None) or tokenizer == "gemma4"
    if adds_bos and special("bos", default_bos) is None:
        yield "is damaged: a text begins with a token that its vocabulary lacks"
    if metadata.get("tokenizer.ggml.add_eos_token") and special("eos", _DEFAULT_EOS.get(tokenizer)) is None:
        yield "is damaged: a text ends with a token that its vocabulary lacks"


def _absent_byte(tokens: Set[bytes], tokenizer: str) -> int | None:
    for byte in range(256):
        alone = bytes([byte]) in tokens and tokenizer == "llama"
        if b"<0x%02X>" % byte not in tokens and not alone:
            return byte
    return None


def _token_texts(tokens: Set[bytes], n_tokens: int) -> Iterator[str]:
    """No two tokens may be the same; they end at a NUL."""
    if len(tokens) < n_tokens:
        yield f"is damaged: {n_tokens - len(tokens):,} of its {n_tokens:,} tokens are there twice"
    if b"\0" in b"".join(tokens):
        yield "is damaged: a token has a NUL in it"


def _shown(value: Value) -> str:
    return ascii(value if not isinstance(value, list) else value[:8])[:80]
