"""A test of many cases tries all of them and names those that fail."""

import pytest
from each import each


@each("a, b", [(1, 1), pytest.param(2, 3, id="no"), (4, 4), ("x", None)])
def several(a, b):
    """What each case must hold."""
    assert a == b, "they differ"


@each("n", range(3), ids=lambda n: f"number {n}")
def one(n):
    if n == 1:
        with pytest.raises(ValueError):
            int("1")  # does not raise
    assert n != 2


def test_all_that_fails_is_named():
    with pytest.raises(AssertionError) as e:
        several()
    lines = str(e.value).splitlines()
    assert lines[0] == "2 of 4 cases failed" and lines[1].startswith("2, 3: AssertionError: they differ"), lines
    assert any(line.startswith("x, None: ") for line in lines) and "1, 1" not in str(e.value)
    assert several.__name__ == "several" and several.__doc__ == "What each case must hold."
    with pytest.raises(AssertionError, match="2 of 3 cases failed\nnumber 1: Failed: DID NOT RAISE ValueError.*\nnumber 2: "):
        one()


def test_without_cases_there_is_no_test():
    with pytest.raises(AssertionError, match="no n to check"):
        each("n", [])
