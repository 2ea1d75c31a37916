"""Kept programs: a second process reads what a first one made of a graph, and computes the same bits."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import tengen
import tengen.functional as F
from tengen import Tensor
from tengen.base.config import config
from tengen.base.dtype import float32
from tengen.compiler import program_cache, program_record, ready
from tengen.compiler.schedules import tuned_schedules
from tengen.ir.text import parse_graph
from tengen.kernels.schedule import Grain, Schedules
from tengen.loops import lang
from tengen.ops.define import REGISTRY, elementwise
from tengen.passes.run import observing
from tengen.runtime import cache, environment

KEEPS_PROGRAMS = True

SCRIPT = """
import hashlib, json, sys
import numpy as np
import tengen, tengen.functional as F, tengen.module as M
from tengen import Tensor
from tengen.autodiff import GradManager
from tengen.optimizer import SGD
from tengen.passes.run import observing
from tengen.runtime import compile as compiler

lowered = []
look = observing(lambda p, before, after, seconds: p.name == "destinations" and lowered.append(before.name))
look.__enter__()
digest = hashlib.sha256()
see = lambda t: digest.update(t.numpy().tobytes())

tengen.random.seed(3)
net = M.Sequential(M.Conv2d(3, 8, 3), M.BatchNorm2d(8), M.ReLU(), M.Flatten(), M.Linear(8 * 36, 4))
gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)

@tengen.trace
def step(x, label):
    with gm:
        loss = F.loss.cross_entropy(net(x), label)
        gm.backward(loss)
    opt.step().clear_grad()
    return loss

rng = np.random.default_rng(0)
x, label = Tensor(rng.normal(size=(2, 3, 8, 8)).astype("float32")), Tensor(np.array([1, 3], "int32"))
for _ in range(2):
    see(step(x, label))
for p in net.parameters():
    see(p)
net.eval()
infer = tengen.trace(net, capture_as_const=True)  # folds batch norm, packs weights
see(infer(x))
infer.dump(sys.argv[1])
see(tengen.load_graph(sys.argv[1])(x))
rows = tengen.trace(net, dynamic_axes={0: "batch"})
see(rows(x)), see(rows(Tensor(rng.normal(size=(3, 3, 8, 8)).astype("float32"))))
see(F.nn.softmax(x, axis=1))  # a composite
try:
    step(x, Tensor(np.array([1, 9], "int32")))
except tengen.base.errors.TengenError as e:
    digest.update(str(e).encode())
else:
    raise AssertionError("a label out of range")
bytes_ = [t._last.run.program.arena_bytes([2] * len(t._last.extents)) for t in (step, infer, rows)]
print(json.dumps([compiler.compilations, lowered, [t._last.run.kernels for t in (step, infer, rows)], bytes_, digest.hexdigest()]))
"""


def run(tmp_path, **environ):
    """What SCRIPT says in a process of its own, whose cache is below tmp_path. With quick code: what is kept does not depend on it."""
    env = {**os.environ, "TENGEN_CACHE_DIR": str(tmp_path / "cache"), "TENGEN_PACK": "0", "TENGEN_QUICK_COMPILE": "only", **environ}
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path / "m.tgn")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_second_process_makes_nothing_and_has_the_same_bits(tmp_path):
    first, second = run(tmp_path), run(tmp_path)
    assert first[0] and first[1] and second[:2] == [0, []]
    assert first[2:] == second[2:]
    checked = run(tmp_path, TENGEN_CHECK="1")  # verifies, so it makes everything
    assert checked[0] == 0 and checked[1] == first[1] and checked[2:] == first[2:]
    programs = list((tmp_path / "cache").glob("*.p"))
    assert len(programs) >= 4
    for file in programs:  # what is damaged counts as absent
        raw = bytearray(file.read_bytes())
        raw[len(raw) // 2] ^= 1
        file.write_bytes(raw)
    again = run(tmp_path)
    assert again[0] == 0 and again[1] and again[2:] == first[2:] and run(tmp_path)[1] == []
    next((tmp_path / "cache").glob("*.o")).unlink()  # objects can go by themselves
    for file in (tmp_path / "cache").glob("*.o"):
        file.unlink()
    last = run(tmp_path)
    assert last[0] and last[1] and last[2:] == first[2:]


@pytest.fixture
def own_cache(tmp_path):
    with config.scope(cache_dir=str(tmp_path / "own")):
        yield


@pytest.fixture
def lowerings():
    """Names of the graphs that are lowered."""
    names = []
    with observing(lambda p, before, after, seconds: p.name == "destinations" and names.append(before.name)):
        yield names


GRAPH = """\
graph g(x: f32[4]):
    const k: f32[]
    y: f32[4] = mul(x, k)
    return y = y
