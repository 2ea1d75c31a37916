"""A model file that was found right before: its nodes are read when somebody asks for them, and nothing that runs is another."""

import threading

import models
import numpy as np
import pytest

import tengen
from tengen import custom_ops
from tengen.base.config import config
from tengen.base.errors import FileFormatError
from tengen.compiler import program_cache
from tengen.ir.graph import UnreadGraph
from tengen.ir.jsonform import to_json


@pytest.fixture
def file(tmp_path):
    """A model file that this cache has never met, and the bytes of what it gives."""
    f, x, _ = models.mlp()
    f.dump(tmp_path / "m.tgn", arg_names=["data"], output_names=["scores"])
    with config.scope(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "m.tgn", x


def unread(m) -> bool:
    return isinstance(m.kept_graph, UnreadGraph) and m.kept_graph.digest is not None


def test_a_second_load_runs_without_nodes(file):
    path, x = file
    first = tengen.load_graph(path)
    made = first(x).numpy().tobytes()
    again = tengen.load_graph(path)
    assert not unread(first) and unread(again)
    assert again(x).numpy().tobytes() == made and unread(again)
    assert (again.name, again.inputs, again.outputs, again.extents) == (first.name, first.inputs, first.outputs, first.extents)
    assert again.n_parameters == first.n_parameters and again.weights.keys() == first.weights.keys() and unread(again)
    digest = again.kept_graph.digest
    assert repr(again) == repr(first) and again.ops() == first.ops() and not unread(again)
    assert to_json(again.graph) == to_json(first.graph)
    assert program_cache.digest_of(again.graph) == program_cache.digest_of(first.graph) == digest
    assert again.graph.output_types() == first.graph.output_types()


def test_who_has_the_nodes_may_change_them(file):
    """The digest of the file no longer says which program it is."""
    path, x = file
    before = tengen.load_graph(path)(x).numpy()
    m = tengen.load_graph(path)
    graph = m.graph
    (relu, *_) = [n for n in graph.nodes if n.op == "relu"]
    graph.replace_value(relu.outputs[0], relu.inputs[0])
    after = m(x).numpy()
    assert not np.array_equal(before, after)
    assert np.array_equal(tengen.load_graph(path)(x).numpy(), before)


def test_a_damaged_file_leaves_nothing_that_is_believed(file):
    """A file that claims the checksum of another is refused, and what it holds is not kept under that checksum."""
    path, x = file
    good = path.read_bytes()
    bad = good.replace(b'\\"op\\":\\"relu\\"', b'\\"op\\":\\"tanh\\"', 1)
    assert bad != good and len(bad) == len(good)
    for known in (False, True):
        path.write_bytes(bad)
        with pytest.raises(FileFormatError, match="checksum"):
            tengen.load_graph(path)
        path.write_bytes(good)
        assert unread(tengen.load_graph(path)) is known


def test_threads_ask_for_the_nodes_at_once(file):
    path, _ = file
    nodes = len(tengen.load_graph(path).graph.nodes)
    for _ in range(20):
        m, start, found = tengen.load_graph(path), threading.Barrier(4), []

        def look(m=m, start=start, found=found):
            start.wait()
            found.append((m.kept_graph.nodes, m.graph.outputs))

        workers = [threading.Thread(target=look) for _ in range(4)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        assert len(found) == 4 and all(a is found[0][0] and b is found[0][1] for a, b in found) and len(found[0][0]) == nodes


def test_where_all_is_to_be_checked_all_is(file):
    path, _ = file
    tengen.load_graph(path)
    with config.scope(check=True):
        assert not isinstance(tengen.load_graph(path).kept_graph, UnreadGraph)
    with config.scope(cache=False):
        assert not isinstance(tengen.load_graph(path).kept_graph, UnreadGraph)


def test_states_and_operators_of_users_are_read_each_time(tmp_path):
    """The sources that the key names do not say what a user's operator means."""

    @custom_ops.elementwise("again::twice")
    def twice(x):
        return x + x

    counter, _ = models.counter()
    for run, name in ((tengen.trace(lambda x: twice(x) + 1), "x"), (counter, "x")):
        x = tengen.Tensor(np.arange(3, dtype="float32"))
        run(x)
        run.dump(tmp_path / "m.tgn", arg_names=[name])
        with config.scope(cache_dir=str(tmp_path / "cache")):
            loaded = [tengen.load_graph(tmp_path / "m.tgn") for _ in range(2)]
            assert not any(isinstance(m.kept_graph, UnreadGraph) for m in loaded)
            assert len({m(x).numpy().tobytes() for m in loaded}) == 1
