"""The optimizers after SGD and Adam: against their papers' formulas in NumPy's float64, against PyTorch where it is installed;
traced, in place, resumed, skipped, in groups, in half precision."""

import math

import numpy as np
import pytest
from each import each
from exhaustive import but

from tengen import Parameter, Tensor, amp, trace
from tengen import optimizer as optim
from tengen.autodiff import GradManager

# ---- formulas: each takes the parameter and yields it after each gradient -------------------------------------------------


def adadelta(p, grads, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0.0):
    v = u = 0
    for g in grads:
        g = g + weight_decay * p
        v = rho * v + (1 - rho) * g**2
        d = np.sqrt(u + eps) / np.sqrt(v + eps) * g
        p, u = p - lr * d, rho * u + (1 - rho) * d**2
        yield p


def adagrad(p, grads, lr=0.01, lr_decay=0.0, eps=1e-10, weight_decay=0.0):
    v = 0
    for n, g in enumerate(grads):
        g = g + weight_decay * p
        v = v + g**2
        p = p - lr / (1 + n * lr_decay) * g / np.sqrt(v + eps)
        yield p


def rmsprop(p, grads, lr=0.01, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False):
    v = a = b = 0
    for g in grads:
        g = g + weight_decay * p
        v, a = alpha * v + (1 - alpha) * g**2, alpha * a + (1 - alpha) * g
        b = momentum * b + g / (np.sqrt(v - a**2 * centered) + eps)
        p = p - lr * b
        yield p


def rprop(p, grads, lr=0.01, etas=(0.5, 1.2), step_sizes=(1e-6, 50)):
    width, last = np.full(p.shape, lr), np.zeros(p.shape)
    for g in grads:
        width = np.where(g * last > 0, width * etas[1], np.where(g * last < 0, width * etas[0], width)).clip(*step_sizes)
        last = np.where(g * last < 0, 0, g)
        p = p - np.sign(last) * width
        yield p


