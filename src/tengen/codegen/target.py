"""What machine code is made for: an instruction set, and the few numbers that the choice of tiles needs.

In: a name, or this machine. Out: a `Target`, a value that the LLVM emitter, the compiler, the cache and the kernel strategies
share. Nothing here makes LLVM initialise a back end, so asking for a target is cheap.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from tengen.base.config import config
from tengen.base.errors import ConfigError

# What LLVM says the layout of data is on each architecture; a test compares. Written here so that writing IR needs no back end.
DATA_LAYOUTS = {
    "x86_64": "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128",
    "aarch64": "e-m:e-p270:32:32-p271:32:32-p272:64:64-i8:8:32-i16:16:32-i64:64-i128:128-n32:64-S128-Fn32",
}


@dataclass(frozen=True)
class Target:
    """An instruction set to compile for.

    Attributes:
        name: how it was asked for. triple, cpu, features: LLVM's description.
        vector_bytes: bytes of the widest vector register worth using.
        vector_registers: how many of them there are.
        l1_bytes, l2_bytes: data caches of one core, by rule of thumb; the second of this machine as the system tells, up to 1 MiB.
            They choose tiles and so never change a result. l2_all: the second in full.

    >>> Target.named("x86-64").cpu, Target.named("x86-64-v4").vector_bytes
    ('x86-64-v3', 64)
    """

    name: str
    triple: str
    cpu: str
    features: str
    vector_bytes: int
    vector_registers: int
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    l2_all: int = 512 << 10

    @property
    def key(self) -> str:
        """A text that is equal exactly when machine code may be shared; stable between processes."""
        return f"{self.triple} {self.cpu} {self.features}"

    @property
    def arch(self) -> str:
        """The architecture: ``"x86_64"`` or ``"aarch64"``."""
        return self.triple.split("-")[0]

    @property
    def data_layout(self) -> str:
        """LLVM's data layout string."""
        return DATA_LAYOUTS[self.arch]

    def has(self, feature: str) -> bool:
        """Whether LLVM's `features` switch this on, or the named cpu implies it (known for the x86-64 levels)."""
        return f"+{feature}" in self.features.split(",") or feature in _IMPLIED.get(self.cpu, ())

    @property
    def needs(self) -> list[str]:
        """The features that a processor must have to run code of this target, as far as they are known by name."""
        return [*_IMPLIED.get(self.cpu, ()), *(f[1:] for f in self.features.split(",") if f[:1] == "+")]

    def why_not_here(self) -> str:
        """Why this machine's processor cannot run code of this target; "" where it can."""
        mine = Target.machine()
        if self.arch != mine.arch:
            return f"this processor is {mine.arch}"
        lacks = [f for f in self.needs if not mine.has(f)]
        return f"this processor has no {', '.join(lacks)}" if lacks else ""

    @staticmethod
    @functools.cache
    def machine() -> Target:
        """This machine's processor with every feature that it has, or, so that tests can do without some, what TENGEN_PROCESSOR
        names.

        Errors: ConfigError when TENGEN_PROCESSOR names something that the processor cannot run.
        """
        mine = _processor()
        if config.processor == "native":
            return mine
        if config.processor not in _NAMED:
            raise ConfigError(f"unknown TENGEN_PROCESSOR={config.processor}; help: one of native, {', '.join(_NAMED)}")
        less = _NAMED[config.processor]
        if less.arch != mine.arch or not all(map(mine.has, less.needs)):
            raise ConfigError(f"this processor has less than TENGEN_PROCESSOR={config.processor}; help: leave the variable unset")
        return replace(less, name="native", l2_bytes=mine.l2_bytes, l2_all=mine.l2_all)

    @staticmethod
    @functools.cache
    def host() -> Target:
        """What this process compiles for: this machine's processor with every feature that it has, or what TENGEN_TARGET names.

        Errors: ConfigError when TENGEN_TARGET names something that this processor cannot run.
        """
        if config.target == "native":
            return Target.machine()
        target = Target.named(config.target)
        if why := target.why_not_here():
            raise ConfigError(f"TENGEN_TARGET={config.target}: {why}; help: leave the variable unset")
        return target

    @staticmethod
    def named(name: str) -> Target:
        """The target of this name: ``native``, ``x86-64`` (the floor, x86-64-v3), ``x86-64-v3``, ``x86-64-v4``, ``aarch64``.

        Errors: ConfigError for another name.
        """
        if name == "native":
            return Target.host()
        if name not in _NAMED:
            raise ConfigError(f"unknown target {name!r}; help: one of native, {', '.join(_NAMED)}")
        return _NAMED[name]


MOST_L2 = 1 << 20  # of a second cache that choices of tiles count on


def _l2_bytes() -> int:
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


def _processor() -> Target:
    """This machine's processor."""
    triple, cpu, features = machine_facts.recall(_identity(), _ask_llvm)
    arch = triple.split("-")[0]
    if arch not in DATA_LAYOUTS:
        raise ConfigError(f"no code generation for {triple}; help: x86-64 and AArch64 machines are supported")
    l2 = _l2_bytes()
    if arch == "aarch64":
        return Target("native", triple, cpu, features, 16, 32, l2_bytes=min(l2, MOST_L2), l2_all=l2)
    wide = "+avx512vl" in features.split(",")
    vectors = (64, 32) if wide else (32, 16)
    return Target("native", triple, cpu, features, *vectors, l2_bytes=min(l2, MOST_L2), l2_all=l2)


def _ask_llvm() -> list[str]:
    """[triple, cpu, features] of this machine, in LLVM's words. Loads LLVM, which takes longer than most first programs."""
    import llvmlite.binding as llvm

    return [llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]


def _identity() -> str:
    """A text that differs where LLVM's answer may: the processor as Linux describes it, the system, LLVM's version. "" where there
    is no such description."""
    import llvmlite

    told = (line.partition(":") for line in _text("/proc/cpuinfo").split("\n\n")[0].splitlines())
    facts = [f"{k.strip()}:{v.strip()}" for k, _, v in told if k.strip() in _FACTS]
    return "\n".join(["this machine, by LLVM", *facts, *os.uname()[2:], llvmlite.__version__]) if facts else ""


_FACTS = {
    "vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags", "Features", "CPU implementer",
    "CPU architecture", "CPU variant", "CPU part", "CPU revision",
}  # fmt: skip


class _Facts:
    """What LLVM says of this machine. The cache on disk, two floors up, remembers it: `runtime/cache.py` owns `recall`, and installs
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


machine_facts = _Facts()


_V3 = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_IMPLIED = {"x86-64-v3": _V3, "x86-64-v4": (*_V3, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")}
_LINUX = "unknown-linux-gnu"
_NAMED = {
    "x86-64": Target("x86-64-v3", f"x86_64-{_LINUX}", "x86-64-v3", "", 32, 16),
    "x86-64-v3": Target("x86-64-v3", f"x86_64-{_LINUX}", "x86-64-v3", "", 32, 16),
    "x86-64-v4": Target("x86-64-v4", f"x86_64-{_LINUX}", "x86-64-v4", "", 64, 32),
    "aarch64": Target("aarch64", f"aarch64-{_LINUX}", "generic", "+neon", 16, 32),
}
