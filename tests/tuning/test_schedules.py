"""Schedules: as text, as an answer to a strategy's question, and that no kernel's bits depend on them."""

import dataclasses
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from exhaustive import but
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tengen
import tengen.functional as F
from tengen import Tensor
from tengen.base.errors import ScheduleError
from tengen.codegen.targets import Target
from tengen.compiler import schedules as store
from tengen.kernels import schedule
from tengen.kernels.attention.sizes import Sizes
from tengen.kernels.contraction.tile import Register
from tengen.kernels.contraction.unpacked import Unpacked
from tengen.kernels.convolution.depthwise import Stencil
from tengen.kernels.convolution.winograd_sizes import Winograd
from tengen.kernels.schedule import Grain, Schedules, answer, parse
from tengen.tensor.executable import Executable
from tengen.tuning.trial import Bench

RULE = Register(6, 2, 4, 1, 1)


def test_text_reads_back():
    for s in (RULE, Grain(5), Winograd(3, 2, 2), Sizes(8, 2, 1), Stencil(4), Unpacked(2, 1)):
        assert parse(str(s)) == s and re.fullmatch(r"\w+\(.*\)", str(s))


def test_every_kind_is_found_in_a_fresh_process():
    """A tuned file may be read before anything was lowered, when most kernels' modules are not imported."""
    root = Path(schedule.__file__).parent
    defining = (p for p in root.rglob("*.py") if re.search(r"^class \w+\(Schedule, kind=", p.read_text(), re.M))
    homes = {".".join(p.relative_to(root).with_suffix("").parts) for p in defining}
    assert homes == {*schedule.HOMES, "schedule"}
    code = "import sys; from tengen.kernels.schedule import parse; print(parse(sys.argv[1]))"
    text = str(Winograd(3, 2, 2))
    assert subprocess.run([sys.executable, "-c", code, text], capture_output=True, text=True).stdout.strip() == text


def test_texts_of_others():
    assert parse("later(depth=3)") is None and parse("grain(elements=1, more=2)") is None
    for bad in ("", "grain", "grain()", "grain(elements=-1)", "grain(elements=1e9)", "grain(elements=1);x", "g(x=1" * 50):
        with pytest.raises(ScheduleError):
            parse(bad)


@pytest.mark.parametrize("cls", list(schedule.kinds().values()), ids=lambda c: c.kind)
def test_near_schedules_differ_a_little(cls):
    s = cls(**{f.name: cls.steps[f.name][0] if f.name in cls.steps else 1 for f in dataclasses.fields(cls)})
    found = list(s.near())
    assert found and s not in found and len(set(found)) == len(found)
    assert all(sum(a != b for a, b in zip(x.numbers().values(), s.numbers().values())) in (1, 2) for x in found)


def test_answers():
    never = lambda s: "it is too large" if s.elements > 100 else ""
    known = Schedules("t", 2)
    key = known.key("what")
    assert key != Schedules("t", 1).key("what") != Schedules("u", 2).key("what")
    assert answer(known, "what", Grain(5), never) == answer(None, "what", Grain(5), never) == Grain(5)
    assert answer(known.also({key: Grain(6)}), "what", Grain(5), never) == Grain(6)
    assert answer(known.also({key: RULE}), "what", Grain(5), never) == Grain(5)  # of another kind
    assert answer(known.also({key: Grain(101)}), "what", Grain(5), never) == Grain(5)
    with pytest.raises(ScheduleError, match=r"grain\(elements=101\) cannot be: it is too large"):
        answer(known.also({key: Grain(101)}, strict=True), "what", Grain(5), never)


def data(*shape, seed=0):
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype("f4"))


PROGRAMS = {
    "matmul": (lambda a, b: F.relu(a @ b), [(70, 300), (300, 50)]),
    "transposed": (lambda a, b: F.transpose(a, (1, 0)) @ b, [(300, 70), (300, 50)]),
    "row": (lambda a, b: a @ b, [(2, 300), (300, 50)]),
    "column": (lambda a, b: a @ b, [(40, 300), (300,)]),
    "conv": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), [(2, 5, 13, 13), (20, 5, 3, 3)]),
    "winograd": (lambda x, w: F.conv2d(x, w, padding=1), [(1, 64, 20, 20), (48, 64, 3, 3)]),
    "depthwise": (lambda x, w: F.conv2d(x, w, padding=1, groups=20), [(1, 20, 15, 15), (20, 1, 1, 3, 3)]),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [(3, 70, 16)] * 3),
    "pointwise": (lambda x: F.exp(x) + 1, [(7, 3000)]),
    "rows": (lambda x: F.softmax(x, axis=1), [(50, 700)]),
    "view": (lambda x: F.exp(F.reshape(F.transpose(x, (1, 0)), (7, 3000))), [(3000, 7)]),
    "sums": (lambda x: x.sum(axis=0), [(300, 70)]),
}


def executable(f, shapes):
    t = tengen.trace(f, example_input=tuple(data(*s, seed=i) for i, s in enumerate(shapes)))
    return t._last.run


def at_random(c, n):
    """Schedules of any numbers that fit a choice."""
    rng = random.Random(n)
    return list(dict.fromkeys(s for s in (c.rule.far(rng) for _ in range(100)) if not c.fits(s)))[:n]


