"""Plans of a register tile: which one each kind of problem takes, that it fits, and what it costs, counted by hand."""

import contextlib
import io
import re
from dataclasses import replace

import numpy as np
import pytest
from launching import array_of
from recorded import graph_of

import tengen.functional as F
from tengen import Tensor, trace
from tengen.base.config import config
from tengen.base.dtype import float32, float64
from tengen.codegen.targets import Target
from tengen.compiler.driver import compile_graph
from tengen.kernels.contraction import plans
from tengen.kernels.contraction.contract import contract
from tengen.kernels.contraction.problem import Border, normalise
from tengen.kernels.contraction.sharing import Sharing
from tengen.kernels.contraction.tile import Register, Tile, fits, sized
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.machine import too_large
from tengen.loops.lang import var
from tengen.module import Linear
from tengen.runtime.compile import assembly

TARGETS = [Target.named(name) for name in ("x86-64-v3", "x86-64-v4", "aarch64")]
V4 = TARGETS[1]


def matrices(m, k, n, a_turned=False, b_turned=False, b="b", dtype=float32):
    """The product of a dense (m, k) matrix and a dense (k, n) one; turned: dense along the first axis. b: the second one's id."""
    array = lambda id, rows, columns, turned: Array(id, dtype, (rows, columns), (1, rows) if turned else (columns, 1))
    a, b, out = array("a", m, k, a_turned), array(b, k, n, b_turned), array("c", m, n, False)
    return normalise(a, b, out, 0, 1, 1, 1, None, None, "p")


def windows(padding):
    """The gradient of a 3x3 filter, 16 to 96 channels, by a channels-last image of 8 x 8: rows are (3, 3, 16), terms pixels."""
    space = 6 + 2 * padding
    a = Array("a", float32, (3, 3, 16, 1, space, space), (8 * 16, 16, 1, 8 * 8 * 16, 8 * 16, 16))
    steps = ((0, 1), (1, 1), None, None, (0, 1), (1, 1))
    border = Border(steps, (-padding, -padding), (8, 8)) if padding else None
    b = Array("b", float32, (1, space, space, 96), (space * space * 96, space * 96, 96, 1))
    out = Array("c", float32, (3, 3, 16, 96), (3 * 16 * 96, 16 * 96, 96, 1))
    return normalise(a, b, out, 0, 3, 3, 1, None, None, "p", border)


CASES = {
    "panel by panel": matrices(300, 256, 1024),
    "waves": matrices(512, 8192, 128, a_turned=True),
    "rows side by side": matrices(128, 300, 64, a_turned=True),
    "columns by piece": windows(padding=0),
    "windows": windows(padding=1),
    "both packed": matrices(1000, 2000, 1000, a_turned=True),
    "transposed panels": matrices(40, 300, 64, b_turned=True),
    "b packed": matrices(1000, 300, 100),
    "own columns": matrices(50, 300, 100),
}


def test_there_is_a_case_for_every_plan():
    assert list(CASES) == [x.name for x in plans.PLANS]


@pytest.mark.parametrize("name", CASES)
def test_the_plan_of_each_kind_of_problem(name):
    p = CASES[name]
    f = plans.Facts(p, V4, waves=plans.in_waves(p, V4))
    assert plans.plan(f).name == name


@pytest.mark.parametrize("m, n, turned", [(64, 512, False), (128, 512, False), (512, 512, True), (24, 512, False), (64, 64, True)])
def test_low_tiles_read_a_packed_b(m, n, turned):
    """Where registers hold 6 rows of one vector. Few rows or columns do not pay a packing, and neither do higher tiles."""
    p = matrices(m, 128, n, a_turned=turned)
    low, high = (plans.plan(plans.Facts(p, target)).name for target in TARGETS[:2])
    assert (low == "b packed") == (m > 28 and n > 64) and high != "b packed"


