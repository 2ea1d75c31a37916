"""Tensors in other libraries' hands, and theirs in ours: SciPy, scikit-learn, DLPack, Python's buffers, columns of tables."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from exhaustive import exhaustive

import tengen.array_api as xp
from tengen import Tensor, from_dlpack
from tengen.data import DataLoader

SCIENTIFIC = Path(__file__).with_name("scientific.py")


@exhaustive
def test_scipy_and_scikit_learn():
    for name in ("scipy", "sklearn", "array_api_compat"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed (pip install scipy scikit-learn array-api-compat)")
    made = subprocess.run([sys.executable, SCIENTIFIC], capture_output=True, text=True, timeout=300, env=dict(os.environ))
    assert made.returncode == 0, made.stderr
    found = json.loads(made.stdout)
    assert len(found) >= 10 and not (bad := {k: v for k, v in found.items() if v}), bad


DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)


def address(a):
    return a.__array_interface__["data"][0]


@pytest.mark.parametrize("name", DTYPES)
def test_numpy_both_ways(name):
    a = np.arange(6).reshape(2, 3).astype(name)
    for t in (from_dlpack(a), from_dlpack(a.T), from_dlpack(a[:, ::2])):
        assert t.dtype == name
    t = from_dlpack(a)
    back = np.from_dlpack(t)
    assert address(back) == address(a) == address(t.numpy()) and not back.flags.writeable and np.array_equal(back, a)
    own = np.from_dlpack(t, copy=True)
    assert address(own) != address(a) and own.flags.writeable


@pytest.mark.parametrize("name", [d for d in DTYPES if d not in ("uint16", "uint32", "uint64")])
def test_torch_both_ways(name):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    theirs = torch.arange(6).reshape(2, 3).to(getattr(torch, name))
    t = from_dlpack(theirs)
    assert t.dtype == name and address(t.numpy()) == theirs.data_ptr() and np.array_equal(t.numpy(), theirs.numpy())
    mine = Tensor(np.arange(6).reshape(2, 3).astype(name))
    there = torch.from_dlpack(mine)
    assert there.data_ptr() == address(mine.numpy()) and np.array_equal(there.numpy(), mine.numpy())
    assert xp.asarray(theirs).dtype == name and np.array_equal(from_dlpack(theirs.T).numpy(), theirs.T.numpy())


@pytest.mark.parametrize("name", ["bool", "int8", "int32", "uint8", "uint32", "float16", "bfloat16", "float32", "complex64"])
def test_jax_both_ways(name):
    jax = pytest.importorskip("jax", reason="jax is not installed")
    theirs = jax.device_put(jax.numpy.arange(6).reshape(2, 3).astype(name), jax.devices("cpu")[0])
    t = from_dlpack(theirs)
    assert t.dtype == name and np.array_equal(t.numpy(), np.asarray(theirs))
    there = jax.dlpack.from_dlpack(t + t if name != "bool" else t)
    assert there.dtype == name and np.array_equal(np.asarray(there), (t + t if name != "bool" else t).numpy())


def test_what_dlpack_refuses():
    swapped = np.arange(3, dtype=">i4" if sys.byteorder == "little" else "<i4")
    with pytest.raises(BufferError):
        from_dlpack(swapped)
    assert Tensor(swapped).tolist() == [0, 1, 2]
    t = Tensor([1.0, 2.0])
    for more, error in (({"device": "cuda"}, ValueError), ({"device": "nowhere"}, ValueError)):
        with pytest.raises(error):
            from_dlpack(t, **more)
    for more in ({"stream": 1}, {"dl_device": (2, 0)}):
        with pytest.raises(BufferError):
            t.__dlpack__(**more)
    assert (
        from_dlpack(t, copy=True).tolist() == [1, 2]
        and t.__dlpack__(max_version=(0, 8)) is not None
        and t.__dlpack_device__() == (1, 0)
    )


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python asks objects written in Python for their buffer from 3.12 on")
def test_memoryview():
    t = Tensor([[1.0, 2.0], [3.0, 4.0]])
    view = memoryview(t)
    assert view.readonly and view.shape == (2, 2) and view.format == "f" and view.tolist() == t.tolist()


def test_the_buffer_is_the_tensors_memory():
    t = Tensor([[1.0, 2.0], [3.0, 4.0]])
    view = t.__buffer__(0)
    assert view.readonly and view.tolist() == t.tolist() and address(np.asarray(view)) == address(t.numpy())


def test_pandas_columns():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"x": np.arange(5.0), "y": np.arange(5)})
    for name, dtype in (("x", "float64"), ("y", "int64")):
        t = from_dlpack(frame[name].to_numpy())
        assert t.dtype == dtype and address(t.numpy()) == address(frame[name].to_numpy()) and t.tolist() == frame[name].tolist()
        assert Tensor(frame[name]).tolist() == frame[name].tolist() and Tensor(frame[name]).dtype == dtype


def test_polars_columns():
    polars = pytest.importorskip("polars", reason="polars is not installed")
    column = polars.Series("x", np.arange(5.0))
    t = from_dlpack(column.to_numpy(allow_copy=False))
    assert t.dtype == "float64" and t.tolist() == column.to_list() and Tensor(column).tolist() == column.to_list()


def test_arrow_columns():
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    column = arrow.array(np.arange(5, dtype="float32"))
    t = from_dlpack(column)
    assert t.dtype == "float32" and t.tolist() == column.to_pylist() and address(t.numpy()) == column.buffers()[1].address
    assert Tensor(column).tolist() == column.to_pylist()
    with pytest.raises(TypeError, match="no nulls"):
        from_dlpack(arrow.array([1.0, None]))


def test_columns_of_datasets():
    """Hugging Face's datasets are Arrow tables: dense columns come without a copy, rows through a loader."""
    datasets = pytest.importorskip("datasets", reason="datasets is not installed (pip install datasets)")
    table = datasets.Dataset.from_dict({"pixels": [[1.0, 2.0], [3.0, 4.0]], "label": [1, 0], "weight": [0.5, 1.5]})
    chunk = table.data.column("weight").chunk(0)
    t = from_dlpack(chunk)
    assert address(t.numpy()) == chunk.buffers()[1].address and t.tolist() == [0.5, 1.5] and t.dtype == "float64"
    assert Tensor(table["label"]).tolist() == [1, 0] and Tensor(table["pixels"]).tolist() == table["pixels"][:]
    (batch,) = DataLoader(table.with_format("numpy"), batch_size=2)
    assert batch["pixels"].tolist() == [[1.0, 2.0], [3.0, 4.0]] and batch["label"].tolist() == [1, 0]


def test_producers_before_dlpack_1():
    """They do not know `max_version`."""

    class Old:
        def __dlpack__(self, stream=None):
            return np.arange(3).__dlpack__()

    assert from_dlpack(Old()).tolist() == [0, 1, 2]
