"""Models of one operator, which `tengen.interop.onnx.opsets` brings into older opsets: what they give there, and in opset 18.

In: a function that draws numbers. Out: a model in the writers' forms (opset 18), its inputs, its results, and those in older opsets.
"""

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tengen.interop.onnx.opsets import OLDEST, WRITTEN, in_opset

FLOATS, INTEGERS = ("float32", "float64"), ("int8", "uint8", "int16", "uint16", "int32", "int64", "uint32", "uint64")
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0)
# op -> (dtypes, inputs that broadcast)
ELEMENTWISE = {
    "HardSwish": (FLOATS, 1), "HardSigmoid": (FLOATS, 1), "Mish": (FLOATS, 1), "IsInf": (FLOATS, 1), "BitwiseNot": (INTEGERS, 1),
    "Max": (FLOATS + INTEGERS, 2), "Min": (FLOATS + INTEGERS, 2), "Add": (INTEGERS, 2), "Sub": (INTEGERS, 2), "Mul": (INTEGERS, 2),
    "Equal": (FLOATS + INTEGERS, 2), "GreaterOrEqual": (FLOATS + INTEGERS, 2), "LessOrEqual": (FLOATS + INTEGERS, 2),
    "Mod": (("int8", "int32", "int64"), 2),
}  # fmt: skip
SHAPED = ("ScatterElements", "TopK", "Slice", "ReduceSum", "ReduceMax", "Squeeze", "Unsqueeze", "Clip", "Pad", "Softmax")
OPS = (*ELEMENTWISE, *SHAPED)
SHAPES = ((3, 4), (1, 4), (2, 3, 4))


class Case:
    """A model with one node.

    Attributes: op: of the node. model: in opset 18. feeds: its inputs by name. want: what ONNX's own evaluator gives.
    """

    def __init__(self, op, inputs, constants, outputs, **attributes):
        names = [f"x{i}" for i in range(len(inputs) + len(constants))]
        arrays = dict(zip(names, [*inputs, *constants]))
        self.feeds = dict(list(arrays.items())[: len(inputs)])
        ports = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in self.feeds.items()]
        known = [numpy_helper.from_array(a, n) for n, a in arrays.items() if n not in self.feeds and a is not None]
        given = [n if arrays[n] is not None else "" for n in names]
        node = helper.make_node(op, given, [f"y{i}" for i in range(len(outputs))], name="node", **attributes)
        self.op, opsets = op, [helper.make_opsetid("", WRITTEN)]
        codes = [helper.np_dtype_to_tensor_dtype(np.dtype(d)) for d in outputs]
        outs = [helper.make_tensor_value_info(n, code, None) for n, code in zip(node.output, codes)]
        unshaped = helper.make_model(helper.make_graph([node], "g", ports, outs, known), opset_imports=opsets, ir_version=8)
        self.want = reference(unshaped, self.feeds)
        outs = [helper.make_tensor_value_info(n, code, y.shape) for n, code, y in zip(node.output, codes, self.want)]
        self.model = helper.make_model(helper.make_graph([node], "g", ports, outs, known), opset_imports=opsets, ir_version=8)


def array(number, dtype, shape):
    """Numbers of a dtype, among them its ends and what is special."""
    rng = np.random.default_rng(number(0, 255))
    d = np.dtype(dtype)
    if d.kind == "f":
        x = (rng.normal(size=shape) * 4).astype(d)
        at = rng.random(shape) < 0.25
        x[at] = rng.choice(np.array(SPECIAL), at.sum())
        return x
    info = np.iinfo(d)
    x = rng.integers(-5 if d.kind == "i" else 0, 6, shape).astype(d)
    at = rng.random(shape) < 0.2
    x[at] = rng.choice(np.array([info.min, info.max], d), at.sum())
    return x


