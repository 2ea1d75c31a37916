"""The opset of a file: nodes are written in the forms of opset 18, and get the forms of older ones here, or of newer ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tengen.base.errors import ArgumentError
from tengen.base.record import record
from tengen.interop.onnx.older import FORMS, Parts

OLDEST, WRITTEN = 7, 18  # opsets: the oldest that is written, and that of the writers' forms
ATTRIBUTES = {  # op -> (the opset since which these are inputs, which were attributes before; by their position)
    **dict.fromkeys(("ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd"), (18, {1: "axes"})),
    **dict.fromkeys(("ReduceSum", "Squeeze", "Unsqueeze"), (13, {1: "axes"})),
    "Clip": (11, {1: "min", 2: "max"}), "Pad": (11, {1: "pads", 2: "value"}), "TopK": (10, {1: "k"}),
    "Slice": (10, {1: "starts", 2: "ends", 3: "axes", 4: "steps"}),
}  # fmt: skip
SINCE = {"Max": 8, "Min": 8}  # operators that broadcast since an opset
SAME = {"largest": 1, "allowzero": 0, "reduction": b"none", "steps": 1}  # attributes that older opsets lack, with their only meaning there
LIGHT = 1 << 12  # bytes
LAST = 11  # the opset since which negative axes count from the end
AXES = ("axis", "axes", "scan_input_axes", "scan_output_axes")
SOFTMAX = 13  # the opset since which a softmax has one axis; before, all from it on, which for the last one is the same
Has = Callable[[str], bool]  # whether there is an operator of a name


def any_operator(name: str) -> bool:
    """Whether an operator is there for one who has all of them."""
    return True


@record
class Inferred:
    """What is known of values by name: element types, and extents, None for those that are open or not known."""

    types: dict[str, int]
    shapes: dict[str, tuple[int | None, ...]]


def in_opset(proto: Any, opset: int, has: Has = any_operator, inferred: Inferred | None = None) -> tuple[Any, list[str]]:
    """A model of the writers' forms in another opset, and the nodes that this opset cannot say, each with the reason.

    Args:
        has: whether who will read it has an operator: others are written as several, where that can be. inferred: what is known of its
            values; None: it is derived.
    """
    import onnx

    made = onnx.ModelProto()
    made.CopyFrom(proto)
    inferred = infer(without_weights(proto)) if inferred is None else inferred
    known = {t.name: t for t in proto.graph.initializer}
    into = Into(opset, has, Inferred(dict(inferred.types), inferred.shapes), known)
    for g in graphs(made.graph):
        into.rewrite(g)
    made.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in into.arrays.items())
    del made.opset_import[:]
    made.opset_import.append(onnx.helper.make_opsetid("", opset))
    made.ir_version = max(4, onnx.helper.find_min_ir_version_for(list(made.opset_import), ignore_unknown=True))
    read = {name for g in graphs(made.graph) for n in g.node for name in n.input}
    read |= {p.name for g in graphs(made.graph) for p in g.output}
    for i, t in reversed(list(enumerate(made.graph.initializer))):
        if t.name not in read:
            del made.graph.initializer[i]
    return made, into.problems


class Into:
    """Nodes are brought into an opset: in its form of their operator, or as several nodes (`older.py`).

    Attributes:
        has: whether who will read it has an operator. problems: nodes that the opset cannot say. arrays: new ones by name.
    """

    def __init__(self, opset: int, has: Has, inferred: Inferred, known: Mapping[str, Any]):
        self.opset, self.has, self.inferred, self.known = opset, has, inferred, known
        self.problems: list[str] = []
        self.arrays: dict[str, np.ndarray] = {}

    def rewrite(self, graph: Any) -> None:
        """Brings the nodes of a graph into the opset, without those in its nodes."""
        import onnx

        found = [m for n in graph.node for m in self.nodes(n)]
        made = [onnx.NodeProto.FromString(n.SerializeToString()) for n in found]
        del graph.node[:]
        graph.node.extend(made)

    def nodes(self, n: Any) -> list[Any]:
        """The nodes that one becomes; itself, with a problem told, where it cannot be said."""
        import onnx

        plain = onnx.NodeProto()
        plain.CopyFrom(n)
        why = turned(n, self.opset, self.known, self.inferred)
        if not why and self.has(plain.op_type):
            return [n]
        parts = Parts(plain, self.inferred.types, self.inferred.shapes, self.known)
        made = FORMS[plain.op_type](parts, plain, list(plain.input)) if plain.op_type in FORMS else None
        if made is not None:
            more = {k: onnx.numpy_helper.from_array(a, k) for k, a in parts.arrays.items()}
            inner = Into(self.opset, self.has, self.inferred, {**self.known, **more})
            last = {x: name for x, name in zip((made,) if isinstance(made, str) else made, plain.output)}
            found = [m for part in parts.nodes for m in inner.nodes(part)]
            if not inner.problems and all(self.has(m.op_type) for m in found):
                self.arrays |= parts.arrays | inner.arrays
                for m in found:  # the results have the names that others read
                    m.input[:], m.output[:] = ([last.get(x, x) for x in names] for names in (m.input, m.output))
                return found
        self.problems += [f"{plain.op_type} ({plain.name}): {why}"] if why else []
        return [n]


def lowest(proto: Any, has: Has = any_operator) -> Any:
    """The model in the lowest opset that can say it. has: as of `in_opset`."""
    import onnx

    light = without_weights(proto)
    inferred, problems = infer(light), [""]
    for opset in range(OLDEST, WRITTEN + 1):
        made, problems = in_opset(light, opset, has, inferred)
        if problems:
            continue
        try:
            onnx.checker.check_model(made, full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            if opset == WRITTEN:
                raise
            continue
        return in_opset(proto, opset, has, inferred)[0]
    raise ArgumentError("\n".join(["no opset says these nodes:", *(f"  {p}" for p in problems)]))


def without_weights(proto: Any) -> Any:
    """The model with arrays of more than LIGHT bytes as inputs: to be copied and checked often."""
    import onnx

    made = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import)
    g = made.graph
    g.name = proto.graph.name
    g.node.extend(proto.graph.node)
    g.output.extend(proto.graph.output)
    g.input.extend(proto.graph.input)
    for t in proto.graph.initializer:
        if len(t.raw_data) <= LIGHT and t.data_location != onnx.TensorProto.EXTERNAL:
            g.initializer.append(t)
        else:
            g.input.append(onnx.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)))
    return made


def graphs(graph: Any) -> Iterator[Any]:
    """A graph and those in its nodes."""
    yield graph
    for n in graph.node:
        for a in n.attribute:
            if a.HasField("g"):
                yield from graphs(a.g)


def infer(proto: Any) -> Inferred:
    """What can be derived of a model's values."""
    import onnx

    found = Inferred({}, {})
    for g in graphs(onnx.shape_inference.infer_shapes(proto, strict_mode=True).graph):
        for t in g.initializer:
            found.types[t.name], found.shapes[t.name] = t.data_type, tuple(t.dims)
        for v in (*g.input, *g.value_info, *g.output):
            tensor = v.type.tensor_type
            found.types[v.name] = tensor.elem_type
            if tensor.HasField("shape"):
                found.shapes[v.name] = tuple(d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim)
    return found


