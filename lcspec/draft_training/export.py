"""From what was trained to the draft head that runs."""

import numpy as np
from numpy.typing import NDArray

from lcspec.draft_head import Head
from lcspec.draft_training.copying import ALONE
from lcspec.draft_training.dataset import Dataset
from lcspec.draft_training.network import HeadNetwork

_RANK = 64


def as_head(network: HeadNetwork, data: Dataset) -> Head:
    """Return a trained head, for states and embeddings as the target has them."""
    d = network.dimensions.n_embd
    weights = {name: value.detach().float().numpy() for name, value in network.state_dict().items()}
    scale = weights["state_scale"]
    pair = np.concatenate([1 / scale, np.full(d, 1 / weights["embedding_scale"], dtype=np.float32)])
    preview, projection = preview_of(data.output.numpy(), data.moments)
    return Head(
        ids=data.ids,
        input=np.vstack((weights["input.weight"], weights["straight.weight"] * scale[:, None])) * pair,
        input_bias=weights["input_bias"],
        keys=weights["keys.weight"] * pair,
        values=weights["values.weight"] / scale,
        fading=weights["fading"],
        nothing=weights["nothing"],
        recall=weights["recall.weight"],
        output=weights["output.weight"] * scale[:, None],
        output_bias=weights["output.bias"] * scale,
        preview=preview,
        projection=projection,
        copying=np.array(ALONE, dtype=np.float32),
    )


def preview_of(
    rows: NDArray[np.float32], moments: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return matrices of low rank whose product with a state is about its logits, up to a constant.

    The error is the least for states with these moments. (Shim et al. 2017, "SVD-Softmax".)

    Args:
        rows: shape (n, n_embd), of the output matrix.
        moments: shape (n_embd, n_embd), the mean products of the states' elements.
    """
    centered = (rows - rows.mean(axis=0)).astype(np.float64)
    values, vectors = np.linalg.eigh(moments.astype(np.float64))
    spread = np.sqrt(np.maximum(values, 1e-6 * values.max()))
    root, inverse = vectors * spread @ vectors.T, vectors / spread @ vectors.T
    _, directions = np.linalg.eigh(root @ (centered.T @ centered) @ root)
    main = directions[:, ::-1][:, :_RANK]
    return (centered @ root @ main).astype(np.float32), (main.T @ inverse).astype(np.float32)
