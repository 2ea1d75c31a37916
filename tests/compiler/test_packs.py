"""Packs: programs that were compiled when Tengen was packaged are found, have the bits of those that are compiled here, and are never
wrong: a pack of another time and a damaged one are not used."""

import hashlib
import json
import os
import random
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tengen.functional as F
from tengen import Tensor
from tengen.base.config import config
from tengen.base.dtype import dtype
from tengen.cli.common_calls import Job
from tengen.cli.main import main
from tengen.cli.packing import patterns, write_packs
from tengen.codegen.targets import Target
from tengen.compiler import plans
from tengen.kernels.lowering import Array
from tengen.kernels.schedule import Schedules
from tengen.ops.define import REGISTRY
from tengen.runtime import environment, native, pack, report
from tengen.runtime.compile import elf_symbols
from tengen.runtime.provenance import PACK, provenance
from tengen.tensor import hide_plans, restore_plans

KEEPS_PROGRAMS = True
X = np.random.default_rng(0).normal(size=(5, 37)).astype("float32")
W = np.random.default_rng(1).normal(size=(37, 21)).astype("float32")


def calls():
    """An elementwise op, a composite, a product: results of their programs."""
    x, w = Tensor(X), Tensor(W)
    return [F.tanh(x) * 3, F.softmax(x, axis=1), F.matmul(x, w), F.cumsum(x, axis=0)]


@pytest.fixture(scope="module")
def packs(tmp_path_factory):
    """Packs of these calls for all generic targets: their folder."""
    folder = tmp_path_factory.mktemp("packs")
    with config.scope(cache_dir=str(tmp_path_factory.mktemp("cache")), threads=1):
        known, plans._programs = (hide_plans(), plans._programs), {}
        written = write_packs([Job("some", calls)], pack.generic_targets(), folder)
        plans._programs = known[1]
        restore_plans(known[0])
    assert {n for _, n, _ in written} == {6}  # those of the five calls, and the runtime
    return folder


@pytest.fixture
def begin(packs, tmp_path, monkeypatch):
    """Begins anew, as far as programs go, with packs of a folder and an empty cache."""
    known = hide_plans()
    monkeypatch.setattr(plans, "HOT_AFTER_S", 1e9)

    def begin(folder=packs):
        monkeypatch.setattr(pack, "FOLDER", str(folder))
        monkeypatch.setattr(plans, "_programs", {})
        pack._usable.cache_clear()
        hide_plans()
        return provenance.counts[PACK]

    with config.scope(cache_dir=str(tmp_path / "cache")):
        yield begin
    pack._usable.cache_clear()
    restore_plans(known)