@functools.lru_cache(4096)
def schema(op: str, opset: int) -> Any:
    """The operator as an opset defines it, or None."""
    import onnx

    try:
        return onnx.defs.get_schema(op, opset)
    except onnx.defs.SchemaError:
        return None


def turned(n: Any, opset: int, known: Mapping[str, Any], inferred: Inferred) -> str:
    """Brings a node into an opset's form of its operator. Returns "", or why that cannot be said."""
    import onnx

    s = schema(n.op_type, opset)
    if s is None or s.deprecated:
        return f"opset {opset} has no such operator"
    if opset < SINCE.get(n.op_type, 0):
        return f"{n.op_type} does not broadcast in opset {opset}"
    since, positions = ATTRIBUTES.get(n.op_type, (0, {}))
    if opset < since and (why := _as_attributes(n, positions, opset, known)):
        return why
    if n.op_type == "DFT" and opset >= 20:
        return "the axis of a DFT is an input since opset 20; help: opset=19"
    if n.op_type == "Reshape" and n.input[1] in known and 0 not in onnx.numpy_helper.to_array(known[n.input[1]]):
        without(n, "allowzero")
    for a in list(n.attribute):
        if a.name in ("axis", "axes") and n.op_type != "OneHot" and opset < LAST:
            from_front(n, a, inferred.shapes)
        if a.name not in s.attributes:
            if a.name not in SAME or np.any(np.asarray(onnx.helper.get_attribute_value(a), dtype=object) != SAME[a.name]):
                return f"opset {opset} has no attribute {a.name}"
            n.attribute.remove(a)
        elif a.name in AXES and opset < LAST and min([a.i, *a.ints]) < 0:
            return f"in opset {opset} axes do not count from the end"
    if n.op_type == "Softmax" and opset < SOFTMAX and not is_last(n, inferred.shapes):
        return f"in opset {opset} a softmax is over all axes from one on"
    if not s.min_input <= len(n.input) <= s.max_input or len(n.output) > s.max_output:
        return f"opset {opset} takes {s.min_input} to {s.max_input} inputs"
    return untyped(n, s, inferred.types, opset)


