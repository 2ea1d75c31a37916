"""`tengen.logger`: loggers of Python's `logging` with a handler of their own, under MegEngine's names.

In: names of loggers, a level, a file. Out: `logging.Logger`s that write to stderr, and to the file where one is set.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Any

__all__ = [
    "MegEngineLogFormatter", "enable_debug_log", "get_logger", "replace_mgb_log_level", "set_log_file", "set_log_level", "set_mgb_log_level",
]  # fmt: skip

_COLOURS = {logging.DEBUG: "36", logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "1;31"}  # ANSI; others are plain
_DATES = "%d %H:%M:%S"
_made: dict[str | None, logging.Logger] = {}
_level = _native_level = logging.INFO
_file: logging.StreamHandler | None = None


class MegEngineLogFormatter(logging.Formatter):
    """``22 18:03:43 WRN message``: the time, the level unless it is INFO, the text; coloured on a terminal."""

    def __init__(self, fmt: str | None = None, datefmt: str | None = None, *args: Any, **kwargs: Any):
        super().__init__(fmt, datefmt or _DATES, *args, **kwargs)
        self.colour = False

    def formatMessage(self, record: logging.LogRecord) -> str:
        short = {logging.WARNING: "WRN ", logging.ERROR: "ERR ", logging.CRITICAL: "CRIT ", logging.DEBUG: "DBG ", logging.INFO: ""}
        level = short.get(record.levelno, f"{record.levelname} ")
        if self.colour and record.levelno in _COLOURS:
            level = f"\x1b[{_COLOURS[record.levelno]}m{level}\x1b[0m"
        return f"{self.formatTime(record, self.datefmt)} {level}{record.message}"


def get_logger(name: str | None = None, formatter: type[logging.Formatter] = MegEngineLogFormatter) -> logging.Logger:
    """The logger of a name, which writes to stderr from the level of `set_log_level` on (INFO at first), and passes nothing to the
    loggers above it. None is the root logger, as in `logging`. A second call gives the same one.

    >>> get_logger("example").level == logging.INFO, get_logger("example") is get_logger("example")
    (True, True)
    """
    if name in _made:
        return _made[name]
    logger = _made[name] = logging.getLogger(name)
    handler = logging.StreamHandler()
    handler.setFormatter(_coloured(formatter(datefmt=_DATES), sys.stderr))
    logger.handlers[:] = [handler] + ([_file] if _file is not None else [])
    logger.propagate = False
    logger.setLevel(_level)
    return logger


def _coloured(formatter: logging.Formatter, stream: Any) -> logging.Formatter:
    if isinstance(formatter, MegEngineLogFormatter):
        formatter.colour = bool(getattr(stream, "isatty", lambda: False)())
    return formatter


def set_log_file(fout: Any, mode: str = "a") -> None:
    """Writes what loggers of `get_logger` say to a file as well, in place of the one before.

    Args: fout: a path, or a file that is open for text. mode: "a" appends to the file of a path, "w" makes it anew.
    """
    global _file
    if isinstance(fout, (str, bytes)) or hasattr(fout, "__fspath__"):
        new: logging.StreamHandler = logging.FileHandler(fout, mode, encoding="utf-8")
    elif callable(getattr(fout, "write", None)):
        new = logging.StreamHandler(fout)
    else:
        raise TypeError(f"set_log_file() takes a path or an open file, got a {type(fout).__name__}")
    new.setFormatter(MegEngineLogFormatter(datefmt=_DATES))
    for logger in _made.values():
        logger.handlers[:] = [h for h in logger.handlers if h is not _file] + [new]
    if isinstance(_file, logging.FileHandler):
        _file.close()
    _file = new


def set_log_level(level: int | str, update_existing: bool = True) -> None:
    """Sets the least level that loggers write: a number or a name of `logging`, as "DEBUG".

    Args: update_existing: of loggers that there are already, too; else of those that are made later.
    Errors: ValueError for a name of no level.
    """
    global _level
    found = logging.getLevelNamesMapping().get(level.upper()) if isinstance(level, str) else level
    if found is None:
        raise ValueError(f"{level!r} is no level; help: one of {', '.join(logging.getLevelNamesMapping())}")
    _level = found
    for logger in _made.values() if update_existing else ():
        logger.setLevel(_level)


def enable_debug_log() -> None:
    """`set_log_level` of DEBUG. What the compiler does is shown by TENGEN_DEBUG=1 to 5, see docs/architecture.md."""
    set_log_level(logging.DEBUG)


def set_mgb_log_level(level: int | str) -> int:
    """Sets the level of MegEngine's native library, which is kept and read by nothing here: kernels write no log, and TENGEN_DEBUG prints
    what the compiler does. Returns the level before, INFO at first."""
    global _native_level
    before, _native_level = _native_level, logging.getLevelName(level) if isinstance(level, str) else level
    return before


@contextlib.contextmanager
def replace_mgb_log_level(level: int | str) -> Iterator[None]:
    """`set_mgb_log_level` for the length of a `with` block."""
    before = set_mgb_log_level(level)
    try:
        yield
    finally:
        set_mgb_log_level(before)