def test_a_constant_is_packed_once_where_more_than_one_tile_of_rows_reads_it():
    for m, name in ((50, "b packed"), (14, "own columns")):
        p = matrices(m, 300, 100)
        p = replace(p, b=replace(p.b, id=("const", 0)))
        assert plans.plan(plans.Facts(p, V4)).name == name


@pytest.mark.parametrize("m, vectors", [(1, (3, 3, 2)), (2, (2, 3, 1)), (4, (1, 3, 1)), (40, (1, 3, 1))])
def test_few_rows_by_a_constant_have_wide_tiles(m, vectors):
    """With x86-64-v3 a vector takes 2 registers, with x86-64-v4 one, with AArch64 4: sums of a narrow tile would wait for one another. 1000
    columns are 63 vectors, which three divide."""
    p = matrices(m, 300, 1000, b_turned=True, b=("const", 0))
    assert tuple(plans.Facts(p, target).vectors for target in TARGETS) == vectors
    p = matrices(1, 300, 1024, b_turned=True, b=("const", 0))
    assert tuple(plans.Facts(p, target).vectors for target in TARGETS) == (4, 4, 2)


@pytest.mark.parametrize("n", [10, 63, 100, 257])
def test_wide_tiles_of_few_rows_have_the_bits_of_a_sum_in_order(n):
    """Of 300 terms in chunks of 256, each an fma; columns that are no whole tile, or fewer than one."""
    rng = np.random.default_rng(n)
    x, w = rng.standard_normal((3, 300), np.float32), rng.standard_normal((n, 300), np.float32)
    layer = Linear(300, n, bias=False)
    layer.weight[:] = Tensor(w)
    run = trace(layer, capture_as_const=True)
    whole = F.matmul(Tensor(np.tile(x, (40, 1))), Tensor(np.ascontiguousarray(w.T))).numpy()  # by another plan
    for m in (1, 2, 3):
        assert run(Tensor(x[:m])).numpy().tobytes() == whole[:m].tobytes()


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("name", CASES)
def test_whatever_fits_has_a_schedule_and_a_cost(name, target):
    """Also where it does not pay: the table shows it. Rows that are packed have room in scratch memory."""
    p = CASES[name]
    for invariant in (False, True):
        f = plans.Facts(p, target, invariant, plans.in_waves(p, target))
        for x in plans.PLANS:
            if not x.fits(f):
                s = x.schedule(f)
                half = sized(p, s, target).half
                assert not too_large(s.rows, s.vectors, 4, target, half) and x.cost(f).multiply_adds > 0
                assert sized(p, s, target, f.waves).direct or x is not plans.plan(f) or not fits(p, s, target)


def test_costs_are_counted():
    """28 rows and 64 columns: whole tiles, all work of one piece for each of so many parts of the columns."""
    f = plans.Facts(matrices(28, 300, 64), V4)
    packs, own = plans.PackedB().cost(f), plans.OwnColumns().cost(f)
    assert packs.multiply_adds == own.multiply_adds == 28 * 300 * 64 // 16
    assert packs.copied == 300 * 64 and own.copied == 0  # rows of a and columns of b are read where they lie
    assert packs.moved == own.moved + 2 * 300 * 64 * 4  # b is read and written once more


