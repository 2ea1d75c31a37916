"""The native runtime of this process: buffers, the memory pool, threads, and calls of compiled programs.

The IR of `memory.py`, `threads.py`, `native_ir.py` and `callbacks.py` is compiled once, for the pack that comes with Tengen or in the
disk cache, and loaded when this file is imported. A buffer is a PyCapsule without a name that points to its first byte, on 64 bytes for those
that `new_buffer` makes; when its last reference goes, the memory goes back to the pool (or, for a view or foreign memory, the owner
is let go). A plan is a builtin function: buffers in, buffers out. All of it but programs themselves runs under the interpreter's
lock.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tengen.base.config import KNOBS, config
from tengen.base.device import Device, cpu
from tengen.base.errors import ConfigError, DeviceError
from tengen.base.record import NamedTuple
from tengen.codegen.targets import Target
from tengen.runtime import pack
from tengen.runtime.cache import compiled
from tengen.runtime.callbacks import CALLBACK_SYMBOLS, callbacks_ir
from tengen.runtime.compile import Loaded, add_symbols, load_object
from tengen.runtime.memory import MAX_BYTES, MAX_EPOCH_NS, machine_memory, memory_ir
from tengen.runtime.native_ir import PYTHON_SYMBOLS, python_ir
from tengen.runtime.plan_ir import PLAN_WORDS
from tengen.runtime.provenance import PACK, provenance
from tengen.runtime.threads import MAX_THREADS, threads_ir

_METH_FASTCALL = 0x80


class _MethodDef(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("meth", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


TARGET = Target.host()  # what this process compiles for: the runtime, and whatever is called with its buffers


def runtime_ir(target: Target) -> str:
    """The LLVM IR of the whole runtime: memory, threads, builtins, for one target."""
    return target.head + memory_ir() + threads_ir(target, idle=("tengen_idle", "tengen_epoch_ns")) + python_ir() + callbacks_ir()


def load_forever(ir: Callable[[Target], str]) -> Loaded:
    """The module of LLVM IR that `ir` writes for a target, for this process's, compiled or from the cache. Never unloaded: capsules may
    die, and threads may be in it, after the last module of Python is gone."""
    return _forever(load_object(compiled(ir(TARGET), TARGET), TARGET))


def _forever(loaded: Loaded) -> Loaded:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(loaded))
    return loaded


add_symbols({name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in (*PYTHON_SYMBOLS, *CALLBACK_SYMBOLS)})
_packed = pack.find(pack.RUNTIME, TARGET)
if _packed is None:
    _native = load_forever(runtime_ir)
else:
    _native = _forever(load_object(*_packed))
    provenance.found(PACK)
_defs: list[_MethodDef] = []  # CPython keeps pointers to them


def _define(name: str, doc: str) -> _MethodDef:
    d = _MethodDef(name.encode(), _native.address(f"py_{name}"), _METH_FASTCALL, doc.encode())
    _defs.append(d)
    return d


_new_builtin = ctypes.pythonapi.PyCFunction_NewEx
_new_builtin.restype = ctypes.py_object
_new_builtin.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]


def _builtin(name: str, doc: str) -> Callable:
    return _new_builtin(ctypes.addressof(_define(name, doc)), None, None)


def _function(name: str, result, *arguments):
    """A C function of the runtime; called without the interpreter's lock."""
    return ctypes.CFUNCTYPE(result, *arguments)(_native.address(f"tengen_{name}"))


def _locked(name: str, result, *arguments):
    """A C function of the runtime that needs the interpreter's lock."""
    return ctypes.PYFUNCTYPE(result, *arguments)(_native.address(f"tengen_{name}"))


# -- buffers -------------------------------------------------------------------------------------------------------------------
_locked("init", None, *[ctypes.py_object] * 3)(TypeError, MemoryError, ValueError)

