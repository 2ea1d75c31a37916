"""Programs of eager calls that are kept: a second process lowers nothing, emits nothing, and has the same bits."""

import json
import operator
import os
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
from exhaustive import exhaustive

import tengen
import tengen.functional as F
from tengen import Tensor
from tengen.base.config import config
from tengen.base.errors import ShapeError, Undecided
from tengen.compiler import building, pattern_cache, plans
from tengen.loops import lang
from tengen.loops.extents import Numbers
from tengen.ops.define import REGISTRY, composite, elementwise
from tengen.runtime import cache, environment
from tengen.runtime.provenance import CACHE, provenance
from tengen.tensor import hide_plans, restore_plans

KEEPS_PROGRAMS = True

# Twenty common ops, assignments, and the first training step of a small network. Hot plans make programs by the clock: here none.
SCRIPT = """
import hashlib, json
import numpy as np
import tengen, tengen.functional as F, tengen.module as M
from tengen import Tensor
from tengen.autodiff import GradManager
from tengen.compiler import building, plans
from tengen.kernels.lowering import Lowering
from tengen.optimizer import Adam
from tengen.runtime import compile as compiler
from tengen.runtime.provenance import provenance

plans.HOT_AFTER_S = 1e9
made = {"lowered": 0, "emitted": 0}

def counting(owner, name, what):
    inner = getattr(owner, name)
    def counted(*args, **more):
        made[what] += 1
        return inner(*args, **more)
    setattr(owner, name, counted)

counting(Lowering, "__init__", "lowered")
counting(building, "emit_module", "emitted")
digest = hashlib.sha256()
see = lambda *ts: [digest.update(t.numpy().tobytes()) for t in ts]
noise = lambda *shape: Tensor(np.random.default_rng(len(shape)).normal(size=shape).astype("float32"))

x, y, i = noise(6, 9), noise(9, 6), Tensor(np.array([2, 0, 5], "int32"))
see(x + 1, x - x, x * x, x / 3, x @ y, F.exp(x), F.relu(x), F.gelu(x), F.sqrt(F.abs(x)), F.softmax(x, axis=1), F.sum(x, axis=0))
see(F.mean(x), F.max(x, axis=1), F.argmax(x, axis=1), F.concat([x, x], axis=1), F.transpose(x, (1, 0)) + 0, x[i], x > 0)
see(F.where(x > 0, x, -x), F.cumsum(x, axis=1), F.sort(x, axis=1)[0], x.astype("float64"))
x[1], x[:, 2], x[i] = 3.0, noise(6), 1.0
x[x > 2] = 0.0
see(x)

tengen.random.seed(3)
net = M.Sequential(M.Conv2d(3, 4, 3), M.BatchNorm2d(4), M.ReLU(), M.MaxPool2d(2), M.Flatten(), M.Linear(4 * 9, 5))
gm, opt = GradManager().attach(net.parameters()), Adam(net.parameters(), lr=0.1)
with gm:
    loss = F.loss.cross_entropy(net(noise(2, 3, 8, 8)), Tensor(np.array([1, 3], "int32")))
    gm.backward(loss)
opt.step().clear_grad()
see(loss, *net.parameters())
print(json.dumps([made, compiler.compilations, dict(provenance.counts), digest.hexdigest()]))
"""


