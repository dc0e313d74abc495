"""`bench.soak` for some seconds on a tiny model; for minutes on a real one it is run by hand."""

import asyncio
from pathlib import Path

import psutil
from serving import process

from bench.soak import Outcome, soak


def test_many_clients_get_the_texts_that_they_would_get_alone(tiny_llama: Path, tmp_path: Path) -> None:
    with process(tmp_path, "-m", tiny_llama, "-c", "4096", "--exact", "--parallel", "6", "--queue", "20") as server:
        outcome = asyncio.run(
            soak(server.url, psutil.Process(server.popen.pid), seconds=10, clients=50, length=40, seed=1)
        )
    assert outcome.wrong == []
    assert outcome.failed == []
    assert not any(outcome.remains.values())
    assert outcome.texts > 20
    assert outcome.left > 5
    assert outcome.is_good


def test_what_is_no_good_is_seen() -> None:
    assert Outcome(texts=1).is_good
    assert not Outcome().is_good
    assert not Outcome(texts=1, wrong=["a"]).is_good
    assert not Outcome(texts=1, failed=["a"]).is_good
    assert not Outcome(texts=1, remains={"active": 1.0}).is_good
    assert not Outcome(texts=1, memory=[100.0] * 6 + [200.0] * 3).is_good
    assert Outcome(texts=1, memory=[50.0, 100.0, 200.0] + [200.0] * 6).is_good
