"""Classical learning (ai.onnx.ml): forests, linear and support vector machines, encoders of features.

Labels that are texts, and maps (dicts here), are known while the network runs eagerly; no program computes with them. What a few of them
mean is left to the evaluator that the package onnx has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.interop.onnx.ops.learning import decided, depth_of, transformed
from tengen.interop.onnx.ops.text import array_of
from tengen.interop.onnx.reader import NodeOf
from tengen.interop.onnx.registry import op
from tengen.interop.onnx.values import Value, as_tensor, known
from tengen.tensor import Tensor

ML = "ai.onnx.ml."
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")  # in the order of `decided`


# -- forests -----------------------------------------------------------------------------------------------------------------
class Forest:
    """The trees of TreeEnsembleRegressor and TreeEnsembleClassifier, with all nodes in one row.

    Attributes:
        table: (nodes, targets), what a leaf adds; given: where a leaf says something.
    """

    def __init__(self, n: NodeOf, kind: str, targets: int):
        at = lambda name: np.asarray(n[f"nodes_{name}"])
        number = lambda name: n[f"{name}_as_tensor"] if f"{name}_as_tensor" in n.attributes else np.array(n[name], np.float32)
        place = {(t, i): k for k, (t, i) in enumerate(zip(n["nodes_treeids"], n["nodes_nodeids"]))}
        modes = n["nodes_modes"]
        count = len(modes)
        inner = np.array([m != "LEAF" for m in modes])
        turn = lambda side: np.array(
            [place[t, i] if go else k for k, (t, i, go) in enumerate(zip(n["nodes_treeids"], n[f"nodes_{side}nodeids"], inner))], np.int64
        )
        self.left, self.right = turn("true"), turn("false")
        self.modes = np.array([MODES.index(m) if m in MODES else 0 for m in modes])
        self.splits, self.features = number("nodes_values"), at("featureids").astype(np.int32)
        missing = n.get("nodes_missing_value_tracks_true")
        self.missing = np.array(missing, bool) if missing else np.zeros(count, bool)
        self.roots = np.array([min(k for (t, _), k in place.items() if t == tree) for tree in dict.fromkeys(n["nodes_treeids"])], np.int64)
        children = np.where(inner, self.left, count), np.where(inner, self.right, count)
        self.depth = max(depth_of(int(r), *children, count) for r in self.roots)
        self.table, self.given = np.zeros((count, targets), np.float64), np.zeros((count, targets), bool)
        weights = number(f"{kind}_weights")
        for tree, node, target, weight in zip(n[f"{kind}_treeids"], n[f"{kind}_nodeids"], n[f"{kind}_ids"], weights):
            self.table[place[tree, node], target] += weight
            self.given[place[tree, node], target] = True

    def leaves(self, x: Tensor) -> Tensor:
        """The leaf of each row in each tree (rows, trees): all walk down together, level by level."""
        t = x if x.dtype.is_float else x.astype("float32")
        at: Any = F.broadcast_to(as_tensor(self.roots.reshape(1, -1)), (t.shape[0], len(self.roots)))
        for _ in range(self.depth):
            value = F.gather(t, 1, F.take(as_tensor(self.features), at))
            go = decided(value, at, self.modes, self.splits.astype(t.dtype.numpy), [])
            if self.missing.any():
                go = F.logical_or(go, F.logical_and(F.isnan(value), F.take(as_tensor(self.missing), at)))
            at = F.where(go, F.take(as_tensor(self.left), at), F.take(as_tensor(self.right), at))
        return at

    def scores(self, x: Tensor, how: str, base: Sequence[float]) -> Tensor:
        """(rows, targets): sums, means, smallest or largest of the trees' leaves, and what all rows begin with."""
        at = self.leaves(x)
        each = F.take(as_tensor(self.table.astype(np.float32)), at, 0)  # (rows, trees, targets)
        if how in ("MIN", "MAX"):
            least, pick = (np.inf, F.min) if how == "MIN" else (-np.inf, F.max)
            hit = F.take(as_tensor(self.given), at, 0)
            found = pick(F.where(hit, each, least), 1)
            total = F.where(F.any(hit, 1), found, 0.0)
        else:
            total = F.sum(each, 1)
            total = total / len(self.roots) if how == "AVERAGE" else total
        return total + as_tensor(np.array(base, np.float32)) if len(base) else total


def base_values(n: NodeOf) -> list[float]:
    """What all rows begin with."""
    found = n["base_values_as_tensor"] if "base_values_as_tensor" in n.attributes else n.get("base_values", [])
    return [float(v) for v in found]


