"""The engine that a server has: still loading, there, or ending."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anyio import CapacityLimiter
from starlette.concurrency import run_in_threadpool

from lcspec.batching import BatchingEngine, Metrics
from lcspec.errors import LcspecError
from lcspec.server.errors import ApiError
from lcspec.server.limits import MAX_READING
from lcspec.server.metrics import ServerMetrics

if TYPE_CHECKING:
    from lcspec.server.texts import Texts

LOG = logging.getLogger("lcspec.server")


@dataclass(frozen=True)
class Settings:
    """How a server is to be.

    Attributes:
        name: what the model is called.
        key: what a client has to know; None where there is no key.
        checks_host: whether requests have to call the server by a name of this machine's loopback.
        origins: of web pages that may ask (CORS), '*' for all.
        logs_prompts: whether the log has the prompts.
        most_texts: texts that there is ever room for: those that are written together and those that may wait.
    """

    name: str
    key: str | None = None
    checks_host: bool = True
    origins: tuple[str, ...] = ()
    logs_prompts: bool = False
    most_texts: int = 72


class Service:
    """Holds the engine, and the texts that are being written with it.

    Args:
        load: loads the engine.
        settings: how the server is to be.
    """

    def __init__(self, load: Callable[[], BatchingEngine], settings: Settings) -> None:
        self.settings = settings
        self.metrics = ServerMetrics(self._of_engine)
        self.failure: Exception | None = None
        """Why the engine could not be loaded."""
        self.is_ending = False
        """Whether no more requests are taken."""
        self.parsing = CapacityLimiter(2)
        """Bounds how many bodies are looked at together."""
        self.preparing = CapacityLimiter(MAX_READING)
        """Bounds how many prompts are made together, apart from other work in threads, which must not wait for them."""
        self._load = load
        self._engine: BatchingEngine | None = None
        self._texts: set[Texts] = set()
        self._n_reading = 0

    async def load(self) -> None:
        """Load the engine, in a thread; what goes wrong is in `failure` then."""
        try:
            self._engine = await run_in_threadpool(self._loaded)
        except Exception as error:
            self.failure = error

    def _loaded(self) -> BatchingEngine:
        engine = self._load()
        with suppress(LcspecError):  # the chat template is compiled now, not in the first answer
            engine.chat_prompt([{"role": "user", "content": "Hi"}])
        return engine

    @property
    def status(self) -> str:
        """Whether the server is ready ('ok'), or why it is not."""
        if self.is_ending:
            return "ending"
        if self._engine is None:
            return "loading model" if self.failure is None else "failed"
        return "ok" if self._engine.metrics().is_up else "failed"

    @property
    def engine(self) -> BatchingEngine:
        """The engine.

        Raises:
            ApiError: it is not there yet, or not any more.
        """
        if self._engine is None or self.is_ending:
            raise unavailable(self.status)
        return self._engine

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count a request while it is read, so that all bodies together are bounded.

        Raises:
            ApiError: too many are.
        """
        if self._n_reading >= MAX_READING:
            message = f"{MAX_READING} requests are being read, and no more may: try again"
            raise ApiError(429, message, "queue_full", headers={"Retry-After": "1"})
        self._n_reading += 1
        try:
            yield
        finally:
            self._n_reading -= 1

    def add(self, texts: "Texts") -> None:
        """Note texts that are being written."""
        self._texts.add(texts)

    def remove(self, texts: "Texts") -> None:
        """Forget texts that are written, or that nobody wants any more."""
        self._texts.discard(texts)

    def cancel(self) -> None:
        """End all texts that are being written."""
        for texts in list(self._texts):
            texts.cancel()

    def close(self) -> None:
        """Free the engine."""
        self.is_ending = True
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def _of_engine(self) -> Metrics | None:
        return None if self._engine is None else self._engine.metrics()


def unavailable(status: str) -> ApiError:
    """Return what is said while there is no engine."""
    return ApiError(503, f"the server is not ready: {status}", "unavailable", headers={"Retry-After": "1"})
