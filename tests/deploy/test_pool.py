"""Runs with the application's threads: the same bytes, several at once, each with threads of its own; and runs that it ends."""

import ctypes
import threading
from pathlib import Path

import models
import numpy as np
import pytest

import tengen.functional as F
from tengen import Tensor, deploy, load_graph, trace
from tengen.base.errors import ConfigError
from tengen.codegen.targets import Target
from tengen.runtime.compile import load_object

WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
SHARE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
ASK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class Pool(ctypes.Structure):
    _fields_ = [("context", ctypes.c_void_p), ("share", SHARE), ("cancelled", ASK)]


def aligned(n):
    raw = np.zeros(n + 64, np.uint8)
    return raw[-raw.ctypes.data % 64 :][:n]


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """(the loaded code, the artifact, its weights, an input, the bytes of its output)."""
    folder = tmp_path_factory.mktemp("pool")
    w = Tensor(models.images((64, 96), 3))
    f = lambda x: F.softmax(F.relu(x @ w) @ w.T, axis=1)
    x = Tensor(models.images((40, 64)))
    trace(f, example_input=x).dump(folder / "net.tgn")
    m = load_graph(folder / "net.tgn")
    a = deploy.compile_model(m, "native", folder, "net", pool=True)
    blob = aligned(a.weights_bytes)
    blob[:] = np.fromfile(a.files[2], np.uint8)
    assert "int net_run_with(const net_pool *pool, const void *weights," in Path(a.files[1]).read_text()
    return load_object(Path(a.files[0]).read_bytes(), Target.host()), a, blob, x.numpy(), m(x).numpy().tobytes()


def run(net, pool):
    """(the code, the bytes of the output) of a run; without a pool by the other function."""
    code, a, blob, x, _ = net
    x, out, workspace = np.array(x), np.zeros(a.outputs[0].shape, "f4"), aligned(max(a.workspace_bytes, 1))
    arrays = [blob, *[workspace] * bool(a.workspace_bytes), x, out]
    arguments = [ctypes.c_void_p(v.ctypes.data) for v in arrays]
    name = "net_run" if pool is None else "net_run_with"
    given = [] if pool is None else [ctypes.byref(pool) if pool else None]
    types = [ctypes.c_void_p] * (len(arguments) + len(given))
    return ctypes.CFUNCTYPE(ctypes.c_int, *types)(code.address(name))(*given, *arguments), out.tobytes()


def test_the_bytes_are_those_of_one_thread(net):
    assert run(net, None) == (0, net[4]) and run(net, Pool()) == (0, net[4])
    shared = []

    def share(context, work, job, pieces):
        shared.append((context, pieces))
        parts = [threading.Thread(target=WORK(work), args=(job, i, i + 1)) for i in range(pieces)]
        for t in parts:
            t.start()
        for t in parts:
            t.join()

    assert run(net, Pool(7, SHARE(share))) == (0, net[4])
    assert shared and all(context == 7 and pieces > 1 for context, pieces in shared)
    assert run(net, False)[0] == 1  # no pool


def test_several_runs_at_once_have_pools_of_their_own(net):
    seen, results = {}, {}

    def one(number):
        share = SHARE(lambda context, work, job, pieces: (seen.setdefault(number, set()).add(context), WORK(work)(job, 0, pieces))[1])
        results[number] = run(net, Pool(number, share))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(1, 4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {i: (0, net[4]) for i in range(1, 4)} and seen == {i: {i} for i in range(1, 4)}


def test_a_run_is_ended(net):
    asked = []
    never = ASK(lambda context: asked.append(context) or 0)
    assert run(net, Pool(5, SHARE(), never)) == (0, net[4]) and len(asked) > 1 and set(asked) == {5}
    for at in range(1, len(asked) + 1):
        asked.clear()
        stop = ASK(lambda context, at=at: asked.append(context) or int(len(asked) == at))
        assert run(net, Pool(5, SHARE(), stop))[0] == -2 and len(asked) == at


def test_open_extents(tmp_path):
    net = trace(models.MLP(), dynamic_axes={0: "batch"})
    net(Tensor(models.images((3, 7))))
    net.dump(tmp_path / "m.tgn", arg_names=["image"], output_names=["scores"])
    m = load_graph(tmp_path / "m.tgn")
    a = deploy.compile_model(m, "native", tmp_path, "open", extents={"batch": range(1, 9)}, pool=True)
    code, blob = load_object(Path(a.files[0]).read_bytes(), Target.host()), aligned(a.weights_bytes)
    blob[:] = np.fromfile(a.files[2], np.uint8)
    asked = []
    pool = Pool(1, SHARE(), ASK(lambda context: asked.append(context) or 0))
    for n in (1, 5, 8):
        x, out, workspace = models.images((n, 7)), np.zeros((n, 5), "f4"), aligned(max(a.workspace_bytes, 1))
        arrays = [ctypes.c_void_p(v.ctypes.data) for v in [blob, *[workspace] * bool(a.workspace_bytes), x, out]]
        call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * len(arrays))
        assert call(code.address("open_run_with"))(ctypes.byref(pool), n, *arrays) == 0
        assert out.tobytes() == m(x).numpy().tobytes() and asked
    assert call(code.address("open_run_with"))(ctypes.byref(pool), 9, *arrays) == -1


def test_refusals(net, tmp_path):
    f, x, _ = models.mlp()
    f.dump(tmp_path / "m.tgn")
    for target, threads in (("native", 2), ("wasm32", 1)):
        with pytest.raises(ConfigError, match="pool=True is for targets of 64 bits and threads=1"):
            deploy.compile_model(tmp_path / "m.tgn", target, tmp_path, "m", threads, pool=True)
