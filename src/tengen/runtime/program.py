"""A Program: the kernels of a lowering and a memory plan, compiled for one target.

Its one entry point has the C signature ``void run(ptr* buffers, i64* ints, ptr parallel)``: buffers are the inputs, the outputs
and the arena; ints are the program's parameters followed by what `Program.integers` derives from them (numbers of
pieces, offsets of temporaries); `parallel` shares a kernel's pieces among threads. The same text is compiled here and ahead
of time.
"""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tengen.base.config import config
from tengen.codegen.llvm import emit_module
from tengen.codegen.target import Target
from tengen.ir.graph import Check
from tengen.kernels.lowering import Array, Launch, Lowering, by_repeat
from tengen.kernels.schedule import Schedule
from tengen.loops.form import form
from tengen.loops.interp import evaluate
from tengen.loops.lang import Expr, Index, Kernel, as_int
from tengen.loops.text import print_kernel
from tengen.loops.verify import verify
from tengen.runtime import compile as compiler
from tengen.runtime import launch_log, native
from tengen.runtime.arena import Temporaries
from tengen.runtime.cache import compiled, object_name

MOST_BYTES = 1 << 60
_loading = threading.Lock()


@dataclass
class Program:
    """A compiled program.

    Attributes:
        text: its LLVM IR; "" where it was kept (`kept.py`), and only `code` is there.
        n_inputs, n_outputs: buffers expected. params: the integer parameters, in order.
        derived: expressions over params, and offsets of temporaries, that follow them in `ints`. temps: what lies in the arena.
        constants: its last input buffers: constants of the graph, ("const", name), and what
            `setup` makes, a program that is run once; it takes constants, and the buffers that it fills. output_bytes: of those.
        launches: what it runs, in order, if it was built to be recorded (`launch_log.py`); else None. costs: of those,
            as far as they were asked for. schedules: those that are not what the rule says, by key (`Schedules.key`).
        data: of the constants that it and its `setup` take, by id. folded: what made some of it, until the program is kept. checks: what
            is looked at after a run, in the order of the buffer. object: the name of its machine code in the cache. code: that.
    """

    name: str
    text: str
    target: Target
    n_inputs: int
    n_outputs: int
    params: list[Expr]
    derived: list[Expr]
    temps: Temporaries
    kernels: int
    constants: list[Hashable] = field(default_factory=list)
    setup: Program | None = None
    output_bytes: list[int] = field(default_factory=list)
    launches: list[Launch] | None = None
    costs: dict = field(default_factory=dict)
    schedules: dict[str, Schedule] = field(default_factory=dict)
    data: dict[Hashable, np.ndarray] = field(default_factory=dict)
    folded: Folded | None = None
    checks: list[Check] = field(default_factory=list)
    object: str = ""
    code: bytes | None = None
    _loaded: Any = None

    @property
    def address(self) -> int:
        """The entry point in this process, compiled or loaded from the cache on first use."""
        if self._loaded is None:
            start = time.perf_counter()
            with _loading:  # threads may load it at once: the first one's code stays, since plans know its address
                if self._loaded is None:
                    self._loaded = compiler.load_object(self.code or compiled(self.text, self.target), self.target)
                    self.code = None
            if config.debug >= 1:
                print(f"tengen: {self.name}: {self.kernels} kernels ready in {1e3 * (time.perf_counter() - start):.1f} ms")
        return self._loaded.address("run")

    def integers(self, values: Sequence[int]) -> list[int]:
        """The `ints` array for these parameter values."""
        placed = {} if self.temps.known else dict(zip(self.temps.offsets(), self._place(values)[0]))
        return [*values, *(placed[e] if e in placed else value_of(e, self.params, values) for e in self.derived)]

    def arena_bytes(self, values: Sequence[int]) -> int:
        """Bytes of scratch memory for these parameter values; MemoryError for more than any machine has."""
        return self._place(values)[1]

    def _place(self, values: Sequence[int]) -> tuple[tuple[int, ...], int]:
        env = dict(zip(self.params, values))
        sizes = [s if isinstance(s, int) else exact(s, env) for s in self.temps.sizes]
        check_bytes(sum(sizes), f"the temporaries of {self.name}")
        return self.temps.place(sizes)

    def plan(
        self,
        n_inputs: int,
        output_bytes: Sequence[int],
        values: Sequence[int] = (),
        release_gil: bool = False,
        entry: launch_log.Entry | None = None,
    ) -> Callable:
        """A builtin function that runs it for these parameter values: `native.make_plan`. entry: of a program that is recorded."""
        arena, ints = self.arena_bytes(values), self.integers(values)
        pool: bool | int = True
        if entry is not None:
            ints, pool = [*ints, entry.number], launch_log.recorder()
        return native.make_plan(self.address, n_inputs, output_bytes, arena, ints, pool, release_gil, owner=self)


