"""What Tengen's time until a first result is spent on. A process of `first.py` wraps a few functions of Tengen with a clock each.

In: a process whose work is about to begin. Out: seconds of the main thread by cause: what a wrapped function spends in another that
is wrapped counts as the other's. Nothing in Tengen knows of it.
"""

from __future__ import annotations

import functools
import importlib.machinery
import os
import sys
import threading
import time
from dataclasses import replace

OTHER = "Python, and kernels that run"
# In the order of the picture, from below.
CAUSES = [
    "imports", "recording", OTHER, "passes", "lowering", "emission", "programs kept", "files", "LLVM's passes", "code generation", "linking",
]  # fmt: skip
# cause -> the functions whose time it is: (module, name)
WRAPPED = {
    "recording": [("tengen.jit.recordings", "Recordings._record")],
    "lowering": [("tengen.compiler.plans", "make_plan"), ("tengen.compiler.plans", "make_overwrite")],
    "programs kept": [("tengen.compiler.program_cache", name) for name in ("identity", "find", "keep")],
    "files": [("tengen.runtime.cache", "get_named"), ("tengen.runtime.cache", "put")],
    "LLVM's passes": [("tengen.runtime.llvm", "optimised")],
    "code generation": [("tengen.runtime.parallel_compile", "Build.finish"), ("tengen.runtime.cache", "compile_object")],
    "linking": [("tengen.runtime.compile", "load_object")],
}  # fmt: skip
LOWERING = {"destinations", "layouts", "aliases", "image_loops", "launches", "hoist", "memory"}  # passes from a graph to its launches


class Watch:
    """A clock that always runs for one cause."""

    def __init__(self):
        self.seconds = dict.fromkeys(CAUSES, 0.0)
        self.stack, self.last = ["imports"], time.perf_counter()
        self.before = process_age()  # the interpreter's start, and NumPy's import
        self.thread = threading.get_ident()
        for loader in (importlib.machinery.SourceFileLoader, importlib.machinery.ExtensionFileLoader):
            loader.exec_module = self.within("imports", loader.exec_module)

    def turn(self) -> None:
        """The time since the last turn belongs to the cause on top."""
        now = time.perf_counter()
        self.seconds[self.stack[-1]] += now - self.last
        self.last = now

    def within(self, cause: str, f):
        """A function whose time belongs to a cause."""

        @functools.wraps(f)
        def timed(*args, **kwargs):
            if threading.get_ident() != self.thread:
                return f(*args, **kwargs)
            self.turn()
            self.stack.append(cause)
            try:
                return f(*args, **kwargs)
            finally:
                self.turn()
                self.stack.pop()

        return timed

    def begin(self) -> None:
        """Tengen has been imported: wraps its functions."""
        for cause, functions in WRAPPED.items():
            for module, name in functions:
                *outer, last = name.split(".")
                holder = functools.reduce(getattr, outer, importlib.import_module(module))
                plain = getattr(holder, last)
                wrapped = self.within(cause, plain)
                for place in (holder, *(m for n, m in sys.modules.items() if n.startswith("tengen."))):
                    if vars(place).get(last) is plain:  # also where it was imported from there
                        setattr(place, last, wrapped)
        for module in ("tengen.compiler.driver", "tengen.compiler.building", "tengen.passes.pipeline"):
            self.watch_passes(importlib.import_module(module))
        self.turn()
        self.stack = [OTHER]

    def watch_passes(self, module) -> None:
        """Each pass that a module runs belongs to a cause by its name."""
        run = module.run_passes
        cause = lambda name: "emission" if name == "emit" else "lowering" if name in LOWERING else "passes"
        timed = lambda p: replace(p, run=self.within(cause(p.name), p.run))
        module.run_passes = lambda x, passes, *more: run(x, [timed(p) for p in passes], *more)

    def end(self) -> dict[str, float]:
        """Seconds by cause, all since the process began."""
        self.turn()
        return self.seconds | {"imports": self.seconds["imports"] + self.before}


def process_age() -> float:
    """Seconds since this process was created."""
    with open("/proc/self/stat") as f:
        began = int(f.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began
