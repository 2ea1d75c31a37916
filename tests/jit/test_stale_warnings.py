"""What a trace cannot see, and what the traced function changes by itself. Where one program is asked for (symbolic=True): which of it is
warned of, once, with which words and line; and that neither leads to one recording after the other. By default: that the function is run in
parts, with the results of eager calls."""

import contextlib
import dataclasses
import functools
import itertools
import sys
import warnings

import numpy as np
import pytest

import tengen
from tengen import Tensor, script, trace
from tengen import module as M
from tengen.autodiff import no_grad
from tengen.base.errors import TraceWarning

X = Tensor(np.linspace(-1, 1, 24, dtype="float32").reshape(4, 6))


@dataclasses.dataclass
class Config:
    k: float = 2.0


class Net(M.Module):
    """A user's module."""

    def __init__(self):
        super().__init__()
        self.fc, self.k = M.Linear(6, 6), 2.0

    def forward(self, x):
        return self.fc(x) * self.k


def bytes_of(x):
    return x.numpy().tobytes(), x.shape, x.dtype.name


# -- what the function changes by itself -----------------------------------------------------------------------------------------


def told(f, *args):
    """What recording warns of: (message, line from the function's first)."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run = trace(f, symbolic=True)
        for _ in range(2):
            run(X, *args)
        run(X[:2], *args)  # another recording
        run(X, *args)
    assert len(run.stats()) == 2, "recorded again and again"
    return [(str(w.message), w.filename, w.lineno - f.__code__.co_firstlineno) for w in found]


def counts_in_a_cell():
    n = 0

    def f(x):
        nonlocal n
        n += 1
        return x + n

    return f, "n is changed", 2


def counts_in_a_global():
    def f(x):
        global COUNT
        COUNT += 1
        return x + COUNT

    return f, "COUNT", 2


def counts_in_an_attribute():
    box = Config(k=0)

    def f(x):
        box.k += 1
        return x + box.k

    return f, "box.k", 1


def counts_in_a_module():
    net = Net()

    def f(x):
        net.k += 1
        return net(x)

    return f, "net.k", 1


def counts_in_a_dict():
    seen = {"n": 0}

    def f(x):
        seen["n"] += 1
        return x

    return f, "seen is changed", 1


def reads_a_list_that_it_appends_to():
    seen = []

    def f(x):
        seen.append(1)
        return x * len(seen)

    return f, "seen is changed", 1


COUNT = 0


@pytest.mark.parametrize("make", [
    counts_in_a_cell, counts_in_a_global, counts_in_an_attribute, counts_in_a_module, counts_in_a_dict,
    reads_a_list_that_it_appends_to,
])  # fmt: skip
def test_what_the_function_changes_is_told(make):
    f, name, line = make()
    [(message, file, at)] = told(f)
    assert name in message and "is changed by the traced function" in message and file == __file__
    assert at == line or make is reads_a_list_that_it_appends_to


def test_what_is_made_once_or_only_written_is_not_told():
    box, log, modes = Config(k=None), [], Net()

    def f(x):
        if box.k is None:
            box.k = Config()
        log.append(x.shape)
        modes.k = 2.0
        return x * box.k.k * modes.k

    assert told(f) == []


# -- what cannot be seen -----------------------------------------------------------------------------------------------------------


def reads_an_array():
    a = np.ones(6, "float32")

    def f(x):
        n = a.shape[0]
        return x * a + n

    return f, "NumPy array of shape (6,)", 2


def reads_an_array_of_an_object():
    box = Config(k=np.ones(6, "float32"))

    def f(x):
        return x * box.k

    return f, "NumPy array of shape (6,)", 1


def reads_a_large_table():
    table = list(range(5000))

    def f(x):
        return x * table[3]

    return f, "list of 5000 elements", 1


def draws_from_random():
    import random as chance

    def f(x):
        return x * chance.random()

    return f, "a random number of Python's", 1


def draws_by_a_function_of_random():
    import random as chance

    def f(x):
        return x * chance.uniform(0, 1)

    return f, "a random number of Python's", 1


def draws_from_a_generator_of_random():
    import random as chance

    own = chance.Random(3)

    def f(x):
        return x * own.random()

    return f, "a random number of Python's", 1


def draws_from_numpy():
    def f(x):
        return x * np.random.rand()

    return f, "a random number of NumPy's", 1


def draws_from_a_generator_of_numpy():
    rng = np.random.default_rng(3)

    def f(x):
        return x * rng.random()

    return f, "a random number of rng", 1


def takes_from_an_iterator():
    numbers = itertools.count()

    def f(x):
        return x * next(numbers)

    return f, "numbers is a count, an iterator", 1


def reads_the_clock():
    import time

    def f(x):
        return x * (time.perf_counter() > 0)

    return f, "the clock (perf_counter)", 1


def reads_the_date():
    import datetime

    def f(x):
        return x * (datetime.datetime.now().year > 0)

    return f, "the clock (now)", 1


@pytest.mark.parametrize("make", [
    reads_an_array, reads_an_array_of_an_object, reads_a_large_table, draws_from_random, draws_by_a_function_of_random,
    draws_from_a_generator_of_random, draws_from_numpy, draws_from_a_generator_of_numpy,
    takes_from_an_iterator, reads_the_clock, reads_the_date,
])  # fmt: skip
def test_what_cannot_be_seen_is_told_once(make):
    f, name, line = make()
    [(message, file, at)] = told(f)
    assert name in message and file == __file__ and at == line


def test_arrays_that_are_made_anew_or_cannot_change_are_not_told():
    frozen = X.numpy()[0]  # read-only, and the tensor copies before it is written
    shape = np.ones((4, 6))

    def f(x):
        return x * np.array([1.0], "float32") + np.arange(6, dtype="float32") + frozen * shape.ndim

    assert told(f) == []


def test_an_array_bound_to_the_name_is_noticed():
    a = np.ones(6, "float32")
    f = trace(lambda x: x * a)
    with pytest.warns(tengen.base.errors.TraceWarning):
        f(X)
    a = np.full(6, 3, "float32")
    assert bytes_of(f(X)) == bytes_of(X * 3)


def test_a_profiler_keeps_its_hook():
    seen = []

    def hook(frame, event, arg):
        seen.append(event)

    k = 2.0
    f = trace(lambda x: x * k)
    sys.setprofile(hook)
    try:
        f(X)
        assert sys.getprofile() is hook
    finally:
        sys.setprofile(None)
    assert "call" in seen
    import cProfile

    with cProfile.Profile():
        g = trace(lambda x: x * k)
        g(X)
    k = 3.0
    assert bytes_of(f(X)) == bytes_of(g(X)) == bytes_of(X * 3)


# -- context managers ------------------------------------------------------------------------------------------------------------


class Noted:
    """Acts where it is entered."""

    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, *exc):
        self.log.append("out")


@contextlib.contextmanager
def noted_by_a_generator(log):
    log.append("in")
    yield
    log.append("out")


class Idle:
    """Does nothing."""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass


@contextlib.contextmanager
def of_tengens():
    with no_grad(), tengen.amp.autocast(enabled=False):
        yield


def test_a_context_manager_that_acts_while_recording_is_warned_of_once():
    for way in (trace, functools.partial(trace, symbolic=True), script):
        for manager in (Noted, noted_by_a_generator):
            log = []

            def f(x, manager=manager, log=log):
                with manager(log):
                    y = x * 2
                return y

            g = way(f)
            with pytest.warns(TraceWarning, match=f"the context manager {manager.__name__} is entered inside a trace") as told:
                g(X)
            assert len(told) == 1 and told[0].lineno == f.__code__.co_firstlineno + 1 and told[0].filename == __file__
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                assert bytes_of(g(X + 1)) == bytes_of(f(X + 1)) and bytes_of(g(X[:2])) == bytes_of(f(X[:2]))
            assert not told


def test_context_managers_that_do_nothing_or_enter_tengens_are_not_warned_of():
    def f(x):
        with Idle(), of_tengens(), contextlib.nullcontext():
            return x * 2

    def in_parts(x):
        y = x * 2 if x.sum().item() < 100 else x
        with Noted(log):
            return y + 1

    log = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bytes_of(trace(f)(X)) == bytes_of(f(X))
        g = trace(in_parts)
        assert bytes_of(g(X)) == bytes_of(g(X)) == bytes_of(in_parts(X)) and log == ["in", "out"] * 3
