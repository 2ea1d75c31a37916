"""Counts the tests that were run against those collected: a run that lost some of them fails, and says how many. Makes files
cheap: see `pytest_configure`.

Tests run quick code alone, or good code alone where they are of code (`which_code.py`). What lies between, quick code that good code
replaces, is tested by `runtime/test_tiers.py`; that both have the saved bits, for every op, by `numerics/test_digests.py`.
`.ci/run` runs the tests of kernels, networks and digests once more with good code.

Under pytest-xdist a worker that dies takes its tests along, and after a few such deaths no worker is left: the rest is never run.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import exhaustive
import hypothesis
import pytest
import which_code
from hypothesis.internal.conjecture import providers

LOST = pytest.StashKey[str]()
FILE = pytest.StashKey[Path]()  # of the test that is run


class Count:
    """Of one run, in the process that reports it. collected, ended: ids of tests."""

    def __init__(self) -> None:
        self.collected: set[str] = set()
        self.ended: set[str] = set()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node, ids) -> None:
        self.collected.update(ids)

    def pytest_collection_finish(self, session) -> None:
        self.collected.update(item.nodeid for item in session.items)

    def pytest_runtest_logreport(self, report) -> None:
        if report.when == "teardown" or report.failed:  # a test whose worker died is reported as failed
            self.ended.add(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session) -> None:
        lost = sorted(self.collected - self.ended)
        if not lost or session.config.option.collectonly:
            return
        named = ", ".join(lost[:3]) + (", ..." if len(lost) > 3 else "")
        session.config.stash[LOST] = (
            f"only {len(self.collected) - len(lost)} of {len(self.collected)} tests were run; {len(lost)} were not: {named}"
        )
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter, config) -> None:
        if LOST in config.stash:
            terminalreporter.write_line(f"ERROR: {config.stash[LOST]}", red=True, bold=True)


def pytest_configure(config) -> None:
    """Files are written without waiting for the disk. Hypothesis draws the same examples in each run, since others are other programs, which
    are compiled anew; `--hypothesis-profile default` draws others."""
    os.environ.setdefault("TENGEN_FINISH", "0")  # processes that tests start leave none behind
    os.fsync = lambda fd: None  # no test outlives the machine, and thousands of files are written
    hypothesis.settings.register_profile("same examples", derandomize=True)
    hypothesis.settings.load_profile("same examples")  # the profile of the command line is loaded after it
    reports = not hasattr(config, "workerinput")  # not a worker of xdist
    if reports:
        config.pluginmanager.register(Count(), "count-of-tests")
    if config.getoption("--compiling"):
        from compiling import Compiling, Listing

        config.pluginmanager.register(Compiling(), "compiling")
        if reports:
            config.pluginmanager.register(Listing(config.getoption("--compiling")), "compiling-listed")
    if config.getoption("--processor-time"):
        import processor_time

        config.pluginmanager.register(processor_time.Measuring(), "processor-time")
        if reports:
            config.pluginmanager.register(processor_time.Listing(config.getoption("--processor-time")), "processor-time-listed")


def pytest_addoption(parser) -> None:
    parser.addoption("--compiling", type=int, default=0, metavar="N", help="list the N tests that make LLVM compile the most")
    parser.addoption("--processor-time", type=int, default=0, metavar="N", help="list the N tests that take the most processor time")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items) -> None:
    """Tests that `make test` leaves out are marked before `-m` chooses (`exhaustive.py`). And Hypothesis reads no sources: by itself it also
    draws constants that it finds in those of all modules that the process happens to have loaded. To read them takes as long as to collect
    two thousand tests, and the examples would differ from process to process."""
    exhaustive.mark(items)
    found = providers.Constants()
    assert callable(providers._get_local_constants), "Hypothesis finds constants in sources by another function now"
    providers._get_local_constants = lambda: found


def pytest_collection_finish(session) -> None:
    """No plan becomes hot by the time that its calls take here: that made other programs in each run, and more of them the more
    processes there were (`runtime/test_specialise_when_hot.py` sets the limit). Python's garbage collector looks less often than by
    itself: to write a program's text makes many objects, which live briefly."""
    if "tengen" in sys.modules:
        from tengen.compiler import plans

        plans.HOT_AFTER_S = float("inf")
        _keep_no_schedules()
        import remembered

        remembered.keep_generated_code()
    gc.set_threshold(50_000, 20, 20)


def _keep_no_schedules() -> None:
    """A test that tunes has a cache of its own. What it finds differs from run to run, and other tests' programs that ask for a schedule
    of the same problem would take it: they would be made anew in each run, and not by the rule that they test."""
    from tengen.runtime import cache

    put, everyones = cache.put, cache.directory_name()

    def checked(key, data, *suffix):
        assert cache.SCHEDULES not in suffix or cache.directory_name() != everyones, "a test that tunes needs a cache of its own"
        put(key, data, *suffix)

    cache.put = checked


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item) -> None:
    """Before fixtures of any scope, which compile too. Python's garbage collector looks at no object from before a file's first test, of which
    modules, thousands of tests and the other files' tests leave many: a test that collects, or a recording that looks for who holds
    its tensors, would look at all of them."""
    which_code.use_for(item.path)
    if item.config.stash.get(FILE, None) != item.path:
        item.config.stash[FILE] = item.path
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def whatever_ran_before():
    """A test begins with the same random numbers, number of threads, and parameters that are no leaves (which to import `tengen.pytorch`
    makes them), and need not set them back: else they would depend on which tests the process has run before it."""
    tengen = sys.modules.get("tengen")
    if tengen is None:
        yield
        return
    threads = tengen.config.threads
    tengen.random.manual_seed(1)
    sys.modules["tengen.tensor.nodes"].leaves.of_parameters(False)
    yield
    if tengen.config.threads != threads:
        tengen.set_threads(threads)


@pytest.fixture(autouse=True)
def nothing_kept_of_what_is_patched(request):
    """What a test patches (a rule of an op, a limit in a strategy) may decide which program a call becomes, and no key of a kept program
    knows of it: from the first patch of a test on, no program is read back or kept. Tests of that say KEEPS_PROGRAMS = True. The working
    directory and the environment, which is read when Tengen is imported, decide no program. What `remembered.py` keeps is not looked up
    either where it may use what is patched."""
    patches = "monkeypatch" in request.fixturenames and not getattr(request.module, "KEEPS_PROGRAMS", False)
    if not patches or "tengen" not in sys.modules:
        return
    import remembered

    from tengen.compiler import program_cache

    patch = request.getfixturevalue("monkeypatch")
    set_attribute = patch.setattr

    def watched(change):
        def first(*args, **kwargs):
            if not args or args[0] is not os.environ:
                set_attribute(program_cache, "in_use", lambda: False)
                if not args or remembered.uses(args[0]):
                    set_attribute(remembered, "patched", True)
            return change(*args, **kwargs)

        return first

    for name in ("setattr", "delattr", "setitem", "delitem", "context"):
        setattr(patch, name, watched(getattr(patch, name)))
