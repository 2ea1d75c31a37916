"""`tengen.tune`: it helps where a rule is bad, keeps every bit, and what it finds is there in other programs, processes and
files."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tengen
import tengen.functional as F
from tengen import Tensor
from tengen.base import errors
from tengen.base.config import config
from tengen.base.errors import FileFormatError, TraceError
from tengen.cli.main import main
from tengen.codegen.targets import Target
from tengen.compiler import schedules as store
from tengen.deploy import compile_model, dump_model
from tengen.deploy.tensorfile import read_tensors, write_tensors
from tengen.kernels import pointwise
from tengen.kernels.schedule import Grain, Schedules
from tengen.runtime import cache, native
from tengen.tuning import search

N = 60000


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """A cache of this test's own, and no roof to measure."""
    from tengen.profiling.roof import Roof

    monkeypatch.setattr(search, "roof", lambda threads: Roof(1e11, 1e10))
    with config.scope(cache_dir=str(tmp_path / "cache"), cache=True):
        yield tmp_path / "cache"


@pytest.fixture
def bad_rule(own_cache, monkeypatch):
    """Pointwise kernels whose pieces are far too small, which costs them a factor of tens: something that tuning finds however
    busy the machine is."""
    monkeypatch.setattr(pointwise, "PIECE_ELEMENTS", 8)


def numbers(n=N):
    return Tensor(np.random.default_rng(0).uniform(-3, 3, n).astype("f4"))


def example(name="f"):
    return tengen.trace(lambda x: F.exp(x) * 2, example_input=numbers(), name=name)


def keys(program):
    """The schedules that a traced function's program has."""
    return program._last.run.program.schedules


def test_it_helps_and_keeps_every_bit(bad_rule):
    f, x = example(), numbers()
    want = f(x).numpy().tobytes()
    report = tengen.tune(f, seconds=2.0)
    assert f(x).numpy().tobytes() == want
    assert report.after < report.before and report.tried > 0 and report.differing == 0
    (kernel,) = report.kernels
    assert kernel.old == Grain(8) and kernel.new.elements >= 1024 and kernel.after < kernel.before
    assert "elements 8 -> " in repr(report) and "times as fast" in repr(report)
    again = example()  # a later compile has it, and a run with other settings has not
    assert keys(again) == keys(f) != {} and again(x).numpy().tobytes() == want
    assert cache.info().schedules == 1
    assert store.tuned_schedules(threads=config.threads + 1).entries == {}
    cache.clear()
    assert keys(example()) == {} and cache.info().schedules == 0


def test_the_file_keeps_it(bad_rule, tmp_path):
    f, x = example(), numbers()
    tengen.tune(f, seconds=2.0)
    f.dump(tmp_path / "tuned.tgn", arg_names=["x"])
    cache.clear()
    m = tengen.load_graph(tmp_path / "tuned.tgn")
    assert m.schedules == keys(f) != {}
    assert m(x).numpy().tobytes() == f(x).numpy().tobytes()
    assert m._executable.program.schedules == m.schedules
    dump_model(m, tmp_path / "again.tgn")
    assert tengen.load_graph(tmp_path / "again.tgn").schedules == m.schedules
    example().dump(tmp_path / "plain.tgn")
    assert "schedules" not in read_tensors(tmp_path / "plain.tgn").texts


def test_ahead_of_time_too(bad_rule, tmp_path):
    """What was found for a target and a number of threads is in the program that is compiled for them, and in no other."""
    f = example("net")
    f.dump(tmp_path / "net.tgn")
    m = tengen.load_graph(tmp_path / "net.tgn")
    m(numbers())
    key = Schedules(Target.named("aarch64").key, 2).key(next(iter(search.Bench(m._executable.graph, store.tuned_schedules()).lo.choices)))
    made = lambda threads: Path(compile_model(m, "aarch64", tmp_path, threads=threads).files[0]).read_bytes()
    plain = made(2), made(1)
    m.schedules[key] = Grain(1 << 14)
    assert made(2) != plain[0] and made(1) == plain[1]


def test_a_model_is_tuned(bad_rule, tmp_path):
    f, x = example(), numbers()
    f.dump(tmp_path / "m.tgn", arg_names=["x"])
    m = tengen.load_graph(tmp_path / "m.tgn")
    report = tengen.tune(m, seconds=2.0, inputs=[x])
    assert report.kernels and m.schedules
    assert m(x).numpy().tobytes() == f(x).numpy().tobytes()


def summing():
    """A state, and a traced step that adds to it; it has run once."""
    total = Tensor(np.zeros(3, "f4"))

    @tengen.trace
    def step(x):
        nonlocal total
        total += x
        return total * 1

    step(Tensor(np.ones(3, "f4")))
    return total, step


