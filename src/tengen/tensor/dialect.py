"""Methods that PyTorch understands otherwise than NumPy and MegEngine do, and the files in which they mean what they mean there.

A method of Tensor has one meaning, NumPy's and MegEngine's, in every file but those that have imported `tengen.pytorch` or something
of it: there ``x.max(1)`` is ``torch.max(x, 1)``. While the dialect is loaded, a call from another file that PyTorch's users would mean
otherwise, with other numbers, is an error that says both ways to write it: that file may be a part of their program. NumPy's words
`axis` and `keepdims` are clear, and mean what they always mean.

Out: `methods`, which look who calls them. `tengen.pytorch` has them put on Tensor.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any
from weakref import ref

from tengen.base.errors import ArgumentError
from tengen.base.tables import keep
from tengen.ops.define import REGISTRY, dispatch
from tengen.tensor.dialect_views import VIEWS
from tengen.tensor.nodes import leaves
from tengen.tensor.parts import is_part, part_of, refresh, relaid, reset, written
from tengen.tensor.pytorch_names import function_of
from tengen.tensor.sizes import Size, extents_of_layout, size_of_layout
from tengen.tensor.tensor import Tensor, warn_of_lost
from tengen.tensor.writes import NAMELESS, assigns

DIALECT = "tengen.pytorch"
MOST_FILES = 4096  # whose names are known
NUMPYS_WORDS = {"axis", "axes", "keepdims"}
Differs = Callable[[Tensor, tuple, dict], bool]
_frame = sys._getframe


def _of_an_axis(x: Tensor, args: tuple, named: dict) -> bool:
    return bool(args) or "dim" in named


def _unless_spread(x: Tensor, args: tuple, named: dict) -> bool:
    return not {"correction", "unbiased"} & named.keys()


def _of_two(x: Tensor, args: tuple, named: dict) -> bool:
    return (len(args) == 2 and all(isinstance(a, int) for a in args)) or "dim0" in named or "dim1" in named


def _with_dtype(x: Tensor, args: tuple, named: dict) -> bool:
    return "dtype" in named


def _of_unsigned(x: Tensor, args: tuple, named: dict) -> bool:
    return x._layout.dtype.kind == "u"


def _without_axes(x: Tensor, args: tuple, named: dict) -> bool:
    return not x._layout.shape


def _of_no_place(x: Tensor, args: tuple, named: dict) -> bool:
    index = args[1] if len(args) > 1 else named.get("index")
    return not x._layout.shape or (isinstance(index, Tensor) and 0 in index.shape)


def _named_norm(x: Tensor, args: tuple, named: dict) -> bool:
    return "dtype" in named or isinstance(args[0] if args else named.get("p"), str)


def _of_bools(x: Tensor, args: tuple, named: dict) -> bool:
    return x._layout.dtype.kind == "b"


def _summed(x: Tensor, args: tuple, named: dict) -> bool:
    return "dtype" in named or x._layout.dtype.kind == "u"


def _always(x: Tensor, args: tuple, named: dict) -> bool:
    return True


def _with_words(*words: str) -> Differs:
    """Whether a call has one of PyTorch's names of parameters, which mean nothing elsewhere."""
    return lambda x, args, named: not named.keys().isdisjoint(words)


