"""A program's steps as text: one step a line, what is inside of a step indented, then the kernels. `parse_steps` reads it back.

    program(int n):
        temp temp.0: f32[n]
        temp temp.1: bool[1]
        launch relu(in.0, temp.0) node 3 at "net.py:12"
        loop n independent invariant const.`w`:
            launch step(const.`w`, temp.0)
        if temp.1[0]:
            launch half(temp.0)
        else:
            launch double(temp.0)
        while limit 10:
            launch larger(temp.0, temp.1)
        do temp.1[0]:
            launch half(temp.0)

    kernel relu(in x: f32, out y: f32, int n):
        ...

A buffer is written as it is known to the program: `in.0`, `temp.3`, ``const.`name` ``. A function stands before its first call:
``function name(parameter, ...) own temp.4:``, and its steps; ``call name(temp.1, temp.2)``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from tengen.base.dtype import DType
from tengen.base.errors import VerifyError
from tengen.kernels.lowering import Lowering
from tengen.kernels.steps import Call, Flag, Function, If, Launch, Loop, Step, While, every_leaf, functions, verify_steps
from tengen.loops.builder import as_expr
from tengen.loops.lang import Expr, Index, var
from tengen.loops.parse import NESTING, ExprParser, Line, parse_kernel, split_lines
from tengen.loops.statements import Kernel
from tengen.loops.text import print_expr, print_kernel, quote


def spelled(id: Hashable) -> str:
    """A buffer as text."""
    if isinstance(id, tuple) and len(id) == 2 and isinstance(id[0], str) and id[0].isidentifier():
        if type(id[1]) is int and id[1] >= 0:
            return f"{id[0]}.{id[1]}"
        if isinstance(id[1], str):
            return f"{id[0]}.`{id[1]}`"
    return f"`{id if isinstance(id, str) else repr(id)}`"


def _index(i: Index) -> str:
    return print_expr(i) if isinstance(i, Expr) else str(i)


def print_steps(lo: Lowering) -> str:
    """A lowering's integers, temporaries, steps and kernels as text."""
    lines = [f"program({', '.join(f'int {quote(str(v.attr))}' for v in lo.ints)}):"]
    lines += [f"    temp {spelled(id)}: {d.short}[{_index(n)}]" for id, (d, n) in lo.temps.items()]
    for f in functions(lo.steps):
        own = f" own {_list(f.temps)}" if f.temps else ""
        lines.append(f"    function {quote(f.name)}({', '.join(map(spelled, f.parameters))}){own}:")
        _block(lines, 2, f.body)
    if lo.steps:
        _block(lines, 1, lo.steps)
    kernels = dict.fromkeys(leaf.launch.kernel for leaf in every_leaf(lo.steps))
    return "\n".join([*lines, ""]) + "".join("\n" + print_kernel(k) for k in kernels)


def _list(ids: Iterable[Hashable]) -> str:
    return ", ".join(sorted(map(spelled, ids)))


def _block(lines: list[str], depth: int, steps: Sequence[Step]) -> None:
    pad = "    " * depth
    if not steps:
        lines.append(f"{pad}pass")
    for s in steps:
        match s:
            case Launch():
                import json  # here: who only names arrays (`spelled`) loads nothing

                node = "" if s.node is None else f" node {s.node}"
                where = "" if s.where is None else f" at {json.dumps(s.where, ensure_ascii=False)}"
                lines.append(f"{pad}launch {quote(s.kernel.name)}({', '.join(map(spelled, s.ids))}){node}{where}")
            case Call():
                lines.append(f"{pad}call {quote(s.function.name)}({', '.join(map(spelled, s.ids))})")
            case Loop():
                lines.append(f"{pad}loop {_index(s.count)}{' independent' * s.independent}{_invariant(s.invariant)}:")
                _block(lines, depth + 1, s.body)
            case If():
                flag = f"{spelled(s.flag.id)}[{s.flag.offset}]" if isinstance(s.flag, Flag) else f"number {_index(s.flag)}"
                lines.append(f"{pad}if {flag}:")
                _block(lines, depth + 1, s.then)
                if s.otherwise:
                    lines.append(f"{pad}else:")
                    _block(lines, depth + 1, s.otherwise)
            case While():
                limit = "" if s.limit is None else f" limit {_index(s.limit)}"
                lines.append(f"{pad}while{limit}{_invariant(s.invariant)}:")
                _block(lines, depth + 1, s.condition)
                lines.append(f"{pad}do {spelled(s.flag.id)}[{s.flag.offset}]:")
                _block(lines, depth + 1, s.body)


def _invariant(ids: frozenset[Hashable]) -> str:
    return f" invariant {_list(ids)}" if ids else ""


def parse_steps(text: str, target=None) -> Lowering:
    """The lowering that a text of `print_steps`'s form describes, for a target; its steps and kernels are verified.

    Errors: VerifyError, with line and column where the text is wrong.
    """
    head, *kernels = text.split("\nkernel ")
    known: dict[str, Kernel] = {}
    for source in kernels:
        k = parse_kernel(f"kernel {source}")
        if k.name in known:
            raise VerifyError(f"two kernels are named {k.name}")
        known[k.name] = k
    parser = _StepsParser(head, known, target)
    lo = parser.program()
    verify_steps(lo.steps, lo.temps, lo.ints)
    return lo


