"""llama.cpp's log, sent to Python's logging instead of standard error."""

import ctypes
import logging

import llama_cpp

logger = logging.getLogger("lcspec.llama.cpp")

# ggml_log_level; 5 continues the line before it
_LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}
_CONTINUES = 5

_LAYOUT_BUFFERS = ("REPACK model buffer", "AMX model buffer")

_level = logging.INFO
_line = ""
_errors: list[str] = []
_repacked = False


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _receive(level: int, text: bytes, _user_data: object) -> None:
    global _level, _line
    if level != _CONTINUES:
        _flush()
        _level = _LEVELS.get(level, logging.DEBUG)
    _line += text.decode("utf-8", "replace")
    if _line.endswith("\n"):
        _flush()


def _flush() -> None:
    global _line, _repacked
    message, _line = _line.strip(), ""
    if not message:
        return
    logger.log(_level, "%s", message)
    _repacked = _repacked or any(name in message for name in _LAYOUT_BUFFERS)
    if _level >= logging.ERROR:
        _errors.append(message)


def forget_errors() -> None:
    """Forget what was said before: a call of llama.cpp begins that may fail."""
    global _repacked
    _repacked = False
    _errors.clear()


def first_error() -> str:
    """Return the first error line that llama.cpp logged since `forget_errors`, or words for none."""
    return _errors[0] if _errors else "llama.cpp gave no reason"


def said_repacked() -> bool:
    """Tell whether llama.cpp logged since `forget_errors` that it laid weights out anew."""
    return _repacked


def install() -> None:
    """Make this module the receiver of llama.cpp's log for the whole process."""
    llama_cpp.llama_log_set(_receive, ctypes.c_void_p(0))
