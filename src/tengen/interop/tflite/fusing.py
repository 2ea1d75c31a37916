"""Convolutions and fully connected layers of a file that is written take in what follows them: factors and shifts of channels (a batch norm
in evaluation), and the function at the end. TFLite's kernels compute these with the layer.

before: CONV_2D, MUL by (1, 1, 1, C), ADD of (1, 1, 1, C), RELU
after:  CONV_2D with other filters and biases, that ends with RELU
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tengen.interop.tflite.schema import numbers_of
from tengen.interop.tflite.writer import Writer

CHANNELS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0}  # the axis of a layer's results in its weights
ENDS = {"RELU": "RELU", "RELU6": "RELU6"}


def fuse(w: Writer, outputs: set[int]) -> None:
    """Changes the operators of a file. outputs: tensors that are the network's results."""
    names = {number: op for op, number in w.codes.items()}
    readers: dict[int, list[dict[str, Any]]] = {}
    for o in w.operators:
        for i in o["Inputs"].tolist():
            readers.setdefault(i, []).append(o)
    gone: set[int] = set()
    for layer in w.operators:
        op = names[layer["OpcodeIndex"]]
        if op not in CHANNELS or id(layer) in gone:
            continue
        while True:
            made = int(layer["Outputs"][0])
            after = readers.get(made, [])
            if made in outputs or len(after) != 1 or not taken_in(w, op, layer, names[after[0]["OpcodeIndex"]], after[0], made):
                break
            layer["Outputs"] = after[0]["Outputs"]
            gone.add(id(after[0]))
            if names[after[0]["OpcodeIndex"]] in ENDS:
                break
    w.operators = [o for o in w.operators if id(o) not in gone]


def taken_in(w: Writer, op: str, layer: dict[str, Any], name: str, follower: dict[str, Any], made: int) -> bool:
    """Whether a layer takes in the operator that reads its result; it is changed then."""
    kind, how = layer["BuiltinOptions"]
    if name in ENDS and how.get("FusedActivationFunction", 0) == 0:
        layer["BuiltinOptions"] = kind, {**how, "FusedActivationFunction": numbers_of("ActivationFunctionType")[ENDS[name]]}
        return True
    operands = follower["Inputs"].tolist()
    other = [i for i in operands if i != made]
    if name not in ("ADD", "MUL") or len(other) != 1 or other[0] not in w.arrays:
        return False
    x, weight, bias = layer["Inputs"].tolist()
    if weight not in w.arrays or w.arrays[weight].dtype != np.float32:
        return False
    weights, axis, value = w.arrays[weight], CHANNELS[op], w.arrays[other[0]]
    count = weights.shape[axis]
    if value.dtype != weights.dtype or value.size not in (1, count) or value.size > 1 and value.shape[-1] != count:
        return False
    if w.tensors[int(follower["Outputs"][0])]["Shape"].tolist() != w.tensors[made]["Shape"].tolist():
        return False
    each = np.broadcast_to(value.reshape(-1), (count,))
    old = w.arrays[bias] if bias >= 0 else np.zeros(count, weights.dtype)
    if name == "MUL":
        shape = [count if a == axis else 1 for a in range(weights.ndim)]
        weight = w.array(np.ascontiguousarray(weights * each.reshape(shape)), "filters").index
    bias = w.array(old * each if name == "MUL" else old + each, "biases").index
    layer["Inputs"] = np.array([x, weight, bias], np.int32)
    return True


def prune(w: Writer, ends: list[int]) -> dict[int, int]:
    """Leaves out tensors that no operator reads or writes, with their arrays, and gives the others new numbers. ends: of the network's inputs
    and results, which stay."""
    used = sorted({*ends, *(i for o in w.operators for k in ("Inputs", "Outputs") for i in o[k].tolist() if i >= 0)})
    number = {old: new for new, old in enumerate(used)} | {-1: -1}
    tensors, buffers = [], [w.buffers[0]]
    for i in used:
        t = w.tensors[i]
        if "Buffer" in t:
            buffers.append(w.buffers[t["Buffer"]])
            t = {**t, "Buffer": len(buffers) - 1}
        tensors.append(t)
    w.tensors, w.buffers = tensors, buffers
    for o in w.operators:
        o.update({k: np.array([number[i] for i in o[k].tolist()], np.int32) for k in ("Inputs", "Outputs")})
    return number
