"""Checkpoints of several processes: read by another number of them the run goes on with the same bits; what was damaged, killed or not
written whole is told."""

import contextlib
import hashlib
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
from exhaustive import but, exhaustive

from tengen import Tensor, autodiff, from_dlpack, trace
from tengen import distributed as dist
from tengen import module as M
from tengen import optimizer as optim
from tengen.base.errors import DistributedError, FileFormatError, UsageWarning
from tengen.distributed import checkpoint
from tengen.runtime import native

sys.path.insert(0, str(Path(__file__).parent))  # the ranks import what they call by its name

import jobs_training


def _mpi():
    from tengen.transport.mpiexec import find_mpiexec

    try:
        find_mpiexec()
    except DistributedError as e:
        pytest.skip(f"no MPI: {e}")


@pytest.fixture(scope="module")
def whole():
    """The run that is never interrupted, in one process."""
    return jobs_training.trained(steps=4)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, whole):
    """What four processes wrote after two of its steps, the large arrays in a thread."""
    _mpi()
    folder = tmp_path_factory.mktemp("saved") / "run.tgc"
    for found in dist.launcher(jobs_training.trained, n_gpus=4)(steps=4, sharded=True, write=str(folder), later=True):
        assert found == whole
    assert sorted(p.name for p in folder.iterdir()) == ["arrays-0", "arrays-1", "arrays-2", "arrays-3", "manifest.json", "values"]
    assert not list(folder.parent.glob("*.part")) and not list(folder.parent.glob("*.old"))
    return folder


@but(every=4)
@pytest.mark.parametrize("ranks, sharded", [(1, False), (1, True), (2, True), (3, False)])
def test_another_number_of_processes_goes_on_with_the_same_bits(saved, whole, ranks, sharded):
    for found in dist.launcher(jobs_training.trained, n_gpus=ranks)(steps=4, read=str(saved), sharded=sharded):
        assert found == whole


def test_a_process_that_cannot_write_is_told_by_all_and_the_old_one_stays(tmp_path):
    _mpi()
    folder = tmp_path / "run.tgc"
    found = dist.launcher(jobs_training.unwritable, n_gpus=3)(str(folder))
    assert "No space left" in found[1] and "rank 1 failed" in found[0] and "rank 1 failed" in found[2]
    assert dist.load_checkpoint(folder, net=M.Linear(64, 64)) == {"step": 1}


@pytest.fixture
def folder(tmp_path):
    net = M.Linear(64, 64)
    dist.save_checkpoint(tmp_path / "run.tgc", net=net, step=1)
    return tmp_path / "run.tgc"


def test_one_that_is_killed_while_it_writes(folder):
    """Whatever stands there at any moment: the old one, or the new one."""
    old, part = folder.with_name("run.tgc.old"), folder.with_name("run.tgc.part")
    shutil.copytree(folder, part)
    (part / "manifest.json").unlink()  # killed while it wrote its files
    assert dist.load_checkpoint(folder, net=M.Linear(64, 64)) == {"step": 1}
    folder.rename(old)  # killed between two renames
    assert dist.load_checkpoint(folder, net=M.Linear(64, 64)) == {"step": 1}
    dist.save_checkpoint(folder, net=M.Linear(64, 64), step=2)
    assert dist.load_checkpoint(folder, net=M.Linear(64, 64)) == {"step": 2}
    assert not old.exists() and not part.exists()


KILLED = """
import os, shutil, signal, sys
from tengen import distributed as dist, module as M
from tengen.base import files

folder, net = sys.argv[1], M.Linear(64, 64)
if sys.argv[2] == "renames":
    files._exchange = lambda one, other: False
plain = {(files, "_exchange"): files._exchange, (os, "rename"): os.rename, (os, "fsync"): os.fsync, (shutil, "rmtree"): shutil.rmtree}
found = []
for last in range(100):
    dist.save_checkpoint(folder, net=net, step=1)
    child = os.fork()
    if child == 0:  # the process is killed before or behind its n-th call
        calls = iter(range(200))
        def told(f):
            def call(*args, **kwargs):
                if next(calls) == last:
                    os.kill(os.getpid(), signal.SIGKILL)
                made = f(*args, **kwargs)
                if next(calls) == last:
                    os.kill(os.getpid(), signal.SIGKILL)
                return made
            return call
        for (where, name), f in plain.items():
            setattr(where, name, told(f))
        dist.save_checkpoint(folder, net=net, step=2)
        os._exit(0)
    died = os.waitpid(child, 0)[1] != 0
    assert dist.has_checkpoint(folder) and (sys.argv[2] == "renames" or os.path.isdir(folder)), last
    found.append(dist.load_checkpoint(folder, net=M.Linear(64, 64))["step"])
    if not died:
        break
assert found == sorted(found) and found[0] == 1 and found[-1] == 2 and len(found) > 8, found
dist.save_checkpoint(folder, net=net, step=3)
assert os.listdir(os.path.dirname(folder)) == [os.path.basename(folder)]
print("kept", len(found))
"""


