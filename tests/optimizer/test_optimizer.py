"""Optimizers against their formulas in NumPy's float64, schedules, clipping, states."""

import copy
import pickle

import numpy as np
import pytest

from tengen import Parameter, Tensor, amp, trace
from tengen import optimizer as optim
from tengen.autodiff import GradManager
from tengen.base.errors import TraceError
from tengen.module import Linear


def sgd(p, grads, lr, momentum=0.0, nesterov=False, weight_decay=0.0):
    v = np.zeros_like(p)
    for g in grads:
        g = g + weight_decay * p
        v = momentum * v + g
        p = p - lr * (g + momentum * v if nesterov else v)
    return p


def adam(p, grads, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled=False):
    m = v = np.zeros_like(p)
    for t, g in enumerate(grads, 1):
        g = g if decoupled else g + weight_decay * p
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
        step = m / (1 - betas[0] ** t) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
        p = p - lr * (step + (weight_decay * p if decoupled else 0))
    return p


CASES = [
    (optim.SGD, sgd, {"lr": 0.1}), (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9, "nesterov": True}), (optim.Adam, adam, {"lr": 0.01}),
    (optim.Adam, adam, {"lr": 0.01, "betas": (0.8, 0.9), "weight_decay": 0.1, "eps": 1e-4}),
    (optim.AdamW, lambda p, g, **k: adam(p, g, decoupled=True, **k), {"lr": 0.01, "weight_decay": 0.1}),
]  # fmt: skip


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("make, formula, options", CASES)
def test_ten_steps(make, formula, options, traced):
    r = np.random.default_rng(0)
    start, grads = r.normal(size=(3, 5)), [r.normal(size=(3, 5)) for _ in range(10)]
    p = Parameter(start.astype(np.float32))
    opt = make([p], **options)
    step = trace(opt.step) if traced else opt.step
    for g in grads:
        p.grad = Tensor(g.astype(np.float32))
        step()
    # Ten steps with some four roundings each, of numbers that are no larger than the largest parameter, gradient or momentum (9).
    np.testing.assert_allclose(p.numpy(), formula(start, grads, **options), rtol=0, atol=10 * 4 * 2.0**-24)
    opt.clear_grad()
    assert p.grad is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_first_steps_of_adam_are_exact_to_a_few_roundings(amsgrad, dtype):
    """1 - beta^n of the first steps is a small difference of numbers near 1: rounded before it is taken, it would be off by thousands of
    roundings where beta is close to 1."""
    beta, grads = 0.99999, (3.0, -2.0, 0.5)
    p = Parameter(np.zeros(3, dtype))
    opt = optim.Adam([p], lr=1.0, betas=(0.9, beta), eps=0.0, amsgrad=amsgrad)
    want, m, v = 0.0, 0.0, 0.0
    for n, g in enumerate(grads, 1):
        p.grad = Tensor(np.full(3, g, dtype))
        opt.step()
        m, v = 0.9 * m + (1 - 0.9) * g, beta * v + (1 - beta) * g * g
        want -= m / -np.expm1(n * np.log(0.9)) / np.sqrt(v / -np.expm1(n * np.log(beta)))  # v grows: amsgrad's largest is v
        np.testing.assert_allclose(p.numpy(), want, rtol=20 * float(np.finfo(dtype).eps))


def test_states_and_resuming():
    r = np.random.default_rng(0)
    grads = [Tensor(r.normal(size=4).astype(np.float32)) for _ in range(6)]
    for make in (lambda p: optim.Adam(p, lr=0.1), lambda p: optim.SGD(p, lr=0.1, momentum=0.9)):
        a, b = Parameter(np.ones(4, np.float32)), Parameter(np.ones(4, np.float32))
        one, two = make([a]), make([b])
        for g in grads[:3]:
            a.grad = g
            one.step()
        saved = one.state_dict()
        values = {k: v.copy() for k, v in saved["state"][0].items()}
        b._reset(a.detach())
        two.load_state_dict(saved)
        for g in grads[3:]:
            a.grad = b.grad = g
            one.step()
            two.step()
        assert a.tolist() == b.tolist()
        assert all((saved["state"][0][k] == v).all() for k, v in values.items()), "a saved state does not change"
    assert set(optim.Adam([a], lr=1.0).state_dict()["state"][0]) == {"exp_avg", "exp_avg_sq", "step"}
    assert set(optim.SGD([a], lr=1.0, momentum=0.5).state_dict()["state"][0]) == {"momentum_buffer"}
    with pytest.raises(ValueError, match="does not fit"):
        optim.SGD([a], lr=1.0, momentum=0.5).load_state_dict(optim.Adam([a], lr=1.0).state_dict())


