"""Kernels as text: one statement a line, indentation as in Python, infix arithmetic. `parse_kernel` reads it back.

    kernel scale(in x: f32, out y: f32, int n):
        each piece of (n + 1023) // 1024:
            $0 = piece * 1024
            for i in range($0, min($0 + 1024, n), 1):
                load v: f32 = x[i]
                store y[i] = v * 2.0f32

`$0` is no variable: it is another spelling of the expression after it, so what is shared in a statement's DAG is written once
and parses back to the same DAG. `//` and `%` are `quo` and `rem`. A literal that is not int64 or bool carries its dtype.
A scalar among vectors is splat. Names that are not plain words stand in backquotes.

Read next: `parse.py`.
"""

from __future__ import annotations

import math
import re

from tengen.base.dtype import DType, int64
from tengen.base.errors import VerifyError
from tengen.loops.lang import LANES, Expr
from tengen.loops.parse import INFIX, parse_expr, parse_kernel
from tengen.loops.statements import Assign, Buffer, Declare, External, For, If, Kernel, Let, Load, Prefetch, Store

__all__ = ["print_kernel", "parse_kernel", "print_expr", "parse_expr", "quote"]

UNARY, ATOM = 8, 9
DEEP, LONG = 16, 90  # an expression that is nested deeper, or is longer, gets a line of its own

_WORD = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
_SPECIAL = re.compile(r"(true|false|\w+\.(inf|nan))", re.ASCII)


def quote(name: str) -> str:
    """A name as it stands in text: bare when it is a plain word that means nothing else."""
    return name if _WORD.fullmatch(name) and not _SPECIAL.fullmatch(name) else f"`{name}`"


def literal(value: object, dt: DType) -> str:
    """A literal, so that it reads back as exactly this value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            return f"{dt.short}.nan" if math.isnan(value) else f"{'-' if value < 0 else ''}{dt.short}.inf"
        return f"{value!r}{dt.short}"
    return f"{value}" if dt is int64 else f"{value}{dt.short}"


class _Writer:
    """Lines of text, and how many `$` names were given."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.shared = 0

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def exprs(self, depth: int, *roots: Expr) -> list[str]:
        """The roots as text; what they share, and what is too long for a line, is written before as `$` lines."""
        order = _postorder(roots)
        uses = dict.fromkeys(order, 0)
        for r in roots:
            uses[r] += 1
        for x in reversed(order):
            for a in x.args:
                uses[a] += uses[x] if x.op == "splat" else 1  # a splat is never shared itself
        texts: dict[Expr, tuple[str, int, int]] = {}  # text, precedence, nesting
        for x in order:
            text, precedence = _spell(x, texts)
            nesting = 1 + max((texts[a][2] for a in x.args), default=0)
            large = nesting > DEEP or (len(text) > LONG and x not in roots)
            if x.args and x.op != "splat" and (uses[x] > 1 or large):
                self.line(depth, f"${self.shared} = {text}")
                text, precedence, nesting = f"${self.shared}", ATOM, 0
                self.shared += 1
            texts[x] = (text, precedence, nesting)
        return [texts[r][0] for r in roots]

    def block(self, depth: int, body: list) -> None:
        for s in body:
            self.statement(depth, s)
        if not body:
            self.line(depth, "pass")

    def statement(self, d: int, s: object) -> None:
        match s:
            case Let():
                self.line(d, f"let {quote(str(s.var.attr))} = {self.exprs(d, s.value)[0]}")
            case Declare():
                self.line(d, f"var {quote(str(s.var.attr))} = {self.exprs(d, s.value)[0]}")
            case Assign():
                self.line(d, f"set {quote(str(s.var.attr))} = {self.exprs(d, s.value)[0]}")
            case Load():
                index, *rest = self.exprs(d, *(e for e in (s.index, s.count, s.other) if e is not None))
                tail = f" first {rest[0]} else {rest[1]}" if rest else ""
                self.line(d, f"load {quote(str(s.var.attr))}: {_type(s.var)} = {quote(s.buffer.name)}[{index}]{tail}")
            case Store():
                index, value, *rest = self.exprs(d, *(e for e in (s.index, s.value, s.count) if e is not None))
                tail = "".join(f" first {r}" for r in rest) + " stream" * s.stream
                self.line(d, f"store {quote(s.buffer.name)}[{index}] = {value}{tail}")
            case Prefetch():
                self.line(d, f"prefetch {quote(s.buffer.name)}[{self.exprs(d, s.index)[0]}]")
            case External():
                texts = self.exprs(d, *(i for _, i in s.places), *s.shapes, *s.numbers)
                places = ", ".join(f"{quote(b.name)}[{texts.pop(0)}]" for b, _ in s.places)
                shapes, numbers = ", ".join(texts[: len(s.shapes)]), ", ".join(texts[len(s.shapes) :])
                self.line(d, f"extern {quote(str(s.var.attr))} = {quote(s.symbol)}({places}) ({shapes}) ({numbers})")
            case For():
                start, stop = self.exprs(d, s.start, s.stop)
                self.line(d, f"for {quote(str(s.var.attr))} in range({start}, {stop}, {s.step}):")
                self.block(d + 1, s.body)
            case If():
                self.line(d, f"if {self.exprs(d, s.cond)[0]}:")
                self.block(d + 1, s.body)
                if s.orelse:
                    self.line(d, "else:")
                    self.block(d + 1, s.orelse)
            case _:
                raise VerifyError(f"{s!r} is not a statement")


