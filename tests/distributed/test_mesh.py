"""Tensors in parts on a mesh: the bits of one process, what is moved, and which ways an op can be computed in parts."""

import inspect
import sys
from pathlib import Path

import numpy as np
import pytest
from exhaustive import but, exhaustive

from tengen import Tensor
from tengen import distributed as dist
from tengen import functional as F
from tengen.base.errors import DistributedError
from tengen.distributed.placing import STATED, attributes, ways
from tengen.ops.define import REGISTRY, dispatch

sys.path.insert(0, str(Path(__file__).parent))  # the ranks import what they call by its name
import jobs_parts


@pytest.fixture(scope="module")
def alone():
    return jobs_parts.tensor_parallel()


@but(every=3)
@pytest.mark.parametrize("ranks, data, traced", [(2, 1, False), (2, 1, True), (2, 2, False), (4, 2, False), (4, 1, False)])
def test_a_transformer_in_megatrons_layout_has_the_bits_of_one_process(alone, ranks, data, traced):
    """Losses, norms and parameters of two steps of Adam. At four model ranks the 512 terms of the attention's output make parts of half
    a chunk, which are gathered."""
    for losses, params, shapes, _ in dist.launcher(jobs_parts.tensor_parallel, n_gpus=ranks, backend="threads")(traced=traced, data=data):
        assert losses == alone[0] and params == alone[1]
        n = ranks // data
        assert shapes["0.up.weight"] == (1024 // n, 512) and shapes["0.down.weight"] == (512, 1024 // n) and shapes["0.up.bias"] == (1024 // n,)


@exhaustive
def test_processes_have_those_bits_too(alone):
    from tengen.transport.mpiexec import find_mpiexec

    try:
        find_mpiexec()
    except DistributedError as e:
        pytest.skip(f"no MPI: {e}")
    for losses, params, _, _ in dist.launcher(jobs_parts.tensor_parallel, n_gpus=2)(traced=True):
        assert losses == alone[0] and params == alone[1]


@pytest.mark.parametrize("ranks", [2, 4])
def test_an_mlp_moves_what_megatrons_does(ranks):
    """Nothing before the sum; then each process gets its part of the other addends, and the parts are gathered when they are looked at."""
    for (middle, end), before, after, whole in dist.launcher(jobs_parts.megatron_forward, n_gpus=ranks, backend="threads")():
        assert middle == {"model": dist.Split(1)} and end == {"model": dist.Split(0)} and whole
        result = 8 * 256 * 4
        assert before == result * (ranks - 1) // ranks and after == 2 * before


def test_every_change_of_places():
    assert dist.launcher(jobs_parts.conversions, n_gpus=4, backend="threads")() == [True] * 4


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ops_on_parts_give_the_bits_of_the_whole(ranks):
    for found, said in dist.launcher(jobs_parts.placed_values, n_gpus=ranks, backend="threads")():
        for name, want, got in found:
            assert want == got, name
        assert "no dimension 'other'" in said[0] and "axis 3 of (8, 6, 12) cannot be cut" in said[1]
        assert "axis 0 of (7, 6, 12) cannot be cut" in said[2] and "no parameter is called 'wight'" in said[3]
        assert f"21 processes are wanted, there are {ranks}" in said[4] and "add(f32[8,6,12], f32[5])" in said[5]


def test_how_a_call_is_computed_is_decided_once():
    """For its op, attributes, types and places; signs of zeros are told apart, and a new shape is decided anew."""

    def calls():
        mesh, found, r = dist.Mesh(model=2), [], np.random.default_rng(0)
        for _ in range(3):
            x = r.standard_normal((4, 6)).astype(np.float32)
            for axis in (0, 1):
                t = mesh.place(Tensor(x), model=dist.Split(axis))
                for zero in (0.0, -0.0):
                    assert F.pad(t, 1, constant_value=zero).numpy().tobytes() == np.pad(x, 1, constant_values=zero).tobytes()
                assert t.max(0).numpy().tobytes() == x.max(0).tobytes() and t.T.numpy().tobytes() == x.T.tobytes()
            found.append(len(mesh._calls))
        for n in range(1, 4):
            assert (mesh.place(Tensor(np.ones((2, n), "f4")), model=dist.Split(0)) + 1).numpy().tolist() == [[2.0] * n] * 2
        return [*found, len(mesh._calls)]

    for found in dist.launcher(calls, n_gpus=2, backend="threads")():
        assert found[0] == found[1] == found[2] == found[3] - 3 >= 6


COMPLEX = ("complex", "view_as_real", "view_as_complex", "real_part", "imag_part", "slice_grad")  # samples are complex, or cannot be cut


def _parts(t, axis, size):
    return [t] * size if t is None or axis is None else [Tensor(a) for a in np.split(t.numpy(), size, axis)]


RULED = sorted(n for n, op in REGISTRY.items() if op.kind in ("primitive", "view") and (n in STATED or op.rules.parts is not None))


@but(every=3)
@pytest.mark.parametrize("name", RULED)
def test_each_way_of_each_op(name):
    """Every op's own samples, cut along every axis that the rules allow: the parts of the results are the results of the parts, as bytes."""
    op = REGISTRY[name]
    tried = 0
    for case in op.samples:
        given = case.inputs(np.random.default_rng(0))
        given = [*given[0], *given[1:]] if op.variadic and isinstance(given[0], (list, tuple)) else given
        inputs = [None if a is None else Tensor(np.asarray(a)) for a in given] + [None] * (len(op.tensors) - len(given))
        types = [None if x is None else x._layout.type for x in inputs]
        if any(t is not None and t.dtype.is_complex for t in types):
            continue
        defaults = inspect.signature(op.call).parameters
        canonical = op.canonical(types, tuple(case.attrs.get(n, defaults[n].default) for n in op.attrs))
        outs = op.infer_types(types, canonical)
        call = lambda xs, attrs: dispatch.run(op, tuple(xs), tuple({"axis": attrs.get("axes"), **attrs}[n] for n in op.attrs))
        for size in (2, 3, 5):
            for way in ways(op, types, canonical, outs, size):
                if way.combine:
                    continue
                cut = [_parts(x, i, size) for x, i in zip(inputs, way.axes)]
                made = [call([c[r] for c in cut], attributes(op, canonical, way, size)) for r in range(size)]
                whole = call(inputs, canonical)
                for k, t in enumerate(whole if isinstance(whole, tuple) else (whole,)):
                    joined = np.concatenate([(m[k] if isinstance(m, tuple) else m).numpy() for m in made], way.out)
                    assert joined.tobytes() == np.ascontiguousarray(t.numpy()).tobytes(), (case, way)
                tried += 1
    assert tried or name in COMPLEX, "no sample can be cut"


def test_processes_make_the_same_mesh():
    def makes():
        dist.Mesh(data=2) if dist.get_rank() else dist.Mesh(model=2)

    with pytest.raises(DistributedError, match=r"rank 0: operation 3, Mesh\(model=2\); rank 1: operation 3, Mesh\(data=2\)"):
        dist.launcher(makes, n_gpus=2, backend="threads")()
