"""This machine's processor: what LLVM says of it, and its second cache, as the system tells.

Asking LLVM loads it, which takes longer than most first programs; so its answer is remembered with what Linux tells of the
processor.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from tengen.codegen.targets.registry import ARCHITECTURES


def description() -> tuple[str, str, str]:
    """(triple, cpu, features) of this machine, in LLVM's words."""
    triple, cpu, features = answers.recall(_identity(), _ask_llvm)
    return triple, cpu, features


def l2_bytes() -> int:
    """The second cache of a core, as the system tells, at least 256 KiB; the rule of thumb where it does not."""
    try:
        found = os.sysconf("SC_LEVEL2_CACHE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on this system, or not in this build of Python
        found = _kernel_says_l2()
    return max(found, 256 << 10) if found > 0 else 512 << 10


def _kernel_says_l2() -> int:
    """What Linux has found out about the first processor's second cache, in bytes; 0 where it says nothing."""
    units = {"K": 10, "M": 20}
    for n in range(8):
        where = f"/sys/devices/system/cpu/cpu0/cache/index{n}/"
        level, size = _text(where + "level"), _text(where + "size")
        if level == "2" and size[-1:] in units and size[:-1].isdecimal():
            return int(size[:-1]) << units[size[-1]]
    return 0


def _text(file: str) -> str:
    """A small file's text without the last line's end; "" where it cannot be read."""
    try:
        with open(file) as f:
            return f.read(1 << 14).strip()
    except (OSError, ValueError):
        return ""


def _ask_llvm() -> list[str]:
    """[triple, cpu, features] of this machine, in LLVM's words. Loads LLVM."""
    import llvmlite.binding as llvm

    return [llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]


def _identity() -> str:
    """A text that differs where LLVM's answer may: the processor as Linux describes it, the system, LLVM's version. "" where there
    is no such description."""
    import llvmlite

    wanted = {line for a in ARCHITECTURES.values() for line in a.cpuinfo}
    told = (line.partition(":") for line in _text("/proc/cpuinfo").split("\n\n")[0].splitlines())
    facts = [f"{k.strip()}:{v.strip()}" for k, _, v in told if k.strip() in wanted]
    return "\n".join(["this machine, by LLVM", *facts, *os.uname()[2:], llvmlite.__version__]) if facts else ""


class Answers:
    """What LLVM says of this machine. The cache on disk, one floor up, remembers it: `runtime/cache.py` owns `recall`, and installs
    it once.

    Attributes:
        recall: (identity, ask) -> what was answered for this identity before, else what `ask` answers now.
    """

    recall: Callable[[str, Callable[[], list[str]]], list[str]] = staticmethod(lambda identity, ask: ask())

    def install(self, recall: Callable[[str, Callable[[], list[str]]], list[str]]) -> None:
        """Installs what remembers. Errors: RuntimeError when that was done before."""
        if "recall" in vars(self):
            raise RuntimeError("what remembers facts of the machine is installed already, by runtime/cache.py")
        self.recall = recall


answers = Answers()
