"""Plans for eager calls: from (op, layouts, attributes) to a native callable.

A call is first reduced to its pattern: dtypes, rank, which extents are equal, how each input lies in memory. One program is
compiled for each pattern and serves all extents; a plan is that program with the extents and sizes of one call filled in. A
plan that is hot, because its calls have taken long, gets a program for its numbers alone (`specialise_when_hot`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, product
from math import prod
from time import perf_counter
from typing import Any

from tengen import compiler, kernels
from tengen.base.device import Device, common_device, cpu
from tengen.base.dtype import DType
from tengen.base.errors import ShapeError, Undecided
from tengen.base.record import NamedTuple, record
from tengen.base.tables import Interned, intern
from tengen.codegen.targets import Target
from tengen.compiler.pattern_cache import LEAST, Made, Make, Pattern, making, packed, ready
from tengen.compiler.program import Program, check_bytes, target_of, value_of
from tengen.compiler.schedules import tuned_schedules
from tengen.ir.graph import attr_key
from tengen.ir.types import TensorType
from tengen.kernels.axes import memory_order, merge_axes, streams
from tengen.kernels.lowering import Array, Lowering, contiguous_strides
from tengen.kernels.source import Leaf
from tengen.loops.extents import Numbers
from tengen.loops.lang import Expr, Index, var
from tengen.ops.calls import negative_zero
from tengen.ops.define import Op
from tengen.runtime import launch_log, native, pack, tiers

MOST_PLANS = 16_384  # in a table: they take about 8 KB each, and a third of a millisecond to make again
MOST_PROGRAMS = 4096  # in `_programs`; for one more all are forgotten: plans hold theirs, and others are read back when they are needed
HOT_AFTER_S = 0.025  # of a plan's calls before its numbers get a program of their own: about what making one takes


class Layout:
    """How a tensor lies in memory: shape, dtype, strides in elements, and on which device. Interned: compared by identity, so that
    what is looked up by layouts (plans, recordings) is looked up by devices too.

    Attributes:
        type: its `TensorType`. dense: no gaps and no overlaps, in some order of axes. interface: for NumPy, what
            `BufferMemory` says of all buffers of this layout. seen: what `tensor/sizes.py` shows of its shape; no attribute until it is
            asked for.
    """

    __slots__ = ("shape", "dtype", "strides", "device", "type", "size", "order", "contiguous", "interface", "seen", "__weakref__")
    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]
    device: Device
    interface: dict[str, Any] | None
    seen: Any
    _table: dict[tuple, Interned] = {}

    def __new__(cls, shape: tuple[int, ...], dtype: DType, strides: tuple[int, ...] | None = None, device: Device = cpu):
        key = (shape, dtype, strides, device.name)  # the name: it hashes without a call
        self = entry() if (entry := cls._table.get(key)) else None
        if self is None and strides is None:
            self = cls(shape, dtype, contiguous_strides(shape), device)
            intern(cls._table, key, self)  # under both keys: most are asked for without strides
        elif self is None:
            self = super().__new__(cls)
            self.shape, self.dtype, self.strides, self.device = shape, dtype, strides, device
            self.type, self.interface = TensorType(shape, dtype), None
            self.size = prod(shape)
            order = memory_order(self.array(0))
            dense = contiguous_strides(shape, order)
            fits = all(d == 1 or s == c for d, s, c in zip(shape, self.strides, dense))
            self.order = tuple(order) if fits else None
            self.contiguous = self.size <= 1 or all(
                d == 1 or s == c for d, s, c in zip(shape, self.strides, contiguous_strides(shape))
            )
            intern(cls._table, key, self)
        return self

    def array(self, id) -> Array:
        """The layout as an array of a lowering."""
        return Array(id, self.dtype, self.shape, self.strides)

    def same_places(self, other: Layout) -> bool:
        """Whether each element lies at the same place in both: strides of axes of one element say nothing."""
        if self.type is not other.type or self.device is not other.device:
            return False
        return self.size == 0 or all(d == 1 or a == b for d, a, b in zip(self.shape, self.strides, other.strides))

    def __repr__(self) -> str:
        return f"{self.type!r} strides {self.strides} on {self.device}"


def device_of(layouts: Iterable[Layout | None]) -> Device:
    """The one device of a call's operands. It is asked for when a plan is made, never when one is called. Errors: DeviceError where
    they are several."""
    return common_device(a.device for a in layouts if a is not None)


@record(eq=False)
class Plan:
    """A native callable (buffers in, buffers out) and the layouts of what it returns. The callable may become a faster one. zero:
    an attribute of its calls is 0.0, so that calls with -0.0, whose keys are equal, find it too, and must not take it."""

    call: Callable
    layouts: tuple[Layout, ...]
    zero: bool = False


_programs: dict = {}  # pattern -> (Program, layouts of its outputs for a composite)
_alike: dict = {}  # a pattern without attributes and arrays -> those, and the answers, of such programs with names -> where they are kept


def forget_programs() -> None:
    """Forgets the programs of all patterns in this process: an op has become another one. Those of Tengen's own ops are read from the
    cache when they are needed again."""
    _programs.clear()
    _alike.clear()
    _questions.clear()


def recording() -> bool:
    """Whether programs that are made now have their launches recorded."""
    return launch_log.active is not None


def make_plan(op: Op, layouts: Sequence[Layout | None], attrs: dict, alone: bool = False) -> Plan:
    """The plan of one eager call of a primitive op. `attrs` are canonical. alone: with a program for these numbers."""
    device = device_of(layouts)
    types = [None if a is None else a.type for a in layouts]
    out_types = op.infer_types(types, attrs)
    arrays = [None if a is None else a.array(("in", i)) for i, a in enumerate(layouts)]
    orders = [op.axis_order(arrays, t, attrs) for t in out_types]
    outs = [Layout(t.shape, t.dtype, contiguous_strides(t.shape, o), device) for t, o in zip(out_types, orders)]
    if all(o.size == 0 for o in outs):
        return Plan(native.make_plan(0, sum(a is not None for a in arrays), [0] * len(outs), 0, []), tuple(outs))
    if op.kind == "elementwise":
        program, values = _elementwise(op, arrays, outs, attrs)
    elif op.along_axis and len(layouts[0].shape) > 2 and layouts[0].contiguous and not any(orders):
        lines, axis = _lines_along(arrays[0], attrs["axis"])
        program, values = _general(op, device, [lines], orders, {**attrs, "axis": axis}, alone)
    else:
        program, values = _general(op, device, arrays, orders, attrs, alone)
    plan = finish_plan(program, sum(a is not None for a in arrays), outs, values)
    in_a_row = op.fuses and all(len(a.shape) <= 1 for a in (*layouts, *outs) if a is not None)  # known, its length changes nothing
    if op.kind == "elementwise" or not values or in_a_row:
        return plan
    return specialise_when_hot(plan, partial(make_plan, op, layouts, attrs, True), device)


def specialise_when_hot(plan: Plan, alone: Callable[[], Plan], device: Device = cpu) -> Plan:
    """The plan of a shape-generic program, which becomes that of a specialised one when it is hot.

    Its calls are timed. When they have taken HOT_AFTER_S in all, which is about what it takes to make a program, `alone` makes
    one for the numbers of this plan; it is compiled in the background (`runtime/tiers.py`), and the plan has it when it is there.
    That program knows more, is faster, and gives the same bits. So sizes that are met a few times make no program, and for any
    sizes little more time is spent on making programs than on running them."""
    generic, left = plan.call, HOT_AFTER_S

    def call(*data):
        nonlocal left, generic
        generic = tiers.bare(generic)
        if type(generic) is tiers.Timed:  # it has quick code, whose time says nothing, and may wait
            return generic(*data)
        start = perf_counter()
        result = generic(*data)
        left -= perf_counter() - start
        if left < 0 and plan.call is call and making():
            plan.call = generic  # until then, and for calls of other threads
            tiers.when_compiled(become, target_of(device))
        return result

    def become() -> None:
        if recording():  # a program made now would be recorded; after the block a next call asks again
            plan.call = call
            return
        found = alone()
        if all(map(Layout.same_places, found.layouts, plan.layouts)):
            plan.call = found.call

    if not recording():
        plan.call = call
    return plan


def _lines_along(a: Array, axis: int) -> tuple[Array, int]:
    """A contiguous array with the axes before and after `axis` merged into one each, and that axis's number in it."""
    parts = prod(a.shape[:axis]), a.shape[axis], prod(a.shape[axis + 1 :])
    shape = parts[axis == 0 : 3 - (axis == a.ndim - 1)]
    return Array(a.id, a.dtype, shape, contiguous_strides(shape), a.offset), int(axis > 0)