def test_states_stay(own_cache):
    total, step = summing()
    before = total.numpy().tolist()
    tengen.tune(step, seconds=0.1)
    assert total.numpy().tolist() == before
    tengen.tune(step, seconds=0.1, inputs=(Tensor(np.ones(3, "f4")),))
    assert total.numpy().tolist() == before


def test_programs_are_compared_from_the_same_states(own_cache):
    """The program of now has run more often than the new one when they are compared."""
    _, step = summing()
    exe = next(iter(step._recordings.values()))[0].run
    buffers = [native.new_buffer(12), native.new_buffer(12)]
    for b in buffers:
        native.write(b, np.ones(3, "f4"))
    s = search.Search(exe, search.Run(buffers, [12, 12], 1), 0.1)
    for _ in range(3):
        s.run(exe)
    s._compared(exe.retuned(exe.schedules))
    assert not s.differing


def test_what_cannot_be_tuned():
    with pytest.raises(TypeError, match="traced function or a loaded model, not function"):
        tengen.tune(lambda x: x)
    with pytest.raises(TraceError, match="has not been traced"):
        tengen.tune(tengen.trace(lambda x: x))
    f = tengen.trace(lambda x: x + 1, example_input=Tensor([1.0]))
    with pytest.raises(ValueError, match="seconds=0"):
        tengen.tune(f, seconds=0)
    with pytest.raises(TraceError, match="inside a traced function"):
        tengen.trace(lambda x: (tengen.tune(f), x)[1], example_input=Tensor([1.0]))


def test_a_candidate_with_other_bits_is_thrown_away(bad_rule, monkeypatch):
    """If a generator were wrong: the candidate does not get in, and is reported."""
    bits = search.Trial.bits
    calls = []
    every_second = lambda self: calls.append(1) or (bits(self) if len(calls) % 2 == 0 else [b"other"])
    monkeypatch.setattr(search.Trial, "bits", every_second)
    f = example()
    with pytest.warns(RuntimeWarning, match="gives other bits"):
        report = tengen.tune(f, seconds=0.3)
    assert report.differing > 0 and not report.kernels and not keys(f)


CHILD = """
import sys
import numpy as np, tengen, tengen.functional as F
from tengen import Tensor
from tengen.kernels.schedule import Grain, Schedules
from tengen.compiler import schedules as store
known = store.tuned_schedules()
store.keep(Schedules(known.target, known.threads, {c * 32: Grain(int(sys.argv[2])) for c in sys.argv[1]}))
"""


def test_processes_keep_what_others_found(own_cache):
    env = {**os.environ, "TENGEN_CACHE_DIR": str(own_cache), "TENGEN_CACHE": "1"}
    start = lambda *a: subprocess.Popen([sys.executable, "-c", CHILD, *a], env=env)
    children = [start("0123", "5"), start("456789", "6")]
    assert all(c.wait() == 0 for c in children)
    seen = store.tuned_schedules().entries
    assert len(seen) == 10 and seen["0" * 32] == Grain(5) and seen["9" * 32] == Grain(6)
    store.keep(Schedules(store.tuned_schedules().target, config.threads, {"0" * 32: Grain(7)}))
    assert store.tuned_schedules().entries["0" * 32] == Grain(7) and len(store.tuned_schedules().entries) == 10


def test_what_is_written_while_it_is_read_is_not_missed(own_cache, monkeypatch):
    mine, other = {"1" * 32: Grain(5)}, {"2" * 32: Grain(6)}
    empty, stamp = store.tuned_schedules(), store.cache.stamp

    def write_after(*a):
        """Another process writes just after this one has looked."""
        found = stamp(*a)
        monkeypatch.setattr(store.cache, "stamp", stamp)
        store.cache.put(store._name(empty.target, empty.threads), store.to_text(other).encode(), store.cache.SCHEDULES)
        return found

    monkeypatch.setattr(store.cache, "stamp", write_after)
    store._read.clear()
    assert not store.tuned_schedules().entries
    store.keep(Schedules(empty.target, empty.threads, mine))
    assert store.tuned_schedules().entries == {**other, **mine}


def test_only_so_many_are_kept(own_cache, monkeypatch):
    monkeypatch.setattr(store, "MOST", 3)
    known = store.tuned_schedules()
    for c in "abcde":
        store.keep(Schedules(known.target, known.threads, {c * 32: Grain(1)}))
    assert [k[0] for k in store.tuned_schedules().entries] == list("cde")


