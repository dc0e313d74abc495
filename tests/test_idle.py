"""Work while nobody asks for anything: it is done once, and always makes way."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lcspec import SpeculativeLM
from lcspec.idle import IdleWork

PATIENCE = 60.0
PROMPT = "once upon a time, once upon a time"


@pytest.fixture(autouse=True)
def quick_and_fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("lcspec.idle._PAUSE", 0.01)
    monkeypatch.setattr("lcspec.measurements.user_cache_path", lambda _: tmp_path)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def request(idle: IdleWork) -> None:
    with idle.request():
        pass


def test_work_is_done_once() -> None:
    done = []
    idle = IdleWork(lambda _: bool(done.append(1) or True))
    for _ in range(3):
        request(idle)
        idle.join()
    assert done == [1]


def test_work_gives_up_for_a_request_of_any_engine_and_begins_again() -> None:
    begun, ended = [], []

    def work(should_stop: Callable[[], bool]) -> bool:
        begun.append(1)
        while not should_stop():
            if len(begun) > 1:
                ended.append(1)
                return True
            time.sleep(0.001)
        return False

    idle, other = IdleWork(work), IdleWork(lambda _: True)
    request(idle)
    wait_for(lambda: bool(begun))
    request(other)
    idle.join()
    assert not ended
    request(idle)
    wait_for(lambda: bool(ended))


def test_work_does_not_begin_while_there_is_a_request() -> None:
    idle, other = IdleWork(lambda _: pytest.fail("it began")), IdleWork(lambda _: True)
    with other.request():
        request(idle)
        idle.join()


def test_closed_work_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lcspec.idle._PAUSE", 0.2)
    idle = IdleWork(lambda _: pytest.fail("it began"))
    request(idle)
    idle.close()
    request(idle)
    idle.join()


def test_an_idle_engine_measures_its_costs(tiny_llama: Path, tiny_draft: Path) -> None:
    with SpeculativeLM(tiny_llama, tiny_draft, threads=1) as lm:
        assert not lm.costs.is_measured
        lm.generate(PROMPT, max_tokens=5)
        wait_for(lambda: lm.costs.is_measured)
    with SpeculativeLM(tiny_llama, threads=1) as lm:
        assert lm.costs.is_measured, "it was kept"


def test_an_engine_that_must_not_measure_does_not(tiny_llama: Path) -> None:
    with SpeculativeLM(tiny_llama, threads=1, measure=False) as lm:
        lm.generate(PROMPT, max_tokens=5)
        time.sleep(0.1)
        assert not lm.costs.is_measured


def test_requests_go_before_measuring(tiny_llama: Path) -> None:
    with SpeculativeLM(tiny_llama, threads=1, measure=False) as lm:
        plain = lm.generate(PROMPT, max_tokens=30, drafter="none").tokens
    with SpeculativeLM(tiny_llama, threads=1) as lm:
        for _ in range(60):
            assert lm.generate(PROMPT, max_tokens=30).tokens == plain
            time.sleep(0.012)


def test_a_process_that_ends_while_it_measures_ends_well(tiny_llama: Path) -> None:
    code = f"""
import time, lcspec.idle
from lcspec import SpeculativeLM
lcspec.idle._PAUSE = 0.0
lm = SpeculativeLM({str(tiny_llama)!r}, threads=1)
lm.generate("hello", max_tokens=3)
time.sleep(0.05)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