def make_overwrite(op: Op, layouts: Sequence[Layout], attrs: dict, over: int) -> Callable:
    """A native callable that writes the result of an op over one of the buffers it takes.

    Args:
        layouts: of the operands; then, where the result goes over none of them, of the target. None is empty. over: the place
            of the target: it has the result's shape and dtype, no element of it twice, and shares memory with no other buffer.
            If it is an operand, the op reads no other element of it than the one it writes. attrs: canonical.
    """
    device = device_of(layouts)
    arrays = [a.array(("in", i)) for i, a in enumerate(layouts)]
    if op.fuses:  # few axes make few programs: a row and a block of rows have the same
        order = memory_order(arrays[over])
        full = [a.expand(arrays[over].shape).permute(order) for a in arrays]
        groups = merge_axes(full[over].shape, full)
        shape = tuple(prod(full[over].shape[i] for i in g) for g in groups)
        arrays = [Array(a.id, a.dtype, shape, tuple(a.strides[g[-1]] for g in groups)) for a in full]
    n = len(arrays) if op.variadic else len(op.tensors)

    def make(call: Numbered, target: Target) -> Made:
        lo = Lowering(target, call.names, tuned_schedules(target))
        some = [a for a in call.arrays if a is not None]  # all of them
        op.lower_to(lo, some[:n], [some[over]], call.attrs)
        return compiler.building.build(lo, [a.id for a in some], ["nothing"], op.name, recording(), device), None

    found = by_pattern(op, device, attrs, arrays, make, how=(over,), known=frozenset())
    return _call(found.program, len(arrays), [-(over + 1)], found.values)


