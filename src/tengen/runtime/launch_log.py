"""The log of launches while a profile is active: begin and end of every kernel, and of every share of one that a thread ran.

The kernels and their machine code are the same as without a profile. A program that was built with `log_launches=True` passes
all its launches to the function `parallel` that it is given, with two words before the arguments: the number of its plan and
that of the launch. `logging_parallel()` is the thread pool with a clock around it. Out: a `Log`, which has the plans (entries)
and the events of their launches.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tengen.base.errors import user_line
from tengen.base.record import record
from tengen.base.spans import note_spans
from tengen.runtime import native
from tengen.runtime.compile import Loaded

CAPACITY = 1 << 20  # events; the system backs memory only when it is written
WORDS = 6  # of an event: plan, launch, 0 for a whole launch or 1 for a thread's share, thread, begin and end in ns

# An event's first word is written last: one that is read while another thread still writes it is complete, or begins with 0.
_IR = """\
@parallel = internal global ptr null
@records = internal global ptr null
@log_next = global i64 0, align 64
%shared = type { ptr, ptr }                            ; kernel, arguments

declare i32 @clock_gettime(i32, ptr)
declare i64 @pthread_self()

define void @log_open(ptr %pool, ptr %memory) {
  store ptr %pool, ptr @parallel
  store ptr %memory, ptr @records
  store atomic i64 0, ptr @log_next seq_cst, align 8
  ret void
}

define internal i64 @clock() {                         ; nanoseconds of CLOCK_MONOTONIC
  %t = alloca [2 x i64], align 8
  %r = call i32 @clock_gettime(i32 1, ptr %t)
  %s = load i64, ptr %t
  %ns.p = getelementptr i64, ptr %t, i64 1
  %ns = load i64, ptr %ns.p
  %s.ns = mul i64 %s, 1000000000
  %all = add i64 %s.ns, %ns
  ret i64 %all
}

define internal void @note(ptr %args, i64 %share, i64 %begin, i64 %end) {
entry:
  %i = atomicrmw add ptr @log_next, i64 1 monotonic
  %fits = icmp ult i64 %i, $CAPACITY$
  br i1 %fits, label %keep, label %done
keep:
  %records = load ptr, ptr @records
  %first = mul i64 %i, $WORDS$
  %r = getelementptr i64, ptr %records, i64 %first
  %plan.p = getelementptr i64, ptr %args, i64 -2
  %plan = load i64, ptr %plan.p
  %launch.p = getelementptr i64, ptr %args, i64 -1
  %launch = load i64, ptr %launch.p
  %thread = call i64 @pthread_self()
  %r1 = getelementptr i64, ptr %r, i64 1
  store i64 %launch, ptr %r1
  %r2 = getelementptr i64, ptr %r, i64 2
  store i64 %share, ptr %r2
  %r3 = getelementptr i64, ptr %r, i64 3
  store i64 %thread, ptr %r3
  %r4 = getelementptr i64, ptr %r, i64 4
  store i64 %begin, ptr %r4
  %r5 = getelementptr i64, ptr %r, i64 5
  store i64 %end, ptr %r5
  store atomic i64 %plan, ptr %r release, align 8
  br label %done
done:
  ret void
}

define internal void @share(ptr %shared, ptr %ints, i64 %from, i64 %to) {
  %kernel = load ptr, ptr %shared
  %args.p = getelementptr %shared, ptr %shared, i64 0, i32 1
  %args = load ptr, ptr %args.p
  %begin = call i64 @clock()
  call void %kernel(ptr %args, ptr %ints, i64 %from, i64 %to)
  %end = call i64 @clock()
  call void @note(ptr %args, i64 1, i64 %begin, i64 %end)
  ret void
}

define void @log_parallel(ptr %kernel, ptr %args, ptr %ints, i64 %pieces) {
  %shared = alloca %shared, align 8
  store ptr %kernel, ptr %shared
  %args.p = getelementptr %shared, ptr %shared, i64 0, i32 1
  store ptr %args, ptr %args.p
  %parallel = load ptr, ptr @parallel
  %begin = call i64 @clock()
  call void %parallel(ptr @share, ptr %shared, ptr %ints, i64 %pieces)
  %end = call i64 @clock()
  call void @note(ptr %args, i64 0, i64 %begin, i64 %end)
  ret void
}
"""


@functools.cache
def _native() -> Loaded:
    text = _IR.replace("$CAPACITY$", str(CAPACITY)).replace("$WORDS$", str(WORDS))
    return native.load_forever(lambda target: target.head + text)


@functools.cache
def _records() -> np.ndarray:
    return np.zeros((CAPACITY, WORDS), np.int64)


@record(eq=False)
class Entry:
    """A plan whose launches are logged.

    Attributes:
        number: the plan's number in the events. program: one with `launches`. values: of the program's parameters.
        where: the user's line that called it; None for a program that knows the line of each launch.
    """

    number: int
    program: Any
    values: tuple[int, ...]
    where: str | None = None


@record(eq=False)
class Log:
    """What was logged during one profile.

    Attributes:
        entries: plans by number. records: the events, rows of `WORDS` words, once the log is closed. lost: events that did not
            fit. spans: what took how long besides: (name, begin, end) in ns.
    """

    entries: dict[int, Entry] = field(default_factory=dict)
    records: np.ndarray = field(default_factory=lambda: np.zeros((0, WORDS), np.int64))
    lost: int = 0
    spans: list[tuple[str, int, int]] = field(default_factory=list)


active: Log | None = None  # the log of the profile that is active
_numbers = itertools.count(1)


def open_log() -> Log:
    """Begins a log; there is one at a time."""
    global active
    assert active is None
    used = min(_next().value, CAPACITY)
    _records()[:used] = 0
    opened = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(_native().address("log_open"))
    opened(native.PARALLEL, _records().ctypes.data)
    active = Log()
    note_spans(active.spans)
    return active


def close_log() -> Log:
    """Ends the log, and puts the events into it."""
    global active
    assert active is not None
    log, active = active, None
    note_spans(None)
    n = _next().value
    rows = _records()[: min(n, CAPACITY)]
    log.records = rows[np.isin(rows[:, 0], list(log.entries))]
    log.lost = max(0, n - CAPACITY)
    return log


def _next() -> ctypes.c_int64:
    return ctypes.c_int64.from_address(_native().address("log_next"))


def new_entry(program: Any, values: Sequence[int], where: str | None = None) -> Entry:
    """An entry with a number that no other has."""
    return Entry(next(_numbers), program, tuple(values), where)


def see(log: Log | None, entry: Entry) -> Entry:
    """The entry, after it was added to a log, which then may have events of it."""
    if log is not None:
        log.entries[entry.number] = entry
    return entry


def logging_parallel() -> int:
    """The address of a `parallel` function that logs launches, for `native.make_plan`."""
    return _native().address("log_parallel")


def by_line(make: Callable[[str | None], Callable]) -> Callable:
    """A function that calls one made for the user's line: `make(line)`, once for each."""
    made: dict[str | None, Callable] = {}

    def call(*buffers):
        line = user_line()
        if line not in made:
            made[line] = make(line)
        return made[line](*buffers)

    return call
