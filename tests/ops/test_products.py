"""Products of every form against NumPy in float64, and what an eager product launches."""

import numpy as np
import pytest
from exhaustive import but

import tengen
import tengen.functional as F
from tengen import Tensor


@but(every=3)
@pytest.mark.parametrize("k, n", [(16, 16), (15, 17), (256, 32), (257, 31), (300, 1000), (1, 40), (0, 5)])
@pytest.mark.parametrize("rows", [1, 2, 8, 14, 15, 33])
def test_both_forms_are_one_product(rows, k, n):
    rng = np.random.default_rng(rows * k + n)
    x, y = rng.standard_normal((rows, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    turned = Tensor(np.ascontiguousarray(y.T))
    want = x.astype(np.float64) @ y.astype(np.float64)
    got = F.matmul(Tensor(x), Tensor(y)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.sqrt(k + 1))
    assert F.matmul(Tensor(x), turned, transpose_b=True).numpy().tobytes() == got.tobytes()
    assert tengen.trace(lambda a, b: F.matmul(a, b))(Tensor(x), Tensor(y)).numpy().tobytes() == got.tobytes()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32"])
def test_a_transposed_operand_of_any_dtype(dtype):
    rng = np.random.default_rng(1)
    x, y = rng.integers(-4, 5, (20, 37)), rng.integers(-4, 5, (50, 37))
    got = F.matmul(Tensor(x).astype(dtype), Tensor(y).astype(dtype), transpose_b=True)
    assert got.astype("float64").numpy().tolist() == (x @ y.T).tolist()


@pytest.mark.parametrize("shape", [(8, 300), (2, 4, 300)])
def test_few_rows_pack_nothing(shape):
    """In a program that knows them: a trace's, or that of an eager call that is hot. Before, one eager program serves all."""
    x, y = Tensor(np.ones(shape, np.float32)), Tensor(np.ones((300, 200), np.float32))
    run = tengen.trace(lambda x, y: F.matmul(x, y), example_input=(x, y))
    with tengen.profile() as p:
        run(x, y)
    assert [r.kernel for r in p.rows] == ["matmul"]


@pytest.mark.parametrize("lead, k, n", [((3, 1), 0, 5), ((2, 3), 4, 0), ((0, 3), 4, 5), ((0, 3), 0, 5)])
def test_gradients_of_what_is_empty(lead, k, n):
    """A batch times one matrix: its gradient is one sum over all rows."""
    x, y = Tensor(np.ones((*lead, k), np.float32)), Tensor(np.ones((k, n), np.float32))
    _, pull = tengen.autodiff.vjp(F.matmul, x, y)
    gx, gy = pull(Tensor(np.ones((*lead, n), np.float32)))
    assert gx.shape == x.shape and (gx.numpy() == n).all()
    assert gy.shape == y.shape and (gy.numpy() == np.prod(lead)).all()
