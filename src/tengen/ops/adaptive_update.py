"""Update rules of the optimizers after SGD and Adam, each one fused program over (parameter, gradient, state ...).

float16 and bfloat16 are computed in float32 and rounded once, to the dtype of what a result replaces. What depends on the step
and the learning rate alone, such as a bias correction, is computed in float64 and rounded once. `step` counts the steps before this
one; the rules return it with 1 added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tengen.base.dtype import float32, float64, promote
from tengen.ops.define import Case, check_floats, composite, lookup
from tengen.ops.elementwise import abs, astype, clip, maximum, sign, sqrt, where
from tengen.ops.logic import logical_and
from tengen.ops.reduce import sum_
from tengen.ops.update import one_minus_power

if TYPE_CHECKING:
    from tengen.ops.attributes import Decay, NonNegative
    from tengen.tensor import Tensor

# ---- what the rules share ----------------------------------------------------------------------------------------------


def _wide(*tensors: Tensor | None) -> list:
    """The operands in one dtype, at least float32; DTypeError unless all are floats."""
    d = promote(float32, check_floats(*tensors))  # type: ignore[arg-type]  # None is let pass
    return [t if t is None or t.dtype is d else astype(t, d) for t in tensors]


def _stored(*pairs: tuple[Tensor, Tensor]) -> tuple:
    """New values, each in the dtype of the old one that it replaces."""
    return tuple(new if new.dtype is old.dtype else astype(new, old.dtype) for old, new in pairs)


def _next(step: Tensor) -> Tensor:
    """The number of this step, from 1, in float64."""
    return astype(step, float64) + 1.0


def _penalised(grad: Tensor, param: Tensor, weight_decay: float) -> Tensor:
    """The gradient with an L2 penalty."""
    return grad + param * weight_decay if weight_decay else grad


def _lerp(mean: Tensor, g: Tensor, beta: float) -> Tensor:
    """beta mean + (1 - beta) g, in the order of PyTorch's `lerp`."""
    return mean + (g - mean) * (1 - beta)


# ---- gradients over a running norm -------------------------------------------------------------------------------------


@composite
def adadelta_update(
    param: Tensor, grad: Tensor, square: Tensor, delta_square: Tensor, lr: Tensor, rho: NonNegative, eps: NonNegative, weight_decay: float
):
    """Adadelta (M. D. Zeiler, arXiv 1212.5701), with g = grad + weight_decay param: v' = rho v + (1 - rho) g^2;
    d = sqrt(u + eps) / sqrt(v' + eps) g; p' = p - lr d; u' = rho u + (1 - rho) d^2. Returns (p', v', u')."""
    p, g, v, u, rate = _wide(param, grad, square, delta_square, lr)
    g = _penalised(g, p, weight_decay)
    v = v * rho + g * g * (1 - rho)
    d = sqrt(u + eps) / sqrt(v + eps) * g
    return _stored((param, p - d * rate), (square, v), (delta_square, u * rho + d * d * (1 - rho)))


@composite
def adagrad_update(
    param: Tensor, grad: Tensor, square: Tensor, step: Tensor, lr: Tensor, lr_decay: NonNegative, eps: NonNegative, weight_decay: float
):
    """Adagrad (Duchi, Hazan and Singer, JMLR 12, 2011), with g = grad + weight_decay param: v' = v + g^2;
    p' = p - lr / (1 + step lr_decay) g / sqrt(v' + eps). eps is below the root, as in MegEngine. Returns (p', v', step')."""
    p, g, v, rate = _wide(param, grad, square, lr)
    g = _penalised(g, p, weight_decay)
    v = v + g * g
    if lr_decay:
        rate = astype(astype(lr, float64) / (astype(step, float64) * lr_decay + 1.0), p.dtype)
    return _stored((param, p - g / sqrt(v + eps) * rate), (square, v), (step, step + 1.0))


@composite
def rmsprop_update(
    param: Tensor, grad: Tensor, square: Tensor, mean: Tensor | None, velocity: Tensor | None, lr: Tensor,
    alpha: NonNegative, eps: NonNegative, weight_decay: float, momentum: float,
):  # fmt: skip
    """RMSprop (T. Tieleman and G. Hinton, 2012; centred: A. Graves, arXiv 1308.0850), as in PyTorch, with g = grad + weight_decay
    param: v' = alpha v + (1 - alpha) g^2; with `mean` a' = alpha a + (1 - alpha) g and r = sqrt(max(v' - a'^2, 0)) + eps: a variance,
    which rounding alone takes below 0; else r = sqrt(v') + eps; with `velocity` b' = momentum b + g / r and p' = p - lr b', else
    p' = p - lr g / r. Returns (p', v') and those of (a', b') that are kept."""
    p, g, v, a, b, rate = _wide(param, grad, square, mean, velocity, lr)
    g = _penalised(g, p, weight_decay)
    v = v * alpha + g * g * (1 - alpha)
    kept = [(square, v)]
    if mean is None:
        root = sqrt(v)
    else:
        a = _lerp(a, g, alpha)
        root = sqrt(maximum(v - a * a, 0.0))
        kept.append((mean, a))
    d = g / (root + eps)
    if velocity is not None:
        d = b * momentum + d
        kept.append((velocity, d))
    return _stored((param, p - d * rate), *kept)


