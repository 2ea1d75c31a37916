"""Which tests `make test` leaves to `make exhaustive`: those that repeat, for further dtypes, sizes, seeds, targets, networks or programs,
what a test holds that stays. Continuous integration runs both.

`exhaustive` marks a test, a parameter, or by `pytestmark` a file. Of the parameters of a test some stay with `but`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable

import pytest

exhaustive = pytest.mark.exhaustive


def but(first_of: str = "", every: int = 1, these: Iterable[str] = ()) -> pytest.MarkDecorator:
    """A mark of a parametrised test: `make test` runs some of its parameters, and `make exhaustive` the others.

    Args:
        first_of: names of parameters, such as "op" or "op, name"; the first test of each of their values stays. By default all do.
        every: of those every n-th, beginning with the first.
        these: only tests that have one of these words in their brackets, between hyphens. By default all.
    """
    names = [name.strip() for name in first_of.split(",")] if first_of else []
    return pytest.mark.exhaustive_but(first_of=names, every=every, these=[*these])


def mark(items: Iterable[pytest.Item]) -> None:
    """Marks the tests that `but` leaves out. items: all that are collected, in their order."""
    met: dict[str, set] = defaultdict(set)
    counted: dict[str, int] = defaultdict(int)
    for item in items:
        rule = item.get_closest_marker("exhaustive_but")
        if rule is None:
            continue
        if not hasattr(item, "callspec"):
            raise pytest.UsageError(f"{item.nodeid} has no parameters, of which `but` could leave out some")
        test, given = item.nodeid.split("[")[0], item.callspec.params
        first_of, every, these = (rule.kwargs[name] for name in ("first_of", "every", "these"))
        values = tuple(v if isinstance(v := given[name], Hashable) else id(v) for name in first_of)
        named = not these or any(f"-{word}-" in f"-{item.callspec.id}-" for word in these)
        candidate = named and (not first_of or values not in met[test])
        met[test].add(values)
        stays = candidate and counted[test] % every == 0
        counted[test] += candidate
        if not stays:
            item.add_marker(exhaustive)