@op(f"{ML}TreeEnsembleRegressor")
def forest_regressor(n: NodeOf, x: Value) -> Value:
    """The sum of the leaves that a row reaches."""
    made = Forest(n, "target", n["n_targets"]).scores(as_tensor(x), n["aggregate_function"], base_values(n))
    return transformed(made, n["post_transform"])


@op(f"{ML}TreeEnsembleClassifier")
def forest_classifier(n: NodeOf, x: Value) -> tuple[Value, Value]:
    """The class with the largest sum. Where leaves speak of the first of two classes alone, that is the score of the second one, as
    onnxruntime has it: above 0.5 where it is a probability, else above 0."""
    names = labels_of(n, "classlabels_int64s")
    forest = Forest(n, "class", len(names))
    spoken = np.flatnonzero(forest.given.any(0))
    base = base_values(n)
    if len(names) != 2 or spoken.tolist() != [0]:
        made = forest.scores(as_tensor(x), "SUM", base)
        return chosen(names, F.argmax(made, 1)), transformed(made, n["post_transform"])
    score = forest.scores(as_tensor(x), "SUM", [])[:, :1] + np.float32(base[-1] if base else 0)
    positive = bool((forest.table >= 0).all())
    return of_two(names, score, 0.5 if positive else 0.0, positive, n["post_transform"])


def of_two(names: np.ndarray, score: Tensor, limit: float, share: bool, how: str) -> tuple[Value, Value]:
    """The class and both scores, from that of the second class (rows, 1). share: the first one's is 1 minus it, else its negative."""
    if how == "LOGISTIC":
        pair = [F.sigmoid(-score), F.sigmoid(score)]
    else:
        pair = [1 - score if share else -score, score]
    return chosen(names, F.greater(score[:, 0], limit).astype("int64")), F.concat(pair, 1)


# -- labels ------------------------------------------------------------------------------------------------------------------
def labels_of(n: NodeOf, ints: str) -> np.ndarray:
    """The labels of the classes: texts or integers."""
    texts = n.get("classlabels_strings")
    return array_of(list(texts), (len(texts),)) if texts else np.array(n[ints], np.int64)


def chosen(names: np.ndarray, index: Tensor) -> Value:
    """Labels by their numbers; texts are known arrays."""
    if names.dtype == object:
        return names[known(index)]
    return F.take(as_tensor(names), index.astype("int64"))


# -- linear and support vector machines ------------------------------------------------------------------------------------------
@op(f"{ML}LinearClassifier")
def linear_classifier(n: NodeOf, x: Value) -> tuple[Value, Value]:
    """The class with the largest score x W + b; with one row of W, of two classes."""
    t, names = as_tensor(x).astype("float32"), labels_of(n, "classlabels_ints")
    w = np.array(n["coefficients"], np.float32)
    w = w.reshape(-1, t.shape[1])
    made = F.matmul(t, as_tensor(w), transpose_b=True)
    if n.get("intercepts"):
        made = made + as_tensor(np.array(n["intercepts"], np.float32))
    if len(w) == 1 and len(names) == 2:
        return of_two(names, made, 0.0, True, n["post_transform"])
    return chosen(names, F.argmax(made, 1)), transformed(made, n["post_transform"])


def kernel(n: NodeOf, t: Tensor, vectors: Tensor) -> Tensor:
    """(rows, vectors): the kernel of a support vector machine."""
    gamma, shift, degree = (list(n.get("kernel_params") or []) + [0.0, 0.0, 3.0])[:3]
    dot = lambda: F.matmul(t, vectors, transpose_b=True)
    match n["kernel_type"]:
        case "LINEAR": return dot()  # fmt: skip
        case "POLY": return F.pow(dot() * np.float32(gamma) + np.float32(shift), float(degree))  # fmt: skip
        case "SIGMOID": return F.tanh(dot() * np.float32(gamma) + np.float32(shift))  # fmt: skip
        case "RBF":
            apart = F.sum(F.square(F.expand_dims(t, 1) - F.expand_dims(vectors, 0)), -1)
            return F.exp(apart * np.float32(-gamma))
    raise ValueError(f"kernel_type={n['kernel_type']!r}")