def _frozen(attrs: dict) -> tuple:
    return tuple((k, exact_key((v,))) for k, v in attrs.items())


def zero_among(attrs: tuple) -> bool:
    """Whether one of the attributes, or of the numbers in them, is 0.0."""
    return any(zero_among(a) if isinstance(a, tuple) else isinstance(a, float) and a == 0 for a in attrs)


def exact_key(attrs: tuple) -> tuple:
    """The attributes as a key that tells -0.0 from 0.0."""
    odd = any(negative_zero(a) or (isinstance(a, tuple) and any(map(negative_zero, a))) for a in attrs)
    return ("-0.0", attr_key(attrs)) if odd else attrs


class Symbols:
    """Names for the numbers of a call: one symbol per distinct extent, and one per stride. `known` extents stay numbers. groups: of the
    extents that get names, in order; those that are equal have the same name in one group alone. Default: they are all of one."""

    def __init__(self, known: frozenset[int] = frozenset(), groups: Iterable[int] = ()) -> None:
        self.known = known
        self.names: list[Expr] = []
        self.values: list[int] = []
        self.extents: dict[tuple[int, int], Expr] = {}
        self._groups = iter(groups)

    def new(self, value: int) -> Expr:
        e = var(f"n{len(self.names)}")
        self.names.append(e)
        self.values.append(value)
        return e

    def extent(self, d: int) -> Index:
        if d < 0:  # of a diagonal below the main one
            n = self.extent(-d)
            return d if isinstance(n, int) else -n
        if d < LEAST or d in self.known:
            return d
        place = d, next(self._groups, 0)
        if place not in self.extents:
            self.extents[place] = self.new(d)
        return self.extents[place]

    def stride(self, s: int) -> Index:
        return s if s in (0, 1) else self.new(s)


def _elementwise(op: Op, arrays: Sequence[Array], outs: Sequence[Layout], attrs: dict) -> tuple[Program, list[int]]:
    """Axes are merged before they get names, so that all dense calls share one program."""
    out = outs[0].array("out0")
    order = memory_order(out)
    full = [a.expand(out.shape).permute(order) for a in arrays] + [out.permute(order)]
    groups = merge_axes(full[-1].shape, full)
    sym = Symbols()
    shape = tuple(sym.new(prod(full[-1].shape[i] for i in g)) for g in groups)
    named = [Array(a.id, a.dtype, shape, tuple(sym.stride(a.strides[g[-1]]) for g in groups)) for a in full]
    large = streams([out])
    device = outs[0].device
    key = (op, _frozen(attrs), tuple((a.dtype, a.strides) for a in named), device, large, recording())

    def make(target: Target) -> Made:
        lo = Lowering(target, sym.names)
        source = op.make_source([Leaf(a) for a in named[:-1]], TensorType(shape, out.dtype), attrs)
        kernels.pointwise.pointwise(lo, [source], [named[-1]], op.name, large)
        return compiler.building.build(lo, [a.id for a in arrays], ["out0"], op.name, recording(), device), None

    made = _programs.get(key) or _kept(key, _ready(Pattern(op, attrs, ("elementwise", large), named, (), len(sym.names)), device, make))
    return made[0], sym.values