@composite
def rprop_update(
    param: Tensor, grad: Tensor, previous: Tensor, width: Tensor,
    shrink: NonNegative, grow: NonNegative, least: NonNegative, most: NonNegative,
):
    """Rprop (M. Riedmiller and H. Braun, 1993), as in PyTorch: an element's width grows where its gradient keeps its sign, and
    shrinks where the sign turned; there the element stays, and its gradient counts as 0. p' = p - sign(g) width'. Returns
    (p', g, width')."""
    p, g, last, w = _wide(param, grad, previous, width)
    turned = g * last
    w = clip(where(turned > 0.0, w * grow, where(turned < 0.0, w * shrink, w)), least, most)
    g = where(turned < 0.0, 0.0, g)
    return _stored((param, p - sign(g) * w), (previous, g), (width, w))


@composite
def lion_update(
    param: Tensor, grad: Tensor, mean: Tensor, lr: Tensor, beta1: Decay, beta2: Decay, weight_decay: float
):  # fmt: skip
    """Lion (X. Chen and others, arXiv 2302.06675): p' = p (1 - lr weight_decay) - lr sign(beta1 m + (1 - beta1) g);
    m' = beta2 m + (1 - beta2) g. Returns (p', m')."""
    p, g, m, rate = _wide(param, grad, mean, lr)
    d = sign(m * beta1 + g * (1 - beta1))
    if weight_decay:
        p = p * (1.0 - rate * weight_decay)
    return _stored((param, p - d * rate), (mean, m * beta2 + g * (1 - beta2)))


# ---- after Adam --------------------------------------------------------------------------------------------------------


@composite
def sparse_adam_update(
    param: Tensor, grad: Tensor, mean: Tensor, square: Tensor, step: Tensor, lr: Tensor, beta1: Decay, beta2: Decay, eps: NonNegative
):
    """Adam for the rows, along axis 0, of which an element of the gradient is not 0, as PyTorch's SparseAdam: m' = beta1 m + (1 - beta1) g;
    v' = beta2 v + (1 - beta2) g^2; p' = p - lr sqrt(1 - beta2^n) / (1 - beta1^n) m' / (sqrt(v') + eps), in step n. The other rows of p, m
    and v stay what they are. Returns (p', m', v', step')."""
    p, g, m, v, _ = _wide(param, grad, mean, square, lr)
    used, axes = lookup("not_equal")(g, 0.0), tuple(range(1, len(g.shape)))
    used = lookup("any")(used, axes, True) if axes else used
    n = _next(step)
    m, v = where(used, _lerp(m, g, beta1), m), where(used, v + (g * g - v) * (1 - beta2), v)
    rate = astype(lr, float64) * sqrt(one_minus_power(beta2, n)) / one_minus_power(beta1, n)
    p = where(used, p - m / (sqrt(v) + eps) * astype(rate, p.dtype), p)
    return _stored((param, p), (mean, m), (square, v), (step, step + 1.0))


@composite
def adamax_update(
    param: Tensor, grad: Tensor, mean: Tensor, largest: Tensor, step: Tensor, lr: Tensor,
    beta1: Decay, beta2: Decay, eps: NonNegative, weight_decay: float,
):  # fmt: skip
    """Adamax (Kingma and Ba, arXiv 1412.6980, section 7.1), as in PyTorch, with g = grad + weight_decay param:
    m' = beta1 m + (1 - beta1) g; u' = max(beta2 u, |g| + eps); p' = p - lr / (1 - beta1^n) m' / u', in step n. Returns
    (p', m', u', step')."""
    p, g, m, u, _ = _wide(param, grad, mean, largest, lr)
    g = _penalised(g, p, weight_decay)
    m, u = _lerp(m, g, beta1), maximum(u * beta2, abs(g) + eps)
    rate = astype(astype(lr, float64) / one_minus_power(beta1, _next(step)), p.dtype)
    return _stored((param, p - m / u * rate), (mean, m), (largest, u), (step, step + 1.0))


