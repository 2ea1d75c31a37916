"""A training that is no bool is refused by the functions that drop elements, with its name and value."""

import numpy as np
import pytest

from tengen import Tensor
from tengen import functional as F


@pytest.mark.parametrize("drop", [F.dropout, F.alpha_dropout])
@pytest.mark.parametrize("value", ["False", "", 0.5, 0.0, np.float32(1), None, []])
def test_a_training_that_is_no_bool_is_refused(drop, value):
    with pytest.raises(TypeError) as e:
        drop(Tensor([1.0, 2.0]), 0.5, training=value)
    assert str(e.value).startswith(f"{drop.__name__}: training={value!r} must be True or False")


@pytest.mark.parametrize("drop", [F.dropout, F.alpha_dropout])
@pytest.mark.parametrize("value", [False, 0, np.bool_(False)])
def test_a_false_training_is_the_identity(drop, value):
    x = Tensor([1.0, 2.0])
    assert drop(x, 0.5, training=value).tolist() == [1.0, 2.0]