def test_states_of_parameters_that_had_no_update():
    """PyTorch's state dicts have none: such a parameter begins anew, whatever it had."""
    for make, kinds in ((lambda p: optim.Adam(p, lr=0.1), {"exp_avg", "exp_avg_sq", "step"}), (lambda p: optim.SGD(p, lr=0.1), set())):
        (a, b), (c, d) = pair, fresh = [[Parameter(np.ones(3, np.float32)) for _ in range(2)] for _ in range(2)]
        one, two = make(pair), make(fresh)
        for p in pair:
            p.grad = Tensor([1.0, -2.0, 3.0])
        one.step()
        saved = one.state_dict()
        assert set(saved["state"].pop(0)) == kinds
        one.load_state_dict({**saved, "state": {str(k): v for k, v in saved["state"].items()}})
        a._reset(c.detach())
        a.grad = c.grad = Tensor([0.5, 4.0, -1.0])
        one.step(), two.step()
        assert a.tolist() == c.tolist() and b.tolist() != d.tolist()
        if kinds:
            assert one.state_dict()["state"][0]["step"] == 1 and one.state_dict()["state"][1]["step"] == 2


def test_groups_and_errors():
    a, b, c = (Parameter([1.0]) for _ in range(3))
    opt = optim.SGD([{"params": [a], "lr": 1.0}, {"params": b}], lr=0.1)
    for p in (a, b, c):
        p.grad = Tensor([1.0])
    assert opt.step() is opt
    np.testing.assert_allclose([a.item(), b.item(), c.item()], [0, 0.9, 1], rtol=1e-6)
    for call, error, message in [
        (lambda: optim.SGD([], lr=1.0), ValueError, "no parameters"), (lambda: optim.SGD([Tensor([1.0])], lr=1.0), TypeError, "Parameters"),
        (lambda: opt.add_param_group({"params": [a]}), ValueError, "two groups"), (lambda: optim.SGD([a], lr=-1.0), ValueError, "negative"),
        (lambda: optim.SGD([a], lr=1.0, nesterov=True), ValueError, "nesterov needs a momentum"),
        (lambda: optim.Adam([a], lr=1.0, betas=(1.0, 0.9)), ValueError, "out of range"),
        (lambda: optim.SGD([("b", b), b], lr=1.0), ValueError, "with names and without"),
        (lambda: optim.SGD([b, b], lr=1.0), ValueError, "given twice"), (lambda: optim.SGD([b], lr="1"), ValueError, "lr='1' must be a finite"),
        (lambda: optim.AdamW([b], lr=float("nan")), ValueError, "lr=nan must be a finite"),
        (lambda: optim.SGD([{"params": [b], "weight_decay": -1}], lr=1.0), ValueError, "weight_decay=-1"),
        (lambda: optim.CosineAnnealingLR(optim.SGD([b], lr=1.0), 0), ValueError, "epochs=0"),
        (lambda: optim.SGD([a], lr=1.0).backward(a), RuntimeError, "zero_grad"),
    ]:  # fmt: skip
        with pytest.raises(error, match=message):
            call()


