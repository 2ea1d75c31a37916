"""Collective operations among the processes of a group, with gradients.

In: a tensor; `group`, `device` and the axes as MegEngine takes them. Out: a tensor, on the tape. All processes of the group call
the same operation, with tensors of one shape and dtype, in the same order; where they do not, each gets an error that says what
every rank wanted. Sums are added in the order of the ranks, ((rank 0 + rank 1) + rank 2) + ..., by Tengen's own kernels, so that
their bits depend neither on the transport nor on timing.

Inside of a trace an operation is a node of the program, which calls Python in every run (`tensor/host.py`): the program is not cut.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tengen.autodiff.function import Function
from tengen.base.device import Device
from tengen.base.dtype import dtype as dtype_named
from tengen.base.errors import AxisError, DeviceError, DistributedError, DTypeError, ShapeError, TraceError, user_line
from tengen.compiler.arrays import buffer_over, empty_row
from tengen.compiler.plans import Layout
from tengen.ops.calls import all_with_line
from tengen.ops.define import REGISTRY
from tengen.runtime.environment import sources
from tengen.tensor import Tensor, tensor_over, tracing
from tengen.tensor.batched import mapping_of
from tengen.tensor.host import record_call
from tengen.tensor.nodes import on_tape, own_levels
from tengen.transport.channel import memory
from tengen.transport.group import FACTS, WORLD, Group, world

MODES = (
    "all_gather", "all_reduce_max", "all_reduce_min", "all_reduce_sum", "all_to_all", "broadcast", "gather", "reduce_scatter_sum",
    "reduce_sum", "scatter",
)  # fmt: skip
FACTS.append(lambda: f"sources {sources()[:12]}")
memory.install(empty_row)
REDUCTIONS = ("ranks", "library")
SMALL = 16 << 10  # bytes up to which all ranks send a tensor whole to be reduced, which is one exchange instead of two


# ---- arrays -------------------------------------------------------------------------------------------------------------------


def as_row(t: Tensor) -> np.ndarray:
    """A tensor's elements in row-major order, without a copy where they lie so; else by a kernel, which takes half of NumPy's time for the
    gradient of a convolution's filter."""
    if not t._layout.contiguous and tracing.recorder is None:
        t = REGISTRY["reshape"](t.detach(), (-1,))
    return np.ascontiguousarray(t.numpy()).reshape(-1)


def tensor_over_row(a: np.ndarray, shape: tuple[int, ...] | None = None) -> Tensor:
    """A tensor over the memory of a contiguous array, of the array's shape or another of as many elements."""
    return tensor_over(buffer_over(a), Layout(a.shape if shape is None else shape, dtype_named(a.dtype)))


def packed(rows: Sequence[np.ndarray]) -> np.ndarray:
    """The elements of rows of one dtype, one after another, in memory of their own."""
    return np.concatenate(rows, out=empty_row(sum(row.size for row in rows), rows[0].dtype))


