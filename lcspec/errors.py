"""Everything that lcspec raises on purpose."""


class LcspecError(Exception):
    """Base of lcspec's errors: one line that says what is wrong and what to do."""


class ModelError(LcspecError):
    """A model can't be found, fetched, loaded or used for what was asked."""


class PairError(ModelError):
    """A draft model does not fit its target."""


class PromptError(LcspecError):
    """A prompt, a conversation or an option can't be used: too long, empty, out of range, without a template."""


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
