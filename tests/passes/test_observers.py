"""The list of all passes, from a graph to its program, and those who look on: every pass in order, before and after, seconds."""

import numpy as np
import pytest

import tengen.functional as F
from tengen import Tensor
from tengen.base.config import config
from tengen.base.errors import VerifyError
from tengen.codegen.targets import Target
from tengen.compiler.building import EMIT, MEMORY, Planned, build
from tengen.compiler.driver import compile_graph, evaluate, passes
from tengen.compiler.memory_plan import Budget
from tengen.compiler.program import Program
from tengen.ir.graph import Graph
from tengen.ir.text import parse_graph, print_graph
from tengen.kernels.steps_text import print_steps
from tengen.passes.lower import Placed
from tengen.passes.lowered import Lowered
from tengen.passes.pipeline import graph_passes, optimize
from tengen.passes.run import Form, Pass, observing, run_passes

GRAPHS = ["remove_dead_code", "remove_identities", "remove_examples", "remove_broadcasts", "merge_common", "keep_codes", "drop_clips", "narrow"]
FUSED = ["remove_dead_code", "fuse", "optimize_regions"]
LOWERING = ["destinations", "layouts", "aliases", "image_loops", "launches"]
LAST = ["memory", "emit"]

TEXT = """\
graph g(x: f32[200,40]):
    const w: f32[40,30]
    const k: f32[]
    two: f32[] = add(k, k)
    y: f32[200,30] = matmul(x, w, transpose_a=false, transpose_b=false, precision="highest")
    z: f32[200,30] = mul(y, two)
    r: f32[200,30] = relu(z)
    return r = r
"""


def graph():
    w = np.random.default_rng(0).normal(size=(40, 30)).astype("float32")
    return parse_graph(TEXT, {"w": w, "k": np.array(1.5, "float32")})


class Seen(list):
    """An observer that keeps what it is told, with the texts of both forms as they are then."""

    def __call__(self, p, before, after, seconds):
        assert seconds >= 0
        self.append((p, before, after, seconds, text_of(before), text_of(after)))

    @property
    def names(self):
        return [p.name for p, *_ in self]


def text_of(x):
    match x:
        case Graph():
            return print_graph(x)
        case Planned():
            return text_of(x.lowered) + x.text()
        case Placed() | Lowered():
            return x.text()
        case Program():
            return x.text
    return print_steps(x)


def test_an_observer_sees_every_pass_in_order():
    seen = Seen()
    with observing(seen):
        program, _ = compile_graph(graph(), None, [], "g")
    assert seen.names == [*GRAPHS, *FUSED, *LOWERING, *LAST]
    assert [p.name for p in passes(Target.host())] == seen.names
    kinds = [Graph] * 11 + [Placed] * 4 + [Lowered, Planned, Program]
    assert [type(after) for _, _, after, *_ in seen] == kinds and seen[-1][2] is program
    for (_, _, after, *_), (_, before, *_) in zip(seen, seen[1:]):
        assert after is before
    compile_graph(graph(), None, [], "g")
    assert len(seen) == len(kinds)  # it looked on in its block alone


def test_what_a_pass_was_given_stays_as_it_was():
    seen = Seen()
    with observing(seen):
        compile_graph(graph(), None, [], "g", fold=True)
    for p, before, after, _, was, made in seen:
        assert text_of(before) == was, p.name
        assert text_of(after) == made, p.name
    _, before, after, *_ = next(x for x in seen if x[0].name == "hoist")
    assert len(after.lo.steps) < len(before.lo.steps) and after.setup is not None


def test_folding_is_seen_from_within():
    seen = Seen()
    with observing(seen):
        compile_graph(graph(), None, [], "g", fold=True)
    inner = [*GRAPHS, *FUSED, *LOWERING, *LAST]
    assert seen.names == [*GRAPHS, *inner, "fold_constants", *FUSED, *LOWERING, "hoist", *LAST]
    listed = [p.name for p in passes(Target.host(), evaluate=evaluate)]
    assert listed == [*GRAPHS, "fold_constants", *FUSED, *LOWERING, "hoist", *LAST]


def test_a_budget_is_one_pass_of_the_list():
    whole, seen = compile_graph(graph(), None, [], "g")[0], Seen()
    with observing(seen):
        program, _ = compile_graph(graph(), None, [], "g", budget=Budget(1 << 20))
    assert seen.names == [*GRAPHS, *FUSED, *LOWERING, "memory", "destinations", "layouts", "aliases", "image_loops", "within_budget", "emit"]
    assert program.memory.budget == 1 << 20 and whole.memory is None and program.text == whole.text
    assert [p.name for p in passes(Target.host(), budget=Budget(1 << 20))] == [*GRAPHS, *FUSED, "within_budget", "emit"]


