"""What messages say about names that are not there."""

import importlib
import re
import sys
import warnings

import pytest

import tengen
from tengen import functional as F
from tengen import module as M
from tengen.base.errors import UsageWarning
from tengen.base.other_names import NAMES
from tengen.tensor.pytorch_names import ELSEWHERE

CASES = [
    (lambda: tengen.nn, "module 'tengen' has no attribute 'nn'; help: here it is tengen.module"),
    (lambda: tengen.zeros, "here it is tengen.functional.zeros"),
    (lambda: tengen.funtional, "is it functional?"), (lambda: F.cat, "here it is concat"), (lambda: F.sofmax, "is it softmax"),
    (lambda: M.Conv2D, "is it Conv2d"), (lambda: M.MultiheadAttention, "MultiHeadAttention"),
    (lambda: tengen.allclose, "here it is tengen.functional.allclose"), (lambda: F.Linear, "here it is tengen.module.Linear"),
    (lambda: M.AdamW, "here it is tengen.optimizer.AdamW"), (lambda: tengen.vmap, "here it is tengen.autodiff.vmap"),
    (lambda: F.qqqqq, "module 'tengen.functional' has no attribute 'qqqqq'$"),
]  # fmt: skip


@pytest.mark.parametrize("call, words", CASES)
def test_the_nearest_name(call, words):
    with pytest.raises(AttributeError, match=words):
        call()


@pytest.mark.parametrize("owner", NAMES)
def test_the_table_names_what_is_not_here_by_what_is(owner):
    home = importlib.import_module(owner)
    assert not [n for n in NAMES[owner] if hasattr(home, n)], "these exist; take them out of the table"
    for text in NAMES[owner].values():
        name = text.removeprefix("the function ").partition("(")[0]
        name = name.partition(" ")[0] if name.startswith("tengen.") else name
        if name.startswith("tengen.") or (owner != "tengen" and name.replace(".", "").replace("_", "").isalnum()):
            value = tengen if name.startswith("tengen.") else home
            for part in name.removeprefix("tengen.").split("."):
                value = getattr(value, part)


ELSEWHERE_OF = {"ptp": "x.max", "storage": "x.numpy"}


def test_pytorchs_methods_that_are_not_here():
    x = tengen.Tensor([1.0])
    for name, words in ELSEWHERE_OF.items():
        assert not hasattr(x, name) and name not in dir(x)
        with pytest.raises(AttributeError, match=f"'Tensor' object has no attribute '{name}'; help: {words}|help: .*{words}"):
            getattr(x, name)
    for name in ELSEWHERE:
        assert name in vars(tengen.Tensor), name
    assert "reshape" in dir(x) and "numpy" in dir(x)


@pytest.mark.parametrize("make, wrong, near", [
    (lambda: tengen.Tensor([1.0]), "resape", "reshape"), (lambda: M.Linear(2, 2), "wieght", "weight"),
    (lambda: tengen.Parameter([1.0]), "nunpy", "numpy"),
])  # fmt: skip
def test_python_names_what_is_near(make, wrong, near, capsys):
    """Of objects Python itself does, when it prints the traceback, and `hasattr` takes no time for it."""
    try:
        getattr(make(), wrong)
    except AttributeError:
        sys.__excepthook__(*sys.exc_info())
    assert f"Did you mean: '{near}'?" in capsys.readouterr().err


def test_asking_for_a_name_takes_no_time_for_messages(monkeypatch):
    monkeypatch.setattr("tengen.base.lazy.nearest", lambda *_: pytest.fail("the nearest name was looked for"))
    assert not hasattr(tengen, "zeros") and getattr(F, "cat", 3) == 3


def test_what_is_said_of_methods_is_there():
    """Of names that are said to be functions: they are."""
    for name, text in ELSEWHERE.items():
        for function in re.findall(r"functional\.(\w+)", text):
            assert hasattr(F, function), (name, text)


COMMON = """zeros ones cat stack relu nn optim cuda no_grad manual_seed float32 compile from_numpy as_tensor vmap func arange where matmul
    einsum autograd concatenate allclose isclose equal randn_like rand_like array is_floating_point numel export jvp grad AdamW Dropout"""
COMMON_OF = {
    "tengen": (tengen, COMMON), "F": (F, "mse_loss smooth_l1_loss binary_cross_entropy_with_logits clamp cat unsqueeze masked_select Linear"),
    "M": (M, "MSELoss CrossEntropyLoss CosineSimilarity Hardtanh ConstantPad2d BatchNorm2D ParameterList InstanceNorm2d relu"),
    "x": (tengen.Tensor([1.0]), "clamp add_ zero_ cat unique norm type new_zeros masked_select nonzero tril isnan ravel data is_leaf"),
}  # fmt: skip


@pytest.mark.parametrize("owner", COMMON_OF)
def test_common_names_are_here_or_answered(owner):
    home, names = COMMON_OF[owner]
    assert sum(len(n.split()) for _, n in COMMON_OF.values()) >= 60
    for name in names.split():
        try:
            getattr(home, name)
        except AttributeError as e:
            assert "; help: " in str(e), e


def test_an_element_that_is_lost_is_said():
    """`x[i][j] = v` writes a tensor that nothing holds: views have values of their own."""
    x, net = tengen.functional.zeros((2, 3)), M.Linear(2, 2)
    many = [x]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UsageWarning)
        x[0] = 1.0
        x[0, 1] = 2.0
        x[0] += 1.0
        many[0][1] = 4.0
        net.weight[...] = 1.0
        for p in net.parameters():
            p[...] = 0.0
    if sys.version_info >= (3, 14):
        pytest.skip("Python 3.14 counts references of variables as those of nothing")
    with pytest.warns(UsageWarning, match=r"f32\[3\]: an element is set of a tensor that nothing else holds.*write x\[i, j\] = v"):
        x[1][1] = 5.0
    assert x.tolist() == [[2.0, 3.0, 2.0], [4.0, 4.0, 4.0]]
