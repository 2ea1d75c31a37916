"""How ops are defined: what is said of one is checked where it is said, and is all that there is to say."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import every_op
import pytest
from each import each
from mutations import bases

import tengen.functional as F
import tengen.ops
from tengen import Tensor
from tengen.base.errors import TengenError
from tengen.ops.batching import RULES
from tengen.ops.define import REGISTRY, SUBMODULES, Op, Rules, composite, elementwise, lookup, primitive
from tengen.ops.names import IN_FUNCTIONAL, ON_TENSOR, OPS
from tengen.tensor.methods import names_on_tensor

MEANINGS = ("source", "view", "lower", "lower_values", "epilogue")


# ---- rules ---------------------------------------------------------------------------------------------------------------


def test_a_rule_that_there_is_not_cannot_be_given():
    op = REGISTRY["relu"]
    with pytest.raises(AttributeError, match="knwon"):
        op.knwon(lambda arrays, **attrs: set())
    with pytest.raises(AttributeError, match="knwon"):
        op.rules.knwon = lambda arrays, **attrs: set()
    with pytest.raises(TypeError, match="knwon"):
        Rules(knwon=lambda arrays, **attrs: set())


@each("name", [f.name for f in fields(Rules)])
def test_each_rule_has_its_decorator(name):
    op = Op.__new__(Op)
    op.rules, op.kind = Rules(), "primitive"
    given = {"over": {0: 1}, "same": op}.get(name, len)
    if name == "typed":
        op.typed(2, 3)
        given = (2, 3)
    else:
        assert getattr(op, name)(given) in (given, None)
    assert (op.computed_over({}) if name == "over" else getattr(op.rules, name)) == given
    assert [f.name for f in fields(Rules) if getattr(op.rules, f.name) != getattr(Rules(), f.name)] == [name]
    assert getattr(Op, name).__doc__


@each("op", every_op.ops(), ids=lambda op: op.name)
def test_an_op_means_one_thing(op):
    given = [name for name in MEANINGS if getattr(op.rules, name) is not None]
    assert len(given) == (op.kind in ("elementwise", "primitive", "view")), given
    assert (op.kind == "view") == (given == ["view"])
    reduces = given == ["lower_values"] and op.name not in ("complex", "concat")  # which store several values at each place
    assert (op.rules.reduced is not None) == reduces
    assert (op.rules.infer is not None) == bool(given)
    assert op.rules.checks is None or op.rules.check is not None
    assert op.rules.vjp is None or op.rules.same is None


LEADING = {  # how many arguments a rule gets before the attributes
    "source": 2, "view": 2, "lower": 3, "lower_values": 3, "epilogue": 4, "reduced": 2, "read_over": 1, "prologue": 1, "layout": 2,
    "parts": 1, "known": 1, "identity": 2, "check": 1,
}  # fmt: skip


@each("op", every_op.ops(where=lambda op: op.rules.infer is not None), ids=lambda op: op.name)
def test_rules_take_the_attributes(op):
    """Each rule can be called with the attributes by name; a misspelt parameter is found before a program asks that rule."""
    types, attrs = bases(op)[0]
    for name, leading in LEADING.items():
        if (rule := getattr(op.rules, name)) is not None:
            inspect.signature(rule).bind(*[None] * leading, **attrs)
    inspect.signature(op.rules.infer).bind(*types, **attrs)
    if op.rules.canon is not None:
        inspect.signature(op.rules.canon).bind(types, **dict.fromkeys(op.attrs))
    if op.rules.vjp is not None:
        inspect.signature(op.rules.vjp).bind(None, *types, **attrs, **({"out": None} if op.saves_output else {}))


# ---- what else is said ---------------------------------------------------------------------------------------------------


def body(x: Tensor, y: Tensor, power: float = 2.0):
    """Not an op yet."""
    return x


WRONG = {
    "misspelt": ({"functoinal": "nn"}, TypeError, "functoinal"),
    "no submodule": ({"functional": "mn.body"}, TengenError, "tengen.functional.mn holds no ops; help: one of elemwise, math"),
    "no precision": ({"autocast": "hihg"}, TengenError, "autocast='hihg' must be 'low', 'high' or None"),
    "no operator": ({"operator": "__add__"}, TengenError, "Python has no operator '__add__'; help: a special method without"),
    "no attribute": ({"older": {"pwoer": 1.0}}, TengenError, "has no attribute 'pwoer', only ('power',)"),
    "a function of another": ({"functional": "math.sum"}, TengenError, "tengen.functional.math.sum is the op 'sum' already"),
    "a method of another": ({"methods": "mean"}, TengenError, "Tensor.mean is the op 'mean' already"),
    "an operator of another": ({"operator": "add"}, TengenError, "Tensor.__add__ is the op 'add' already"),
    "a method that is there": ({"methods": "numpy"}, TengenError, "Tensor.numpy is something else already"),
    "a function that is there": ({"functional": "nn.conv2d"}, TengenError, "conv2d is something else already"),
}


@pytest.mark.parametrize("define", [primitive, elementwise, composite])
@pytest.mark.parametrize("said, error, message", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_at_the_definition(define, said, error, message):
    before = dict(REGISTRY)
    with pytest.raises(error) as e:
        define(**said)(body)
    assert message in str(e.value) and REGISTRY == before


def test_a_definition_that_fails_leaves_nothing():
    with pytest.raises(TengenError, match="is something else already"):
        primitive(methods="body", functional="elemwise math.norm")(body)
    assert not hasattr(Tensor, "body") and not hasattr(F, "body") and "body" not in vars(F.elemwise)


def test_an_op_is_defined_once():
    with pytest.raises(TengenError, match="'sum' is defined twice"):
        Op(body, "primitive", "sum")


@each("op", every_op.ops(), ids=lambda op: op.name)
def test_users_find_what_is_said(op):
    for submodule, name in op.functional:
        assert getattr(getattr(F, submodule), name) is getattr(F, name) is op.call
    for name in op.methods:
        assert inspect.unwrap(getattr(Tensor, name)) is inspect.unwrap(op.call)  # a few look first how PyTorch reads the call
    assert not op.operator or f"__{op.operator}__" in vars(Tensor)


@pytest.mark.parametrize("submodule", SUBMODULES)
def test_every_submodule_that_holds_ops_takes_them(submodule):
    assert any(submodule == place for op in every_op.ops() for place, _ in op.functional)
    assert {n for op in every_op.ops() for place, n in op.functional if place == submodule} <= {*getattr(F, submodule).__all__}


@pytest.mark.parametrize("name", ["sum", "relu", "mul.d0_1"])
def test_an_op_is_its_name_elsewhere(name):
    op = lookup(name)
    assert pickle.loads(pickle.dumps(op)) is op and copy.deepcopy([op])[0] is op


# ---- one place -----------------------------------------------------------------------------------------------------------

ONE_PLACE = """
import numpy as np
from tengen.loops import lang
from tengen.ops.define import Case, elementwise
BEFORE


