"""What a recording executed: the users' code that ran, and calls whose results change but are constants in the program.

In: a function that is being recorded. Out: the code objects that ran, each with its globals; the names that this code reads and
writes, with lines; calls of the clock and of random numbers, with the user's line. Calls are observed by Python's profiling
hook. If another profiler uses it that cannot be shared, every function that can be reached counts as executed, and calls of the
clock and of random numbers are not noticed.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import random
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tengen.base.device import Device
from tengen.base.dtype import DType
from tengen.base.record import NamedTuple
from tengen.base.users import is_users
from tengen.ops.calls import Run
from tengen.ops.define import Op
from tengen.tensor import Parameter, Tensor
from tengen.tensor.recorder import Recorder


def ran_for_users(code: types.CodeType, scope: dict) -> bool:
    """Whether code that ran is neither Tengen's nor a library's. Generated code (methods of dataclasses and named tuples) and
    lines that are typed in have no file: they belong to their module."""
    name = scope.get("__name__")  # code without a module's name is made by exec: an op's call
    if name is None or not code.co_filename.startswith("<"):
        return name is not None and is_users(code.co_filename)
    file = getattr(sys.modules.get(name), "__file__", None)
    return is_users(file) if file else not name.startswith("namedtuple_")


class Use(NamedTuple):
    """A name in a function's code."""

    name: str
    kind: str  # "global", "cell", "attribute", or "module" for what is imported there, with a dot for each level of a relative import
    stored: bool
    line: int
    then: str  # the attribute that is asked of it at once, or ""


class Facts(NamedTuple):
    """What is read off a code object: the uses of names, strings that may be names of attributes, and pieces of names that are computed:
    an attribute whose name has one of them may be read. The piece "" is in every name."""

    uses: tuple[Use, ...]
    strings: frozenset[str]
    pieces: frozenset[str]


_WHOLE = frozenset({"vars", "__dict__", "__getattribute__", "asdict", "astuple", "attrgetter", "methodcaller"})  # may read any attribute
_KINDS = {
    "GLOBAL": "global", "NAME": "global", "DEREF": "cell", "CLASSDEREF": "cell", "FROM_DICT_OR_DEREF": "cell",
    "FROM_DICT_OR_GLOBALS": "global", "ATTR": "attribute", "METHOD": "attribute", "SUPER_ATTR": "attribute",
}  # fmt: skip


@functools.lru_cache(4096)
def facts(code: types.CodeType) -> Facts:
    """The uses of names in a code object."""
    found = []
    pieces: set[str] = set()
    ops = list(dis.get_instructions(code))
    for i, (ins, after) in enumerate(zip(ops, [*ops[1:], None])):
        how, _, kind = ins.opname.partition("_")
        line = (ins.positions.lineno if ins.positions else None) or code.co_firstlineno
        if ins.opname == "IMPORT_NAME":
            found.append(Use("." * ops[i - 2].argval + ins.argval, "module", False, line, ""))  # the level is the first operand
        elif ins.opname == "IMPORT_FROM":
            found.append(Use(ins.argval, "attribute", False, line, ""))
        elif ins.opname == "MATCH_CLASS":
            pieces.add("")
        if how not in ("LOAD", "STORE", "DELETE") or kind not in _KINDS:
            continue
        then = after.argval if after is not None and after.opname in ("LOAD_ATTR", "LOAD_METHOD") else ""
        found.append(Use(ins.argval, _KINDS[kind], how != "LOAD", line, then))
        if ins.argval in _WHOLE:
            pieces.add("")
        elif ins.argval in ("getattr", "hasattr"):
            pieces.update(_pieces_of_second_argument(ins, ops[i + 1 :]))
    strings = frozenset(c for c in code.co_consts if isinstance(c, str) and c.isidentifier())
    return Facts(tuple(found), strings, frozenset(pieces))


# Instructions that load strings and other values, and join them.
_JOINING = ("LOAD_CONST", "LOAD_SMALL_INT", "LOAD_FAST", "LOAD_DEREF", "LOAD_ATTR", "FORMAT_", "BUILD_STRING", "PRECALL", "CALL")


