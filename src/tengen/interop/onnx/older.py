"""Operators as several others: what a node becomes where an opset or a runtime has no such operator, or not for these types or attributes.

Only forms of a few operators that go element by element are here. Others could be said too, and would cost more than what they stand for: a
running sum as a product with a triangle of ones, a Fourier transform as one with its matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Form = Callable[["Parts", Any, list[str]], str | tuple[str, ...] | None]
FORMS: dict[str, Form] = {}  # operator -> a function of (parts, node, names of inputs) that gives the names of the results; None: not these


class Parts:
    """The nodes that one node becomes.

    Attributes:
        types, shapes: of values by name: element types, and extents, None for those that are not known; types of new values are entered.
        given: the file's arrays by name, TensorProtos. nodes: in order. arrays: new ones by name.
    """

    def __init__(self, node: Any, types: dict[str, int], shapes: Mapping[str, tuple], given: Mapping[str, Any]):
        self.node, self.types, self.shapes, self.given = node, types, shapes, given
        self.nodes: list[Any] = []
        self.arrays: dict[str, np.ndarray] = {}

    def __call__(self, op: str, *inputs: str, count: int = 1, **attributes: Any) -> Any:
        """Adds a node. Returns the name of its output, or those of `count`; they have the type of the first input."""
        import onnx

        name = f"{self.node.output[0]}/{len(self.nodes)}_{op.lower()}"
        outs = [name] if count == 1 else [f"{name}_{i}" for i in range(count)]
        self.nodes.append(onnx.helper.make_node(op, list(inputs), outs, name=f"{self.node.name}/{len(self.nodes)}_{op}", **attributes))
        self.types.update((o, self.types[inputs[0]]) for o in outs if inputs[0] in self.types)
        return outs[0] if count == 1 else tuple(outs)

    def array(self, a: np.ndarray) -> str:
        """The name of a new array."""
        import onnx

        name = f"{self.node.output[0]}/{len(self.arrays)}_known"
        self.arrays[name] = a
        self.types[name] = onnx.helper.np_dtype_to_tensor_dtype(a.dtype)
        return name

    def truth(self, op: str, *inputs: str) -> str:
        """A node whose result is bools."""
        import onnx

        made = self(op, *inputs)
        self.types[made] = onnx.TensorProto.BOOL
        return made

    def cast(self, x: str, to: int) -> str:
        """A value in another element type."""
        made = self("Cast", x, to=to)
        self.types[made] = to
        return made

    def chosen(self, mask: str, x: str, y: str) -> str:
        """x where a mask is true, else y."""
        made = self("Where", mask, x, y)
        self.types[made] = self.types[x]
        return made

    def known(self, name: str) -> np.ndarray | None:
        """The array of this name, if it is one."""
        import onnx

        t = self.given.get(name)
        return self.arrays.get(name) if t is None else onnx.numpy_helper.to_array(t)

    def dtype(self, name: str) -> np.dtype | None:
        """The dtype of a value; None where it is not known."""
        import onnx

        code = self.types.get(name)
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)) if code else None

    def is_float(self, name: str) -> bool | None:
        """Whether a value is of floats; None where that is not known."""
        d = self.dtype(name)
        return None if d is None else d.kind not in "iub"


def form(*ops: str) -> Callable[[Form], Form]:
    """Enters a function as the form of operators."""

    def enter(f: Form) -> Form:
        FORMS.update(dict.fromkeys(ops, f))
        return f

    return enter


def attribute(n: Any, name: str, default: Any) -> Any:
    """A node's attribute."""
    import onnx

    return next((onnx.helper.get_attribute_value(a) for a in n.attribute if a.name == name), default)


@form("HardSwish")
def hard_swish(p: Parts, n: Any, x: list[str]) -> str:
    """x HardSigmoid(x)."""
    return p("Mul", x[0], p("HardSigmoid", x[0], alpha=1 / 6, beta=0.5))


@form("HardSigmoid")
def hard_sigmoid(p: Parts, n: Any, x: list[str]) -> str | None:
    """A line between 0 and 1."""
    d = p.dtype(x[0])
    if d is None:
        return None
    number = lambda v: p.array(np.array(v, d))
    line = p("Add", p("Mul", x[0], number(attribute(n, "alpha", 0.2))), number(attribute(n, "beta", 0.5)))
    return p("Clip", line, number(0), number(1))


@form("Mish")
def mish(p: Parts, n: Any, x: list[str]) -> str:
    """x tanh(log(1 + e^x))."""
    return p("Mul", x[0], p("Tanh", p("Softplus", x[0])))


