"""The process that renders, seen from its parent."""

import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from lcspec.chat_template import render
from lcspec.errors import PromptError

SECONDS = 3.0  # of CPU time for a request
WALL_SECONDS = 20.0  # a busy machine, or one that can't limit CPU time


class Worker:
    """Starts a process with the first request, keeps it for the next ones, and replaces it when it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: dict[str, Any], longest: int) -> bytes:
        """Return the answer to a request, at most `longest` bytes; both are those of `render.answer`.

        Raises:
            PromptError: the process took too long, ended or can't be started.
        """
        reused = self._process is not None
        try:
            self._process = self._process or _start()
            line, in_time = _exchange(self._process, render.to_line({**request, "seconds": SECONDS}), longest)
        except BaseException:  # Ctrl-C, for one: the next request must not get this one's answer
            self.stop()
            raise
        if line.endswith(b"\n"):
            return line
        status = self.stop()
        if not in_time:
            raise PromptError(f"the model's chat template ran longer than {WALL_SECONDS:g} s")
        if sys.platform != "win32" and status == -signal.SIGPROF:
            raise PromptError(f"the model's chat template ran longer than {SECONDS:g} s")
        if reused:  # it may have been ended from outside, before the request
            return self.ask(request, longest)
        raise PromptError("the process that renders the model's chat template ended without an answer")

    def stop(self) -> int | None:
        """End the process and return its exit status, None if there is no process."""
        process, self._process = self._process, None
        if process is None:
            return None
        with suppress(OSError), process:  # a part of a request may be left to write
            process.kill()
        return process.returncode


def _start() -> "subprocess.Popen[bytes]":
    folders = [str(Path(file).parents[1]) for file in (jinja2.__file__, markupsafe.__file__)]
    try:
        return subprocess.Popen(
            # isolated, without site-packages: nothing but these folders decides what is imported
            [sys.executable, "-ISB", render.__file__, *folders],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except OSError as error:
        raise PromptError(f"Python, which renders the model's chat template, can't be started: {error}") from error


def _exchange(process: "subprocess.Popen[bytes]", request: bytes, longest: int) -> tuple[bytes, bool]:
    """Return the answer, or what there is of it when the process ended, and whether that was in time."""
    assert process.stdin is not None  # both are pipes
    assert process.stdout is not None
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    clock = threading.Timer(WALL_SECONDS, end)
    clock.daemon = True
    try:
        clock.start()
        process.stdin.write(request)
        process.stdin.flush()
        return process.stdout.readline(longest), not late.is_set()
    except OSError:  # the process is gone
        return b"", not late.is_set()
    finally:
        clock.cancel()