def test_schedules():
    opt = optim.SGD([{"params": [Parameter([1.0])]}, {"params": [Parameter([1.0])], "lr": 10.0}], lr=1.0)
    schedule = optim.MultiStepLR(opt, [2, 4], gamma=0.1)
    seen = []
    for _ in range(6):
        seen.append([g["lr"] for g in opt.param_groups])
        schedule.step()
    np.testing.assert_allclose(seen, [[x, 10 * x] for x in (1, 1, 0.1, 0.1, 0.01, 0.01)])
    opt = optim.SGD([Parameter([1.0])], lr=1.0)
    cosine, seen = optim.CosineAnnealingLR(opt, 10, min_lr=0.2), []
    for _ in range(12):
        seen.append(opt.param_groups[0]["lr"])
        cosine.step()
    np.testing.assert_allclose(seen, [0.2 + 0.4 * (1 + np.cos(np.pi * min(i, 10) / 10)) for i in range(12)])
    other = optim.CosineAnnealingLR(optim.SGD([Parameter([1.0])], lr=1.0), 10)
    other.load_state_dict(cosine.state_dict())
    assert other.current_epoch == 12 and other.min_lr == 0.2
    with pytest.raises(ValueError, match="ascend"):
        optim.MultiStepLR(opt, [4, 2])


@pytest.mark.parametrize("ord, norm", [(2.0, np.sqrt(9 + 16 + 144)), (1.0, 19.0), (float("inf"), 12.0)])
def test_clipping_by_norm(ord, norm):
    for limit in (1.0, 100.0):
        a, b, c = Parameter([0.0, 0.0]), Parameter([0.0]), Parameter([0.0])
        a.grad, b.grad = Tensor([3.0, -4.0]), Tensor([12.0])
        total = optim.clip_grad_norm([a, b, c], limit, ord)
        np.testing.assert_allclose(total.item(), norm, rtol=1e-6)
        scale = min(1.0, limit / norm)
        np.testing.assert_allclose([*a.grad.tolist(), b.grad.item()], [3 * scale, -4 * scale, 12 * scale], rtol=1e-5)
        assert c.grad is None


def test_clipping_by_value():
    a = Parameter([0.0, 0.0, 0.0])
    a.grad = Tensor([-5.0, 0.5, 5.0])
    optim.clip_grad_value(a, -1.0, 2.0)
    assert a.grad.tolist() == [-1, 0.5, 2]
    assert optim.clip_grad_norm([Parameter([1.0])], 1.0).item() == 0


# ---- in place ------------------------------------------------------------------------------------------------------------------


def address(t):
    return t.numpy().ctypes.data


@pytest.mark.parametrize("make", [
    lambda ps: optim.SGD(ps, lr=0.1), lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    lambda ps: optim.AdamW(ps, lr=0.1),
])  # fmt: skip
@pytest.mark.parametrize("shape", [(), (1,), (17,), (5, 33), (0, 3)])
def test_steps_write_in_place_with_the_bits_of_steps_that_do_not(make, shape):
    rng = np.random.default_rng(0)
    start, grads = rng.standard_normal(shape).astype("f4"), rng.standard_normal((4, *shape)).astype("f4")
    found = []
    for seen in (False, True):
        p = Parameter(start)
        opt, places, views = make([p]), set(), []
        for g in grads:
            p.grad = Tensor(g)
            views += [p.detach()] if seen else []  # whoever sees the memory keeps the values of before
            before = p.numpy().copy()
            opt.step()
            assert not seen or views[-1].numpy().tobytes() == before.tobytes()
            places.add(address(p))
        found.append([p.numpy().tobytes(), *(t.numpy().tobytes() for _, t in opt.named_states({}))])
        assert seen or not p.size or len(places) == 1
    assert found[0] == found[1]


def test_a_step_in_place_leaves_arrays_and_other_types_alone():
    a = np.ones(40, "f4")
    p = Parameter(np.ones((4, 5)))  # float64, with a learning rate in float32
    p.grad = Tensor(np.ones((4, 5)))
    array = p.numpy()
    optim.SGD([p], lr=0.5).step()
    assert p.dtype == np.float64 and (array == 1).all() and (p.numpy() == 0.5).all()
    q = Parameter(a)
    q._reset(Tensor(a.reshape(8, 5)).T)  # not dense in logical order
    q.grad = Tensor(np.full((5, 8), 2, "f4"))
    optim.SGD([q], lr=0.25, momentum=0.9).step()
    assert (q.numpy() == 0.5).all() and (a == 1).all()


