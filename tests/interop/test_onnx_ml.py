"""Classical learning (ai.onnx.ml) beside onnxruntime, and derivatives as nodes."""

import numpy as np
import onnx_cases
import pytest
from onnx import helper

from tengen.base.errors import TraceError
from tengen.interop.onnx import load, to_module
from tengen.interop.onnx.values import as_array

RNG = np.random.default_rng(0)
ML = "ai.onnx.ml"


def model(op, x, outs=1, **attributes):
    code = helper.np_dtype_to_tensor_dtype(x.dtype)
    names = [f"y{i}" for i in range(outs)]
    return helper.make_model(
        helper.make_graph(
            [helper.make_node(op, ["x"], names, domain=ML, **attributes)], "g", [helper.make_tensor_value_info("x", code, x.shape)],
            [helper.make_empty_tensor_value_info(name) for name in names],
        ), opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)], ir_version=8,
    )  # fmt: skip


def check(op, x, outs=1, tolerance=1e-5, **attributes):
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: its results are not compared")
    m = model(op, x, outs, **attributes)
    want = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    got = [as_array(v) for v in to_module(m).values([x])]
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape, (op, a.shape, b.shape)
        if b.dtype.kind in "OUS":
            assert a.tolist() == b.tolist()
        else:
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=f"{op} {attributes}")


def forest(kind, trees, targets, features, modes, positive=False, only=None):
    """Random trees of depth up to 3, as attributes."""
    found = {f"nodes_{k}": [] for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")}
    found |= {"nodes_missing_value_tracks_true": [], **{f"{kind}_{k}": [] for k in ("treeids", "nodeids", "ids", "weights")}}

    def grow(tree, node, depth):
        leaf = depth == 3 or depth and RNG.random() < 0.3
        row = dict(
            treeids=tree, nodeids=node, featureids=int(RNG.integers(features)), values=float(np.float32(RNG.standard_normal())),
            modes="LEAF" if leaf else str(RNG.choice(modes)), truenodeids=0 if leaf else 2 * node + 1, falsenodeids=0 if leaf else 2 * node + 2,
        )  # fmt: skip
        for k, v in row.items():
            found[f"nodes_{k}"].append(v)
        found["nodes_missing_value_tracks_true"].append(int(RNG.integers(2)))
        if leaf:
            for t in range(targets) if only is None else [only]:
                weight = RNG.standard_normal() if not positive else RNG.random() / trees
                for k, v in (("treeids", tree), ("nodeids", node), ("ids", t), ("weights", float(np.float32(weight)))):
                    found[f"{kind}_{k}"].append(v)
        else:
            grow(tree, 2 * node + 1, depth + 1)
            grow(tree, 2 * node + 2, depth + 1)

    for tree in range(trees):
        grow(tree, 0, 0)
    return found


def test_forests():
    x = RNG.standard_normal((9, 4)).astype(np.float32)
    x[2, 1] = np.nan
    for how in ("SUM", "AVERAGE", "MIN", "MAX"):
        check("TreeEnsembleRegressor", x, n_targets=2, aggregate_function=how, **forest("target", 5, 2, 4, ["BRANCH_LEQ", "BRANCH_GT"]))
    one = forest("target", 3, 1, 4, ["BRANCH_LT", "BRANCH_GTE", "BRANCH_EQ", "BRANCH_NEQ"])
    check("TreeEnsembleRegressor", x, n_targets=1, base_values=[0.5], **one)
    for labels in ({"classlabels_int64s": [7, 3, 5]}, {"classlabels_strings": ["a", "b", "c"]}):
        for how in ("NONE", "SOFTMAX", "LOGISTIC"):
            trees = forest("class", 4, 3, 4, ["BRANCH_LEQ"])
            check("TreeEnsembleClassifier", x, 2, post_transform=how, base_values=[0.1, 0.2, 0.3], **labels, **trees)
    for positive in (True, False):
        for how in ("NONE", "LOGISTIC"):
            trees = forest("class", 4, 2, 4, ["BRANCH_LEQ"], positive, only=0)
            check("TreeEnsembleClassifier", x, 2, post_transform=how, classlabels_int64s=[10, 20], **trees)
    m = model("TreeEnsembleRegressor", x, n_targets=1, **one)
    program = load(m, {"x": ("rows", 4)})
    assert program(x).numpy().tobytes() == as_array(to_module(m).values([x])[0]).tobytes()


def test_linear_and_support_vector_machines():
    x = RNG.standard_normal((7, 4)).astype(np.float32)
    numbers = lambda *shape: RNG.standard_normal(shape).astype(np.float32).reshape(-1).tolist()
    for how in ("NONE", "SOFTMAX", "LOGISTIC"):
        check("LinearClassifier", x, 2, coefficients=numbers(3, 4), intercepts=numbers(3), classlabels_ints=[4, 5, 6], post_transform=how)
        check("LinearClassifier", x, 2, coefficients=numbers(1, 4), intercepts=numbers(1), classlabels_ints=[0, 1], post_transform=how)
    check("LinearClassifier", x, 2, coefficients=numbers(3, 4), intercepts=numbers(3), classlabels_strings=["u", "v", "w"])
    for kind, more in (("LINEAR", [0, 0, 0]), ("POLY", [0.3, 0.5, 2]), ("RBF", [0.4, 0, 0]), ("SIGMOID", [0.2, 0.1, 0])):
        vectors = {"support_vectors": numbers(5, 4), "coefficients": numbers(5), "n_supports": 5, "rho": numbers(1)}
        check("SVMRegressor", x, kernel_type=kind, kernel_params=[float(v) for v in more], **vectors)
        check("SVMRegressor", x, kernel_type=kind, kernel_params=[float(v) for v in more], one_class=1, **vectors)
    check("SVMRegressor", x, coefficients=numbers(4), rho=numbers(1), kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0])
    check(
        "SVMClassifier", x, 2, support_vectors=numbers(6, 4), coefficients=numbers(2, 6), rho=numbers(3), vectors_per_class=[2, 2, 2],
        classlabels_ints=[0, 1, 2], kernel_type="RBF", kernel_params=[0.4, 0.0, 3.0], post_transform="NONE",
    )  # fmt: skip
    scores = RNG.random((5, 4)).astype(np.float32)
    check("LinearRegressor", scores, coefficients=[0.1, 0.2, 0.1, 0.3], intercepts=[0.05], post_transform="NONE")


