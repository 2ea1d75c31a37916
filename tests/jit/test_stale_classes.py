"""Changes of users' classes between calls of a trace and of a script: other bases, names that come, methods that are replaced. What a call
returns has the bytes of the function run eagerly, and each state of a class is recorded once."""

import numpy as np
import pytest
from exhaustive import but

from tengen import Tensor, script, trace
from tengen import module as M

X = Tensor(np.array([1, -2, 3], "float32"))


def setter(x, name, value):
    """A change that sets an attribute, and gives back what undoes it."""

    def change():
        before = vars(x).get(name)
        setattr(x, name, value)
        return lambda: delattr(x, name) if before is None else setattr(x, name, before)

    return change


def other_bases(c, *bases):
    """A change of the classes that a class derives from."""

    def change():
        before = c.__bases__
        c.__bases__ = bases
        return lambda: setattr(c, "__bases__", before)

    return change


def other_class(x, c):
    """A change of an object's class."""

    def change():
        before = type(x)
        x.__class__ = c
        return lambda: setattr(x, "__class__", before)

    return change


class Doubling(M.Module):
    def act(self, x):
        return x * 2


class Halving(M.Module):
    def act(self, x):
        return x / 2


def of_modules():
    """(name, function, change) for classes of modules."""

    class Net(Doubling):
        def forward(self, x):
            return self.act(x) + 1

    yield "the bases of a module's class", Net(), other_bases(Net, Halving)

    class Middle(Doubling):
        pass

    class Last(Middle):
        def forward(self, x):
            return self.act(x) - 1

    yield "the bases of a base", Last(), other_bases(Middle, Halving)

    class Act(M.ReLU):
        pass

    class Sharp(M.ReLU):
        def forward(self, x):
            return x * 9

    act = M.Sequential(Act())
    yield "a library's class among the bases", act, other_bases(Act, M.Sigmoid)
    covered = M.Sequential(Sharp())
    yield "a method that hides the library's", M.Sequential(Act()), setter(Act, "forward", lambda self, x: x * 5)
    yield "a call that hides the library's", M.Sequential(Act()), setter(Act, "__call__", lambda self, x: x * 6)
    yield "a method that is replaced in a submodule's class", covered, setter(Sharp, "forward", lambda self, x: x * 7)
    yield "the class of a submodule", (one := M.Sequential(Sharp())), other_class(one[0], Act)
    yield "the library's class of a submodule", (two := M.Sequential(M.ReLU())), other_class(two[0], M.Sigmoid)

    class Scaled(M.Module):
        def __init__(self):
            super().__init__()
            self.k = 2.0

        def forward(self, x):
            return x * self.k

    yield "a property that hides an attribute", Scaled(), setter(Scaled, "k", property(lambda self: 9.0))
    asked = lambda self, name: 8.0 if name == "k" else object.__getattribute__(self, name)
    yield "a class that computes its attributes", Scaled(), setter(Scaled, "__getattribute__", asked)


def of_objects():
    """The same for classes of other objects."""

    class One:
        k = 1.0

        def act(self, x):
            return x

    class Two:
        k = 2.0

        def act(self, x):
            return x - 1

    class Plain(One):
        pass

    class Named(One):
        pass

    class Truth(One):
        pass

    plain, truth = Plain(), Truth()

    def methods(x):
        return plain.act(x) * plain.k

    def of_the_class(x):
        return x * Named.k

    def true_or_not(x):
        return x * 2 if truth else x * 3

    yield "the bases of an object's class", methods, other_bases(Plain, Two)
    yield "the bases of a class", of_the_class, other_bases(Named, Two)
    yield "a special method that comes", true_or_not, setter(Truth, "__bool__", lambda self: False)


@but(first_of="name")
@pytest.mark.parametrize("compiled", (trace, script))
@pytest.mark.parametrize("name, f, change", [pytest.param(*c, id=c[0]) for c in (*of_modules(), *of_objects())])
def test_a_change_of_a_class_is_noticed(name, f, change, compiled):
    run = compiled(f)

    def called():
        return run(X).numpy().tobytes()

    before = f(X).numpy().tobytes()
    assert [called() for _ in range(2)] == [before] * 2 and len(run.stats()) == 1
    back = change()
    try:
        after = f(X).numpy().tobytes()
        assert after != before
        assert [called() for _ in range(2)] == [after] * 2 and len(run.stats()) == 2
    finally:
        back()
    assert [called() for _ in range(2)] == [before] * 2 and len(run.stats()) == 2


def test_a_name_that_nothing_reads_is_no_change():
    """A class that keeps something for itself is looked at once more, and not recorded again."""

    class Counted(M.Module):
        def forward(self, x):
            return x * 4

    run = trace(Counted())
    run(X)
    Counted.instances = 3
    Counted.__doc__ = "A module."
    run(X)
    assert len(run.stats()) == 1


def test_a_script_has_the_function_as_it_is_now():
    def scaled(x, k=2.0, *, j=1.0):
        return x * k + j

    def other(x, k=2.0, *, j=1.0):
        if x.sum() > 0:
            return x * k
        return x - j

    run = script(scaled)
    for name, value in (("__defaults__", (3.0,)), ("__kwdefaults__", {"j": 5.0}), ("__code__", other.__code__)):
        for _ in range(2):
            assert run(X).numpy().tobytes() == scaled(X).numpy().tobytes()
        setattr(scaled, name, value)
        assert run(X).numpy().tobytes() == scaled(X).numpy().tobytes(), name
    assert len(run.stats()) == 4
