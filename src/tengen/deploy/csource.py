"""A program's LLVM IR as C99, for processors that LLVM has no back end for.

    define internal void @conv(ptr %buffers, ...) {          static void k_conv(char *r_buffers, ...) {
      %v.3 = fadd <16 x float> %v.1, %v.2              ->        for (i = 0; i < 16; i++) r_v_3.v[i] = r_v_1.v[i] + r_v_2.v[i];

In: the text that an object file is made of, for a target whose code names no instructions. Out: a file with the same functions, one
for each kernel. Each value is a variable, a vector a structure with an array, a block a label; integers are unsigned, and memory
is read and written by memcpy, so nothing depends on what C leaves undefined. Operations on floats are those of the text, an
fma is fma(), so results have its bits where the compiler computes as IEEE 754 says and contracts nothing.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import field

from tengen.base.errors import CompileError
from tengen.base.record import record

HEAD = """\
/* Made by Tengen. C99: cc -std=c99 -O2 -ffp-contract=off -c FILE, and -lm where it is linked. */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#if FLT_EVAL_METHOD != 0
#error "floats must be computed in their own precision: FLT_EVAL_METHOD is not 0"
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "groups of short integers are read as they lie in memory, the first in the lowest bits"
#endif
#pragma STDC FP_CONTRACT OFF
"""
SCALARS = {"i1": "uint8_t", "ptr": "char *", "float": "float", "double": "double", "void": "void"}
SCALARS |= {f"i{n}": f"uint{n}_t" for n in (8, 16, 32, 64)} | {"i128": "uint64_t"}  # of 128 bits: extended numbers that are compared
FLOATS = ("float", "double")
INTEGER_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "shl": "<<", "lshr": ">>", "udiv": "/", "urem": "%"}
FLOAT_OPERATORS = {"fadd": "+", "fsub": "-", "fmul": "*", "fdiv": "/"}
UNSIGNED = {"eq": "==", "ne": "!=", "ugt": ">", "uge": ">=", "ult": "<", "ule": "<="}
SIGNED = {"sgt": ">", "sge": ">=", "slt": "<", "sle": "<="}
ORDERED = {"oeq": "==", "ogt": ">", "oge": ">=", "olt": "<", "ole": "<="}
NEGATED = {"ugt": "<=", "uge": "<", "ult": ">=", "ule": ">", "une": "=="}  # true unless the opposite holds, so also of a NaN
MATH = {"fma": "fma", "fabs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint", "roundeven": "rint"}
FLAGS = {"nuw", "nsw", "exact", "inbounds", "disjoint", "nneg", "volatile", "noundef", "noalias", "readonly", "nocapture", "writeonly"}


def c_source(text: str) -> str:
    """The C99 of a module of LLVM IR. Errors: CompileError, naming it, for what is not translated: instructions of one
    processor, the type half, threads."""
    m = _Module(set(re.findall(r"^(?:define internal .*?|(?=@.* = internal ))@([\w.$]+)", text, re.M)))
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("define "):
            m.function(line, lines)
        elif line.startswith("@"):
            m.constant(line)
        elif (d := re.match(r"declare (\w+) @([\w.$]+)\((.*)\)", line)) is not None:
            if not d[2].startswith("llvm."):
                params = ", ".join(m.c(m.type(_typed(p)[0])) for p in _parts(d[3])) or "void"
                m.prototypes.append(f"{m.c(m.type(d[1]))} {m.symbol(d[2])}({params});")
        elif line and not line.startswith((";", "target ", "attributes ", "source_filename", "!")):
            raise CompileError(f"C99 has nothing for {line!r}; help: an object file (without --as c)")
    return "\n".join([HEAD, *m.types.values(), *m.prototypes, *m.constants, *m.bodies, ""])


@record(frozen=True)
class _Type:
    """A type: the element's, and how many there are in a vector (0: it is none)."""

    element: str
    lanes: int = 0

    @property
    def bits(self) -> int:
        """Of an integer element."""
        return int(self.element[1:])


@record(frozen=True)
class _Operand:
    """A value: its type, and the text of element `i`; of a vector in a variable also its `name`."""

    type: _Type
    at: Callable[[str], str]
    name: str = ""


def _c_name(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _parts(text: str) -> list[str]:
    """The parts of a list between commas that are in no brackets."""
    found, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{<") - (c in ")]}>")
        if c == "," and depth == 0:
            found.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return [*found, last] if last else found


