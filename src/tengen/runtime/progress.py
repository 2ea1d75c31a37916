"""One line on a terminal about what LLVM compiles, from the first second of it on. It is erased whenever nothing is compiled.

In: `compiling(text)` around the work on each module. Out: on a terminal, on standard error, a line such as

    tengen: compiling conv_bias_relu, 14 of 38 kernels done, 3 s; 5 in background

(these are modules that other processes compile, so that programs which run already become faster),

and in a pipe or a file, or with TENGEN_PROGRESS=0, nothing. Kernels that are in the cache are not compiled, so a second run of a
program says nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from tengen.base.config import config

AFTER_S = 1.0  # of compiling, before a line is shown
EVERY_S = 0.2  # between two lines
REST_S = 1.0  # without compiling, after which counts begin anew
ERASE = "\r\x1b[K"
_NAME = re.compile(r"^define (?:\w+ )*void @([\w.$]+)", re.M)


class Progress:
    """What is compiled in one go, shown by a thread that lives as long as there is something to show.

    Args:
        stream: default: standard error, as it is when something is compiled. clock: gives seconds.
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.perf_counter):
        self._given, self._clock = stream, clock
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._active = self._done = self._total = 0  # modules in work; kernels
        self._began = self._ended = float("-inf")
        self._name = self._text = ""
        self._shown = False
        self.elsewhere: Callable[[], int] = lambda: 0  # how many modules are compiled in the background

    @contextlib.contextmanager
    def compiling(self, text: str) -> Iterator[Callable[[str], None]]:
        """Around the compiling of a module of LLVM IR, whichever thread does it. Gives a function to call with the text of each part
        of the module that is done."""
        if not self._wanted():
            yield lambda part: None
            return
        names = _NAME.findall(text)
        left = [len(names)]

        def done(n: int) -> None:
            self._done += min(n, left[0])
            left[0] -= min(n, left[0])

        def part_done(part: str) -> None:
            with self._lock:
                done(len(_NAME.findall(part)))

        with self._lock:
            self._begin(names)
        try:
            yield part_done
        finally:
            with self._lock:
                self._active = max(self._active - 1, 0)  # a child that was forked in between begins at 0
                done(left[0])
                self._ended = self._clock()
                if not self._active:
                    self._erase()

    @contextlib.contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Around the wait for another program: the line is this text and the seconds that passed."""
        if not self._wanted():
            yield
            return
        with self._lock:
            self._begin([])
            self._text = text
        try:
            yield
        finally:
            with self._lock:
                self._text = ""
                self._active = max(self._active - 1, 0)
                self._ended = self._clock()
                if not self._active:
                    self._erase()

    def say(self, text: str) -> None:
        """A line that stays, where a line about compiling would be shown, or with TENGEN_DEBUG=1."""
        with self._lock:
            if config.debug >= 1:
                print(f"tengen: {text}")
            elif self._wanted():
                self._erase()
                self._write(f"tengen: {text}\n")

    def line(self) -> str:
        """What is shown now; "" in the first second."""
        passed = self._clock() - self._began
        if passed < AFTER_S or not self._active:
            return ""
        import shutil  # here: it loads three compressors

        columns = shutil.get_terminal_size().columns - 1  # what wraps could not be erased
        tail = f", {passed:.0f} s"
        if not self._text:
            tail = f", {self._done} of {self._total} kernels done{tail}"
        if waiting := self.elsewhere():
            tail += f"; {waiting} in background"
        head, what = ("tengen: ", self._text) if self._text else ("tengen: compiling ", self._name)
        return (head + what[: max(columns - len(head) - len(tail), 0)] + tail)[:columns]

    def _wanted(self) -> bool:
        stream = self._stream
        try:
            return config.progress and stream is not None and stream.isatty()
        except ValueError:  # it is closed
            return False

    @property
    def _stream(self) -> TextIO | None:
        return sys.stderr if self._given is None else self._given

    def _begin(self, names: list[str]) -> None:
        now = self._clock()
        if not self._active and now - self._ended > REST_S:
            self._began, self._done, self._total = now, 0, 0
        self._active += 1
        self._total += len(names)
        self._name = names[0] if names else "the runtime"
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="tengen-progress", daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        while True:
            time.sleep(EVERY_S)
            with self._lock:
                if not self._active and self._clock() - self._ended > REST_S:
                    self._thread = None
                    return
                if line := self.line():
                    self._write(ERASE + line)
                    self._shown = True

    def _erase(self) -> None:
        if self._shown:
            self._write(ERASE)
            self._shown = False

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone
            stream = self._stream
            if stream is not None:
                stream.write(text)
                stream.flush()

    def forget(self) -> None:
        """Begins anew, in a forked child: its parent's thread is not there, and may have held the lock."""
        self._lock, self._thread = threading.Lock(), None
        self._active, self._shown = 0, False
        self._ended = float("-inf")

    def close(self) -> None:
        """Erases the line, when the process ends."""
        with self._lock:
            self._erase()


progress = Progress()
atexit.register(progress.close)
os.register_at_fork(after_in_child=progress.forget)
