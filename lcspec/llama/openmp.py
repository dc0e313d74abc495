"""The threads that OpenMP keeps to evaluate with.

Each thread that ever evaluated with several threads has some of its own, as long as it lives. Where all of them are
more than the processors, GNU's OpenMP lets them sleep at each barrier of an evaluation rather than spin, and a pass
over one token of a small model takes 1.6 times as long. So a thread that evaluates only for a while releases its own.
"""

import threading
from functools import cache
from typing import Any
from weakref import WeakSet

from llama_cpp import llama_cpp

_SOFT = 1  # omp_pause_soft
_lock = threading.Lock()
_evaluated: "WeakSet[threading.Thread]" = WeakSet()
_several = False  # threads evaluated, and lived together


def release_threads() -> None:
    """End the threads that are kept for the calling one; its next evaluation makes new ones."""
    if (pause := _pause()) is not None:
        pause(_SOFT)


def share_processors() -> None:
    """Release the calling thread's after a text, if other threads of this process write texts, too."""
    global _several
    this = threading.current_thread()
    with _lock:
        _several = _several or any(thread is not this and thread.is_alive() for thread in _evaluated)
        _evaluated.add(this)
    if _several:
        release_threads()


@cache
def _pause() -> Any:
    """Return `omp_pause_resource_all` (OpenMP 5.0) of the OpenMP that llama.cpp uses; None if there is none."""
    return getattr(llama_cpp._lib, "omp_pause_resource_all", None)