def run(**environ):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT], env={**os.environ, **environ}, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@exhaustive
def test_a_second_process_lowers_nothing():
    """The cache is one that the whole test session has, where most objects are: records are counted, not compilations."""
    first = run(TENGEN_PACK="0")
    made, compilations, counts, digest = run(TENGEN_PACK="0")
    assert (made, compilations, digest) == ({"lowered": 0, "emitted": 0}, 0, first[3])
    assert counts[CACHE] > 40 and set(counts) == {CACHE}
    none = run(TENGEN_PACK="0", TENGEN_CHECK="1")  # verifies, so it makes everything
    assert none[0]["lowered"] > 40 and none[3] == digest


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A cache of the test's own, and no plan or program known: what is called is looked up on the disk. Gives the names of what is
    emitted."""
    emitted = []
    emit = building.emit_module
    monkeypatch.setattr(building, "emit_module", lambda kernels, *more: (emitted.append([k.name for k in kernels]), emit(kernels, *more))[1])
    monkeypatch.setattr(plans, "HOT_AFTER_S", 1e9)
    known = hide_plans()
    with config.scope(cache_dir=str(tmp_path / "own"), pack=False):
        yield emitted
    restore_plans(known)


def forget(monkeypatch):
    """A process that has begun anew, as far as programs go."""
    monkeypatch.setattr(plans, "_programs", {})
    monkeypatch.setattr(plans, "_questions", {})
    hide_plans()


X = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")


def twice(call, fresh, monkeypatch):
    """The results of a call whose program is made, and of one whose program is read back; and how many are emitted."""
    results, counts = [], []
    for _ in range(2):
        forget(monkeypatch)
        fresh.clear()
        results.append(call().numpy().tobytes())
        counts.append(len(fresh))
    assert results[0] == results[1]
    return counts


@pytest.mark.parametrize("call, emitted", [
    (lambda: Tensor(X) + 2.5, 1),
    (lambda: F.softmax(Tensor(X), axis=1), 1),  # a composite
    (lambda: F.matmul(Tensor(X), Tensor(X.T.copy())), 1),
    (lambda: F.full((2, 3), 7.0), None),
])  # fmt: skip
def test_read_back(call, emitted, fresh, monkeypatch):
    first, second = twice(call, fresh, monkeypatch)
    assert (emitted is None or first == emitted) and second == 0


@pytest.mark.parametrize("error", [Undecided, ShapeError])
def test_numbers_decide_where_a_pattern_cannot(error, fresh, monkeypatch):
    """Broadcasting an extent against one that may be 1 only numbers can tell: the second process does not try again."""
    asked = []
    op = REGISTRY["cumsum"]
    lower = op.rules.lower

    def undecided(lo, ins, outs, **attrs):
        asked.append(lo.ints)
        if lo.ints:
            raise error("numbers are needed")
        return lower(lo, ins, outs, **attrs)

    undecided.__module__ = lower.__module__
    monkeypatch.setattr(op.rules, "lower", undecided)
    assert twice(lambda: F.cumsum(Tensor(X), axis=0), fresh, monkeypatch) == [1, 0]
    assert len(asked) == 2


def test_questions_and_their_answers_are_kept(fresh, monkeypatch):
    """Which of two extents is the smaller, an op asks; each answer has one program, which a second process reads back."""
    tall, wide = (np.random.default_rng(n).normal(size=(n, 9 - n)).astype("float32") for n in (6, 3))
    before = []
    for x, emitted in ((tall, 1), (wide, 1), (tall[:5], 0), (wide[:2], 0)):
        qr = lambda x=x: tengen.linalg.qr(Tensor(x.copy()))[1]
        if emitted:
            assert twice(qr, fresh, monkeypatch) == [1, 0]
        else:
            forget(monkeypatch)
            fresh.clear()
            before.append((qr().numpy(), x))
            assert not fresh
    for r, x in before:  # what was read back computes what it should
        np.testing.assert_allclose(r.T @ r, x.T @ x, rtol=1e-4, atol=1e-5)


def test_what_all_numbers_answer_alike_is_not_asked():
    """Names stand for numbers of at least 2; conditions are compared with what some of these say."""
    n, m, some = lang.var("n"), lang.var("m"), range(2, 9)
    of = lambda condition: pattern_cache._always(condition, frozenset([n, m]))
    left = [n, -n, n + m, n - 1, n - m, lang.const(0), lang.const(1), lang.const(2), n * m]
    signs = (operator.lt, operator.le, operator.gt, operator.ge, lang.equal, lang.not_equal)
    for a, b, sign in product(left, [m, -m, 2 - m, *map(lang.const, (-3, -2, 0, 1, 2, 3, 4))], signs):
        condition = sign(a, b)
        always = of(condition)
        answers = {bool(Numbers({n: i, m: j})(condition)) for i in some for j in some}
        assert answers == {always} if always is not None else True, condition
    assert of(n >= 2) is True and of(n > 2) is None and of(n < 2) is False and of(lang.equal(n, 1)) is False and of(-n < 0) is True
    assert of(lang.var("stride") > 0) is None


def test_a_wrong_call_raises_the_same_again(fresh, monkeypatch):
    """What goes wrong with numbers is the call's own error, and nothing is kept of it."""
    op = REGISTRY["cumsum"]

    def wrong(lo, ins, outs, **attrs):
        raise ShapeError("does not fit")

    wrong.__module__ = op.rules.lower.__module__
    monkeypatch.setattr(op.rules, "lower", wrong)
    for _ in range(2):
        forget(monkeypatch)
        with pytest.raises(ShapeError, match="does not fit"):
            F.cumsum(Tensor(X), axis=0)


def facts(monkeypatch, call):
    """What decides the programs of a call."""
    found = []
    forget(monkeypatch)
    with pattern_cache.watching(lambda pattern, make: found.append(pattern.facts())):
        call()
    return tuple(found)


