"""What programs are compiled for: an architecture with the features of some processors, and the numbers that tiles depend on.

In: a name, or this machine. Out: a `Target`, a value that the LLVM emitter, the compiler, the cache and the kernel strategies
share. Nothing here makes LLVM initialise a back end, so asking for a target is cheap.

What a process compiles for is decided once, by `Target.host()`. The runtime asks it (`runtime/process.py`: the
runtime is compiled for the same), and whoever makes code that runs in this process takes the answer from there,
`native.TARGET`. Whoever compiles for elsewhere has a name for `Target.named`. Else only a report of the configuration
asks: it must not need a runtime that works.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import replace

from tengen.base.config import config
from tengen.base.errors import ConfigError
from tengen.base.record import record
from tengen.codegen.targets import processor
from tengen.codegen.targets.architecture import Architecture, Level, VectorForm
from tengen.codegen.targets.registry import ARCHITECTURES
from tengen.codegen.targets.system import System, system_of

MOST_L2 = 1 << 20  # of a second cache that choices of tiles count on


@record(frozen=True)
class Target:
    """An instruction set to compile for.

    Attributes:
        name: how it was asked for. triple, cpu, features: LLVM's description.
        vector_bytes: bytes of the widest vector register worth using.
        vector_registers: how many of them there are.
        l2_bytes: the level-2 cache of one core, by rule of thumb; of this machine as the system tells, to 1 MiB. It chooses tiles and
            so never changes a result. l2_all: the same in full.

    >>> Target.named("x86-64").vector_bytes, Target.named("x86-64-v4").vector_bytes
    (16, 64)
    """

    name: str
    triple: str
    cpu: str
    features: str
    vector_bytes: int
    vector_registers: int
    l2_bytes: int = 512 << 10
    l2_all: int = 512 << 10

    @property
    def key(self) -> str:
        """A text that is equal exactly when machine code may be shared; stable between processes."""
        return " ".join([self.triple, self.cpu, self.features, *self.level.lacks])

    @property
    def arch(self) -> str:
        """The architecture's name, a key of `ARCHITECTURES`."""
        return self.triple.split("-")[0]

    @property
    def architecture(self) -> Architecture:
        """What is true of every target of its architecture."""
        return ARCHITECTURES[self.arch]

    @property
    def system(self) -> System:
        """What is true of every target of its operating system."""
        return system_of(self.triple)

    @property
    def level(self) -> Level:
        """What was said of it where it was named; for this machine's own processor, the architecture's first level, or that of
        processors that lack some instruction (`Architecture.lacking`)."""
        levels, (lacking, features) = self.architecture.levels, self.architecture.lacking
        if self.name in levels:
            return levels[self.name]
        return next(iter(levels.values())) if all(map(self.has, features)) else levels[lacking]

    @property
    def data_layout(self) -> str:
        """LLVM's description of how data lie in memory."""
        how, layout = self.system.mangling, self.architecture.data_layout
        layout = layout if how == "e" else layout.replace("e-m:e-", f"e-m:{how}-", 1)
        return layout.replace("-i8:8:32-i16:16:32-", "-") if how == "o" else layout

    @property
    def head(self) -> str:
        """The lines with which LLVM IR for this target begins."""
        return f'target datalayout = "{self.data_layout}"\ntarget triple = "{self.triple}"\n'

    @property
    def lacks(self) -> frozenset[str]:
        """What its processors have no instruction for, as `Level.lacks` says."""
        return frozenset(self.level.lacks)

    def has(self, feature: str) -> bool:
        """Whether LLVM's `features` switch this on, or the cpu is known to imply it; "" is no feature, and always there."""
        return not feature or feature in _needs(self)

    @property
    def keeping(self) -> str:
        """How functions are called that keep all registers of their callers, as `Architecture.keeping` says; "": as others."""
        word, feature = self.architecture.keeping
        return "" if feature and self.has(feature) else word

    @property
    def needs(self) -> Collection[str]:
        """The features that a processor must have to run code of this target, as far as they are known by name."""
        return _needs(self)

    def masks(self, size: int) -> bool:
        """Whether it reads and writes some lanes of a vector, whose elements have `size` bytes, in one instruction."""
        return any(size >= least and self.has(feature) for feature, least in self.architecture.masked)

    def computes(self, op: str, at_once: bool = False) -> bool:
        """Whether it has instructions of its own for this operation of the kernel language; at_once: that are as quick for all
        operands (`VectorForm.at_once`). An fma is one where sums of products are made of it, or of products and sums; at_once: where it is
        an instruction."""
        if op == "fma":
            return "fma" not in self.lacks or ("inner fma" in self.lacks and not at_once)
        return (form := self.forms.get(op)) is not None and (form.at_once or not at_once)

    @property
    def forms(self) -> dict[str, VectorForm]:
        """The instructions that it has for operations of the kernel language."""
        return {form.op: form for form in reversed(self.architecture.forms) if self.has(form.feature)}

    @property
    def hosts(self) -> bool:
        """Whether Tengen itself runs on such processors: with the bits of all."""
        return self.architecture.hosts and "inner fma" not in self.lacks

    def why_not_here(self) -> str:
        """Why this machine's processor cannot run code of this target; "" where it can."""
        mine = Target.machine()
        if self.arch != mine.arch:
            return f"this processor is {mine.arch}"
        if self.system is not mine.system:
            return f"this system is {mine.system.name}"
        there = mine.needs
        lacks = [f for f in self.needs if f not in there]
        return f"this processor has no {', '.join(lacks)}" if lacks else ""

    @staticmethod
    @functools.cache
    def machine() -> Target:
        """This machine's processor with every feature that it has, or, so that tests can do without some, what TENGEN_PROCESSOR
        names.

        Errors: ConfigError when TENGEN_PROCESSOR names something that the processor cannot run.
        """
        mine = _this_machine()
        if config.processor == "native":
            return mine
        if config.processor not in _NAMED:
            raise ConfigError(f"unknown TENGEN_PROCESSOR={config.processor}; help: one of {', '.join(TARGET_NAMES)}")
        less = _NAMED[config.processor]
        if less.arch == mine.arch and not less.hosts:
            raise ConfigError(f"TENGEN_PROCESSOR={config.processor}: artifacts alone are compiled for it; help: leave the variable unset")
        if less.arch != mine.arch or less.system is not mine.system or not all(map(mine.has, less.needs)):
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
        if why := target.why_not_here() or ("" if target.hosts else "artifacts alone are compiled for it"):
            raise ConfigError(f"TENGEN_TARGET={config.target}: {why}; help: leave the variable unset")
        return target

    @staticmethod
    def named(name: str) -> Target:
        """The target of this name, one of `TARGET_NAMES`; ``native`` is what this process compiles for.

        Errors: ConfigError for another name.
        """
        if name == "native":
            return Target.host()
        if name not in _NAMED:
            import difflib  # here, because it is slow to import

            near = difflib.get_close_matches(name.lower().replace("_", "-"), TARGET_NAMES, 1, 0.5)
            guess = f"did you mean {near[0]!r}? It is " if near else ""
            raise ConfigError(f"unknown target {name!r}; help: {guess}one of {', '.join(TARGET_NAMES)}")
        return _NAMED[name]


