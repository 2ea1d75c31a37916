"""Functions and layers of the dialect give PyTorch's values, shapes and dtypes (`saved_calls.npz`, written by `save_calls.py`)."""

from pathlib import Path

import numpy as np
import pytest
import pytorch_calls as calls
from exhaustive import but

import tengen.pytorch as torch

SAVED = np.load(Path(__file__).parent / "saved_calls.npz")


def test_the_saved_values_are_of_these_calls():
    assert SAVED["calls"].tolist() == calls.CALLS


@but(every=3)
@pytest.mark.parametrize("number", range(len(calls.CALLS)), ids=lambda k: calls.CALLS[k])
def test_a_call_gives_what_pytorch_gives(number):
    found = calls.make(torch, calls.CALLS[number])
    saved = [SAVED[f"{number}.{j}"] for j in range(len([n for n in SAVED.files if n.startswith(f"{number}.")]))]
    assert [a.shape for a in found] == [a.shape for a in saved] and [a.dtype for a in found] == [a.dtype for a in saved]
    for a, s in zip(found, saved):
        # float32: some ten roundings of 6e-8 of values up to some ten
        np.testing.assert_allclose(a, s, rtol=3e-6 if a.dtype.kind == "f" else 0, atol=3e-6 if a.dtype.kind == "f" else 0)


def test_what_pytorch_refuses_with_a_runtime_error_is_one():
    for call in (lambda: torch.ones(2, 3) @ torch.ones(2, 3), lambda: torch.ones(2) + torch.ones(3), lambda: torch.ones(3).view(2, 2),
                 lambda: torch.nn.Linear(3, 2)(torch.ones(2, 4)), lambda: torch.cat([torch.ones(2), torch.ones(2, 2)])):  # fmt: skip
        with pytest.raises(RuntimeError):
            call()
