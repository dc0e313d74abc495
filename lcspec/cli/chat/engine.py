"""The engine that answers, and another one in its place."""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from lcspec.cli.options import load_engine
from lcspec.engine import SpeculativeLM
from lcspec.hub import find_model
from lcspec.limits import AUTO_DRAFT
from lcspec.llama import free_memory, memory_need, read_header


class EngineInUse:
    """An engine that can be exchanged; as a context manager it closes the one that it has in the end.

    Args:
        options: as `load_engine` takes them.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        """What the engine was loaded with."""
        self._stack = ExitStack()
        self.engine = self._load(options)
        """The engine."""

    @property
    def name(self) -> str:
        """The name of the model, which means the same in any folder."""
        name: str = self.options["model"]
        return str(Path(name).resolve()) if Path(name).is_file() else name

    def exchange(self, **changes: Any) -> None:
        """Load an engine with other options, and close the one there was.

        Raises:
            LcspecError: it can't be loaded, or can't chat; the engine is then as it was.
        """
        options = {**self.options, **changes}
        old = self._stack
        if self._fits_beside(options["model"], options["draft"]):
            self._stack = ExitStack()
            try:
                self.engine = self._load(options)
            except BaseException:
                self._stack = old
                raise
            old.close()
        else:
            old.close()
            try:
                self.engine = self._load(options)
            except BaseException:
                self.engine = self._load(self.options)
                raise
        self.options = options

    def _load(self, options: dict[str, Any]) -> SpeculativeLM:
        with ExitStack() as undo:
            engine = undo.enter_context(load_engine(**options))
            engine.chat_prompt([{"role": "user", "content": ""}])  # fails now if there is no template
            self._stack = undo.pop_all()
        return engine

    def _fits_beside(self, model: str, draft: str | None) -> bool:
        """Whether there is memory for other models beside those that are loaded; fails where there are no such ones."""
        named = [model] if draft in (None, AUTO_DRAFT) else [model, draft]
        headers = [read_header(find_model(name, download=True)) for name in filter(None, named)]
        return sum(memory_need(header, self.engine.n_ctx).total for header in headers) <= free_memory()

    def __enter__(self) -> "EngineInUse":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
