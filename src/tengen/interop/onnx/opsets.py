"""The opset of a file: nodes are written in the forms of opset 18, and get the forms of older ones here, or of newer ones."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tengen.base.errors import ArgumentError

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
HARD_SWISH = 14  # the opset since which there is one
SOFTMAX = 13  # the opset since which a softmax has one axis; before, all from it on, which for the last one is the same


def in_opset(proto: Any, opset: int, types: Mapping[str, int] | None = None) -> tuple[Any, list[str]]:
    """A model of the writers' forms in another opset, and the nodes that this opset cannot say, each with the reason.

    Args:
        types: the element types of values by name; None: they are derived.
    """
    import onnx

    made = onnx.ModelProto()
    made.CopyFrom(proto)
    for g in graphs(made.graph):
        taken_apart(g, opset)
    known = {t.name: t for t in proto.graph.initializer}
    types = element_types(without_weights(proto)) if types is None else types
    problems = [
        f"{n.op_type} ({n.name}): {why}" for g in graphs(made.graph) for n in g.node if (why := turned(n, opset, known, types))
    ]
    del made.opset_import[:]
    made.opset_import.append(onnx.helper.make_opsetid("", opset))
    made.ir_version = max(4, onnx.helper.find_min_ir_version_for(list(made.opset_import), ignore_unknown=True))
    read = {name for g in graphs(made.graph) for n in g.node for name in n.input}
    read |= {p.name for g in graphs(made.graph) for p in g.output}
    for i, t in reversed(list(enumerate(made.graph.initializer))):
        if t.name not in read:
            del made.graph.initializer[i]
    return made, problems


def taken_apart(graph: Any, opset: int) -> None:
    """Writes operators of a graph as several where an opset is older than they are: x HardSigmoid(x) for HardSwish."""
    import onnx

    if opset >= HARD_SWISH or all(n.op_type != "HardSwish" for n in graph.node):
        return
    found = []
    for n in graph.node:
        if n.op_type != "HardSwish":
            found.append(n)
            continue
        x, y, gate = n.input[0], n.output[0], f"{n.output[0]}/gate"
        found.append(onnx.helper.make_node("HardSigmoid", [x], [gate], name=n.name, alpha=1 / 6, beta=0.5))
        found.append(onnx.helper.make_node("Mul", [x, gate], [y], name=f"{n.name}/product"))
    made = [onnx.NodeProto.FromString(n.SerializeToString()) for n in found]
    del graph.node[:]
    graph.node.extend(made)


def lowest(proto: Any) -> Any:
    """The model in the lowest opset that can say it."""
    import onnx

    light = without_weights(proto)
    types, problems = element_types(light), [""]
    for opset in range(OLDEST, WRITTEN + 1):
        made, problems = in_opset(light, opset, types)
        if problems:
            continue
        try:
            onnx.checker.check_model(made, full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            if opset == WRITTEN:
                raise
            continue
        return in_opset(proto, opset, types)[0]
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


def element_types(proto: Any) -> Mapping[str, int]:
    """The element types of values by name, as far as they can be derived."""
    import onnx

    found: dict[str, int] = {}
    for g in graphs(onnx.shape_inference.infer_shapes(proto, strict_mode=True).graph):
        found.update((t.name, t.data_type) for t in g.initializer)
        found.update((v.name, v.type.tensor_type.elem_type) for v in (*g.input, *g.value_info, *g.output))
    return found


@functools.lru_cache(4096)
def schema(op: str, opset: int) -> Any:
    """The operator as an opset defines it, or None."""
    import onnx

    try:
        return onnx.defs.get_schema(op, opset)
    except onnx.defs.SchemaError:
        return None


def turned(n: Any, opset: int, known: Mapping[str, Any], types: Mapping[str, int]) -> str:
    """Brings a node into the form of an opset. Returns "", or why that cannot be said."""
    import onnx

    s = schema(n.op_type, opset)
    if s is None or s.deprecated:
        return f"opset {opset} has no such operator"
    if opset < SINCE.get(n.op_type, 0):
        return f"{n.op_type} does not broadcast in opset {opset}"
    since, positions = ATTRIBUTES.get(n.op_type, (0, {}))
    if opset < since:
        for i in sorted(positions, reverse=True):
            if i < len(n.input):
                name = n.input[i]
                if name and name not in known:
                    return f"in opset {opset} {positions[i]} is an attribute, and here it is computed"
                if name:
                    value = onnx.numpy_helper.to_array(known[name])
                    plain = value.item() if value.ndim == 0 or positions[i] == "k" else value.tolist()
                    n.attribute.append(onnx.helper.make_attribute(positions[i], plain))
                del n.input[i]
    if n.op_type == "DFT" and opset >= 20:
        return "the axis of a DFT is an input since opset 20; help: opset=19"
    for a in list(n.attribute):
        if a.name not in s.attributes:
            if a.name not in SAME or np.any(np.asarray(onnx.helper.get_attribute_value(a), dtype=object) != SAME[a.name]):
                return f"opset {opset} has no attribute {a.name}"
            n.attribute.remove(a)
        elif a.name in AXES and opset < LAST and min([a.i, *a.ints]) < 0:
            return f"in opset {opset} axes do not count from the end"
    if n.op_type == "Softmax" and opset < SOFTMAX and [a.i for a in n.attribute if a.name == "axis"] not in ([-1], [1]):
        return f"in opset {opset} a softmax is over all axes from one on"
    if not s.min_input <= len(n.input) <= s.max_input or len(n.output) > s.max_output:
        return f"opset {opset} takes {s.min_input} to {s.max_input} inputs"
    return untyped(n, s, types, opset)


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
