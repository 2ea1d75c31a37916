"""What is true of a processor architecture: an `Architecture` is all that Tengen knows of one. Each has a file of its own here.

The kernel language means the same on every architecture, to the bit. An architecture says how that is had there: what
LLVM is told of it, which registers hold vectors, and which instructions compute an operation of the language better
than LLVM's code for plain IR does. To be taken, an architecture must add, multiply, divide, take roots and fuse a
multiply-add of float32 and float64 with one rounding to nearest even, keep subnormal numbers, and convert between
float16 and float32 by instructions: a call of a library that does it would be a symbol which nobody defines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from tengen.base.record import record


class Emitter(Protocol):
    """What a vector form may ask of `codegen/values.py`: instructions, each named by its result."""

    def pure(self, text: str) -> str:
        """The result of an instruction without effects."""
        ...

    def convert(self, how: str, x: str, source: str, target: str) -> str:
        """The result of a conversion between two LLVM types."""
        ...

    def intrinsic(self, name: str, result: str, *args: str) -> str:
        """The result of a call of a pure LLVM intrinsic; `args` are typed operands."""
        ...


class VectorForm(NamedTuple):
    """Instructions for one operation of the kernel language on 16 lanes, for processors that have a feature.

    Attributes:
        op: the operation, as `Expr.op` names it. feature: what the processor must have, as LLVM names it.
        emit: emits the instructions for the SSA names of the operands, and names the result. Its bits are those of
            `loops/interp.py` for every operand; an instruction that gives others is not a form.
    """

    op: str
    feature: str
    emit: Callable[[Emitter, list[str]], str]


class Registers(NamedTuple):
    """Vector registers worth using. feature: a processor that has it has these; "": every one. bytes: of a register. count: of
    registers."""

    feature: str
    bytes: int
    count: int


EQUAL = "the bits of every other target"  # what a target promises unless it says something else


class Level(NamedTuple):
    """A target that users can name: the processors that have at least so much, under one operating system.

    Attributes:
        name: of the target. cpu: what LLVM calls such a processor. features: LLVM's, beyond what the cpu implies.
        implied: the features that the cpu implies, as far as anything here asks for them, or a processor may lack them.
        system: LLVM's words for it, the rest of the triple. c_triple: for zig, where it is not the architecture's; emulators:
            likewise. emulator_options: for the emulator to be this processor.
        lacks: what such processors have no instruction for, which `codegen/lacking.py` then writes out: "half" (conversions between
            float16 and float32), "round" (to an integer), "narrow" (floats to narrower integers), "fma" (with one rounding), "inner
            fma" (those of sums of products, which then round twice).
        bits: what is promised of results. tested: how that was looked at.
    """

    name: str
    cpu: str
    features: str = ""
    implied: tuple[str, ...] = ()
    system: str = "unknown-linux-gnu"
    c_triple: str = ""
    emulators: tuple[str, ...] = ()
    emulator_options: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    bits: str = EQUAL
    tested: str = ""


class Linking(NamedTuple):
    """What links an object file into a process (`runtime/object_loader.py`), in numbers of the architecture's ELF supplement.

    Attributes:
        relative: relocations to 32 bits, of a symbol relative to the place. call: the same, of a function to be called.
        table: the same, of a word that holds the symbol's address. absolute: to 64 bits, the symbol's address.
        unwind: the type of the section that says how to unwind frames.
        stub: the machine code of a jump to the address in a word that lies so many bytes after the code's beginning; always of
            the same length, at most 8 bytes.
    """

    relative: int
    call: int
    table: tuple[int, ...]
    absolute: int
    unwind: int
    stub: Callable[[int], bytes]


@record(frozen=True)
class Architecture:
    """An architecture.

    Attributes:
        name: LLVM's, the first word of its triples.
        data_layout: LLVM's description of how data lies in memory. LLVM knows it too; it is written here so that writing IR
            needs no back end.
        levels: the targets that users can name, by each of their names.
        registers: the vector registers, the best first: a processor has those of the first row whose feature it has.
        masked: (feature, bytes): processors that have the feature read and write some lanes of a vector in one instruction,
            where its elements have at least so many bytes.
        forms: instructions for operations of the kernel language, the best first. What has none is emitted as plain IR.
        pause: the call that tells the processor that a loop waits for another thread.
        fence: the call after which stores past the caches are ordered like others; "" where a store that releases orders them
            too.
        elf_machine: the architecture's number in object files. linking: what the small loader must know; None: LLVM links.
        c_triple: for a C compiler that links a program with a static libc. emulators: programs that run such a program on
            another architecture.
        notable: features that a report names. cpuinfo: lines of Linux's /proc/cpuinfo that tell one processor from another.
        hosts: whether Tengen itself runs on it.
    """

    name: str
    data_layout: str
    levels: Mapping[str, Level]
    registers: tuple[Registers, ...]
    masked: tuple[tuple[str, int], ...]
    forms: tuple[VectorForm, ...]
    pause: str
    fence: str
    elf_machine: int
    linking: Linking | None
    c_triple: str
    emulators: tuple[str, ...]
    notable: tuple[str, ...]
    cpuinfo: tuple[str, ...]
    hosts: bool = False

    @property
    def pointer_bytes(self) -> int:
        """Of an address."""
        return 4 if "-p:32:32-" in self.data_layout else 8

    def implied(self, cpu: str) -> tuple[str, ...]:
        """The features that a cpu is known to imply: one of a level."""
        return next((level.implied for level in self.levels.values() if level.cpu == cpu), ())
