"""A program's steps as LLVM IR: a function that finds the buffers, then runs one step after the other.

In: a lowering, the order of its buffers, the offsets of its temporaries. Out: the text of `run` and of the functions that it
calls, the kernels to compile, and the integers that a call has to compute before. Control flow of a program is control flow of
this text: nothing is dispatched again in an iteration.

    define void @run(ptr %buffers, i64* %ints, ptr %parallel)       ; %parallel shares a kernel's pieces among threads
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tengen.compiler.arena import Temporaries
from tengen.kernels.lowering import Lowering
from tengen.kernels.steps import Call, Flag, If, Launch, Loop, Step, While, blocks, every_leaf, flags, functions
from tengen.loops.form import form
from tengen.loops.lang import Expr, Index, as_int
from tengen.loops.statements import Kernel

# i32 (state, step): whether a loop is to be stopped, since a signal's handler has raised an exception. It is called at iteration
# state[0], which it sets anew, so that it is called some twenty times a second.
ASK = "tengen_stop"
ASK_DECLARED = f"declare i32 @{ASK}(ptr, i64)\n"
ASK_NOBODY = f"define internal i32 @{ASK}(ptr %state, i64 %step) {{\n  store i64 {(1 << 63) - 1}, ptr %state\n  ret i32 0\n}}\n"


class ProgramText:
    """The text of a program.

    Attributes:
        unique: the kernels to compile, one of each form. derived: integers that a call computes before from its parameters.
        log_launches: whether each launch is passed to `parallel` with its number, as `launch_log.py` needs it.
    """

    def __init__(self, lo: Lowering, table: Sequence[Hashable], temps: Temporaries, log_launches: bool):
        self.lo, self.log_launches, self.temps = lo, log_launches, temps
        self.asks = False  # whether it has a loop that may be stopped
        self.derived: list[Expr] = []
        self.unique: dict[Hashable, Kernel] = {}
        self._names: dict[Kernel, str] = {}
        self.functions = {id(f): f"function{i}" for i, f in enumerate(functions(lo.steps))}
        self._numbers = iter(range(len(every_leaf(lo.steps))))
        bodies = [(self.functions[id(f)], _Body(self, f.body, f.parameters)) for f in functions(lo.steps)]
        bodies.append(("run", _Body(self, lo.steps, table)))
        self.text = "".join(body.text(name) for name, body in bodies) + (ASK_DECLARED if self.asks else "")

    def kernel(self, k: Kernel) -> str:
        """The name of a kernel's function: kernels of one form share it."""
        if k not in self._names:
            self._names[k] = self.unique.setdefault(form(k), k).name
        return self._names[k]

    def next_launch(self) -> int:
        """The number of the launch that is written now: its position in `steps.every_leaf`."""
        return next(self._numbers)

    def position(self, e: Expr) -> int:
        """The position in `ints` of an expression that a call computes before."""
        if e not in self.derived:
            self.derived.append(e)
        return len(self.lo.ints) + self.derived.index(e)