@dataclass
class Folded:
    """What was computed of constants before a program was made.

    Attributes:
        program, arrays: what computed it, and where its outputs lie. names: what they are called in the graph; None for one that
            it has no more. values: the outputs.
    """

    program: Program
    arrays: list[Array]
    names: list[str | None]
    values: list[np.ndarray]


def value_of(e: Index, params: Sequence[Expr], values: Sequence[int]) -> int:
    """An index expression's value for these parameters."""
    known = as_int(e)
    return known if known is not None else int(evaluate(e, dict(zip(params, values))))  # type: ignore[arg-type]


_EXACT: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "min": min, "max": max,
    "quo": lambda a, b: a // b if b else 0, "rem": lambda a, b: a % b if b else 0,
}  # fmt: skip


def exact(e: Expr, env: dict[Expr, int]) -> int:
    """The value of an index expression in integers without bounds: what a kernel's int64 would wrap shows as too large."""
    known = dict(env)
    stack = [e]
    while stack:
        x = stack[-1]
        todo = [a for a in x.args if a not in known] if x not in known and x.op in _EXACT else []
        stack.extend(todo)
        if not todo:
            stack.pop()
            if x not in known:
                known[x] = _EXACT[x.op](*(known[a] for a in x.args)) if x.op in _EXACT else int(evaluate(x, env))
    return known[e]


def check_bytes(n: int, what: str) -> int:
    """n; MemoryError when no machine has so much memory (the runtime counts bytes in int64)."""
    if n >= MOST_BYTES:
        raise MemoryError(f"{what}: {n} bytes are more than any machine has")
    return n


def build(lo: Lowering, inputs: Sequence[Hashable], outputs: Sequence[Hashable], name: str, record: bool = False) -> Program:
    """Plans memory and writes the program's LLVM IR. Nothing is compiled yet. record: it hands every launch to `parallel`, as
    `launch_log.py` wants it; the kernels are the same."""
    kernels = list(dict.fromkeys(launch.kernel for launch in lo.launches))
    if config.check:
        for kernel in kernels:
            verify(kernel)
    if config.debug >= 3:
        for kernel in kernels:
            print(print_kernel(kernel))
    temps = Temporaries.of(lo)
    steps = _Steps(lo, record)
    steps.find([*inputs, *outputs], temps)
    steps.run_all()
    text = emit_module(list(steps.unique.values()), lo.target, steps.text())
    if config.debug >= 4:
        print(text)
    if config.debug >= 5:
        print(compiler.assembly(text, lo.target))
    return Program(
        name, text, lo.target, len(inputs), len(outputs), list(lo.ints), steps.derived, temps, len(steps.unique),
        launches=list(lo.launches) if record else None, object=object_name(text, lo.target),
    )  # fmt: skip


