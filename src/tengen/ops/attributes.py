"""What an op's attributes may be: their kinds and ranges, declared by the annotations of its parameters.

In: an annotation as text, such as ``"Shape"``, ``"int | Sequence[int] | None"`` or ``"Literal['set', 'add']"``. Out: a `Kind`,
whose `plain` turns whatever a user may pass (NumPy's numbers and arrays, Tensors, lists) into plain data: exactly int, bool,
float, str, DType, tuples of them, or an extent that is known when the program runs. It changes nothing of what is plain already, so
an attribute of a file is checked by the same function: it must be what `plain` makes of it, by type too (`same`).

An annotation is an alternative (``|``) of names of `ITEMS`, of ``Sequence[...]`` of them, of ``Literal[...]`` and ``None``. The
names below are ints with a range. ``Any`` is for what no graph holds: a key, or a value to fill with.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Literal, get_args

import numpy as np

from tengen.base.device import Device
from tengen.base.dtype import DType, dtype
from tengen.base.errors import ArgumentError, DTypeError, ShapeError, TraceError
from tengen.base.record import record
from tengen.ir.graph import Graph, graph_key
from tengen.loops.lang import Expr, as_int, unguarded

Extent = int  # >= 0, or known when the program runs
Offset = int  # from the start of an axis or of its end, or known when the program runs
Diagonal = int  # of a matrix: one beyond its extents is empty, however far it is
OpenDiagonal = int  # a diagonal, or known when the program runs
NewExtent = int  # an extent, or -1 for the one that follows from the others
Count = int  # >= 0
Natural = int  # >= 0, of a padding
Positive = int  # >= 1, of a stride, a dilation, a window
Step = int  # not 0
Number = float  # an int, a float, or an extent that is known when the program runs
Decay = float  # in [0, 1): what is kept of a running mean
NonNegative = float  # >= 0
Shape = int | Sequence[int]  # extents; a number stands for one of them
NewShape = int | Sequence[int]  # extents, of which one may be -1
Axes = int | Sequence[int]  # axes; a number stands for one of them
Window = int  # >= 1, or known when the program runs: the extent of a window that pools
WindowSizes = int | Sequence[int]  # one for all, or one for each axis
Groups = int  # >= 1, or known when the program runs: of a convolution
Naturals = int | Sequence[int]  # one for all, or one for each axis
Positives = int | Sequence[int]  # one for all, or one for each axis
Causal = Literal["none", "upper_left", "lower_right"]  # which keys of `attention` a query sees
Precision = Literal["highest", "bfloat16"]  # of products
Algorithm = Literal["auto", "direct", "winograd2", "winograd4"]  # of a convolution; or an extent: the number of the word
Mode = Literal["average", "average_count_exclude_padding"]  # of an average over windows
Reduction = Literal["sum", "mean", "max", "min"]  # of selected rows
Color = Literal[  # from what to what `cvt_color` turns a picture
    "RGB2GRAY", "RGB2YUV", "YUV2RGB", "GRAY2RGB", "RGBA2RGB", "RGBA2BGR", "RGBA2GRAY", "RGB2BGR", "BGR2GRAY", "BGR2RGB",
    "YUV2GRAY_NV21", "YUV2RGB_NV21", "YUV2BGR_NV21", "YUV2GRAY_NV12", "YUV2RGB_NV12", "YUV2BGR_NV12",
    "YUV2GRAY_YV12", "YUV2RGB_YV12", "YUV2BGR_YV12", "YUV2GRAY_YU12", "YUV2RGB_YU12", "YUV2BGR_YU12", "YCrCb2RGB", "YCrCb2BGR",
    "BT601_YUV2RGB_NV21", "BT601_YUV2BGR_NV21", "BT601_YUV2RGB_NV12", "BT601_YUV2BGR_NV12",
    "BT601_YUV2RGB_YV12", "BT601_YUV2BGR_YV12", "BT601_YUV2RGB_YU12", "BT601_YUV2BGR_YU12",
    "YUV2GRAY_I420", "YUV2RGB_I420", "YUV2BGR_I420", "BT601_YUV2RGB_I420", "BT601_YUV2BGR_I420",
]  # fmt: skip
Flag = bool  # no 0 or 1: where other libraries have an axis, which would go unnoticed
DTypeLike = Any  # a DType, its name, a NumPy dtype, or Python's float, int, bool
DeviceLike = Any  # a Device, its name, or what has such a text, as torch.device

LARGEST = (1 << 62) - 1  # of an int: the sum of two still fits 64 bits
LARGEST_EXTENT = (1 << 63) - 1  # that no memory holds as many elements is found where all extents are known
LARGEST_SIZE = (1 << 31) - 1  # of a stride, a padding, the extent of a window: the product of two fits 64 bits

Known = Callable[[Any], np.ndarray]


class _Wrong(Exception):
    """A value of another kind."""


class _Outside(Exception):
    """A value out of range."""


@record(frozen=True)
class _Ints:
    """Ints of a range, but one of them; `open`: or extents that are known when the program runs."""

    text: str
    low: int
    high: int
    open: bool = False
    but: int | None = None
    saturates: bool = False  # a number out of the range counts as the nearest one in it

    def plain(self, v: Any) -> Any:
        if type(v) is int:
            if self.saturates:
                v = max(self.low, min(v, self.high))
            if not self.low <= v <= self.high or v == self.but:
                raise _Outside
            return v
        if isinstance(v, Expr) and self.open:
            n = as_int(v)
            return unguarded(v) if n is None else self.plain(n)
        if isinstance(v, (bool, np.bool_)):
            raise _Wrong
        if isinstance(v, (int, np.integer)):
            return self.plain(int(v))
        raise _Wrong


@record(frozen=True)
class _Choice:
    """One of some words, in any case; `open`: or an extent, that is known when the program runs, whose number counts the words."""

    words: tuple[str, ...]
    open: bool = False

    @property
    def text(self) -> str:
        return "one of " + ", ".join(map(repr, self.words))

    def plain(self, v: Any) -> str | Expr:
        if isinstance(v, str):
            if v in self.words:
                return str(v)
            for w in self.words:
                if w.lower() == v.lower():
                    return w
        if isinstance(v, Expr) and self.open:
            n = as_int(v)
            return unguarded(v) if n is None else self.word(n)
        raise _Wrong

    def word(self, n: int) -> str:
        """The word that a number stands for."""
        if not 0 <= n < len(self.words):
            raise _Wrong
        return self.words[n]


@record(frozen=True)
class _Other:
    """Any other kind of an item."""

    text: str
    convert: Callable[[Any], Any]

    def plain(self, v: Any) -> Any:
        return self.convert(v)


def _bool(v: Any) -> bool:
    if type(v) is bool:
        return v
    if isinstance(v, np.bool_) or (isinstance(v, (int, np.integer)) and v in (0, 1)):
        return bool(v)
    raise _Wrong


def _flag(v: Any) -> bool:
    if isinstance(v, (bool, np.bool_)):
        return bool(v)
    raise _Wrong


def _number(v: Any) -> int | float:
    if type(v) is float:
        return v
    if isinstance(v, (float, np.floating)):
        return float(v)
    if isinstance(v, (int, np.integer)) and not isinstance(v, bool) and -(1 << 63) <= v < 1 << 64:
        return int(v)
    raise _Wrong


@record(frozen=True)
class _Range:
    """Numbers from `low`, which is one of them, to `high`, which is none; -0.0 counts as 0.0."""

    text: str
    low: float
    high: float

    def plain(self, v: Any) -> int | float:
        x = _number(v)
        if not self.low <= x < self.high:
            raise _Outside
        return x or 0.0


def _dtype(v: Any) -> DType:
    if v is None:  # NumPy takes it for float64
        raise _Wrong
    try:
        return dtype(v)
    except TypeError as e:
        raise DTypeError(str(e)) from None


def _text(v: Any) -> str:
    if isinstance(v, str):
        return str(v)
    raise _Wrong


def _graph(v: Any) -> Graph:
    if isinstance(v, Graph):
        return v
    raise _Wrong


ITEMS = {
    "int": _Ints("an int", -LARGEST, LARGEST),
    "Extent": _Ints("an int >= 0", 0, LARGEST_EXTENT, open=True),
    "Offset": _Ints("an int", -LARGEST, LARGEST, open=True),
    "Diagonal": _Ints("an int", -LARGEST, LARGEST, saturates=True),
    "OpenDiagonal": _Ints("an int", -LARGEST, LARGEST, open=True, saturates=True),
    "NewExtent": _Ints("an int >= -1", -1, LARGEST_EXTENT, open=True),
    "Count": _Ints("an int >= 0", 0, LARGEST),
    "Natural": _Ints("an int >= 0", 0, LARGEST_SIZE),
    "Positive": _Ints("a positive int", 1, LARGEST_SIZE),
    "Window": _Ints("a positive int", 1, LARGEST_SIZE, open=True),
    "Groups": _Ints("a positive int", 1, LARGEST_SIZE, open=True),
    "Step": _Ints("an int that is not 0", -LARGEST, LARGEST, but=0),
    "Causal": _Choice(get_args(Causal)),
    "Precision": _Choice(get_args(Precision)),
    "Algorithm": _Choice(get_args(Algorithm), open=True),
    "Mode": _Choice(get_args(Mode)),
    "Reduction": _Choice(get_args(Reduction)),
    "Color": _Choice(get_args(Color)),
    "bool": _Other("a bool", _bool),
    "Flag": _Other("True or False, and an axis is given by its name, axis=1", _flag),
    "float": _Other("a number", _number),
    "Decay": _Range("a number in [0, 1)", 0.0, 1.0),
    "NonNegative": _Range("a number >= 0", 0.0, math.inf),
    "Number": _Other("a number", lambda v: unguarded(v) if isinstance(v, Expr) else _number(v)),
    "DTypeLike": _Other("a dtype", _dtype),
    "DeviceLike": _Other("a device", Device.named),
    "str": _Other("a text", _text),
    "Graph": _Other("a graph", _graph),
    "Any": _Other("anything", lambda v: v),
}
INTS = frozenset(name for name, item in ITEMS.items() if isinstance(item, _Ints))  # names of kinds that are one int
FLOATS = frozenset(name for name, item in ITEMS.items() if isinstance(item, _Range)) | {"float"}  # one number
ALIASES = {
    "Naturals": "Natural | Sequence[Natural]", "Positives": "Positive | Sequence[Positive]", "WindowSizes": "Window | Sequence[Window]",
}  # fmt: skip
SHAPES = {"Shape": "Extent", "NewShape": "NewExtent", "Axes": "int"}  # sequences, of which an int stands for one


@record(frozen=True)
class Kind:
    """What an attribute may be.

    Attributes:
        items: what it may be if it is no sequence. several: the kind of a sequence's elements; None where it can be none.
        none: whether it may be None. shape: whether an int stands for a tuple of it.
    """

    items: tuple[Any, ...]
    several: Kind | None = None
    none: bool = False
    shape: bool = False

    @property
    def text(self) -> str:
        """As messages say it: ``an int, a sequence of them, or None``."""
        parts = [i.text for i in self.items]
        if self.several is not None:
            inner = self.several.text
            parts.append("a sequence of them" if [inner] == parts else f"a sequence, of which each is {inner}")
        return " or ".join([*parts, *["None"] * self.none])

    @property
    def example(self) -> Any:
        """A value of this kind, of a number one that is nothing special."""
        words = [w for i in self.items if isinstance(i, _Choice) for w in i.words]
        if words or self.none or not self.items:
            return words[0] if words else None if self.none else ()
        if self.items == (ITEMS["str"],):
            return "a text"
        numbers = ITEMS["float"] in self.items or any(isinstance(i, _Range) for i in self.items)
        return True if self.items == (ITEMS["bool"],) else 0.75 if numbers else 1

    @property
    def counts(self) -> bool:
        """Whether it is ints, or sequences of them, or a number that says how many."""
        here = any(isinstance(i, _Ints) or i is ITEMS["Number"] for i in self.items)
        return here or (self.several is not None and self.several.counts)

    @property
    def extents(self) -> bool:
        """Whether its numbers are extents or offsets, which a program may take when it runs."""
        open_ones = ITEMS["Extent"], ITEMS["Offset"], ITEMS["OpenDiagonal"]
        return (len(self.items) > 0 and self.items[0] in open_ones) or (self.several is not None and self.several.extents)

    @property
    def steps(self) -> bool:
        """Whether its numbers are steps, which the program of an eager call takes when it runs. A step is never open in a graph, nor in what
        an op is computed by, since its sign decides which elements there are."""
        return self.items[:1] == (ITEMS["Step"],) or (self.several is not None and self.several.steps)

    @property
    def simple(self) -> tuple[type, ...]:
        """Of what `counts`: the types of values that `plain` leaves as they are, ranges aside."""
        ints = any(isinstance(i, _Ints) for i in self.items) and not self.shape
        number = ITEMS["Number"] in self.items
        return (int,) * (ints or number) + (float,) * number + (type(None),) * self.none

    def plain(self, v: Any, name: str, known: Known | None = None) -> Any:
        """The plain form of what stands for the attribute `name`.

        Args:
            known: gives a tensor's values; TraceError where it has none.

        Errors: ArgumentError (or DTypeError) for what is not of this kind, ShapeError for what is out of range, TraceError for a
            tensor that is computed by the program that is being recorded.
        """
        try:
            return self._plain(v, name, known)
        except _Outside:
            raise ShapeError(f"{name} must be {self.text}, got {shown(v)}") from None
        except DTypeError as e:
            raise DTypeError(f"{name}: {e}") from None
        except _Wrong:
            raise ArgumentError(f"{name} must be {self.text}, got {shown(v)}") from None

    def decided(self, n: int, name: str) -> Any:
        """What an open attribute is where its extent is this number."""
        choice = next((i for i in self.items if isinstance(i, _Choice) and i.open), None)
        try:
            return n if choice is None else choice.word(n)
        except _Wrong:
            raise ShapeError(f"{name} must be {self.text}, and its extent is {n}") from None

    @functools.cached_property
    def _ints(self) -> _Ints | None:
        """What an int must be, where that is all that it can be."""
        first = self.items[0] if self.items else None
        return first if isinstance(first, _Ints) and not self.shape else None

    @functools.cached_property
    def _anything(self) -> bool:
        return ITEMS["Any"] in self.items

    def _plain(self, v: Any, name: str, known: Known | None) -> Any:
        if type(v) is int and self._ints is not None:
            return self._ints.plain(v)
        if (v is None and self.none) or self._anything:
            return v
        is_tensor = hasattr(v, "_layout")
        v = v if type(v) is tuple else _read(v, name, known)
        if is_tensor and self.several is None and isinstance(v, list) and len(v) == 1:  # a tensor of one element is a number
            v = v[0]
        if isinstance(v, (list, tuple)):
            if self.several is None:
                raise _Wrong
            return tuple([self.several._plain(x, name, known) for x in v])
        for at, item in enumerate(self.items):
            try:
                r = item.plain(v)
                return (r,) if self.shape else r
            except (_Wrong, DTypeError):
                if at == len(self.items) - 1:
                    raise
        raise _Wrong


def _read(v: Any, name: str, known: Known | None) -> Any:
    """Arrays, tensors and other sequences as lists of numbers, or numbers."""
    if isinstance(v, (int, float, str, list, tuple, Expr, DType, type, np.dtype, Graph)):
        return v
    if isinstance(v, (np.generic, np.ndarray)):
        return _numbers(np.asarray(v))
    if hasattr(v, "_layout"):  # a Tensor
        if known is None:
            raise _Wrong
        try:
            return _numbers(known(v))
        except TraceError:
            raise TraceError(
                f"{name} must be known while the program is recorded, and the tensor {v._layout.type!r} is computed by it; help: "
                "pass numbers, extents of another tensor (x.shape), or a tensor that was made outside of the trace"
            ) from None
    if hasattr(v, "__iter__") and not isinstance(v, (bytes, Mapping, Set)):
        return list(v)
    if hasattr(v, "__index__"):
        return v.__index__()
    return v


def _numbers(a: np.ndarray) -> Any:
    """An array's numbers, where they are ints, bools or floats."""
    if a.dtype.kind not in "biufV" or a.dtype.names:  # V: bfloat16
        raise _Wrong
    return a.tolist() if a.size or a.dtype.kind != "f" else []