def bits():
    return hashlib.sha256(b"".join(t.numpy().tobytes() for t in calls())).hexdigest()


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The bits of programs that are compiled here, for this processor."""
    with config.scope(pack=False):
        return bits()


@pytest.mark.parametrize("name", [t.name for t in pack.generic_targets()])
def test_bits_are_those_of_programs_that_are_compiled_here(name, begin, here, monkeypatch):
    target = Target.named(name)
    if why := target.why_not_here():
        pytest.skip(why)
    monkeypatch.setattr(pack, "runnable", lambda mine: [target])
    before = begin()
    assert bits() == here and provenance.counts[PACK] == before + 5


SQUARE = np.random.default_rng(2).normal(size=(37, 37)).astype("float32")
SQUARES = {  # calls whose extents are equal by chance; those that are packed are of extents that differ
    "composite": lambda x: F.softmax(x, axis=1),
    "product": lambda x: F.matmul(x, x),
    "product with one more": lambda x: F.matmul(x[:21], x),
    "scan": lambda x: F.cumsum(x, axis=0),
}


@pytest.mark.parametrize("name", SQUARES)
def test_extents_that_are_equal_by_chance_take_the_program_of_others(name, begin):
    x = Tensor(SQUARE)
    with config.scope(pack=False):
        expected = SQUARES[name](x).numpy().tobytes()
    before, compiled = begin(), provenance.counts.total()
    found = SQUARES[name](x).numpy().tobytes()
    assert found == expected
    assert provenance.counts[PACK] == before + 1 and provenance.counts.total() == compiled + 1


def test_of_a_program_that_nothing_wider_serves_one_is_made(begin):
    x = Tensor(SQUARE)
    before = begin()
    assert np.array_equal(F.max(x, axis=1).numpy(), SQUARE.max(1))
    assert provenance.counts[PACK] == before


def test_the_ways_to_share_out_names_are_all_partitions():
    bell = [1, 1, 2, 5, 15, 52]
    for n, count in enumerate(bell):
        ways = list(plans._shared_out(n))
        assert len(set(ways)) == len(ways) == count
        assert all(way[:1] in ((), (0,)) and all(k <= max(way[:i], default=-1) + 1 for i, k in enumerate(way)) for way in ways)


def test_a_number_that_stays_a_number_is_none_of_the_names():
    a, known = Array("a", dtype("float32"), (8, 4, 8), (32, 8, 1)), frozenset({4})
    (call,) = plans._with_names(REGISTRY["softmax"], [a], {"axis": 2}, known)
    (wider,) = plans._wider([a], {"axis": 2}, known, call)
    first, middle, last = wider.arrays[0].shape
    assert middle == 4 and first != last and wider.values == [8, 8] and wider.names == [first, last]


def test_code_for_other_processors_is_of_their_kind(packs, monkeypatch):
    monkeypatch.setattr(pack, "FOLDER", str(packs))
    for target in pack.generic_targets():
        p = pack.opened(target)
        assert p.why_not == "" and p.entries == 6 and "tengen_parallel" in elf_symbols(p.get(pack.RUNTIME))[0]
        for key in p.keys():
            data = p.get(key)
            code = data if key == pack.RUNTIME else data[4 + int.from_bytes(data[:4], "little") :]
            assert int.from_bytes(code[18:20], "little") == target.architecture.elf_machine


def test_a_process_takes_the_best_that_its_processor_includes():
    names = [t.name for t in pack.runnable(native.TARGET)]
    assert names == sorted(names, reverse=True) and all(not Target.named(n).why_not_here() for n in names)
    wanted = {"x86-64-v4": ["x86-64-v4", "x86-64-v3"], "x86-64-v3": ["x86-64-v3"], "x86-64": [], "aarch64": ["aarch64"]}
    for name, best in wanted.items():
        assert [t.name for t in pack.runnable(Target.named(name))] == best


def test_a_stale_pack_is_not_used(begin, here, monkeypatch):
    for name, other in (("sources", lambda: "0" * 32), ("VERSION", "another"), ("compiler", lambda: "llvmlite 9.9")):
        with monkeypatch.context() as m:
            m.setattr(environment, name, other)
            m.setattr(pack, name, other)
            environment.environment.cache_clear()
            before = begin()
            assert bits() == here and provenance.counts[PACK] == before
            assert any("stale: it was made with another" in value for _, value in report.pack_rows())
        environment.environment.cache_clear()
    before = begin()
    with config.scope(winograd=not config.winograd):
        assert pack.current(native.TARGET) is None and "made with other knobs" in str(report.pack_rows())
    with config.scope(pack=False):
        assert pack.current(native.TARGET) is None and "TENGEN_PACK=0" in str(report.pack_rows())
    assert bits() == here and provenance.counts[PACK] == before + 5
    assert "in use" in str(report.pack_rows()) and "from the pack" in str(report.config_table())


def test_without_packs(begin, tmp_path, here):
    before = begin(tmp_path / "nowhere")
    assert bits() == here and provenance.counts[PACK] == before and "tengen cache warm" in report.pack_rows()[0][1]


@pytest.mark.parametrize("concerned", [False, True])
def test_tuned_schedules_come_first(begin, monkeypatch, concerned):
    """A pack knows nothing of what this user has tuned; a program of it that asks for none of that is used."""
    begin()
    monkeypatch.setattr(Schedules, "concern", lambda self, asked: concerned)
    before = provenance.counts[PACK]
    F.tanh(Tensor(X))
    assert provenance.counts[PACK] == before + (not concerned)


def test_damage_costs_compiling_and_no_more(packs, begin, here, tmp_path):
    """Any byte may be another, and the end may be missing: the same bits, or no pack."""
    target = pack.runnable(native.TARGET)[0]
    whole = (packs / f"{target.name}.pack").read_bytes()
    rng, found = random.Random(0), 0
    folder = tmp_path / "damaged"
    folder.mkdir()
    for i in range(60):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 3])):
            data[rng.randrange(min(len(data), rng.choice([64, 1024, len(data)])))] ^= 1 << rng.randrange(8)
        if i % 5 == 4:
            data = data[: rng.randrange(len(data))]
        (folder / f"{target.name}.pack").write_bytes(data)
        opened = _opened(folder, target)
        for key in opened.keys():
            entry = opened.get(key)
            assert entry is None or entry == _opened(packs, target).get(key)
            found += entry is not None
        assert opened.why_not in ("", "damaged") and (opened.why_not == "") == bool(opened.entries)
        if i % 20 == 0:
            begin(folder)
            assert bits() == here
    assert found
    for other in (b"", b"\0" * 4096, pack.MAGIC, pack.MAGIC + b"\xff" * 60):
        (folder / f"{target.name}.pack").write_bytes(other)
        assert _opened(folder, target).why_not == "damaged"
    (folder / f"{target.name}.pack").unlink()
    (folder / f"{target.name}.pack").mkdir()
    assert "cannot be read" in _opened(folder, target).why_not


def _opened(folder, target):
    was, pack.FOLDER = pack.FOLDER, str(folder)
    try:
        return pack.opened(target)
    finally:
        pack.FOLDER = was


def test_a_pack_that_is_replaced_while_a_process_runs(packs, begin, here, tmp_path):
    """The index is that of the old file: what does not fit it counts as absent."""
    target = pack.runnable(native.TARGET)[0]
    folder = tmp_path / "replaced"
    folder.mkdir()
    file = folder / f"{target.name}.pack"
    file.write_bytes((packs / file.name).read_bytes())
    begin(folder)
    assert pack.current(native.TARGET) is not None
    file.write_bytes(file.read_bytes()[:700])
    before = provenance.counts[PACK]
    assert bits() == here and provenance.counts[PACK] == before


def test_a_fresh_process_compiles_nothing(packs, tmp_path):
    """Not even the runtime."""
    script = """
