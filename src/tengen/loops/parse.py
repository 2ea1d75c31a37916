"""The parser of the kernel language's text form (see `text.py`), and the lexer that the graph IR's parser shares.

In: any text. Out: a verified `Kernel`, or a `VerifyError` with line and column. Nothing is executed, and nesting is bounded, so
no text makes the parser fail in another way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tengen.base.dtype import ALL, DType, bool_, int32, int64
from tengen.base.errors import VerifyError
from tengen.base.record import record
from tengen.loops.lang import DOTS, LANES, LOOKUPS, OPS, Expr, expr, splat, var
from tengen.loops.statements import Assign, Buffer, Declare, External, For, If, Kernel, Let, Load, Prefetch, Store
from tengen.loops.verify import typed, verify

NESTING = 64  # of blocks, and of parentheses
DTYPES = {d.short: d for d in ALL}

_TOKEN = re.compile(
    r"""(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?(?:[a-z]\w*)?) | (?P<word>[A-Za-z_][\w.]*) | `(?P<quoted>[^`]+)`
    | \$(?P<temp>\d+) | "(?P<string>(?:[^"\\]|\\.)*)" | (?P<space>[ ]+|\#.*)
    | (?P<sign>->|//|<<|>>|==|!=|<=|>=|[-+*/%&|^~<>()\[\]{},:=@])""",
    re.ASCII | re.VERBOSE,
)
_NUMBER = re.compile(r"(\d+)((?:\.\d+)?(?:e[+-]?\d+)?)([a-z]\w*)?", re.ASCII)
# Infix operators with their precedence, Python's. All associate to the left.
INFIX = {
    "eq": ("==", 1), "ne": ("!=", 1), "lt": ("<", 1), "le": ("<=", 1), "gt": (">", 1), "ge": (">=", 1),
    "or": ("|", 2), "xor": ("^", 3), "and": ("&", 4), "shl": ("<<", 5), "shr": (">>", 5), "add": ("+", 6), "sub": ("-", 6),
    "mul": ("*", 7), "div": ("/", 7), "quo": ("//", 7), "rem": ("%", 7),
}  # fmt: skip
_SIGNS = {sign: (op, precedence) for op, (sign, precedence) in INFIX.items()}


@record(frozen=True)
class Token:
    """`kind`: "number", "word", "quoted", "temp", "string", "sign" or "end"."""

    kind: str
    text: str
    column: int


class Line:
    """One line of text as tokens, with a cursor; its errors name line and column."""

    def __init__(self, text: str, number: int):
        self.number, self.at = number, 0
        self.indent = len(text) - len(text.lstrip(" "))
        self.tokens: list[Token] = []
        i = 0
        while i < len(text):
            m = _TOKEN.match(text, i)
            if m is None:
                raise VerifyError(f"line {number}, column {i + 1}: unexpected {text[i]!r}")
            kind = m.lastgroup or ""
            if kind != "space":
                self.tokens.append(Token(kind, m[kind], i + 1))
            i = m.end()
        self.end = Token("end", "", len(text) + 1)

    def fail(self, message: str, token: Token | None = None) -> NoReturn:
        raise VerifyError(f"line {self.number}, column {(token or self.peek()).column}: {message}")

    def peek(self) -> Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else self.end

    def next(self) -> Token:
        t = self.peek()
        self.at += 1
        return t

    def accept(self, *texts: str) -> bool:
        """Takes these words or signs, if they all come next."""
        here = self.tokens[self.at : self.at + len(texts)]
        if [t.text for t in here] != list(texts) or any(t.kind not in ("sign", "word") for t in here):
            return False
        self.at += len(texts)
        return True

    def expect(self, *texts: str) -> None:
        for text in texts:
            if not self.accept(text):
                got = self.peek()
                self.fail(f"expected {text!r}, got {got.text!r}" if got.kind != "end" else f"expected {text!r}")

    def name(self, what: str) -> str:
        t = self.next()
        if t.kind not in ("word", "quoted"):
            self.fail(f"expected {what}", t)
        return t.text

    def dtype(self, known: Mapping[str, DType] = DTYPES) -> DType:
        """The dtype that comes next, by its name among those known: of values in kernels, or of tensors."""
        t = self.next()
        if t.kind != "word" or t.text not in known:
            self.fail(f"expected a dtype, one of {', '.join(known)}", t)
        return known[t.text]

    def integer(self) -> int:
        """A plain literal of at most 19 digits."""
        t = self.next()
        if t.kind != "number" or not t.text.isdigit() or len(t.text) > 19:
            self.fail("expected an integer", t)
        return int(t.text)

    def done(self) -> None:
        if self.peek().kind != "end":
            self.fail(f"unexpected {self.peek().text!r}")


def split_lines(text: object) -> list[Line]:
    """The lines of a text that hold anything."""
    if not isinstance(text, str):
        raise VerifyError(f"expected text, got {type(text).__name__}")
    lines = [Line(s, i) for i, s in enumerate(text.split("\n"), 1)]
    return [line for line in lines if line.tokens]


class ExprParser:
    """Expressions by precedence climbing.

    Args:
        lookup: the value of a name, or None.
        temps: what the `$` names stand for.
    """

    def __init__(self, lookup: Callable[[str], Expr | None], temps: dict[str, Expr] | None = None):
        self.lookup, self.temps, self.depth = lookup, temps if temps is not None else {}, 0

    def parse(self, line: Line, least: int = 1) -> Expr:
        """The longest expression whose operators bind at least as tightly as `least`."""
        self.depth += 1
        if self.depth > NESTING:
            line.fail(f"nested deeper than {NESTING}")
        left = self.unary(line)
        while (t := line.peek()).kind == "sign" and t.text in _SIGNS and _SIGNS[t.text][1] >= least:
            line.next()
            op, p = _SIGNS[t.text]
            left = self.make(line, t, op, (left, self.parse(line, p + 1)))
            if p == 1 and line.peek().kind == "sign" and _SIGNS.get(line.peek().text, ("", 0))[1] == 1:
                line.fail("comparisons do not chain")
        self.depth -= 1
        return left

    def make(self, line: Line, t: Token, op: str, args: tuple[Expr, ...], attr: object = None) -> Expr:
        if len({a.lanes for a in args}) > 1:
            args = tuple(splat(a) for a in args)
        try:
            return typed(op, args, attr)
        except VerifyError as e:
            line.fail(str(e), t)

    def unary(self, line: Line) -> Expr:
        signs = []
        while line.peek().kind == "sign" and line.peek().text in "-~":
            signs.append(line.next())
        t = line.peek()
        if signs and signs[-1].text == "-" and (t.kind == "number" or (t.kind == "word" and _special(t.text))):
            signs.pop()
            e = self.number(line, line.next(), "-")
        else:
            e = self.atom(line)
        for s in reversed(signs):
            e = self.make(line, s, "neg" if s.text == "-" else "not", (e,))
        return e

    def atom(self, line: Line) -> Expr:
        t = line.next()
        if t.kind == "sign" and t.text == "(":
            e = self.parse(line)
            line.expect(")")
            return e
        if t.kind == "number" or (t.kind == "word" and _special(t.text)):
            return self.number(line, t, "")
        if t.kind == "temp":
            if t.text not in self.temps:
                line.fail(f"${t.text} is not defined", t)
            return self.temps[t.text]
        if t.kind == "word" and t.text in ("true", "false"):
            return expr("const", (), bool_, 1, t.text == "true")
        if t.kind == "word" and line.accept("("):
            return self.function(line, t)
        if t.kind not in ("word", "quoted"):
            line.fail("expected an expression", t)
        e = self.lookup(t.text)
        if e is None:
            line.fail(f"{t.text} is not defined", t)
        return e

    def number(self, line: Line, t: Token, sign: str) -> Expr:
        if t.kind == "word":
            short, _, name = t.text.partition(".")
            return expr("const", (), DTYPES[short], 1, float(sign + name))
        m = _NUMBER.fullmatch(t.text)
        if m is None or (m[3] and m[3] not in DTYPES) or len(t.text) > 400:
            line.fail(f"{t.text!r} is not a literal", t)
        dt = DTYPES[m[3]] if m[3] else int64
        if dt.is_float:
            return expr("const", (), dt, 1, float(sign + m[1] + m[2]))
        if m[2] or dt is bool_:
            line.fail(f"{t.text!r} is not a literal of {dt}; help: floats end in their dtype, such as 1.5f32", t)
        n = int(sign + m[1])
        low = -(1 << (dt.bits - 1)) if dt.kind == "i" else 0
        if not low <= n < low + (1 << dt.bits):
            line.fail(f"{n} is not a value of {dt}", t)
        return expr("const", (), dt, 1, n)

    def function(self, line: Line, t: Token) -> Expr:
        args: list[Expr] = []
        while not line.accept(")"):
            if args:
                line.expect(",")
            args.append(self.parse(line))
        if t.text in DTYPES:
            return self.make(line, t, "cast", tuple(args), DTYPES[t.text])
        op, _, attr = t.text.partition(".")
        if op in ("bitcast", "math", "lane", "fold", "shuffle"):
            if op == "bitcast":
                return self.make(line, t, op, tuple(args), DTYPES.get(attr))
            value = int(attr) if op == "lane" and re.fullmatch("[0-9]{1,2}", attr) else attr
            return self.make(line, t, "call" if op == "math" else op, tuple(args), value)
        if attr or (op not in OPS and op not in ("select", "splat", "ramp", *LOOKUPS, *DOTS)):
            line.fail(f"there is no function {t.text}", t)
        return self.make(line, t, op, tuple(args))


def _special(word: str) -> bool:
    short, _, name = word.partition(".")
    return name in ("inf", "nan") and short in DTYPES and DTYPES[short].is_float


def parse_expr(text: str, symbols: dict[str, Expr] | None = None) -> Expr:
    """One expression. Names that `symbols` does not hold are int64 variables.

    Errors: VerifyError, naming line and column.
    """
    table = symbols or {}
    lines = split_lines(text)
    if len(lines) != 1:
        raise VerifyError("expected one expression")
    e = ExprParser(lambda name: table.get(name) or var(name)).parse(lines[0])
    lines[0].done()
    return e


class _KernelParser:
    def __init__(self, text: object):
        self.lines = split_lines(text)
        self.at = 0
        self.names: dict[str, Expr] = {}
        self.buffers: dict[str, Buffer] = {}
        self.exprs = ExprParser(self.names.get)

    def line(self) -> Line:
        if self.at >= len(self.lines):
            last = self.lines[-1].number if self.lines else 1
            raise VerifyError(f"line {last + 1}, column 1: unexpected end of the text")
        self.at += 1
        return self.lines[self.at - 1]

    def expr(self, line: Line) -> Expr:
        self.exprs.depth = 0
        return self.exprs.parse(line)

    def define(self, line: Line, name: str, dt: DType, lanes: int = 1) -> Expr:
        if name in self.names:
            line.fail(f"the name {name} is given twice")
        self.names[name] = v = var(name, dt, lanes)
        return v

    def kernel(self) -> Kernel:
        line = self.line()
        line.expect("kernel")
        k = Kernel(line.name("the kernel's name"), [], [], var("?"), var("?"), [])
        line.expect("(")
        while not line.accept(")"):
            if k.buffers or k.ints:
                line.expect(",")
            if line.accept("int"):
                k.ints.append(self.define(line, line.name("a name"), int64))
            else:
                k.buffers.append(self.buffer(line, "in", "out"))
        line.expect(":")
        line.done()
        while (line := self.line()).peek().text == "scratch":
            k.scratch.append(self.buffer(line, "scratch"))
            line.done()
        while self.temporary(line):
            line = self.line()
        line.expect("each")
        name = line.name("a name")
        line.expect("of")
        k.pieces = self.expr(line)
        k.piece = self.define(line, name, int64)
        line.expect(":")
        line.done()
        k.body = self.block(line.indent, 1)
        if self.at < len(self.lines):
            self.lines[self.at].fail("unexpected text after the kernel")
        verify(k)
        return k

    def buffer(self, line: Line, *roles: str) -> Buffer:
        t = line.next()
        if t.kind != "word" or t.text not in roles:
            line.fail(f"expected {' or '.join(roles)}", t)
        name = line.name("a name")
        if name in self.buffers:
            line.fail(f"the name {name} is given twice")
        line.expect(":")
        b = Buffer(name, line.dtype(), t.text)
        if line.accept("["):
            b.size = line.integer()
            line.expect("]")
        self.buffers[name] = b
        return b

    def temporary(self, line: Line) -> bool:
        """`$n = expression`."""
        t = line.peek()
        if t.kind != "temp":
            return False
        line.next()
        line.expect("=")
        if t.text in self.exprs.temps:
            line.fail(f"${t.text} is defined twice", t)
        self.exprs.temps[t.text] = self.expr(line)
        line.done()
        return True

    def block(self, outer: int, depth: int) -> list:
        """The statements that are indented deeper than `outer`."""
        body: list = []
        first = self.lines[self.at] if self.at < len(self.lines) else None
        if first is None or first.indent <= outer:
            raise VerifyError(f"line {self.lines[self.at - 1].number + 1}, column {outer + 1}: expected an indented block")
        if depth > NESTING:
            first.fail(f"blocks nested deeper than {NESTING}")
        while self.at < len(self.lines) and self.lines[self.at].indent > outer:
            line = self.line()
            if line.indent != first.indent:
                line.fail("unexpected indentation")
            if line.accept("pass"):
                line.done()
            elif not self.temporary(line):
                body.append(self.statement(line, depth))
        return body

    def statement(self, line: Line, depth: int):
        t = line.next()
        match t.text if t.kind == "word" else "":
            case "let" | "var":
                name = line.name("a name")
                line.expect("=")
                value = self.expr(line)
                line.done()
                v = self.define(line, name, value.dtype, value.lanes)
                return Let(v, value) if t.text == "let" else Declare(v, value)
            case "set":
                name = line.name("a name")
                line.expect("=")
                value = self.expr(line)
                line.done()
                if name not in self.names:
                    line.fail(f"{name} is not defined")
                return Assign(self.names[name], value)
            case "load":
                return self.load(line)
            case "store":
                buffer, index = self.place(line)
                line.expect("=")
                value = self.expr(line)
                count = self.expr(line) if line.accept("first") else None
                stream = line.accept("stream")
                line.done()
                return Store(buffer, index, value, count, bool(stream))
            case "prefetch":
                buffer, index = self.place(line)
                line.done()
                return Prefetch(buffer, index)
            case "extern":
                return self.external(line)
            case "for":
                return self.loop(line, depth)
            case "if":
                cond = self.expr(line)
                line.expect(":")
                line.done()
                s = If(cond, self.block(line.indent, depth + 1))
                if self.at < len(self.lines) and self.lines[self.at].indent == line.indent:
                    if self.lines[self.at].accept("else", ":"):
                        self.line().done()
                        s.orelse = self.block(line.indent, depth + 1)
                return s
        line.fail(f"{t.text!r} does not begin a statement", t)

    def load(self, line: Line) -> Load:
        name = line.name("a name")
        line.expect(":")
        t = line.next()
        short, x, lanes = t.text.partition("x")
        if t.kind != "word" or short not in DTYPES or (x and lanes != str(LANES)):
            line.fail(f"expected a type, such as f32 or f32x{LANES}", t)
        line.expect("=")
        buffer, index = self.place(line)
        count = other = None
        if line.accept("first"):
            count = self.expr(line)
            line.expect("else")
            other = self.expr(line)
        line.done()
        return Load(self.define(line, name, DTYPES[short], LANES if x else 1), buffer, index, count, other)

    def external(self, line: Line) -> External:
        name = line.name("a name")
        line.expect("=")
        symbol = line.name("the name of a C function")
        places, shapes, numbers = (self.several(line, one) for one in (self.place, self.expr, self.expr))
        line.done()
        return External(self.define(line, name, int32), symbol, places, shapes, numbers)

    def several(self, line: Line, one: Callable[[Line], Any]) -> tuple:
        """What stands between parentheses, with commas."""
        line.expect("(")
        found: list = []
        while not line.accept(")"):
            if found:
                line.expect(",")
            found.append(one(line))
        return tuple(found)

    def place(self, line: Line) -> tuple[Buffer, Expr]:
        name = line.name("a buffer's name")
        if name not in self.buffers:
            line.fail(f"there is no buffer {name}")
        line.expect("[")
        index = self.expr(line)
        line.expect("]")
        return self.buffers[name], index

    def loop(self, line: Line, depth: int) -> For:
        name = line.name("a name")
        line.expect("in", "range", "(")
        start = self.expr(line)
        line.expect(",")
        stop = self.expr(line)
        line.expect(",")
        step = line.integer()
        line.expect(")", ":")
        line.done()
        s = For(self.define(line, name, int64), start, stop, step)
        s.body = self.block(line.indent, depth + 1)
        return s


def parse_kernel(text: str) -> Kernel:
    """The kernel that a text of `print_kernel`'s form describes, verified.

    Errors: VerifyError, with line and column where the text is wrong, for any text that is not a kernel.
    """
    return _KernelParser(text).kernel()