class _Steps:
    """The function that runs a program: it finds the buffers, then runs one launch after the other.

    Attributes:
        unique: the kernels to compile, one of each form. derived: what a call computes of its integers beforehand.
    """

    def __init__(self, lo: Lowering, record: bool):
        self.lo, self.record = lo, record
        self.lines: list[str] = []
        self.derived: list[Expr] = []
        self.unique: dict[Hashable, Kernel] = {}
        self._functions: dict[Kernel, str] = {}
        self._where: dict[Hashable, str] = {}  # the addresses of buffers

    def find(self, table: Sequence[Hashable], temps: Temporaries) -> None:
        """The addresses of the buffers of the table, and of the arena's temporaries."""
        used = {id for launch in self.lo.launches for id in launch.ids}
        for i, id in enumerate(table):
            if id in used and id not in self._where:
                self.lines.append(f"  %b{i}.p = getelementptr ptr, ptr %buffers, i64 {i}\n  %b{i} = load ptr, ptr %b{i}.p")
                self._where[id] = f"%b{i}"
        if temps.ids:
            self.lines.append(
                f"  %arena.p = getelementptr ptr, ptr %buffers, i64 {len(table)}\n  %arena = load ptr, ptr %arena.p"
            )
        for j, (id, offset) in enumerate(zip(temps.ids, temps.offsets())):
            self.lines.append(f"  %t{j} = getelementptr i8, ptr %arena, i64 {self._operand(offset)}")
            self._where[id] = f"%t{j}"

    def run_all(self) -> None:
        """The launches, in loops where they are repeated."""
        block = "entry"
        for repeat, launches in by_repeat(self.lo.launches):
            if repeat is not None:
                begin, block = _loop(len(self.lines), block, self._operand(repeat.count))
                self.lines.append(begin)
            for number, launch in launches:
                self._run(number, launch, "%ints" if repeat is None else "%own")
            if repeat is not None:
                self.lines.append(f"  br label %{block}.next\n{block}:")

    def _run(self, number: int, launch: Launch, ints: str) -> None:
        if launch.kernel not in self._functions:
            self._functions[launch.kernel] = self.unique.setdefault(form(launch.kernel), launch.kernel).name
        fn = self._functions[launch.kernel]
        for a, id in enumerate(launch.ids):
            slot = f"%s{len(self.lines)}"
            self.lines.append(f"  {slot} = getelementptr ptr, ptr %args, i64 {a}\n  store ptr {self._where[id]}, ptr {slot}")
        pieces = self._operand(launch.kernel.pieces)
        if self.record:
            self.lines.append(f"  store i64 {number}, ptr %launch")
        if pieces == "1" and not self.record:
            self.lines.append(f"  call void @{fn}(ptr %args, ptr {ints}, i64 0, i64 1)")
        else:
            self.lines.append(f"  call void %parallel(ptr @{fn}, ptr %args, ptr {ints}, i64 {pieces})")

    def _operand(self, e: Index) -> str:
        if (n := as_int(e)) is not None:
            return str(n)
        if e not in self.derived:
            self.derived.append(e)  # type: ignore[arg-type]
        i = len(self.lo.ints) + self.derived.index(e)  # type: ignore[arg-type]
        r = f"%d{len(self.lines)}"
        self.lines.append(f"  {r}.p = getelementptr i64, ptr %ints, i64 {i}\n  {r} = load i64, ptr {r}.p")
        return r

    def text(self) -> str:
        """The function's LLVM IR."""
        widest, ints = max((len(launch.ids) for launch in self.lo.launches), default=0), len(self.lo.ints)
        head = f"  %args = alloca [{max(widest, 1)} x ptr], align 16"
        if self.record:  # two words before the arguments: which plan, which launch
            head = f"  %frame = alloca [{widest + 2} x ptr], align 16\n  %args = getelementptr ptr, ptr %frame, i64 2"
            head += "\n  %launch = getelementptr ptr, ptr %frame, i64 1"
        if any(launch.repeat for launch in self.lo.launches):
            head += _own_integers(ints)
        if self.record:
            head += (
                f"\n  %plan.p = getelementptr i64, ptr %ints, i64 {ints + len(self.derived)}\n  %plan = load i64, ptr %plan.p"
            )
            head += "\n  store i64 %plan, ptr %frame"
        body = "\n".join([head, *self.lines])
        return f"define void @run(ptr %buffers, ptr %ints, ptr %parallel) {{\nentry:\n{body}\n  ret void\n}}\n"


def _own_integers(n: int) -> str:
    """A run's own copy of the program's n parameters, followed by the step of a loop: other threads may run the program too."""
    text = f"\n  %own = alloca [{n + 1} x i64], align 16\n  %step.p = getelementptr i64, ptr %own, i64 {n}"
    for i in range(n):
        text += f"\n  %p{i}.from = getelementptr i64, ptr %ints, i64 {i}\n  %p{i} = load i64, ptr %p{i}.from"
        text += f"\n  %p{i}.to = getelementptr i64, ptr %own, i64 {i}\n  store i64 %p{i}, ptr %p{i}.to"
    return text


def _loop(number: int, before: str, count: str) -> tuple[str, str]:
    """The head of a loop over the step that begins in the block `before`; and the block after the loop, whose body ends with a
    branch to that block's ".next"."""
    after, step = f"after{number}", f"%step{number}"
    return (
        f"  br label %{after}.test\n{after}.test:\n  {step} = phi i64 [0, %{before}], [{step}.next, %{after}.next]\n"
        f"  {step}.left = icmp slt i64 {step}, {count}\n  br i1 {step}.left, label %{after}.body, label %{after}\n"
        f"{after}.next:\n  {step}.next = add i64 {step}, 1\n  br label %{after}.test\n"
        f"{after}.body:\n  store i64 {step}, ptr %step.p"
    ), after
