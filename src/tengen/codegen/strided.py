"""Elements at a small stride as whole vectors and shuffles: the channels of pixels, rows that are read backwards.

In: statements of a kernel that follow each other. Loads from one buffer at one stride, the channels of the same pixels, share the
vectors that they are taken from; a load alone has its own. Stores to one buffer at stride n that fill all n places between two
elements become n stores of whole vectors:

    load r = x[ramp() * 3 + i]              a, b, c = x[i ..], x[i + 16 ..], x[i + 32 ..]
    load g = x[ramp() * 3 + (i + 1)]   ->   r, g, b = every third element of a, b and c
    load b = x[ramp() * 3 + (i + 2)]

No element is touched that the statements do not name, but for those that loads skip between their first and their last one. Bits are
moved, never computed with. Read next: `llvm.py`, which asks here before it gathers and scatters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tengen.base.dtype import DType, int16
from tengen.base.record import record
from tengen.codegen.types import memory_type, taken, vector, vector_memory
from tengen.loops.lang import LANES, Expr, as_int, const, is_const
from tengen.loops.statements import Buffer, Let, Load, Store

MOST_SIFTED = 4  # strided loads up to this stride load all elements between, too, and drop them
PART_BYTES = 16  # of a register, within which processors move bytes by one instruction
MOST_INTERLEAVED = 8  # so do loads up to this one, if they take half of them; and stores that leave no gap are written together


@record(frozen=True)
class Line:
    """The places base + first + lane * step of a buffer, where `first` and `step` are numbers."""

    base: Expr
    first: int
    step: int


@record(frozen=True)
class Sifted:
    """Where the lanes of a vector were loaded from: the places of a buffer, counted from `base`, of which low..high may be read."""

    buffer: Buffer
    base: Expr
    places: list[int]
    low: int
    high: int


class Emitter(Protocol):
    """What is asked of `llvm.py`. sifted: the vectors that were loaded since the last store, loop or branch, by name."""

    sifted: dict[str, Sifted]

    def base(self, b: Buffer) -> str: ...
    def address(self, base: str, ty: str, index: str) -> str: ...
    def value(self, e: Expr) -> str: ...
    def fresh(self, text: str, hint: str = "v") -> str: ...
    def pure(self, text: str) -> str: ...
    def write_vector(self, value: str, p: str, dt: DType, stream: bool) -> None: ...


def affine(index: Expr) -> tuple[Expr, Expr] | None:
    """(base, stride) of a vector index base + lane * stride, or None for any other."""
    if index.op == "splat":
        return index.args[0], const(0)
    if index.op == "ramp":
        return const(0), const(1)
    if index.op not in ("add", "sub", "mul"):
        return None
    a = affine(index.args[0])
    b = affine(index.args[1]) if a else None
    if a is None or b is None:
        return None
    if index.op == "add":
        return a[0] + b[0], a[1] + b[1]
    if index.op == "sub":
        return a[0] - b[0], a[1] - b[1]
    if is_const(a[1], 0):
        a, b = b, a
    return (a[0] * b[0], a[1] * b[0]) if is_const(b[1], 0) else None


def _split(e: Expr) -> tuple[Expr, int]:
    """A sum as the sum of its other terms, and that of its literals."""
    if is_const(e):
        return const(0), e.attr
    if e.op not in ("add", "sub"):
        return e, 0
    (a, n), (b, m) = _split(e.args[0]), _split(e.args[1])
    if not n and not m:
        return e, 0
    return (a + b, n + m) if e.op == "add" else (a - b, n - m)


def line_of(index: Expr) -> Line | None:
    """The places of a vector index, where its stride is a number other than 0 and 1."""
    found = affine(index) if index.lanes > 1 else None
    step = as_int(found[1]) if found else None
    if step is None or step in (0, 1):
        return None
    return Line(*_split(found[0]), step)


def loads_together(body: Sequence, i: int) -> list[tuple[int, Line]]:
    """The loads from statement `i` on that are taken from the same vectors, by their positions; empty if none is. Values that are
    computed between them change no memory."""
    found: list[tuple[int, Line]] = []
    for j in range(i, len(body)):
        s = body[j]
        if type(s) is Let and found:
            continue
        line = line_of(s.index) if type(s) is Load and s.count is None else None
        if type(s) is not Load or (not found and (line is None or abs(line.step) > MOST_INTERLEAVED)):
            break
        if line is not None and (not found or (s.buffer is body[i].buffer and _beside([x for _, x in found], line))):
            found.append((j, line))
    return found if found and abs(found[0][1].step) <= max(MOST_SIFTED, 2 * len(found)) else []


def groups_beside(body: Sequence, i: int) -> bool:
    """Whether statement `i` and the next load two groups, each into a scalar, of which the second lies behind the first."""
    some = body[i : i + 2]
    if len(some) < 2 or not all(type(s) is Load and s.group > 1 and s.var.lanes == 1 and s.buffer is body[i].buffer for s in some):
        return False
    (base, first), (other, second) = (_split(s.index) for s in some)
    return base is other and second - first == some[0].group


def stores_together(body: Sequence, i: int) -> list[Line]:
    """The lines of the stores from statement `i` on that fill all between the elements of each; empty if they leave gaps."""
    lines: list[Line] = []
    for s in body[i:]:
        line = line_of(s.index) if type(s) is Store and s.count is None else None
        if line is None or not 1 < line.step <= MOST_INTERLEAVED:
            break
        if lines and not (s.buffer is body[i].buffer and s.stream is body[i].stream and _beside(lines, line)):
            break
        lines.append(line)
        if len(lines) == line.step:
            return lines
    return []


def _beside(lines: Sequence[Line], line: Line) -> bool:
    """Whether the elements of a line lie between those of others, and are none of them."""
    firsts = [x.first for x in lines]
    new = line.first not in firsts and max(*firsts, line.first) - min(*firsts, line.first) < abs(line.step)
    return new and lines[0].base is line.base and lines[0].step == line.step


def load_together(f: Emitter, buffer: Buffer, lines: Sequence[Line]) -> list[str]:
    """The elements of these lines, as they lie in memory: loads of all from the first to the last one, and shuffles."""
    step, m, ty = lines[0].step, vector_memory(buffer.dtype, LANES), memory_type(buffer.dtype)
    ends = [x.first + i * step for x in lines for i in (0, LANES - 1)]
    low, high = min(ends), max(ends)
    starts = [*range(low, high - LANES + 1, LANES), high - LANES + 1]  # the last vector ends with the last element
    first = f.address(f.base(buffer), ty, f.value(lines[0].base + low))
    parts = [f.fresh(f"load {m}, ptr {f.address(first, ty, str(at - low))}, align {buffer.dtype.size}", "part") for at in starts]
    places = [[x.first + i * step for i in range(LANES)] for x in lines]
    if len(lines) == step:  # all of them, from low on
        whole = deinterleaved(f, m, parts)
        made = [whole[x.first - low] for x in lines]
    else:
        made = [_sifted(f, m, some, parts, starts) for some in places]
    f.sifted.update((x, Sifted(buffer, lines[0].base, some, low, high)) for x, some in zip(made, places))
    return made


def deinterleaved(f: Emitter, m: str, parts: Sequence[str]) -> list[str]:
    """The vectors of which `interleaved` makes these."""
    n = len(parts)
    if n % 2:
        starts = range(0, n * LANES, LANES)
        return [_sifted(f, m, range(i, n * LANES, n), parts, starts) for i in range(n)] if n > 1 else list(parts)
    half = n // 2
    pairs = list(zip(*(deinterleaved(f, m, parts[i : i + half]) for i in (0, half))))
    return [_sifted(f, m, range(i, 2 * LANES, 2), pair, (0, LANES)) for i in (0, 1) for pair in pairs]


def _sifted(f: Emitter, m: str, places: Sequence[int], parts: Sequence[str], starts: Sequence[int]) -> str:
    """The elements at these places, of vectors that begin at `starts`."""
    of = [min((at - starts[0]) // LANES, len(starts) - 1) for at in places]
    x = "poison"
    for part, (v, start) in enumerate(zip(parts, starts)):
        if part in of:
            lanes = [LANES + at - start if p == part else i for i, (at, p) in enumerate(zip(places, of))]
            x = f.pure(f"shufflevector {m} {x}, {m} {v}, {taken(lanes)}")
    return x


def bytes_beside(f: Emitter, a: Sifted, b: Sifted) -> str | None:
    """Unsigned bytes in turns, those of `a` first, each as an int16, two of which are a lane of 32 bits: four lanes at a time from one load of
    `PART_BYTES`, if they lie within so many; else None."""
    if a.buffer is not b.buffer or a.base is not b.base:
        return None
    turns = [at for pair in zip(a.places, b.places) for at in pair]
    low, high = min(a.low, b.low), max(a.high, b.high)
    count = PART_BYTES // int16.size
    lines = [turns[i : i + count] for i in range(0, len(turns), count)]
    starts = [min(min(line), high - PART_BYTES + 1) for line in lines]
    if min(starts) < low or any(max(line) - start >= PART_BYTES for line, start in zip(lines, starts)):
        return None
    first, ty = f.address(f.base(a.buffer), "i8", f.value(a.base)), vector("i8", PART_BYTES)
    parts = [f.fresh(f"load {ty}, ptr {f.address(first, 'i8', str(start))}, align 1", "part") for start in starts]
    while len(parts) > 1:  # bytes are moved within the parts of one vector by one instruction
        size = len(turns) * int16.size // len(parts)
        ty, wide = vector("i8", size), taken(range(2 * size))
        parts = [f.pure(f"shufflevector {ty} {x}, {ty} {y}, {wide}") for x, y in zip(parts[::2], parts[1::2])]
    zero = len(turns) * int16.size
    ty = vector("i8", zero)
    lanes = [x for i, (line, start) in enumerate(zip(lines, starts)) for at in line for x in (i * PART_BYTES + at - start, zero)]
    return f.pure(f"bitcast {ty} {f.pure(f'shufflevector {ty} {parts[0]}, {ty} zeroinitializer, {taken(lanes)}')} to {vector('i32', LANES)}")


def store_together(f: Emitter, stores: Sequence[Store], lines: Sequence[Line], values: Sequence[str]) -> None:
    """Stores vectors, as they lie in memory, at lines that together leave no gap."""
    buffer = stores[0].buffer
    m, ty = vector_memory(buffer.dtype, LANES), memory_type(buffer.dtype)
    order = sorted(range(len(lines)), key=lambda i: lines[i].first)
    first = f.address(f.base(buffer), ty, f.value(lines[0].base + lines[order[0]].first))
    vectors = [values[i] for i in order]
    for i, x in enumerate(_permuted(f, m, vectors) or interleaved(f, m, vectors)):
        f.write_vector(f"{m} {x}", f.address(first, ty, str(i * LANES)), buffer.dtype, stores[0].stream)


def _permuted(f: Emitter, m: str, vectors: Sequence[str]) -> list[str] | None:
    """What `interleaved` gives, where all lanes were loaded from places near those that they are stored at: pixels whose channels, or
    which themselves, are put in another order. Each result is then taken from one or two vectors in memory. None elsewhere."""
    of = [f.sifted[v] for v in vectors if v in f.sifted]
    if len(of) < len(vectors) or any((x.buffer, x.base, x.low) != (of[0].buffer, of[0].base, of[0].low) for x in of):
        return None
    x, dt = of[0], of[0].buffer.dtype
    order = [y.places[i] for i in range(LANES) for y in of]
    parts = [order[i : i + LANES] for i in range(0, len(order), LANES)]
    if any(max(part) - min(part) >= 2 * LANES for part in parts):
        return None
    first, made = f.address(f.base(x.buffer), memory_type(dt), f.value(x.base + x.low)), []
    for part in parts:
        low = min(min(part), x.high - LANES + 1)
        starts = sorted({low, max(low, max(part) - LANES + 1)})
        some = [f.fresh(f"load {m}, ptr {f.address(first, memory_type(dt), str(at - x.low))}, align {dt.size}", "part") for at in starts]
        lanes = [at - low if at < low + LANES else LANES + at - starts[-1] for at in part]
        made.append(f.pure(f"shufflevector {m} {some[0]}, {m} {some[-1]}, {taken(lanes)}"))
    return made


def interleaved(f: Emitter, m: str, vectors: Sequence[str]) -> list[str]:
    """The first lane of each of these vectors, then the second one of each, and so on, in as many vectors. Halves of them are
    interleaved by twos before."""
    n = len(vectors)
    if n == 1:
        return list(vectors)
    if n % 2 == 0:
        half = n // 2
        pairs = [_meshed(f, m, [vectors[i], vectors[half + i]]) for i in range(half)]
        return [x for part in zip(*pairs) for x in interleaved(f, m, part)]
    return _meshed(f, m, vectors)


def _meshed(f: Emitter, m: str, vectors: Sequence[str]) -> list[str]:
    """The same, one vector after the other."""
    n, made = len(vectors), []
    for part in range(n):
        x = vectors[0]
        for j in range(1, n):
            lanes = []
            for i in range(LANES):
                at, of = divmod(part * LANES + i, n)
                lanes.append(at if of == 0 and j == 1 else LANES + at if of == j else i)
            x = f.pure(f"shufflevector {m} {x}, {m} {vectors[j]}, {taken(lanes)}")
        made.append(x)
    return made
