"""Many small checks as one test: a test of its own costs pytest more than two milliseconds, in the worker and in the process that reports.

For checks of some milliseconds that need no fixtures and leave nothing behind. All cases are tried, and each that fails is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest


def each(names: str, cases: Iterable, ids: Callable[..., object] | None = None) -> Callable:
    """Decorates a test as `pytest.mark.parametrize` does, but the test calls the function with one case after the other.

    Args:
        names: the function's parameters. cases: a value for each call, or a tuple of them where there are several names; or what
            `pytest.param` gives. ids: what a value is called in the message.
    Errors: AssertionError that names each case that failed, with its error; the first one is its cause.
    """
    several, called = "," in names, ids or str
    wanted = []
    for case in cases:
        assert not getattr(case, "marks", ()), "a case has no marks"
        wanted.append(case.values if hasattr(case, "marks") else tuple(case) if several else (case,))
    assert wanted, f"no {names} to check"

    def decorated(test: Callable) -> Callable[[], None]:
        def every_case() -> None:
            failed = []
            for values in wanted:
                try:
                    test(*values)
                except (Exception, pytest.fail.Exception) as e:
                    failed.append((", ".join(str(called(v)) for v in values), e))
            if failed:
                lines = "\n".join(f"{name}: {type(e).__name__}: {e}" for name, e in failed)
                raise AssertionError(f"{len(failed)} of {len(wanted)} cases failed\n{lines}") from failed[0][1]

        every_case.__name__, every_case.__qualname__, every_case.__doc__ = test.__name__, test.__qualname__, test.__doc__
        every_case.__module__ = test.__module__
        return every_case

    return decorated
