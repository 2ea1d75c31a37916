"""`tengen.load(path, mmap=True)`: tensors that are the file, until they are written."""

import copy
import mmap
import os
import pickle
import re
from pathlib import Path

import models
import numpy as np
import pytest
import safetensors.numpy

import tengen
import tengen.module as M
from tengen import Tensor
from tengen.autodiff import GradManager
from tengen.optimizer import SGD
from tengen.runtime import mapped

WIDTH = 1024  # 4 MiB a weight: well above what else moves


def images() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((4, WIDTH)).astype("float32")


def network() -> M.Module:
    tengen.random.seed(5)
    return M.Sequential(M.Linear(WIDTH, WIDTH), M.ReLU(), M.Linear(WIDTH, 10))


@pytest.fixture
def file(tmp_path):
    """A saved network, and its bytes."""
    tengen.save(network().state_dict(), tmp_path / "net")
    return tmp_path / "net", (tmp_path / "net").read_bytes()


def loaded(path) -> M.Module:
    tengen.random.seed(6)
    net = M.Sequential(M.Linear(WIDTH, WIDTH), M.ReLU(), M.Linear(WIDTH, 10))
    net.load_state_dict(tengen.load(path, mmap=True))
    return net


def in_file(t: Tensor) -> bool:
    return mapped.is_mapped(t.numpy())


def resident(name: str) -> int:
    """Bytes in memory of the mappings whose path ends so."""
    found, here = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            here = line.endswith(name)
        elif here and line.startswith("Rss:"):
            found += int(line.split()[1]) << 10
    return found


def test_values_and_types(tmp_path):
    import ml_dtypes

    arrays = {
        "f4": np.arange(12, dtype="f4").reshape(3, 4), "half": np.ones(3, ml_dtypes.bfloat16), "none": np.empty((0, 2), "i8"),
        "scalar": np.array(7), "flag": np.array([True, False]), "odd": np.arange(5, dtype="u1"),
    }  # fmt: skip
    obj = {"arrays": arrays, "tensors": [Tensor(a) for a in arrays.values()], "turned": Tensor(arrays["f4"]).transpose(1, 0)}
    tengen.save(obj, tmp_path / "c")
    got = tengen.load(tmp_path / "c", mmap=True)
    for a, b, t in zip(got["arrays"].values(), arrays.values(), got["tensors"]):
        assert models.same(a, b) and models.same(t, b) and a.dtype == b.dtype
        assert not a.size or (not a.flags.writeable and mapped.is_mapped(a) and in_file(t))
    assert models.same(got["turned"], obj["turned"])
    assert (got["turned"] + got["turned"]).tolist() == (arrays["f4"].T * 2).tolist()


def test_others_files_at_any_place(tmp_path):
    """The safetensors library begins tensors where the last one ends: what lies across its elements is copied."""
    safetensors.numpy.save_file(
        {"a": np.arange(3, dtype="f8"), "b": np.arange(5, dtype="f4"), "c": np.arange(3, dtype="i1")}, tmp_path / "s"
    )
    got = tengen.load(tmp_path / "s", mmap=True)
    assert [got[k].tolist() for k in "abc"] == [[0, 1, 2], [0, 1, 2, 3, 4], [0, 1, 2]]
    header = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F4","shape":[5],"data_offsets":[1,21]}}'
    header = header.replace(b"F4", b"F32")
    raw = b"\1" + np.arange(5, dtype="f4").tobytes()
    (tmp_path / "odd").write_bytes(len(header).to_bytes(8, "little") + header + raw)
    got = tengen.load(tmp_path / "odd", mmap=True)
    assert (got["b"] + 1).tolist() == [1, 2, 3, 4, 5] and got["a"].tolist() == [1]
    net = M.Linear(5, 1, bias=False)
    net.load_state_dict({"weight": got["b"].reshape(1, 5)})
    assert float(tengen.trace(net, capture_as_const=True)(Tensor([[1.0] * 5]))) == 10


def test_writing_leaves_the_file(file):
    path, before = file
    net = loaded(path)
    weight, bias = net[0].weight, net[0].bias
    assert in_file(weight) and in_file(bias)
    shared = copy.deepcopy(net)
    seen = weight.numpy()
    first = seen.copy()
    weight[3, 5] = 7.0
    bias += 1
    assert not in_file(weight) and weight.numpy()[3, 5] == 7 and weight.numpy()[3, 4] == first[3, 4]
    assert models.same(seen, first) and models.same(shared[0].weight, first) and in_file(shared[0].weight)
    assert path.read_bytes() == before