@pytest.mark.parametrize("traced", [False, True])
def test_a_momentum_that_was_0_at_first(traced):
    """v = 0.5 v + g from then on, with a velocity that begins at 0; it had been left out."""
    p = Parameter(np.ones(3, np.float32))
    opt, gm, x = optim.SGD([p], lr=0.125), GradManager().attach(p), np.array([1, 2, 4], np.float32)

    def step(x):
        with gm:
            gm.backward((p * x).sum())
        opt.step().clear_grad()

    step(Tensor(x))
    opt.param_groups[0]["momentum"] = 0.5
    later = trace(step) if traced else step
    for _ in range(3):
        later(Tensor(x))
    v, want = np.zeros(3), 1 - 0.125 * x.astype(np.float64)
    for _ in range(3):
        v = 0.5 * v + x
        want = want - 0.125 * v
    assert np.allclose(p.numpy(), want, rtol=1e-6)


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("make", [
    lambda p: optim.SGD(p, lr=0.125), lambda p: optim.SGD(p, lr=0.125, momentum=0.5, weight_decay=0.25),
    lambda p: optim.SGD(p, lr=0.125, momentum=0.5, nesterov=True), lambda p: optim.Adam(p, lr=0.125, eps=1e-2),
    lambda p: optim.AdamW(p, lr=0.125, eps=1e-2),
])  # fmt: skip
def test_half_precision_keeps_its_dtype(make, dtype, traced):
    """A learning rate is float32; parameters and state stay what they are, within the roundings of three steps."""
    found = []
    for kind in (dtype, "float32"):
        p = Parameter(Tensor([1.0, -2.0, 0.5], dtype=kind))
        opt = make([p])
        step = trace(lambda opt=opt: opt.step()) if traced else opt.step
        for g in ([1.0, 0.5, -0.25], [0.5, -1.0, 2.0], [0.25, 0.25, 0.25]):
            p.grad = Tensor(g, dtype=kind)
            step()
        assert p.dtype == kind and {t.dtype.name for name, t in opt.named_states({}) if "step" not in name and name != "lr"} <= {kind}
        found.append(p.astype("float32").numpy())
    np.testing.assert_allclose(*found, rtol=0, atol=12 * (2.0**-10 if dtype == "float16" else 2.0**-7))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_a_copy_of_a_network_and_its_optimizer_goes_on_alike(copied):
    net = Linear(3, 2)
    opt = optim.Adam(net.parameters(), lr=0.1)

    def step(net, opt):
        gm = GradManager().attach(net.parameters())
        with gm:
            gm.backward((net(Tensor(np.ones((4, 3), "float32"))) ** 2).sum())
        opt.step().clear_grad()
        return net.weight.numpy().tobytes()

    step(net, opt)
    other = copied((net, opt))
    first = step(net, opt)
    assert step(*other) == first and step(net, opt) != first


def quadratic_steps(make, dtype, n=5, **options):
    """The parameter after some steps down a quadratic, and the optimizer."""
    p = Parameter(np.array([1.0, -2.0, 0.5], dtype))
    opt = make([p], **options)
    for _ in range(n):
        p.grad = p.detach() * 3.0
        opt.step()
    return p, opt


@pytest.mark.parametrize("make, formula, options", CASES)
def test_parameters_of_float64_step_with_a_rate_of_float64(make, formula, options):
    p, opt = quadratic_steps(make, "float64", 1, **options)
    np.testing.assert_allclose(p.numpy(), formula(np.array([1.0, -2.0, 0.5]), [np.array([3.0, -6.0, 1.5])], **options), rtol=4e-16)
    assert opt.param_groups[0].lr.dtype == "float64" and quadratic_steps(make, "float32", 0, **options)[1].param_groups[0].lr.dtype == "float32"