"""


def key_of(text=GRAPH, k=2.0, schedules=None, **more):
    graph = parse_graph(text, {"k": np.array(k, "float32")})
    key = program_cache.identity(graph, None, [], more.get("name", "g"), more.get("fold", True))
    return key if schedules is None else program_cache.tuned(key, schedules)


def test_what_decides_the_program_is_in_its_key(monkeypatch):
    keys = [
        key_of(), key_of(k=3.0), key_of(k=-0.0), key_of(k=0.0), key_of(k=float("nan")), key_of(fold=False), key_of(name="h"),
        key_of(GRAPH.replace("f32[4]", "f32[5]")), key_of(GRAPH.replace("mul(", "add(")), key_of(GRAPH.replace("(x, k)", "(k, x)")),
        key_of(GRAPH.replace("(x, k)", "(x, x)")), key_of(schedules=Schedules("t", 1, {"0" * 32: Grain(1024)})),
    ]  # fmt: skip
    with config.scope(winograd=not config.winograd):
        keys.append(key_of())
    for name, other in (("VERSION", "another"), ("sources", lambda: "other sources"), ("compiler", lambda: "another llvmlite")):
        monkeypatch.setattr(environment, name, other)
        environment.environment.cache_clear()
        keys.append(key_of())
    environment.environment.cache_clear()
    assert len(set(keys)) == len(keys) and None not in keys


def test_lines_and_large_constants_are_not_in_it():
    text = GRAPH.replace("k: f32[]", "k: f32[100]").replace("4]", "100]")
    one, two = (parse_graph(text, {"k": np.full(100, v, "float32")}) for v in (1, 2))
    one.nodes[0].where, two.nodes[0].where = "a.py:1", "b.py:2"
    key = lambda g: program_cache.identity(g, None, [], "g", True)
    assert key(one) == key(two)


def test_the_number_of_threads_is_in_it_where_something_was_tuned():
    """The kernels are the same; a tuned schedule is for one number of threads."""
    tuned = {"0" * 32: Grain(1024)}
    assert key_of(schedules=Schedules("t", 1, tuned)) != key_of(schedules=Schedules("t", 2, tuned))


def test_nothing_is_kept_while_passes_are_looked_at():
    for scope in ({"check": True}, {"debug": 2}, {"cache": False}):
        with config.scope(**scope):
            assert key_of() is None


@pytest.mark.parametrize("module", [__name__, "tengen.functional.nn", "tengen", "tengen.ops.of_nobody", "tengenious.ops"])
def test_ops_from_elsewhere_are_not_kept(module):
    """The key says what an op means where its sources' digest is in it: not of a test, nor of Tengen's own upper floors."""

    def from_a_test(x):
        """Twice x."""
        return x + x

    from_a_test.__module__ = module
    elementwise(result="float")(from_a_test)
    try:
        text = "graph g(x: f32[4]):\n    y: f32[4] = from_a_test(x)\n    return y = y\n"
        assert key_of(text) is None and key_of(text.replace("from_a_test", "relu")) is not None
    finally:
        del REGISTRY["from_a_test"]


def test_every_op_of_tengen_can_be_kept():
    """But for the one of `check_finite`: it stands above the floors that decide a kept program, so each process compiles what it checks."""
    import tengen.debug.marks  # noqa: F401  (which registers it, whatever ran before)

    tengens = {n: op for n, op in REGISTRY.items() if op.fn.__module__.startswith("tengen.") and "::" not in n}  # users' names have "::"
    other = {n for n, op in tengens.items() if not program_cache.is_ours(op)}
    assert other == {"largest_magnitude"} and len(tengens) > 300


def test_folding_with_other_weights(own_cache, lowerings):
    """Large weights are no part of the key; what folding makes of them runs when the program is read."""
    x = Tensor(np.arange(100, dtype="float32"))
    made = []
    for w in (np.linspace(1, 2, 100), np.linspace(3, 9, 100)):
        weight = Tensor(w.astype("float32"))
        made.append(tengen.trace(lambda x, w=weight: x * F.exp(w) + F.sqrt(w), capture_as_const=True)(x))
        np.testing.assert_array_equal(made[-1].numpy(), (x * F.exp(weight) + F.sqrt(weight)).numpy())
    assert lowerings.count("<lambda>") == 1 and made[0].numpy()[3] != made[1].numpy()[3]


def test_a_number_made_of_large_weights_is_another_program(own_cache, lowerings):
    """A sum of weights becomes a number in a kernel: other weights need other kernels."""
    x = Tensor(np.arange(4, dtype="float32"))
    for value in (1.0, 2.0, 2.0):
        weight = Tensor(np.full(100, value, "float32"))
        got = tengen.trace(lambda x, w=weight: x * w.sum(), capture_as_const=True)(x)
        np.testing.assert_array_equal(got.numpy(), (x * weight.sum()).numpy())
    assert lowerings.count("<lambda>") == 2


LOOPS = """\
graph g(x: f32[100]):
    a: f32[100] = scan(x, body=$0, carries=1, slices=0, length=3, reverse=false, keep=false, wants=())
        graph first(h: f32[100]):
            const p: f32[100]
            v: f32[100] = mul(h, p)
            return v = v
    b: f32[100] = scan(x, body=$0, carries=1, slices=0, length=2, reverse=false, keep=false, wants=())
        graph second(h: f32[100]):
            const q: f32[100]
            v: f32[100] = mul(h, q)
            return v = v
    return a = a, b = b
