import ctypes
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import llama_cpp
import pytest
import tiny
from huggingface_hub import constants
from stand_in import StandIn

from lcspec.hub import find_model
from lcspec.llama import Model

_Q2_K, _Q4_K_M = 10, 15  # LLAMA_FTYPE_MOSTLY_...


@pytest.fixture(scope="session", autouse=True)
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A place for measurements that knows nothing of the machine's past; models stay in the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lcspec.measurements.user_cache_path", lambda _: folder)
        patch.setattr("lcspec.idle._PAUSE", 3600.0)  # an idle engine must not slow down another test
        yield folder / "measured"


@pytest.fixture(scope="session", autouse=True)
def unconfigured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of what the user of this machine has configured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        for name in list(os.environ):
            if name.startswith("LCSPEC_"):
                patch.delenv(name)
        yield


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
    path = requantized(smollm2, tmp_path_factory.mktemp("requantized") / "smollm2-135m-q2_k.gguf", _Q2_K)
    assert Model(path).size < Model(smollm2).size
    return path


@pytest.fixture(scope="session")
def smollm2_q4_k_m(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 in a type whose passes are exact to a few tokens only."""
    return requantized(smollm2, tmp_path_factory.mktemp("requantized") / "smollm2-135m-q4_k_m.gguf", _Q4_K_M)


def requantized(source: Path, target: Path, kind: int) -> Path:
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = kind
    params.allow_requantize = True
    assert llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(params)) == 0
    return target


# where models come from


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, an empty user cache, and nothing of the machine's settings."""
    cache = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return cache


@pytest.fixture
def own_cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "lcspec"


def use_endpoint(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    template = "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + template)


@pytest.fixture
def hub(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with StandIn() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        use_endpoint(monkeypatch, server.url)
        yield server
        server.stopping.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def no_hub(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An endpoint that refuses connections: a port that is taken, and where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        use_endpoint(monkeypatch, endpoint)
        yield endpoint


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one folder where pip looks for wheels."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def shelf(wheels: Path, no_hub: str) -> Path:
    """Wheels, where there is no hub."""
    return wheels