def test_what_decides_the_program_is_in_its_facts(fresh, monkeypatch):
    x, y = Tensor(X), Tensor(X.T.copy())
    calls = [
        lambda: x + 1, lambda: x - 1, lambda: x + x, lambda: x + x.T.reshape(4, 6), lambda: x + x[:, :1], lambda: x.astype("float64"),
        lambda: x.astype("int32"), lambda: F.sum(x, axis=0), lambda: F.sum(x, axis=1), lambda: F.sum(x, axis=1, keepdims=True),
        lambda: F.clip(x, 0.0, 1.0), lambda: F.clip(x, -0.0, 1.0), lambda: x @ y, lambda: y @ x, lambda: x @ x.T,
    ]  # fmt: skip
    every = [facts(monkeypatch, call) for call in calls]
    assert all(every) and None not in {f for one in every for f in one}
    last = [one[-1] for one in every]
    # y @ x is x @ y with other numbers, and both sums are of two dense tensors; clip may take its limits as operands
    assert len(set(last) - {None}) >= len(calls) - 3
    assert facts(monkeypatch, lambda: Tensor(X[:3, :5].copy()) + 1) == every[0]  # other extents: the same


def test_ops_from_elsewhere_are_not_kept(fresh, monkeypatch):
    @elementwise(result="float")
    def from_this_test(x):
        """Twice x."""
        return x + x

    @composite
    def also_from_this_test(x: Tensor):
        """Four times x."""
        return REGISTRY["from_this_test"](x) * 2

    try:
        for call in (lambda: from_this_test(Tensor(X)), lambda: also_from_this_test(Tensor(X))):
            first, second = twice(call, fresh, monkeypatch)
            assert first == second == 1
    finally:
        del REGISTRY["from_this_test"], REGISTRY["also_from_this_test"]


def test_an_entry_that_cannot_be_read_is_made_anew(fresh, monkeypatch):
    kept = []
    put = cache.put

    def watched(key, data, suffix=".o"):
        kept.extend([key] if suffix == cache.PROGRAMS else [])
        put(key, data, suffix)

    monkeypatch.setattr(cache, "put", watched)
    call = lambda: F.exp(Tensor(X))
    forget(monkeypatch)
    call()
    want = call().numpy().tobytes()
    (key,) = kept
    whole = json.loads(cache.get(key, cache.PROGRAMS))
    damaged = [b"", b"[]", b"null", b"{}", b"\xff", json.dumps({**whole, "nodes": [["add", None, "int64", 5, 6]], "params": [[0]]}).encode()]
    for entry in (*damaged, json.dumps({**whole, "object": "0" * 64 + ".o"}).encode()):
        put(key, entry, cache.PROGRAMS)
        forget(monkeypatch)
        fresh.clear()
        assert call().numpy().tobytes() == want and len(fresh) == 1


def test_where_code_came_from_is_counted(fresh, monkeypatch):
    before = dict(provenance.counts)
    twice(lambda: F.tanh(Tensor(X)), fresh, monkeypatch)
    assert provenance.counts["compiled"] == before.get("compiled", 0) + 1
    assert provenance.counts[CACHE] == before.get(CACHE, 0) + 1
    assert "from the cache" in provenance.summary() and "compiled in" in provenance.summary()


# ---- the digest of the sources ---------------------------------------------------------------------------------------------


def test_any_edit_of_a_source_changes_its_digest(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "ROOT", str(tmp_path))
    monkeypatch.setattr(environment, "SETTLED_S", -1)  # files that were written just now are as good as old ones
    file = tmp_path / "ops" / "deep" / "a.py"
    file.parent.mkdir(parents=True)
    digest = lambda: environment.digest_of(list(environment._files(str(tmp_path))))
    file.write_text("x = 1\n")
    with config.scope(cache_dir=str(tmp_path / "cache")):
        seen = [digest()]
        assert digest() == seen[0] and len(list((tmp_path / "cache").glob("*.t"))) == 1
        times = os.stat(file)
        file.write_text("x = 2\n")  # as many bytes
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # and the same time of change: only ctime tells
        seen.append(digest())
        (tmp_path / "ops" / "b.py").write_text("")
        seen.append(digest())
        (tmp_path / "ops" / "b.py").rename(tmp_path / "ops" / "c.py")
        seen.append(digest())
        (tmp_path / "cli").mkdir()
        (tmp_path / "cli" / "d.py").write_text("")  # decides no program
        assert len(set(seen)) == 4 and digest() == seen[-1]


def test_what_has_just_changed_is_not_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "ROOT", str(tmp_path))
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "a.py").write_text("x = 1\n")
    with config.scope(cache_dir=str(tmp_path / "cache")):
        assert environment.digest_of(list(environment._files(str(tmp_path))))
        assert not list((tmp_path / "cache").glob("*.t"))
    assert environment.digest_of([]) == ""