def _general(
    op: Op, device: Device, arrays: Sequence[Array | None], orders: Sequence, attrs: dict, alone: bool
) -> tuple[Program, list[int]]:
    # the order of the outputs' axes is part of the pattern: with names for strides an op could not tell it
    def make(call: Numbered, target: Target) -> Made:
        return _program(op, device, call, orders, target), None

    found = by_pattern(op, device, attrs, arrays, make, tuple(None if o is None else tuple(o) for o in orders), alone)
    return found.program, found.values


class Numbered(NamedTuple):
    """A call with names in the place of its numbers, and what they stand for; without names, the call as it is. extents: those of the
    names that are no strides."""

    arrays: Sequence[Array | None]
    attrs: dict[str, Any]
    names: list[Expr]
    values: list[int]
    extents: frozenset[Expr] = frozenset()

    @property
    def key(self) -> tuple:
        """What decides the program, beside op, device and how results lie."""
        return _frozen(self.attrs), tuple(None if a is None else (a.dtype, a.shape, a.strides) for a in self.arrays)


class Found(NamedTuple):
    """A program for a call, with the arrays of its results where who made it said them, and the numbers that it is called with."""

    made: Made
    names: list[Expr]
    values: list[int]

    @property
    def program(self) -> Program:
        """The program alone."""
        return self.made[0]


MOST_WAYS = 64  # to name extents that are equal: to look for a program takes 50 microseconds, and to make one 20 ms and more
MOST_QUESTIONS = 8  # that a pattern's op may ask of its numbers; who asks more is made for the numbers

_questions: dict = {}  # a pattern, and the answers so far -> the condition that is asked next; None: it has no program


def by_pattern(
    op: Op, device: Device, attrs: dict, arrays: Sequence[Array | None], make: Callable[[Numbered, Target], Made], orders: tuple = (),
    alone: bool = False, how: tuple = (), known: frozenset[int] | None = None,
) -> Found:  # fmt: skip
    """The program for a call: shape-generic, with names for extents, strides, and attributes that are extents; else, where the op
    needs those attributes as numbers, with names for the rest; else for these numbers alone, as also where that is wanted or where
    it was made before.

    Args:
        make: gives the program, and whatever its user wants kept with it. how: what else decides the program: over which operands
            results are stored. known: extents that stay numbers; None: by the op's rule.
    """
    plain = Numbered(arrays, attrs, [], [])
    rest = (device, orders, recording())
    numbers = ((op, how), *plain.key, device)
    special = (*numbers, recording())

    def for_these_numbers() -> Found:
        made = _programs.get(special)
        if made is None:
            pattern = Pattern(op, attrs, how, arrays, orders, 0, alone=True)
            made = _kept(special, _ready(pattern, device, lambda target: make(plain, target)))
        return Found(made, [], [])

    if alone or special in _programs or (*numbers, False) in _programs:
        return for_these_numbers()
    known = op.known_extents(arrays, attrs) if known is None else known
    for call in _with_names(op, arrays, attrs, known):
        key = ((op, how), *call.key, *rest)
        alike = _alike.setdefault((key[0], *rest), {})
        for other in () if key in _programs else tuple(alike):
            made = _programs.get(alike[other])
            if made is None or (values := _matched(other[:2], made[0].params, numbers[1:3])) is None:
                continue
            if _holds(other[2], made[0].params, values):
                return Found(made, made[0].params, values)
        for some, get in _ways(arrays, attrs, known, call, device):
            pattern = Pattern(op, some.attrs, how, some.arrays, orders, len(some.names), extents=some.extents)
            of_some = ((op, how), *some.key, *rest)
            found = _answered(of_some, pattern, some, device, lambda target, some=some: make(some, target), get)
            if found is not None:
                made, at, answers = found
                alike[(*some.key, answers)] = at
                return Found(made, some.names, some.values)
    return for_these_numbers()  # what does not fit is told with numbers