@functools.cache  # every program that is loaded asks for them, and every operation that is emitted
def _needs(target: Target) -> dict[str, None]:
    """The features of `Target.needs`, in order, as keys."""
    switched_on = [f[1:] for f in target.features.split(",") if f[:1] == "+"]
    return dict.fromkeys([*target.architecture.implied(target.cpu), *switched_on])


def _made(name: str, triple: str, cpu: str, features: str, **more: int) -> Target:
    """A target with the registers that its processors have."""
    target = Target(name, triple, cpu, features, 0, 0, **more)
    registers = next(r for r in target.architecture.registers if target.has(r.feature))
    return replace(target, vector_bytes=registers.bytes, vector_registers=registers.count)


def _of_level(a: Architecture, level: Level) -> Target:
    return _made(level.name, f"{a.name}-{level.system}", level.cpu, level.features)


def _this_machine() -> Target:
    """The processor of this machine, with every feature that it has."""
    triple, cpu, features = processor.description()
    hosts = [a.name for a in ARCHITECTURES.values() if a.hosts]
    if triple.split("-")[0] not in hosts:
        raise ConfigError(f"no code generation for {triple}; help: there is for machines with {' or '.join(hosts)}")
    l2 = processor.l2_bytes()
    return _made("native", triple, cpu, features, l2_bytes=min(l2, MOST_L2), l2_all=l2)


_NAMED = {name: _of_level(a, level) for a in ARCHITECTURES.values() for name, level in a.levels.items()}
TARGET_NAMES = ("native", *_NAMED)  # that `Target.named` takes