class _Body:
    """The body of `run`, or of a function that it calls: it is given a table of its buffers, and the arena after them."""

    def __init__(self, program: ProgramText, steps: Sequence[Step], table: Sequence[Hashable]):
        self.program, self.steps = program, steps
        self.lines: list[str] = []
        self.where: dict[Hashable, str] = {}  # the addresses of buffers
        self.label = "entry"  # of the basic block that is being written
        self.loaded: dict[tuple[str, int], str] = {}  # integers of a call, by the block that loads them and their position
        self.widest, self.depth, self.deepest = 0, 0, 0
        self.asking: list[str] = []
        self.around: list[str] = []  # of them, those of the loops that are being written
        self._find(table)
        self._run_all(steps)

    def _find(self, table: Sequence[Hashable]) -> None:
        """The addresses of the buffers of the table, and of the arena's temporaries."""
        used, temps = _used(self.steps), self.program.temps
        calls = any(isinstance(s, Call) for s in _every(self.steps))
        for i, id in enumerate(table):
            if id in used and id not in self.where:
                place = f"  %b{i}.p = getelementptr ptr, ptr %buffers, i64 {i}\n" if i else ""
                self.lines.append(f"{place}  %b{i} = load ptr, ptr {f'%b{i}.p' if i else '%buffers'}")
                self.where[id] = f"%b{i}"
        if temps.ids and (calls or any(id in used for id in temps.ids)):
            self.lines.append(f"  %arena.p = getelementptr ptr, ptr %buffers, i64 {len(table)}\n  %arena = load ptr, ptr %arena.p")
        for j, (id, offset) in enumerate(zip(temps.ids, temps.offsets())):
            if id in used:
                self.lines.append(f"  %t{j} = getelementptr i8, ptr %arena, i64 {self._operand(offset)}")
                self.where[id] = f"%t{j}"

    # -- steps -----------------------------------------------------------------------------------------------------------
    def _run_all(self, steps: Sequence[Step]) -> None:
        for s in steps:
            match s:
                case Launch():
                    self._launch(s)
                case Loop():
                    self._loop(self._operand(s.count), lambda after, step: None, s.body)
                case While():
                    limit = None if s.limit is None else self._operand(s.limit)
                    state = self._begin_asking()
                    self._loop(limit, lambda after, step, s=s, state=state: self._condition(s, after, step, state), s.body)
                    self.around.remove(state)
                case If():
                    self._if(s)
                case Call():
                    self._call(s)

    def _launch(self, launch: Launch) -> None:
        fn, number = self.program.kernel(launch.kernel), self.program.next_launch()
        self._arguments(launch.ids)
        items, ints = self._operand(launch.kernel.pieces), "%own" if self.depth else "%ints"
        if self.program.log_launches:
            self.lines.append(f"  store i64 {number}, ptr %launch")
        if items == "1" and not self.program.log_launches:
            self.lines.append(f"  call void @{fn}(ptr %args, ptr {ints}, i64 0, i64 1)")
        else:
            self.lines.append(f"  call void %parallel(ptr @{fn}, ptr %args, ptr {ints}, i64 {items})")

    def _call(self, call: Call) -> None:
        """The buffers, and the arena after them, are the function's table."""
        self._arguments(call.ids)
        if self.program.temps.ids:
            self._argument(len(call.ids), "%arena")
        self.widest = max(self.widest, len(call.ids) + 1)
        self.lines.append(f"  call void @{self.program.functions[id(call.function)]}(ptr %args, ptr %ints, ptr %parallel)")

    def _loop(self, count: str | None, condition, body: Sequence[Step]) -> None:
        """Writes a loop. count: how many iterations there are at most; None: no limit. condition: given the label behind the
        loop and the name of the iteration's number, writes the steps and the branch that end it."""
        head, after, step = _loop_head(len(self.lines), self.label, count, self.depth)
        self.lines.append(head)
        self.label = f"{after}.body"
        self.depth += 1
        self.deepest = max(self.deepest, self.depth)
        condition(after, step)
        self._run_all(body)
        self.depth -= 1
        self.lines.append(f"  br label %{after}.next\n{after}:")
        self.label = after

    def _begin_asking(self) -> str:
        """Memory in which a loop that may never end keeps when it asks next whether it is to be stopped: see `ASK`."""
        self.program.asks = True
        self.asking.append(state := f"%ask{len(self.asking)}")
        self.lines.append(f"  store [3 x i64] zeroinitializer, ptr {state}")
        return state

    def _condition(self, s: While, after: str, step: str, state: str) -> None:
        ask = f"{after}.ask"
        end, stop = "", after
        if self.around:  # loops around this one ask at once too: an iteration of theirs may have taken much longer than those before
            tell = (f"  store [2 x i64] [i64 0, i64 1], ptr {outer}\n" for outer in self.around)
            end, stop = f"{ask}.end:\n{''.join(tell)}  br label %{after}\n", f"{ask}.end"
        self.lines.append(
            f"  %{ask}.next = load i64, ptr {state}\n  %{ask}.due = icmp sge i64 {step}, %{ask}.next\n"
            f"  br i1 %{ask}.due, label %{ask}, label %{ask}.go, !prof !{{!\"branch_weights\", i32 1, i32 1000000}}\n{ask}:\n"
            f"  %{ask}.code = call i32 @{ASK}(ptr {state}, i64 {step})\n  %{ask}.stop = icmp ne i32 %{ask}.code, 0\n"
            f"  br i1 %{ask}.stop, label %{stop}, label %{ask}.go\n{end}{ask}.go:"
        )
        self.label = f"{ask}.go"
        self.around.append(state)
        self._run_all(s.condition)
        flag, here = self._flag(s.flag), f"{after}.holds"
        self.lines.append(f"  br i1 {flag}, label %{here}, label %{after}\n{here}:")
        self.label = here

    def _if(self, s: If) -> None:
        flag, n = self._flag(s.flag), len(self.lines)
        self.lines.append(f"  br i1 {flag}, label %then{n}, label %else{n}\nthen{n}:")
        self.label = f"then{n}"
        self._run_all(s.then)
        self.lines.append(f"  br label %endif{n}\nelse{n}:")
        self.label = f"else{n}"
        self._run_all(s.otherwise)
        self.lines.append(f"  br label %endif{n}\nendif{n}:")
        self.label = f"endif{n}"

    # -- operands --------------------------------------------------------------------------------------------------------
    def _arguments(self, ids: Sequence[Hashable]) -> None:
        self.widest = max(self.widest, len(ids))
        for i, id in enumerate(ids):
            self._argument(i, self.where[id])

    def _argument(self, i: int, address: str) -> None:
        self.lines.append(f"  store ptr {address}, ptr %args{f'.{i}' if i else ''}")

    def _flag(self, flag: Flag | Expr) -> str:
        r = f"%f{len(self.lines)}"
        if isinstance(flag, Expr):
            number = self._operand(flag)
            self.lines.append(f"  {r} = icmp ne i64 {number}, 0")
            return r
        self.lines.append(
            f"  {r}.p = getelementptr i8, ptr {self.where[flag.id]}, i64 {flag.offset}\n  {r}.b = load i8, ptr {r}.p\n"
            f"  {r} = icmp ne i8 {r}.b, 0"
        )
        return r

    def _operand(self, e: Index) -> str:
        if (n := as_int(e)) is not None:
            return str(n)
        place = self.label, self.program.position(e)
        if place not in self.loaded:
            r = self.loaded[place] = f"%d{len(self.lines)}"
            self.lines.append(f"  {r}.p = getelementptr i64, ptr %ints, i64 {place[1]}\n  {r} = load i64, ptr {r}.p")
        return self.loaded[place]

    def text(self, name: str) -> str:
        """The function's LLVM IR. It may be asked for only when all functions are written: the number of the plan, for the
        launch log, comes after all other integers."""
        ints, logged = len(self.program.lo.ints), self.program.log_launches
        head = f"  %args = alloca [{max(self.widest, 1)} x ptr], align 16"
        if logged:  # two words before the arguments: which plan, which launch
            head = f"  %frame = alloca [{self.widest + 2} x ptr], align 16\n  %args = getelementptr ptr, ptr %frame, i64 2"
            head += "\n  %launch = getelementptr ptr, ptr %frame, i64 1"
        head += "".join(f"\n  %args.{i} = getelementptr ptr, ptr %args, i64 {i}" for i in range(1, self.widest))
        head += "".join(f"\n  {state} = alloca [3 x i64], align 8" for state in self.asking)
        if self.deepest:
            head += _own_integers(ints, self.deepest)
        if logged:
            plan = ints + len(self.program.derived)
            head += f"\n  %plan.p = getelementptr i64, ptr %ints, i64 {plan}\n  %plan = load i64, ptr %plan.p"
            head += "\n  store i64 %plan, ptr %frame"
        linkage = "" if name == "run" else "internal "
        body = "\n".join([head, *self.lines])
        return f"define {linkage}void @{name}(ptr %buffers, ptr %ints, ptr %parallel) {{\nentry:\n{body}\n  ret void\n}}\n"


