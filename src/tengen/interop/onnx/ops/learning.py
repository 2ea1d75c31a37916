"""Classical learning (ai.onnx.ml) and steps of training (ai.onnx.preview.training)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import tengen.functional as F
from tengen.autodiff import vjp
from tengen.interop.onnx.ops.control import scoped
from tengen.interop.onnx.reader import GraphOf, NodeOf, PortOf
from tengen.interop.onnx.registry import op
from tengen.interop.onnx.values import Value, as_tensor, known
from tengen.tensor import Tensor

if TYPE_CHECKING:
    from tengen.interop.onnx.network import Scope

TRAINING = "ai.onnx.preview.training."


@op("ai.onnx.ml.ArrayFeatureExtractor")
def feature_extractor(n: NodeOf, x: Value, index: Value) -> Value:
    """Columns by number."""
    t = as_tensor(x)
    t = t.reshape(1, -1) if len(t.shape) == 1 else t
    return F.take(t, as_tensor(index).reshape(-1), len(t.shape) - 1)


@op("ai.onnx.ml.Binarizer")
def binarizer(n: NodeOf, x: Value) -> Value:
    """1 above the threshold, else 0."""
    t = as_tensor(x)
    return F.greater(t, n["threshold"]).astype(t.dtype)


@op("ai.onnx.ml.Scaler")
def scaler(n: NodeOf, x: Value) -> Value:
    """(x - offset) scale."""
    at = lambda name: as_tensor(np.array(n[name], np.float32))
    return (as_tensor(x).astype("float32") - at("offset")) * at("scale")


@op("ai.onnx.ml.Normalizer")
def normalizer(n: NodeOf, x: Value) -> Value:
    """Rows by their largest, their sum or their length."""
    t = as_tensor(x).astype("float32")
    match n["norm"]:
        case "MAX": size = F.max(F.abs(t), -1, keepdims=True)  # fmt: skip
        case "L1": size = F.sum(F.abs(t), -1, keepdims=True)  # fmt: skip
        case _: size = F.sqrt(F.sum(F.square(t), -1, keepdims=True))  # fmt: skip
    return t / F.where(F.equal(size, 0), F.ones_like(size), size)


@op("ai.onnx.ml.Imputer")
def imputer(n: NodeOf, x: Value) -> Value:
    """Another number in place of one that stands for nothing."""
    t = as_tensor(x)
    floats = "imputed_value_floats" in n.attributes
    new = np.array(n["imputed_value_floats"] if floats else n["imputed_value_int64s"], t.dtype.numpy)
    old = n["replaced_value_float"] if floats else n["replaced_value_int64"]
    hit = F.isnan(t) if old != old else F.equal(t, old)
    return F.where(hit, as_tensor(new), t)


@op("ai.onnx.ml.LinearRegressor")
def linear_regressor(n: NodeOf, x: Value) -> Value:
    """x W + b."""
    t, targets = as_tensor(x).astype("float32"), n.get("targets", 1)
    w = as_tensor(np.array(n["coefficients"], np.float32).reshape(targets, -1))
    made = F.matmul(t, w, transpose_b=True)
    made = made if not n.get("intercepts") else made + as_tensor(np.array(n["intercepts"], np.float32))
    return transformed(made, n.get("post_transform", "NONE"))


def transformed(t: Tensor, how: str) -> Tensor:
    """Scores as the node wants them.

    Errors: ValueError for what is no transform.
    """
    match how:
        case "NONE": return t  # fmt: skip
        case "SOFTMAX": return F.softmax(t, -1)  # fmt: skip
        case "LOGISTIC": return F.sigmoid(t)  # fmt: skip
        case "SOFTMAX_ZERO": return F.where(F.equal(t, 0), F.zeros_like(t), F.softmax(t, -1))  # fmt: skip
        case "PROBIT":  # sqrt(2) erfinv(2 t - 1), by the approximation of Winitzki that onnxruntime has
            x = 2 * t - 1
            log = F.log((1 - x) * (1 + x))
            v = 2 / (np.pi * 0.147) + 0.5 * log
            return np.float32(2**0.5) * F.sign(x) * F.sqrt(F.sqrt(v * v - log / 0.147) - v)
    raise ValueError(f"post_transform={how!r}")


@op("ai.onnx.ml.TreeEnsemble")
def tree_ensemble(n: NodeOf, x: Value) -> Value:
    """Sums of the leaves that a row reaches, tree by tree.

    All rows walk down all trees together, one level at a time.
    """
    t = as_tensor(x)
    modes, features, splits = n["nodes_modes"].reshape(-1), n["nodes_featureids"], n["nodes_splits"].reshape(-1)
    yes, no = n["nodes_trueleafs"], n["nodes_falseleafs"]
    count = len(features)
    left = np.array([i + count if leaf else i for i, leaf in zip(n["nodes_truenodeids"], yes)], np.int64)
    right = np.array([i + count if leaf else i for i, leaf in zip(n["nodes_falsenodeids"], no)], np.int64)
    members = n.get("membership_values")
    sets = iter(np.split(members, np.flatnonzero(np.isnan(members)))) if members is not None else iter(())
    by_node = [np.asarray([v for v in next(sets) if v == v]) if m == 6 else np.zeros(0) for m in modes]
    leaf_targets, leaf_weights = np.array(n["leaf_targetids"]), n["leaf_weights"].reshape(-1)
    rows = t.shape[0]
    total: Any = F.zeros((rows, n["n_targets"]), t.dtype)
    aggregate = n.get("aggregate_function", 1)
    gathered = []
    for root in n["tree_roots"]:
        at = F.full((rows,), int(root) if count > 1 or not yes[0] else int(root), dtype="int64")
        for _ in range(depth_of(int(root), left, right, count)):
            inner = F.minimum(at, count - 1)
            value = F.gather(t, 1, F.take(as_tensor(np.array(features, np.int32)), inner).reshape(-1, 1)).reshape(-1)
            go = decided(value, inner, modes, splits, by_node)
            step = F.where(go, F.take(as_tensor(left), inner), F.take(as_tensor(right), inner))
            at = F.where(F.less(at, count), step, at)
        leaf = at - count
        weight = F.take(as_tensor(leaf_weights), leaf).reshape(-1, 1)
        hit = F.one_hot(F.take(as_tensor(leaf_targets), leaf), n["n_targets"])
        gathered.append(hit.astype(t.dtype) * weight.astype(t.dtype))
    match aggregate:
        case 0 | 1:
            for g in gathered:
                total = total + g
            total = total / len(gathered) if aggregate == 0 else total
        case 2: total = F.min(F.stack(gathered, 0), 0)  # fmt: skip
        case _: total = F.max(F.stack(gathered, 0), 0)  # fmt: skip
    how = {0: "NONE", 1: "SOFTMAX", 2: "LOGISTIC", 3: "SOFTMAX_ZERO", 4: "PROBIT"}[n.get("post_transform", 0)]
    return transformed(total, how)


def depth_of(root: int, left: np.ndarray, right: np.ndarray, count: int) -> int:
    """Levels of a tree.

    Errors: ValueError for one with a cycle.
    """
    level, depth = {root}, 0
    while level:
        if depth > count:
            raise ValueError("a tree has a cycle")
        level = {int(c) for i in level for c in (left[i], right[i]) if c < count}
        depth += 1
    return depth


def decided(value: Tensor, at: Tensor, modes: np.ndarray, splits: np.ndarray, sets: list[np.ndarray]) -> Tensor:
    """Whether a row takes the branch of `true` at its node."""
    split, mode = F.take(as_tensor(splits), at), F.take(as_tensor(modes.astype(np.int32)), at)
    tests = (F.less_equal, F.less, F.greater_equal, F.greater, F.equal, F.not_equal)
    found: Any = F.zeros(value.shape, "bool")
    for i, test in enumerate(tests):
        if (modes == i).any():
            found = F.where(F.equal(mode, i), test(value, split), found)
    for i in np.flatnonzero(modes == 6):
        member: Any = F.zeros(value.shape, "bool")
        for v in sets[i]:
            member = F.logical_or(member, F.equal(value, float(v)))
        found = F.where(F.equal(at, int(i)), member, found)
    return found


# -- training ------------------------------------------------------------------------------------------------------------------
@op(f"{TRAINING}Gradient")
@scoped
def gradient(scope: Scope, n: NodeOf, *inputs: Value) -> tuple[Value, ...]:
    """The derivatives of `y` with respect to `xs`, at these inputs for xs and zs: the nodes before y run once more."""
    xs, zs, y = n["xs"], n.get("zs") or [], n["y"]
    where = scope
    while where.graph is None or not any(y in m.outputs for m in where.graph.nodes):
        if where.around is None:
            raise ValueError(f"Gradient of {y!r}, which no node before it computes")
        where = where.around
    needed, nodes = {y}, []
    for m in reversed(where.graph.nodes):
        if needed & set(m.outputs) and not set(m.outputs) <= {*xs, *zs}:
            nodes.append(m)
            needed |= set(m.inputs)
    part = GraphOf("gradient", (), (PortOf(y, None, None),), tuple(reversed(nodes)), {})

    def f(*given: Tensor) -> Tensor:
        inside = type(scope)(scope.network, where)
        for name, v in zip((*xs, *zs), (*given, *inputs[len(xs) :])):
            inside[name] = v
        return as_tensor(inside.run(part)[0])

    made, pull = vjp(f, *map(as_tensor, inputs[: len(xs)]))
    found = pull(F.ones_like(made))
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


# -- steps of training -----------------------------------------------------------------------------------------------------------
def grouped(inputs: tuple[Value, ...], kinds: int) -> list[tuple[Tensor, ...]]:
    """Inputs that stand kind by kind, tensor by tensor."""
    each = len(inputs) // kinds
    return [tuple(as_tensor(inputs[k * each + i]) for k in range(kinds)) for i in range(each)]


def scalar(v: Value) -> float:
    """A known number."""
    return float(known(v).reshape(-1)[0])


@op(f"{TRAINING}Adagrad")
def adagrad(n: NodeOf, rate: Value, count: Value, *inputs: Value) -> tuple[Value, ...]:
    """x - r g / (sqrt(h) + eps), h = h + g^2."""
    r = scalar(rate) / (1 + scalar(count) * n["decay_factor"])
    made = []
    for x, g, h in grouped(inputs, 3):
        g = g + n["norm_coefficient"] * x
        h = h + g * g
        made.append((x - r * g / (F.sqrt(h) + n["epsilon"]), h))
    return (*(m[0] for m in made), *(m[1] for m in made))


@op(f"{TRAINING}Momentum")
def momentum(n: NodeOf, rate: Value, count: Value, *inputs: Value) -> tuple[Value, ...]:
    """Stochastic gradient descent with momentum, Nesterov's or the standard one."""
    r, first = scalar(rate), scalar(count) == 0
    made = []
    for x, g, v in grouped(inputs, 3):
        g = g + n["norm_coefficient"] * x
        beta = 1.0 if first else n["beta"]
        v = n["alpha"] * v + beta * g
        made.append((x - r * (g + n["alpha"] * v if n["mode"] == "nesterov" else v), v))
    return (*(m[0] for m in made), *(m[1] for m in made))


@op(f"{TRAINING}Adam")
def adam(n: NodeOf, rate: Value, count: Value, *inputs: Value) -> tuple[Value, ...]:
    """Kingma and Ba's, with weight decay before and after."""
    t = scalar(count)
    r = scalar(rate) * (np.sqrt(1 - n["beta"] ** t) / (1 - n["alpha"] ** t) if t > 0 else 1.0)
    made = []
    for x, g, m, v in grouped(inputs, 4):
        g = g + n["norm_coefficient"] * x
        m, v = n["alpha"] * m + (1 - n["alpha"]) * g, n["beta"] * v + (1 - n["beta"]) * g * g
        new = x - float(r) * m / (F.sqrt(v) + n["epsilon"])
        made.append(((1 - n["norm_coefficient_post"]) * new, m, v))
    return (*(m[0] for m in made), *(m[1] for m in made), *(m[2] for m in made))