@composite
def nadam_update(
    param: Tensor, grad: Tensor, mean: Tensor, square: Tensor, product: Tensor, step: Tensor, lr: Tensor,
    beta1: Decay, beta2: Decay, eps: NonNegative, weight_decay: float, momentum_decay: NonNegative, decoupled: bool,
):  # fmt: skip
    """NAdam (T. Dozat, "Incorporating Nesterov momentum into Adam", 2016), as in PyTorch. In step n
    mu(n) = beta1 (1 - 0.96^(n momentum_decay) / 2), and `product` is that of all mu until n. With g, m' and v' of Adam:
    p' = p - lr (1 - mu(n)) / (1 - product') g / r - lr mu(n + 1) / (1 - product' mu(n + 1)) m' / r,
    r = sqrt(v' / (1 - beta2^n)) + eps. Returns (p', m', v', product', step')."""
    p, g, m, v, _ = _wide(param, grad, mean, square, lr)
    n, wide_lr, power = _next(step), astype(lr, float64), lookup("pow")
    if weight_decay and decoupled:
        p = p * astype(1.0 - wide_lr * weight_decay, p.dtype)
    elif weight_decay:
        g = _penalised(g, p, weight_decay)
    now = (1.0 - power(0.96, n * momentum_decay) * 0.5) * beta1
    after = (1.0 - power(0.96, (n + 1.0) * momentum_decay) * 0.5) * beta1
    together = astype(product, float64) * now
    m, v = _lerp(m, g, beta1), v * beta2 + g * g * (1 - beta2)
    root = sqrt(v / astype(one_minus_power(beta2, n), p.dtype)) + eps
    p = p - g / root * astype(wide_lr * (1.0 - now) / (1.0 - together), p.dtype)
    p = p - m / root * astype(wide_lr * after / (1.0 - together * after), p.dtype)
    return _stored((param, p), (mean, m), (square, v), (product, together), (step, step + 1.0))


@composite
def radam_update(
    param: Tensor, grad: Tensor, mean: Tensor, square: Tensor, step: Tensor, lr: Tensor,
    beta1: Decay, beta2: Decay, eps: NonNegative, weight_decay: float, decoupled: bool,
):  # fmt: skip
    """RAdam (L. Liu and others, arXiv 1908.03265), as in PyTorch. In step n, with g, m' and v' of Adam,
    rho_inf = 2 / (1 - beta2) - 1 and rho = rho_inf - 2 n beta2^n / (1 - beta2^n):
    d = m' / (1 - beta1^n), times sqrt(1 - beta2^n) / (sqrt(v') + eps) and
    sqrt((rho - 4) (rho - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho)) where rho > 5; p' = p - lr d. Returns
    (p', m', v', step')."""
    p, g, m, v, rate = _wide(param, grad, mean, square, lr)
    n = _next(step)
    if weight_decay and decoupled:
        p = p * astype(1.0 - astype(lr, float64) * weight_decay, p.dtype)
    elif weight_decay:
        g = _penalised(g, p, weight_decay)
    m, v = _lerp(m, g, beta1), v * beta2 + g * g * (1 - beta2)
    second = one_minus_power(beta2, n)
    most = 2 / (1 - beta2) - 1
    rho = most - n * (1.0 - second) / second * 2.0
    share = (rho - 4.0) * (rho - 2.0) / rho * (most / ((most - 4) * (most - 2)))
    far = astype(sqrt(maximum(share * second, 0.0)), p.dtype)
    first = m / astype(one_minus_power(beta1, n), p.dtype)
    d = where(rho > 5.0, first * (far / (sqrt(v) + eps)), first)
    return _stored((param, p - d * rate), (mean, m), (square, v), (step, step + 1.0))


