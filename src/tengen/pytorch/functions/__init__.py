"""The functions of PyTorch's that stand in `torch` itself, by subject; `tengen.pytorch` gathers them."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import isfunction
from typing import Any

from tengen.ops.calls import all_with_line, also_called
from tengen.tensor.dialect_views import VIEWS, views_by
from tengen.tensor.in_place import written_to

# NumPy's names of parameters, which PyTorch's functions take as well: ``torch.cumprod(x, axis=0)``
NUMPYS_WORDS = {"axis": "dim", "keepdims": "keepdim", "x": "input", "x1": "input", "x2": "other"}
# (PyTorch's name of a parameter, the name that it has in functions that are Tengen's own); of several that fit, the first
PYTORCHS_WORDS = (
    ("input", "x"), ("input", "inp"), ("input", "inp1"), ("input", "a"), ("other", "y"), ("other", "inp2"), ("other", "b"), ("tensors", "inps"),
    ("dims", "reps"), ("min", "lower"), ("max", "upper"), ("indices", "index"), ("size", "shape"),
)  # fmt: skip
WORDS_OF = {  # of single functions
    "pow": [("exponent", "y")], "mm": [("mat2", "inp2")], "mv": [("vec", "inp2")], "dot": [("tensor", "inp2")],
    "outer": [("vec2", "inp2")], "ger": [("vec2", "inp2")], "pinverse": [("rcond", "rtol")],
}  # fmt: skip


OUT = {"out": written_to}  # ``torch.add(x, y, out=z)``


def in_words(scope: dict[str, Any], names: Iterable[str]) -> None:
    """Gives a module's functions the names of parameters that PyTorch's take: those that are written in it NumPy's, too, and those that
    are Tengen's own PyTorch's; and `out=`, which takes the result. Errors of the former name the user's line. Results that are views in PyTorch
    are views (`dialect_views.py`)."""
    names = list(names)
    all_with_line(scope, names, NUMPYS_WORDS | OUT)
    for name in names:
        if isfunction(scope[name]) and not scope[name].__module__.startswith("tengen.pytorch"):
            scope[name] = also_called(scope[name], [*WORDS_OF.get(name, ()), *PYTORCHS_WORDS, *OUT.items()])
        if name in VIEWS:
            scope[name] = views_by(name, scope[name])


__all__ = ["NUMPYS_WORDS", "PYTORCHS_WORDS", "in_words"]