def lion(p, grads, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
    m = 0
    for g in grads:
        p = p - lr * (np.sign(betas[0] * m + (1 - betas[0]) * g) + weight_decay * p)
        m = betas[1] * m + (1 - betas[1]) * g
        yield p




def sparse_adam(p, grads, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
    p, m, v = p.copy(), np.zeros_like(p), np.zeros_like(p)
    for n, g in enumerate(grads, 1):
        used = g.reshape(len(g), -1).any(1)
        m[used] += (1 - betas[0]) * (g - m)[used]
        v[used] += (1 - betas[1]) * (g**2 - v)[used]
        p[used] -= (lr * math.sqrt(1 - betas[1] ** n) / (1 - betas[0] ** n) * m / (np.sqrt(v) + eps))[used]
        yield p.copy()


def adamax(p, grads, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
    m = u = 0
    for n, g in enumerate(grads, 1):
        g = g + weight_decay * p
        m, u = betas[0] * m + (1 - betas[0]) * g, np.maximum(betas[1] * u, abs(g) + eps)
        p = p - lr / (1 - betas[0] ** n) * m / u
        yield p


def nadam(p, grads, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, momentum_decay=4e-3, decoupled_weight_decay=False):
    m = v = 0
    product = 1
    for n, g in enumerate(grads, 1):
        if decoupled_weight_decay:
            p = p * (1 - lr * weight_decay)
        else:
            g = g + weight_decay * p
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g**2
        now, after = (betas[0] * (1 - 0.96 ** (k * momentum_decay) / 2) for k in (n, n + 1))
        product *= now
        ahead = after * m / (1 - product * after) + (1 - now) * g / (1 - product)
        p = p - lr * ahead / (np.sqrt(v / (1 - betas[1] ** n)) + eps)
        yield p


def radam(p, grads, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled_weight_decay=False):
    m = v = 0
    inf = 2 / (1 - betas[1]) - 1
    for n, g in enumerate(grads, 1):
        if decoupled_weight_decay:
            p = p * (1 - lr * weight_decay)
        else:
            g = g + weight_decay * p
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g**2
        rho = inf - 2 * n * betas[1] ** n / (1 - betas[1] ** n)
        d = m / (1 - betas[0] ** n)
        if rho > 5:
            rectified = math.sqrt((rho - 4) * (rho - 2) * inf / ((inf - 4) * (inf - 2) * rho))
            d = d * rectified * math.sqrt(1 - betas[1] ** n) / (np.sqrt(v) + eps)
        p = p - lr * d
        yield p


def lamb(p, grads, lr, betas=(0.9, 0.999), eps=1e-8, bias_correction=True, weight_decay=0.0, always_adapt=False):
    m = v = 0
    for n, g in enumerate(grads, 1):
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g**2
        first, second = (1 - betas[0] ** n, 1 - betas[1] ** n) if bias_correction else (1, 1)
        r = m / first / (np.sqrt(v / second) + eps) + weight_decay * p
        trust = np.linalg.norm(p) / np.linalg.norm(r) if weight_decay or always_adapt else 1
        p = p - lr * trust * r
        yield p


CASES = [
    (optim.Adadelta, adadelta, {}), (optim.Adadelta, adadelta, {"lr": 0.5, "rho": 0.8, "eps": 1e-3, "weight_decay": 0.1}),
    (optim.Adagrad, adagrad, {}), (optim.Adagrad, adagrad, {"lr": 0.1, "lr_decay": 0.25, "eps": 1e-3, "weight_decay": 0.1}),
    (optim.RMSprop, rmsprop, {}), (optim.RMSprop, rmsprop, {"lr": 0.02, "alpha": 0.8, "eps": 1e-3, "weight_decay": 0.1}),
    (optim.RMSprop, rmsprop, {"alpha": 0.5, "momentum": 0.5}),
    (optim.RMSprop, rmsprop, {"alpha": 0.5, "eps": 1e-2, "momentum": 0.5, "centered": True, "weight_decay": 0.1}),
    (optim.Rprop, rprop, {}), (optim.Rprop, rprop, {"lr": 0.25, "etas": (0.25, 1.5), "step_sizes": (0.125, 1.0)}),
    (optim.Lion, lion, {"lr": 0.01}), (optim.Lion, lion, {"lr": 0.01, "betas": (0.5, 0.75), "weight_decay": 0.1}),
    (optim.Adamax, adamax, {}), (optim.Adamax, adamax, {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    (optim.NAdam, nadam, {}), (optim.NAdam, nadam, {"lr": 0.1, "betas": (0.8, 0.9), "weight_decay": 0.1, "momentum_decay": 0.5}),
    (optim.NAdam, nadam, {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    (optim.RAdam, radam, {}), (optim.RAdam, radam, {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    (optim.RAdam, radam, {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    (optim.SparseAdam, sparse_adam, {}), (optim.SparseAdam, sparse_adam, {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-3}),
    (optim.LAMB, lamb, {"lr": 0.01}), (optim.LAMB, lamb, {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    (optim.LAMB, lamb, {"lr": 0.1, "always_adapt": True, "bias_correction": False}),
]  # fmt: skip
EACH = {make: options for make, _, options in CASES}  # the last options of each
STEPS = 10


def sample(dtype=np.float32, shape=(3, 5)):
    """A parameter and gradients, no element of which is near 0, where a sign would be a matter of rounding."""
    r = np.random.default_rng(0)
    grads = r.choice([-1, 1], (STEPS, *shape)) * r.uniform(0.25, 2, (STEPS, *shape))
    return r.normal(size=shape).astype(dtype), grads.astype(dtype)


def steps(make, options, start, grads, traced=False, seen=False):
    """The optimizer, and the parameter after each step."""
    p = Parameter(start)
    opt = make([p], **options)
    step = trace(opt.step) if traced else opt.step
    found, views = [], []
    for g in grads:
        p.grad = Tensor(g)
        views += [p.detach()] if seen else []
        step()
        found.append(p.numpy().copy())
    return opt, found


@but(first_of="make")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make, formula, options", CASES)
def test_ten_steps(make, formula, options, dtype):
    start, grads = sample(dtype)
    _, found = steps(make, options, start, grads)
    for got, want in zip(found, formula(start.astype(np.float64), grads.astype(np.float64), **options)):
        assert got.dtype == dtype
        # Some ten roundings in each step, of numbers below 4. sqrt(v - a^2) cancels.
        np.testing.assert_allclose(got, want, rtol=0, atol=STEPS * 10 * float(np.finfo(dtype).eps) / 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_variance_of_0_stays_one(dtype):
    """Gradients that are always the same have the variance 0, of which rounding may make less: no root of that is taken."""
    g = np.random.default_rng(0).uniform(0.1, 1, 1000).astype(dtype)
    _, found = steps(optim.RMSprop, {"alpha": 0.5, "centered": True}, np.zeros(1000, dtype), [g] * 60)
    assert all(np.isfinite(p).all() for p in found)


@but(every=4)
@pytest.mark.parametrize("make, formula, options", CASES)
def test_traced_and_in_place_steps_have_the_bits_of_others(make, formula, options):
    for shape in ((3, 5), (), (17,), (0, 3), (5, 33)):
        start, grads = sample(shape=shape)
        opt, found = steps(make, options, start, grads)
        states = [t.numpy().tobytes() for _, t in opt.named_states({})]
        for how in ({"traced": True}, {"seen": True}):
            other, again = steps(make, options, start, grads, **how)
            assert [a.tobytes() for a in again] == [a.tobytes() for a in found], (shape, how)
            assert [t.numpy().tobytes() for _, t in other.named_states({})] == states, (shape, how)


@each("shape", [(6,), (6, 5), (6, 2, 3), (6, 0)])
def test_rows_without_a_gradient_stay_what_they_are(shape):
    start, grads = sample(np.float64, shape)
    rows = np.random.default_rng(1).random((STEPS, 6)) < 0.5
    grads[rows] = 0
    rows[3, 1] = False
    grads[3, 1] = np.nan  # no 0
    _, found = steps(optim.SparseAdam, {"lr": 0.1}, start, grads)
    for before, got, want, left in zip([start, *found], found, sparse_adam(start, grads, lr=0.1), rows):
        np.testing.assert_allclose(got, want, rtol=0, atol=STEPS * 10 * 2.0**-24)
        np.testing.assert_array_equal(got[left], before[left])
    torch = pytest.importorskip("torch") if found[0].size else None
    if torch is not None:
        q = torch.nn.Parameter(torch.tensor(start))
        theirs = torch.optim.SparseAdam([q], lr=0.1)
        for g, used in zip(grads, ~rows):
            at = np.flatnonzero(used)
            with torch.sparse.check_sparse_tensor_invariants():  # some versions warn where nobody says whether they are checked
                q.grad = torch.sparse_coo_tensor(torch.tensor(at[None]), torch.tensor(g[at]), shape)
            theirs.step()
        np.testing.assert_allclose(found[-1], q.detach().numpy(), rtol=0, atol=STEPS * 10 * 2.0**-24)


# PyTorch adds Adagrad's eps to the root; LAMB and Lion are not in it
THEIRS = [c for c in CASES if c[0] not in (optim.Adagrad, optim.LAMB, optim.Lion, optim.SparseAdam)]


@but(first_of="make")
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("make, formula, options", THEIRS)
def test_pytorch_takes_the_same_steps(make, formula, options, maximize):
    torch = pytest.importorskip("torch")
    start, grads = sample()
    q = torch.nn.Parameter(torch.tensor(start))
    theirs = getattr(torch.optim, make.__name__)([q], **options, maximize=maximize)
    _, found = steps(make, {**options, "maximize": maximize, "foreach": False}, start, grads)
    for g, got in zip(grads, found):
        q.grad = torch.tensor(g)
        theirs.step()
        np.testing.assert_allclose(got, q.detach().numpy(), rtol=0, atol=STEPS * 10 * 2.0**-24)


@pytest.mark.parametrize("make", EACH, ids=lambda m: m.__name__)
@pytest.mark.parametrize("traced", [False, True])
def test_steps_with_an_overflow_change_nothing(make, traced):
    start, grads = sample()
    p = Parameter(start)
    opt, gm, scaler = make([p], **EACH[make]), GradManager().attach([p]), amp.GradScaler(init_scale=8.0)

    def train(x):
        with gm:
            scaler.backward(gm, (p * x).sum())
        opt.step().clear_grad()

    step = trace(train) if traced else train
    step(Tensor(grads[0]))
    before = [p.numpy().tobytes(), *(t.numpy().tobytes() for _, t in opt.named_states({}))]
    step(Tensor(np.full_like(start, np.inf)))
    assert [p.numpy().tobytes(), *(t.numpy().tobytes() for _, t in opt.named_states({}))] == before
    step(Tensor(grads[1]))
    assert p.numpy().tobytes() != before[0] and np.isfinite(p.numpy()).all()


@pytest.mark.parametrize("make", EACH, ids=lambda m: m.__name__)
def test_a_saved_state_goes_on_with_equal_bits(make):
    start, grads = sample()
    one, found = steps(make, EACH[make], start, grads[:4])
    saved = one.state_dict()
    p, q = one.param_groups[0]["params"][0], Parameter(found[-1])
    two = make([q], **EACH[make])
    two.load_state_dict(saved)
    for g in grads[4:]:
        p.grad, q.grad = Tensor(g), Tensor(g)
        one.step()
        two.step()
    assert p.numpy().tobytes() == q.numpy().tobytes()
    names = [n for n, _ in one.named_states({id(p): "w"})]
    assert names[0] == "lr" and all(n.startswith("w.") for n in names[1:]) and len(names) == 1 + len(saved["state"][0])


@pytest.mark.parametrize("make", EACH, ids=lambda m: m.__name__)
def test_groups_and_hyperparameters_that_change_between_traced_steps(make):
    start, grads = sample()
    found = []
    for traced in (False, True):
        p, q = Parameter(start), Parameter(start)
        opt = make([{"params": [p]}, {"params": [q], "lr": 0.5}], **EACH[make])
        step = trace(opt.step) if traced else opt.step
        for i, g in enumerate(grads):
            p.grad = q.grad = Tensor(g)
            if i == 4:
                opt.param_groups[0]["lr"] = 0.25
            if i == 6 and "weight_decay" in opt.defaults:
                opt.param_groups[1]["weight_decay"] = 0.5
            step()
        found.append([p.numpy().tobytes(), q.numpy().tobytes()])
        assert found[-1][0] != found[-1][1]
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("make", [*EACH, optim.LAMBFp16], ids=lambda m: m.__name__)
def test_half_precision_keeps_its_dtype(make, dtype):
    """Within the roundings of ten steps to the narrow dtype of what float32 computes; none of `LAMBFp16`, but the last."""
    start, grads = (Tensor(a).astype(dtype) for a in sample())
    formula, options = {m: (f, o) for m, f, o in CASES}.get(make, (lamb, EACH[optim.LAMB]))
    options = {**options, "eps": 1e-3} if "eps" in options or make is optim.NAdam else options
    p = Parameter(start)
    opt = make([p], **options)
    for g in grads:
        p.grad = g
        opt.step()
    assert str(p.dtype) == dtype
    wide = (t.astype("float64").numpy() for t in (start, grads))
    *_, want = formula(*wide, **options)
    eps = 2.0**-11 if dtype == "float16" else 2.0**-8
    roundings = 1 if make is optim.LAMBFp16 else 4 * STEPS
    np.testing.assert_allclose(p.astype("float64").numpy(), want, rtol=0, atol=4 * eps * roundings)


def test_a_float32_parameter_of_a_mixed_network_has_the_bits_of_lamb():
    """`LAMBFp16` keeps a second value of it, and its results do not stand in the order of the operands that they replace."""
    found = []
    for make in (optim.LAMB, optim.LAMBFp16):
        start, grads = (a.astype(np.float32) for a in sample())
        opt = make([p := Parameter(start)], lr=0.1, weight_decay=0.1)
        for g in grads:
            p.grad = Tensor(g)
            opt.step()
        found.append([p.numpy().tobytes(), *(opt.state_dict()["state"][0][k].tobytes() for k in ("exp_avg", "exp_avg_sq", "step"))])
    assert found[0] == found[1] and opt.state_dict()["state"][0]["param_fp32"].tobytes() == found[1][0]


def test_arguments_out_of_range():
    p = Parameter([1.0])
    for call, error, message in [
        (lambda: optim.RMSprop([p], capturabel=True), TypeError, "'capturabel'; help: did you mean 'capturable'"),
        (lambda: optim.AdamW([p], lr=1.0, differentiable=True), ValueError, "an update is not differentiated"),
        (lambda: optim.Rprop([p], etas=(1.5, 2.0)), ValueError, "etas=.* out of range"),
        (lambda: optim.Rprop([p], step_sizes=(1.0, 0.5)), ValueError, "step_sizes=.* out of range"),
        (lambda: optim.NAdam([p], betas=(0.9,)), ValueError, "betas=.* out of range"),
        (lambda: optim.Adadelta([p], rho=-1.0), ValueError, "rho=-1.0 must be"),
        (lambda: optim.SGD([{"params": [p], "weight_deacy": 0.1}], lr=1.0), ValueError, "no 'weight_deacy'; help: did you mean 'weight_decay'"),
        (lambda: optim.SGD([{"param": [p]}], lr=1.0), ValueError, "no 'param'; help: did you mean 'params'"),
        (lambda: optim.SGD([{"lr": 0.5}], lr=1.0), ValueError, "needs 'params'"),
        (lambda: optim.SGD([p], lr=1.0).bcast_param(), NotImplementedError, "bcast_list_"),
    ]:  # fmt: skip
        with pytest.raises(error, match=message):
            call()
    optim.AdamW([{"params": [p], "name": "body", "maximize": True}], lr=1.0, fused=True, foreach=None)


def test_a_closure_is_called_before_the_step_and_its_loss_returned():
    p = Parameter([1.0])
    opt = optim.SGD([p], lr=0.5)

    def closure():
        p.grad = Tensor([2.0])
        return Tensor(7.0)

    assert opt.step(closure).item() == 7.0 and p.item() == 0.0


# ---- which parameters decay ------------------------------------------------------------------------------------------------


def test_decay_groups():
    from tengen import module as M
    from tengen.models import resnet18

    net = M.Sequential(M.Conv2d(1, 1, 1), M.BatchNorm2d(1), M.Linear(4, 1), M.LayerNorm(4), M.LSTM(1, 2), M.PReLU(3), M.Embedding(5, 2))
    names = {id(p): n for n, p in net.named_parameters()}
    decayed, plain = optim.decay_groups(net, 0.1)
    assert sorted(names[id(p)] for p in decayed["params"]) == [
        "0.weight", "2.weight", "4.cells.0.0.weight_hh", "4.cells.0.0.weight_ih", "6.weight"
    ]  # fmt: skip
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    assert len(decayed["params"]) + len(plain["params"]) == len(names)
    decayed, plain = optim.decay_groups(net, 0.1, skip=["6.weight", "weight_hh"])
    assert len(decayed["params"]) == 3
    with pytest.raises(ValueError, match="no parameter is called .'head'"):
        optim.decay_groups(net, 0.1, skip=["head"])
    with pytest.raises(ValueError, match="no parameters"):
        optim.decay_groups(M.ReLU(), 0.1)
    big = resnet18()
    decayed, plain = optim.decay_groups(big, 0.1)
    assert len(decayed["params"]) == 21  # 20 convolutions and the classifier
    opt = optim.AdamW([decayed, plain], lr=0.1)
    assert [g["weight_decay"] for g in opt.param_groups] == [0.1, 0.0]


# ---- clipping under PyTorch's names ------------------------------------------------------------------------------------------


def test_clipping_under_pytorchs_names():
    a, b = Parameter([0.0, 0.0]), Parameter([0.0])
    a.grad, b.grad = Tensor([3.0, -4.0]), Tensor([12.0])
    assert optim.clip_grad_norm_([a, b], max_norm=1.0, norm_type=2.0).item() == 13.0
    np.testing.assert_allclose([*a.grad.tolist(), b.grad.item()], [3 / 13, -4 / 13, 12 / 13], rtol=1e-5)
    optim.clip_grad_value_([a, b], 0.25)
    np.testing.assert_allclose([*a.grad.tolist(), b.grad.item()], [3 / 13, -0.25, 0.25], rtol=1e-5)
    b.grad = Tensor([math.inf])
    with pytest.raises(RuntimeError, match="norm of the gradients is inf"):
        optim.clip_grad_norm_([a, b], 1.0, error_if_nonfinite=True)
    assert b.grad.item() == math.inf and a.grad[1].item() == -0.25
    with pytest.raises(ValueError, match="negative"):
        optim.clip_grad_value_(a, -1.0)


# ---- L-BFGS ------------------------------------------------------------------------------------------------------------------


def rosenbrock(x, y):
    return 100 * (y - x**2) ** 2 + (1 - x) ** 2


def minimise(options, calls, dtype="float64", start=(-1.5, 2.0)):
    p, q = (Parameter(np.array([v], dtype)) for v in start)
    opt, gm = optim.LBFGS([p, q], **options), GradManager().attach([p, q])
    count = []

    def closure():
        count.append(1)
        opt.clear_grad()
        with gm:
            loss = rosenbrock(p, q).sum()
            gm.backward(loss)
        return loss

    losses = [opt.step(closure).item() for _ in range(calls)]
    return opt, (p, q), losses, len(count), closure


OPTIONS = [
    {"line_search_fn": "strong_wolfe"}, {"lr": 0.01, "max_iter": 5}, {"line_search_fn": "strong_wolfe", "history_size": 2, "max_iter": 7},
    {"line_search_fn": "strong_wolfe", "max_eval": 3}, {"lr": 1e-3, "tolerance_change": 1e-2},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS)
def test_lbfgs_takes_pytorchs_steps(options):
    torch = pytest.importorskip("torch")
    _, (p, q), losses, count, _ = minimise(options, 4)
    x, y = (torch.nn.Parameter(torch.tensor([v], dtype=torch.float64)) for v in (-1.5, 2.0))
    opt, calls = torch.optim.LBFGS([x, y], **options), []

    def closure():
        calls.append(1)
        opt.zero_grad()
        loss = rosenbrock(x, y).sum()
        loss.backward()
        return loss

    theirs = [opt.step(closure).item() for _ in range(4)]
    assert count == len(calls)
    np.testing.assert_allclose(losses, theirs, rtol=1e-5)
    np.testing.assert_allclose([p.item(), q.item()], [x.item(), y.item()], rtol=1e-6)


def test_lbfgs_finds_the_minimum_and_resumes():
    opt, (p, q), losses, _, closure = minimise({"line_search_fn": "strong_wolfe"}, 5)
    np.testing.assert_allclose([p.item(), q.item()], [1, 1], rtol=1e-5)
    assert losses == sorted(losses, reverse=True)
    opt, (p, q), _, _, closure = minimise({"line_search_fn": "strong_wolfe", "max_iter": 4}, 2)
    other, (x, y), _, _, again = minimise({"line_search_fn": "strong_wolfe", "max_iter": 4}, 0, start=(p.item(), q.item()))
    other.load_state_dict(opt.state_dict())
    for _ in range(3):
        assert opt.step(closure).item() == other.step(again).item()
    assert (p.item(), q.item()) == (x.item(), y.item())
    assert [n for n, _ in opt.named_states({})] == ["lr", *(f"lbfgs.{n}" for n in ("numbers", "direction", "gradient", "changes", "steps"))]
    with pytest.raises(ValueError, match="does not fit parameters of 1"):
        optim.LBFGS([Parameter([1.0])]).load_state_dict(opt.state_dict())


def test_lbfgs_of_a_quadratic_is_the_solution_of_its_system():
    """With exact steps, n directions reach the minimum of a quadratic of n variables: x = A^-1 b."""
    r = np.random.default_rng(0)
    root = r.normal(size=(4, 4))
    a, b = root @ root.T + np.eye(4), r.normal(size=4)
    p = Parameter(np.zeros(4))
    opt, gm = optim.LBFGS([p], line_search_fn="strong_wolfe", max_iter=60, max_eval=400), GradManager().attach([p])

    def closure():
        opt.clear_grad()
        with gm:
            loss = 0.5 * (p * (Tensor(a) @ p)).sum() - (Tensor(b) * p).sum()
            gm.backward(loss)
        return loss

    opt.step(closure)
    np.testing.assert_allclose(p.numpy(), np.linalg.solve(a, b), rtol=1e-4, atol=1e-6)


def test_lbfgs_refuses():
    p = Parameter([1.0])
    for call, error, message in [
        (lambda: optim.LBFGS([{"params": [p]}, {"params": [Parameter([1.0])]}]), ValueError, "one group"),
        (lambda: optim.LBFGS([p], line_search_fn="armijo"), ValueError, "line_search_fn='armijo'"),
        (lambda: optim.LBFGS([{"params": [p], "maximize": True}]), ValueError, "another sign"),
        (lambda: optim.LBFGS([p], max_iter=0), ValueError, "max_iter=0"), (lambda: optim.LBFGS([p]).step(), TypeError, "needs a closure"),
        (lambda: trace(lambda: optim.LBFGS([p]).step(lambda: Tensor(1.0)), symbolic=True)(), RuntimeError, "trace what the closure calls"),
    ]:  # fmt: skip
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("make, decay", [(optim.Adam, 0.0), (optim.Adam, 0.1), (optim.AdamW, 0.1)])
def test_amsgrad(make, decay):
    start, grads = sample()
    grads = [(g / n**2).astype(g.dtype) for n, g in enumerate(grads, 1)]  # the first ones remain the largest
    options = {"lr": 0.05, "weight_decay": decay, "amsgrad": True}
    opt, found = steps(make, options, start, grads)
    assert "max_exp_avg_sq" in str([name for name, _ in opt.named_states({})])
    p, m, v, most = start.astype("f8"), 0.0, 0.0, 0.0
    for n, (g, got) in enumerate(zip(grads, found), 1):
        g = g.astype("f8") + (0 if make is optim.AdamW else decay * p)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        most = np.maximum(most, v)
        p = p * (1 - 0.05 * decay * (make is optim.AdamW)) - 0.05 * (m / (1 - 0.9**n)) / (np.sqrt(most / (1 - 0.999**n)) + 1e-8)
        np.testing.assert_allclose(got, p, rtol=0, atol=STEPS * 10 * 2.0**-24)
    assert [a.tobytes() for a in steps(make, options, start, grads, traced=True)[1]] == [a.tobytes() for a in found]
    assert found[-1].tobytes() != steps(make, options | {"amsgrad": False}, start, grads)[1][-1].tobytes()