def _pieces_of_second_argument(load: dis.Instruction, ops: Sequence[dis.Instruction]) -> set[str]:
    """The strings that `getattr` or `hasattr` puts together as a name, given the load of the function and what follows; nothing where the name
    is one constant, and "" where it may be any."""
    start = load.positions and load.positions[:3:2]  # line, column
    call = next((i for i, x in enumerate(ops) if x.opname == "CALL" and x.positions and x.positions[:3:2] == start), 0)
    if not call or ops[call].arg not in (2, 3) or any("JUMP" in x.opname for x in ops[:call]):
        return {""}
    depth, begins = 0, {}  # values on the stack above the function; with how many of them an instruction began, the last one each
    before = [x for x in ops[:call] if x.opname not in ("PUSH_NULL", "CACHE", "NOP")]
    before = before[:-1] if before[-1].opname == "PRECALL" else before
    for i, x in enumerate(before):
        begins[depth] = i
        depth += dis.stack_effect(x.opcode, x.arg, jump=False)
    if depth != ops[call].arg or not begins.keys() >= set(range(1, depth)):  # one instruction may load two values
        return {""}
    name = before[begins[1] : begins.get(2)]
    strings = {x.argval for x in name if x.opname == "LOAD_CONST" and isinstance(x.argval, str)}
    if len(name) == 1 and strings:
        return set()
    simple = all(
        x.opname.startswith(_JOINING) or (x.opname == "LOAD_GLOBAL" and x.argval == "str") or (x.opname == "BINARY_OP" and x.argrepr == "+")
        for x in name
    ) and sum(x.opname == "CALL" for x in name) <= sum(x.opname == "LOAD_GLOBAL" for x in name)
    return strings if simple and strings else {""}