@pytest.mark.parametrize("traced", [False, True])
def test_training_from_a_file(file, traced):
    path, before = file
    kept = loaded(path)

    def trained(net):
        gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(x):
            with gm:
                loss = (net(x) ** 2).mean()
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        run = tengen.trace(step) if traced else step
        losses = [run(Tensor(images())).numpy().tobytes() for _ in range(3)]
        return losses, [p.numpy().tobytes() for p in net.parameters()]

    assert trained(loaded(path)) == trained(network())
    assert path.read_bytes() == before and all(models.same(p, q) for p, q in zip(kept.parameters(), network().parameters()))


@pytest.mark.parametrize("constants", [False, True])
def test_the_same_bits(file, constants):
    net, x = network(), Tensor(images())
    want = net(x).numpy().tobytes()
    other = loaded(file[0])
    assert other(x).numpy().tobytes() == want
    assert tengen.trace(other, capture_as_const=constants)(x).numpy().tobytes() == want


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED") or not os.path.exists("/proc/self/smaps"), reason="asks Linux")
def test_weights_are_in_memory_once(file):
    """Packed constants are a copy; the parameters they were made of lie in the file, and their pages are given back."""
    net = loaded(file[0])
    want = net[0].weight.numpy().sum()
    assert resident("/net") > WIDTH * WIDTH * 4
    run = tengen.trace(net, capture_as_const=True)
    y = run(Tensor(images())).numpy().tobytes()
    assert resident("/net") < 1 << 20
    assert run(Tensor(images())).numpy().tobytes() == y and resident("/net") < 1 << 20
    assert net[0].weight.numpy().sum() == want  # read from the file again


def test_pickles_and_dlpack(file):
    net = loaded(file[0])
    again = pickle.loads(pickle.dumps(net[0].weight))
    assert models.same(again, net[0].weight) and not in_file(again)
    a = np.from_dlpack(net[0].weight)
    assert mapped.is_mapped(a)
    kept = a.copy()
    net[0].weight[0] = 0.0
    assert models.same(a, kept)


def test_files_that_go_away(file):
    """Deleted, replaced, without the right to write: the memory is that of the file that was opened."""
    path, _ = file
    path.chmod(0o400)
    want = network()(Tensor(images())).numpy().tobytes()
    net = loaded(path)
    tengen.save({"other": np.zeros(3)}, path)
    mapped.trim()
    assert net(Tensor(images())).numpy().tobytes() == want
    tengen.save(net.state_dict(), path)
    net = loaded(path)
    path.unlink()
    mapped.trim()
    assert net(Tensor(images())).numpy().tobytes() == want


def test_mappings_go_with_their_last_array(file):
    before = set(mapped._live)
    net = loaded(file[0])
    view = net[0].weight.numpy()[5:]
    del net
    mapped.trim()
    assert mapped.is_mapped(view) and np.isfinite(view).all()
    assert len(set(mapped._live) - before) == 1
    del view
    assert set(mapped._live) <= before


def test_tensors_share_what_arrays_copy():
    """A state dict of tensors costs no copies: tensors are values. An array may change, and does not change what was loaded."""
    net = M.Linear(3, 2)
    state = {"weight": Tensor(np.ones((2, 3), "f4")), "bias": np.zeros(2, "f4")}
    net.load_state_dict(state)
    assert np.shares_memory(net.weight.numpy(), state["weight"].numpy())
    state["weight"][0, 0] = 5.0
    state["bias"][0] = 5.0
    assert net.weight.numpy().sum() == 6 and net.bias.numpy().sum() == 0
    net.weight[1] = 2.0
    assert state["weight"].numpy().tolist() == [[5, 1, 1], [1, 1, 1]]
    net.load_state_dict({"weight": Tensor(np.arange(6, dtype="f4").reshape(3, 2)).transpose(1, 0), "bias": Tensor([1.0, 2.0])})
    assert net.weight.tolist() == [[0, 2, 4], [1, 3, 5]] and net.weight.strides == (3, 1)
