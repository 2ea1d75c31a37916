"""What is true of a processor architecture: an `Architecture` is all that Tengen knows of one. Each has a file of its own here.

The kernel language means the same on every architecture, to the bit. An architecture says how that is had there: what
LLVM is told of it, which registers hold vectors, and which instructions compute an operation of the language better
than LLVM's code for plain IR does. To be taken, an architecture must add, multiply, divide, take roots and fuse a
multiply-add of float32 and float64 with one rounding to nearest even, keep subnormal numbers, and convert between
float16 and float32 by instructions: a call of a library that does it would be a symbol which nobody defines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from tengen.base.record import NamedTuple, record


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

    def in_all_lanes(self, x: str) -> str | None:
        """The scalar that a vector was filled with; None: its lanes may differ."""
        ...


# A float32 rounded to the nearest integer, halves to even, and cut off where integers of 8 bits end; a NaN gives 0.
ROUNDS = {"uint8": "round to uint8", "int8": "round to int8"}


class VectorForm(NamedTuple):
    """Instructions for one operation of the kernel language on 16 lanes, for processors that have a feature.

    Attributes:
        op: the operation, as `Expr.op` names it, or one of ROUNDS, which several make together. feature: what the processor must have, as
            LLVM names it.
        emit: emits the instructions for the SSA names of the operands, and names the result. Its bits are those of
            `loops/interp.py` for every operand; an instruction that gives others is not a form.
        at_once: whether it is as quick for all operands; else it pays where one is the same in all lanes, as in matrix products.
    """

    op: str
    feature: str
    emit: Callable[[Emitter, list[str]], str]
    at_once: bool = True


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


class Alone(NamedTuple):
    """How a C program is made that runs without a C library (`deploy/freestanding.py`).

    Attributes:
        options: of zig's C compiler: a triple, and what follows. calls: C text, which says how a program starts and calls the system: where
            that is Linux, macros for `LINUX_CALLS`; else what that defines.
    """

    options: tuple[str, ...]
    calls: str


# With macros NUMBER, REGISTER(i) and CALL, and the numbers of system calls. Where a program starts, it goes on to `begin` with the address of
# its stack, where the number of arguments is, and behind it their addresses.
LINUX_CALLS = r"""
static word call(word number, word a, word b, word c, word d, word e, word f) {
    register word n __asm__(NUMBER) = number, r0 __asm__(REGISTER(0)) = a, r1 __asm__(REGISTER(1)) = b, r2 __asm__(REGISTER(2)) = c;
    register word r3 __asm__(REGISTER(3)) = d, r4 __asm__(REGISTER(4)) = e, r5 __asm__(REGISTER(5)) = f;
    __asm__ volatile(CALL : "+r"(r0) : "r"(n), "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5) : "memory");
    return r0;
}

static word get(int file, void *to, size_t bytes) { return call(READ, file, (word)to, (word)bytes, 0, 0, 0); }
static word put(int file, const void *from, size_t bytes) { return call(WRITE, file, (word)from, (word)bytes, 0, 0, 0); }
static int open_file(const char *name) { return (int)call(OPENAT, -100, (word)name, 0, 0, 0, 0); } /* -100: from this folder */
static void close_file(int file) { call(CLOSE, file, 0, 0, 0, 0, 0); }

void *malloc(size_t size) { /* pages of its own, to be read and written */
    word at = call(MMAP, 0, (word)size, 3, 0x22, -1, 0);
    return at < 0 && at > -4096 ? NULL : (void *)at;
}

void begin(word *stack) {
    for (word code = main((int)*stack, (char **)(stack + 1));;) call(EXIT, code, 0, 0, 0, 0, 0);
}
"""


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
        keeping: (LLVM's word for functions that keep all registers of their callers, who then save none around calls, the feature with
            which LLVM does not keep all bytes of them); "": no such.
        hosts: whether Tengen itself runs on it. lacking: the level of this machine's own processor where it has not all of these
            features. alone: for programs of one thread without a C library; None: they have one.
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
    lacking: tuple[str, tuple[str, ...]] = ("", ())
    keeping: tuple[str, str] = ("", "")
    alone: Alone | None = None

    @property
    def pointer_bytes(self) -> int:
        """Of an address."""
        return 4 if "-p:32:32-" in self.data_layout else 8

    def implied(self, cpu: str) -> tuple[str, ...]:
        """The features that a cpu is known to imply: one of a level."""
        return next((level.implied for level in self.levels.values() if level.cpu == cpu), ())


# ---- vector forms for registers of 16 bytes: 16 lanes of 32 bits are four of them

QUARTER = "<4 x i32>"


def picked(emit: Emitter, x: str, ty: str, lanes: Iterable[int]) -> str:
    """Some lanes of a vector of this type."""
    mask = [f"i32 {i}" for i in lanes]
    return emit.pure(f"shufflevector {ty} {x}, {ty} poison, <{len(mask)} x i32> <{', '.join(mask)}>")


def quarter(emit: Emitter, x: str, i: int) -> str:
    """Lanes 4 i to 4 i + 3 of a `<16 x i32>`."""
    return picked(emit, x, "<16 x i32>", range(4 * i, 4 * i + 4))


def joined(emit: Emitter, parts: list[str]) -> str:
    """Four quarters as a `<16 x i32>`."""
    for wide in (4, 8):
        lanes = ", ".join(f"i32 {j}" for j in range(2 * wide))
        pairs = zip(parts[::2], parts[1::2])
        parts = [emit.pure(f"shufflevector <{wide} x i32> {x}, <{wide} x i32> {y}, <{2 * wide} x i32> <{lanes}>") for x, y in pairs]
    return parts[0]


def by_quarters(emit: Emitter, args: list[str], ty: str, dot: Callable[[str, str, str], str]) -> str:
    """A dot product of integers on four registers. ty: what `dot` takes its second and third operand as; the first is `QUARTER`."""
    parts = []
    for i in range(4):
        total, a, b = (quarter(emit, x, i) for x in args)
        parts.append(dot(total, *(emit.convert("bitcast", x, QUARTER, ty) for x in (a, b))))
    return joined(emit, parts)


def dot4i_by_pairs(emit: Emitter, args: list[str], add_pairs: Callable[[Emitter, str, str], str]) -> str:
    """`dot4i` by products of 8 bits in 16, neighbouring ones of which are added to int32 totals. Exact for all operands: a product is
    at most 128 * 128 = 2^14, which 16 bits hold, and no two are added there: -128 * -128 twice, 2^15, would not fit.

    The first and the second pair of each lane are separated in both operands, so that neighbouring products are of one lane. This
    costs nothing where one operand was just loaded (a load separates them) and the other is one number in all lanes.

    Args:
        add_pairs: adds neighbouring ones of `<8 x i16>` products to `<4 x i32>` totals; of the emitter, the totals and the products.
    """
    totals = [quarter(emit, args[0], i) for i in range(4)]
    for pair in (0, 1):
        a, b = (_pairs(emit, x, pair) for x in args[1:])
        for i in range(4):
            x, y = (emit.convert("sext", side[i], "<8 x i8>", "<8 x i16>") for side in (a, b))
            totals[i] = add_pairs(emit, totals[i], emit.pure(f"mul <8 x i16> {x}, {y}"))
    return joined(emit, totals)


def _pairs(emit: Emitter, x: str, which: int) -> list[str]:
    """The first or second pair of bytes of each lane of a `<16 x i32>`, as a `<8 x i8>` for each quarter."""
    if (scalar := emit.in_all_lanes(x)) is not None:  # both halves of one register of 16 bytes
        one = emit.pure(f"insertelement {QUARTER} poison, i32 {scalar}, i64 0")
        words = picked(emit, emit.convert("bitcast", one, QUARTER, "<8 x i16>"), "<8 x i16>", [which] * 8)
        eights = [picked(emit, emit.convert("bitcast", words, "<8 x i16>", "<16 x i8>"), "<16 x i8>", range(i, i + 8)) for i in (0, 8)]
        return eights * 2
    words = picked(emit, emit.convert("bitcast", x, "<16 x i32>", "<32 x i16>"), "<32 x i16>", range(which, 32, 2))
    bytes_ = emit.convert("bitcast", words, "<16 x i16>", "<32 x i8>")
    return [picked(emit, bytes_, "<32 x i8>", range(i, i + 8)) for i in range(0, 32, 8)]