@pytest.mark.parametrize("n, high, half", [(8, 14, True), (9, 6, False), (17, 4, True), (24, 4, True), (25, 6, False)])
def test_half_a_vector_of_columns_takes_half_of_the_multiply_adds(n, high, half):
    """Where it is whole registers: with x86-64-v3 and AArch64, whose tiles are a vector and a half for 17 to 24 columns."""
    p = matrices(840, 300, n, b_turned=True)
    for target, whole in zip(TARGETS, (False, True, False)):
        s, here = plans.rule(p, target), half and not whole
        assert (s.rows == high or whole) and sized(p, s, target).half == here and not fits(p, s, target), target.name
        assert plans.cost(plans.Facts(p, target), s).multiply_adds == 300 * 840 * (-(-n // 16) - here / 2)


@pytest.mark.parametrize("n, last", [(40, 8), (37, 8), (41, 0), (120, 8), (136, 0)])
def test_the_last_columns_of_several_panels_take_half_of_the_multiply_adds(n, last):
    """Where half a vector is whole registers, and a tile has rows enough; of at most eight panels."""
    p = matrices(840, 300, n, b_turned=True)
    for target in TARGETS:
        s, here = plans.rule(p, target), last if target is not V4 else 0
        t = sized(p, s, target)
        assert t.narrow in (here, 16) and (t.narrow == 8) == (here == 8) and not t.half, target.name
        assert plans.cost(plans.Facts(p, target), s).multiply_adds == 300 * 840 * (-(-n // 16) - (here == 8) / 2)
    assert [sized(p, Register(rows, 1, 1, 1, 1), TARGETS[0]).narrow for rows in (4, 5)] == [0, last]


def test_several_positions_are_in_a_loop_where_registers_are_few():
    """Four where 16 registers hold the sums of 6 rows by one vector, one where 32 hold those of 14 by two; not where columns are open, and
    not of halves."""
    rules = [plans.rule(matrices(840, 300, 64), target).unroll for target in TARGETS]
    assert rules == [4, 1, 2] and plans.rule(matrices(840, 300, 24), TARGETS[0]).unroll == 1
    assert plans.rule(matrices(840, 300, var("n")), TARGETS[0]).unroll == 1


def test_a_vector_and_a_half_needs_registers_for_two_rows():
    """Of float64 16 registers of 32 bytes have them for one, and 32 of 64 bytes for nine."""
    f = [plans.Facts(matrices(840, 300, 24, dtype=float64), target) for target in TARGETS[:2]]
    assert [(x.vectors, x.most) for x in f] == [(1, 2), (2, 9)]


@pytest.mark.parametrize("n, sums", [(8, 14), (24, 12), (40, 4 * (12 + 6))])
def test_sums_of_half_vectors_stay_in_registers(n, sums):
    """As many as registers hold beside the operands, for one position of k or for four; one in memory would wait for itself each time."""
    target, graph = TARGETS[0], graph_of(lambda x, w: F.matmul(x, w), *(Tensor(np.zeros(s, "f4")) for s in ((840, 96), (96, n))))
    text = assembly(compile_graph(graph, None, [], "product", target=target)[0].text, target).split("\nmatmul:")[1].split(".Lfunc_end")[0]
    assert len(re.findall(r"vfmadd\d+ps", text)) == sums and not re.findall(r"%ymm\d+, -?\d*\(%rsp\)", text)


def test_the_table_says_why():
    text = plans.table(CASES["own columns"], V4)
    lines = {line[2:20].strip(): line for line in text.split("\n")[1:]}
    assert set(lines) == set(CASES) and [x for x in lines if lines[x].startswith("*")] == ["own columns"]
    assert "50 rows use each column of b too seldom" in lines["b packed"] and "multiply-adds" in lines["b packed"]
    assert "does not fit: rows of a do not lie side by side" in lines["rows side by side"]


def test_debugging_prints_it():
    lo, shapes = Lowering(V4), {"a": (50, 300), "b": (300, 100), "c": (50, 100)}
    arrays = [array_of(np.ones(shape, "float32"), id)[0] for id, shape in shapes.items()]
    with config.scope(debug=3), contextlib.redirect_stdout(io.StringIO()) as printed:
        contract(lo, *arrays, 0, 1, 1, 1)
    assert "* own columns" in printed.getvalue()


@pytest.mark.parametrize("packed, parts", [(1, 2), (0, 4)])
def test_a_chunk_that_is_read_once_need_not_stay_in_l2(packed, parts):
    """49 rows in four tiles, 16 panels of which six take half of L2: pieces of one tile may have eight, if a launch packed them."""
    t = Tile(Register(13, 2, 1, 1, packed), 13, (), False, 2576)
    assert Sharing(49, 512, 1, 4608, t, 20, 1.5, 6).cheapest()[1] == parts
