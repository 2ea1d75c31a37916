"""What a node becomes in older opsets means what it means in opset 18; `benchmarks/fuzz/older.py` tries more of it."""

from collections import Counter
from random import Random

import numpy as np
import pytest
from exhaustive import exhaustive
from hypothesis import given, settings
from hypothesis import strategies as st

import tengen.functional as F
from tengen import Tensor, trace
from tengen.interop.onnx import load, to_proto

pytest.importorskip("onnx", reason="onnx is not installed")
import older_cases

OPSETS = (7, 9, 10, 12, 16)  # between them operators change


def check(made):
    """Each form of a case gives what opset 18 gives, by ONNX's own evaluator. Returns how many it has."""
    count = 0
    for opset, older in older_cases.forms(made, OPSETS):
        have = older_cases.reference(older, made.feeds)
        if have is not None:
            count += 1
            assert not (why := older_cases.differs(made.want, have)), f"{made.op} in opset {opset}: {why}"
    return count


@exhaustive
@settings(max_examples=50, deadline=None)
@given(st.data())
def test_older_opsets_say_the_same(data):
    check(older_cases.case(lambda low, high: data.draw(st.integers(low, high))))


def test_all_operators_have_older_forms():
    """Of which the evaluator computes some; otherwise the test above would compare nothing."""
    found = Counter()
    for seed in range(100):
        made = older_cases.case(Random(seed).randint)
        found[made.op] += check(made)
    assert {op for op in found if found[op]} == set(older_cases.OPS)


def test_numbers_that_an_attribute_does_not_hold():
    """Attributes are float32: 0.1 in float64 needs an opset that has it as an input. Bounds that are missing are infinite."""
    x = np.array([[1.0, np.inf]])
    pad = lambda value: to_proto(trace(lambda x: F.pad(x, ((1, 0), (0, 0)), constant_value=value), example_input=Tensor(x, dtype="float64")))
    assert pad(0.5).opset_import[0].version < 11 <= pad(0.1).opset_import[0].version
    assert load(pad(0.1))(x).numpy()[0].tolist() == [0.1, 0.1]