@pytest.mark.parametrize("way", ["exchange", "renames"])
def test_a_process_that_is_killed_at_any_call_leaves_the_old_one_or_the_new_one(tmp_path, way):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "run.tgc"), way], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith("kept"), done.stdout + done.stderr


def _flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_one_of_the_first_version_is_read(folder):
    """Whose manifest has the hash of each whole file."""
    said = json.loads((folder / "manifest.json").read_text())
    said["version"] = 1
    for name, row in said["files"].items():
        row["blake2b"] = hashlib.blake2b((folder / name).read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(said))
    net = M.Linear(64, 64)
    dist.load_checkpoint(folder, net=net)
    said["version"] = 2
    (folder / "manifest.json").write_text(json.dumps(said))
    with pytest.raises(FileFormatError, match="is not what was written"):
        dist.load_checkpoint(folder, net=net)


@pytest.mark.parametrize("harm, words", [
    (lambda f: (f / "arrays-0").write_bytes(b"x" * (f / "arrays-0").stat().st_size), "arrays-0 is not what was written"),
    (lambda f: _flip(f / "arrays-0", -1), "arrays-0: its checksum does not fit its content"),
    (lambda f: _flip(f / "values", 20), "values is not what was written"), (lambda f: _flip(f / "values", 0), "values is not what was written"),
    (lambda f: (f / "values").write_bytes(b""), "values is not what was written"),
    (lambda f: (f / "arrays-0").unlink(), "arrays-0 is not there"), (lambda f: (f / "manifest.json").unlink(), "manifest.json is not there"),
    (lambda f: (f / "manifest.json").write_text("[" * 10_000), "manifest does not fit"),
    (lambda f: (f / "manifest.json").write_text('{"version": 9, "processes": 1, "files": {}}'), "version 9"),
    (lambda f: (f / "manifest.json").write_text('{"version": 1, "processes": 99999999999, "files": {}}'), "manifest does not fit"),
])  # fmt: skip
def test_a_damaged_one_is_refused(folder, harm, words):
    harm(folder)
    net = M.Linear(64, 64)
    before = net.weight.numpy().copy()
    with pytest.raises(FileFormatError, match=words):
        dist.load_checkpoint(folder, net=net)
    assert np.array_equal(net.weight.numpy(), before)


def test_files_outside_of_the_folder_are_not_read(folder, tmp_path):
    (tmp_path / "other").write_bytes((folder / "arrays-0").read_bytes())
    (folder / "arrays-0").unlink()
    (folder / "arrays-0").symlink_to(tmp_path / "other")
    with pytest.raises(FileFormatError, match="arrays-0 is not what was written"):
        dist.load_checkpoint(folder, net=M.Linear(64, 64))
    said = json.loads((folder / "manifest.json").read_text())
    said["files"]["../other"] = said["files"].pop("arrays-0")
    (folder / "manifest.json").write_text(json.dumps(said))
    with pytest.raises(FileFormatError, match="manifest does not fit"):
        dist.load_checkpoint(folder, net=M.Linear(64, 64))


