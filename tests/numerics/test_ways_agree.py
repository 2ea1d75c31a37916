"""The numerics contract: programs by chance give the same bits on every way of running them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from exhaustive import but
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from needs import on_targets
from programs import Chance, draw
from ways import Lowered, agree, eager, threads, traced

from tengen import Tensor, load_graph
from tengen.base.dtype import dtype
from tengen.codegen.targets import Target
from tengen.ops.define import REGISTRY

CALM = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}
seeds = st.integers(0, 1 << 20)


def program(seed: int, most: int = 7) -> Chance:
    return draw(random.Random(seed), most)


@settings(max_examples=25, **CALM)
@given(seeds)
def test_eager_traced_interpreted(seed):
    p = program(seed, 5)
    p.inputs = [a[:2] if i < p.batched else a for i, a in enumerate(p.inputs)]
    t, out = traced(p.call, p.inputs)
    want = eager(p.call, p.inputs)
    agree(f"traced {p}", out, want)
    agree(f"interpreted {p}", Lowered(t.graph, p.inputs).interpret(), want)
    agree(f"interpreted from the last piece {p}", Lowered(t.graph, p.inputs).interpret(backwards=True), want)


@settings(max_examples=25, **CALM)
@given(seeds)
def test_threads(seed):
    p = program(seed)
    t, want = traced(p.call, p.inputs)
    for n in (1, 2, 3, 8):
        with threads(n):
            agree(f"{n} threads, eager {p}", eager(p.call, p.inputs), want)
            agree(f"{n} threads, traced {p}", [np.array(o.numpy()) for o in t(*map(Tensor, p.inputs))], want)


@settings(max_examples=25, **CALM)
@given(seeds)
def test_batch_split(seed):
    p = program(seed)
    want = eager(p.call, p.inputs)
    n = len(p.inputs[0])
    cut = random.Random(seed).randrange(n + 1)
    for begin, end in {(i, i + 1) for i in range(n)} | {(0, cut), (cut, n)}:
        if begin < end:
            part = [a[begin:end] if i < p.batched else a for i, a in enumerate(p.inputs)]
            agree(f"rows {begin}:{end} of {p}", eager(p.call, part), [w[begin:end] for w in want])


@but(every=2)
@pytest.mark.parametrize("name", on_targets())
@settings(max_examples=15, **CALM)
@given(seed=seeds)
def test_instruction_sets(seed, name):
    p = program(seed)
    t, want = traced(p.call, p.inputs)
    agree(f"{name} {p}", Lowered(t.graph, p.inputs, Target.named(name)).compiled(), want)


@settings(max_examples=10, **CALM)
@given(seeds)
def test_reloaded(tmp_path_factory, seed):
    p = program(seed)
    t, want = traced(p.call, p.inputs)
    path = tmp_path_factory.mktemp("dumped") / "model.tengen"
    t.dump(path)
    out = load_graph(path)(*map(Tensor, p.inputs))
    out = out if isinstance(out, (tuple, list)) else (out,)
    agree(f"reloaded {p}", [np.array(o.numpy()) for o in out], want)


def layouts(a: np.ndarray, rng: random.Random) -> Tensor:
    """A tensor with these values that lies in memory in some other way."""
    way = rng.choice(["permuted", "strided", "reversed", "offset"]) if a.ndim else "offset"
    lead = [0] * (a.ndim - 1)

    def cut(x: np.ndarray, start: int, step: int) -> Tensor:
        starts, steps = (*lead, start), (*(1 for _ in lead), step)
        return REGISTRY["strided_slice"].call(Tensor(x), starts=starts, sizes=a.shape, steps=steps)

    if way == "permuted":  # channels-last is one of them
        axes = list(range(a.ndim))
        rng.shuffle(axes)
        return REGISTRY["permute"].call(Tensor(np.ascontiguousarray(a.transpose(axes))), axes=np.argsort(axes).tolist())
    if way == "strided":
        wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1] + 1), a.dtype)
        wide[..., 1::2] = a
        return cut(wide, 1, 2)
    if way == "reversed":
        return cut(np.ascontiguousarray(a[..., ::-1]), a.shape[-1] - 1, -1)
    k = rng.randint(1, 15)
    flat = np.zeros(a.size + k, a.dtype)
    flat[k:] = a.reshape(-1)
    part = REGISTRY["strided_slice"].call(Tensor(flat), starts=(k,), sizes=(a.size,), steps=(1,))
    return REGISTRY["reshape"].call(part, shape=a.shape)  # starts off every alignment


@settings(max_examples=25, **CALM)
@given(seeds)
def test_layout_and_alignment(seed):
    p = program(seed)
    rng = random.Random(seed + 1)
    want = eager(p.call, p.inputs)
    odd = [layouts(a, rng) for a in p.inputs]
    for t, a in zip(odd, p.inputs):
        assert t.shape == a.shape and t.dtype is dtype(a.dtype)
        agree("the same values", [np.array(t.numpy())], [a])
    agree(f"laid out as {[t.strides for t in odd]}: {p}", [np.array(o.numpy()) for o in p.call(*odd)], want)


def test_the_sign_of_a_zero_attribute():
    """-0.0 equals 0.0, yet a call with the one does not find the program of the other."""
    x = np.array([-1.0, 2.0], np.float32)
    for name, key, attrs in (("pad", "constant_value", {"pad_width": ((1, 1),)}), ("leaky_relu", "negative_slope", {})):
        for value in (0.0, -0.0, 0.0):
            f = lambda t, value=value, name=name, key=key, attrs=attrs: REGISTRY[name].call(t, **attrs, **{key: value})
            agree(f"{name} with {value}", eager(f, [x]), traced(f, [x])[1])
    signs = [np.signbit(eager(lambda t, v=v: REGISTRY["pad"].call(t, ((1, 0),), constant_value=v), [x])[0][0]) for v in (0.0, -0.0)]
    assert signs == [False, True]
