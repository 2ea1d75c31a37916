"""Networks of one operator as TFLite files, and TFLite's own interpreter with its reference kernels, which says what they compute."""

import os
import sys
from dataclasses import dataclass, field

import numpy as np
import pytest

from tengen.interop.tflite import flat, schema

KINDS = {
    "float32": "FLOAT32", "float16": "FLOAT16", "int8": "INT8", "uint8": "UINT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "bool": "BOOL", "complex64": "COMPLEX64", "uint32": "UINT32", "uint16": "UINT16", "float64": "FLOAT64",
    "text": "STRING", "table": "RESOURCE", "int4": "INT4",
}  # fmt: skip


@dataclass
class T:
    """A tensor of a file. value: what is given for it, or what it is. quant: (scale or scales, zero or zeros, axis)."""

    value: object = None
    fixed: bool = False
    dtype: str = ""
    quant: tuple | None = None
    shape: tuple = ()
    variable: bool = False

    @property
    def array(self):
        return np.asarray(self.value)

    @property
    def kind(self):
        return KINDS[self.dtype or self.array.dtype.name]


def k(value, dtype=np.int32):
    """A constant of the file."""
    return T(np.asarray(value, dtype), fixed=True)


@dataclass
class Case:
    """One operator. of: the table of its options; options: what they say. outputs: dtypes, or tensors with scales."""

    op: str
    inputs: list
    outputs: list
    of: str = ""
    options: dict = field(default_factory=dict)
    name: str = ""
    blob: bytes = b""
    steps: float = 0  # of the last place, by which integers may differ
    version: int = 1
    reference: bool = True  # whether TFLite's reference kernel is what is compared
    between: list = field(default_factory=list)  # tensors that have nothing but a scale

    def __repr__(self):
        return self.name or self.op


def quantization(t):
    if t.quant is None:
        return {}
    scale, zero, axis = (*t.quant, 0, 0)[:3]
    scales = np.atleast_1d(np.asarray(scale, np.float32))
    return {
        "Quantization": {
            "Scale": scales,
            "ZeroPoint": np.broadcast_to(np.asarray(zero, np.int64), scales.shape),
            "QuantizedDimension": axis,
        }
    }


def to_bytes(case, description="one operator"):
    """The file of a case."""
    return network([case], description)


def network(cases, description="operators side by side"):
    """A file with several operators side by side."""
    types, codes, buffers, tensors, operators = schema.numbers_of("TensorType"), [], [{}], [], []
    inputs, outputs = [], []

    def add(t, name):
        data = {}
        if t.fixed:
            data = np.frombuffer(np.ascontiguousarray(t.array).tobytes(), np.uint8)
            if t.dtype == "int4":  # two in a byte, the first in the low bits
                pairs = np.concatenate([data & 15, np.zeros(data.size % 2, np.uint8)]).reshape(-1, 2)
                data = pairs[:, 0] | pairs[:, 1] << 4
            buffers.append({"Data": data})
            data = {"Buffer": len(buffers) - 1}
        shape = t.array.shape if t.value is not None else t.shape
        extra = {"IsVariable": True} if t.variable else {}
        tensors.append(
            {"Shape": np.array(shape, np.int32), "Type": types[t.kind], "Name": name, **data, **quantization(t), **extra}
        )
        return len(tensors) - 1

    for c in cases:
        ins = []
        for i, t in enumerate(c.inputs):
            ins.append(-1 if t is None else add(t, f"{c.op}_{len(operators)}_in{i}"))
            if t is not None and not t.fixed and not t.variable:
                inputs.append(ins[-1])
        outs = [add(t if isinstance(t, T) else T(dtype=t), f"{c.op}_{len(operators)}_out{i}") for i, t in enumerate(c.outputs)]
        outputs += outs
        between = {"Intermediates": np.array([add(t, f"{c.op}_{len(operators)}_between") for t in c.between], np.int32)} if c.between else {}
        custom = c.op not in schema.numbers_of("BuiltinOperator")
        number = schema.numbers_of("BuiltinOperator")["CUSTOM" if custom else c.op]
        codes.append(
            {
                "DeprecatedBuiltinCode": min(number, 127),
                "BuiltinCode": number,
                "Version": c.version,
                **({"CustomCode": c.op} if custom else {}),
            }
        )
        second = c.of in schema.names_of("BuiltinOptions2").values()
        options = {"BuiltinOptions2" if second else "BuiltinOptions": (c.of, c.options)} if c.of else {}
        blob = {"CustomOptions": np.frombuffer(c.blob, np.uint8)} if c.blob else {}
        operators.append(
            {
                "OpcodeIndex": len(codes) - 1,
                "Inputs": np.array(ins, np.int32),
                "Outputs": np.array(outs, np.int32),
                **options,
                **blob,
                **between,
            }
        )
    graph = {
        "Tensors": tensors, "Inputs": np.array(inputs, np.int32), "Outputs": np.array(outputs, np.int32), "Operators": operators,
        "Name": "main",
    }  # fmt: skip
    return flat.write(
        "Model",
        {"Version": 3, "OperatorCodes": codes, "Subgraphs": [graph], "Buffers": buffers, "Description": description},
        b"TFL3",
    )