def test_what_cannot_be_sharded():
    net = dist.DataParallel(M.Linear(3, 2))
    with pytest.raises(DistributedError, match="LAMB needs whole parameters"):
        dist.shard(net, optim.LAMB(net.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="stage=4"):
        dist.shard(net, optim.Adam(net.parameters(), lr=0.1), stage=4)


def test_one_that_is_not_waited_for_is_told(tmp_path):
    saving = dist.save_checkpoint_async(tmp_path / "run.tgc", net=M.Linear(64, 64))
    while not saving.done():
        pass
    with pytest.warns(UsageWarning, match="run.tgc was not finished"):
        del saving
    assert not (tmp_path / "run.tgc").exists()


def test_the_optimizer_that_was_sharded_is_not_used():
    net = dist.DataParallel(M.Linear(3, 2))
    whole = optim.Adam(net.parameters(), lr=0.1)
    opt = dist.shard(net, whole)
    net.bias.grad = net.bias * 0
    with pytest.raises(DistributedError, match="use what shard"):
        whole.step()
    with pytest.raises(DistributedError, match="before shard"):
        opt.add_param_group({"params": []})


def test_a_job_that_loses_a_process_goes_on_with_the_others(tmp_path, whole):
    """Rank 2 of 3 is killed after the checkpoint; two processes end with the bits of the run that was never interrupted."""
    _mpi()
    folder, out = tmp_path / "run.tgc", tmp_path / "bits"
    program = tmp_path / "train.py"
    program.write_text(
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import jobs_training\nfrom tengen import distributed as dist\n"
        f"folder = {str(folder)!r}\n"
        "if not os.path.exists(folder):\n"
        "    jobs_training.trained(steps=2, write=folder)\n"
        "    if dist.get_rank() == 2:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    dist.group_barrier()\n"
        "bits = jobs_training.trained(steps=4, read=folder)\n"
        "assert dist.get_world_size() == 2\n"
        "if dist.get_rank() == 0:\n"
        f"    open({str(out)!r}, 'w').write(repr(bits))\n"
    )
    from tengen.transport.mpiexec import run_program

    assert run_program(str(program), [], 3, least=2) == 0
    assert out.read_text() == repr(whole)
    with pytest.raises(DistributedError, match="from 1 to 3"):
        run_program(str(program), [], 3, least=5)


@exhaustive
def test_the_example_has_the_same_bits_in_two_processes(tmp_path):
    """An epoch in one process, and two; and in two processes, the second one, which goes on from the checkpoint of the first. One process
    runs it as `python` does, in this interpreter, which has imported what it needs."""
    _mpi()
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: it has the digits of the example")
    example = Path(__file__).parents[2] / "examples" / "data_parallel.py"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    parameters = lambda said: re.search(r"parameters (\w+)", said)[1]

    def alone(*options):
        said = io.StringIO()
        given, sys.argv = sys.argv, [str(example), "--batch", "500", *options]
        try:
            with contextlib.redirect_stdout(said):
                runpy.run_path(str(example), run_name="__main__")
        finally:
            sys.argv = given
        return parameters(said.getvalue())

    folder = str(tmp_path / "run.tgc")
    alone("--epochs", "1", "--checkpoint", folder)
    command = [sys.executable, "-m", "tengen", "run", "-n", "2", str(example), "--batch", "500", "--epochs", "2", "--checkpoint", folder]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "2 processes" in done.stdout and "epoch 1" not in done.stdout
    assert parameters(done.stdout) == alone("--epochs", "2")


@pytest.mark.parametrize("traced", [False, True])
def test_values_are_those_of_the_moment_although_steps_go_on(tmp_path, monkeypatch, traced):
    """They are not copied: steps write elsewhere while a checkpoint holds them. Memory of others, who may write it, is copied."""
    net = M.Sequential(M.Linear(64, 64), M.BatchNorm1d(64), M.Linear(64, 32))
    foreign, small = np.ones((64, 32), np.float32), np.ones(3)
    own, opt = from_dlpack(foreign), optim.Adam(net.parameters(), lr=0.1)
    gm = autodiff.GradManager().attach(net.parameters())

    def step(x):
        with gm:
            gm.backward((net(x) ** 2).mean())
        opt.step().clear_grad()

    step = trace(step) if traced else step
    x = Tensor(np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32))
    for _ in range(3):
        step(x)
    go_on, write, own_arrays = threading.Event(), checkpoint.save, []

    def save(content, path):
        go_on.wait()
        own_arrays.extend(content.values() if path.name == "arrays-0" else ())
        write(content, path)

    monkeypatch.setattr(checkpoint, "save", save)
    wanted = {**net.state_dict(), **{f"{i} {k}": a for i, one in opt.state_dict()["state"].items() for k, a in one.items()}}
    where = [p.numpy().ctypes.data for p in net.parameters()]
    saving = dist.save_checkpoint_async(tmp_path / "run.tgc", net=net, opt=opt, own=own, lists=[small])
    step(x)
    net[0].bias[...] = 7.0
    foreign[...], small[...] = 5.0, 5.0
    go_on.set()
    saving.wait()
    found = dist.load_checkpoint(tmp_path / "run.tgc")
    states = {**found["net"], **{f"{i} {k}": a for i, one in found["opt"]["state"].items() for k, a in one.items()}}
    assert all(np.asarray(states[name]).tobytes() == a.tobytes() for name, a in wanted.items())
    assert (np.asarray(found["own"]) == 1.0).all() and np.asarray(found["lists"][0]).tolist() == [1.0] * 3
    assert len({a.ctypes.data for a in own_arrays} & set(where)) == 2  # both matrices were written from where they lie
    assert not np.array_equal(net.state_dict()["0.weight"], wanted["0.weight"])


