"""How much processor time each test takes: `pytest --processor-time 10` lists the ten that take the most, with the sums of those that
`make test` runs and of the exhaustive ones (`exhaustive.py`).

What other tests do on the machine hardly counts, as it does with the time of a clock. Children count once they have ended and were waited for;
fixtures count for the test that makes them. With an empty cache a test's programs are compiled, mostly by the first one that needs them.
"""

from __future__ import annotations

import resource

import pytest


def used() -> float:
    """Seconds of this process, its threads and its children so far."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(f.ru_utime + f.ru_stime for f in found)


class Measuring:
    """Tells each test's time with its report, in the process that runs it."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        self.start = used()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if call.when == "teardown":
            exhaustive = item.get_closest_marker("exhaustive") is not None
            report.user_properties.append(("processor time", (used() - self.start, exhaustive)))
        return report


class Listing:
    """Prints the list, in the process that reports. most: how many tests."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.found: dict[str, tuple[float, bool]] = {}

    def pytest_runtest_logreport(self, report) -> None:
        for name, value in report.user_properties:
            if name == "processor time" and report.when == "teardown":
                self.found[report.nodeid] = tuple(value)

    def pytest_terminal_summary(self, terminalreporter) -> None:
        stay, left = ([s for s, exhaustive in self.found.values() if exhaustive is which] for which in (False, True))
        head = f"processor time: {sum(stay):.1f} s of {len(stay)} tests that `make test` runs, {sum(left):.1f} s of {len(left)} exhaustive ones"
        terminalreporter.section(head)
        for test, (seconds, exhaustive) in sorted(self.found.items(), key=lambda item: -item[1][0])[: self.most]:
            terminalreporter.write_line(f"{seconds:8.2f} s  {test}{'  (exhaustive)' * exhaustive}")