new_buffer = _builtin(
    "new_buffer",
    """new_buffer(n_bytes, /)
--

A new buffer of n_bytes from the pool, its contents undefined; of zero bytes it still has an address.

Errors: MemoryError when there is none left, ValueError if n_bytes is negative.""",
)
copied = _builtin(
    "copied",
    """copied(data, /)
--

A new buffer with a copy of what an array or bytes-like object holds, which is dense and in C order.

Errors: MemoryError when there is none left, BufferError where data is not dense, TypeError where it shows no bytes.""",
)
over = _builtin(
    "over",
    """over(data, /)
--

A buffer over the memory of an array or bytes-like object, which is dense and in C order, and which it keeps alive; a copy where elements
do not lie at multiples of their size.

Errors: as `copied`.""",
)
view = _builtin(
    "view",
    """view(buffer, offset, /)
--

A buffer that begins offset bytes into another and keeps its memory alive. Bounds are the caller's affair.

Errors: TypeError if buffer is none.""",
)
wrap = _builtin(
    "wrap",
    """wrap(address, owner, /)
--

A buffer over foreign memory at an address (an int, not 0), which stays valid while owner lives; the buffer keeps owner alive.

Errors: ValueError for address 0.""",
)
address = _builtin(
    "address",
    """address(buffer, /)
--

The address of a buffer's first byte, an int.

Errors: TypeError if buffer is none.""",
)
borrowed = _builtin(
    "borrowed",
    """borrowed(buffer, /)
--

Whether a buffer shows memory of another's: a view, or foreign memory. Nobody may write it for that buffer's sake alone.

Errors: TypeError if buffer is none.""",
)
sole = _builtin(
    "sole",
    """sole(*buffers)
--

Whether each of these buffers is held by one object alone (besides this call) and has memory of its own: a run may write it. To be called
with attributes, ``sole(t._data)``: a variable would hold the buffer too.

Errors: TypeError if one is none.""",
)


def write(buffer, data) -> None:
    """Copies an array's or bytes-like object's values, in C order, to the beginning of a buffer that is large enough."""
    a = np.ascontiguousarray(data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8))
    ctypes.memmove(address(buffer), a.ctypes.data, a.nbytes)


def read(buffer, n_bytes: int) -> bytes:
    """A copy of a buffer's first n_bytes."""
    return ctypes.string_at(address(buffer), n_bytes)


def copy(buffer, n_bytes: int):
    """A new buffer with a copy of another's first n_bytes."""
    new = new_buffer(n_bytes)
    ctypes.memmove(address(new), address(buffer), n_bytes)
    return new


# -- the pool ------------------------------------------------------------------------------------------------------------------
class MemoryStatistics(NamedTuple):
    """What the pool holds, in bytes (of blocks: up to a quarter more than was asked for).

    Attributes:
        in_use: blocks that live buffers hold. cached: blocks kept to be handed out again. peak: the most ever in use at once.
            peak_reserved: the most ever in use and kept at once.
    """

    in_use: int
    cached: int
    peak: int
    peak_reserved: int


_statistics = (ctypes.c_int64 * 4).from_address(_native.address("tengen_pool_stats"))
_limit = ctypes.c_int64.from_address(_native.address("tengen_pool_limit"))
with contextlib.suppress(OSError, KeyError):  # another system than Linux
    _machine = machine_memory()
    _limit.value = min(_machine.total + _machine.swap, MAX_BYTES)
_trim = _locked("trim", ctypes.c_int64, ctypes.c_int64)
_epoch_ns = ctypes.c_int64.from_address(_native.address("tengen_epoch_ns"))
_trim_heap = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; other libraries give back by themselves, or cannot


def memory_statistics() -> MemoryStatistics:
    """The pool's figures now.

    >>> memory_statistics().in_use <= memory_statistics().peak
    True
    """
    return MemoryStatistics(*_statistics)


def reset_peak() -> None:
    """Lets `memory_statistics().peak` and `peak_reserved` begin anew, with what is in use and kept now."""
    _statistics[2] = _statistics[0]
    _statistics[3] = _statistics[0] + _statistics[1]


def trim() -> int:
    """Gives every cached block back to the system, and with them what the C library holds free (small blocks are its own, and
    a compiler leaves much); returns how many bytes of cached blocks that were."""
    freed = _trim(-1)
    if _trim_heap is not None:
        _trim_heap(ctypes.c_size_t(0))
    return freed


def _take_kept_seconds(seconds: float) -> float:
    """Sets how long the pool keeps a block that nobody takes: two epochs."""
    _epoch_ns.value = int(min(seconds / 2 * 1e9, MAX_EPOCH_NS))
    return seconds


config.owned("kept_seconds", _take_kept_seconds)
_take_kept_seconds(config.kept_seconds)


class Pool(NamedTuple):
    """The memory pool of a device.

    Attributes:
        device: whose memory it hands out. new_buffer: n bytes -> a buffer. statistics: its figures now. trim: gives cached
            blocks back, and returns their bytes. reset_peak: the most in use at once is counted anew.
    """

    device: Device
    new_buffer: Callable[[int], Any]
    statistics: Callable[[], MemoryStatistics]
    trim: Callable[[], int]
    reset_peak: Callable[[], None]


_cpu_pool = Pool(cpu, new_buffer, memory_statistics, trim, reset_peak)


def pool_of(device: Device) -> Pool:
    """The memory pool of a device. Errors: DeviceError for one that has none in this process."""
    if device is not cpu:
        raise DeviceError(f"this process has no memory pool for the device {device}; help: name {cpu}")
    return _cpu_pool