def _as_attributes(n: Any, positions: Mapping[int, str], opset: int, known: Mapping[str, Any]) -> str:
    """Makes inputs attributes. Returns "", or why that cannot be said."""
    import onnx

    for i in sorted(positions, reverse=True):
        name, what = n.input[i] if i < len(n.input) else "", positions[i]
        if name and name not in known:
            return f"in opset {opset} {what} is an attribute, and here it is computed"
        if name:
            value = onnx.numpy_helper.to_array(known[name])
            if value.dtype == np.float64 and (value.astype(np.float32) != value).any():
                return f"in opset {opset} {what} is an attribute of float32, which does not hold {value.item()}"
            plain = value.item() if value.ndim == 0 or what == "k" else value.tolist()
            n.attribute.append(onnx.helper.make_attribute(what, plain))
        elif n.op_type == "Clip":  # whose bounds are the ends of finite numbers there unless something else is said
            n.attribute.append(onnx.helper.make_attribute(what, -np.inf if what == "min" else np.inf))
        if i < len(n.input):
            del n.input[i]
    return ""


def without(n: Any, name: str) -> None:
    """Takes an attribute off a node."""
    for a in [a for a in n.attribute if a.name == name]:
        n.attribute.remove(a)


def from_front(n: Any, a: Any, shapes: Mapping[str, tuple]) -> None:
    """Makes negative axes of an attribute count from the first one, where it is known how many there are."""
    if n.input[0] not in shapes:
        return
    ndim = len(shapes[n.input[0]]) + (len(a.ints) if n.op_type == "Unsqueeze" else 0)
    if a.name == "axis":
        a.i += ndim if a.i < 0 else 0
    else:
        a.ints[:] = [i + ndim if i < 0 else i for i in a.ints]


def is_last(n: Any, shapes: Mapping[str, tuple]) -> bool:
    """Whether a softmax is over the last axis."""
    axis = next((a.i for a in n.attribute if a.name == "axis"), -1)
    return axis == -1 or n.input[0] in shapes and axis == len(shapes[n.input[0]]) - 1


def untyped(n: Any, s: Any, types: Mapping[str, int], opset: int) -> str:
    """Which input or output has a type that the operator does not take in an opset, or ""."""
    import onnx

    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in s.type_constraints}
    for names, ports in ((n.input, s.inputs), (n.output, s.outputs)):
        for i, name in enumerate(names):
            p = ports[min(i, len(ports) - 1)]
            code = types.get(name)
            if not name or not code:
                continue
            said = f"tensor({onnx.TensorProto.DataType.Name(code).lower()})"
            if said not in allowed.get(p.type_str, {p.type_str}):
                return f"opset {opset} does not take {said} there"
    return ""