def test_a_process_holds_what_it_writes_and_no_more(tmp_path, monkeypatch):
    """The steps behind `save_checkpoint_async` write elsewhere what is held: of four matrices in two processes each holds two."""
    go_on, write = threading.Event(), checkpoint.save
    monkeypatch.setattr(checkpoint, "save", lambda content, path: (go_on.wait(30), write(content, path)))

    def work(folder):
        net = M.Sequential(*[M.Linear(64, 64, bias=False) for _ in range(4)])
        saving = dist.save_checkpoint_async(folder, net=net)
        held = [i for i, layer in enumerate(net) if not native.sole(layer.weight._data)]
        dist.group_barrier()
        go_on.set()
        saving.wait()
        return held, {k: np.asarray(v).tobytes() for k, v in net.state_dict().items()}

    found = dist.launcher(work, n_gpus=2, backend="threads")(tmp_path / "run.tgc")
    assert [held for held, _ in found] == [[0, 1], [2, 3]]
    state = dist.load_checkpoint(tmp_path / "run.tgc")["net"]
    assert {k: np.asarray(v).tobytes() for k, v in state.items()} == found[0][1]


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_shares_of_arrays_are_even_and_whole(ranks):
    rng = np.random.default_rng(ranks)
    for sizes, dtype in (([1], np.int8), ([5, 1, 4097], np.complex128), (rng.integers(1, 5000, 9), np.float16), ([10**6, 3, 3], np.float64)):
        arrays = [np.empty(n, dtype) for n in sizes]
        groups = [types.SimpleNamespace(rank=r, size=ranks) for r in range(ranks)]
        shares = [checkpoint._shares(arrays, g) for g in groups]
        for i, a in enumerate(arrays):
            assert np.concatenate([np.arange(a.size)[s[i]] for s in shares]).tolist() == list(range(a.size))
        each = [sum(a[own].nbytes for a, own in zip(arrays, s)) for s in shares]
        assert max(each) - min(each) <= 2 * len(arrays) * arrays[0].itemsize


def test_the_folder_before_is_removed_beside_the_training(tmp_path, monkeypatch):
    """`wait` does not wait for it; the next checkpoint does, and nothing is left."""
    net, remove, go_on = M.Linear(64, 64), shutil.rmtree, threading.Event()
    dist.save_checkpoint(tmp_path / "run.tgc", net=net, step=1)
    monkeypatch.setattr(shutil, "rmtree", lambda path, ignore_errors=False: (go_on.wait(10), remove(path, ignore_errors)))
    dist.save_checkpoint_async(tmp_path / "run.tgc", net=net, step=2).wait()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.tgc", "run.tgc.part"]
    assert dist.load_checkpoint(tmp_path / "run.tgc", net=net) == {"step": 2}
    go_on.set()
    dist.save_checkpoint(tmp_path / "run.tgc", net=net, step=3)
    assert [p.name for p in tmp_path.iterdir()] == ["run.tgc"] and dist.load_checkpoint(tmp_path / "run.tgc", net=net) == {"step": 3}
