"""What the rules of an op accept is safe to run: operands and attributes of every op that a file may name, changed by chance.

MUTATIONS=1000 looks at so many changes of each op; `python tests/ops/mutations.py` prints what came of them.
"""

import os

import pytest
from exhaustive import but
from mutations import LONG, bases, hunt, ops

import tengen.tensor.host  # noqa: F401  (its op calls Python)
from tengen.base.errors import TengenError, VerifyError
from tengen.deploy.loader import derived_types
from tengen.ir.types import TensorType, parse_type
from tengen.loops.lang import var
from tengen.ops.attributes import kind, same
from tengen.ops.define import REGISTRY, lookup

MANY = int(os.environ.get("MUTATIONS", 0))


@but(every=4)
@pytest.mark.parametrize("name", ops())
def test_what_is_accepted_is_safe(name):
    few = LONG.get(name, 6 if lookup(name).kind == "elementwise" else 24)
    found = list(hunt(name, range(MANY or few)))
    bad = [wrong for _, wrong in found if wrong]
    assert not bad, "\n".join(bad)
    assert "ran" in {what for what, _ in found}


def test_ops_that_do_more_than_compute_stand_in_no_file():
    acting = {name for name, op in REGISTRY.items() if op.rules.effect}
    assert {"host_call", "page_in", "page_out"} <= acting and not acting & set(ops())
    for name in acting:
        with pytest.raises(VerifyError, match="does not stand in files"):
            derived_types(name, [], {})


def test_every_attribute_declares_what_it_may_be():
    bare = [(n, a) for n, op in REGISTRY.items() if n in ops() or "." not in n for a in op.attrs if op.kinds.get(a) is None]
    assert not bare
    assert lookup("elu.d0").kinds == REGISTRY["elu"].kinds


def test_rules_of_open_extents_answer_or_say_why_not():
    """Extents above 1 as symbols, equal ones alike: a rule derives a type, or refuses, or says that only a run can tell."""
    accepted = 0
    symbols: dict = {}
    for name in ops():
        op = lookup(name)
        for types, attrs in bases(op):
            extent = lambda d: d if d < 2 else symbols.setdefault(d, var(f"n{d}"))
            named = [None if t is None else TensorType([extent(d) for d in t.shape], t.dtype) for t in types]
            try:
                op.infer_types(named, op.canonical(named, tuple(attrs.values())))
                accepted += 1
            except TengenError as e:
                assert "does not take these arguments (" not in str(e)
    assert accepted > 300


# ---- the hunt sees what it is for --------------------------------------------------------------------------------------


def defects(name: str) -> str:
    return "\n".join(wrong for _, wrong in hunt(name, range(60)))


def test_an_incomplete_rule_is_found(monkeypatch):
    monkeypatch.setattr(REGISTRY["index"].rules, "infer", lambda *types, axes, position: TensorType((2, 2), types[-1].dtype))
    assert "is outside buffer" in defects("index") or "IndexError" in defects("index")


def test_an_operand_that_is_too_short_is_found(monkeypatch):
    rule = REGISTRY["matmul"].rules.infer

    def short(x, y, **attrs):  # the inner extents may differ
        y = TensorType((x.shape[-1], y.shape[-1]), y.dtype) if x.ndim == y.ndim == 2 else y
        return rule(x, y, **attrs)

    monkeypatch.setattr(REGISTRY["matmul"].rules, "infer", short)
    assert "is outside buffer" in "\n".join(wrong for _, wrong in hunt("matmul", range(200)))


def test_memory_that_nobody_wrote_is_found(monkeypatch):
    monkeypatch.setattr(REGISTRY["cumsum"].rules, "lower", lambda *args, **attrs: None)
    assert "depend on what memory held" in defects("cumsum")


def test_a_rule_that_fails_is_found(monkeypatch):
    monkeypatch.setattr(REGISTRY["cumsum"].rules, "canon", lambda types, axis, **more: {"axis": [0][axis], **more})
    assert "a rule failed" in defects("cumsum")


# ---- what an attack found ----------------------------------------------------------------------------------------------