def test_a_group_of_both_dtypes_and_a_parameter_that_becomes_float64():
    both = [Parameter(np.ones(2, d)) for d in ("float32", "float64")]
    opt = optim.SGD(both, lr=0.1)
    for p in both:
        p.grad = Tensor(np.ones(2, p.dtype.numpy))
    trace(opt.step)()
    assert both[0].numpy().tobytes() == (np.ones(2, "f4") - np.float32(0.1)).tobytes() and both[1].tolist() == [0.9, 0.9]
    net = Linear(2, 1)
    opt = optim.SGD(net.named_parameters(), lr=0.1)
    net.to("float64")
    net.weight.grad = net.weight.detach() * 0 + 1.0
    want = net.weight.numpy() - 0.1
    opt.step()
    assert net.weight.dtype == "float64" and net.weight.numpy().tobytes() == want.tobytes()


@pytest.mark.parametrize("make", [optim.SGD, optim.Adam, optim.Adagrad, optim.RMSprop, optim.LAMB])
@pytest.mark.parametrize("traced", [False, True])
def test_a_tensor_as_the_rate(make, traced):
    """It gives what the number gives, each step reads it, a schedule writes it, and a number takes its place."""
    found = []
    for rate in (0.25, Tensor(0.25)):
        p = Parameter(np.array([1.0, -2.0], "f4"))
        opt = make([p], lr=rate)
        step = trace(opt.step) if traced else opt.step
        schedule = optim.StepLR(opt, 1, gamma=0.5) if hasattr(optim, "StepLR") else optim.MultiStepLR(opt, [1], 0.5)
        for _ in range(2):
            p.grad = p.detach() * 2.0
            step()
            schedule.step()
        found.append(p.numpy().copy())
        if isinstance(rate, Tensor):
            assert rate.item() == opt.param_groups[0]["lr"].item() == schedule.get_last_lr()[0] < 0.25
            rate.fill_(0.0)
            p.grad = p.detach() * 2.0
            before = p.numpy().copy()
            step()
            assert p.numpy().tobytes() == before.tobytes() and opt.state_dict()["param_groups"][0]["lr"] == 0.0
            opt.param_groups[0]["lr"] = 0.5
            p.grad = p.detach() * 2.0
            step()
            assert p.numpy().tobytes() != before.tobytes() and rate.item() == 0.0
    assert found[0].tobytes() == found[1].tobytes()
    with pytest.raises(ValueError, match="lr=.* must be a finite number"):
        make([p], lr=Tensor([0.1, 0.2]))


@pytest.mark.parametrize("make", [lambda p: optim.Adam(p, lr=0.1), lambda p: optim.SGD(p, lr=0.1, momentum=0.9)])
@pytest.mark.parametrize("moved", [True, False])
def test_a_parameter_that_takes_the_place_of_another(make, moved):
    """Some rows of a parameter, as a parameter of its own: with its rows of the states, which a program moves, or with new ones."""
    start, rows = np.float32([[1, 2], [3, 4], [5, 6]]), np.array([True, False, True])

    def step(opt, p):
        with GradManager().attach([p]) as gm:
            gm.backward((p * p * 0.5).sum())
        opt.step().clear_grad()

    p = Parameter(start)
    opt = make([p])
    step(opt, p)
    kept = Parameter(p.numpy()[rows])
    group = opt.param_groups[0]
    states = opt.state.get(group["params"][0])
    if moved:
        for name, t in states.items():
            if t.shape:
                states[name] = Tensor(t.numpy()[rows])
        opt.state[kept] = states
    del opt.state[p]
    group["params"][0] = kept
    step(opt, kept)
    other = Parameter(start[rows] if moved else kept.numpy() * 0 + p.numpy()[rows])
    alone = make([other])
    for _ in range(1 + moved):
        step(alone, other)
    assert kept.numpy().tobytes() == other.numpy().tobytes() and list(opt.state) == [kept] and p not in opt.state
    assert opt.state_dict()["state"].keys() == {0}