class _StepsParser:
    def __init__(self, text: str, kernels: dict[str, Kernel], target):
        self.lines, self.at = split_lines(text), 0
        self.kernels, self.lo = kernels, Lowering(target)
        self.functions: dict[str, Function] = {}
        self.exprs = ExprParser(lambda name: next((v for v in self.lo.ints if v.attr == name), None))

    def peek(self, indent: int) -> Line | None:
        """The next line, where it is indented so far."""
        line = self.lines[self.at] if self.at < len(self.lines) else None
        return line if line is not None and line.indent == indent else None

    def program(self) -> Lowering:
        if not self.lines:
            raise VerifyError("line 1, column 1: unexpected end of the text")
        line = self.lines[0]
        line.expect("program", "(")
        while not line.accept(")"):
            if self.lo.ints:
                line.expect(",")
            line.expect("int")
            self.lo.ints.append(var(line.name("a name")))
        self.end(line)
        temps: dict[Hashable, tuple[DType, Index]] = self.lo.temps
        while (next_line := self.peek(4)) is not None and next_line.accept("temp"):
            id = self.buffer(next_line)
            if id in temps:
                next_line.fail(f"the temporary {spelled(id)} is given twice")
            next_line.expect(":")
            dtype = next_line.dtype()
            next_line.expect("[")
            temps[id] = dtype, self.index(next_line)
            next_line.expect("]")
            next_line.done()
            self.at += 1
        while (next_line := self.peek(4)) is not None and next_line.accept("function"):
            self.function(next_line)
        if self.at < len(self.lines):
            self.lo.steps = self.block(4, 0)
        if self.at < len(self.lines):
            self.lines[self.at].fail("unexpected text after the steps")
        return self.lo

    def function(self, line: Line) -> None:
        name = line.name("the function's name")
        if name in self.functions:
            line.fail(f"the function {name} is given twice")
        parameters = self.buffers(line)
        own = self.list(line) if line.accept("own") else ()
        self.end(line)
        self.functions[name] = Function(name, parameters, tuple(self.block(8, 0)), frozenset(own))

    def end(self, line: Line) -> None:
        line.expect(":")
        line.done()
        self.at += 1

    def index(self, line: Line) -> Index:
        self.exprs.depth = 0
        e = self.exprs.parse(line)
        return e.attr if e.op == "const" else e

    def buffer(self, line: Line) -> Hashable:
        t = line.next()
        if t.kind == "quoted":
            return t.text
        kind, dot, number = t.text.partition(".")
        if t.kind != "word" or not dot:
            line.fail("expected a buffer", t)
        if number.isdigit():
            return kind, int(number)
        name = line.next()
        if number or name.kind != "quoted":
            line.fail("expected a buffer", t)
        return kind, name.text

    def list(self, line: Line) -> tuple[Hashable, ...]:
        found = [self.buffer(line)]
        while line.accept(","):
            found.append(self.buffer(line))
        return tuple(found)

    def buffers(self, line: Line) -> tuple[Hashable, ...]:
        line.expect("(")
        if line.accept(")"):
            return ()
        found = self.list(line)
        line.expect(")")
        return found

    def flag(self, line: Line) -> Flag:
        id = self.buffer(line)
        line.expect("[")
        offset = line.integer()
        line.expect("]")
        return Flag(id, offset)

    def block(self, indent: int, depth: int) -> list[Step]:
        steps: list[Step] = []
        if depth > NESTING:
            raise VerifyError(f"steps nested deeper than {NESTING}")
        begin = self.at
        while (line := self.peek(indent)) is not None and line.peek().text not in ("else", "do"):
            if line.accept("pass"):
                line.done()
                self.at += 1
            else:
                steps.append(self.step(line, depth))
        if self.at == begin:
            number = self.lines[min(begin, len(self.lines) - 1)].number
            raise VerifyError(f"line {number}: expected a step, indented by {indent}")
        return steps

    def step(self, line: Line, depth: int) -> Step:
        word = line.next()
        inside = line.indent + 4
        match word.text:
            case "launch":
                return self.launch(line)
            case "call":
                name = line.name("a function")
                if name not in self.functions:
                    line.fail(f"no function {name} before this line")
                call = Call(self.functions[name], self.buffers(line))
                line.done()
                self.at += 1
                return call
            case "loop":
                count, independent = self.index(line), line.accept("independent")
                invariant = frozenset(self.list(line) if line.accept("invariant") else ())
                self.end(line)
                return Loop(count, tuple(self.block(inside, depth + 1)), invariant, independent)
            case "if":
                flag = as_expr(self.index(line)) if line.accept("number") else self.flag(line)
                self.end(line)
                then = tuple(self.block(inside, depth + 1))
                other = self.peek(line.indent)
                if other is None or not other.accept("else"):
                    return If(flag, then)
                self.end(other)
                return If(flag, then, tuple(self.block(inside, depth + 1)))
            case "while":
                return self.repeat_while(line, depth)
        line.fail("expected launch, call, loop, if or while", word)

    def launch(self, line: Line) -> Launch:
        name = line.name("a kernel")
        if name not in self.kernels:
            line.fail(f"no kernel {name} in this text")
        ids = self.buffers(line)
        node = line.integer() if line.accept("node") else None
        where = None
        if line.accept("at"):
            import json

            t = line.next()
            if t.kind != "string":
                line.fail("expected a string", t)
            where = json.loads(f'"{t.text}"')
        line.done()
        self.at += 1
        return Launch(self.kernels[name], ids, where, node)

    def repeat_while(self, line: Line, depth: int) -> While:
        limit = self.index(line) if line.accept("limit") else None
        invariant = frozenset(self.list(line) if line.accept("invariant") else ())
        self.end(line)
        condition = tuple(self.block(line.indent + 4, depth + 1))
        do = self.peek(line.indent)
        if do is None or not do.accept("do"):
            line.fail("a while needs a do behind its condition")
        flag = self.flag(do)
        self.end(do)
        return While(condition, flag, tuple(self.block(line.indent + 4, depth + 1)), limit, invariant)
