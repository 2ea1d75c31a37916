"""Plans for many processes: bytes beside those that real steps move, memory beside what is kept, costs beside their formulas, the best mesh."""

import re
import sys
import xml.etree.ElementTree as ET
from math import inf
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tengen import distributed as dist
from tengen import module as M
from tengen.base.errors import DistributedError
from tengen.cli.main import main
from tengen.utils import planning
from tengen.utils.planning import (
    Layer,
    Link,
    Network,
    Work,
    all_reduce_table,
    best,
    curves,
    picture,
    plan,
    plans,
    stops,
    work_of,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "distributed"))  # the ranks import what they call by its name
import jobs_meshes
import jobs_pipelines
import jobs_sharding

LINK = Link(1e-5, 1e9)
FLAT = Network(1 << 30, LINK, LINK)


def _mlp():
    return work_of(M.Sequential(M.Linear(64, 128), M.ReLU(), M.Linear(128, 32)), np.zeros((8, 64), np.float32))


def test_counts_of_a_network():
    work = _mlp()
    assert work.parameters == 64 * 128 + 128 + 128 * 32 + 32 and work.operations == 64 * 128 + 128 + 128 * 32 + 32
    assert [a.widths for a in work.layers] == [(128, 64), (), (32, 128)] and [a.bytes for a in work.layers] == [512, 512, 128]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("ranks", [2, 4])
