"""Kernels that differ in nothing but numbers become one, which gets the numbers as integer parameters.

In: kernels without parameters, as a program of known extents has them. Out: for some of them a kernel that does the same, and the
numbers to call it with. A network repeats its layers with other extents, so what is the same but for these is compiled once.

A number becomes a parameter where that costs no time: where a kernel has few of them, which stay in registers; divisors outside of
loops alone, since dividing by a literal is a multiplication. Numbers in vectors of indices, 0 and 1 stay what they are, too: they
decide how memory is read. Only integers that indices and conditions are made of come from elsewhere, and they are the same ones, so
no bit of a result changes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace

from tengen.base.dtype import bool_, int64
from tengen.loops.form import form
from tengen.loops.lang import Expr, const, expr, var
from tengen.loops.statements import Assign, Buffer, Declare, For, If, Kernel, Let, Load, Prefetch, Store

MOST_NUMBERS = 6  # parameters of a kernel, at most: they stay in registers, beside what its loops need
MOST_IN_EXPRESSION = 64  # literals of one expression that are looked at
_OPEN = var("_number")  # stands for a literal while kernels are compared

Map = Callable[[Expr, bool], Expr]  # the other argument: whether divisors may become parameters
Known = dict[tuple[Expr, bool], tuple[Expr, tuple[int, ...]]]  # what `_literals` has found


def shared(kernels: Iterable[Kernel]) -> dict[Kernel, tuple[Kernel, tuple[int, ...]]]:
    """For each kernel that shares another's code, and for that other one: the kernel to call in its place, and the numbers that it is
    to be given. Kernels of one form count as one; what is not among the keys stays as it is."""
    similar: dict[Hashable, list[Kernel]] = {}  # in kinds of statements: most kernels are like no other, which this tells at once
    for k in kernels:
        if not k.ints:
            similar.setdefault(_outline(k.body), []).append(k)
    groups: dict[Hashable, list[_Opened]] = {}
    known: Known = {}
    for k in (k for some in similar.values() if len(some) > 1 for k in some):
        opened = _Opened(k, known)
        groups.setdefault(opened.key, []).append(opened)
    found: dict[Kernel, tuple[Kernel, tuple[int, ...]]] = {}
    for group in groups.values():
        for some in _alike(group):
            found.update(_one_of(some))
    return found


class _Opened:
    """A kernel with its literals apart.

    Attributes:
        literals: those that may become parameters, in the order in which they stand there. key: equal for kernels that differ in these
            alone, and in how many pieces and how much scratch memory they have.
    """

    def __init__(self, kernel: Kernel, known: Known):
        self.kernel, self.known, self.literals = kernel, known, list[int]()
        body = _mapped(kernel.body, self._opened)
        scratch = [replace(b, size=0) for b in kernel.scratch]
        self.key = form(replace(kernel, body=body, scratch=scratch, pieces=const(0)))

    def _opened(self, e: Expr, divisors: bool) -> Expr:
        opened, literals = _literals(e, divisors, self.known)
        self.literals += literals
        return opened

    def with_numbers(self, chosen: Sequence[Expr | None], scratch: Sequence[int | None]) -> Kernel:
        """The kernel with parameters in place of the literals for which one is chosen."""
        places = iter(chosen)
        k = self.kernel
        sizes = dict(zip(k.scratch, [replace(b, size=n) for b, n in zip(k.scratch, scratch)]))
        body = _mapped(k.body, lambda e, divisors: _filled(e, divisors, self.known, places), sizes)
        ints = list(dict.fromkeys(p for p in chosen if p is not None))
        return replace(k, ints=ints, body=body, scratch=list(sizes.values()))


def _one_of(group: Sequence[_Opened]) -> dict[Kernel, tuple[Kernel, tuple[int, ...]]]:
    """One kernel for several, with a parameter for each literal that differs among them; literals that always agree share one."""
    values = list(zip(*(o.literals for o in group)))  # of each literal, in each kernel
    different = list(dict.fromkeys(v for v in values if len(set(v)) > 1))
    names = {v: var(f"_number{i}") for i, v in enumerate(different)}
    sizes = [max(b.size or 0 for b in same) for same in zip(*(o.kernel.scratch for o in group))]
    kernel = group[0].with_numbers([names.get(v) for v in values], sizes)
    return {o.kernel: (kernel, tuple(v[i] for v in different)) for i, o in enumerate(group)}


def _alike(group: Sequence[_Opened]) -> Iterator[Sequence[_Opened]]:
    """Parts of a group of which one kernel is to be made: as large as `MOST_NUMBERS` allows."""
    while len(group) > 1:
        some, rest = [group[0]], []
        for o in group[1:]:
            columns = zip(*(x.literals for x in (*some, o)))
            fits = len({v for v in columns if len(set(v)) > 1}) <= MOST_NUMBERS
            (some if fits else rest).append(o)
        if len(some) > 1:
            yield some
        group = rest


# ---- expressions: literals apart, and parameters in their place --------------------------------------------------------------


def _literals(e: Expr, divisors: bool, known: Known) -> tuple[Expr, tuple[int, ...]]:
    """An expression with `_OPEN` in place of its literals, and these, in order. divisors: whether divisors are among them."""
    if e.op == "const":
        return (_OPEN, (e.attr,)) if _is_open(e) else (e, ())
    if not e.args or not _is_index(e):
        return e, ()
    found = known.get((e, divisors))
    if found is None:
        found = known[e, divisors] = _apart(e, divisors, known)
    return found


def _apart(e: Expr, divisors: bool, known: Known) -> tuple[Expr, tuple[int, ...]]:
    """The same, of an index that is no literal."""
    some = [_literals(a, divisors, known) for a in _looked_at(e, divisors)]
    numbers = tuple(n for _, ns in some for n in ns)
    if not 0 < len(numbers) <= MOST_IN_EXPRESSION:
        return e, ()
    args = (*(a for a, _ in some), *e.args[len(some) :])
    return expr(e.op, args, e.dtype, e.lanes, e.attr), numbers


def _filled(e: Expr, divisors: bool, known: Known, places: Iterator[Expr | None]) -> Expr:
    """An expression with what `places` gives, in order, for its literals; None leaves one as it is."""
    if e.op == "const":
        chosen = next(places) if _is_open(e) else None
        return e if chosen is None else chosen
    if not e.args or not _is_index(e) or not _literals(e, divisors, known)[1]:
        return e
    some = _looked_at(e, divisors)
    args = (*(_filled(a, divisors, known, places) for a in some), *e.args[len(some) :])
    return e if args == e.args else expr(e.op, args, e.dtype, e.lanes, e.attr)


def _looked_at(e: Expr, divisors: bool) -> tuple[Expr, ...]:
    """The operands whose literals may become parameters."""
    divides = e.op in ("quo", "rem", "floordiv", "floormod")
    return e.args[:1] if divides and not divisors else e.args


def _is_open(e: Expr) -> bool:
    return e.dtype is int64 and e.attr not in (0, 1)


def _is_index(e: Expr) -> bool:
    """Whether it is a scalar that literals of indices and conditions stand in."""
    return e.lanes == 1 and (e.dtype is int64 or e.dtype is bool_) and e.op not in ("lane", "fold")  # of vectors


# ---- statements ------------------------------------------------------------------------------------------------------------


def _outline(body: Iterable) -> Hashable:
    """Which statements there are."""
    inner = lambda s: (For, _outline(s.body)) if type(s) is For else (If, _outline(s.body), _outline(s.orelse))
    return tuple([inner(s) if type(s) in (For, If) else type(s) for s in body])


def _mapped(body: Iterable, f: Map, scratch: dict[Buffer, Buffer] | None = None, in_loop: bool = False) -> list:
    """The statements with other expressions. scratch: other buffers in the place of these."""
    buffer = lambda b: (scratch or {}).get(b, b)
    block = lambda body, in_loop=in_loop: _mapped(body, f, scratch, in_loop)
    one = lambda e: f(e, not in_loop)
    some = lambda e: None if e is None else one(e)

    def statement(s):
        match s:
            case Let() | Declare() | Assign():
                return type(s)(s.var, one(s.value))
            case Load():
                return Load(s.var, buffer(s.buffer), one(s.index), some(s.count), some(s.other))
            case Store():
                return Store(buffer(s.buffer), one(s.index), one(s.value), some(s.count), s.stream)
            case Prefetch():
                return Prefetch(buffer(s.buffer), one(s.index))
            case For():
                return For(s.var, one(s.start), one(s.stop), s.step, block(s.body, True))
            case If():
                return If(one(s.cond), block(s.body), block(s.orelse))
        return s  # a call of a C function: its numbers are part of the call

    return [statement(s) for s in body]