def _postorder(roots: tuple[Expr, ...]) -> list[Expr]:
    order: dict[Expr, None] = {}
    stack = list(reversed(roots))
    while stack:
        x = stack[-1]
        todo = [a for a in reversed(x.args) if a not in order]
        if x not in order and todo:
            stack.extend(todo)
            continue
        stack.pop()
        order.setdefault(x)
    return list(order)


def _spell(x: Expr, texts: dict[Expr, tuple[str, int, int]]) -> tuple[str, int]:
    """One node over the texts of its operands, with its precedence."""
    if x.op == "const":
        return literal(x.attr, x.dtype), ATOM
    if x.op == "var":
        return quote(str(x.attr)), ATOM
    args = x.args
    if len(args) > 1 and any(a.lanes > 1 and a.op != "splat" for a in args):
        args = tuple(a.args[0] if a.op == "splat" else a for a in args)
    if x.op in INFIX:
        sign, p = INFIX[x.op]
        left, right = (_inside(texts[a], p + more) for a, more in zip(args, (p == 1, 1)))
        return f"{left} {sign} {right}", p
    if x.op == "neg" or x.op == "not":
        inner = _inside(texts[args[0]], UNARY)
        positive = args[0].op == "const" and not inner.startswith("-")
        return f"{'-' if x.op == 'neg' else '~'}{f'({inner})' if positive else inner}", UNARY
    match x.op:
        case "cast":
            head = x.dtype.short
        case "bitcast":
            head = f"bitcast.{x.dtype.short}"
        case "call":
            head = f"math.{x.attr}"
        case "lane" | "fold" | "shuffle":
            head = f"{x.op}.{x.attr}"
        case _:
            head = x.op
    return f"{head}({', '.join(texts[a][0] for a in args)})", ATOM


def _inside(spelled: tuple[str, int, int], least: int) -> str:
    text, precedence, _ = spelled
    return text if precedence >= least else f"({text})"


def _type(e: Expr) -> str:
    return e.dtype.short + ("" if e.lanes == 1 else f"x{LANES}")


def _buffer(b: Buffer) -> str:
    return f"{b.role} {quote(b.name)}: {b.dtype.short}{'' if b.size is None else f'[{b.size}]'}"


def print_kernel(kernel: Kernel) -> str:
    """A kernel as text. `parse_kernel` gives back a kernel of the same meaning, which prints the same."""
    w = _Writer()
    params = [_buffer(b) for b in kernel.buffers] + [f"int {quote(str(v.attr))}" for v in kernel.ints]
    w.line(0, f"kernel {quote(kernel.name)}({', '.join(params)}):")
    for b in kernel.scratch:
        w.line(1, _buffer(b))
    w.line(1, f"each {quote(str(kernel.piece.attr))} of {w.exprs(1, kernel.pieces)[0]}:")
    w.block(2, kernel.body)
    return "\n".join(w.lines) + "\n"


def print_expr(e: Expr) -> str:
    """A small expression on one line, such as an extent. Shared parts are written as often as they occur."""
    texts: dict[Expr, tuple[str, int, int]] = {}
    for x in _postorder((e,)):
        texts[x] = (*_spell(x, texts), 0)
    return texts[e][0]