import json, sys
from tengen.runtime import compile as compiler, pack
pack.FOLDER = sys.argv[1]
import numpy as np, tengen.functional as F
from tengen import Tensor
x = Tensor(np.ones((5, 37), "float32"))
F.tanh(x) * 3, F.softmax(x, axis=1)
from tengen.runtime.provenance import provenance
print(json.dumps([compiler.compilations, dict(provenance.counts), "llvmlite.binding" in sys.modules]))
"""
    env = {**os.environ, "TENGEN_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", script, str(packs)], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[:2] == [0, {PACK: 4}]


# ---- commands ----------------------------------------------------------------------------------------------------------


def run(*args, code=0):
    result = CliRunner().invoke(main, ["cache", *args])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def test_warm_and_pack(tmp_path, monkeypatch, begin):
    begin(tmp_path / "none")
    jobs = [Job("two sums", lambda: Tensor(X) + Tensor(X)), Job("a product", lambda: F.matmul(Tensor(X), Tensor(W)))]
    monkeypatch.setattr("tengen.cli.packing.jobs", lambda: jobs)
    assert run("warm", "--list") == "two sums\na product\n" and "--list shows them" in run("warm", "--only", "wrong", code=2)
    assert run("warm", "--only", "sum").startswith("1 modules compiled, 0 were there, in ")
    begin(tmp_path / "none")
    assert run("warm").startswith("1 modules compiled, 1 were there, in ")
    name = pack.runnable(native.TARGET)[0].name
    begin(tmp_path / "none")
    with config.scope(threads=2):  # in processes of their own
        text = run("pack", "--target", name, "-o", str(tmp_path / "out"))
    assert "3 programs" in text and (tmp_path / "out" / f"{name}.pack").stat().st_size < 100_000
    before = begin(tmp_path / "out")
    Tensor(X) + Tensor(X)
    assert provenance.counts[PACK] == before + 1 and in_use(run("info"), name)
    monkeypatch.setattr("tengen.cli.packing.MOST_BYTES", 1000)
    assert "shorten the list" in run("pack", "--target", name, "-o", str(tmp_path / "out"), code=1)


def in_use(text, name):
    return any(name in line and "in use" in line for line in text.splitlines())


def test_patterns_of_numbers_alone_are_left_out(begin, tmp_path, monkeypatch):
    begin(tmp_path / "none")
    monkeypatch.setattr(plans, "HOT_AFTER_S", 0.0)  # the first call of a product makes a program for its numbers too
    assert len(patterns([Job("a product", lambda: F.matmul(Tensor(X), Tensor(W)))])) == 1


def test_a_wheel_has_the_packs():
    root = Path(__file__).resolve().parents[2]
    patterns = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["*"]
    package = root / "src" / "tengen" / "runtime"
    for target in pack.generic_targets():
        file = Path(pack.path_of(target)).relative_to(package)
        assert any(file.match(p) for p in patterns)