# method -> (whether a call differs in its numbers, what it means here, what PyTorch means and how to write it)
REFUSED: dict[str, tuple[Differs, str, str]] = {
    "max": (_of_an_axis, "the values alone", "values and indices: torch.max(x, dim); here: x.amax(dim), or x.max(axis=dim)"),
    "min": (_of_an_axis, "the values alone", "values and indices: torch.min(x, dim); here: x.amin(dim), or x.min(axis=dim)"),
    "median": (_always, "the mean of the two in the middle", "the lower one: torch.median(x); here: x.median(axis=None)"),
    "std": (_unless_spread, "that divided by n", "by n - 1: torch.std(x), or x.std(unbiased=True); here: x.std(unbiased=False)"),
    "var": (_unless_spread, "that divided by n", "by n - 1: torch.var(x), or x.var(unbiased=True); here: x.var(unbiased=False)"),
    "repeat": (_always, "each element several times", "the whole tensor: x.tile((2, 1)), or torch.tile; here: x.repeat(2, axis=0)"),
    "svd": (_always, "(U, S, Vh)", "(U, S, V): torch.linalg.svd(x) gives (U, S, Vh)"),
    "where": (_always, "the tensor as the mask", "as the value: torch.where(mask, x, y)"),
}  # fmt: skip
# method -> (the calls that are PyTorch's in a file of its dialect, the file of `tengen.pytorch.functions` with what they mean)
_SPOKEN: dict[str, tuple[Differs, str]] = {
    **{name: (_of_an_axis, "reductions") for name in ("max", "min")},
    **{name: (_always, "reductions") for name in (
        "median", "std", "var", "sort", "argsort", "topk", "kthvalue", "mode", "cummax", "cummin", "unique", "unique_consecutive", "nonzero",
        "aminmax", "nanmedian", "cov", "corrcoef", "diff", "bincount", "quantile", "nanquantile")},
    **{name: (_always, "shaping") for name in ("repeat", "split", "chunk", "squeeze", "tensor_split", "masked_scatter", "take_along_dim")},
    "transpose": (_of_two, "shaping"), "as_strided": (_always, "shaping"),
    **{name: (_always, "elementwise") for name in ("where", "svd", "heaviside", "sign", "sgn")},
    **{name: (_summed, "reductions") for name in ("sum", "prod", "cumsum", "cumprod", "nansum")},
    "square": (_of_bools, "elementwise"), "signbit": (lambda x, args, named: not x._layout.dtype.is_float, "elementwise"),
    "repeat_interleave": (_with_words("output_size"), "shaping"),
    **{name: (_of_unsigned, "reductions") for name in ("all", "any", "trace")}, "argwhere": (_without_axes, "reductions"),
    **{name: (_without_axes, "shaping") for name in (
        "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill", "index_reduce", "index_select")},
    "gather": (_of_no_place, "shaping"), "norm": (_named_norm, "reductions"),
    **{name: (_with_dtype, "reductions") for name in ("mean", "nanmean")},
    **{name: (_with_dtype, "elementwise") for name in ("softmax", "log_softmax")},
    **{name: (_with_words("alpha", "other"), "elementwise") for name in ("add", "sub")},
    **{name: (_with_words("other", "rounding_mode", "exponent", "mat2", "vec", "tensor"), "elementwise") for name in (
        "div", "mul", "pow", "matmul", "mm", "mv", "dot", "bmm")},
    "scatter": (lambda x, args, named: not x.shape or not {"src", "value", "reduce"}.isdisjoint(named), "shaping"),
    "diagonal": (_with_words("dim1", "dim2"), "shaping"),
    **{name: (_with_words("dims", "size", "shape", "axis0", "axis1", "dim0", "dim1"), "shaping") for name in (
        "permute", "reshape", "swapaxes", "expand")},
    "flip": (lambda x, args, named: len(args) > 1, "shaping"),
    "diag_embed": (lambda x, args, named: len(args) > 1 or not {"dim1", "dim2"}.isdisjoint(named), "shaping"),
    "tile": (lambda x, args, named: len(args) > 1 or "dims" in named, "shaping"),
}  # fmt: skip
# methods whose function takes other arguments
_UNDER = {"where": "where_of_value", "flip": "flip_of_axes", "expand": "expand_to", "tile": "tile_of_axes"}


def speaks_pytorch(frame: FrameType) -> bool:
    """Whether the code that a frame runs is PyTorch's dialect: a name that it sees, of its file or its own, is of `tengen.pytorch`.

    Tengen's own files are not.
    """
    if str(frame.f_globals.get("__name__")).partition(".")[0] == "tengen":
        return False
    return any(_of_dialect(v) for v in list(frame.f_globals.values())) or any(_of_dialect(v) for v in frame.f_locals.values())


def _of_dialect(value: Any) -> bool:
    kind = type(value)
    if kind is ModuleType:
        name = value.__name__
    elif kind is FunctionType or isinstance(value, type):
        name = value.__module__
    else:
        return False
    return isinstance(name, str) and (name == DIALECT or name.startswith(DIALECT + "."))