def shown(v: Any) -> str:
    """A value as messages name it."""
    text = repr(v)
    return text if len(text) <= 100 else text[:97] + "..."


@functools.cache
def kind(note: str) -> Kind | None:
    """The kind that an annotation declares; None for one that declares none.

    >>> kind("int | Sequence[int] | None").text
    'an int or a sequence of them or None'
    """
    try:
        return _kind(ast.parse(note.replace("\n", " "), mode="eval").body)
    except (SyntaxError, KeyError):
        return None


def _kind(e: ast.expr) -> Kind:
    if isinstance(e, ast.BinOp) and isinstance(e.op, ast.BitOr):
        a, b = _kind(e.left), _kind(e.right)
        if a.several is not None and b.several is not None:
            both = a.several, b.several
            inner = Kind(both[0].items + both[1].items, both[0].several or both[1].several, both[0].none or both[1].none)
        else:
            inner = a.several or b.several
        return Kind((*a.items, *(i for i in b.items if i not in a.items)), inner, a.none or b.none, a.shape or b.shape)
    if isinstance(e, ast.Constant) and e.value is None:
        return Kind((), none=True)
    if isinstance(e, ast.Subscript) and isinstance(e.value, ast.Name):
        if e.value.id == "Sequence":
            return Kind((), _kind(e.slice))
        if e.value.id == "Literal":
            words = ast.literal_eval(e.slice)
            return Kind((_Choice(words if isinstance(words, tuple) else (words,)),))
        raise KeyError(e.value.id)
    if not isinstance(e, ast.Name):
        raise KeyError(ast.dump(e))
    if e.id in ALIASES:
        return _kind(ast.parse(ALIASES[e.id], mode="eval").body)
    if e.id in SHAPES:
        item = Kind((ITEMS[SHAPES[e.id]],))
        return Kind(item.items, item, shape=True)
    return Kind((ITEMS[e.id],))


def same(a: Any, b: Any) -> bool:
    """Whether two attributes are the same data: by type too, so that 3 is not 3.0, True not 1, and -0.0 not 0.0.

    >>> same((1, 2.0), (1, 2.0)), same((1,), (True,)), same(0.0, -0.0)
    (True, False, False)
    """
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return a.hex() == b.hex()
    if isinstance(a, Graph):
        return graph_key(a) == graph_key(b)
    return a is b or (type(a) in (int, bool, str) and a == b)
