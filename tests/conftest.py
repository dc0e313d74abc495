import ctypes
from pathlib import Path

import llama_cpp
import pytest
import tiny

from lcspec.hub import find_model
from lcspec.llama import Model

_Q2_K = 10  # LLAMA_FTYPE_MOSTLY_Q2_K


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


@pytest.fixture(scope="session")
def tiny_llama(tiny_folder: Path) -> Path:
    return tiny.write_model(tiny_folder / "llama.gguf")


@pytest.fixture(scope="session")
def tiny_draft(tiny_folder: Path) -> Path:
    """Another random model with the same vocabulary and more padding."""
    return tiny.write_model(tiny_folder / "draft.gguf", seed=1, n_vocab=tiny.N_VOCAB + 8)


@pytest.fixture(scope="session")
def tiny_sliding(tiny_folder: Path) -> Path:
    """A model with sliding-window attention."""
    return tiny.write_model(tiny_folder / "gemma2.gguf", "gemma2")


@pytest.fixture(scope="session")
def tiny_recurrent(tiny_folder: Path) -> Path:
    return tiny.write_model(tiny_folder / "mamba.gguf", "mamba")


@pytest.fixture(scope="session")
def smollm2() -> Path:
    return find_model("smollm2-135m", download=True)


@pytest.fixture(scope="session")
def smollm2_q2_k(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 requantized: a draft that is often, but not always, right."""
    path = tmp_path_factory.mktemp("requantized") / "smollm2-135m-q2_k.gguf"
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = _Q2_K
    params.allow_requantize = True
    assert llama_cpp.llama_model_quantize(str(smollm2).encode(), str(path).encode(), ctypes.byref(params)) == 0
    assert Model(path).size < Model(smollm2).size
    return path