def _looking_who_calls(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, which is PyTorch's function of that name where a file of its dialect calls it."""
    spoken, where = _SPOKEN[name]
    pytorchs = function_of(f"{DIALECT}.functions.{where}", _UNDER.get(name, name))
    refused, view = REFUSED.get(name), VIEWS.get(name)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        if leaves.parameters and not NUMPYS_WORDS & named.keys():
            if spoken(self, args, named) and speaks_pytorch(sys._getframe(1)):
                if view is not None:
                    relaid(self)
                made = pytorchs(self, *args, **named)
                return made if view is None else view(self, made, pytorchs, args, named)
            if refused is not None and refused[0](self, args, named):
                here, there = refused[1:]
                raise ArgumentError(f"x.{name}() of {self._layout.type!r} with these arguments means {here} here; PyTorch means {there}")
        if view is None or not leaves.parameters or not _speaks(sys._getframe(1)):
            return method(self, *args, **named)
        relaid(self)
        return view(self, method(self, *args, **named), method, args, named)

    return call


# ---- views ---------------------------------------------------------------------------------------------------------------

_speakers: dict[int, ref[CodeType]] = {}  # the code that was found to speak, by its number


def _speaks(frame: FrameType) -> bool:
    known = _speakers.get(id(frame.f_code))
    if known is not None and known() is frame.f_code:
        return True
    found = speaks_pytorch(frame)
    if found:
        _speakers[id(frame.f_code)] = ref(frame.f_code)
    return found


def _get_item(self: Tensor, key: Any) -> Tensor:
    """The elements that a key names, by NumPy's rules; in a file of the dialect what is written to them is written to the tensor."""
    if leaves.parameters and _speaks(sys._getframe(1)):
        return part_of(self, key)
    return REGISTRY["getitem"].call(self, key)


def _iterate(self: Tensor) -> Iterator[Tensor]:
    """The parts along the first axis; in a file of the dialect what is written to them is written to the tensor."""
    if not self.shape:
        raise TypeError("iteration over a 0-d tensor")
    get = part_of if leaves.parameters and _speaks(sys._getframe(1)) else REGISTRY["getitem"].call
    return (get(self, i) for i in range(self.shape[0]))


def _set_item(self: Tensor, key: Any, value: Any) -> None:
    """Gives the elements that a key names another value, and those of the tensor that this one is a part of."""
    if is_part(self):
        return written(self, lambda: dispatch.set_item(self, key, value))
    if sys.getrefcount(self) == NAMELESS and assigns(sys._getframe(1)):
        warn_of_lost(self)
    dispatch.set_item(self, key, value)


def _viewing(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, whose result in a file of the dialect is a view of the tensor."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        if not leaves.parameters or not _speaks(sys._getframe(1)):
            return method(self, *args, **named)
        relaid(self)
        return VIEWS[name](self, method(self, *args, **named), method, args, named)

    return call


def _viewing_property(name: str) -> property:
    found = getattr(Tensor, name)
    return property(_viewing(name, found.fget), _writing_part(name) if name in _PARTS else found.fset, doc=found.__doc__)


def _writing_part(name: str) -> Callable[[Any, Any], None]:
    """``x.real = y`` writes the real parts of x."""

    def write(self: Any, value: Any) -> None:
        part = VIEWS[name](self, REGISTRY[name](self), REGISTRY[name].call, (), {})
        part[...] = value

    return write


_own_files: dict[Any, bool] = {}  # by the names of files that have asked: whether they are Tengen's own


def _asks_itself(name: Any) -> bool:
    """Whether a file of this name, which has not asked before, is one of Tengen's own."""
    own = str(name)[:7] == "tengen."
    if isinstance(name, str):
        keep(_own_files, name, own, MOST_FILES)
    return own


def _shape(self: Tensor) -> tuple[int, ...]:
    """The extents, as `torch.Size`: while the dialect is loaded, in all files but Tengen's own, which would need no other tuple."""
    layout = self._layout
    if not leaves.parameters:
        return layout.shape
    try:
        own = _own_files[_frame(1).f_globals["__name__"]]
    except (KeyError, TypeError):
        own = _asks_itself(_frame(1).f_globals.get("__name__"))
    if own:
        return layout.shape
    try:
        return layout.seen.extents
    except AttributeError:  # of a layout that nobody has asked, or with open extents
        return extents_of_layout(layout)


def _size(self: Tensor) -> Size:
    """The number of elements; ``x.size()`` and ``x.size(0)`` are PyTorch's extents."""
    if not leaves.parameters:
        return size_of_layout(self._layout)
    try:
        own = _own_files[_frame(1).f_globals["__name__"]]
    except (KeyError, TypeError):
        own = _asks_itself(_frame(1).f_globals.get("__name__"))
    return size_of_layout(self._layout, not own)


def _updating(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def update(self: Any, other: Any) -> Any:
        if is_part(self):
            refresh(self)
        return method(self, other)

    return update


_PARTS = ("real", "imag")
_PROPERTIES = ("T", "mT", "mH", *_PARTS)  # among the views
_UPDATES = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "matmul")


@functools.cache
def methods() -> dict[str, Any]:
    """The methods of Tensor that look who calls them, by name, for `tengen.tensor.methods.put`; before they are put there nobody looks."""
    updates = [f"__i{u}__" for u in _UPDATES if hasattr(Tensor, f"__i{u}__")]
    return {
        **{name: _looking_who_calls(name, getattr(Tensor, name)) for name in _SPOKEN},
        **{name: _updating(name, getattr(Tensor, name)) for name in updates},
        **{name: _viewing(name, getattr(Tensor, name)) for name in VIEWS if hasattr(Tensor, name) and name not in {*_SPOKEN, *_PROPERTIES}},
        **{name: _viewing_property(name) for name in _PROPERTIES},
        "__getitem__": _get_item, "__iter__": _iterate, "__setitem__": _set_item, "_reset": reset,
        "shape": property(_shape, doc=_shape.__doc__), "size": property(_size, doc=_size.__doc__),
    }  # fmt: skip
