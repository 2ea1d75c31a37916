"""What a program for constant weights holds: the weights' own memory or the mapped file, what its set-up made, nothing else."""

import re
from pathlib import Path

import numpy as np
import pytest

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, trace
from tengen.runtime import native


def network():
    layers = [M.Conv2d(64, 64, 3, padding=1), M.ReLU(), M.Conv2d(64, 256, 3, padding=1), M.Conv2d(256, 128, 3, padding=1)]
    return M.Sequential(*layers).eval(), Tensor(np.random.default_rng(0).standard_normal((1, 64, 12, 12), np.float32))


def run_of(f):
    return next(iter(f._recordings.values()))[0]


def prepared(program):
    """Bytes of what the set-up makes."""
    return 0 if program.setup is None else sum(-(-n // 64) * 64 for n in program.setup.output_bytes)


def resident(path):
    """Bytes of a file that are in this process's memory."""
    parts = re.split(r"^[0-9a-f]+-[0-9a-f]+ ", Path("/proc/self/smaps").read_text(), flags=re.M)
    return sum(int(re.search(r"^Rss: +(\d+)", p, re.M)[1]) << 10 for p in parts if p.split("\n", 1)[0].endswith(str(path)))


def test_constants_are_the_parameters_own_memory():
    net, x = network()
    run = trace(net, capture_as_const=True)
    native.trim()
    before = native.memory_statistics().in_use
    want = run(x)
    recording = run_of(run)
    held = native.memory_statistics().in_use - before - want.size * 4
    weights = {p.numpy().ctypes.data for p in net.parameters()}
    assert {c.data.ctypes.data for c in recording.graph.constants.values() if c.data.size > 1} == weights
    assert held <= 1.25 * prepared(recording.run.program) + (64 << 10)  # blocks are rounded up by a quarter at most
    program = recording.run.program
    assert prepared(program) <= 1.1 * sum(p.numpy().nbytes for p in net.parameters())
    kept = native.memory_statistics()
    del run, recording, program
    assert native.memory_statistics().in_use < kept.in_use - held // 2


def test_a_parameter_that_is_written_does_not_change_the_trace():
    net, x = network()
    run = trace(net, capture_as_const=True)
    want = run(x).numpy().tobytes()
    for p in net.parameters():
        p[:] = 0.0
    assert run(x).numpy().tobytes() == want and not net(x).numpy().any()

    @trace
    def step():
        for p in net.parameters():
            p += 1

    again = trace(net, capture_as_const=True)
    zeros = again(x)
    step()
    assert again(x).numpy().tobytes() == zeros.numpy().tobytes() and net(x).numpy().any()


def test_memory_of_others_is_copied():
    a = np.ones((4, 4), np.float32)
    w = tengen.from_dlpack(a) if hasattr(tengen, "from_dlpack") else pytest.skip("no DLPack")
    run = trace(lambda x: F.matmul(x, w), capture_as_const=True)
    x = Tensor(np.eye(4, dtype=np.float32))
    want = run(x).tolist()
    a[:] = 5
    assert run(x).tolist() == want == np.ones((4, 4)).tolist()


def test_the_pool_is_empty_when_a_program_is_ready():
    large = Tensor(np.zeros(3 << 20, np.float32))
    del large
    assert native.memory_statistics().cached >= 12 << 20
    net, x = network()
    trace(net, capture_as_const=True, example_input=x)
    assert native.memory_statistics().cached < 4 << 20  # what the first run left


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's list of mappings")
def test_a_file_is_let_go_when_its_weights_are_packed(tmp_path):
    net, x = network()
    run, file = trace(net, capture_as_const=True), tmp_path / "net.tgn"
    want = run(x).numpy().tobytes()
    run.dump(file)
    model = tengen.load_graph(file)
    assert resident(file) <= 64 << 10 < file.stat().st_size  # the checksum has read it all
    assert model(x).numpy().tobytes() == want
    assert resident(file) < file.stat().st_size // 2  # biases are read where they lie, and pages come in numbers
    assert tengen.load_graph(file)(x).numpy().tobytes() == want