def _every(steps: Sequence[Step]):
    """All steps, and those inside of them; not those of functions."""
    for s in steps:
        yield s
        for block in blocks(s):
            yield from _every(block)


def _used(steps: Sequence[Step]) -> set[Hashable]:
    """The buffers that a body names."""
    found: set[Hashable] = set()
    for s in _every(steps):
        if isinstance(s, (Launch, Call)):
            found.update(s.ids)
        elif isinstance(s, (If, While)):
            found.update(flags(s))
    return found


def _own_integers(n: int, depth: int) -> str:
    """A run's own copy of the program's n parameters, followed by the numbers of the current iterations. Each run has its own,
    as other threads may run the program at the same time."""
    text = f"\n  %own = alloca [{n + depth} x i64], align 16"
    for d in range(depth):
        text += f"\n  %{_number(d)}.p = getelementptr i64, ptr %own, i64 {n + d}"
    for i in range(n):
        text += f"\n  %p{i}.from = getelementptr i64, ptr %ints, i64 {i}\n  %p{i} = load i64, ptr %p{i}.from"
        text += f"\n  %p{i}.to = getelementptr i64, ptr %own, i64 {i}\n  store i64 %p{i}, ptr %p{i}.to"
    return text


def _number(depth: int) -> str:
    return f"step.{depth}" if depth else "step"


def _loop_head(number: int, before: str, count: str | None, depth: int) -> tuple[str, str, str]:
    """(the text of a loop's head, the label of the block behind the loop, the name of the iteration's number).

    The loop follows the block `before`; its body ends with a branch to that label with ".next" appended."""
    after, step = f"after{number}", f"%step{number}"
    test = f"  br label %{after}.body\n"
    if count is not None:
        test = f"  {step}.left = icmp slt i64 {step}, {count}\n  br i1 {step}.left, label %{after}.body, label %{after}\n"
    return (
        f"  br label %{after}.test\n{after}.test:\n  {step} = phi i64 [0, %{before}], [{step}.next, %{after}.next]\n{test}"
        f"{after}.next:\n  {step}.next = add i64 {step}, 1\n  br label %{after}.test\n"
        f"{after}.body:\n  store i64 {step}, ptr %{_number(depth)}.p"
    ), after, step
