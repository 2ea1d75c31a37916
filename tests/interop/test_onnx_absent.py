"""Nodes without one of their inputs (the name ""): an input that has to be there is refused by its name, one that is optional is what the
standard says without it, or is asked for by a node's error. Every single node of the cases of `onnx.backend.test` loses each input in turn."""

import copy
import functools

import numpy as np
import onnx
import pytest
from onnx import helper, parser
from onnx.defs import OpSchema
from onnx.reference import ReferenceEvaluator
from onnx_cases import DRAWN, _arrays, cases, compare, data_of, model_of

from tengen.base.errors import FileFormatError, TengenError
from tengen.interop.onnx import to_module
from tengen.interop.onnx.ops import OPS
from tengen.interop.onnx.ops.shapes import shape_of
from tengen.interop.onnx.values import as_array, element_type

Options = OpSchema.FormalParameterOption
ASKS = {"LinearAttention"}  # whose rule of updates says which optional inputs are read
# onnx's evaluator fails without it
NO_REFERENCE = {("DFT", 2), ("Dropout", 1), ("Loop", 1), ("NonMaxSuppression", 2), ("NonMaxSuppression", 3)}
ENDLESS = ("Loop", 0)  # the cases' bodies always go on: without a number of steps they have no end


@functools.cache
def dropped():
    """(case, op, position, name of the input, whether it is optional, model without it), once for each set of attributes."""
    found, seen = [], set()
    for c in cases():
        m = model_of(c)
        n = m.graph.node[0]
        try:
            s = onnx.defs.get_schema(n.op_type, {o.domain: o.version for o in m.opset_import}.get(n.domain, 1), n.domain)
        except onnx.defs.SchemaError:
            continue
        if len(m.graph.node) > 1:
            continue
        for i, name in enumerate(n.input):
            p = s.inputs[min(i, len(s.inputs) - 1)]
            key = n.domain, n.op_type, i, len(n.input), tuple(sorted(a.name for a in n.attribute))
            if name and key not in seen and p.option != Options.Variadic:
                seen.add(key)
                without = copy.deepcopy(m)
                without.graph.node[0].input[i] = ""
                found.append((c, n.op_type, i, p.name, p.option == Options.Optional, without))
    return found


def test_inputs_that_are_not_optional():
    needed = [d for d in dropped() if not d[4]]
    assert len({d[1] for d in needed}) > 150
    for c, op, _, name, _, m in needed:
        with pytest.raises(FileFormatError, match=f"^{op} .* misses the input '{name}', which is not optional$"):
            to_module(m)
            pytest.fail(f"{c.name}: {op} without {name}")


@pytest.mark.filterwarnings("ignore:the seed of")
@pytest.mark.parametrize("at", range(4))
def test_inputs_that_are_optional(at):
    optional = [d for d in dropped() if d[4] and d[1:3] != ENDLESS]
    assert len({d[1] for d in optional}) > 25
    for c, op, i, name, _, m in optional[at::4]:
        ins, _ = data_of(c, model_of(c))[0]
        reference = lambda m=m, ins=ins: ReferenceEvaluator(m).run(None, {p.name: a for p, a in zip(m.graph.input, ins)})
        try:
            got = [_arrays(v) for v in to_module(m).eval().values(ins)]
        except (TengenError, TypeError, ValueError, IndexError) as e:
            assert any(f"in the ONNX node (without a name): {op}(" in note for note in e.__notes__), f"{c.name}: {op} without {name}: {e!r}"
            if op not in ASKS:  # what is left does not fit together, for onnx's evaluator either
                with pytest.raises((ValueError, TypeError, IndexError, RuntimeError)):
                    reference()
            continue
        if (op, i) not in NO_REFERENCE:
            want = reference()
            for a, b in zip(got, want, strict=True):
                compare(a, b, c.rtol, c.atol, any(word in c.name for word in DRAWN))


def test_a_fourier_transform_without_its_axis():
    """It is the last one but one (of complex numbers, which are pairs along the last)."""
    m = parser.parse_model('<ir_version: 8, opset_import: ["": 20]> net (float[2, 3, 5, 1] x) => (float[2, 3, 5, 2] y) { y = DFT(x, , ) }')
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 1)).astype(np.float32)
    want = np.fft.fft(x[..., 0].astype(np.float64), axis=2)
    np.testing.assert_allclose(to_module(m)(x).numpy(), np.stack([want.real, want.imag], -1), atol=1e-5)


def test_ops_that_are_newer_than_the_opset():
    """They are what the first opset that has them says: as many inputs, and its defaults."""
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    for op, first, takes in (("Erf", 9, "1"), ("Range", 11, "3"), ("Softmax", 1, "1"), ("Gelu", 20, "1"), ("QuantizeLinear", 10, "2 to 3")):
        g = helper.make_graph([helper.make_node(op, [], ["y"], "n")], "g", [x], [onnx.ValueInfoProto(name="y")])
        for opset in {7, first - 1, first} - {0}:
            with pytest.raises(FileFormatError, match=rf"{op} \('n'\) has 0 inputs; the op takes {takes}$"):
                to_module(helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)]))
    m = parser.parse_model('<ir_version: 8, opset_import: ["": 13]> net (float[3, 3] x) => (float[3, 3] y) { y = Trilu(x) }')
    given = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
    assert np.array_equal(to_module(m)(given).numpy(), np.triu(given))


def test_too_few_inputs_and_too_many():
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    for names, takes in ((["x"], "2"), (["x"] * 3, "2")):
        g = helper.make_graph([helper.make_node("Add", names, ["y"], "sum")], "g", [x], [onnx.ValueInfoProto(name="y")])
        with pytest.raises(FileFormatError, match=rf"Add \('sum'\) has {len(names)} inputs; the op takes {takes}$"):
            to_module(helper.make_model(g))


def test_nodes_without_outputs():
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    s = helper.make_tensor("s", onnx.TensorProto.FLOAT, [], [0.1])
    nodes = [helper.make_node("QuantizeLinear", ["x", "s"], ["q"]), helper.make_node("DequantizeLinear", ["q", "s"], ["y"])]
    nodes.append(helper.make_node("QuantizeLinear", ["y", "s"], [], "last"))
    g = helper.make_graph(nodes, "g", [x], [onnx.ValueInfoProto(name="y")], [s])
    for opset in (13, 2):  # which has none of these ops
        with pytest.raises(FileFormatError, match=r"QuantizeLinear \('last'\) has 0 outputs; the op has 1 or more"):
            to_module(helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)]))


def test_operators_of_other_vendors():
    """No standard says which of their inputs are optional: each one that computes without an input does so on purpose, or asks for it."""
    x = np.ones((1, 2, 4), np.float32)
    for op in sorted(k for k in OPS if k.startswith("com.microsoft.")):
        n = helper.make_node(op.removeprefix("com.microsoft."), ["", "", "", "", "", "", "", "", ""], ["y"], domain="com.microsoft")
        g = helper.make_graph([n], "g", [helper.make_tensor_value_info("x", 1, x.shape)], [onnx.ValueInfoProto(name="y")])
        with pytest.raises((TypeError, ValueError, KeyError, FileFormatError, TengenError)) as e:
            to_module(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]))(x)
        assert str(e.value)


def test_values_that_have_no_shape_or_dtype():
    for v in (None, [], {}):
        for f in (shape_of, element_type, as_array):
            with pytest.raises(TypeError, match="a tensor is needed, this is (absent|list|dict)$"):
                f(v)