@elementwise(result="float", functional="elemwise nn.squareplus", methods="squareplus", autocast="high")
def softer(x, b: float = 4.0):
    '''(x + sqrt(x^2 + b)) / 2.'''
    return (x + lang.unary("sqrt", x * x + b)) * 0.5


import tengen
from tengen import Tensor, amp, autodiff, load_graph, trace
import tengen.functional as F

numbers = np.linspace(-3, 3, 21).astype("float32")
want, slope = (numbers + np.sqrt(numbers**2 + 4)) / 2, (1 + numbers / np.sqrt(numbers**2 + 4)) / 2
x = Tensor(numbers)
eager = F.softer(x).numpy()
np.testing.assert_allclose(eager, want, rtol=1e-6)
for other in (F.elemwise.softer, F.nn.squareplus, F.squareplus, Tensor.squareplus, trace(lambda t: t.squareplus())):
    assert other(x).numpy().tobytes() == eager.tobytes()
np.testing.assert_allclose(autodiff.grad(lambda t: F.softer(t).sum())(x).numpy(), slope, rtol=1e-5)
np.testing.assert_allclose(trace(autodiff.grad(lambda t: t.squareplus().sum()))(x).numpy(), slope, rtol=1e-5)
with amp.autocast():
    assert F.softer(x.astype("float16")).dtype.name == "float32" and F.relu(x.astype("float16")).dtype.name == "float16"
run = trace(F.softer)
run(x)
run.dump("softer.tgn", arg_names=["x"])
assert load_graph("softer.tgn")(x=x).numpy().tobytes() == eager.tobytes()
print("done")
"""


@pytest.mark.parametrize("before", ["", "import tengen.functional"], ids=["functional later", "functional before"])
def test_a_definition_is_one_place(before, tmp_path):
    """An op that is defined in one place is a function, a method, traced, differentiated, in files and under autocast."""
    p = subprocess.run([sys.executable, "-c", ONE_PLACE.replace("BEFORE", before)], capture_output=True, text=True, cwd=tmp_path)
    assert p.stdout == "done\n", p.stderr


def test_where_each_op_is_defined_is_written_down():
    """Nothing else finds an op whose file is not loaded. `docs/generate.py` writes the tables, of all files of the folder."""
    folder = Path(tengen.ops.__file__).parent
    decorator = r"^@(elementwise|primitive|composite|shorthand)(\(|$)"  # `@elementwise.abs.complex` is a rule of an op of that module
    defining = {f.stem for f in folder.glob("*.py") if re.search(decorator, f.read_text(), re.M)}
    assert defining == {*OPS}, "help: run python docs/generate.py"
    ours = [op for op in REGISTRY.values() if "." not in op.name and op.fn.__module__.startswith("tengen.ops.")]
    assert {op.name: op.fn.__module__ for op in ours} == {name: f"tengen.ops.{f}" for f, names in OPS.items() for name in names.split()}
    assert {n: op.name for op in ours for n in names_on_tensor(op)} == ON_TENSOR
    for submodule in SUBMODULES:
        assert {n: op.name for op in ours for s, n in op.functional if s == submodule} == IN_FUNCTIONAL[submodule]
    held_by_no_graph = {op.kind for op in ours if op.fn.__module__ == "tengen.ops.statistics"}
    assert held_by_no_graph == {"shorthand"}


def test_rules_of_examples_name_ops():
    assert RULES.keys() <= REGISTRY.keys()


FIRST_NAMED = """
import pickle, sys
import tengen
from tengen import Parameter, Tensor
from tengen.ops.define import REGISTRY, lookup

