"""llama.cpp's log, sent to Python's logging instead of standard error."""

import ctypes
import logging

import llama_cpp

logger = logging.getLogger("lcspec.llama.cpp")

# ggml_log_level; 5 continues the line before it
_LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}
_CONTINUES = 5

_level = logging.INFO
_line = ""
_errors: list[str] = []
_interrupted = False


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _receive(level: int, text: bytes, _user_data: object) -> None:
    global _level, _line, _interrupted
    try:
        if level != _CONTINUES:
            _flush()
            _level = _LEVELS.get(level, logging.DEBUG)
        _line += text.decode("utf-8", "replace")
        if _line.endswith("\n"):
            _flush()
    except KeyboardInterrupt:  # can't be raised through llama.cpp: `finish_call` does it
        _interrupted = True


def _flush() -> None:
    global _line
    message, _line = _line.strip(), ""
    if not message:
        return
    logger.log(_level, "%s", message)
    if _level >= logging.ERROR:
        _errors.append(message)


def begin_call() -> None:
    """Forget earlier errors: a call of llama.cpp begins that may fail."""
    _errors.clear()


def finish_call() -> str:
    """Return the first error line that llama.cpp logged since `begin_call`, or words for none.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed while llama.cpp logged.
    """
    global _interrupted
    if _interrupted:
        _interrupted = False
        raise KeyboardInterrupt
    return _errors[0] if _errors else "llama.cpp gave no reason"


def install() -> None:
    """Make this module the receiver of llama.cpp's log for the whole process."""
    llama_cpp.llama_log_set(_receive, ctypes.c_void_p(0))
