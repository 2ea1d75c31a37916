"""Operands that are computed as they are read, in kernels: where they cannot be, they are stored before."""

import numpy as np
import pytest
from launching import run

from tengen import Tensor
from tengen.base.dtype import float32
from tengen.base.errors import VerifyError
from tengen.codegen.targets import Target
from tengen.kernels.lowering import Array, Lowering, contiguous_strides
from tengen.kernels.source import Elementwise, Given, Leaf, Literal, Prologue
from tengen.loops import lang
from tengen.ops.define import lookup


def clipped(x: Array) -> Array:
    """min(max(x, 0), 1), computed as it is read."""
    given = Given(x.shape, x.dtype)
    of = lambda s: Elementwise(lambda v: lang.minimum(lang.maximum(v, 0.0), 1.0), [s], x.shape, x.dtype)
    return Array(x.id, x.dtype, x.shape, x.strides, x.offset, Prologue(of(given), given, of(Leaf(x))))


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 1, 2, 3)], ids=["channels last", "channels first"])
@pytest.mark.parametrize(("op", "groups"), [("conv", 1), ("conv", 16), ("conv_weight_grad", 1), ("conv_weight_grad", 16)])
def test_images_that_lie_otherwise_are_stored_before(op, groups, order):
    rng = np.random.default_rng(1)
    shape, filters = (1, 16, 3, 5), (16, 16, 1, 1) if groups == 1 else (16, 1, 1, 3, 3)
    a = {"stride": (1, 1), "padding": (int(groups > 1),) * 2, "dilation": (1, 1), "groups": groups}
    data = rng.normal(size=shape).astype("float32")
    other = rng.normal(size=filters if op == "conv" else shape).astype("float32")
    out = shape if op == "conv" else filters
    arrays = [
        clipped(Array("x", float32, shape, contiguous_strides(shape, order))),
        Array("y", float32, other.shape, contiguous_strides(other.shape)),
        Array("like", float32, filters, contiguous_strides(filters)),
    ]
    lo = Lowering(Target.host())
    lookup(op).lower_to(
        lo, ins=arrays[: 3 if op != "conv" else 2], outs=[Array("z", float32, out, contiguous_strides(out))], attrs=a
    )
    memory = {"x": data.transpose(order).ravel().copy(), "y": other.ravel().copy(), "z": np.zeros(out, "float32").ravel()}
    run(lo, memory)
    want = lookup(op)(
        Tensor(data.clip(0, 1)), Tensor(other), *([Tensor(np.zeros(filters, "float32"))] if op != "conv" else []), **a
    )
    assert memory["z"].tobytes() == want.numpy().tobytes()


def test_an_array_with_a_prologue_is_not_read_by_mistake():
    k = Lowering(None).kernel("k")
    with pytest.raises(VerifyError, match="reads an array that has a prologue"):
        k.read(clipped(Array("x", float32, (1, 16), (16, 1))))


def test_a_prologue_loads_its_other_operands_once():
    given, beside = Given((1, 16), float32), Leaf(Array("b", float32, (1, 16), (0, 1)))
    add = Elementwise(lambda v, w: v + w, [given, beside], (1, 16), float32)
    final = Elementwise(lambda v, w: v * w, [add, Literal(2.0, float32, (1, 16))], (1, 16), float32)
    k = Lowering(None).kernel("k")
    make = Prologue(final, given, final).beside(k, 0, None)
    two = [make(lang.const(x, float32, lang.LANES)) for x in (1.0, 3.0)]
    assert all(v.lanes == lang.LANES for v in two) and len(k._by_id) == 1
