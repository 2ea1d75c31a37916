"""Programs for the numbers of one call, which plans get whose calls have taken long."""

import numpy as np
import pytest

import tengen
import tengen.functional as F
from tengen import Tensor
from tengen.compiler import plans
from tengen.tensor import hide_plans, restore_plans


@pytest.fixture
def programs(monkeypatch):
    """The programs that are made, where the first call of a plan is long enough to make one; no plan is known."""
    made: dict = {}
    monkeypatch.setattr(plans, "HOT_AFTER_S", 0.0)
    monkeypatch.setattr(plans, "_programs", made)
    known = hide_plans()
    yield made
    restore_plans(known)


def special(programs):
    """Whether each program was made for numbers."""
    return [all(a is None or all(isinstance(d, int) for d in a[1]) for a in key[2]) for key in programs]


def noise(*shape):
    return Tensor(np.random.default_rng(sum(shape)).standard_normal(shape, np.float32))


@pytest.mark.parametrize(
    "call, shapes",
    [
        (F.matmul, [(19, 33), (33, 21)]),
        (lambda x: F.softmax(x, axis=1), [(7, 23)]),  # a composite
        (lambda x, w: F.conv2d(x, w, padding=1), [(2, 5, 11, 13), (6, 5, 3, 3)]),
        (lambda x: F.topk(x, 3)[0], [(5, 29)]),  # several results
        (lambda x: F.gelu(x.T).sum(0), [(31, 17)]),
    ],
)
def test_the_bits_stay(programs, call, shapes):
    xs = [noise(*s) for s in shapes]
    first = call(*xs)
    assert any(special(programs)) and not all(special(programs))
    known = len(programs)
    for _ in range(3):
        again = call(*xs)
        assert again._layout is first._layout and again.numpy().tobytes() == first.numpy().tobytes()
    assert len(programs) == known


@pytest.mark.parametrize("images", [1, 2])
def test_the_stride_of_an_axis_of_one_element_says_nothing(programs, monkeypatch, images):
    """A program that knows that steps are whole reads blocks, and its one image has another stride than the pattern's result."""
    made, specialise = [], plans.specialise_when_hot
    monkeypatch.setattr(plans, "specialise_when_hot", lambda plan, *more: made.append((plan.call, specialise(plan, *more))) or made[-1][1])
    x = Tensor(np.arange(images * 8 * 12 * 3, dtype="u1").reshape(images, 8, 12, 3))
    first = F.vision.resize(x, (4, 6), "NHWC")
    ((of_the_pattern, plan),) = made
    assert special(programs) == [False, True] and plan.layouts == (first._layout,)
    assert plan.call is not of_the_pattern
    assert F.vision.resize(x, (4, 6), "NHWC").numpy().tobytes() == first.numpy().tobytes()


def test_other_numbers_have_the_program_of_the_pattern(programs):
    F.matmul(noise(19, 33), noise(33, 21))
    assert special(programs) == [False, True]
    F.matmul(noise(20, 34), noise(34, 22))
    assert special(programs) == [False, True, True]


def test_a_short_time_makes_nothing(programs, monkeypatch):
    monkeypatch.setattr(plans, "HOT_AFTER_S", 1e9)
    for _ in range(100):
        F.matmul(noise(19, 33), noise(33, 21))
    assert special(programs) == [False]


def test_what_happens_elementwise_needs_no_numbers(programs):
    x = noise(9, 9)
    for _ in range(3):
        F.exp(x) + x.T
    assert len(programs) == 2


def test_a_profile_sees_the_program_that_runs(programs):
    x = noise(40, 48)
    want = F.matmul(x, x.T).numpy().tobytes()
    with tengen.profile() as p:
        assert F.matmul(x, x.T).numpy().tobytes() == want
    assert {r.program for r in p.rows} == {"matmul"}
    assert special(programs) == [False, True, True]  # the last is recorded


def test_gradients(programs):
    """The tape keeps results whatever program made them."""
    x, w = noise(12, 20), noise(20, 24)
    grad = tengen.autodiff.grad(lambda w: (F.softmax(x @ w, axis=1) ** 2).sum())
    first = grad(w).numpy().tobytes()
    assert grad(w).numpy().tobytes() == first and any(special(programs))


def test_one_that_fails_leaves_the_plan_as_it_was(monkeypatch):
    monkeypatch.setattr(plans, "HOT_AFTER_S", 0.0)

    def alone():
        raise MemoryError

    plan = plans.specialise_when_hot(plans.Plan(lambda: 1, ()), alone)
    with pytest.raises(MemoryError):
        plan.call()
    assert plan.call() == 1
