"""The first answer of a model file whose program nobody has made: node by node, where all programs of its nodes are there; and who makes
the program later."""

import gc
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from recorded import dumped, graph_of

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, load_graph
from tengen.base.config import config
from tengen.codegen.targets import Target
from tengen.compiler import pattern_cache, plans
from tengen.deploy import by_nodes, unfinished
from tengen.runtime import cache, finishing, tiers
from tengen.tensor import hide_plans, restore_plans

KEEPS_PROGRAMS = True
pytestmark = pytest.mark.skipif(Target.host().architecture.linking is None, reason="LLVM links code for this architecture")
X = np.random.default_rng(0).normal(size=(2, 3, 9, 9)).astype("float32")


def network():
    """A network whose graph has a convolution, a norm, a pool, a view in the middle, a product, a value of two readers."""
    layers = M.Conv2d(3, 8, 3, padding=1), M.BatchNorm2d(8), M.ReLU(), M.MaxPool2d(2), M.Flatten(), M.Linear(128, 5)
    net = M.Sequential(*layers).eval()
    return lambda x: F.softmax(net(x) + 1, axis=1) * 2


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Begins as a new process does, with the knobs of a user and a cache of its own; without a pack."""
    known = hide_plans()

    def begin():
        hide_plans()
        monkeypatch.setattr(plans, "_programs", {})
        monkeypatch.setattr(plans, "_questions", {})

    # no worker begins: all code is made by who waits for it
    monkeypatch.setattr(tiers.background, "_delay_s", 60)
    with config.scope(cache_dir=str(tmp_path / "cache"), quick_compile=True, finish=True, pack=False):
        begin()
        yield begin
        unfinished._models.clear()
        tengen.jit.wait_for_compilation()
    restore_plans(known)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.tgn"
    dumped(network(), [Tensor(X)], path)
    return path


def prepared(file, begin):
    """The programs of the nodes are in the cache, and this process has met none of them; the graph."""
    graph = load_graph(file).graph
    by_nodes.run(graph, [Tensor(X)._data])
    tengen.jit.wait_for_compilation()
    begin()
    return graph


def there(file) -> bool:
    """Whether the cache has the program of a model, once all code is good."""
    tiers.background.wait()
    m = load_graph(file)
    m.look_ahead()
    return m._ahead is not None


def test_the_first_answer_has_the_bits_of_the_program_which_the_second_call_makes(file, begin):
    prepared(file, begin)
    m = load_graph(file)
    before = tiers.statistics.quick, tiers.statistics.good
    first = m(X)
    assert m._executable is None and tiers.statistics.quick == before[0] and list(unfinished._models) == [str(file)]
    second = m(Tensor(X))
    assert m._executable is not None and not unfinished._models
    assert first.numpy().tobytes() == second.numpy().tobytes() == m(X).numpy().tobytes()
    assert there(file)
    again = load_graph(file)
    assert again(X).numpy().tobytes() == first.numpy().tobytes() and again._executable is not None


def test_where_a_program_is_missing_nothing_is_made_for_it(file, begin):
    graph = load_graph(file).graph
    assert by_nodes.answer(graph, [Tensor(X)._data]) is None
    assert cache.names(cache.PROGRAMS) == cache.names(".o") == []
    m = load_graph(file)
    m(X)
    assert m._executable is not None and not unfinished._models


def test_who_waits_for_compilation_waits_for_programs_of_models(file, begin):
    prepared(file, begin)
    m = load_graph(file)
    first = m(X)
    assert tengen.jit.wait_for_compilation() and m._executable is not None and not unfinished._models
    assert m(X).numpy().tobytes() == first.numpy().tobytes()


def test_also_for_a_model_that_nobody_has_any_more(file, begin):
    prepared(file, begin)
    load_graph(file)(X)
    gc.collect()
    assert not there(file)
    tengen.jit.wait_for_compilation()
    assert there(file)


def test_hot_calls_make_no_programs_meanwhile(file, begin, monkeypatch):
    graph = prepared(file, begin)
    monkeypatch.setattr(plans, "HOT_AFTER_S", 0.0)
    alone = []
    with pattern_cache.watching(lambda pattern, make: alone.append(pattern.alone)):
        for _ in range(3):
            assert by_nodes.answer(graph, [Tensor(X)._data]) is not None
    assert alone and not any(alone)


KNOBS = [{"quick_compile": "only"}, {"quick_compile": False}, {"finish": False}, {"cache": False}, {"check": True}]


@pytest.mark.parametrize("knobs", KNOBS, ids=str)
def test_where_a_program_could_not_be_made_later_it_is_made_first(knobs, begin):
    assert by_nodes.wanted()
    with config.scope(**knobs):
        assert not by_nodes.wanted()


def test_in_a_profile_the_program_is_made_first(begin):
    with tengen.profile():
        assert not by_nodes.wanted()


FIT = {
    "arithmetic": (lambda x: x * 2 + 1, True),
    "a view in the middle": (lambda x: F.flatten(x) + 1, True),
    "an input": (lambda x: x, False),
    "a view of an input": (lambda x: F.flatten(F.reshape(x, (3, 2, 81)), 1), False),
    "a check": (lambda x: F.embedding(x.astype("int32"), Tensor(np.ones((4, 2), "float32"))), False),
    "a loop": (lambda x: F.fori_loop(0, 3, lambda i, y: y + x, x), False),
}


@pytest.mark.parametrize("name", FIT)
def test_which_graphs_are_run_node_by_node(name):
    f, fits = FIT[name]
    assert by_nodes.fits(graph_of(f, Tensor(X))) is fits


def test_results_share_no_memory_with_arrays_of_the_caller(file, begin):
    prepared(file, begin)
    x = X.copy()
    first = load_graph(file)(x)
    bits = first.numpy().tobytes()
    x[:] = np.nan
    assert first.numpy().tobytes() == bits


def test_the_model_of_an_open_file_has_its_program_first(file, begin):
    prepared(file, begin)
    with open(file, "rb") as f:
        m = load_graph(f)
    m(X)
    assert m._executable is not None


def test_a_predictor_makes_the_program_first(file, begin):
    """It answers again and again, and no request should wait for what the one before it has left."""
    prepared(file, begin)
    with tengen.Predictor(file) as p:
        p(X)
        assert p.model._executable is not None and not unfinished._models


def test_what_is_left_is_made_by_another_process_once(file, begin, tmp_path):
    prepared(file, begin)
    load_graph(file)(X)
    assert unfinished.leave() >= finishing.MUCH  # so that a process is worth it
    unfinished._models.clear()
    gone = str(tmp_path / "gone.tgn")
    cache.put(gone, os.fsencode(gone), cache.MODELS)
    assert len(cache.names(cache.MODELS)) == 2
    unfinished.make_left(load_graph)
    assert cache.names(cache.MODELS) == [] and there(file)


SCRIPT = """
import sys, numpy as np, tengen
m = tengen.load_graph(sys.argv[1])
m(np.ones((2, 3, 9, 9), "float32"))
print(m._executable is None)
"""


def test_after_a_short_process_one_makes_the_program(file, begin):
    prepared(file, begin)
    told = {"QUICK_COMPILE": "1", "FINISH": "1", "PACK": "0", "CACHE_DIR": cache.directory_name()}
    env = {**os.environ, **{f"TENGEN_{name}": value for name, value in told.items()}}
    run = lambda: subprocess.run([sys.executable, "-c", SCRIPT, str(file)], capture_output=True, text=True, timeout=120, env=env, check=True)
    assert run().stdout.split() == ["True"]
    end = time.monotonic() + 100

    def free() -> bool:
        with cache.alone(finishing.LOCK) as mine:
            return mine

    while not (cache.names(cache.MODELS) == [] and free() and there(file)) and time.monotonic() < end:
        time.sleep(0.1)
    assert run().stdout.split() == ["False"]