_CLOCK = {"time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "now", "utcnow", "today"}
_CHANCE = {"random", "getrandbits", "urandom"}
_SUSPECTS = _CLOCK | _CHANCE

_KNOWN = {Tensor, Parameter, DType, int, float, bool, str, type(None)}  # types whose values are converted without users' code


def _nothing() -> None:
    pass


_ENTER_OF_GENERATORS = contextlib._GeneratorContextManager.__enter__.__code__


def _acts(code: types.CodeType, scope: dict) -> bool:
    """Whether code has an effect of its own, as far as its names tell: it uses others than Tengen's functions, or attributes."""
    objects: list[Any] = []  # Tengen's, that the code has named so far
    for use in facts(code).uses:
        found = [scope.get(use.name)] if use.kind == "global" else [getattr(x, use.name, None) for x in objects]
        objects += (ours := list(filter(_is_tengens, found)))
        if use.stored or not ours:
            return True
    return False


def _is_tengens(x: Any) -> bool:
    home = x.__name__ if isinstance(x, types.ModuleType) else getattr(x, "__module__", None)
    return isinstance(home, str) and home.partition(".")[0] == "tengen"


class Observer:
    """Sees the calls of the calling thread inside a ``with`` block.

    Attributes:
        executed: (code, globals) of each piece of users' code that ran, once; None where no calls could be seen.
        calls: (what was called, "file:line") for each call of the clock or of random numbers from users' code.
        entered: (its name, "file:line" of the `with`) for each context manager of users' code that did more than to enter Tengen's.
    """

    def __init__(self) -> None:
        self.executed: list[tuple[types.CodeType, dict]] | None = []
        self.calls: list[tuple[str, str]] = []
        self.entered: list[tuple[str, str]] = []
        self._seen: dict[int, types.CodeType] = {}
        self._inside = self._sees = False  # whether the block is entered; whether calls are seen now

    def __enter__(self) -> Observer:
        self._before = sys.getprofile()
        # A profiler in C hands out an object that cannot be set again from here.
        if self._before is not None and not isinstance(self._before, (types.FunctionType, types.MethodType)):
            self.executed = None
        else:
            self._inside = True
            self._resume()
        return self

    def __exit__(self, *exc: object) -> None:
        self._inside = self._sees = False
        if self.executed is not None:
            sys.setprofile(self._before)

    def pause(self) -> Callable[[], None]:
        """No calls are seen until the returned function is called, or that of a pause around this one."""
        if not self._sees:
            return _nothing
        self._sees = False
        sys.setprofile(self._before)
        return self._resume

    def _resume(self) -> None:
        if self._inside:
            self._sees = True
            sys.setprofile(self._see)

    def call_of_op(self, run: Run, op: Op, inputs: tuple, attrs: tuple) -> Any:
        """Runs a call of an op without seeing what Tengen does for it, which is most of all calls. It is seen where it may run users' code:
        that of an op of theirs, or of operands and attributes that are not of known types, which are converted."""
        if "::" in op.name or op.fn.__module__[:7] != "tengen.":  # the gradient of a user's op has its name
            return run(op, inputs, attrs)
        for x in inputs:
            if type(x) not in _KNOWN:
                return run(op, inputs, attrs)
        for a in attrs:
            if type(a) is tuple:
                for x in a:
                    if type(x) not in _KNOWN:
                        return run(op, inputs, attrs)
            elif type(a) not in _KNOWN:
                return run(op, inputs, attrs)
        resume = self.pause()
        try:
            return run(op, inputs, attrs)
        finally:
            resume()

    def _see(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if event == "call":
            code = frame.f_code
            if id(code) not in self._seen:
                self._seen[id(code)] = code
                if ran_for_users(code, frame.f_globals):
                    self.executed.append((code, frame.f_globals))
                    self._entered(frame)
        elif event == "c_call" and getattr(arg, "__name__", None) in _SUSPECTS:
            self._suspect(arg, frame)
        if self._before is not None:
            self._before(frame, event, arg)

    def _entered(self, frame: types.FrameType) -> None:
        """Notes a context manager, a class or a generator, whose code is executed for the first time."""
        at, code = frame.f_back, frame.f_code
        if at is not None and at.f_code is _ENTER_OF_GENERATORS:
            name, at = code.co_name, at.f_back
        elif code.co_name == "__enter__":
            name = type(frame.f_locals.get(code.co_varnames[0])).__name__
        else:
            return
        if at is not None and ran_for_users(at.f_code, at.f_globals) and _acts(code, frame.f_globals):
            self.entered.append((name, f"{at.f_code.co_filename}:{at.f_lineno}"))

    def _suspect(self, called: Any, frame: types.FrameType) -> None:
        owner, name = getattr(called, "__self__", None), called.__name__
        home = getattr(owner, "__module__" if isinstance(owner, type) else "__name__", None)
        if name in _CHANCE:
            if not (isinstance(owner, random.Random) or home in ("posix", "nt")):
                return
            at: types.FrameType | None = frame
            while at is not None and at.f_globals.get("__name__") in ("random", "secrets"):
                at = at.f_back
        else:
            if home not in ("time", "datetime"):
                return
            at = frame
        if at is not None and ran_for_users(at.f_code, at.f_globals):
            what = "a random number of Python's" if name in _CHANCE else f"the clock ({name})"
            self.calls.append((what, f"{at.f_code.co_filename}:{at.f_lineno}"))


class ObservedRecorder(Recorder):
    """A recorder whose own work for a call of an op is not observed, whatever its operands are: they are converted before."""

    observer: Observer

    def __init__(self, name: str, constants: bool, observer: Observer, device: Device):
        super().__init__(name, constants=constants, device=device)
        self.observer = observer

    def record(self, op: Op, inputs: tuple, attrs: tuple):
        resume = self.observer.pause()
        try:
            return super().record(op, inputs, attrs)
        finally:
            resume()


def lines(executed: Iterable[tuple[types.CodeType, dict]], name: str, stored: bool) -> Iterator[tuple[Use, str]]:
    """The uses of a name in code that ran, each with its "file:line"."""
    for code, _ in executed:
        for use in facts(code).uses:
            if use.name == name and use.stored is stored:
                yield use, f"{code.co_filename}:{use.line}"