def test_a_damaged_or_foreign_table_counts_as_absent(own_cache):
    known = store.tuned_schedules()
    store.keep(Schedules(known.target, known.threads, {"a" * 32: Grain(3)}))
    (file,) = own_cache.glob("*.s")
    good = file.read_bytes()
    for data in (good[:-1], b"", bytes(len(good)), good.replace(b"=3", b"=4")):
        file.write_bytes(data)
        assert store.tuned_schedules().entries == {}
    file.write_bytes(good)
    assert store.tuned_schedules().entries == {"a" * 32: Grain(3)}
    file.chmod(0o644)
    os.utime(file)
    assert store.tuned_schedules().entries == {}


def test_without_a_cache_on_disk(own_cache):
    with config.scope(cache=False):
        known = store.tuned_schedules()
        store.keep(Schedules(known.target, known.threads, {"b" * 32: Grain(3)}))
        assert store.tuned_schedules().entries == {"b" * 32: Grain(3)}
        store._read.clear()
    assert store.tuned_schedules().entries == {} and not list(own_cache.glob("*.s"))


KEY = "0" * 32


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"k": "grain(elements=1)"}', f'{{"{KEY}": 1}}', f'{{"{KEY}": "x"}}'])
def test_files_with_bad_schedules(text, tmp_path):
    example().dump(tmp_path / "m.tgn")
    content = read_tensors(tmp_path / "m.tgn")
    texts = {k: v for k, v in content.texts.items() if k not in ("checksum", "tengen")}
    write_tensors(tmp_path / "bad.tgn", content.arrays, texts | {"schedules": text})
    with pytest.raises(FileFormatError, match="bad.tgn: .*schedule"):
        tengen.load_graph(tmp_path / "bad.tgn")


def test_files_with_schedules_that_do_not_fit(tmp_path):
    """Of another kind, of later Tengens, too large for any kernel: the rule's are taken."""
    f, x = example(), numbers()
    f.dump(tmp_path / "m.tgn")
    content = read_tensors(tmp_path / "m.tgn")
    texts = {k: v for k, v in content.texts.items() if k not in ("checksum", "tengen")}
    known = store.tuned_schedules()
    choices = search.Bench(f._last.run.graph, known).lo.choices
    odd = ["register(rows=6, vectors=2, high=4, along_k=1, packed=1, panels=0, blocks=0, across=0, unroll=2)", "later(x=1)",
           "grain(elements=0)", "grain(elements=999999999)"]  # fmt: skip
    for s in odd:
        text = json.dumps({known.key(c): s for c in choices})
        write_tensors(tmp_path / "odd.tgn", content.arrays, texts | {"schedules": text})
        m = tengen.load_graph(tmp_path / "odd.tgn")
        assert m(x).numpy().tobytes() == f(x).numpy().tobytes() and not m._executable.program.schedules


def test_command(bad_rule, tmp_path):
    example().dump(tmp_path / "m.tgn", arg_names=["x"])
    words = ["tune", tmp_path / "m.tgn", "--seconds", "0.5", "-o", tmp_path / "t.tgn", "--threads", "1"]
    r = CliRunner().invoke(main, list(map(str, words)))
    assert r.exit_code == 0, r.output
    assert "times as fast" in r.output and "t.tgn: 1 schedules" in r.output
    assert len(tengen.load_graph(tmp_path / "t.tgn").schedules) == 1
    assert re.search("schedules +1, tuned", CliRunner().invoke(main, ["info", str(tmp_path / "t.tgn")]).output)
    assert CliRunner().invoke(main, ["tune", str(tmp_path / "none.tgn")]).exit_code == 1
    assert CliRunner().invoke(main, ["tune", str(tmp_path / "m.tgn"), "--seconds", "0"]).exit_code == 2


def test_open_extents(own_cache, tmp_path):
    """A program for all extents has the rule's schedules; the one for some is tuned."""
    f = tengen.trace(lambda x: F.exp(x) * 2, example_input=Tensor(np.ones((4, 3), "f4")), dynamic_axes={0: "batch"})
    with pytest.raises(errors.ConfigError, match=r"open extents batch; help: .*model.at\(batch=8\)"):
        tengen.tune(f, seconds=0.1)
    f.dump(tmp_path / "open.tgn", arg_names=["x"])
    m = tengen.load_graph(tmp_path / "open.tgn")
    with pytest.raises(errors.ConfigError, match="open extents"):
        tengen.tune(m, seconds=0.1)
    x = np.ones((8, 3), "f4")
    fixed = m.at(batch=8)
    tengen.tune(fixed, seconds=0.1)
    assert fixed(x).numpy().tobytes() == m(x).numpy().tobytes()