@op(f"{ML}SVMRegressor")
def svm_regressor(n: NodeOf, x: Value) -> Value:
    """A sum over support vectors, or a linear function without them; its sign for a single class."""
    t = as_tensor(x).astype("float32")
    weights, shift = np.array(n["coefficients"], np.float32), np.float32((n.get("rho") or [0.0])[0])
    if n["n_supports"]:
        vectors = as_tensor(np.array(n["support_vectors"], np.float32).reshape(n["n_supports"], -1))
        made = F.matmul(kernel(n, t, vectors), as_tensor(weights.reshape(-1, 1))) + shift
    else:
        made = F.matmul(t, as_tensor(weights.reshape(-1, 1))) + shift
    if n["one_class"]:
        return F.where(F.greater(made, 0), 1.0, -1.0).astype("float32")
    return transformed(made, n["post_transform"])


def evaluated(n: NodeOf, *inputs: Any) -> tuple[Value, ...]:
    """A node by the evaluator of the package onnx, of known values."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    plain = [v if isinstance(v, (dict, list)) else known(v) for v in inputs]
    node = onnx.NodeProto.FromString(n.proto)
    ports = [onnx.helper.make_empty_tensor_value_info(name) for name in (*node.input, *node.output)]
    graph = onnx.helper.make_graph([node], "node", ports[: len(node.input)], ports[len(node.input) :])
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid(n.domain, 3)]
    made = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=opsets)).run(None, dict(zip(node.input, plain)))
    return tuple(v.astype(object) if v.dtype.kind in "US" else as_tensor(v) for v in map(np.asarray, made))


op(f"{ML}SVMClassifier", f"{ML}DictVectorizer")(evaluated)


# -- features ----------------------------------------------------------------------------------------------------------------
@op(f"{ML}FeatureVectorizer")
def feature_vectorizer(n: NodeOf, *inputs: Value) -> Value:
    """Vectors beside each other, cut or filled up with zeros to their widths."""
    found = []
    for v, width in zip(inputs, n["inputdimensions"]):
        t = as_tensor(v).astype("float32")
        t = t.reshape(1, -1) if len(t.shape) == 1 else t
        have = t.shape[1]
        found.append(t[:, :width] if have >= width else F.pad(t, [(0, 0), (0, width - have)]))
    return F.concat(found, 1)


@op(f"{ML}OneHotEncoder")
def one_hot_encoder(n: NodeOf, x: Value) -> Value:
    """1 at the place of each category. Others give zeros; with zeros=0 they are an error, which values that are not known hide."""
    texts = n.get("cats_strings")
    if texts:
        a = known(x)
        made = np.array([[float(str(v) == c) for c in texts] for v in a.flat], np.float32).reshape(*a.shape, len(texts))
        if not n["zeros"] and not made.any(-1).all():
            raise ValueError("OneHotEncoder: a text is none of the categories")
        return as_tensor(made)
    t = as_tensor(x)
    cats = as_tensor(np.array(n["cats_int64s"], np.int64)).astype(t.dtype)
    return F.equal(F.expand_dims(t, -1), cats).astype("float32")


@op(f"{ML}CategoryMapper")
def category_mapper(n: NodeOf, x: Value) -> Value:
    """Texts as integers, or integers as texts."""
    a = known(x)
    numbers, texts = n["cats_int64s"], n["cats_strings"]
    if a.dtype.kind in "OUS":
        table = dict(zip(texts, numbers))
        return as_tensor(np.array([table.get(str(v), n["default_int64"]) for v in a.flat], np.int64).reshape(a.shape))
    names = dict(zip(numbers, texts))
    return array_of([names.get(int(v), n["default_string"]) for v in a.flat], a.shape)


@op(f"{ML}ZipMap")
def zip_map(n: NodeOf, x: Value) -> Value:
    """For each row a map from labels to its numbers."""
    a, names = known(x), labels_of(n, "classlabels_int64s").tolist()
    return [dict(zip(names, row)) for row in np.atleast_2d(a).tolist()]


@op(f"{ML}CastMap")
def cast_map(n: NodeOf, x: Any) -> Value:
    """A map's values in the order of its keys; with SPARSE at the place of each key."""
    if not isinstance(x, dict):
        raise TypeError(f"CastMap takes a dict, got {type(x).__name__}")
    kind = {"TO_FLOAT": float, "TO_STRING": str, "TO_INT64": int}[n["cast_to"]]
    if n["map_form"] == "SPARSE":
        row = [kind(x.get(i, 0)) for i in range(n["max_map"])]
    else:
        row = [kind(x[k]) for k in sorted(x)]
    if kind is str:
        return array_of(row, (1, len(row)))
    return as_tensor(np.array([row], np.float32 if kind is float else np.int64))