def case(number):
    """A case; number(a, b) draws one of a to b."""
    op = OPS[number(0, len(OPS) - 1)]
    shape = SHAPES[number(0, len(SHAPES) - 1)]
    if op in ELEMENTWISE:
        dtypes, count = ELEMENTWISE[op]
        dtype = dtypes[number(0, len(dtypes) - 1)]
        inputs = [array(number, dtype, shape if not i or number(0, 1) else shape[-1:]) for i in range(count)]
        if op == "Mod":
            inputs[1][inputs[1] == 0] = 3
            inputs[1][inputs[1] == -1] = -2  # the least number has no quotient by -1
        attributes = {"alpha": (0.2, -0.5)[number(0, 1)], "beta": 0.3} if op == "HardSigmoid" and number(0, 1) else {}
        out = "bool" if op in ("Equal", "GreaterOrEqual", "LessOrEqual", "IsInf") else dtype
        return Case(op, inputs, [], [out], **attributes)
    x = array(number, FLOATS[0], shape)
    axis = number(-len(shape), len(shape) - 1)
    extent = shape[axis]
    ints = lambda *v: np.array(v, np.int64)
    if op == "ScatterElements":
        places = np.argsort(array(number, "float32", shape), axis) - (extent if number(0, 1) else 0)
        return Case(op, [x, places.astype(np.int64), array(number, "float32", shape)], [], ["float32"], axis=axis)
    if op == "TopK":
        x = np.where(np.isnan(x), 2.5, x) + np.arange(x.size, dtype="float32").reshape(shape) / 1024  # no NaN, nothing twice
        x = np.where(np.isinf(x), np.arange(x.size, dtype="float32").reshape(shape), x)
        return Case(op, [x.astype("float32")], [ints(number(0, extent))], ["float32", "int64"], axis=axis, largest=number(0, 1))
    if op == "Slice":
        axes = [axis] if number(0, 1) else [*range(len(shape))]
        ends = (-(1 << 31), -9, -3, -1, 0, 1, 2, 5, (1 << 31) - 1)
        start, end = ([ends[number(0, len(ends) - 1)] for _ in axes] for _ in range(2))
        steps = [(1, -1, 2, -2, 1)[number(0, 4)] for _ in axes]
        start = [max(v, -shape[a]) if t < 0 else v for v, a, t in zip(start, axes, steps)]  # ONNX's evaluator takes Python's meaning of less
        return Case(op, [x], [ints(*start), ints(*end), ints(*axes), ints(*steps)], ["float32"])
    if op in ("ReduceSum", "ReduceMax"):
        x = np.where(np.isfinite(x), x, 1.5).astype("float32")
        return Case(op, [x], [ints(axis)] if number(0, 2) else [], ["float32"], keepdims=number(0, 1))
    if op == "Squeeze":
        x = np.expand_dims(x, axis)
        return Case(op, [x], [ints(axis)], ["float32"])
    if op == "Unsqueeze":
        return Case(op, [x], [ints(*((axis,) if number(0, 1) else (0, -1)))], ["float32"])
    if op in ("Clip", "Pad"):
        dtype = FLOATS[number(0, 1)]
        x, one = array(number, dtype, shape), lambda *values: np.array(values[number(0, len(values) - 1)], dtype)
        if op == "Clip":
            return Case(op, [x], [one(-1, -0.1) if number(0, 2) else None, one(2, 0.1) if number(0, 2) else None], [dtype])
        sides = ints(*(number(0, 2) for _ in range(2 * len(shape))))
        return Case(op, [x], [sides, one(0.5, 0.1)] if number(0, 1) else [sides], [dtype], mode="constant")
    return Case("Softmax", [np.where(np.isfinite(x), x, 0.0).astype("float32")], [], ["float32"], axis=axis)


def reference(model, feeds):
    """What ONNX's own evaluator gives; None where it has no such form of an operator."""
    try:
        with np.errstate(all="ignore"):
            return ReferenceEvaluator(model).run(None, feeds)
    except (NotImplementedError, onnx.reference.op_run.RuntimeImplementationError):
        return None


def forms(made, opsets=range(OLDEST, WRITTEN)):
    """(opset, the model in it) for each opset that says it and passes ONNX's checker."""
    for opset in opsets:
        older, problems = in_opset(made.model, opset)
        if problems:
            continue
        try:
            onnx.checker.check_model(older, full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            continue  # as `lowest` does
        yield opset, older


def differs(want, have):
    """What is wrong of results, or ""."""
    for w, h in zip(want, have, strict=True):
        w, h = np.asarray(w), np.asarray(h)
        if w.dtype != h.dtype or w.shape != h.shape:
            return f"{h.dtype}{h.shape}, in opset {WRITTEN} {w.dtype}{w.shape}"
        rounding = {"float32": 1e-6, "float64": 1e-14}.get(w.dtype.name)
        same = np.isclose(h, w, 4 * rounding, rounding, equal_nan=True) if w.dtype.kind == "f" else h == w
        if not same.all():
            return f"{h[~same][:4]}, in opset {WRITTEN} {w[~same][:4]}"
    return ""