def given(case):
    """What the inputs of a case are given."""
    return [t.array for t in case.inputs if t is not None and not t.fixed and not t.variable]


class Quiet:
    """Standard error goes nowhere: the interpreter writes there."""

    def __enter__(self):
        sys.stderr.flush()
        self.old, self.null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        os.dup2(self.null, 2)

    def __exit__(self, *exc):
        os.dup2(self.old, 2)
        os.close(self.old)
        os.close(self.null)


class Theirs:
    """TFLite's interpreter, with its reference kernels."""

    def __init__(self, data, reference=True):
        interpreter = pytest.importorskip(
            "ai_edge_litert.interpreter", reason="ai-edge-litert is not installed: results are not compared with TFLite's own"
        )
        kinds = interpreter.OpResolverType
        with Quiet():
            self.run_ = interpreter.Interpreter(
                model_content=data, experimental_op_resolver_type=kinds.BUILTIN_REF if reference else kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
                num_threads=1,
            )  # fmt: skip

    def __call__(self, *arrays):
        with Quiet():
            details = self.run_.get_input_details()
            for d, a in zip(details, arrays):
                if tuple(d["shape"]) != a.shape:
                    self.run_.resize_tensor_input(d["index"], a.shape)
            self.run_.allocate_tensors()
            return self.again(*arrays)

    def again(self, *arrays):
        for d, a in zip(self.run_.get_input_details(), arrays):
            self.run_.set_tensor(d["index"], a)
        self.run_.invoke()
        return [self.run_.get_tensor(d["index"]) for d in self.run_.get_output_details()]


def theirs(data, *arrays, reference=True):
    """What the interpreter gives for a file; where it has no reference kernel, what its other kernels give."""
    try:
        return Theirs(data, reference)(*arrays)
    except (RuntimeError, ValueError) as e:
        if not reference or "Didn't find op" not in str(e):
            raise
        return Theirs(data, False)(*arrays)


def differ(got, want, steps=0, tolerance=2e-6):
    """Why two lists of arrays are not the same; "" where they are."""
    if len(got) != len(want):
        return f"{len(got)} outputs, not {len(want)}"
    for i, (a, b) in enumerate(zip(got, want)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {i} is {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        if a.dtype.kind in "fc":
            far = np.abs(np.nan_to_num(a) - np.nan_to_num(b)) > tolerance * np.maximum(
                1, np.abs(np.nan_to_num(b)).max(initial=0)
            )
            if far.any() or (np.isnan(a) != np.isnan(b)).any():
                return f"output {i}: {far.sum()} of {far.size} differ, as {a[far][:4]} and {b[far][:4]}"
        else:
            off = np.abs(a.astype(np.int64) - b.astype(np.int64))
            if off.max(initial=0) > steps:
                far = off > steps
                return f"output {i}: {far.sum()} of {off.size} differ by up to {off.max()}, as {a[far][:4]} and {b[far][:4]}"
    return ""