# -- threads -------------------------------------------------------------------------------------------------------------------
_set_threads = _function("set_threads", ctypes.c_int64, ctypes.c_int64)
_stop_threads = _function("stop_threads", None)
add_symbols({name: _native.address(name) for name in ("tengen_stop", "tengen_host")})
PARALLEL = _native.address("tengen_parallel")
SERIAL = _native.address("tengen_serial")


def set_threads(n: int) -> None:
    """Sets how many threads programs may use, the caller's own among them; no result depends on it.

    Waits for a program that runs in another thread. ``config.threads = n`` is the same.

    Errors: ConfigError unless 1 <= n <= 1024.
    """
    config.threads = n


def _take_threads(n: int) -> int:
    if n > MAX_THREADS:
        raise ConfigError(f"{n} threads are more than {MAX_THREADS}, the most that a program can have")
    return _set_threads(n)


def _decided(name: str, now: str) -> Callable[[str], str]:
    """The owner of a knob that has the value `now` in this process for good."""

    def take(value: str) -> str:
        if value != now:
            variable = KNOBS[name][0]
            raise ConfigError(
                f"config.{name} = {value!r} comes too late: this process compiles for {TARGET.name} already; "
                f"help: {variable}={value} in the environment, before the process begins"
            )
        return value

    return take


config.owned("threads", _take_threads)
for _name in ("target", "processor"):
    config.owned(_name, _decided(_name, getattr(config, _name)))
set_threads(min(config.threads, MAX_THREADS))
atexit.register(_stop_threads)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_function("forget_threads", None))


def call_python(function: Callable[[int, int], None]) -> None:
    """Sets what programs call by ``tengen_host``: a function of two addresses, of places in memory and of shapes. It is called with the
    interpreter's lock; what it raises, the run raises."""
    _locked("host_init", None, ctypes.py_object)(function)


# -- calls ---------------------------------------------------------------------------------------------------------------------
_plan_def = ctypes.addressof(
    _define("plan", "program($self, /, *buffers)\n--\n\nRuns a compiled program on buffers; returns one buffer, or a tuple.")
)
_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def make_plan(
    run_address: int,
    n_inputs: int,
    output_bytes: Sequence[int],
    arena_bytes: int,
    ints: Sequence[int],
    parallel: bool | int = True,
    release_gil: bool = False,
    asks: bool = False,
    owner: Any = None,
) -> Callable:
    """A builtin function that runs a compiled program: n_inputs buffers in; one buffer, or a tuple of them, out.

    Args:
        run_address: of ``void run(ptr* buffers, i64* ints, ptr parallel)``, whose buffers are the inputs, the outputs and the
            arena; 0 if there is nothing to compute. output_bytes: the size of each output; -(i+1) means that output is input i
            itself, written in place: the same object is returned. arena_bytes: scratch memory, taken for the length of the call
            (its address is NULL when 0). ints: the program's integers. parallel: share the pieces of kernels among threads; or
            the address of a function that does. release_gil: let other Python threads run meanwhile (the caller then sees to it
            that no other thread writes the inputs); for programs that run longer than about 50 us. asks: it may stop because a
            signal's handler, or Python code that it calls, has raised an exception, which the builtin then raises. owner: an object that
            the plan keeps alive: the code.

    Returns: the builtin. It raises TypeError for a wrong number of arguments or one that is not a buffer, and MemoryError; then
        it has run nothing and holds nothing. The buffers it returns are undefined where the program wrote nothing.

    Errors: ValueError for an output that names an input which does not exist, or a negative size of the arena.
    """
    outputs = [int(n) for n in output_bytes]
    if arena_bytes < 0 or n_inputs < 0 or any(-n > n_inputs for n in outputs):
        raise ValueError(f"make_plan: {n_inputs} inputs, outputs {outputs} and {arena_bytes} bytes of scratch do not fit")
    pool = parallel if parallel > 1 else PARALLEL if parallel else SERIAL
    head = [run_address, pool, n_inputs, len(outputs), arena_bytes, int(release_gil) + 2 * asks]
    assert len(head) == PLAN_WORDS
    words = [*head, *outputs, *ints]
    memory = (ctypes.c_int64 * len(words)).from_buffer(array("q", words))  # OverflowError where ctypes would cut
    return _new_builtin(_plan_def, wrap(ctypes.addressof(memory), (memory, owner)), None)


def call(run_address: int, addresses: Sequence[int], ints: Sequence[int], parallel: bool = True) -> None:
    """Calls a program on bare addresses, without the interpreter's lock: the slow way, for tests and tools."""
    buffers = (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
    numbers = (ctypes.c_int64 * max(len(ints), 1))(*ints)
    _RUN(run_address)(ctypes.addressof(buffers), ctypes.addressof(numbers), PARALLEL if parallel else SERIAL)