def test_features():
    check("OneHotEncoder", np.array([3, 1, 9]), cats_int64s=[1, 3, 5])
    check("OneHotEncoder", np.array(["a", "c", "?"], object), cats_strings=["a", "b", "c"])
    check("CategoryMapper", np.array(["a", "?", "b"], object), cats_int64s=[4, 5], cats_strings=["a", "b"], default_int64=9)
    check("CategoryMapper", np.array([5, 4, 3]), cats_int64s=[4, 5], cats_strings=["a", "b"], default_string="none")
    m = model("ZipMap", np.zeros((2, 3), np.float32), classlabels_strings=["a", "b", "c"])
    (made,) = to_module(m).values([np.array([[1, 2, 3], [4, 5, 6]], np.float32)])
    assert made == [{"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 4.0, "b": 5.0, "c": 6.0}]
    text = model("OneHotEncoder", np.array(["a"], object), cats_strings=["a"])
    with pytest.raises((TraceError, Exception), match="text"):
        load(text)
    node = helper.make_node("FeatureVectorizer", ["a", "b"], ["y"], domain=ML, inputdimensions=[2, 3])
    ports = [helper.make_tensor_value_info(k, 1, [2, n]) for k, n in (("a", 2), ("b", 2))]
    g = helper.make_graph([node], "g", ports, [helper.make_empty_tensor_value_info("y")])
    a = np.array([[1, 2], [3, 4]], np.float32)
    made = to_module(helper.make_model(g, opset_imports=[helper.make_opsetid(ML, 1), helper.make_opsetid("", 18)]))(a, a)
    assert made.tolist() == [[1, 2, 1, 2, 0], [3, 4, 3, 4, 0]]
    for kind, form, want in (("TO_FLOAT", "DENSE", [[1.5, 2.5]]), ("TO_INT64", "SPARSE", [[0, 1, 0, 2]])):
        node = helper.make_node("CastMap", ["m"], ["y"], domain=ML, cast_to=kind, map_form=form, max_map=4)
        port = helper.make_value_info("m", helper.make_map_type_proto(7, helper.make_tensor_type_proto(1, None)))
        g = helper.make_graph([node], "g", [port], [helper.make_empty_tensor_value_info("y")])
        net = to_module(helper.make_model(g, opset_imports=[helper.make_opsetid(ML, 1), helper.make_opsetid("", 18)]))
        assert net({1: 1.5, 3: 2.5}).tolist() == want


@pytest.mark.parametrize("case", [c for c in onnx_cases.cases("simple") if "gradient" in c.name], ids=lambda c: c.name)
def test_gradients_as_nodes(case):
    onnx_cases.run(case)


def test_an_array_that_is_not_known_is_no_label():
    """Labels that are texts need the number of the class."""
    x = np.zeros((1, 4), np.float32)
    m = model("LinearClassifier", x, 2, coefficients=[0.0] * 12, intercepts=[0.0] * 3, classlabels_strings=["u", "v", "w"])
    with pytest.raises(TraceError, match="computed from the inputs"):
        load(m)
