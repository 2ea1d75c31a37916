"""Products of bytes in pairs of weights that fit in int16 (`matching.py`): the pairs, what does not fit, and exact sums of anything."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from launching import array_of, run
from machine import Compiled
from test_contraction import HOST, V3, image_windows

from tengen.base.dtype import dtype, int32
from tengen.codegen.targets import Target
from tengen.kernels.contraction import plans, problem
from tengen.kernels.contraction.contract import contract
from tengen.kernels.contraction.formats import MATCHED, dot_format
from tengen.kernels.contraction.matching import GREATEST_PAIR, MOST_BLOCKS, Turns
from tengen.kernels.contraction.problem import normalise
from tengen.kernels.lowering import Lowering
from tengen.kernels.steps import written
from tengen.loops.lang import as_int
from tengen.loops.text import print_kernel
from tengen.passes.hoist import hoist

HERE = not V3.why_not_here()
LIMITS = sys.modules[contract.__module__]


@pytest.fixture(autouse=True)
def short_sums(monkeypatch):
    """Also short sums are matched, and panels of two vectors where they are not very short."""
    monkeypatch.setattr(LIMITS, "LEAST_MATCHED_TERMS", 16)
    monkeypatch.setattr(plans, "WIDE_MATCHED_TERMS", 48)


def drawn(shape, dtype: str, seed: int = 0, scale: float | None = None):
    """Integers of a dtype: all alike, or normally distributed with the largest magnitude at the end of the range, by column."""
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    if scale is None:
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    x = rng.normal(size=shape)
    return np.rint(np.clip(x / np.abs(x).max(0) * scale, info.min, info.max)).astype(dtype)


def product(a, b, axes=(0, 1, 1, 1), target=V3, native=HERE, constant=True, format=None):
    """(the product in int32, names of the kernels, the temporaries' memory where it is interpreted)."""
    shape = (*a.shape[: axes[0] + axes[1]], *b.shape[axes[0] + axes[2] :])
    lo, memory, arrays = Lowering(target), {}, []
    for x, id in ((a, "a"), (b, ("const", "b") if constant else "b"), (np.full(shape, 7, "int32"), "out")):
        array, memory[id] = array_of(x, id)
        arrays.append(array)
    contract(lo, *arrays, *axes, format=format or dot_format(dtype(a.dtype), "int32", dtype(b.dtype), target))
    if native:
        Compiled(lo, memory, ["out"])()
    else:
        run(lo, memory)
    return memory["out"].reshape(shape), lo


def wanted(a, b):
    return (a.astype("int64") @ b.astype("int64")).astype("int32")


def matched(b, k, columns, before=77):
    """(weights of the packed groups, turns) of the one panel of a constant b of so many rows, one chunk, as the interpreter makes them in
    memory that held a number before."""
    lo, memory, arrays = Lowering(V3), {}, []
    for x, id in ((np.zeros((1, k), "uint8"), "a"), (b, ("const", "b")), (np.zeros((1, columns), "int32"), "out")):
        array, memory[id] = array_of(x, id)
        arrays.append(array)
    contract(lo, *arrays, 0, 1, 1, 1, format=dot_format(dtype("uint8"), "int32", dtype("int8"), V3))
    (launch,) = [x for x in lo.launches if x.kernel.name.endswith("_match")]
    made = {id: np.full(as_int(lo.temps[id][1]), before, lo.temps.pop(id)[0].numpy) for id in sorted(written(launch))}
    lo.steps = lo.steps[:-1]
    run(lo, memory | made)
    packed, turns = (next(x for x in made.values() if x.dtype == d) for d in ("uint32", "uint8"))
    t = Turns(normalise(*arrays, 0, 1, 1, 1, None, None, "x", format=MATCHED))
    wide = 32 if columns > 16 and k >= 48 else 16
    return packed.reshape(-1, wide).view("int8").reshape(-1, wide, 4), turns, t


@pytest.mark.parametrize("weights", ["normal", "uniform", "largest", "negative", "least", "both", "few"])
@pytest.mark.parametrize("k, columns", [(48, 16), (60, 5), (16, 1), (64, 30)])
def test_every_pair_fits_and_every_position_is_there(weights, k, columns):
    b = {
        "normal": lambda: drawn((k, columns), "int8", 1, 127.0), "uniform": lambda: drawn((k, columns), "int8", 1),
        "largest": lambda: np.full((k, columns), 127, "int8"), "negative": lambda: np.full((k, columns), -127, "int8"),
        "least": lambda: np.full((k, columns), -128, "int8"), "both": lambda: np.where(drawn((k, columns), "int8") < 0, -128, 127),
        "few": lambda: np.where(np.arange(k)[:, None] % 16 < 2, 127, 1) * np.ones((1, columns), "int8"),
    }[weights]().astype("int8")  # fmt: skip
    groups, turns, t = matched(b, k, columns)
    blocks, padded = -(-k // 16), np.zeros((-(-k // 16) * 16, groups.shape[1]), "int64")
    padded[:k, :columns] = b
    moves = int(turns[t.count])
    orders = turns[: blocks * 16].reshape(blocks, 16)
    assert all(sorted(order) == list(range(16)) for order in orders)
    terms = [(16 * i + p, groups[4 * i + at // 4, :, at % 4]) for i, order in enumerate(orders) for at, p in enumerate(order)]
    at = 4 * blocks
    for i in range(moves):
        block, some = int(turns[t.block_of + i]), int(turns[t.groups_of + i])
        order = turns[t.excess + 16 * i :][: 4 * some]
        for place, p in enumerate(order):
            w = groups[at + place // 4, :, place % 4]
            assert p < 16 or not w.any()
            terms.append((16 * block + p % 16, w))
        at += some
    depth = at
    assert depth <= 8 * blocks
    total = np.zeros_like(padded)
    for position, w in terms:
        total[position] += w
    assert np.array_equal(total, padded)  # each weight once, or in parts
    pairs = groups[:depth].reshape(depth, -1, 2, 2).astype("int64")
    assert np.maximum(pairs, 0).sum(-1).max() <= GREATEST_PAIR and np.minimum(pairs, 0).sum(-1).min() >= -GREATEST_PAIR
    if weights == "few" and k % 16 == 0:
        assert moves == 0  # a large one with a small one each
    if weights in ("largest", "negative", "least"):
        assert depth > 7 * k // 4 // 4  # none fit


@pytest.mark.parametrize("sign", ["uint8", "int8"])
@pytest.mark.parametrize("m, k, n", [(1, 16, 1), (1, 48, 16), (7, 144, 33), (13, 62, 20), (6, 160, 16), (50, 29, 48)])
def test_products_are_exact(m, k, n, sign, monkeypatch):
    """Also of chunks, whose last block is not whole, and of the ends of both ranges."""
    for most in (2560, 64):
        monkeypatch.setattr(problem, "EXACT_TERMS", {2: 768, 4: most})
        for a, b in (
            (drawn((m, k), sign), drawn((k, n), "int8", 1)), (drawn((m, k), sign), drawn((k, n), "int8", 1, 127.0)),
            *((np.full((m, k), x, sign), np.full((k, n), w, "int8")) for x in (np.iinfo(sign).max, np.iinfo(sign).min) for w in (127, -128)),
        ):  # fmt: skip
            got, lo = product(a, b)
            assert np.array_equal(got, wanted(a, b))
            assert np.array_equal(product(a, b, constant=False)[0], got)  # by pairs of int16
            assert any(x.kernel.name.endswith("_match") for x in lo.launches)


@pytest.mark.parametrize("sign", ["uint8", "int8"])
def test_the_interpreter_says_the_same(sign, monkeypatch):
    monkeypatch.setattr(problem, "EXACT_TERMS", {2: 768, 4: 32})
    for m, k, n in ((3, 40, 17), (8, 32, 16), (1, 60, 3)):
        a, b = drawn((m, k), sign), drawn((k, n), "int8", 1)
        assert np.array_equal(product(a, b, native=False)[0], wanted(a, b))


def test_packing_is_a_set_up_whose_bytes_depend_on_the_weights_alone():
    for k, columns in ((48, 20), (60, 5)):
        b = drawn((k, columns), "int8", 1, 127.0)
        one, other = (matched(b, k, columns, before)[:2] for before in (77, 3))
        assert all(np.array_equal(x, y) for x, y in zip(one, other))
    lo = product(drawn((7, 160), "uint8"), drawn((160, 40), "int8"))[1]
    setup, prepared = hoist(lo, {("const", "b"): 160 * 40})
    assert [x.kernel.name for x in setup.launches] == ["contract_pack", "contract_match"] and len(prepared) == 2
    assert [x.kernel.name for x in lo.launches] == ["contract"]


def test_layouts():
    """Windows, weights dense along either side and with strides, results and rows that do not lie densely."""
    for a, b in (
        (drawn((9, 96), "uint8")[:, ::2], drawn((48, 20), "int8")), (drawn((18, 48), "uint8")[::2], drawn((20, 48), "int8").T),
        (drawn((9, 48), "uint8"), drawn((96, 40), "int8")[::2, ::2]), (drawn((9, 50), "uint8")[:, 1:49], drawn((48, 20), "int8")[::-1]),
    ):  # fmt: skip
        assert np.array_equal(product(a, b)[0], wanted(a, b))
    windows = image_windows(drawn((1, 7, 9, 32), "uint8"), (3, 3), 1, 1)
    filters = drawn((24, 32, 3, 3), "int8").transpose(2, 3, 1, 0)
    want = np.einsum("nhwijc,ijco->nhwo", windows.astype("int64"), filters.astype("int64"))
    assert np.array_equal(product(windows, filters, (0, 3, 3, 1))[0], want)
    a, b = drawn((3, 5, 32), "uint8"), drawn((3, 32, 20), "int8")
    assert np.array_equal(product(a, b, (1, 1, 1, 1))[0], wanted(a, b))


def test_which_products_are_matched(monkeypatch):
    """Those of bytes by constants, whose blocks are filled, where AVX2 is all that there is; rows lie along the sum, which is not short."""
    monkeypatch.undo()
    a, b = np.zeros((4, 160), "uint8"), np.zeros((160, 16), "int8")

    def is_matched(a, b, target=V3, constant=True):
        lo = Lowering(target)
        arrays = [
            array_of(x, id)[0]
            for x, id in ((a, "a"), (b, ("const", "b") if constant else "b"), (np.zeros((len(a), b.shape[1]), "int32"), "o"))
        ]
        contract(lo, *arrays, 0, 1, 1, 1, format=dot_format(dtype(a.dtype), "int32", dtype(b.dtype), target))
        return "dot4s(" in print_kernel(lo.launches[-1].kernel)

    assert is_matched(a, b) and is_matched(a.astype("int8"), b)
    assert not is_matched(a, b, constant=False)
    assert not is_matched(np.asfortranarray(a), b)
    assert not is_matched(a[:, :127], b[:127]) and is_matched(a[:, :129], b[:129])
    monkeypatch.setattr(LIMITS, "LEAST_MATCHED_TERMS", 16)
    assert not is_matched(a[:, :24], b[:24]) and is_matched(a[:, :30], b[:30])
    assert not is_matched(a.astype("int16"), b)
    for name in ("x86-64-v4", "x86-64", "aarch64", "wasm32"):
        assert not is_matched(a, b, Target.named(name))
    assert dot_format(dtype("uint8"), "int32", dtype("int8"), V3).total is int32 and (
        HOST.arch != "x86_64" or V3.computes("swizzle")
    )


def test_long_sums_of_weights_that_do_not_fit():
    """Sums of several chunks, each of which has excess in every block; the numbers of its blocks are bytes."""
    assert problem.EXACT_TERMS[4] <= MOST_BLOCKS * 16
    a, b = drawn((3, 5200), "uint8", 1), drawn((5200, 17), "int8", 2)
    got, lo = product(a, b)
    assert np.array_equal(got, wanted(a, b)) and any(x.kernel.name.endswith("_match") for x in lo.launches)