RESULT = "f32[1,64,32]"
ATTENTION = (RESULT,) * 3
PLAIN = {"scale": 1.0, "causal": "none"}
REFUSED = [
    ("attention_grad", ("f32[1,1,1]", None, *ATTENTION, None, RESULT, "f32[1,1]"), PLAIN),
    ("attention_grad", (RESULT, "f32[1,1]", *ATTENTION, None, RESULT, "f32[1,64]"), PLAIN),
    ("attention_grad", (RESULT, None, *ATTENTION, None, RESULT, "f32[1,64]"), PLAIN | {"causal": "edge"}),
    ("lstm_grad", ("f32[3,3000,3000]", None, None, "f32[4,1]", "f32[3,3000,3000]", "f32[2,1,4]"), {"reverse": False}),
    ("lstm_grad", (None, None, None, "f32[4,1]", "f32[2,1,1]", "f32[2,1,4]"), {"reverse": False}),
    ("index", ("i64[1]", "f32[2,60000000,2]"), {"axes": (1,), "position": -2}),
    ("index", ("i64[1]", "f32[2,6,2]"), {"axes": (1,), "position": 3}),
    ("index", ("f32[2,6,2]",), {"axes": (), "position": 0}),
    ("index_put", ("i64[1]", "f32[2,6,2]", "f32[]"), {"axes": (1,), "position": -1, "mode": "set"}),
    ("index_put", ("i64[1]", "f32[2,6,2]", "f32[]"), {"axes": (1,), "position": 1, "mode": "se+t"}),
    ("k_first", ("f32[2,6]",), {"k": 3.0, "descending": True, "axis": 1}),
    ("k_first", ("f32[2,6]",), {"k": True, "descending": True, "axis": 1}),
    ("k_first", ("f32[2,6]",), {"k": 3, "descending": 1, "axis": 1}),
    ("sum", ("f32[2,6]",), {"axes": (1.0,), "keepdims": False}),
    ("sum", ("f32[2,6]",), {"keepdims": False, "axis": (1,)}),
    ("astype", ("f32[2]",), {"dtype": "int8"}),
    ("leaky_relu.d0", ("f32[2]", "f32[2]"), {"negative_slope": "x"}),
    ("broadcast_to", ("f32[]",), {"shape": (1 << 62, 4)}),
]


@pytest.mark.parametrize("name, types, attrs", REFUSED, ids=lambda v: v if isinstance(v, str) else "")
def test_files_that_are_refused(name, types, attrs):
    with pytest.raises(VerifyError, match=name):
        derived_types(name, [None if t is None else parse_type(t) for t in types], attrs)


NO_GRADIENTS = ["floor_div.d0", "bitwise_not.d0", "exp.d0_00", "mul.d0_0", "mul.d0_9", "relu.d1", "relu.d", "exp" + ".d0" * 9]
NO_GRADIENTS += ["leaky_relu.d0.d0_0"]  # it takes no x, on which the slope depends


@pytest.mark.parametrize("name", NO_GRADIENTS)
def test_gradients_that_there_are_not(name):
    with pytest.raises(TengenError, match="no op named"):
        lookup(name)


def test_attributes_are_compared_by_type():
    assert same((1, (2.0, None)), (1, (2.0, None))) and same(float("nan"), float("nan"))
    for a, b in ((1, 1.0), (1, True), (0.0, -0.0), ((1,), (1.0,)), ((1,), (1, 1)), ("a", None), ((), None)):
        assert not same(a, b)


def test_steps_of_any_size_where_none_is_taken():
    import tengen

    x = tengen.Tensor([1.0, 2.0, 3.0])
    assert x[:: 10**17].tolist() == [1.0] and x[1:2:-(10**17)].tolist() == [] and x[2:: -(10**17)].tolist() == [3.0]


def test_kinds_name_what_they_take():
    for note, text in {
        "Positives": "a positive int or a sequence of them",
        "int | Sequence[int] | None": "an int or a sequence of them or None",
        "Literal['a', 'b']": "one of 'a', 'b'",
        "float | bool": "a number or a bool",
    }.items():
        assert kind(note).text == text