@form("GreaterOrEqual", "LessOrEqual")
def at_least(p: Parts, n: Any, x: list[str]) -> str | None:
    """Of integers "not less"; of floats, where a NaN is neither, "greater, or equal"."""
    more, less = ("Greater", "Less") if n.op_type == "GreaterOrEqual" else ("Less", "Greater")
    floats = p.is_float(x[0])
    if floats is None:
        return None
    return p.truth("Or", p.truth(more, *x), p.truth("Equal", *x)) if floats else p.truth("Not", p.truth(less, *x))


@form("Equal")
def equal(p: Parts, n: Any, x: list[str]) -> str | None:
    """Of floats: neither less nor greater, and no NaN, which their sum is where one of them is."""
    if not p.is_float(x[0]):
        return None
    apart = p.truth("Or", p.truth("Less", *x), p.truth("Greater", *x))
    return p.truth("Not", p.truth("Or", apart, p.truth("IsNaN", p("Add", *x))))


@form("Max", "Min")
def extreme(p: Parts, n: Any, x: list[str]) -> str | None:
    """Of two integers: the one that is less, or the other."""
    if len(x) != 2 or p.is_float(x[0]) is not False:
        return None
    return p.chosen(p.truth("Less", *x), *(x[::-1] if n.op_type == "Max" else x))


@form("IsInf")
def infinite(p: Parts, n: Any, x: list[str]) -> str | None:
    """Greater than the greatest number."""
    d = p.dtype(x[0])
    if d is None or d.name not in ("float32", "float64") or n.attribute:
        return None
    return p.truth("Greater", p("Abs", x[0]), p.array(np.array(np.finfo(d).max, d)))


@form("Add", "Sub", "Mul")
def narrow(p: Parts, n: Any, x: list[str]) -> str | None:
    """Of integers of 8 and 16 bits, in 32 bits, of which the lower ones are the same."""
    import onnx

    d, wide = p.dtype(x[0]), onnx.TensorProto.INT32
    if d is None or d.name not in ("int8", "uint8", "int16", "uint16"):
        return None
    return p.cast(p(n.op_type, *(p.cast(name, wide) for name in x)), p.types[x[0]])


@form("Mod")
def remainder(p: Parts, n: Any, x: list[str]) -> str | None:
    """Of integers: what is left of a quotient that is rounded to 0, and the divisor more where the signs differ."""
    d = p.dtype(x[0])
    if d is None or d.name not in ("int32", "int64") or attribute(n, "fmod", 0):
        return None
    zero = p.array(np.zeros((), d))
    rest = p("Sub", x[0], p("Mul", p("Div", *x), x[1]))
    apart = p.truth("Xor", p.truth("Less", rest, zero), p.truth("Less", x[1], zero))
    apart = p.truth("And", apart, p.truth("Not", p.truth("Equal", rest, zero)))
    return p.chosen(apart, p("Add", rest, x[1]), rest)


@form("BitwiseNot")
def bitwise_not(p: Parts, n: Any, x: list[str]) -> str | None:
    """The number of which all bits are set, less x."""
    d = p.dtype(x[0])
    if d is None or d.kind not in "iu":
        return None
    return p("Sub", p.array(np.array(~np.zeros((), d), d)), x[0])


@form("ScatterElements")
def scatter(p: Parts, n: Any, x: list[str]) -> str | None:
    """The older name."""
    if attribute(n, "reduction", b"none") != b"none":
        return None
    return p("Scatter", *x, axis=attribute(n, "axis", 0))


@form("TopK")
def least(p: Parts, n: Any, x: list[str]) -> tuple[str, ...] | None:
    """The least numbers are those whose negatives are the greatest."""
    import onnx

    if attribute(n, "largest", 1) or not p.is_float(x[0]):
        return None
    values, places = p("TopK", p("Neg", x[0]), x[1], count=2, axis=attribute(n, "axis", -1))
    p.types[places] = onnx.TensorProto.INT64
    return p("Neg", values), places


@form("Slice")
def stepped(p: Parts, n: Any, x: list[str]) -> str | None:
    """With steps: the elements at places of each axis, whose extent is known."""
    values = [p.known(name) for name in x[1:]]
    extents = p.shapes.get(x[0])
    if len(x) < 5 or extents is None or any(v is None for v in values):
        return None
    made = x[0]
    for start, end, axis, step in zip(*(v.tolist() for v in values)):
        if (extent := extents[axis]) is None:
            return None
        start = max(start, -extent) if step < 0 else start  # the first element, as the standard says; Python takes nothing
        made = p("Gather", made, p.array(np.arange(extent, dtype=np.int64)[start:end:step]), axis=axis % len(extents))
    return made
