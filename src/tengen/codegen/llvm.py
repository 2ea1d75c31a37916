"""Kernels as LLVM IR text.

In: kernels of `loops/statements.py` and a target. Out: a module. A kernel becomes one function,
``void name(ptr buffers, ptr ints, i64 begin, i64 end)``, a loop over the pieces begin <= piece < end. Variables are SSA values:
loop headers and the ends of branches get phis, and memory is touched only where the kernel says Load or Store. Loops are
written with the test at the bottom, so that LLVM has nothing to rotate.

Read next: `values.py` (expressions), `runtime/compile.py` (text to machine code).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from tengen.base.dtype import DType, bool_, int32, int64
from tengen.base.errors import CompileError
from tengen.codegen import lacking, strided
from tengen.codegen.strided import affine
from tengen.codegen.targets import Target
from tengen.codegen.types import mangled_memory, memory_type, scalar_type, taken, type_of, vector_memory
from tengen.codegen.values import Values
from tengen.loops import external, lang
from tengen.loops.lang import LANES, Expr, const, is_const, splat
from tengen.loops.ranges import Ranges
from tengen.loops.statements import Assign, Buffer, Declare, External, For, If, Kernel, Let, Load, Prefetch, Store, assigned

STACK_ALIGN = 64
FEW_LANES = 4  # of a vector, which are read and written in one or two accesses of 1, 2 or 4 elements
STREAM_ALIGN = 64  # bytes: addresses of stores past the caches are multiples of it, the width of the widest register
_SLOT = LANES * 8  # bytes of a stack slot that holds any vector
_INDEX = ("mul i64 ", "add i64 ", "sub i64 ")  # what indices are made of
_NAME = re.compile(r"%[\w.]+")
_EXTERNAL = re.compile(r" = call i32 @(\w+)\((.*)\)$", re.M)


def emit_kernel(kernel: Kernel, target: Target) -> str:
    """The definition of one kernel's function.

    Errors: CompileError for a kernel that uses a variable out of its scope.
    """
    return (_OpenFunction if kernel.ints else _Function)(kernel, target).text()


def emit_module(kernels: Sequence[Kernel], target: Target, extra: str = "") -> str:
    """A whole module: target, data layout, the kernels, and `extra` (more functions, as text)."""
    texts = [emit_kernel(k, target) for k in kernels]
    extra += _declarations("\n".join(texts), {k.name for k in kernels})
    extra += lacking.functions("\n".join(texts), lambda: Values("fma", {}, target.lacks, target.keeping))
    return "\n".join([target.head, *texts, extra, *(["!0 = !{i32 1}\n"] if any("!nontemporal !0" in t for t in texts) else [])])


def _declarations(text: str, taken: set[str]) -> str:
    """Of the C functions that kernels call. Errors: CompileError for one of the name of a kernel, or that is called in two ways."""
    found: dict[str, str] = {}
    for name, arguments in _EXTERNAL.findall(text):
        types = ", ".join(a.split(" ", 1)[0] for a in arguments.split(", "))
        if name in taken or name == "run" or found.setdefault(name, types) != types:
            raise CompileError(f"the C function {name} has a name that stands for something else, too; help: rename it, as mylib_{name}")
    return "".join(f"declare i32 @{name}({types})\n" for name, types in found.items())


@functools.cache
def _register_name(hint: object) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", str(hint)) or "v"


class _Function(Values):
    """Emits one kernel."""

    def __init__(self, kernel: Kernel, target: Target):
        super().__init__(kernel.name, target.forms, target.lacks, target.keeping, Ranges(kernel))
        self.kernel, self.target = kernel, target
        self.block = "entry"
        self._streams = False
        self.sifted: dict[str, strided.Sifted] = {}
        self._ints = {v: i for i, v in enumerate(kernel.ints)}
        self._buffers = {b: i for i, b in enumerate(kernel.buffers)}
        self._scratch = {b: i for i, b in enumerate(kernel.scratch)}
        self._entry: dict[str, str] = {}  # names that the entry block defines -> instruction: parameters, stack memory
        self._depth: dict[str, int] = {}  # name -> how many scopes its definition is inside of; 0 in the entry block
        self._loops: list[tuple[int, list[str]]] = []  # of each open loop: the depth of its body, the lines before it

    def text(self) -> str:
        k = self.kernel

        def one(piece: str) -> None:
            self.env[k.piece] = piece
            self.statements(k.body)

        self.loop("%begin", "%end", 1, [], one, "piece")
        entry = [f"  {name} = {text}" for name, text in self._entry.items()]
        head = f"define void @{k.name}(ptr noalias readonly %buffers, ptr readonly %ints, i64 %begin, i64 %end) "
        body = "\n".join([*entry, *self.lines])
        # Stores past the caches are not ordered with other stores: other threads may see them only after this fence.
        fence = f"  {self.target.architecture.fence}\n" if self._streams and self.target.architecture.fence else ""
        return f'{head}noinline nounwind "no-builtins" {{\nentry:\n{body}\n{fence}  ret void\n}}\n'

    # ---- names that the entry block defines

    def variable(self, e: Expr) -> str:
        if e not in self._ints:
            return super().variable(e)
        name, i = f"%int{self._ints[e]}", self._ints[e]
        if name not in self._entry:
            self._take(name, "i64", "%ints", i, 8)
        return name

    def _take(self, name: str, ty: str, table: str, i: int, align: int) -> None:
        """Has the entry block load an element of a table that the kernel is given."""
        at = f"{name}.at" if i else table
        if i:
            self._entry[at] = f"getelementptr {ty}, ptr {table}, i64 {i}"
        self._entry[name] = f"load {ty}, ptr {at}, align {align}"

    def base(self, b: Buffer) -> str:
        """The address of a buffer's first element."""
        if b in self._scratch:
            name = f"%scratch{self._scratch[b]}"
            self._entry.setdefault(name, f"alloca [{b.size} x {memory_type(b.dtype)}], align {STACK_ALIGN}")
            return name
        if b not in self._buffers:
            raise CompileError(f"{self.name}: the buffer {b.name} is not one of the kernel's")
        name, i = f"%buf{self._buffers[b]}", self._buffers[b]
        if name not in self._entry:
            self._take(name, "ptr", "%buffers", i, self.target.architecture.pointer_bytes)
        return name

    def slot(self, which: str) -> str:
        """Stack memory through which one vector is moved."""
        name = f"%slot.{which}"
        self._entry.setdefault(name, f"alloca [{_SLOT} x i8], align {STACK_ALIGN}")
        return name

    # ---- blocks and loops

    def label(self, hint: str) -> str:
        """A new name for a block. No value has it either, as LLVM has one table for both."""
        self._count += 1
        return f"{hint}.{self._count}"

    def open(self, label: str) -> None:
        """Starts a basic block."""
        self.lines.append(f"{label}:")
        self.block = label

    def inside(self, body: Callable[[], None]) -> dict[Expr, str]:
        """Emits `body` in a scope of its own. Returns the names that the kernel's variables have at its end."""
        outer, self.env = self.env, dict(self.env)
        self._scopes.append([])
        body()
        for text in self._scopes.pop():
            del self._known[text]
        inner, self.env = self.env, outer
        return inner

    def phi(self, ty: str, edges: Sequence[tuple[str, str]], hint: str) -> str:
        """A phi of (value, block) pairs."""
        return self.fresh(f"phi {ty} " + ", ".join(f"[ {v}, %{b} ]" for v, b in edges), hint)

    def loop(self, start: str, stop: str, step: int, carried: list[Expr], body: Callable[[str], None], hint: str) -> None:
        """Emits for i in range(start, stop, step): body(i). carried: the variables that the body assigns."""
        before, top, done = self.block, self.label("loop"), self.label("done")
        runs = start[0] != "%" and stop[0] != "%" and int(start) < int(stop)  # it is known to run at least once
        enter = f"  br label %{top}"
        if not runs:
            enter = f"  br i1 {self.pure(f'icmp slt i64 {start}, {stop}')}, label %{top}, label %{done}"
        outer, self.lines = self.lines, []
        self._loops.append((len(self._scopes), outer))
        self.block = top
        self._count += 1 + len(carried)
        names = [f"%{_register_name(v.attr)}.{self._count - n}" for n, v in enumerate(carried)]
        i = f"%{_register_name(hint)}.{self._count - len(carried)}"

        def whole() -> None:
            self.env.update(zip(carried, names))
            self._depth.update(dict.fromkeys([i, *names], len(self._scopes) - 1))
            body(i)

        end = self.inside(whole)
        self._loops.pop()
        following = self.fresh(f"add nsw i64 {i}, {step}", "next")
        again = self.fresh(f"icmp slt i64 {following}, {stop}", "again")
        latch = self.block
        self.lines.append(f"  br i1 {again}, label %{top}, label %{done}")
        phis = [f"  {i} = phi i64 [ {start}, %{before} ], [ {following}, %{latch} ]"]
        for v, name in zip(carried, names):
            phis.append(f"  {name} = phi {type_of(v.dtype, v.lanes)} [ {self.env[v]}, %{before} ], [ {end[v]}, %{latch} ]")
        outer += [enter, f"{top}:", *phis, *self.lines]
        self.lines = outer
        self.open(done)
        for v in carried:
            edges = [(end[v], latch)] if runs else [(self.env[v], before), (end[v], latch)]
            self.env[v] = self.phi(type_of(v.dtype, v.lanes), edges, _register_name(v.attr))

    def branch(self, cond: str, then: Callable[[], None], orelse: Callable[[], None] | None, changed: list[Expr]) -> None:
        """Emits an if: `then` where cond holds, else `orelse`; and phis for the variables that they assign."""
        before, yes, end = self.block, self.label("then"), self.label("end")
        no = self.label("else") if orelse else end
        self.lines.append(f"  br i1 {cond}, label %{yes}, label %{no}")
        self.open(yes)
        a, a_block = self.inside(then), self.block
        self.lines.append(f"  br label %{end}")
        b, b_block = self.env, before
        if orelse:
            self.open(no)
            b, b_block = self.inside(orelse), self.block
            self.lines.append(f"  br label %{end}")
        self.open(end)
        for v in changed:
            if a[v] != b[v]:
                self.env[v] = self.phi(type_of(v.dtype, v.lanes), [(a[v], a_block), (b[v], b_block)], _register_name(v.attr))
            else:
                self.env[v] = a[v]

    # ---- statements

    def statements(self, body: Iterable) -> None:
        """Emits statements in order."""
        body, done = list(body), set[int]()
        for i, s in enumerate(body):
            if i in done:
                continue
            if not isinstance(s, (Let, Load, Store)):
                self.sifted.clear()
            match s:
                case Let() | Declare():
                    self.env[s.var] = self.value(s.value)
                    if isinstance(s, Let):
                        self.meanings[s.var] = s.value
                case Assign():
                    self.variable(s.var)
                    self.env[s.var] = self.value(s.value)
                case Load():
                    done.update(self.loads(body, i))
                case Store():
                    done.update(self.stores(body, i))
                case Prefetch():
                    p = self.address(self.base(s.buffer), memory_type(s.buffer.dtype), self.value(s.index))
                    how = "i32 1, i32 3" if s.buffer.role == "out" else "i32 0, i32 2"  # to write, into L1; to read, into L2
                    self.lines.append(f"  call void @llvm.prefetch.p0(ptr {p}, {how}, i32 1)")
                case External():
                    self.external(s)
                case For():
                    self.for_(s)
                case If():
                    changed = [v for v in assigned([*s.body, *s.orelse]) if v in self.env]
                    then, orelse = partial(self.statements, s.body), partial(self.statements, s.orelse)
                    self.branch(self.value(s.cond), then, orelse if s.orelse else None, changed)
                case _:
                    raise CompileError(f"{self.name}: {type(s).__name__} is not a statement")

    def external(self, s: External) -> None:
        """Emits a call of a C function. The numbers of shapes lie on the stack; so do the addresses for `external.HOST`."""
        arguments = []
        for b, i in s.places:
            arguments.append(f"ptr {self.address(self.base(b), memory_type(b.dtype), self.value(i))}")
        if s.symbol == external.HOST:
            places = f"%places{len(self._entry)}"
            size = self.target.architecture.pointer_bytes
            self._entry[places] = f"alloca [{len(arguments)} x ptr], align {size}"
            for j, a in enumerate(arguments):
                self.lines.append(f"  store {a}, ptr {self.address(places, 'ptr', str(j))}, align {size}")
            arguments = [f"ptr {places}"]
        table = f"%shapes{len(self._entry)}"
        self._entry[table] = f"alloca [{max(len(s.shapes), 1)} x i64], align 8"
        for j, n in enumerate(s.shapes):
            p = self.address(table, "i64", str(j))
            self.lines.append(f"  store i64 {self.value(n)}, ptr {p}, align 8")
        arguments.append(f"ptr {table}")
        arguments += [f"{scalar_type(n.dtype)} {self.value(n)}" for n in s.numbers]
        self.env[s.var] = self.fresh(f"call i32 @{s.symbol}({', '.join(arguments)})", _register_name(s.var.attr))

    def for_(self, s: For) -> None:
        """Emits a loop."""

        def body(i: str) -> None:
            self.env[s.var] = i
            self.statements(s.body)

        carried = [v for v in assigned(s.body) if v in self.env]
        self.loop(self.value(s.start), self.value(s.stop), s.step, carried, body, str(s.var.attr))

    # ---- memory

    def address(self, base: str, ty: str, index: str) -> str:
        """The address of an element."""
        return base if index == "0" else self.pure(f"getelementptr {ty}, ptr {base}, i64 {index}")

    def to_memory(self, x: str, dt: DType, lanes: int) -> str:
        """A value as it is stored in memory: a bool as a byte."""
        m = vector_memory(dt, lanes)
        return x if dt is not bool_ else self.convert("zext", x, type_of(dt, lanes), m)

    def from_memory(self, x: str, dt: DType, lanes: int) -> str:
        """A value as it is held in registers, from what was loaded."""
        if dt is not bool_:
            return x
        return self.pure(f"icmp ne {vector_memory(dt, lanes)} {x}, {'zeroinitializer' if lanes > 1 else 0}")

    def loads(self, body: Sequence, i: int) -> Iterable[int]:
        """Emits the load at `i`, with those behind it that are taken from the same vectors. Returns where these are."""
        found = strided.loads_together(body, i)
        if not found and self.target.computes("quad4i") and strided.groups_beside(body, i):
            return self._two_groups(body[i], body[i + 1].var, i + 1)
        if not found:
            self.env[body[i].var] = self.load(body[i])
            return ()
        buffer = body[i].buffer
        for (j, _), x in zip(found, strided.load_together(self, buffer, [line for _, line in found])):
            self.env[body[j].var] = self.from_memory(x, buffer.dtype, LANES)
        return [j for j, _ in found]

    def _two_groups(self, s: Load, second: Expr, at: int) -> Iterable[int]:
        """One load of two groups that lie beside each other: a processor has it in one register."""
        p, both = self.address(self.base(s.buffer), memory_type(s.buffer.dtype), self.value(s.index)), f"<2 x {type_of(s.var.dtype, 1)}>"
        x = self.fresh(f"load {both}, ptr {p}, align {s.buffer.dtype.size}", _register_name(s.var.attr))
        for which, var in enumerate((s.var, second)):
            self.env[var] = self.pure(f"extractelement {both} {x}, i64 {which}")
        return [at]

    def stores(self, body: Sequence, i: int) -> Iterable[int]:
        """Emits the store at `i`, with those behind it that fill the gaps between its elements. Returns where these are."""
        lines = strided.stores_together(body, i)
        if not lines:
            self.store(body[i])
        else:
            some = body[i : i + len(lines)]
            values = [self.to_memory(self.value(splat(s.value)), s.buffer.dtype, LANES) for s in some]
            strided.store_together(self, some, lines, values)
        self.sifted.clear()
        return range(i, i + len(lines))

    def load(self, s: Load) -> str:
        """Emits a load; the name of its value."""
        dt, lanes, index = s.buffer.dtype, s.var.lanes, s.index
        if index.lanes > 1 and (line := affine(index)) and is_const(line[1], 1):
            index = line[0]
        m, hint = vector_memory(dt, lanes), _register_name(s.var.attr)
        if s.group > 1:
            p = self.address(self.base(s.buffer), memory_type(dt), self.value(index))
            x = self.fresh(f"load {type_of(s.var.dtype, lanes)}, ptr {p}, align {dt.size}", hint)
        elif s.count is not None and (every := self._every(s)) > 1:
            x = self._sift(s, s.count, every)
        elif s.count is None and index.lanes > 1:
            x = self._gather(s.buffer, index)
        elif s.count is None:
            p = self.address(self.base(s.buffer), memory_type(dt), self.value(index))
            x = self.fresh(f"load {m}, ptr {p}, align {dt.size}", hint)
        else:
            fill = s.other if s.other is not None else const(0, dt)
            other = self.to_memory(self.value(splat(fill)), dt, lanes)
            if index.lanes > 1 or not self._masks(s.count, dt):
                x = self._copy_in(s, index, other)
            else:
                p, mask = self.address(self.base(s.buffer), memory_type(dt), self.value(index)), self.mask(s.count, dt)
                name = f"llvm.masked.load.{mangled_memory(dt)}.p0"
                x = self.fresh(f"call {m} @{name}(ptr align {dt.size} {p}, <{LANES} x i1> {mask}, {m} {other})", hint)
        return self.from_memory(x, dt, lanes)

    def _masks(self, count: Expr, dt: DType) -> bool:
        """Whether the lanes before `count` are read or written under a mask. The colours of a pixel are not: a masked vector mostly crosses
        into the next line of the cache, and takes longer than the two accesses that hold them. Nor are those of several pixels, which
        are one access of 8 lanes, and one of 4 behind it."""
        lanes = lang.as_int(count)
        return self.target.masks(dt.size) and (lanes is None or (lanes > FEW_LANES and lanes % FEW_LANES != 0))

    def lanes_before(self, e: Expr, args: list[str]) -> str:
        if e.args[1].op == "splat" and _few(e.args[1].args[0]):
            return self.mask(e.args[1].args[0], int32)  # the one that loads and stores of at most 32 bits have
        return super().lanes_before(e, args)

    def beside(self, first: str, second: str) -> str | None:
        some = [self.sifted.get(x) for x in (first, second)]
        return strided.bytes_beside(self, some[0], some[1]) if some[0] and some[1] else None

    def limit(self, count: Expr) -> str:
        """`count` limited to 0 .. 16: how many lanes exist."""
        return self.value(count) if _few(count) else self.value(lang.minimum(lang.maximum(count, 0), LANES))

    def mask(self, count: Expr, dt: DType) -> str:
        """The mask of the lanes before `count`. Processors that mask lanes of any size (AVX-512) keep a mask as one bit for each lane:
        there it is compared as integers of 32 bits. Elsewhere these are as wide as the lanes that the mask is used for."""
        bits = 64 if dt.size == 8 and not self.target.masks(1) else 32
        n = self.limit(count)
        if bits == 32:
            n = self.convert("trunc", n, "i64", "i32") if n[0] == "%" else n
        lanes = ", ".join(f"i{bits} {i}" for i in range(LANES))
        return self.pure(f"icmp slt <{LANES} x i{bits}> <{lanes}>, {self.splat(n, f'i{bits}')}")

    def element(self, b: Buffer, index: Expr) -> Callable[[str], str]:
        """A function from the number of a lane to the address of its element. `index` as in Load."""
        ty, base = memory_type(b.dtype), self.base(b)
        if index.lanes == 1:
            first = self.address(base, ty, self.value(index))
            return lambda j: self.address(first, ty, j)
        if line := affine(index):
            first, stride = self.address(base, ty, self.value(line[0])), self.value(line[1])
            return lambda j: self.address(first, ty, self._times(j, stride))
        v = self.value(index)
        return lambda j: self.address(base, ty, self.pure(f"extractelement <{LANES} x i64> {v}, i64 {j}"))

    def _times(self, j: str, stride: str) -> str:
        if j[0] != "%" and stride[0] != "%":
            return str(int(j) * int(stride))
        return stride if j == "1" else "0" if j == "0" else self.pure(f"mul i64 {stride}, {j}")

    def _element_in_loop(self, b: Buffer, index: Expr) -> Callable[[str], str]:
        """As `element`, for lane numbers that are known only at run time: a vector of indices is stored on the stack."""
        if index.lanes == 1 or affine(index):
            return self.element(b, index)
        ty, base, slot = memory_type(b.dtype), self.base(b), self.slot("index")
        self.lines.append(f"  store <{LANES} x i64> {self.value(index)}, ptr {slot}, align {STACK_ALIGN}")

        def at(j: str) -> str:
            i = self.fresh(f"load i64, ptr {self.address(slot, 'i64', j)}, align 8", "at")
            return self.address(base, ty, i)

        return at

    def _every(self, s: Load) -> int:
        """The stride of a partial load's elements if these are loaded under masks, with all between; else 0."""
        line = strided.line_of(s.index) if self.target.masks(s.buffer.dtype.size) else None
        return line.step if line is not None and 1 < line.step <= strided.MOST_SIFTED else 0

    def _sift(self, s: Load, count: Expr, step: int) -> str:
        """A partial load with stride `step`: masked loads of everything from the first to the last element, then a shuffle that drops
        those between."""
        dt, m = s.buffer.dtype, vector_memory(s.buffer.dtype, LANES)
        ty, line = memory_type(dt), affine(s.index)
        assert line is not None
        first = self.address(self.base(s.buffer), ty, self.value(line[0]))
        last, x = (LANES - 1) * step, "poison"
        fill = self.to_memory(self.value(splat(s.other if s.other is not None else const(0, dt))), dt, LANES)
        whole = lang.minimum(lang.maximum(count, 0), LANES)
        for part in range(step):
            start = min(part * LANES, last - LANES + 1)  # the last vector ends with the last element
            mask = self.mask(whole * step - (step - 1) - start, dt)
            p, name = self.address(first, ty, str(start)), f"llvm.masked.load.{mangled_memory(dt)}.p0"
            v = self.fresh(f"call {m} @{name}(ptr align {dt.size} {p}, <{LANES} x i1> {mask}, {m} poison)", "part")
            lanes = [LANES + i * step - start if i * step // LANES == part else i for i in range(LANES)]
            x = self.pure(f"shufflevector {m} {x}, {m} {v}, {taken(lanes)}")
        return self.choose(self.mask(count, dt), x, fill, m, LANES)

    def _gather(self, b: Buffer, index: Expr) -> str:
        ty, at = memory_type(b.dtype), self.element(b, index)
        x = "poison"
        for j in range(LANES):
            one = self.fresh(f"load {ty}, ptr {at(str(j))}, align {b.dtype.size}", "g")
            x = self.fresh(f"insertelement <{LANES} x {ty}> {x}, {ty} {one}, i64 {j}", "g")
        return x

    def _load_first(self, s: Load, index: Expr, other: str, count: int) -> str:
        """A partial load of a known number of lanes: in vectors of 8, 4, 2 and 1 elements, or one by one."""
        dt, at = s.buffer.dtype, self.element(s.buffer, index)
        m, x = vector_memory(dt, LANES), other
        for first, size in _powers(count, 8 if index.lanes == 1 else 1):
            ty = vector_memory(dt, size)
            v = self.fresh(f"load {ty}, ptr {at(str(first))}, align {dt.size}", "g")
            if size == 1:
                x = self.pure(f"insertelement {m} {x}, {ty} {v}, i64 {first}")
                continue
            v = self.pure(f"shufflevector {ty} {v}, {ty} poison, {taken(i % size for i in range(LANES))}")
            x = self.pure(f"shufflevector {m} {x}, {m} {v}, {taken(LANES + i - first if 0 <= i - first < size else i for i in range(LANES))}")
        return x

    def _store_first(self, s: Store, index: Expr, value: str, count: int) -> None:
        """A partial store of a known number of lanes, as `_load_first`, in order."""
        dt, at = s.buffer.dtype, self.element(s.buffer, index)
        m = vector_memory(dt, LANES)
        for first, size in _powers(count, 8 if index.lanes == 1 else 1):
            if size == 1:
                x = self.pure(f"extractelement {m} {value}, i64 {first}")
            else:
                x = self.pure(f"shufflevector {m} {value}, {m} poison, {taken(range(first, first + size))}")
            self.lines.append(f"  store {vector_memory(dt, size)} {x}, ptr {at(str(first))}, align {dt.size}")

    def _copy_in(self, s: Load, index: Expr, other: str) -> str:
        """A partial load, element by element into a stack slot."""
        limit = self.limit(s.count)
        if limit[0] != "%":
            return self._load_first(s, index, other, int(limit))
        dt, slot = s.buffer.dtype, self.slot("value")
        ty, v = memory_type(dt), vector_memory(dt, LANES)
        at = self._element_in_loop(s.buffer, index)
        self.lines.append(f"  store {v} {other}, ptr {slot}, align {STACK_ALIGN}")

        def one(j: str) -> None:
            x = self.fresh(f"load {ty}, ptr {at(j)}, align {dt.size}", "g")
            self.lines.append(f"  store {ty} {x}, ptr {self.address(slot, ty, j)}, align {dt.size}")

        self.loop("0", limit, 1, [], one, "lane")
        return self.fresh(f"load {v}, ptr {slot}, align {STACK_ALIGN}", _register_name(s.var.attr))

    def store(self, s: Store) -> None:
        """Emits a store."""
        dt, index = s.buffer.dtype, s.index
        if index.lanes > 1 and (line := affine(index)) and is_const(line[1], 1):
            index = line[0]
        lanes = max(s.value.lanes, s.index.lanes)
        ty, m = memory_type(dt), vector_memory(dt, lanes)
        value = self.to_memory(self.value(splat(s.value) if lanes > 1 else s.value), dt, lanes)
        if s.count is None and index.lanes == 1:
            p = self.address(self.base(s.buffer), ty, self.value(index))
            self.write_vector(f"{m} {value}", p, dt, s.stream and lanes > 1)
        elif s.count is None:
            place = self.element(s.buffer, index)
            for j in range(LANES):
                self.write(f"{ty} {self.pure(f'extractelement {m} {value}, i64 {j}')}", place(str(j)), dt)
        elif index.lanes == 1 and self._masks(s.count, dt):
            p, mask = self.address(self.base(s.buffer), ty, self.value(index)), self.mask(s.count, dt)
            call = f"  call void @llvm.masked.store.{mangled_memory(dt)}.p0({m} {value}, ptr align {dt.size} {p}, <{LANES} x i1> {mask})"
            if dt.size >= (4 if dt.kind == "f" else 8):
                self.lines.append(call)
                return
            # LLVM 22 has a defect: where it sees that a masked store is of one element that was truncated from a wider one, as
            # a bfloat16 is when it is rounded, it stores the wide one, and overwrites the element after it.
            one = self.compare("eq", int64, 1, self.value(s.count), "1")
            first = self.pure(f"extractelement {m} {value}, i64 0")
            self.branch(one, lambda: self.write(f"{ty} {first}", p, dt), lambda: self.lines.append(call), [])
        else:
            self._copy_out(s, index, value)

    def write(self, value: str, p: str, dt: DType) -> None:
        """A plain store; value: with its type."""
        self.lines.append(f"  store {value}, ptr {p}, align {dt.size}")

    def write_vector(self, value: str, p: str, dt: DType, stream: bool) -> None:
        """A store; `stream`: of a vector, past the caches, where the address allows it."""
        if not stream:
            return self.write(value, p, dt)
        self._streams = True
        align = min(LANES * dt.size, STREAM_ALIGN)
        low = self.pure(f"and i64 {self.pure(f'ptrtoint ptr {p} to i64')}, {align - 1}")
        store = f"  store {value}, ptr {p}, align {align}, !nontemporal !0"
        self.branch(self.pure(f"icmp eq i64 {low}, 0"), lambda: self.lines.append(store), lambda: self.write(value, p, dt), [])

    def _copy_out(self, s: Store, index: Expr, value: str) -> None:
        """A partial store, element by element out of a stack slot, in order."""
        limit = self.limit(s.count)
        if limit[0] != "%":
            return self._store_first(s, index, value, int(limit))
        dt, slot = s.buffer.dtype, self.slot("value")
        ty = memory_type(dt)
        at = self._element_in_loop(s.buffer, index)
        self.lines.append(f"  store {vector_memory(dt, LANES)} {value}, ptr {slot}, align {STACK_ALIGN}")

        def one(j: str) -> None:
            x = self.fresh(f"load {ty}, ptr {self.address(slot, ty, j)}, align {dt.size}", "g")
            self.lines.append(f"  store {ty} {x}, ptr {at(j)}, align {dt.size}")

        self.loop("0", limit, 1, [], one, "lane")


class _OpenFunction(_Function):
    """Emits a kernel with integer parameters. An index takes several multiplications there, which LLVM's code generator would leave in
    loops: parts of indices that are invariant in a loop are computed before it."""

    def fresh(self, text: str, hint: str = "v") -> str:
        self._count += 1
        r = f"%{hint}.{self._count}"
        self.lines.append(f"  {r} = {text}")
        self._depth[r] = len(self._scopes) - 1
        return r

    def pure(self, text: str) -> str:
        if (known := self._known.get(text)) is not None:
            return known
        body, before = 0, self.lines
        if self._loops and text.startswith(_INDEX):
            depth = max([self._depth.get(name, 0) for name in _NAME.findall(text)], default=0)
            body, before = next((loop for loop in self._loops if loop[0] > depth), (0, before))
        if not body:
            r = self._known[text] = self.fresh(text)
            self._scopes[-1].append(text)
            return r
        lines, self.lines = self.lines, before
        r = self._known[text] = self.fresh(text)
        self.lines = lines
        self._scopes[body - 1].append(text)
        self._depth[r] = body - 1
        return r


def _few(count: Expr) -> bool:
    """Whether a number of lanes is known to be at least 0 and at most 16, as that of the remainder of a `vector_loop`."""
    return count.op == "rem" and is_const(count.args[1]) and 0 < count.args[1].attr <= LANES


def _powers(count: int, most: int) -> list[tuple[int, int]]:
    """(first, size) of so many lanes in parts that are powers of two, at most `most`."""
    found, first = [], 0
    while first < count:
        size = min(most, 1 << (count - first).bit_length() - 1)
        found.append((first, size))
        first += size
    return found