@but(every=3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_schedule_changes_a_bit(name):
    """For every choice of a program: the rule's schedule, and some near it, give the same bits."""
    exe = executable(*PROGRAMS[name])
    plain = Schedules(Target.host().key, 2)
    bench = Bench(exe.graph, plain)
    assert bench.lo.choices
    for c in bench.lo.choices.values():
        near = list(c.near(c.rule))
        assert not c.fits(c.rule) and all(s != c.rule for s in near)
        for node in c.nodes & bench.hot:
            want = bench.trial(node, plain).bits()
            for s in near[:3] + near[3 :: max(1, len(near) // 3)] + at_random(c, 4):
                got = bench.trial(node, plain.also({plain.key(c.problem_key): s}, strict=True)).bits()
                assert got == want, f"{name}: {s} and {c.rule} differ"


def test_what_a_target_cannot_do_is_refused():
    exe = executable(*PROGRAMS["matmul"])
    known = Schedules(Target.host().key, 2)
    bench = Bench(exe.graph, known)
    c = next(c for c in bench.lo.choices.values() if type(c.rule) is Register)
    for change, words in (
        ({"rows": 14, "vectors": 4}, "registers"),
        ({"rows": 0}, "rows is 0"),
        ({"high": 64}, "scratch memory"),
        ({"unroll": 9}, "unroll is 9"),
        ({"packed": 0, "panels": 4000}, "L2"),
    ):
        s = dataclasses.replace(c.rule, **change)
        assert words in c.fits(s)
        with pytest.raises(ScheduleError, match="cannot be"):
            exe.retuned(known.also({known.key(c.problem_key): s}, strict=True))
        tolerant = exe.retuned(known.also({known.key(c.problem_key): s}))
        assert tolerant.program.object == exe.program.object and not tolerant.program.schedules


@pytest.mark.parametrize("channels, size", [(128, 8), (64, 24), (200, 30)])
def test_the_most_tiles_that_fit_have_room_for_what_else_a_piece_keeps(channels, size):
    """Rows, halves of transforms, and a filter that a piece transforms itself, where there is room for it."""
    exe = executable(lambda x, w: F.conv2d(x, w, padding=1), [(1, channels, size, size), (channels, channels, 3, 3)])
    known = Schedules(Target.host().key, 2)
    c = next(c for c in Bench(exe.graph, known).lo.choices.values() if type(c.rule) is Winograd)
    every = (dataclasses.replace(c.rule, rows=r, vectors=v, high=h) for r in range(1, 13) for v in (1, 2, 4) for h in range(1, 17))
    most = sorted((s for s in every if not c.fits(s)), key=lambda s: -s.rows * s.high * (channels + 16 * s.vectors))
    assert most[0].rows * most[0].high > 16
    some = [dataclasses.replace(c.rule, rows=5, vectors=4, high=6)]
    for s in most[:3] + [s for s in some if s in most]:
        exe.retuned(known.also({known.key(c.problem_key): s}, strict=True))  # and is not refused for its scratch memory


def test_an_executable_takes_a_schedule():
    exe = executable(*PROGRAMS["rows"])
    known = exe.schedules
    c = next(iter(Bench(exe.graph, known).lo.choices.values()))
    new = exe.retuned(known.also({known.key(c.problem_key): Grain(1000)}))
    assert isinstance(new, Executable) and new.program.object != exe.program.object
    assert new.program.schedules == {known.key(c.problem_key): Grain(1000)}
    x = data(50, 700)._data
    want = exe([x])[0].numpy().tobytes()
    exe.take(new)
    assert exe([x])[0].numpy().tobytes() == want and exe.program is new.program


def test_tables_as_text():
    key = "0" * 32
    table = {key: RULE, "a" * 32: Grain(7)}
    assert store.from_text(store.to_text(table)) == table
    assert store.from_text(f'{{"{key}": "later(x=1)"}}') == {}
    for bad in ("", "[]", "3", '{"a": "grain(elements=1)"}', f'{{"{key}": 3}}', f'{{"{key}": "import os"}}', "[" * 100000):
        with pytest.raises(ScheduleError):
            store.from_text(bad)


def test_packing_of_a_state_is_by_rule():
    """In a file it is a constant, and packed once; what is best for the one is not for the other."""
    x, w = data(200, 64), data(64, 48, seed=1)
    for constant in (False, True):
        t = tengen.trace(lambda x: x @ w, example_input=x, capture_as_const=constant)
        (c,) = (c for c in Bench(t._last.run.graph, Schedules("t", 1)).lo.choices.values() if type(c.rule) is Register)
        other = dataclasses.replace(c.rule, packed=1 - c.rule.packed)
        assert ("by rule" in c.fits(other)) == (not constant)


numbers = st.integers(0, 10**9 - 1) | st.integers(0, 70)


@st.composite
def schedules(draw):
    """Schedules of all kinds with any numbers, as text."""
    cls = draw(st.sampled_from(list(schedule.kinds().values())))
    return str(cls(**{f.name: draw(numbers) for f in dataclasses.fields(cls)}))


@settings(max_examples=150, deadline=None)
@given(st.text() | schedules(), st.text())
@example("grain(elements=1)", "0" * 32)
def test_any_text_is_read_or_refused(text, key):
    for read, given_ in ((parse, text), (store.from_text, text), (store.from_text, json.dumps({"0" * 32: text, key: text}))):
        try:
            read(given_)
        except ScheduleError:
            pass


@settings(max_examples=40, deadline=None)
@given(schedules(), st.sampled_from(["conv", "winograd", "attention", "depthwise"]))
def test_any_numbers_fit_or_are_passed_over(text, name):
    """What a stranger's file says: the program is the rule's, or one with a schedule that is within its limits."""
    if name not in known_graphs:
        known_graphs[name] = executable(*PROGRAMS[name]).graph
    plain = Schedules(Target.host().key, 2)
    bench = Bench(known_graphs[name], plain)
    for c in bench.lo.choices.values():
        s = parse(text)
        taken = Bench(known_graphs[name], plain.also({plain.key(c.problem_key): s})).lo.choices[c.problem_key].taken
        assert taken == (c.rule if type(s) is not type(c.rule) or c.fits(s) else s)


known_graphs = {}