def test_a_new_parameter_in_a_group_and_a_traced_step():
    p, q = Parameter(np.float32([1, 2])), Parameter(np.float32([3, 4]))
    opt = optim.Adam([p], lr=0.1)

    @trace
    def step():
        w = opt.param_groups[0]["params"][0]
        with GradManager().attach([w]) as gm:
            gm.backward((w * w).sum())
        opt.step().clear_grad()

    step()
    opt.param_groups[0]["params"][0] = q
    with pytest.raises(TraceError, match=r"\[2\] was put into its group and has no states yet"):
        step()
    opt.state[q] = {name: Tensor(t.numpy() * 0) for name, t in opt.state[p].items()}
    step()
    step()
    assert opt.state[q]["step"].item() == 2 and opt.state[p]["step"].item() == 1
    opt.state[q] = {name: Tensor(t.numpy() * 0) for name, t in opt.state[p].items()}  # a recording of the old ones is not run
    step()
    assert opt.state[q]["step"].item() == 1


class Scaled(optim.Optimizer):
    """A program's own optimizer as MegEngine's programs write it."""

    def __init__(self, params, lr, alpha=0.9):
        super().__init__(params, dict(lr=lr, weight_decay=0.0, alpha=alpha))

    def _create_state(self, param_group):
        for p in param_group["params"]:
            self._add_state(p, "square_avg")
            self._add_state(p, "step", initializer=0.0)

    def _updates(self, param_group):
        lr, alpha = param_group["lr"], param_group["alpha"]
        for p in param_group["params"]:
            if p.grad is None:
                continue
            states = self._state[p]
            states["step"] += 1.0
            s = states["square_avg"]
            s *= alpha
            s += (1 - alpha) * p.grad * p.grad
            p -= lr * p.grad / (s / (1 - alpha ** states["step"])) ** 0.5


@pytest.mark.parametrize("traced", [False, True])
def test_an_optimizer_of_ones_own_in_megengines_way(traced):
    p, q, unused = Parameter(np.float32([1, -2])), Parameter(np.float32(3)), Parameter(np.float32([5]))
    opt = Scaled([{"params": [p, unused]}, {"params": [q], "lr": 0.5}], lr=0.1)
    gm = GradManager().attach([p, q])

    def step():
        with gm:
            gm.backward((p * p).sum() + q * q)
        opt.step().clear_grad()

    step = trace(step) if traced else step
    x, s, lr = np.array([1.0, -2.0, 3.0]), 0.0, np.array([0.1, 0.1, 0.5])
    for i in range(1, 4):
        step()
        s = 0.9 * s + 0.1 * (2 * x) ** 2
        x = x - lr * 2 * x / np.sqrt(s / (1 - 0.9**i))
    np.testing.assert_allclose([*p.tolist(), q.item()], x, rtol=2e-6)
    assert unused.tolist() == [5.0] and opt.state[q]["step"].item() == 3
    other = Scaled([{"params": [p, unused]}, {"params": [q]}], lr=1.0)
    other.load_state_dict(opt.state_dict())
    assert other.param_groups[1]["lr"] == 0.5 and other.state[p]["square_avg"].tolist() == opt.state[p]["square_avg"].tolist()


@pytest.mark.parametrize("traced", [False, True])
def test_gradients_that_overflow_leave_what_such_an_optimizer_updates(traced):
    p = Parameter(np.float32([1, -2]))
    opt, gm, scaler = Scaled([p], lr=0.1), GradManager().attach([p]), amp.GradScaler(init_scale=2.0)

    def step(x):
        with gm:
            scaler.backward(gm, (p * x).sum())
        opt.step().clear_grad()

    step = trace(step) if traced else step
    step(Tensor([1.0, 2.0]))
    kept = p.numpy().copy(), opt.state[p]["square_avg"].numpy().copy(), opt.state[p]["step"].item()
    step(Tensor([1.0, np.inf]))
    states = opt.state[p]
    assert (p.numpy() == kept[0]).all() and (states["square_avg"].numpy() == kept[1]).all() and states["step"].item() == 1 == kept[2]
    step(Tensor([1.0, 2.0]))
    assert (p.numpy() != kept[0]).all() and opt.state[p]["step"].item() == 2