def _typed(text: str) -> tuple[str, str]:
    """(type, what follows) at the beginning of a text."""
    text = text.strip()
    while (word := text.split(" ", 1)[0]) in FLAGS:
        text = text[len(word) :].strip()
    if text[0] not in "<[":
        kind, _, rest = text.partition(" ")
        return kind, rest.strip()
    end, depth = 0, 1
    while depth:
        end += 1
        depth += (text[end] in "<[") - (text[end] in ">]")
    return text[: end + 1], text[end + 1 :].strip()


@record
class _Module:
    """The parts of the file, as they are found. internal: the names of functions and constants that only this file knows, which may be
    those of C's library."""

    internal: set[str]
    types: dict[str, str] = field(default_factory=dict)
    prototypes: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)

    def symbol(self, name: str) -> str:
        """The C name of a function or a constant."""
        return f"k_{_c_name(name)}" if name in self.internal else _c_name(name)

    def type(self, text: str) -> _Type:
        """A type of the IR."""
        vector = re.fullmatch(r"<(\d+) x (\w+)>", text)
        t = _Type(vector[2], int(vector[1])) if vector else _Type(text)
        if t.element not in SCALARS or (t.element == "i128" and t.lanes):
            raise CompileError(f"C99 has no type {text}; help: another target, or an object file (without --as c)")
        return t

    def c(self, t: _Type) -> str:
        """The C type, which is defined if it is a vector's."""
        if not t.lanes:
            return SCALARS[t.element]
        name = f"v{t.lanes}_{t.element}"
        self.types[name] = f"typedef struct {{ {SCALARS[t.element]} v[{t.lanes}]; }} {name};"
        return name

    def operand(self, kind: str, value: str) -> _Operand:
        """A value of a type, as it stands in the IR."""
        t = self.type(kind)
        if value.startswith("%"):
            name = f"r_{_c_name(value[1:])}"
            return _Operand(t, (lambda i: f"{name}.v[{i}]") if t.lanes else (lambda i: name), name)
        if value.startswith("splat"):
            value = _typed(value[value.index("(") + 1 : -1])[1]
        elif value.startswith("<"):
            items = ", ".join(self.literal(t.element, _typed(x)[1]) for x in _parts(value[1:-1]))
            self.constants.append(f"static const {SCALARS[t.element]} c_{len(self.constants)}[{t.lanes}] = {{{items}}};")
            name = f"c_{len(self.constants) - 1}"
            return _Operand(t, lambda i: f"{name}[{i}]")
        literal = self.literal(t.element, value)
        return _Operand(t, lambda i: literal)

    def literal(self, element: str, value: str) -> str:
        """A constant."""
        if value.startswith("@"):
            return f"(char *)(uintptr_t){self.symbol(value[1:])}"
        if value in ("zeroinitializer", "poison", "undef", "null", "false", "true"):
            return "1" if value == "true" else "0"
        if element in FLOATS:
            x = struct.unpack(">d", bytes.fromhex(value[2:]))[0] if value.startswith("0x") else float(value)
            if not math.isfinite(x):
                return f"(({element}){'NAN' if math.isnan(x) else 'INFINITY' if x > 0 else '-INFINITY'})"
            return f"{x.hex()}{'f' if element == 'float' else ''}"
        bits = _Type(element).bits
        return f"(({SCALARS[element]})UINT64_C({int(value) & ((1 << min(bits, 64)) - 1)}))"

    def constant(self, line: str) -> None:
        """A global constant: an array of numbers."""
        m = re.match(r"@([\w.$]+) = (?:internal )?constant \[(\d+) x (\w+)\] (.*?)(?:, align \d+)?$", line)
        if m is None:
            raise CompileError(f"C99 has nothing for {line!r}; help: threads=1, or an object file (without --as c)")
        name, n, element, value = m.groups()
        items = [self.literal(element, _typed(x)[1]) for x in _parts(value[1:-1])] if value.startswith("[") else ["0"]
        self.prototypes.append(f"static const {SCALARS[self.type(element).element]} {self.symbol(name)}[{n}] = {{{', '.join(items)}}};")

    def function(self, head: str, lines: Iterator[str]) -> None:
        """A function, whose body is in the lines that follow."""
        m = re.match(r"define (.*?)([\w<>]+) @([\w.$]+)\((.*?)\)[^()]*\{$", head)
        if m is None:
            raise CompileError(f"C99 has nothing for {head!r}; help: an object file (without --as c)")
        linkage, kind, name, params = m.groups()
        given = [(self.type(_typed(p)[0]), p.split()[-1][1:]) for p in _parts(params)]
        declared = ", ".join(f"{self.c(t)} r_{_c_name(v)}" for t, v in given) or "void"
        static = "static " if "internal" in linkage else ""
        prototype = f"{static}{self.c(self.type(kind))} {self.symbol(name)}({declared})"
        self.prototypes.append(f"{prototype};")
        f = _Function(self)
        for line in lines:
            if line == "}":
                break
            f.line(line)
        self.bodies.append("\n".join([f"{prototype} {{", *f.declared, "  int i; (void)i;", *f.placed(), "}", ""]))