@composite
def lamb_update(
    param: Tensor, grad: Tensor, master: Tensor | None, mean: Tensor, square: Tensor, step: Tensor, lr: Tensor,
    beta1: Decay, beta2: Decay, eps: NonNegative, weight_decay: float, bias_correction: bool, always_adapt: bool,
):  # fmt: skip
    """LAMB (Y. You and others, arXiv 1904.00962), as in MegEngine. With m' and v' of Adam, and in step n:
    r = m' / (1 - beta1^n) / (sqrt(v' / (1 - beta2^n)) + eps) + weight_decay p; p' = p - lr t r. The trust ratio t is |p| / |r|
    where both norms are positive, and 1 where one is 0, and without a weight decay unless `always_adapt`. `master` is the
    parameter in a wider dtype, which is then updated and rounded. Returns (p', m', v', step') and, if there is one, master'."""
    p, g, m, v, rate = _wide(param if master is None else master, grad, mean, square, lr)
    n = _next(step)
    m, v = m * beta1 + g * (1 - beta1), v * beta2 + g * g * (1 - beta2)
    r, square_now = m, v
    if bias_correction:
        r = m / astype(one_minus_power(beta1, n), p.dtype)
        square_now = v / astype(one_minus_power(beta2, n), p.dtype)
    r = r / (sqrt(square_now) + eps)
    if weight_decay:
        r = r + p * weight_decay
    if always_adapt or weight_decay > 0:
        p_norm, r_norm = sqrt(sum_(p * p)), sqrt(sum_(r * r))
        rate = rate * where(logical_and(p_norm > 0.0, r_norm > 0.0), p_norm / r_norm, 1.0)
    p = p - r * rate
    kept = [(param, p), (mean, m), (square, v), (step, step + 1.0)]
    return _stored(*kept, *([] if master is None else [(master, p)]))


# ---- the same in NumPy, for the tests ------------------------------------------------------------------------------------


def _np_adadelta(p, g, v, u, lr, rho, eps, weight_decay):
    g = g + weight_decay * p
    v = rho * v + (1 - rho) * g**2
    d = np.sqrt((u + eps) / (v + eps)) * g
    return p - lr * d, v, rho * u + (1 - rho) * d**2


def _np_adagrad(p, g, v, step, lr, lr_decay, eps, weight_decay):
    g = g + weight_decay * p
    return p - lr / (1 + step * lr_decay) * g / np.sqrt(v + g**2 + eps), v + g**2, step + 1


def _np_rmsprop(p, g, v, mean, velocity, lr, alpha, eps, weight_decay, momentum):
    g = g + weight_decay * p
    v = alpha * v + (1 - alpha) * g**2
    mean = None if mean is None else alpha * mean + (1 - alpha) * g
    d = g / (np.sqrt(np.maximum(v - (0 if mean is None else mean**2), 0)) + eps)
    velocity = None if velocity is None else momentum * velocity + d
    kept = [x for x in (mean, velocity) if x is not None]
    return p - lr * (d if velocity is None else velocity), v, *kept


def _np_rprop(p, g, previous, width, shrink, grow, least, most):
    same, other = g * previous > 0, g * previous < 0
    width = np.clip(width * np.select([same, other], [grow, shrink], 1.0), least, most)
    g = np.where(other, 0, g)
    return p - np.sign(g) * width, g, width


def _np_lion(p, g, m, lr, beta1, beta2, weight_decay):
    d = np.sign(beta1 * m + (1 - beta1) * g)
    return p - lr * (d + weight_decay * p), beta2 * m + (1 - beta2) * g


def _np_adamax(p, g, m, u, step, lr, beta1, beta2, eps, weight_decay):
    g = g + weight_decay * p
    m, u = beta1 * m + (1 - beta1) * g, np.maximum(beta2 * u, np.abs(g) + eps)
    return p - lr / (1 - beta1 ** (step + 1)) * m / u, m, u, step + 1


def _np_sparse_adam(p, g, m, v, step, lr, beta1, beta2, eps):
    p, m, v, n = p.copy(), m.copy(), v.copy(), step + 1
    for row in np.ndindex(p.shape[:1]):
        if g[row].any():
            m[row], v[row] = beta1 * m[row] + (1 - beta1) * g[row], beta2 * v[row] + (1 - beta2) * g[row] ** 2
            p[row] -= lr * np.sqrt(1 - beta2**n) / (1 - beta1**n) * m[row] / (np.sqrt(v[row]) + eps)
    return p, m, v, n


def _np_nadam(p, g, m, v, product, step, lr, beta1, beta2, eps, weight_decay, momentum_decay, decoupled):
    n = step + 1
    p, g = (p * (1 - lr * weight_decay), g) if decoupled else (p, g + weight_decay * p)
    mu, mu_next = (beta1 * (1 - 0.5 * 0.96 ** (k * momentum_decay)) for k in (n, n + 1))
    product = product * mu
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
    root = np.sqrt(v / (1 - beta2**n)) + eps
    p = p - lr * ((1 - mu) / (1 - product) * g + mu_next / (1 - product * mu_next) * m) / root
    return p, m, v, product, n


def _np_radam(p, g, m, v, step, lr, beta1, beta2, eps, weight_decay, decoupled):
    n = step + 1
    p, g = (p * (1 - lr * weight_decay), g) if decoupled else (p, g + weight_decay * p)
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
    most = 2 / (1 - beta2) - 1
    rho = most - 2 * n * beta2**n / (1 - beta2**n)
    d = m / (1 - beta1**n)
    if rho > 5:
        d = d * np.sqrt(1 - beta2**n) / (np.sqrt(v) + eps)
        d = d * np.sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho))
    return p - lr * d, m, v, n