def pieces(n: int, parts: int) -> list[int]:
    """The sizes of `parts` pieces of n elements, which differ by one at most."""
    return [(r + 1) * n // parts - r * n // parts for r in range(parts)]


def combined(op: str, rows: Sequence[np.ndarray]) -> Tensor:
    """The rows combined elementwise, in their order."""
    return functools.reduce(REGISTRY[op], [tensor_over_row(row) for row in rows])


def fold(op: str, rows: Sequence[np.ndarray]) -> np.ndarray:
    """`combined` as an array."""
    return combined(op, rows).numpy()


def reduce_scatter(
    op: str, flat: np.ndarray, group: Group, sizes: Sequence[int], text: str, present: Sequence[bool] | None = None,
    before: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """This rank's piece of the elementwise combination of all ranks' arrays, in their order. present: whose arrays count, default all.
    before: a piece that comes before theirs."""
    out: np.ndarray | None = None
    for at, rows in group.channel.exchanged(flat, sizes, text):
        there = [row for r, row in enumerate(rows) if present is None or present[r]]
        part = fold(op, there if before is None else [before[at : at + there[0].size], *there])
        if out is None:
            out = empty_row(sizes[group.rank], part.dtype)
        out[at : at + part.size] = part
    assert out is not None
    return out


def _all_reduced(name: str, op: str, group: Group, inp: Tensor, note: str) -> Tensor:
    """The elementwise combination of all ranks' tensors, on each rank: every rank combines a piece, then the pieces are gathered; of a small
    tensor every rank combines all of it, which is one exchange."""
    flat, parts, text = as_row(inp), group.size, _text(name, inp, note)
    if flat.nbytes <= SMALL:
        whole = group.channel.all_gather(flat, [flat.size] * parts, text)
        total = combined(op, list(whole.reshape(parts, flat.size)))
        return tensor_over(total._data, Layout(inp.shape, total.dtype))
    sizes = pieces(flat.size, parts)
    piece = reduce_scatter(op, flat, group, sizes, text)
    return tensor_over_row(group.channel.all_gather(piece, sizes, f"{text}, gathered"), inp.shape)


def _text(name: str, t: Tensor, more: str = "") -> str:
    return f"{name} of {t._layout.type!r}{more}"


# ---- operations with gradients ------------------------------------------------------------------------------------------------


class _Collective(Function):
    """A collective operation whose gradient is another one.

    Attributes: name: for messages. run: what it does with a tensor, and with a note for the other ranks: whether a gradient is
        recorded, which all do or none. back: the gradient of its input for that of its output. shape: of the result, for the tensor's;
        without it the same. out: the result.

    In the body of a loop or a branch of a program it has no gradient, which walks through that body as a graph, where nothing says what the
    other processes do; asking for one is an error.
    """

    _is_recorded = False

    def __init__(
        self, name: str, run: Callable[[Tensor, str], Tensor], back: Callable[[Tensor], Tensor | None],
        shape: Callable[[Tensor], tuple] | None = None,
    ):  # fmt: skip
        self.name, self.run, self.back, self.shape = name, run, back, shape

    def __call__(self, x: Tensor) -> Tensor:
        recorded = on_tape(x)
        self.note = ", recorded for a gradient" if recorded else ""
        if recorded or _recording() or mapping_of(x) is not None:
            return super().__call__(x)
        self.out = self.run(x, "")
        return self.out

    def forward(self, x: Tensor) -> Tensor:
        if not _recording():
            self.out = self.run(x, self.note)
            return self.out
        run, note = self.run, self.note
        like = x if self.shape is None else REGISTRY["zeros"](self.shape(x), x.dtype)
        (self.out,) = record_call(lambda a: [run(a, note)], [x], [like], self.name)
        return self.out

    def backward(self, dy: Tensor) -> Tensor | None:
        return self.back(dy)

    def _name(self) -> str:
        return self.name


def _recording() -> bool:
    """Whether operations become nodes of a program that is being recorded."""
    return tracing.recorder is not None


def _owed(out: Tensor) -> None:
    """Lets the gradients that are being recorded walk through a result that this rank does not use, since its peers wait for this
    rank's part of the gradient."""
    if on_tape(out):
        for level in own_levels():
            level.owed.append(out)


def _zeros_like(t: Tensor) -> Tensor:
    return REGISTRY["zeros_like"](t)


def _group(name: str, inp: Any, group: Group | None, device: Any) -> Group:
    """The group, after a look at the arguments that all operations share."""
    if inp is not None and not isinstance(inp, Tensor):
        raise TypeError(f"{name} takes a tensor, got a {type(inp).__name__}")
    here = inp.device if inp is not None else Device.named("cpu")
    if device not in (None, "") and (there := Device.named(device)) is not here:
        raise DeviceError(f"{name}: a tensor on {here} cannot be brought to {there}")
    group = WORLD if group is None else group
    if world().rank not in group.proc_ranks:
        raise DistributedError(f"{name}: rank {world().rank} is none of {group!r}")
    return group


def collective_comm(inp: Tensor, mode: str, group: Any = None, device: Any = None) -> Tensor:
    """The collective operation of a name, as "all_reduce_sum", along axis 0 where it has an axis.

    Args: mode: its name. group: a `tengen.distributed.Group`; None is all processes. device: where the result shall lie.
    Errors: ValueError for another mode, DeviceError for a device that is not here, DistributedError for a group that this process is
        none of, and for ranks that disagree or do not come.
    """
    mode = str(mode).lower()
    if mode not in MODES:
        raise ValueError(f"collective_comm: mode={mode!r} must be one of {', '.join(MODES)}")
    return globals()[mode](inp, group, device)


def _along(name: str, inp: Tensor | None, *axes: int) -> None:
    for axis in axes:
        if inp is not None and not -inp.ndim <= axis < inp.ndim:
            raise AxisError(f"{name}: there is no axis {axis} in a tensor of shape {inp.shape}")


def check_reduction(name: str, reduction: str) -> None:
    """Errors: ValueError for a `reduction` that is not there."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"{name}: reduction={reduction!r} must be 'ranks' (in the order of the ranks) or 'library' (as MPI adds)")


def all_reduce_sum(inp: Tensor, group: Any = None, device: Any = None, reduction: str = "ranks") -> Tensor:
    """The sum of all processes' tensors, for each of them.

    Args: reduction: "ranks" or "library": MPI's own sum, whose bits depend on the library, its version and the number of processes. It is
        part of the operation's name, which profiles show, graphs hold and ranks compare.
    Numerics: added in the order of the ranks, in the tensor's dtype; by the library in an order that it chooses.
    Errors: ValueError for another `reduction`; DistributedError where there is no library (threads), or it adds no such dtype (bfloat16).

    >>> from tengen import functional as F
    >>> F.distributed.all_reduce_sum(F.ones(2)).tolist()
    [1.0, 1.0]
    """
    check_reduction("all_reduce_sum", reduction)
    group = _group("all_reduce_sum", inp, group, device)
    if group.size == 1:
        return Tensor(inp)
    run, name = functools.partial(_all_reduced, "all_reduce_sum", "add", group), "all_reduce_sum"
    if reduction == "library":
        run, name = functools.partial(_added_by_library, group), "all_reduce_sum_by_library"
    return _Collective(name, run, lambda dy: all_reduce_sum(dy, group, reduction=reduction))(inp)


def _added_by_library(group: Group, inp: Tensor, note: str) -> Tensor:
    return tensor_over_row(group.channel.library_sum(as_row(inp), _text("all_reduce_sum_by_library", inp, note)), inp.shape)


def _extreme(name: str, op: str, inp: Tensor, group: Any, device: Any) -> Tensor:
    """The greatest or least elements; the gradient goes to each rank that holds one."""
    group = _group(name, inp, group, device)
    if group.size == 1:
        return Tensor(inp)

    def back(dy: Tensor) -> Tensor:
        mine = REGISTRY["equal"](inp.detach(), operation.out.detach())
        return REGISTRY["where"](mine, all_reduce_sum(dy, group), _zeros_like(dy))

    operation = _Collective(name, functools.partial(_all_reduced, name, op, group), back)
    return operation(inp)


def all_reduce_max(inp: Tensor, group: Any = None, device: Any = None) -> Tensor:
    """The greatest of all processes' elements, for each of them. The gradient goes to every process that has it."""
    return _extreme("all_reduce_max", "maximum", inp, group, device)


def all_reduce_min(inp: Tensor, group: Any = None, device: Any = None) -> Tensor:
    """The least of all processes' elements, for each of them. The gradient goes to every process that has it."""
    return _extreme("all_reduce_min", "minimum", inp, group, device)


def reduce_sum(inp: Tensor, group: Any = None, device: Any = None) -> Tensor | None:
    """The sum of all processes' tensors, for the group's first; None for the others."""
    group = _group("reduce_sum", inp, group, device)
    if group.size == 1:
        return Tensor(inp)
    run = functools.partial(_all_reduced, "reduce_sum", "add", group)
    out = _Collective("reduce_sum", run, lambda dy: broadcast(dy, group))(inp)
    if group.rank == 0:
        return out
    _owed(out)
    return None


def _from_root(name: str, inp: Tensor | None, group: Group) -> tuple[Tensor, bool]:
    """(The tensor that root gives to `name`, or one of its type; whether a gradient is recorded of root's).

    Errors: TraceError where a program is recorded, whose types are known before it runs, and this process gives no tensor.
    """
    if _recording():
        if inp is None:
            raise TraceError(f"{user_line()}: inside of a trace, {name} needs a tensor of root's shape and dtype in every process, got None")
        return inp, on_tape(inp)
    note = np.zeros(2048, np.uint8)  # a dtype, and up to 64 extents
    if group.rank == 0:
        if inp is None:
            raise TypeError(f"{name}: the group's first process has to give a tensor")
        said = f"{inp.dtype.name} {','.join(map(str, inp.shape))} {int(on_tape(inp))}".encode()
        note[: len(said)] = np.frombuffer(said, np.uint8)
    group.channel.broadcast(note, 0, f"{name}: what it is of")
    kind, shape, recorded = note.tobytes().rstrip(b"\0").decode().split(" ")
    if group.rank == 0:
        return inp, recorded == "1"
    extents = tuple(int(n) for n in shape.split(",") if n)
    if inp is None or (inp.shape, inp.dtype.name) != (extents, kind):
        inp = tensor_over_row(np.zeros(extents, dtype_named(kind).numpy))
    return inp, recorded == "1"


def _on_tape_as_root(inp: Tensor, recorded: bool) -> Tensor:
    """The tensor, on the tape where root's is: all ranks have a part in the gradient or none."""
    if recorded and not on_tape(inp):
        inp = inp.detach()
        for level in own_levels():
            level.awaited.append(level.start(inp))
    return inp if recorded else inp.detach()


def broadcast(inp: Tensor | None, group: Any = None, device: Any = None) -> Tensor:
    """The tensor of the group's first process, for each. The others' may be None, or anything: shape and dtype are the first one's.

    The gradient is that of the first one's tensor, the sum of all processes' gradients; the others' tensors get zeros.
    """
    group = _group("broadcast", inp, group, device)
    if group.size == 1:
        return Tensor(inp)
    inp, recorded = _from_root("broadcast", inp, group)

    def run(x: Tensor, note: str) -> Tensor:
        a = as_row(x)
        a = a if group.rank == 0 else np.empty_like(a)
        group.channel.broadcast(a, 0, _text("broadcast", x, note))
        return tensor_over_row(a, x.shape) if group.rank else Tensor(x)

    def back(dy: Tensor) -> Tensor:
        total = reduce_sum(dy, group)
        return _zeros_like(dy) if total is None else total

    out = _Collective("broadcast", run, back)(_on_tape_as_root(inp, recorded))
    if group.rank:
        _owed(out)
    return out


def _gathered(name: str, group: Group, axis: int, inp: Tensor, note: str) -> Tensor:
    n = inp.size
    whole = group.channel.all_gather(as_row(inp), [n] * group.size, _text(name, inp, f", axis {axis}{note}"))
    parts = [tensor_over_row(whole[r * n : (r + 1) * n], inp.shape) for r in range(group.size)]
    return REGISTRY["concat"].call(parts, axis)


def all_gather(inp: Tensor, group: Any = None, device: Any = None, axis: int = 0) -> Tensor:
    """All processes' tensors joined along an axis, for each of them."""
    _along("all_gather", inp, axis)
    group = _group("all_gather", inp, group, device)
    if group.size == 1:
        return Tensor(inp)
    run = functools.partial(_gathered, "all_gather", group, axis)
    shape = functools.partial(_joined_shape, parts=group.size, axis=axis)
    return _Collective("all_gather", run, lambda dy: reduce_scatter_sum(dy, group, axis=axis), shape)(inp)


def gather(inp: Tensor, group: Any = None, device: Any = None, axis: int = 0) -> Tensor | None:
    """All processes' tensors joined along an axis, for the group's first; None for the others."""
    _along("gather", inp, axis)
    group = _group("gather", inp, group, device)
    if group.size == 1:
        return Tensor(inp)
    run = functools.partial(_gathered, "gather", group, axis)
    shape = functools.partial(_joined_shape, parts=group.size, axis=axis)
    out = _Collective("gather", run, lambda dy: scatter(dy, group, axis=axis), shape)(inp)
    if group.rank == 0:
        return out
    _owed(out)
    return None


def _cut(name: str, inp: Tensor, parts: int, axis: int) -> list[Tensor]:
    _part_shape(name, inp, parts, axis)
    return REGISTRY["split"].call(inp, parts, axis)


def _rows(name: str, inp: Tensor, group: Group, axis: int) -> np.ndarray:
    """The parts along an axis, one row after another."""
    return packed([as_row(part) for part in _cut(name, inp, group.size, axis)])


def _part_shape(name: str, inp: Tensor, parts: int, axis: int) -> tuple[int, ...]:
    """The shape of one of equal parts. Errors: ShapeError where there are none; of an open extent, in the run."""
    axis %= inp.ndim
    if isinstance(inp.shape[axis], int) and inp.shape[axis] % parts:
        raise ShapeError(f"{name}: axis {axis} of {inp.shape} cannot be cut into {parts} equal parts, one for each process")
    return (*inp.shape[:axis], inp.shape[axis] // parts, *inp.shape[axis + 1 :])


def _joined_shape(inp: Tensor, parts: int, axis: int) -> tuple[int, ...]:
    axis %= inp.ndim
    return (*inp.shape[:axis], inp.shape[axis] * parts, *inp.shape[axis + 1 :])


def scatter(inp: Tensor | None, group: Any = None, device: Any = None, axis: int = 0) -> Tensor:
    """The tensor of the group's first process cut along an axis into equal parts, one for each process. The others' may be None.

    Errors: ShapeError for an axis that cannot be cut so.
    """
    _along("scatter", inp, axis)
    group = _group("scatter", inp, group, device)
    if group.size == 1:
        return Tensor(inp)
    inp, recorded = _from_root("scatter", inp, group)

    def run(x: Tensor, note: str) -> Tensor:
        n, first = x.size // group.size, group.rank == 0
        a = _rows("scatter", x, group, axis)
        sizes = [n if first else 0] * group.size
        text = _text("scatter", x, f", axis {axis}{note}")
        mine = group.channel.all_to_all(a if first else a[:0], sizes, [n] + [0] * (group.size - 1), text)
        return tensor_over_row(mine, _part_shape("scatter", x, group.size, axis))

    def back(dy: Tensor) -> Tensor:
        whole = gather(dy, group, axis=axis)
        return _zeros_like(inp) if whole is None else whole

    shape = functools.partial(_part_shape, "scatter", parts=group.size, axis=axis)
    out = _Collective("scatter", run, back, shape)(_on_tape_as_root(inp, recorded))
    if group.rank:
        _owed(out)
    return out


def reduce_scatter_sum(inp: Tensor, group: Any = None, device: Any = None, axis: int = 0) -> Tensor:
    """The sum of all processes' tensors cut along an axis into equal parts, one for each process.

    Numerics: added in the order of the ranks. Errors: ShapeError for an axis that cannot be cut so.
    """
    _along("reduce_scatter_sum", inp, axis)
    group = _group("reduce_scatter_sum", inp, group, device)
    if group.size == 1:
        return Tensor(inp)

    def run(x: Tensor, note: str) -> Tensor:
        rows = _rows("reduce_scatter_sum", x, group, axis)
        sizes = [x.size // group.size] * group.size
        mine = reduce_scatter("add", rows, group, sizes, _text("reduce_scatter_sum", x, f", axis {axis}{note}"))
        return tensor_over_row(mine, _part_shape("reduce_scatter_sum", x, group.size, axis))

    shape = functools.partial(_part_shape, "reduce_scatter_sum", parts=group.size, axis=axis)
    return _Collective("reduce_scatter_sum", run, lambda dy: all_gather(dy, group, axis=axis), shape)(inp)


def all_to_all(inp: Tensor, group: Any = None, device: Any = None, split_axis: int = 0, concat_axis: int = 0) -> Tensor:
    """Each process's tensor cut along one axis, part i for process i, which joins what it gets along the other axis.

    Errors: ShapeError for an axis that cannot be cut so.
    """
    _along("all_to_all", inp, split_axis, concat_axis)
    group = _group("all_to_all", inp, group, device)
    if group.size == 1:
        return Tensor(inp)

    def run(x: Tensor, note: str) -> Tensor:
        n, shape = x.size // group.size, _part_shape("all_to_all", x, group.size, split_axis)
        rows = _rows("all_to_all", x, group, split_axis)
        text = _text("all_to_all", x, f", axes {split_axis}, {concat_axis}{note}")
        whole = group.channel.all_to_all(rows, [n] * group.size, [n] * group.size, text)
        return REGISTRY["concat"].call([tensor_over_row(whole[r * n : (r + 1) * n], shape) for r in range(group.size)], concat_axis)

    def shape(x: Tensor) -> tuple[int, ...]:
        part = _part_shape("all_to_all", x, group.size, split_axis)
        axis = concat_axis % x.ndim
        return (*part[:axis], part[axis] * group.size, *part[axis + 1 :])

    back = functools.partial(all_to_all, group=group, split_axis=concat_axis, concat_axis=split_axis)
    return _Collective("all_to_all", run, back, shape)(inp)


# ---- from one process to another ----------------------------------------------------------------------------------------------


def _peer(name: str, rank: int) -> int:
    w = world()
    if w.size == 1:
        raise DistributedError(f"{name} rank {rank}: there is one process, of rank 0; help: `tengen run -n 2 program.py`")
    if not 0 <= rank < w.size or rank == w.rank:
        raise DistributedError(f"{name} rank {rank}: this is rank {w.rank} of {w.size}; help: another rank from 0 to {w.size - 1}")
    return rank


def _send(x: Tensor, dest: int) -> None:
    text = f"{x.dtype.name} {','.join(map(str, x.shape))} {int(on_tape(x))}"
    WORLD.channel.send(as_row(x), dest, text)


def _recv(source: int) -> tuple[Tensor, bool]:
    kind, shape, recorded = WORLD.channel.recv_text(source).split(" ")
    extents = tuple(int(n) for n in shape.split(",") if n)
    row = empty_row(math.prod(extents), dtype_named(kind).numpy)
    WORLD.channel.recv(row, source)
    return tensor_over_row(row, extents), recorded == "1"


def remote_send(inp: Tensor, dest_rank: int) -> None:
    """Sends a tensor to another process, which calls `remote_recv`. Where a gradient is recorded of it, the other process sends that
    back in its backward walk.

    Errors: DistributedError for a rank that is not there, and when the other one does not receive it in time.
    """
    dest = _peer("remote_send to", dest_rank)

    def run(x: Tensor, note: str) -> Tensor:
        WORLD.channel.send(as_row(x), dest, f"{x.dtype.name} {','.join(map(str, x.shape))} {int(on_tape(inp))}")
        return Tensor(x)

    _owed(_Collective("remote_send", run, lambda dy: _recv(dest)[0])(inp))


def remote_recv(src_rank: int, device: Any = None, inp: Tensor | None = None) -> Tensor:
    """The tensor that another process sends with `remote_send`.

    Args: inp: a tensor on the tape that the result shall hang on, as MegEngine has it; not needed.
    Errors: DistributedError for a rank that is not there, and when nothing comes in time.
    """
    source = _peer("remote_recv from", src_rank)
    _group("remote_recv", inp, None, device)
    out, recorded = _recv(source)

    def back(dy: Tensor) -> Tensor:
        _send(dy, source)
        return _zeros_like(dy)

    return _Collective("remote_recv", lambda x, note: Tensor(x), back)(_on_tape_as_root(out, recorded))


class RemoteSend:
    """MegEngine's operation object: `RemoteSend(rank_to=1)(x)` is `remote_send(x, 1)`.

    Args: rank_to: who gets the tensor. key, addr, port, backend: MegEngine's, of its own transport; nothing depends on them.
    """

    def __init__(self, key: str = "", addr: str = "", port: int = 0, rank_to: int = 0, backend: str = "auto"):
        self.key, self.addr, self.port, self.rank_to, self.backend = key, addr, port, rank_to, backend

    def __call__(self, inp: Tensor) -> None:
        return remote_send(inp, self.rank_to)


class RemoteRecv:
    """MegEngine's operation object: `RemoteRecv(rank_from=0)()` is `remote_recv(0)`.

    Args: rank_from: who sends the tensor. shape, dtype: what it is said to be; None: anything. key, addr, port, cn, backend: MegEngine's.
    Errors: ShapeError, DTypeError where another tensor comes.
    """

    def __init__(
        self, key: str = "", addr: str = "", port: int = 0, rank_from: int = 0, cn: str = "", shape: Any = None, dtype: Any = None,
        backend: str = "auto",
    ):  # fmt: skip
        self.key, self.addr, self.port, self.rank_from, self.cn = key, addr, port, rank_from, cn
        self.shape, self.dtype, self.backend = shape, dtype, backend

    def __call__(self, inp: Tensor | None = None) -> Tensor:
        out = remote_recv(self.rank_from, self.cn or None, inp)
        if self.shape is not None and out.shape != tuple(self.shape):
            raise ShapeError(f"RemoteRecv: rank {self.rank_from} has sent {out._layout.type!r}, and shape={tuple(self.shape)} was expected")
        if self.dtype is not None and out.dtype is not dtype_named(self.dtype):
            raise DTypeError(f"RemoteRecv: rank {self.rank_from} has sent {out._layout.type!r}, and dtype={self.dtype} was expected")
        return out


__all__ = [*MODES, "RemoteRecv", "RemoteSend", "collective_comm", "remote_recv", "remote_send"]
all_with_line(globals(), [name for name in __all__ if not name.startswith("Remote")])
