"""Tests of PyTorch's dialect: parameters are leaves, as when it is imported."""

import pytest

from tengen.tensor.nodes import leaves


@pytest.fixture(autouse=True)
def parameters_are_leaves(whatever_ran_before):
    before = leaves.of_parameters(True)
    yield
    leaves.of_parameters(before)