def _with_names(op: Op, arrays: Sequence[Array | None], attrs: dict, known: frozenset[int]) -> Iterator[Numbered]:
    """A call with names for its numbers: attributes that are extents among them, then without these."""
    sym = Symbols(known)
    named = [None if a is None else named_array(a, sym) for a in arrays]
    names, values = sym.names[:], sym.values[:]
    opened = named_attributes(op, arrays, attrs, sym)
    if opened != attrs:
        yield Numbered(named, opened, sym.names, sym.values, frozenset(sym.extents.values()))
    yield Numbered(named, attrs, names, values, frozenset(sym.extents.values()).intersection(names))


def _ways(
    arrays: Sequence[Array | None], attrs: dict, known: frozenset[int], call: Numbered, device: Device
) -> Iterator[tuple[Numbered, Callable[..., Made | None]]]:
    """Patterns that serve a call, and what gets the program of each: where a pack is used, its own pattern, and then those with several
    names for extents that are equal, if their programs are packed; at last its own, whose program is made where it is not there."""
    if pack.current(target_of(device)) is not None and not recording():
        yield call, packed
        if call.attrs is attrs:  # an attribute that is an extent could be any of several names
            for some in _wider(arrays, attrs, known, call):
                yield some, packed
    yield call, _ready


def _wider(arrays: Sequence[Array | None], attrs: dict, known: frozenset[int], call: Numbered) -> Iterator[Numbered]:
    """A call with several names for extents that are equal, in each way to share them out, those with the fewest names first. None of one
    that has more ways than MOST_WAYS. Its program, if there is one, is right for the call, where they are equal by chance."""
    named = [d for a in call.arrays if a is not None for d in a.shape if isinstance(d, Expr)]
    places = {d: [i for i, other in enumerate(named) if other == d] for d in dict.fromkeys(named)}
    ways = [list(islice(_shared_out(len(at)), MOST_WAYS + 1)) for at in places.values()]
    if not 1 < prod(map(len, ways)) <= MOST_WAYS:
        return
    for way in sorted(product(*ways), key=lambda way: sum(map(max, way)))[1:]:  # the first one is the call's own
        number = dict(zip((i for at in places.values() for i in at), (n for share in way for n in share)))
        sym = Symbols(known, [number[i] for i in range(len(named))])
        some = [None if a is None else named_array(a, sym) for a in arrays]
        yield Numbered(some, attrs, sym.names, sym.values, frozenset(sym.extents.values()))


def _shared_out(n: int) -> Iterator[tuple[int, ...]]:
    """Each way to share n things out among groups without names: the number of each one's group, where the first of a group has the next
    number (Knuth, The Art of Computer Programming, 7.2.1.5: restricted growth strings)."""
    if n == 0:
        yield ()
        return
    for way in _shared_out(n - 1):
        for group in range(max(way, default=-1) + 2):
            yield (*way, group)


def _answered(
    key: tuple, pattern: Pattern, call: Numbered, device: Device, make: Make, get: Callable[..., Made | None]
) -> tuple[Made, tuple, tuple] | None:
    """The program of a pattern that `get` gives, where it is kept, and the answers that it depends on. What its op asks is answered with the
    numbers of the call, which may lead to a program that is there. None: there is no program without numbers, or `get` has none."""
    numbers = Numbers(dict(zip(call.names, call.values)))
    at: tuple = key
    while len(pattern.answers) <= MOST_QUESTIONS:
        if (made := _programs.get(at)) is not None:
            return made, at, pattern.answers
        if at not in _questions:
            try:
                found = get(pattern, device, make)
                return None if found is None else (_kept(at, found), at, pattern.answers)
            except (Undecided, ShapeError) as e:
                _questions[at] = getattr(e, "asked", None)
        asked = _questions[at]
        if asked is None:
            return None
        pattern = replace(pattern, answers=(*pattern.answers, (asked, bool(numbers(asked)))))
        at = (*key, pattern.answers)
    return None


def _kept(key: tuple, made: Made) -> Made:
    """Keeps a program for other calls of its pattern."""
    if len(_programs) >= MOST_PROGRAMS:
        forget_programs()
    _programs[key] = made
    return made


