"""What each test makes LLVM compile: `pytest --compiling 10` lists the ten tests that compile the most, in characters of LLVM IR.

Times differ by machine and by what else runs; this does not. A test counts what is not in the cache, so an empty TENGEN_CACHE_DIR
shows all of it. What other processes compile (helpers of large modules, children that tests start) is not counted.
"""

from __future__ import annotations

import pytest

from tengen.runtime import compile as compiler


class Compiling:
    """Counts modules and characters of each test, in the process that runs it."""

    def __init__(self) -> None:
        self.modules = self.characters = 0
        compile_module = compiler._optimised

        def counted(ir_text, target, level):
            self.modules += 1
            self.characters += len(ir_text)
            return compile_module(ir_text, target, level)

        compiler._optimised = counted

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        before = self.modules, self.characters
        self.start = before
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if call.when == "teardown":  # fixtures count for the test that makes them
            report.user_properties.append(("compiled", (self.modules - self.start[0], self.characters - self.start[1])))
        return report


class Listing:
    """Prints the list, in the process that reports. most: how many tests."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.found: dict[str, tuple[int, int]] = {}

    def pytest_runtest_logreport(self, report) -> None:
        for name, value in report.user_properties:
            if name == "compiled" and report.when == "teardown":
                self.found[report.nodeid] = tuple(value)

    def pytest_terminal_summary(self, terminalreporter) -> None:
        total = [sum(v[i] for v in self.found.values()) for i in (0, 1)]
        terminalreporter.section(f"compiled: {total[0]} modules, {total[1] / 1e6:.1f} million characters of LLVM IR")
        for test, (modules, characters) in sorted(self.found.items(), key=lambda item: -item[1][1])[: self.most]:
            terminalreporter.write_line(f"{modules:5} modules {characters / 1e6:8.2f} million characters  {test}")
