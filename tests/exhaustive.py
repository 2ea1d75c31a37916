"""Which tests `make test` leaves to `make exhaustive`: those that repeat, for further dtypes, sizes, seeds, targets, networks or programs,
what a test holds that stays. Continuous integration runs both.

`exhaustive` marks a test, a parameter, or by `pytestmark` a file. Of the parameters of a test some stay with `but`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable

import pytest

exhaustive = pytest.mark.exhaustive


def but(first_of: str = "", every: int = 1) -> pytest.MarkDecorator:
    """A mark of a parametrised test: `make test` runs some of its parameters, and `make exhaustive` the others.

    Args:
        first_of: names of parameters, such as "op" or "op, name"; the first test of each of their values stays. By default all do.
        every: of those every n-th, beginning with the first.
    """
    return pytest.mark.exhaustive_but(first_of=[name.strip() for name in first_of.split(",")] if first_of else [], every=every)


def mark(items: Iterable[pytest.Item]) -> None:
    """Marks the tests that `but` leaves out. items: all that are collected, in their order."""
    met: dict[str, set] = defaultdict(set)
    counted: dict[str, int] = defaultdict(int)
    for item in items:
        rule = item.get_closest_marker("exhaustive_but")
        if rule is None:
            continue
        test, given = item.nodeid.split("[")[0], item.callspec.params
        values = tuple(v if isinstance(v := given[name], Hashable) else id(v) for name in rule.kwargs["first_of"])
        first = not values or values not in met[test]
        met[test].add(values)
        stays = first and counted[test] % rule.kwargs["every"] == 0
        counted[test] += first
        if not stays:
            item.add_marker(exhaustive)
