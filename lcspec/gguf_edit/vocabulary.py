"""A draft whose output matrix is cut to the tokens that come up most (Zhao et al. 2025, "FR-Spec").

What the file then is, and why, says `lcspec.llama.cut_vocabulary`.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from lcspec.errors import ModelError
from lcspec.gguf_edit import values
from lcspec.gguf_edit.file import Gguf, Tensor
from lcspec.llama import CUT, CUTTABLE, Header, Model

_INPUT = "token_embd.weight"
_OUTPUTS = (_INPUT, "output.weight", "output.bias")
_TOKENIZER = b"tokenizer.ggml."
_TEXTS, _MERGES = _TOKENIZER + b"tokens", _TOKENIZER + b"merges"
_ID = b"_token_id"


def frequent_tokens(header: Header, n: int, texts: Iterable[str] = ()) -> list[int]:
    """Return the ids of `n` tokens: all special ones and bytes, then those that come up most in texts, then the first.

    A tokenizer's first tokens are the most frequent ones of the texts that it was made from.

    Raises:
        ModelError: the model can't be read, or `n` is too small or too large.
    """
    with Model(header, vocabulary_only=True) as model:
        counts = Counter(token for text in texts for token in model.tokenize(text, add_special=False))
        n_tokens = model.n_vocab
        always = {token for token in range(n_tokens) if _is_always_kept(model, token)} | _named(header)
        unused = {token for token in range(n_tokens) if model.is_padding(token)}
    if not len(always) <= n <= n_tokens:
        raise ModelError(
            f"{header.files[0].name} has {n_tokens:,} tokens, of which {len(always):,} are always kept; "
            f"it can't be cut to {n:,}"
        )
    ranked = sorted(range(n_tokens), key=lambda token: (token not in always, token in unused, -counts[token], token))
    return sorted(ranked[:n])


def _is_always_kept(model: Model, token: int) -> bool:
    """Tell whether a token is a special one, or a single byte, of which all texts can be made."""
    return model.is_special(token) or model.is_eog(token) or len(model.piece(token)) == 1


def _named(header: Header) -> set[int]:
    """Return the tokens that the metadata name: the one that begins a text, and the like."""
    stated = [header.metadata[key] for key in header.metadata if key.startswith("tokenizer.") and key.endswith("_id")]
    return {token for token in stated if isinstance(token, int) and 0 <= token < header.n_vocab}


def cut_vocabulary(gguf: Gguf, tokens: Sequence[int]) -> Gguf:
    """Return a model whose output has only these tokens; what it is given can still be any.

    Args:
        gguf: a whole model.
        tokens: ids, ascending; its special tokens are among them.

    Raises:
        ModelError: this model can't be cut so.
    """
    if gguf.architecture not in CUTTABLE:
        raise ModelError(
            f"{gguf.path} is a {gguf.architecture} model; a vocabulary can be cut of {', '.join(CUTTABLE)}"
        )
    if f"{CUT}rows".encode() in gguf.metadata:
        raise ModelError(f"{gguf.path} is cut already")
    whole = gguf.tensors.get(_INPUT)
    texts = gguf.value(_TEXTS.decode())
    if whole is None or not isinstance(texts, list) or whole.shape[-1] != len(texts):
        raise ModelError(f"{gguf.path} can't be cut: its input matrix has not a row for each token")
    tensors = dict(gguf.tensors)
    for name in set(_OUTPUTS) & tensors.keys():
        tensors[name] = _rows(tensors[name], tokens)
    cut = {
        "tokens": values.int32s(tokens),
        "type": values.uint32(whole.kind),
        "rows": values.uint32(whole.shape[-1]),
        "sha256": values.text(hashlib.sha256(whole.data).hexdigest()),
    }
    kept = replace(gguf, metadata=_metadata(gguf, tokens, len(texts)), tensors=tensors, tail=whole.data)
    return kept.with_metadata({CUT + name: value for name, value in cut.items()})


def _rows(tensor: Tensor, tokens: Sequence[int]) -> Tensor:
    size = tensor.data.nbytes // tensor.shape[-1]
    data = b"".join(tensor.data[token * size : (token + 1) * size] for token in tokens)
    return replace(tensor, shape=(*tensor.shape[:-1], len(tokens)), data=memoryview(data))


def _metadata(gguf: Gguf, tokens: Sequence[int], n_tokens: int) -> dict[bytes, bytes | memoryview]:
    """Return the metadata with what is said of each token only for some, and new ids where a token is named."""
    ids = {token: i for i, token in enumerate(tokens)}
    metadata = dict(gguf.metadata)
    for key, value in gguf.metadata.items():
        decoded = values.decode(value)
        if key == f"{gguf.architecture}.vocab_size".encode():
            metadata[key] = values.uint32(len(tokens))
        if not key.startswith(_TOKENIZER) or key == _MERGES:
            continue
        if isinstance(decoded, list) and len(decoded) == n_tokens:
            texts = _strings(value)
            metadata[key] = values.strings([texts[i] for i in tokens]) if texts else values.pick(value, tokens)
        elif key.endswith(_ID) and isinstance(decoded, int):
            if decoded not in ids:
                raise ModelError(f"{gguf.path} can't be cut without the token {decoded}, its {key.decode()}")
            metadata[key] = values.uint32(ids[decoded])
    if _MERGES in metadata:
        kept = set(_strings(metadata[_TEXTS]))
        merges = [merge for merge in _strings(metadata[_MERGES]) if kept.issuperset(_tokens_of(merge))]
        metadata[_MERGES] = values.strings(merges)
    return metadata


def _strings(value: bytes | memoryview) -> list[bytes]:
    """Return a list of strings; nothing for anything else."""
    decoded = values.decode(value)
    return [one for one in decoded if isinstance(one, bytes)] if isinstance(decoded, list) else []


def _tokens_of(merge: bytes) -> list[bytes]:
    """Return the two tokens that a merge takes, and the one that it gives."""
    left, _, right = merge[1:].partition(b" ")
    return [merge[:1] + left, right, merge[:1] + left + right]
