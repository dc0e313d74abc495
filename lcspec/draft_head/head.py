"""A draft head's weights, and the file that they are kept in."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lcspec.errors import ModelError
from lcspec.gguf_edit import Provenance, target_digest
from lcspec.llama import Header

_FORMAT = "lcspec.head.format"
_VERSION = 2
_LARGEST = 1 << 31  # bytes of a file

ENDING = ".safetensors"

Weights = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Head:
    """The weights of a draft head.

    With d the length of the target's hidden states, m of the head's hidden layer, a of what is remembered of each
    position, H the number of those memories' parts, v the tokens that can be proposed, and r the rank of the preview:

    Attributes:
        ids: shape (v,), int32, the tokens.
        input: shape (2 m + a + d, 2 d), of the state and the embedding of the token behind it: value, gate, query, and
            what goes straight to the next state.
        input_bias: shape (2 m,).
        keys: shape (a, 2 d), of the state and the embedding that were before.
        values: shape (a, d), of the state that followed.
        fading: shape (H,), what a remembered position loses for each token that it lies back.
        nothing: shape (H,), the score of remembering nothing.
        recall: shape (m, a), of what is remembered.
        output: shape (d, m), the next state.
        output_bias: shape (d,).
        preview: shape (v, r), of the projected state: about the logits, to choose candidates by.
        projection: shape (r, d).
        copying: shape (3,), the weight of these logits, and what a token gains for the logarithm of how often it
            followed the last token, and the last two.
    """

    ids: NDArray[np.int32]
    input: Weights
    input_bias: Weights
    keys: Weights
    values: Weights
    fading: Weights
    nothing: Weights
    recall: Weights
    output: Weights
    output_bias: Weights
    preview: Weights
    projection: Weights
    copying: Weights

    @property
    def n_embd(self) -> int:
        """Length of the target's hidden states."""
        return int(self.output.shape[0])

    @property
    def memory(self) -> int:
        """Bytes that it takes at work: its weights, and the target's output rows of its tokens."""
        weights = sum(getattr(self, field.name).nbytes for field in fields(self))
        return int(weights) + self.ids.size * self.n_embd * np.dtype(np.float32).itemsize


def write_head(path: Path, head: Head, provenance: Provenance) -> Path:
    """Write a head to a safetensors file; weights as float16, which loses nothing that shows.

    Raises:
        OSError: it can't be written.
    """
    from safetensors.numpy import save_file

    tensors = {field.name: np.ascontiguousarray(_kept(getattr(head, field.name))) for field in fields(Head)}
    save_file(tensors, path, metadata={_FORMAT: str(_VERSION), **provenance.as_texts()})
    return path


def read_head(path: Path, n_embd: int, n_vocab: int) -> tuple[Head, Provenance]:
    """Return a head and what it was made of.

    Args:
        path: a safetensors file.
        n_embd: length of the target's hidden states.
        n_vocab: number of the target's tokens.

    Raises:
        ModelError: the file is missing, damaged, no draft head, of another version, or of a model of other dimensions.
    """
    from safetensors import SafetensorError, safe_open

    try:
        if path.stat().st_size > _LARGEST:
            raise ModelError(f"{path} is too large for a draft head")
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            provenance = _provenance(path, metadata)
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no mapping
    except OSError as error:
        raise ModelError(f"{path} can't be read: {error.strerror or error}") from error
    except (SafetensorError, ValueError, TypeError) as error:
        raise ModelError(f"{path} is damaged or no draft head: {error}") from error
    head = _checked(path, found)
    if head.n_embd != n_embd or head.ids.min() < 0 or head.ids.max() >= n_vocab:
        raise ModelError(f"{path} is a draft head of another model: train one with `lcspec draft train`")
    return head, provenance


def head_for(target: Header, path: Path) -> tuple[Head, Provenance] | None:
    """Return the head of a safetensors file, and what it was made of; None where the file is something else.

    Raises:
        ModelError: the file is damaged, or was trained for another model than `target`.
    """
    if path.suffix != ENDING:
        return None
    n_embd = target.of_architecture("embedding_length")
    head, provenance = read_head(path, n_embd if isinstance(n_embd, int) else 0, target.n_vocab)
    if provenance.target != target_digest(target):
        raise ModelError(
            f"{path} is a draft head of another model ({provenance.target_name}): "
            "train one for this with `lcspec draft train`"
        )
    return head, provenance


def _kept(values: NDArray[Any]) -> NDArray[Any]:
    return values if values.dtype == np.int32 or values.ndim < 2 else values.astype(np.float16)


def _provenance(path: Path, metadata: Mapping[str, str]) -> Provenance:
    version = metadata.get(_FORMAT)
    if version is None:
        raise ModelError(f"{path} is no draft head")
    if version != str(_VERSION):
        raise ModelError(f"{path} is a draft head of version {json.dumps(version)}, which this lcspec does not know")
    provenance = Provenance.of_texts(metadata)
    if provenance is None:
        raise ModelError(f"{path} is damaged: it does not say what it was made of")
    return provenance


def _checked(path: Path, found: Mapping[str, NDArray[Any]]) -> Head:
    """Return the head if all tensors are there, fit together, and are numbers."""
    names = [field.name for field in fields(Head)]
    if missing := [name for name in names if name not in found]:
        raise ModelError(f"{path} is damaged: it has no {missing[0]}")
    ids = found["ids"]
    weights = {name: np.asarray(found[name], dtype=np.float32) for name in names if name != "ids"}
    d, m = weights["output"].shape if weights["output"].ndim == 2 else (0, 0)
    a, r = (weights[name].shape[0] if weights[name].ndim == 2 else 0 for name in ("keys", "projection"))
    heads = weights["fading"].size
    shapes = {
        "input": (2 * m + a + d, 2 * d),
        "input_bias": (2 * m,),
        "keys": (a, 2 * d),
        "values": (a, d),
        "fading": (heads,),
        "nothing": (heads,),
        "recall": (m, a),
        "output": (d, m),
        "output_bias": (d,),
        "preview": (ids.size, r),
        "projection": (r, d),
        "copying": (3,),
    }
    wrong = [name for name, shape in shapes.items() if weights[name].shape != shape]
    if wrong or ids.ndim != 1 or ids.dtype != np.int32 or min(ids.size, d, m, r, heads) < 1 or a % heads:
        raise ModelError(f"{path} is damaged: the shape of {(wrong or ['ids'])[0]} does not fit")
    if broken := [name for name, values in weights.items() if not np.isfinite(values).all()]:
        raise ModelError(f"{path} is damaged: {broken[0]} has values that are no numbers")
    return Head(ids=ids, **weights)
