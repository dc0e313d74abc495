"""Everything that lcspec raises on purpose."""


class LcspecError(Exception):
    """Base of lcspec's errors: one line that says what is wrong and what to do."""


class ModelError(LcspecError):
    """A model can't be found, fetched, loaded or used for what was asked."""


class PairError(ModelError):
    """A draft model does not fit its target."""


class PromptError(LcspecError):
    """A prompt, a conversation or an option can't be used: too long, empty, out of range, without a template."""


class TooLongError(PromptError):
    """A prompt leaves no room for a text in the context.

    Args:
        n_tokens: tokens of the prompt.
        n_ctx: tokens of the context.
    """

    def __init__(self, n_tokens: int, n_ctx: int) -> None:
        super().__init__(
            f"the prompt has {n_tokens:,} tokens and the context holds {n_ctx:,}, "
            "of which the text needs at least one: shorten the prompt or take more context (n_ctx, --ctx)"
        )
        self.n_tokens = n_tokens
        self.n_ctx = n_ctx

    def __reduce__(self) -> tuple[type["TooLongError"], tuple[int, int]]:
        return TooLongError, (self.n_tokens, self.n_ctx)


class QueueFullError(LcspecError):
    """As many requests wait as may.

    Args:
        n_waiting: requests that wait.
        retry_after: seconds, by estimate, after which there is room.
    """

    def __init__(self, n_waiting: int, retry_after: float) -> None:
        super().__init__(f"{n_waiting:,} requests wait, and no more may: try again in {retry_after:.0f} s")
        self.n_waiting = n_waiting
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type["QueueFullError"], tuple[int, float]]:
        return QueueFullError, (self.n_waiting, self.retry_after)


class EngineDownError(LcspecError):
    """An engine that many share failed more than once and takes no more requests."""


class ClosedError(LcspecError):
    """Something that was closed was used."""


class EvaluationError(LcspecError):
    """llama.cpp could not evaluate tokens, or what it gave is not a number."""


class BusyError(LcspecError):
    """A thread started a generation on an engine on which it has one unfinished."""


class StoreError(LcspecError):
    """The store of earlier texts is damaged, of a newer version, or can't be written."""


class FileError(LcspecError):
    """A file that the user named can't be read, understood or written."""


class AnswerError(LcspecError):
    """A model's answer is not what was asked for: cut off, empty, a refusal."""


class LcspecWarning(UserWarning):
    """lcspec goes on, but not in the way that was asked for."""