def _np_lamb(p, g, master, m, v, step, lr, beta1, beta2, eps, weight_decay, bias_correction, always_adapt):
    n, p = step + 1, p if master is None else master
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
    first, second = (1 - beta1**n, 1 - beta2**n) if bias_correction else (1, 1)
    r = m / first / (np.sqrt(v / second) + eps) + weight_decay * p
    norms = np.sqrt((p**2).sum()), np.sqrt((r**2).sum())
    p = p - lr * (norms[0] / norms[1] if (always_adapt or weight_decay) and min(norms) > 0 else 1) * r
    return p, m, v, n, *(() if master is None else (p,))


def _state(*scalars: float, tensors: int, none: tuple[int, ...] = (), n: int = 15):
    """Parameter, gradient and states, away from where the rules are steep; then 0-d numbers."""
    def make(r):
        found = [r.uniform(0.1, 1, (3, n // 3)) for _ in range(tensors)]
        for i in none:
            found.insert(i, None)
        return (*found, *map(np.float64, scalars))
    return make  # fmt: skip


def _rows_left_out(r):
    p, g, m, v = r.uniform(0.1, 1, (4, 5, 3))
    g[[0, 3]] = 0.0
    return p, g, m, v, np.float64(2), np.float64(0.01)


def _cases(op, reference, inputs, *attrs: dict) -> None:
    op.reference(reference)
    op.cases(*(Case(make, a, grad=False, rtol=2e-5) for make in inputs for a in attrs))


_cases(adadelta_update, _np_adadelta, [_state(0.5, tensors=4)], *({"rho": 0.9, "eps": 1e-6, "weight_decay": w} for w in (0.0, 0.1)))
_cases(adagrad_update, _np_adagrad, [_state(3, 0.1, tensors=3)],
       *({"lr_decay": d, "eps": 1e-10, "weight_decay": w} for d, w in ((0.0, 0.0), (0.25, 0.1))))  # fmt: skip
_RMS = {"alpha": 0.75, "eps": 1e-4, "weight_decay": 0.1, "momentum": 0.5}
_cases(rmsprop_update, _np_rmsprop,
       [_state(0.1, tensors=3, none=(3, 4)), _state(0.1, tensors=4, none=(3,))], _RMS)  # fmt: skip


def _centred(r):
    p, g, mean, velocity = (r.uniform(0.1, 1, (3, 5)) for _ in range(4))
    return p, g, mean**2 + 1, mean, velocity, np.float64(0.1)


rmsprop_update.cases(Case(_centred, _RMS, grad=False, rtol=2e-5))
_RPROP = {"shrink": 0.5, "grow": 1.25, "least": 1e-3, "most": 1.0}
_cases(rprop_update, _np_rprop, [lambda r: (*r.uniform(-1, 1, (3, 3, 5)), r.uniform(0.1, 1, (3, 5)))], _RPROP)
_cases(lion_update, _np_lion, [lambda r: (*r.uniform(-1, 1, (3, 3, 5)), np.float64(0.125))],
       *({"beta1": 0.9, "beta2": 0.99, "weight_decay": w} for w in (0.0, 0.1)))  # fmt: skip
_BETAS = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8}
_cases(adamax_update, _np_adamax, [_state(2, 0.01, tensors=4)], *({**_BETAS, "weight_decay": w} for w in (0.0, 0.1)))
_cases(sparse_adam_update, _np_sparse_adam, [_state(2, 0.01, tensors=4), _rows_left_out], _BETAS)
_cases(nadam_update, _np_nadam, [_state(0.5, 2, 0.01, tensors=4)],
       *({**_BETAS, "weight_decay": w, "momentum_decay": 4e-3, "decoupled": d}
         for w, d in ((0.0, False), (0.1, False), (0.1, True))))  # fmt: skip
_cases(radam_update, _np_radam, [_state(2, 0.01, tensors=4), _state(9, 0.01, tensors=4)],
       *({**_BETAS, "weight_decay": w, "decoupled": d} for w, d in ((0.0, False), (0.1, False), (0.1, True))))  # fmt: skip
_cases(lamb_update, _np_lamb, [_state(2, 0.01, tensors=4, none=(2,)), _state(2, 0.01, tensors=5)],
       *({**_BETAS, "weight_decay": w, "bias_correction": b, "always_adapt": a}
         for w, b, a in ((0.0, True, False), (0.1, True, False), (0.0, False, True))))  # fmt: skip