def test_names_tell_passes_apart():
    names = [p.name for p in passes(Target.host(), evaluate=evaluate)]
    assert len(set(names)) == len(names) - 1 and names.count("remove_dead_code") == 2


def test_eager_calls_end_with_the_same_passes():
    seen = Seen()
    x = Tensor(np.arange(7, dtype="float32"))
    with observing(seen):
        F.relu(x[1:6:2] + 0.1234)
    assert set(seen.names) <= {"launches", *LAST}
    assert [p for p, *_ in seen if p.name in LAST] == [MEMORY, EMIT] * (len(seen) // 3)


def test_observers_of_a_list_alone():
    count = Form(9, str)
    seen = []
    note = lambda p, before, after, seconds: seen.append((p.name, before, after))
    assert run_passes(1, [Pass("double", lambda x: 2 * x, count), Pass("next", lambda x: x + 1, count)], note) == 3
    assert seen == [("double", 1, 2), ("next", 2, 3)]


def test_blocks_of_observers_may_overlap():
    first, second = Seen(), Seen()
    a, b = observing(first), observing(second)
    a.__enter__()
    b.__enter__()
    b.__exit__(None, None, None)
    optimize(graph())  # seen by the first alone, although the two lists were equal
    b = observing(second)
    b.__enter__()
    a.__exit__(None, None, None)  # of another thread, say
    optimize(graph())
    b.__exit__(None, None, None)
    optimize(graph())
    assert first.names == second.names == [*GRAPHS, *FUSED]


def test_an_observer_goes_when_its_block_fails():
    seen = Seen()
    with pytest.raises(ZeroDivisionError), observing(seen):
        raise ZeroDivisionError
    optimize(graph())
    assert not seen


def test_every_form_is_verified():
    def broken(x):
        raise VerifyError(f"broken {type(x).__name__}")

    with config.scope(check=True):
        for p in passes(Target.host(), evaluate=evaluate):
            ran = []
            failing = Pass(p.name, lambda x: x, Form(9, str, broken))
            with pytest.raises(VerifyError, match="broken int"):
                run_passes(1, [failing], lambda *told, ran=ran: ran.append(told))
            assert not ran  # what breaks the rules is told to nobody
    run_passes(1, [failing])  # and is not looked for without the knob


def test_what_passes_break_is_found():
    g = graph()
    lost = Pass("lost", lambda g: setattr(g, "nodes", g.nodes[1:]) or g, graph_passes()[0].form)
    with config.scope(check=True), pytest.raises(VerifyError):
        run_passes(g, [lost])
    seen = Seen()
    with observing(seen):
        compile_graph(graph(), None, [], "g")
    launches, lowered = next((p, after) for p, _, after, *_ in seen if p.name == "launches")
    step = lowered.lo.steps[-1]
    lowered.lo.steps[-1] = type(step)(step.kernel, step.ids[:-1])
    with config.scope(check=True), pytest.raises(VerifyError):
        run_passes(lowered, [Pass("lost", lambda x: x, launches.form)])


@pytest.mark.parametrize("level", range(5))
def test_printing(level, capsys):
    with config.scope(debug=level):
        compile_graph(graph(), None, [], "g", fold=True)
    out = capsys.readouterr().out
    for name, least in [("fuse", 2), ("narrow", 2), ("layouts", 3), ("launches", 3), ("hoist", 3), ("memory", 3), ("emit", 4)]:
        assert (f"# after {name}\n" in out) == (level >= least), name
    assert ("kernel " in out) == (level >= 3) and ("define " in out) == (level >= 4)
    assert (f"tengen: g: {len(passes(Target.host(), evaluate=evaluate))} passes in " in out) == (level >= 1)


def test_placed_text():
    seen = Seen()
    with observing(seen):
        compile_graph(parse_graph("graph s(x: f32[2,3]):\n    y: f32[2,3] = relu(x)\n    return y = y\n"), None, [], "s")
    text = next(made for p, *_, made in seen if p.name == "aliases")
    assert text.endswith("# y: strides (3, 1) in out.0\n")


def test_build_is_the_end_of_the_list():
    seen = Seen()
    with observing(seen):
        compile_graph(graph(), None, [], "g")
    lowered = next(after for p, _, after, *_ in seen if p.name == "launches")
    program = build(lowered.lo, lowered.inputs, lowered.outputs, "g")
    assert program.text == seen[-1][2].text