def test_bytes_are_those_of_real_steps(stage, ranks):
    """But for a few flags, and digests of the batch."""
    for found in dist.launcher(jobs_sharding.moved, n_gpus=ranks, backend="threads")(stage):
        said = plan(_mlp(), FLAT, 1e9, 8, data=ranks, stage=stage, micro_batches=4 // ranks).received
        assert said <= found <= said + 200, (said, found)


def test_what_packs_and_adds_gradients_is_a_part_of_the_exchange():
    work, n = _mlp(), _mlp().parameters * 4
    ways = {"data": 2, "micro_batches": 4}, {"data": 2, "pipeline": 2, "micro_batches": 2}
    for way in ways:
        more = plan(work, FLAT, 1e9, 64, **way, handling=1e6).exchange - plan(work, FLAT, 1e9, 64, **way).exchange
        assert more == pytest.approx(way["micro_batches"] * n / way.get("pipeline", 1) / 1e6)
    net, ticks = M.Sequential(M.Linear(64, 128), M.Linear(128, 32, bias=False)), iter(range(0, 100, 2))
    before = [p.numpy().tobytes() for p in net.parameters()]
    assert planning.measured_handling(net, np.zeros((2, 64), np.float32), clock=lambda: next(ticks)) == 2 * 4 * (64 * 128 + 128 + 128 * 32) / 2
    assert [p.numpy().tobytes() for p in net.parameters()] == before and all(p.grad is None for p in net.parameters())


def test_bytes_and_micro_batches_of_a_pipeline():
    work = work_of(M.Sequential(*[M.Linear(64, 64, bias=False) for _ in range(4)]), np.zeros((8, 64), np.float32))
    found = dist.launcher(jobs_pipelines.piped, n_gpus=2, backend="threads")()
    p = plan(work, FLAT, 1e9, 8, pipeline=2, micro_batches=4)
    assert sum(n for n, _ in found) == p.received == 2 * 8 * 64 * 4 and found[0][1] == 2
    assert p.memory == 2 * 64 * 64 * 4 * 4 + 2 * 64 * 4 * 2 * 2  # half of the layers with gradients and states; results of two micro-batches


def test_what_is_computed_again_takes_a_forward_and_frees_memory():
    """Beside what a pipeline plans of itself, of layers whose gradients read what they are given."""
    layers = M.Sequential(*[M.Linear(64, 64, bias=False) for _ in range(16)])
    work, x = work_of(layers, np.zeros((8, 64), np.float32)), np.zeros((256, 64), np.float32)
    kept, again = (plan(work, FLAT, 1e9, 256, pipeline=1, micro_batches=1, again=n) for n in (0, 1))
    assert again.compute == pytest.approx(4 / 3 * kept.compute) and again.again == 1.0
    real = dist.Pipeline(layers, lambda y: y.sum(), micro_batches=1).memory_plan(x)
    rest = kept.memory - 16 * 256 * 64 * 4
    tensor = 256 * 64 * 4  # what each layer is given and returns
    assert (kept.memory - rest, again.memory - rest) == (16 * tensor, 8 * tensor)  # 8: the least of n + 16 / n
    assert real.whole == 17 * tensor and 6 * tensor <= real.least <= 8 * tensor, real  # with the batch itself; runs need not be equal
    every = [plan(work, FLAT, 1e9, 256, pipeline=4, micro_batches=8, again=n) for n in range(5)]
    assert [p.again for p in every] == [0, 0.25, 0.5, 0.75, 1] and all(a.seconds < b.seconds for a, b in zip(every, every[1:]))
    held = [(p.memory - every[0].memory) * 8 / tensor + 16 for p in every]  # four layers a stage, an eighth of the samples in each micro-batch
    assert held == [16, 16, 14, 11, 8]
    short = best(work, FLAT, 1e9, 256, 4, memory=every[4].memory)
    assert short.memory <= every[4].memory and any(p.again for p in plans(work, FLAT, 1e9, 256, 4, memory=every[4].memory))


def test_bytes_of_layers_in_parts():
    """By the rule of Megatron's pairs, which the first and the last one need not follow in full."""
    layers = [layer for _ in range(4) for layer in (M.Linear(64, 1024), M.ReLU(), M.Linear(1024, 64))]
    work = work_of(M.Sequential(*layers), np.zeros((16, 64), np.float32))
    assert [a.widths for a in work.layers if a.widths] == [(1024, 64), (64, 1024)] * 4  # by their calls, not by their names
    for stage in (0, 3):  # which brings parts in pieces
        said = plan(work, FLAT, 1e9, 16, data=2, tensor=2, stage=stage, micro_batches=2).received
        gradients = said - plan(work, FLAT, 1e9, 8, tensor=2, micro_batches=2).received
        for conversions, exchanged in dist.launcher(jobs_meshes.moved_on_mesh, n_gpus=4, backend="threads")(stage):
            assert gradients <= exchanged <= gradients * 1.02 + 200
            assert 0.75 * (said - gradients) <= conversions <= said - gradients, (said - gradients, conversions)


def test_parts_that_cannot_be_run_are_no_plan():
    block = (Layer(1e6, 10**6, 4096.0, (2048, 512)), Layer(1e6, 10**6, 1024.0, (512, 2048)))
    every = list(plans(Work(block * 4), FLAT, 1e11, 256, 16, memory=11.5e6))
    assert max(p.tensor for p in every) == 8  # 2048 / 256
    assert any(p.stage == 2 and p.pipeline > 1 for p in every) and any(p.stage == 3 and p.tensor > 1 for p in every)


def test_memory_of_the_stages_is_the_papers():
    work, n = Work((Layer(1e6, 10**6, 0.0, ()),)), 4e6
    held = [plan(work, FLAT, 1e9, 64, data=8, stage=s).memory for s in range(4)]
    assert held == [4 * n, 2 * n + 2 * n / 8, n + 3 * n / 8, 4 * n / 8 + 2 * n]  # at stage 3 one layer is whole, and the next one on its way


def test_costs_by_their_formulas():
    s, a, b = 1e6, 1e-5, 1e9
    for n in (2, 8, 1024):
        for name in ("ring", "all-to-all"):
            assert LINK.all_reduce(n, s, name) == pytest.approx(2 * (n - 1) * (a + s / n / b))
        assert LINK.all_reduce(n, s, "tree") == pytest.approx(2 * np.log2(n) * (a + s / b))
        assert LINK.all_reduce(n, s, "double tree") == pytest.approx(2 * np.log2(n) * a + 2 * s / b)
    assert LINK.all_reduce(1, s) == LINK.exchange(1, s) == 0.0
    with pytest.raises(ValueError, match="'bush' must be one of"):
        LINK.all_reduce(2, s, "bush")
    rows = dict(all_reduce_table(FLAT, 1e3, 10**4))
    assert min(rows[8192], key=rows[8192].get) in ("tree", "double tree") and max(rows) == 8192  # short sums of many: latency


def test_a_group_within_a_machine_uses_its_link():
    net = Network(8, Link(0, 8.0), Link(0, 1.0))
    assert [net.among(n, apart).bandwidth for n, apart in ((8, 1), (9, 1), (2, 4), (3, 4))] == [8.0, 1.0, 8.0, 1.0]


def test_the_best_mesh():
    block = (Layer(4e6, 4 * 10**6, 4096.0, (4096, 1024)), Layer(4e6, 4 * 10**6, 1024.0, (1024, 4096)))
    work, slow = Work(block * 8), Network(8, Link(1e-6, 1e11), Link(1e-5, 1e8))
    every = list(plans(work, slow, 1e11, 256, 64))
    found = best(work, slow, 1e11, 256, 64)
    assert found.seconds == min(p.seconds for p in every) and all(p.ranks == 64 for p in every)
    assert found.tensor > 1  # within a machine, where exchanges are cheap
    assert best(work, FLAT, 1e15, 4, 4).tensor * best(work, FLAT, 1e15, 4, 4).pipeline >= 1
    alone = best(work, slow, 1e11, 256, 1)
    assert alone.seconds == alone.compute == pytest.approx(6 * 64e6 * 256 / 1e11)
    least = best(work, FLAT, 1e11, 256, 16, memory=alone.memory / 8)
    assert least.memory <= alone.memory / 8
    with pytest.raises(DistributedError, match="no mesh fits"):
        best(work, FLAT, 1e11, 256, 2, memory=1000)


def test_one_process_takes_as_many_micro_batches_as_memory_asks_for():
    work = Work((Layer(1e6, 10, 1e6, ()),) * 4)
    alone = best(work, FLAT, 1e9, 4096, 1, memory=5e6)
    assert (alone.micro_batches, alone.again) == (4096, 0) and alone.memory <= 5e6


def test_a_pipeline_waits_as_the_paper_says():
    p = plan(Work((Layer(1e6, 1, 0.0, ()),) * 8), Network(1, Link(0, inf), Link(0, inf)), 1e9, 64, pipeline=4, micro_batches=12)
    assert p.waiting / p.seconds == pytest.approx(3 / 15)


def test_where_a_strategy_stops_paying():
    found = curves(_mlp(), Network(1, Link(1e-3, 1e8), Link(1e-3, 1e8)), 1e9, 4096, 64)
    times = [p.plan.seconds for p in found["data"]]
    at = stops(found["data"])
    k = [p.ranks for p in found["data"]].index(at)
    assert times[k] < 1.1 * times[k + 1] and all(a >= 1.1 * b for a, b in zip(times[:k], times[1 : k + 1]))
    assert all(p.plan is None for p in found["tensor"] if p.ranks > 32)  # 32 columns
    assert stops([]) == 0
    root = ET.fromstring(picture(found))
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 4


def test_the_command(tmp_path):
    def run(*args, code=0):
        result = CliRunner().invoke(main, ["plan", *args])
        assert result.exit_code == code, result.output
        return result.output

    (tmp_path / "net.py").write_text("import tengen.module as M\nNet = lambda: M.Sequential(M.Linear(8, 8), M.ReLU(), M.Linear(8, 8))\n")
    base = (f"{tmp_path}/net.py:Net", "--shape", "4,8", "--ranks", "8")
    text = run(*base, "--flops", "1e9", "--picture", str(tmp_path / "p.svg"))
    assert re.search(r"^ +8 +\d+ x \d+ x \d+ ", text, re.M) and "stops paying" in text and "double tree" in text
    assert (tmp_path / "p.svg").read_text().startswith("<svg")
    assert "does not fit" in run(*base, "--flops", "1e9", "--memory", "100")
    assert "operations a second" in run(*base, "--link", "1e-6,1e9")  # the rate is measured
    for args, words in ((("--link", "fast"), "is not of the form LATENCY,BANDWIDTH"), (("--link", "-1,1"), "not negative"),
                        (("--ranks", "0"), "range"), (("--network", "pigeons"), "ethernet-10g")):  # fmt: skip
        assert words in run(*base, *args, code=2)
    assert planning.NETWORKS["machine"].among(1 << 20) == planning.NETWORKS["machine"].inside