"""


def test_large_constants_of_bodies_with_other_weights(own_cache, lowerings):
    """They are no part of the key either, and each body has its own. Where one array is in both, nothing says whose it is in the program,
    which is not kept."""
    one, two = np.linspace(1, 2, 100).astype("float32"), np.linspace(3, 9, 100).astype("float32")
    for p, q, lowered in ((one, one, 1), (one, two, 2), (two, one, 2), (two, two, 2)):
        graph = parse_graph(LOOPS, {"p": p, "q": q})
        program, _ = ready.ready_program(graph, None, [], "g", fold=True)
        assert program.address and lowerings.count("g") == lowered
        for _, name in program.data:
            assert program.data["const", name] is {"p": p, "q": q}[name[-1]]
        assert len(program.data) == 2


def test_what_was_tuned_makes_no_other_program_stale(own_cache, lowerings):
    """A program is made anew where one of its own kernels was tuned, and is found again when that is no longer so."""
    text = (
        "graph g(x: f32[64,64]):\n    const k: f32[64,64]\n"
        '    y: f32[64,64] = matmul(x, k, transpose_a=false, transpose_b=false, precision="highest")\n    return y = y\n'
    )
    graph = parse_graph(text, {"k": np.eye(64, dtype="float32")})
    none = tuned_schedules()

    def made(schedules):
        program, _ = ready.ready_program(graph, None, [], "g", True, schedules)
        assert all(p.address for p in (program, program.setup) if p)  # their machine code is there, and kept
        return program

    program = made(none)
    assert program.asked and len(lowerings) == 1
    for entries in ({"0" * 32: Grain(1024)}, {none.key("something else"): Grain(1024)}):
        assert not none.also(entries).concern(program.asked)
        assert made(none.also(entries)).asked == program.asked and len(lowerings) == 1
    own = none.also({none.key(program.asked[0]): Grain(1024)})
    assert own.concern(program.asked) and made(own).asked == program.asked and len(lowerings) == 2
    assert made(own).asked and made(none).asked and made(none.also({"0" * 32: Grain(1024)})).asked and len(lowerings) == 2


def test_an_entry_of_another_time_is_made_anew(own_cache, lowerings):
    graph = parse_graph(GRAPH, {"k": np.array(2, "float32")})
    key = program_cache.identity(graph, None, [], "g", True)
    for entry in (b"", b"[]", b"{}", b"null", b'{"object": 3}', b"\xff"):
        cache.put(key, entry, cache.PROGRAMS)
        program, arrays = ready.ready_program(graph, None, [], "g", fold=True)
        assert program.text and arrays[0].dtype is float32 and program.address
    assert len(lowerings) == 6
    program, arrays = ready.ready_program(graph, None, [], "g", fold=True)
    assert not program.text and arrays[0].shape == (4,) and len(lowerings) == 6


def test_expressions_come_back_as_they_were():
    n, m = lang.var("n0"), lang.var("offset.3")
    some = [n, m, n * 3 + 1, (n + 63) // 64 * 64, lang.minimum(n, 7), n % 5, (n - m) * (m + 2), lang.select(lang.equal(n, m), n, 4), 5]
    nodes = program_record.Nodes()
    written = [nodes.index(e) for e in some]
    read = program_record.reader(json.loads(json.dumps(nodes.written)))
    assert all(read(i) is e for i, e in zip(json.loads(json.dumps(written)), some)) and written[-1] == 5
    assert len(nodes.written) == len({json.dumps(x) for x in nodes.written})  # each part once, however often it occurs
