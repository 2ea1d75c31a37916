"""Graphs run node by node give what their ops give, for each op that a model file may hold."""

import numpy as np
import pytest
from exhaustive import but
from programs import apply, special_numbers
from recorded import graph_of

from tengen import Tensor
from tengen.base.errors import TengenError
from tengen.deploy import by_nodes
from tengen.ops.define import REGISTRY

OPS = [name for name, op in REGISTRY.items() if "." not in name and (op.samples or op.kind == "elementwise")]


def tensors(op, case):
    """The sample's inputs in float32, as tensors; an absent one is None."""
    found = [a for x in case.inputs(np.random.default_rng(5)) for a in (x if isinstance(x, (list, tuple)) else [x])]
    single = lambda a: a.astype("float32") if a.dtype == np.float64 else a
    return [None if a is None else Tensor(single(np.asarray(a))) for a in found]


@but(every=3)
@pytest.mark.parametrize("name", OPS)
def test_an_op_alone(name):
    op = REGISTRY[name]
    case = op.samples[0] if op.samples else special_numbers(op)
    xs = tensors(op, case)
    present = [x for x in xs if x is not None]

    def call(*given):
        it = iter(given)
        made = apply(op, [None if x is None else next(it) for x in xs], case.attrs)
        return list(made) if isinstance(made, (tuple, list)) else made

    try:
        expected = call(*present)
        graph = graph_of(call, *present)
    except TengenError as e:
        pytest.skip(f"it is not recorded for this sample: {type(e).__name__}")
    if not by_nodes.fits(graph):
        return  # such a model has its program first: `test_first_answer.py`
    found = by_nodes.run(graph, [x._data for x in present])
    expected = expected if isinstance(expected, list) else [expected]
    assert [x.numpy().tobytes() for x in found] == [x.numpy().tobytes() for x in expected]
