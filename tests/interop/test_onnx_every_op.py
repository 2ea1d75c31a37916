"""Every op of Tengen's as an ONNX file: what runs it computes the op's reference; or an error says why ONNX cannot say it."""

import inspect

import every_op
import numpy as np
import pytest
from exhaustive import but
from onnx.reference import ReferenceEvaluator
from recorded import graph_of

from tengen import Tensor
from tengen.base.errors import ArgumentError, DTypeError
from tengen.deploy.dump import portable
from tengen.deploy.model import Model
from tengen.interop.onnx import to_module, to_proto
from tengen.interop.onnx.unsaid import UNSAID
from tengen.interop.onnx.values import as_array
from tengen.ir.types import TensorType
from tengen.ops.define import REGISTRY, Case

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

EVALUATOR_LACKS = ("conv_transposed", "cumprod", "gather", "lstm")  # groups; scans from the end; indices of fewer elements
EVALUATED_SINCE = {"DequantizeLinear": 19, "Scatter": 11}  # operators whose older forms the evaluator lacks, though they mean the same
APART = {  # results that are not compared: why
    "even_steps": "its dtype is an attribute, which the case has as float64",
    "affine_grid": "as even_steps",
}


def elementwise_case(op):
    """Operands within the op's domain: floats, or integers where it takes no floats; bools where their dtype is their own."""
    interval = lambda i: op.domain[i] if isinstance(op.domain, list) else op.domain
    defaults = {a: inspect.signature(op.call).parameters[a].default for a in op.attrs}
    try:
        op.infer_types([TensorType((1,), "float32")] * len(op.tensors), defaults)
        whole = False
    except DTypeError:
        whole = True

    def inputs(r):
        made = [r.uniform(*interval(i), (3, 17)) for i in range(len(op.tensors))]
        return tuple(x > np.median(x) if i in op.own else np.round(x).astype(np.int32) if whole else x for i, x in enumerate(made))

    return Case(inputs)


def cases():
    for op in every_op.ops(every_op.COUNTED):
        samples = op.samples or ((elementwise_case(op),) if op.kind == "elementwise" else ())  # shorthands are calls of other ops
        for i, case in enumerate(samples[:3]):
            yield pytest.param(op, case, not i, id=f"{op.name}-{i}")


def flat(xs):
    return [a for x in xs for a in (x if isinstance(x, list) else [x])]


def listed(op, xs):
    n = len(xs) - len(op.tensors) + 1
    return [list(xs[:n]), *xs[n:]] if op.variadic else list(xs)


def narrow(a):
    return None if a is None else a.astype({"f": np.float32, "c": np.complex64}.get(a.dtype.kind, a.dtype)) if a.dtype.kind in "fc" else a


def model_of(op, xs, attrs):
    held = [None if a is None else Tensor(a) for a in xs]

    def f(*given):
        it = iter(given)
        return op.call(**dict(zip(op.tensors, listed(op, [None if t is None else next(it) for t in held]))), **attrs)

    g = graph_of(f, *(t for t in held if t is not None))
    return Model(*portable(g, {}, [v.name for v in g.inputs], list(g.output_names), {}))


def run(proto, xs):
    """The outputs, by onnxruntime, or by ONNX's own evaluator."""
    given = dict(zip((p.name for p in proto.graph.input), xs))
    if onnxruntime is None:
        return ReferenceEvaluator(proto).run(None, given)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.graph_optimization_level = 4, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, given)


@but(first_of="op", every=2)
@pytest.mark.parametrize("op, case, first", list(cases()))
def test_every_op(op, case, first):
    xs = [None if a is None else narrow(np.asarray(a)) for a in flat(case.inputs(np.random.default_rng(1234)))]
    model = model_of(op, xs, case.attrs)
    if (said := UNSAID.keys() & {n.op for n in model.graph.nodes}):
        with pytest.raises(ArgumentError) as e:
            to_proto(model)
        assert any(UNSAID[name] in str(e.value) for name in said)
        return
    proto = to_proto(model)
    present = [a for a in xs if a is not None]
    if op.name in APART:
        return
    ways = [lambda: [as_array(v) for v in to_module(proto).eval().values(present)]] if first else []
    if onnxruntime is not None or op.name not in EVALUATOR_LACKS:
        since = max((EVALUATED_SINCE.get(n.op_type, 0) for n in proto.graph.node), default=0) if onnxruntime is None else 0
        ways.append(lambda: run(to_proto(model, since) if since else proto, present))
    wide = [a if a is None or a.dtype.kind != "f" else a.astype(np.float64) for a in xs]
    with np.errstate(all="ignore"):
        want = op.rules.reference(*listed(op, wide), **case.attrs)
    for way in ways:
        for a, b in zip(way(), want if isinstance(want, (tuple, list)) else (want,)):
            b = np.asarray(b)
            assert a.shape == b.shape, (a.shape, b.shape)
            if a.dtype.kind == "f":
                scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0)))
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5 * scale)
            else:
                assert (a == b.astype(a.dtype)).all()


@pytest.mark.skipif(onnxruntime is None, reason="onnxruntime is not installed: the package onnx evaluates the files instead")
def test_files_are_run_by_onnxruntime():
    assert "CPUExecutionProvider" in onnxruntime.get_available_providers()


def test_reasons_are_of_ops():
    assert UNSAID.keys() <= REGISTRY.keys()
