"""Calls of Python by a program: nodes that run a Python function in every run of it.

In: a function of tensors, recorded where a script prints or calls what it does not compile. Out: a node `host_call`. A kernel of its own
calls the runtime (`tengen_host`) with the addresses of the operands and results; that takes the interpreter's lock and calls `_serve`,
which copies the operands, calls the function, and writes its results. What the function raises, the run raises.

Calls that do something are ordered: each takes and gives a number, a state of the program, so that it is neither left out nor moved
over another, in loops and branches too. Which function a node calls is not in the program, which other processes may find in the
cache: it is the value of an operand, a key of `_served`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import re
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from tengen.base.dtype import DType, int64
from tengen.base.errors import DTypeError, ShapeError, TraceError, VerifyError, VmapError, user_line
from tengen.base.record import NamedTuple
from tengen.compiler.arrays import new_buffer
from tengen.compiler.plans import Layout
from tengen.ir.graph import Graph
from tengen.ir.types import TensorType
from tengen.kernels.pointwise import over_dense
from tengen.loops.external import HOST
from tengen.ops.attributes import Count
from tengen.ops.batching import RULES
from tengen.ops.define import dispatch, primitive
from tengen.runtime import native
from tengen.runtime.paging import Place
from tengen.tensor.tensor import Tensor, as_tensor, assign, from_numpy, tensor_over, tracing

_KEY = TensorType((), int64)


@primitive
def host_call(operands: list[Tensor], likes: Sequence[Count], name: str):
    """Calls a Python function.

    Args:
        operands: the key of the function, a number that orders calls, what it is called with, and tensors of the types of its results.
        likes: the positions of those. name: what profiles call it.

    Returns the number, which the next call takes, and the function's results.
    """


@host_call.infer
def _(*types, likes, name):
    if len(types) < 2 or types[0] != _KEY or types[1] != _KEY or any(not 2 <= i < len(types) for i in likes):
        raise VerifyError(f"host_call takes two numbers i64[] before its operands, and gives types of operands, not {list(types[:2])}, {likes}")
    return (types[1], *(types[i] for i in likes))


@host_call.lower
def _(lo, ins, outs, likes, name):
    def launch(some, made):
        k = lo.kernel(re.sub(r"[^a-zA-Z0-9_]", "", name.split(",")[0]) or "call_python")
        places = [*((k.read(a), a.offset) for a in some), *((k.write(a), a.offset) for a in made)]
        k.external(HOST, places, [len(places), *(n for a in (*some, *made) for n in (a.ndim, *a.shape))], [])
        k.store(k.write(made[0]), made[0].offset, k.load(k.read(some[1]), some[1].offset))
        lo.launch(k)

    over_dense(lo, ins, outs, launch)


host_call.effect()
host_call.no_vjp("a function of Python that a program calls has no gradient")


def _refuse_examples(*_: Any) -> None:
    raise VmapError(f"{user_line()}: Python is called inside of vmap, whose program computes all examples at once; help: call it outside")


RULES["host_call"] = _refuse_examples


class _Site(NamedTuple):
    """A place in a program that calls Python: a function, the dtypes of its operands and results, what messages call it."""

    function: Callable[..., Any]
    operands: tuple[DType, ...]
    results: tuple[DType, ...]
    what: str

    def serve(self, places: Sequence[Place]) -> None:
        """Calls the function: behind two numbers are its operands, at the end its results."""
        made = self.function(*(from_numpy(_memory(*place, t).copy()) for place, t in zip(places[2:], self.operands)))
        if self.results:
            _write(self, made, places[-len(self.results) :])


_served: dict[int, Callable[[Sequence[Place]], None]] = {}  # by key
_keys = itertools.count(1)


def serve(key: int, function: Callable[[Sequence[Place]], None]) -> None:
    """Programs call this function by this key, with places in memory. The key is below 0, and the same in every process."""
    _register()
    _served[key] = function


@functools.cache
def _register() -> None:
    native.call_python(_serve)


_orders = threading.local()


def _order() -> Tensor:
    """The number that orders the calls which this thread records."""
    if not hasattr(_orders, "number"):
        _register()
        _orders.number = _number(0)
    return _orders.number


def _number(n: int) -> Tensor:
    """A number, no constant of what is being recorded."""
    return tensor_over(new_buffer(np.array(n, np.int64)), Layout((), int64))


def _key(site: _Site) -> Tensor:
    """The key of a function, which is kept as long as the tensor."""
    _register()
    number = next(_keys)
    _served[number] = site.serve
    made = _number(number)
    weakref.finalize(made, _served.pop, number, None).atexit = False
    return made


_forbidden = threading.local()


@contextlib.contextmanager
def for_files() -> Iterator[None]:
    """In this block, what is recorded is for a file, and cannot call Python."""
    _forbidden.now = True
    try:
        yield
    finally:
        del _forbidden.now


def _outermost() -> Any:
    recorder = tracing.recorder
    while recorder is not None and recorder._outer is not None:
        recorder = recorder._outer
    return recorder


def can_call() -> bool:
    """Whether what is being recorded can call Python: not for a file, nor where tensors are captured as constants, since the key of a
    function would be one."""
    recorder = _outermost()
    return recorder is None or not (recorder.constants or hasattr(_forbidden, "now"))


def runs_now() -> bool:
    """Whether Python that is called now is to run now, and not in each run of a program. Where a trace is run in parts, what was recorded
    before runs first."""
    recorder = tracing.recorder
    if recorder is None or not recorder.answers:
        return recorder is None
    if id(_order()) in recorder._written:
        recorder.asked()
    return True


def calls_python(graph: Graph) -> bool:
    """Whether a graph calls Python."""
    return any(n.op == host_call.name for g in graph.graphs() for n in g.nodes)


def record_call(
    function: Callable[..., Any], operands: Sequence[Tensor], likes: Sequence[Tensor] = (), what: str = "call_python"
) -> list[Tensor]:
    """Records a call of a function, in every run.

    Args:
        function: of tensors that have values; it returns a sequence of what has the types of `likes`. what: its name, for messages.

    Errors: TraceError where what is recorded cannot call Python.
    """
    if not can_call():
        raise TraceError(
            f"{user_line()}: {what} calls Python, and a graph or a file holds no Python, nor does a trace with capture_as_const=True; help: "
            "leave the call out, or make the function jit.unused where a script does not need it"
        )
    site = _Site(function, tuple(x.dtype for x in operands), tuple(x.dtype for x in likes), what)
    key, order = _key(site), _order()
    if (recorder := _outermost()) is not None:
        recorder._keep.append(key)
    positions = tuple(range(2 + len(operands), 2 + len(operands) + len(likes)))
    out = dispatch.run(host_call, (key, order, *(x.detach() for x in (*operands, *likes))), (positions, what))
    number, *made = out if isinstance(out, tuple) else (out,)
    assign(order, number)
    return made


def _serve(places: int, shapes: int) -> None:
    """What programs call: the function of the key that lies at the first place, with all places. shapes: how many there are, and of each
    the number of axes and the extents."""
    addresses = ctypes.POINTER(ctypes.c_void_p).from_buffer(ctypes.c_void_p(places))
    numbers = ctypes.POINTER(ctypes.c_int64).from_buffer(ctypes.c_void_p(shapes))
    found, at = [], 1
    for i in range(numbers[0]):
        ndim = numbers[at]
        found.append((addresses[i], tuple(numbers[at + 1 : at + 1 + ndim])))
        at += 1 + ndim
    _served[ctypes.c_int64.from_address(addresses[0]).value](found)


def _memory(address: int, shape: tuple[int, ...], t: DType) -> np.ndarray:
    size = prod(shape) * t.size
    if not size:
        return np.empty(shape, t.numpy)
    return np.frombuffer((ctypes.c_char * size).from_address(address), t.numpy).reshape(shape)


def _write(site: _Site, made: Any, there: Sequence[Place]) -> None:
    """Writes what a function returned. Errors: DTypeError or ShapeError where that has other types than were said."""
    if len(made) != len(there):
        raise ShapeError(f"{site.what} returned {len(made)} results, and {len(there)} are said")
    results = [Tensor(x, dtype=t) if isinstance(x, (bool, int, float)) else as_tensor(x) for x, t in zip(made, site.results)]
    for x, t, (address, shape) in zip(results, site.results, there):
        if x.shape != shape or x.dtype is not t:
            error = ShapeError if x.shape != shape else DTypeError
            raise error(
                f"{site.what} returned {x._layout.type!r}, and {TensorType(shape, t)!r} is said by its annotation or a call before; help: "
                ".astype, .reshape"
            )
        _memory(address, shape, t)[...] = x.numpy()