def _holds(answers: Iterable[tuple[Expr, bool]], names: Sequence[Expr], values: Sequence[int]) -> bool:
    """Whether conditions on symbols are answered so by these numbers."""
    numbers = Numbers(dict(zip(names, values)))
    return all(bool(numbers(asked)) == answer for asked, answer in answers)


def _ready(pattern: Pattern, device: Device, make: Make) -> Made:
    """The program of a pattern: made now if its launches are recorded, else found or made, and kept."""
    make = pattern.answering(make)
    return make(target_of(device)) if recording() else ready(pattern, device, make)


def _matched(pattern: Any, names: list[Expr], numbers: Any) -> list[int] | None:
    """The numbers for the names of a pattern (nested tuples with expressions in them) that make it these numbers; None if there
    are none. Extents of a call that are equal by chance, or equal to one that is known, need no program of their own."""
    known: dict[Expr, int] = {}
    derived: list[tuple[Expr, int]] = []

    def same(p: Any, n: Any) -> bool:
        if isinstance(p, Expr):
            if p.op != "var":
                derived.append((p, n))
                return True
            return type(n) is int and n > 1 and known.setdefault(p, n) == n
        if type(p) is tuple and type(n) is tuple:
            return len(p) == len(n) and all(map(same, p, n))
        return p == n

    if not same(pattern, numbers) or len(known) != len(names):
        return None
    values = [known[e] for e in names]
    return values if all(value_of(e, names, values) == n for e, n in derived) else None


def finish_plan(program: Program, n_inputs: int, outs: Sequence[Layout], values: Sequence[int]) -> Plan:
    """The program with the numbers of one call filled in."""
    sizes = [check_bytes(o.size * o.dtype.size, f"a result of type {o.type!r}") for o in outs]
    plan = Plan(_call(program, n_inputs, sizes, values), tuple(outs))
    tiers.when_bare(timed := plan.call, lambda call: setattr(plan, "call", call) if plan.call is timed else None)
    return plan


def _call(program: Program, n_inputs: int, sizes: Sequence[int], values: Sequence[int]) -> Callable:
    if program.launches is None:
        return program.plan(n_inputs, sizes, values)

    def make(where: str | None) -> Callable:
        entry = launch_log.see(launch_log.active, launch_log.new_entry(program, values, where))
        return program.plan(n_inputs, sizes, values, entry=entry)

    return launch_log.by_line(make)


def named_array(a: Array, sym: Symbols) -> Array:
    """The array with names for its extents; strides follow from them where it is dense."""
    shape = tuple(sym.extent(d) for d in a.shape)
    layout = Layout(a.shape, a.dtype, a.strides)
    if layout.order is not None and layout.size:
        return Array(a.id, a.dtype, shape, contiguous_strides(shape, layout.order))
    return Array(a.id, a.dtype, shape, tuple(sym.stride(s) for s in a.strides))


def named_attributes(op: Op, arrays: Sequence[Array | None], attrs: dict, sym: Symbols) -> dict:
    """The attributes, with names for those that are extents or shapes. Those of the op that a derived one is of stand in its `of`."""
    extents = op.named_extents(arrays, attrs)

    def named(v: Any) -> Any:
        return v if v is None else sym.extent(v) if isinstance(v, int) else tuple(map(named, v))

    def some(given: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        return {k: named(v) if k in extents else tuple(some(v).items()) if k == "of" else v for k, v in given}

    found = some(attrs.items())
    return found | {k: named(found[k]) for k in op.steps}


def _program(op: Op, device: Device, call: Numbered, orders: Sequence, target: Target) -> Program:
    types = [None if a is None else TensorType(a.shape, a.dtype) for a in call.arrays]
    lo = Lowering(target, call.names, tuned_schedules(target))
    outs = []
    for i, (t, order) in enumerate(zip(op.infer_types(types, call.attrs), orders)):
        outs.append(Array(f"out{i}", t.dtype, t.shape, contiguous_strides(t.shape, order)))
    op.lower_to(lo, call.arrays, outs, call.attrs)
    ins = [("in", i) for i, a in enumerate(call.arrays) if a is not None]
    return compiler.building.build(lo, ins, [o.id for o in outs], op.name, recording(), device)
