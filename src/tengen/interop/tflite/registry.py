"""The tables of operators: name -> the function that computes an operator from its inputs, in floats, in integers with scales, or
with both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tengen.interop.tflite.reader import OpOf, TensorOf

OPS: dict[str, Callable[..., Any]] = {}  # of numbers; and what only moves elements
QUANTISED: dict[str, Callable[..., Any]] = {}  # of integers with scales, where that is something else
HYBRID: dict[str, Callable[..., Any]] = {}  # of floats with weights that are integers with scales


def _entering(table: dict[str, Callable[..., Any]], names: tuple[str, ...]) -> Callable[[Callable], Callable]:
    def enter(f: Callable) -> Callable:
        for name in names:
            table[name] = f
        return f

    return enter


def op(*names: str) -> Callable[[Callable], Callable]:
    """Enters a function under the names of operators. It takes the operator and its inputs in order (None for absent ones), and
    returns the output, or a tuple of several."""
    return _entering(OPS, names)


def quantised(*names: str) -> Callable[[Callable], Callable]:
    """The same for operators whose data are integers with scales."""
    return _entering(QUANTISED, names)


def hybrid(*names: str) -> Callable[[Callable], Callable]:
    """The same for operators on floats with weights that are integers with scales."""
    return _entering(HYBRID, names)


def is_quantised(t: TensorOf) -> bool:
    """Whether a tensor is integers with scales."""
    return t.quant is not None and t.dtype is not None and t.dtype in (np.int8, np.uint8, np.int16)


DATA = {
    "TRANSPOSE_CONV": 2,
    "SPLIT": 1,
    "SELECT": 1,
    "SELECT_V2": 1,
    "EMBEDDING_LOOKUP": 1,
}  # the first input that is data; else 0
WEIGHTS = {
    "TRANSPOSE_CONV": 1,
    "EMBEDDING_LOOKUP": 1,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": 2,
    "BIDIRECTIONAL_SEQUENCE_LSTM": 2,
    "LSTM": 2,
}


MOVING = {  # what gives elements as they are, or compares those of one scale: integers with scales go through unchanged
    "ARG_MAX", "ARG_MIN", "BATCH_TO_SPACE_ND", "BROADCAST_TO", "CAST", "DENSIFY", "DEPTH_TO_SPACE", "DEQUANTIZE", "DYNAMIC_UPDATE_SLICE",
    "EMBEDDING_LOOKUP", "EXPAND_DIMS", "FILL", "GATHER", "GATHER_ND", "MATRIX_DIAG", "MATRIX_SET_DIAG", "MAXIMUM", "MINIMUM", "MIRROR_PAD",
    "ONE_HOT", "PACK", "PAD", "PADV2", "REDUCE_MAX", "REDUCE_MIN", "RESHAPE", "RESIZE_NEAREST_NEIGHBOR", "REVERSE_SEQUENCE", "REVERSE_V2",
    "SCATTER_ND", "SELECT", "SELECT_V2", "SHAPE",
    "SLICE", "SPACE_TO_BATCH_ND", "SPACE_TO_DEPTH", "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE", "TOPK_V2", "TRANSPOSE", "UNPACK",
    "IF", "WHILE", "CALL", "STABLEHLO_COMPOSITE", "ASSIGN_VARIABLE", "RANK", "ZEROS_LIKE",
}  # fmt: skip


UNSCALED = {"CONCATENATION", "MAX_POOL_2D"}  # of `QUANTISED`: those that take integers of 8 bits without scales, as plain integers


def lacking_scale(n: OpOf) -> TensorOf | None:
    """An input of 8 bits without a scale, where the operator computes with what integers stand for."""
    computes = n.op in QUANTISED and n.op not in UNSCALED or n.op in HYBRID and n.outputs and n.out().kind == "FLOAT32"
    read = (n.tensors[i] for i in n.inputs if i >= 0) if computes and not n.custom else ()
    return next((t for t in read if t.quant is None and t.dtype in (np.int8, np.uint8)), None)


OUTSIDE = "look words up in the application, give the network their numbers, and cut the model behind its tables before it is converted"
ANOTHER_WAY = "convert without select TensorFlow ops, or add an operator by tengen.interop.tflite.ops.op"
INTEGER_LSTM = "UNIDIRECTIONAL_SEQUENCE_LSTM"


def odd_lstm(n: OpOf) -> bool:
    """Whether an LSTM of integers has other types than those for which TFLite's interpreter has a kernel that is known here."""
    if n.op != INTEGER_LSTM or n.custom or not n.has(0) or not is_quantised(n.of(0)):
        return False
    return n.of(0).kind != "INT8" or len(n.intermediates) != 5


def text_of(n: OpOf) -> TensorOf | None:
    """A tensor of text that an operator reads or makes."""
    return next((n.tensors[i] for i in (*n.inputs, *n.outputs) if i >= 0 and n.tensors[i].kind == "STRING"), None)


def meaning(n: OpOf) -> Callable[..., Any] | None:
    """The function of an operator, by what its data and its weights are; None for one that is not known."""
    if n.custom:
        return OPS.get(f"custom {n.op}")
    if lacking_scale(n) is not None or odd_lstm(n) or text_of(n) is not None:
        return None
    data, weights = DATA.get(n.op, 0), WEIGHTS.get(n.op, 1)
    if n.op in QUANTISED and n.has(data) and (is_quantised(n.of(data)) or n.op == "QUANTIZE"):
        return QUANTISED[n.op]
    if n.op in HYBRID and n.has(data) and n.has(weights) and n.out().kind == "FLOAT32" and is_quantised(n.of(weights)):
        return HYBRID[n.op]
    if n.op in OPS and n.op not in MOVING and any(is_quantised(n.tensors[i]) for i in n.inputs if i >= 0):
        return None
    return OPS.get(n.op)


def why_not(n: OpOf) -> tuple[str, str]:
    """(Why an operator has no meaning here, what would help)."""
    if n.op.startswith("HASHTABLE") and not n.custom:
        return "a table of hashes", OUTSIDE
    if (t := text_of(n)) is not None:
        return f"{t.name!r} is text", OUTSIDE
    if n.custom:
        return "a custom operator", ANOTHER_WAY
    if odd_lstm(n):
        return (
            f"an LSTM of {n.of(0).kind} with {len(n.intermediates)} intermediate results; known is one of INT8 with 5, whose cell is of INT16",
            "quantise the activations of the LSTM to int8 (Optimize.DEFAULT with a representative data set), or leave it in floats",
        )
    if (t := lacking_scale(n)) is not None:
        return f"its input {t.name!r} of {t.kind} has no scale, so that nothing says what its integers stand for", ANOTHER_WAY
    return "known of floats, not of integers with scales" if n.op in OPS else "no operator of this name is known", ANOTHER_WAY