@record
class _Function:
    """The body of a function."""

    m: _Module
    declared: list[str] = field(default_factory=list)
    blocks: list[tuple[str, list[str]]] = field(default_factory=lambda: [("entry", [])])
    phis: dict[str, list[tuple[_Operand, dict[str, _Operand]]]] = field(default_factory=dict)

    def line(self, line: str) -> None:
        """One line of the IR."""
        if (m := re.match(r"([\w.$]+):", line)) is not None:
            self.blocks = [*(self.blocks if self.blocks[0][1] or len(self.blocks) > 1 else []), (m[1], [])]
            return
        m = re.match(r"\s+(?:%([\w.$]+) = )?(?:(?:tail|notail|musttail) )?(\w+)\s*(.*?)\s*$", line.split(", !")[0].split(" ;")[0])
        if m is None:
            return
        name, op, rest = m.groups()
        rule = getattr(self, f"_{op}", None) or (self._arithmetic if op in INTEGER_OPERATORS or op in FLOAT_OPERATORS else None)
        if rule is None:
            raise CompileError(f"C99 has nothing for {line.strip()!r}; help: an object file (without --as c)")
        rule(name, op, rest)

    def placed(self) -> list[str]:
        """The lines of all blocks, with jumps as assignments to what the next block chooses among, and a goto."""
        found = []
        for label, lines in self.blocks:
            found.append(f"L_{_c_name(label)}: ;")
            for x in lines:
                found.append(re.sub(r"JUMP\(([\w.$]+)\)", lambda m, label=label: self.jump(label, m[1]), x))
        return found

    def jump(self, source: str, to: str) -> str:
        """The jump from a block to another."""
        pairs = [(p, values[source]) for p, values in self.phis.get(to, [])]
        first = [f"{self.m.c(p.type)} t{i} = {self.whole(v)};" for i, (p, v) in enumerate(pairs)]
        return f"{{ {' '.join([*first, *(f'{p.name} = t{i};' for i, (p, _) in enumerate(pairs))])} goto L_{_c_name(to)}; }}"

    def whole(self, v: _Operand) -> str:
        """A value as one expression."""
        if v.name or not v.type.lanes:
            return v.name or v.at("")
        return f"({self.m.c(v.type)}){{{{{', '.join(v.at(str(i)) for i in range(v.type.lanes))}}}}}"

    def emit(self, text: str) -> None:
        self.blocks[-1][1].append(f"  {text}")

    def result(self, name: str, t: _Type) -> _Operand:
        """The variable of a result."""
        self.declared.append(f"  {self.m.c(t)} r_{_c_name(name)};")
        return self.m.operand(f"<{t.lanes} x {t.element}>" if t.lanes else t.element, f"%{name}")

    def each(self, name: str, t: _Type, value: Callable[[str], str]) -> None:
        """A result, element by element."""
        to = self.result(name, t)
        self.emit(f"for (i = 0; i < {t.lanes}; i++) {to.at('i')} = {value('i')};" if t.lanes else f"{to.name} = {value('')};")

    def operands(self, rest: str) -> list[_Operand]:
        """Operands that have one type, which stands before the first."""
        kind, values = _typed(rest)
        return [self.m.operand(kind, v) for v in _parts(values)]

    # ---- instructions: each has the result's name, its own, and the rest of the line

    def _arithmetic(self, name: str, op: str, rest: str) -> None:
        a, b = self.operands(rest)
        t = a.type
        if op in FLOAT_OPERATORS:
            return self.each(name, t, lambda i: f"{a.at(i)} {FLOAT_OPERATORS[op]} {b.at(i)}")
        if t.element == "i128":
            raise CompileError(f"C99 has no arithmetic of 128 bits ({op} {rest}); help: a number for each extent")
        wide = SCALARS["i64" if t.bits == 64 else "i32"]  # short ones would be promoted to int, whose products may overflow
        mask = " & 1" if t.element == "i1" else ""
        self.each(name, t, lambda i: f"({SCALARS[t.element]})((({wide}){a.at(i)} {INTEGER_OPERATORS[op]} {b.at(i)}){mask})")

    def _ashr(self, name: str, op: str, rest: str) -> None:
        a, b = self.operands(rest)
        c, top = SCALARS[a.type.element], a.type.bits - 1
        self.each(name, a.type, lambda i: f"({c})({a.at(i)} >> {top} ? ~(({c})~{a.at(i)} >> {b.at(i)}) : {a.at(i)} >> {b.at(i)})")

    def _signed_quotient(self, name: str, op: str, rest: str) -> None:
        a, b = self.operands(rest)
        signed, sign = f"int{a.type.bits}_t", "/" if op == "sdiv" else "%"
        self.each(name, a.type, lambda i: f"({SCALARS[a.type.element]})(({signed}){a.at(i)} {sign} ({signed}){b.at(i)})")

    _sdiv = _srem = _signed_quotient

    def _fneg(self, name: str, op: str, rest: str) -> None:
        (a,) = self.operands(rest)
        self.each(name, a.type, lambda i: f"-{a.at(i)}")

    def _icmp(self, name: str, op: str, rest: str) -> None:
        how, rest = _typed(rest)
        if how == "samesign":
            how, rest = _typed(rest)
        a, b = self.operands(rest)
        t = _Type("i1", a.type.lanes)
        if how in UNSIGNED:
            return self.each(name, t, lambda i: f"{a.at(i)} {UNSIGNED[how]} {b.at(i)}")
        top = f"((({SCALARS[a.type.element]})1) << {a.type.bits - 1})"
        self.each(name, t, lambda i: f"({a.at(i)} ^ {top}) {SIGNED[how]} ({b.at(i)} ^ {top})")

    def _fcmp(self, name: str, op: str, rest: str) -> None:
        how, rest = _typed(rest)
        a, b = self.operands(rest)

        def value(i: str) -> str:
            x, y = a.at(i), b.at(i)
            if how in ORDERED:
                return f"{x} {ORDERED[how]} {y}"
            if how in NEGATED:
                return f"!({x} {NEGATED[how]} {y})"
            ordered, apart = f"({x} == {x} && {y} == {y})", f"({x} < {y} || {x} > {y})"
            return {"ord": ordered, "uno": f"!{ordered}", "one": apart, "ueq": f"!{apart}"}[how]

        self.each(name, _Type("i1", a.type.lanes), value)

    def _select(self, name: str, op: str, rest: str) -> None:
        c, a, b = (self.m.operand(*_typed(x)) for x in _parts(rest))
        if a.type.lanes and not c.type.lanes:
            return self.each(name, a.type, lambda i: f"{c.at('')} ? {a.at(i)} : {b.at(i)}")
        self.each(name, a.type, lambda i: f"{c.at(i)} ? {a.at(i)} : {b.at(i)}")

    def _cast(self, name: str, op: str, rest: str) -> None:
        source, to = rest.rsplit(" to ", 1)
        a, t = self.m.operand(*_typed(source)), self.m.type(to)
        c = SCALARS[t.element]
        if op == "bitcast":
            dst, src = self.result(name, t), f"s_{_c_name(name)}"
            self.emit(f"{{ {self.m.c(a.type)} {src} = {self.whole(a)}; memcpy(&{dst.name}, &{src}, sizeof {src}); }}")
        elif op == "sext":
            top = f"(({c})1 << {a.type.bits - 1})"
            self.each(name, t, lambda i: f"({c})((({c}){a.at(i)} ^ {top}) - {top})")
        elif op == "trunc" and t.element == "i1":
            self.each(name, t, lambda i: f"{a.at(i)} & 1")
        else:
            through = {"sitofp": f"(int{a.type.element[1:]}_t)", "fptosi": f"(int{t.element[1:]}_t)", "ptrtoint": "(uintptr_t)",
                       "inttoptr": "(uintptr_t)"}.get(op, "")  # fmt: skip
            self.each(name, t, lambda i: f"({c}){through}{a.at(i)}")

    _bitcast = _sext = _zext = _trunc = _sitofp = _uitofp = _fptosi = _fptoui = _fpext = _fptrunc = _ptrtoint = _inttoptr = _cast

    def size(self, kind: str) -> str:
        """The bytes of a type."""
        array = re.fullmatch(r"\[(\d+) x (.+)\]", kind)
        return f"{array[1]} * {self.size(array[2])}" if array else f"sizeof({self.m.c(self.m.type(kind))})"

    def _alloca(self, name: str, op: str, rest: str) -> None:
        kind = _parts(rest)[0]
        self.declared.append(f"  unsigned char m_{_c_name(name)}[{self.size(kind)}];")
        self.emit(f"{self.result(name, _Type('ptr')).name} = (char *)m_{_c_name(name)};")

    def _getelementptr(self, name: str, op: str, rest: str) -> None:
        kind, *places = _parts(rest)
        kind = " ".join(w for w in kind.split(" ") if w not in FLAGS)
        base, *indices = (self.m.operand(*_typed(x)) for x in places)
        if len(indices) != 1 or indices[0].type.lanes:
            raise CompileError(f"C99 has nothing for 'getelementptr {kind} {rest}'; help: an object file (without --as c)")
        self.each(name, _Type("ptr"), lambda i: f"{base.at(i)} + (intptr_t)({indices[0].at(i)} * {self.size(kind)})")

    def _load(self, name: str, op: str, rest: str) -> None:
        kind, place, *_ = _parts(rest)
        to, p = self.result(name, self.m.type(_typed(kind)[0])), self.m.operand(*_typed(place))
        self.emit(f"memcpy(&{to.name}, {p.at('')}, sizeof {to.name});")

    def _store(self, name: str, op: str, rest: str) -> None:
        value, place, *_ = _parts(rest)
        (kind, data), p = _typed(value), self.m.operand(*_typed(place))
        if kind.startswith("[") and data == "zeroinitializer":
            return self.emit(f"memset({p.at('')}, 0, {self.size(kind)});")
        v = self.m.operand(kind, data)
        self.emit(f"{{ {self.m.c(v.type)} s = {self.whole(v)}; memcpy({p.at('')}, &s, sizeof s); }}")

    def _phi(self, name: str, op: str, rest: str) -> None:
        kind, values = _typed(rest)
        t = self.m.type(kind)
        pairs = [_parts(x[1:-1]) for x in _parts(values)]
        to = self.result(name, t)
        self.phis.setdefault(self.blocks[-1][0], []).append((to, {label[1:]: self.m.operand(kind, v) for v, label in pairs}))

    def _br(self, name: str, op: str, rest: str) -> None:
        where = _parts(rest)
        targets = [x.split("%")[1] for x in where if x.startswith("label")]
        if len(targets) == 1:
            return self.emit(f"JUMP({targets[0]})")
        flag = self.m.operand(*_typed(where[0])).at("")
        self.emit(f"if ({flag}) JUMP({targets[0]}) else JUMP({targets[1]})")

    def _ret(self, name: str, op: str, rest: str) -> None:
        self.emit("return;" if rest == "void" else f"return {self.whole(self.m.operand(*_typed(rest)))};")

    def _insertelement(self, name: str, op: str, rest: str) -> None:
        vector, x, at = (self.m.operand(*_typed(x)) for x in _parts(rest))
        to = self.result(name, vector.type)
        self.emit(f"{to.name} = {self.whole(vector)}; {to.at(at.at(''))} = {x.at('')};")

    def _extractelement(self, name: str, op: str, rest: str) -> None:
        vector, at = (self.m.operand(*_typed(x)) for x in _parts(rest))
        self.each(name, _Type(vector.type.element), lambda i: vector.at(at.at("")))

    def _shufflevector(self, name: str, op: str, rest: str) -> None:
        a, b, mask = _parts(rest)
        x, y, (kind, which) = self.m.operand(*_typed(a)), self.m.operand(*_typed(b)), _typed(mask)
        n, lanes = x.type.lanes, self.m.type(kind).lanes
        items = ["0"] * lanes if not which.startswith("<") else [_typed(i)[1] for i in _parts(which[1:-1])]
        to = self.result(name, _Type(x.type.element, lanes))
        if len(set(items)) == 1 and items[0].isdigit() and int(items[0]) < n:
            return self.emit(f"for (i = 0; i < {lanes}; i++) {to.at('i')} = {x.at(items[0])};")
        taken = [int(i) if i.isdigit() else 0 for i in items]
        self.emit(" ".join(f"{to.at(str(j))} = {x.at(str(i)) if i < n else y.at(str(i - n))};" for j, i in enumerate(taken)))

    def _call(self, name: str, op: str, rest: str) -> None:
        m = re.match(r"(?:\w+ )*?(void|\w+|<[^>]*>) (@|%)([\w.$]+)\((.*)\)[^()]*$", rest)
        if m is None:
            raise CompileError(f"C99 has nothing for 'call {rest}'; help: an object file (without --as c)")
        kind, sigil, callee, arguments = m.groups()
        arguments = re.sub(r"\balign \d+ ", "", arguments)
        if sigil == "@" and callee.startswith("llvm."):
            return self.intrinsic(name, kind, callee[5:], _parts(arguments))
        given = [self.m.operand(*_typed(a)) for a in _parts(arguments)]
        values, t = ", ".join(map(self.whole, given)), self.m.type(kind)
        target = self.m.symbol(callee)
        if sigil == "%":
            target = f"(({self.m.c(t)} (*)({', '.join(self.m.c(a.type) for a in given)}))(uintptr_t)r_{_c_name(callee)})"
        self.emit(f"{self.result(name, t).name} = {target}({values});" if name else f"{target}({values});")

    def intrinsic(self, name: str, kind: str, callee: str, arguments: list[str]) -> None:
        """A call of a function of LLVM's own."""
        short = re.sub(r"\.(v\d+)?[ifp]\d+", "", callee)
        if short in ("prefetch", "assume", "lifetime.start", "lifetime.end"):
            return
        args, t = [self.m.operand(*_typed(a)) for a in arguments], self.m.type(kind)
        if short in MATH:
            function = MATH[short] + ("f" if t.element == "float" else "")
            return self.each(name, t, lambda i: f"{function}({', '.join(a.at(i) for a in args)})")
        if short in ("smin", "smax", "umin", "umax"):
            top = f"((({SCALARS[t.element]})1) << {t.bits - 1})" if short[0] == "s" else "0"
            sign = "<" if short.endswith("min") else ">"
            a, b = args
            return self.each(name, t, lambda i: f"({a.at(i)} ^ {top}) {sign} ({b.at(i)} ^ {top}) ? {a.at(i)} : {b.at(i)}")
        if short in ("fptosi.sat", "fptoui.sat"):
            return self.each(name, t, lambda i: _saturated(args[0].at(i), t, short == "fptosi.sat"))
        if short in ("masked.load", "masked.store"):
            return self.masked(name, t, args, short == "masked.load")
        if short in ("memcpy", "memmove", "memset"):
            values = [a.at("") for a in args[:3]]
            return self.emit(f"{short}({', '.join(values[:2])}, (size_t){values[2]});")
        raise CompileError(
            f"C99 has nothing for llvm.{callee}, which is of one processor; help: a target that names no such instructions (docs/deploy.md)"
        )

    def masked(self, name: str, t: _Type, args: list[_Operand], load: bool) -> None:
        """A load or a store of the lanes of a mask: (place, alignment, mask, other lanes), (vector, place, alignment, mask)."""
        if load:
            place, mask, other = args[0], args[-2], args[-1]
            to, size = self.result(name, t), f"sizeof({SCALARS[t.element]})"
            there = f"memcpy(&{to.at('i')}, {place.at('')} + i * {size}, {size})"
            return self.emit(f"for (i = 0; i < {t.lanes}; i++) if ({mask.at('i')}) {there}; else {to.at('i')} = {other.at('i')};")
        vector, place, mask = args[0], args[1], args[-1]
        size = f"sizeof({SCALARS[vector.type.element]})"
        self.emit(f"{{ {self.m.c(vector.type)} s = {self.whole(vector)}; for (i = 0; i < {vector.type.lanes}; i++) if ({mask.at('i')}) "
                  f"memcpy({place.at('')} + i * {size}, &s.v[i], {size}); }}")  # fmt: skip


def _saturated(x: str, t: _Type, signed: bool) -> str:
    """A float as an integer: what is out of range becomes the nearest that is in it, a NaN 0."""
    c, low, high = SCALARS[t.element], -(1 << t.bits - 1) if signed else 0, (1 << t.bits - signed) - 1
    least, most = (f"({c})UINT64_C({n & ((1 << t.bits) - 1)})" for n in (low, high))
    through = f"(int{t.bits}_t)" if signed else ""
    return f"!({x} == {x}) ? 0 : {x} <= {float(low).hex()} ? {least} : {x} >= {float(high + 1).hex()} ? {most} : ({c}){through}{x}"
