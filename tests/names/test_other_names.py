"""What messages say about names that are not there."""

import importlib

import pytest

import tengen
from tengen import functional as F
from tengen import module as M
from tengen.base.other_names import NAMES

CASES = [
    (lambda: tengen.nn, "module 'tengen' has no attribute 'nn'; help: here it is tengen.module"),
    (lambda: tengen.zeros, "here it is tengen.functional.zeros"),
    (lambda: tengen.funtional, "is it functional?"), (lambda: F.cat, "here it is concat"), (lambda: F.sofmax, "is it softmax"),
    (lambda: M.Conv2D, "is it Conv2d"), (lambda: M.CrossEntropyLoss, "tengen.functional.loss.cross_entropy"),
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
        if name.startswith("tengen.") or (owner != "tengen" and name.replace(".", "").replace("_", "").isalnum()):
            value = tengen if name.startswith("tengen.") else home
            for part in name.removeprefix("tengen.").split("."):
                value = getattr(value, part)


def test_asking_for_a_name_takes_no_time_for_messages(monkeypatch):
    monkeypatch.setattr("tengen.base.lazy.nearest", lambda *_: pytest.fail("the nearest name was looked for"))
    assert not hasattr(tengen, "zeros") and getattr(F, "cat", 3) == 3
