"""Calls of compiled programs from Python."""

import ctypes
import gc
import sys
import threading
import weakref

import numpy as np
import pytest

from tengen.runtime import native


def buffer_of(array):
    b = native.new_buffer(array.nbytes)
    native.write(b, array)
    return b


def array_of(buffer, dtype, n):
    return np.frombuffer(native.read(buffer, n * np.dtype(dtype).itemsize), dtype)


@pytest.fixture(autouse=True)
def nothing_leaks():
    gc.collect()
    before = native.memory_statistics().in_use
    yield
    gc.collect()
    assert native.memory_statistics().in_use == before


@pytest.mark.parametrize("release_gil", [False, True])
def test_one_output(programs, release_gil):
    x, y = np.arange(10, dtype=np.float32), np.full(10, 0.5, np.float32)
    plan = native.make_plan(programs.address("add"), 2, [40], 0, [10], release_gil=release_gil)
    out = plan(buffer_of(x), buffer_of(y))
    np.testing.assert_array_equal(array_of(out, np.float32, 10), x + y)
    again = plan(out, out)
    np.testing.assert_array_equal(array_of(again, np.float32, 10), 2 * (x + y))


def test_many_calls_hold_nothing(programs):
    a, b = buffer_of(np.ones(10, np.float32)), buffer_of(np.ones(10, np.float32))
    plan = native.make_plan(programs.address("add"), 2, [40], 64, [10])
    counts = sys.getrefcount(a), sys.getrefcount(plan)
    before = native.memory_statistics()
    for _ in range(10_000):
        plan(a, b)
    assert (sys.getrefcount(a), sys.getrefcount(plan)) == counts
    assert native.memory_statistics().in_use == before.in_use


@pytest.mark.parametrize("n_inputs", [0, 1, 2, 50])
@pytest.mark.parametrize("n_outputs", [1, 3, 40])
@pytest.mark.parametrize("arena", [0, 1000])
def test_buffers_are_inputs_outputs_arena(programs, n_inputs, n_outputs, arena):
    total = n_inputs + n_outputs + 1
    plan = native.make_plan(programs.address("addresses"), n_inputs, [8 * total] * n_outputs, arena, [total, n_inputs])
    inputs = [native.new_buffer(8) for _ in range(n_inputs)]
    outs = plan(*inputs)
    outs = (outs,) if n_outputs == 1 else outs
    assert isinstance(outs, tuple) and len(outs) == n_outputs
    seen = array_of(outs[0], np.int64, total).tolist()
    assert seen[:-1] == [native.address(b) for b in (*inputs, *outs)]
    assert (seen[-1] != 0 and seen[-1] % 64 == 0 and seen[-1] not in seen[:-1]) if arena else seen[-1] == 0
    assert len(set(seen)) == total


def test_no_output_is_an_empty_tuple(programs):
    plan = native.make_plan(programs.address("bump"), 2, [], 0, [5])
    a, b = buffer_of(np.array([7])), buffer_of(np.array([0]))
    assert plan(a, b) == ()
    assert array_of(b, np.int64, 1) == 12


def test_in_place(programs):
    a = buffer_of(np.array([7]))
    plan = native.make_plan(programs.address("bump"), 1, [-1], 0, [5])
    count = sys.getrefcount(a)
    r = plan(a)
    assert r is a and sys.getrefcount(a) == count + 1
    assert array_of(a, np.int64, 1) == 12
    view = native.view(a, 0)
    assert plan(view) is view and array_of(a, np.int64, 1) == 17


def test_in_place_among_others():
    plan = native.make_plan(0, 3, [16, -3, 16, -1, -1], 32, [])
    a, b, c = (native.new_buffer(8) for _ in range(3))
    r = plan(a, b, c)
    assert len(r) == 5 and r[1] is c and r[3] is a and r[4] is a
    assert len({native.address(x) for x in (a, b, c, r[0], r[2])}) == 5


def test_nothing_to_run():
    plan = native.make_plan(0, 1, [0], 0, [])
    out = plan(native.new_buffer(0))
    assert native.address(out)


def test_wrong_arguments(programs):
    plan = native.make_plan(programs.address("add"), 2, [40, -1], 8, [10])
    b = native.new_buffer(40)
    count = sys.getrefcount(b)
    for bad in ((), (b,), (b, b, b)):
        with pytest.raises(TypeError, match=f"takes 2 arguments, {len(bad)} given"):
            plan(*bad)
    for bad in ((b, None), (b, 1.5), (b, np.zeros(10))):
        with pytest.raises(TypeError, match="argument 1 is .*, not a buffer"):
            plan(*bad)
    with pytest.raises(TypeError, match="argument 0"):
        plan("x", b)
    with pytest.raises(TypeError):
        plan(b, other=b)
    del bad
    assert sys.getrefcount(b) == count


def test_no_memory_leaves_nothing():
    before = native.memory_statistics().in_use
    a = native.new_buffer(8)
    large = 1 << 60
    for outputs, arena, what in (([large], 0, "output 0"), ([8, -1, large, 8], 8, "output 2"), ([8, -1, 64], large, "scratch")):
        with pytest.raises(MemoryError, match=what) as e:
            native.make_plan(0, 1, outputs, arena, [])(a)
        assert str(large) in str(e.value)
    del a
    assert native.memory_statistics().in_use == before


def test_bad_plans():
    for n, outputs, arena in ((1, [-2], 0), (0, [-1], 0), (-1, [], 0), (1, [8], -1)):
        with pytest.raises(ValueError, match="do not fit"):
            native.make_plan(0, n, outputs, arena, [])


def test_a_plan_keeps_its_owner_and_dies():
    class Owner:
        pass

    owner = Owner()
    alive = weakref.ref(owner)
    plan = native.make_plan(0, 0, [8], 0, [1, 2, 3], owner=owner)
    del owner
    gc.collect()
    plan()
    assert alive() is not None
    del plan
    gc.collect()
    assert alive() is None


def test_released_lock_lets_others_run(programs):
    """The program waits until another Python thread writes to its buffer."""
    slots = buffer_of(np.zeros(4, np.int64))
    address = native.address(slots)
    plan = native.make_plan(programs.address("meet"), 1, [], 0, [1, 3_000_000], parallel=False, release_gil=True)

    def second():
        ctypes.c_int64.from_address(address + 8).value = 1

    t = threading.Timer(0.05, second)
    t.start()
    plan(slots)
    t.join()
    assert array_of(slots, np.int64, 4)[2] == 1