def loaded(family):
    return f"tengen.ops.{family}" in sys.modules

x = Tensor([[3.0, 1.0], [2.0, 4.0]])
for family, ask, want in [
    ("logic", lambda: (x > 2).tolist(), [[True, False], [False, True]]),
    ("contract", lambda: (x @ x).tolist(), [[11.0, 7.0], [14.0, 18.0]]),
    ("ordering", lambda: Parameter(x).argsort(axis=1).tolist(), [[1, 0], [0, 1]]),
    ("division", lambda: Tensor.__pow__(x, 2).tolist(), [[9.0, 1.0], [4.0, 16.0]]),
    ("activation", lambda: tengen.functional.relu(-x).max().item(), 0.0),
    ("vision_color", lambda: lookup("cvt_color").name, "cvt_color"),
    ("fourier", lambda: pickle.loads(pickle.dumps(REGISTRY["dft"])) is REGISTRY["dft"], True),
    ("quantized", lambda: "conv_int" in REGISTRY and REGISTRY.get("conv_int").name, "conv_int"),
    ("recurrent", lambda: REGISTRY["lstm"].name, "lstm"),
]:
    assert not loaded(family), family
    assert (got := ask()) == want, (family, got)
    assert loaded(family), family
assert "no such op" not in REGISTRY and REGISTRY.get("no such op") is None and not loaded("ctc")
assert len(REGISTRY) > 300 and loaded("ctc") and sorted(REGISTRY) == sorted(REGISTRY.keys()) == sorted(op.name for op in REGISTRY.values())

class Loud(Tensor):
    def sum(self, axis=None):
        return "loud", super().sum(axis).item()

print(Loud([1.0, 2.0]).sum())
"""


def test_a_family_is_loaded_when_one_of_its_ops_is_first_named(tmp_path):
    p = subprocess.run([sys.executable, "-c", FIRST_NAMED], capture_output=True, text=True, cwd=tmp_path)
    assert p.stdout == "('loud', 3.0)\n", p.stderr


SUBCLASS = """
from tengen import Tensor

class Loud(Tensor):
    def sort(self, axis=-1):
        return "loud", super().sort(axis=axis)[0].tolist()

print(Loud([2.0, 1.0]).sort(), Tensor([2.0, 1.0]).sort(axis=-1)[0].tolist())
"""


def test_a_subclass_asks_first_for_the_method_that_it_overrides(tmp_path):
    """What loads the family must not ask the subclass again."""
    p = subprocess.run([sys.executable, "-c", SUBCLASS], capture_output=True, text=True, cwd=tmp_path)
    assert p.stdout == "('loud', [1.0, 2.0]) [1.0, 2.0]\n", p.stderr


TAKEN = """
import tengen
from tengen import functional as F
from tengen.base.errors import TengenError
from tengen.ops.define import elementwise

def clash(**said):
    try:
        @elementwise(**said)
        def surely_not_there(x):
            return x
    except TengenError as e:
        return str(e).partition(":")[2].strip()

print(clash(functional="math.sum"))
print(clash(functional="vision.cvt_color"))
print(clash(methods="argsort"))
print(clash(functional="math.cdist"))
def ctc(x): return x
try: elementwise(ctc)
except TengenError as e: print(e)
"""


def test_a_name_of_an_op_that_is_not_loaded_is_taken(tmp_path):
    p = subprocess.run([sys.executable, "-c", TAKEN], capture_output=True, text=True, cwd=tmp_path)
    assert p.stdout.splitlines() == [
        "tengen.functional.math.sum is the op 'sum' already",
        "tengen.functional.vision.cvt_color is the op 'cvt_color' already",
        "Tensor.argsort is the op 'argsort' already",
        "tengen.functional.cdist is something else already; help: another name in `functional`",
        "op 'ctc' is defined twice",
    ], p.stderr  # fmt: skip


def test_an_exclusion_names_an_op():
    assert {op.name for op in every_op.ops()} - {op.name for op in every_op.ops({"lstm": "why"})} == {"lstm"}
    with pytest.raises(AssertionError, match="no ops of Tengen: .'no_such'"):
        every_op.ops({"no_such": "why"})
