"""A function's tree is rewritten, so that its conditions and loops are calls which can become regions of a graph.

In: the tree of a user's function. Out: the tree of a function with the same parameters, over the names of `flow.py`, which it finds in a
free variable `__script__`. Each node keeps the user's line. What becomes of what:

    if c: A else: B; R          def then(): A; def other(): B; if_(c, then, other, site); R
    the same with a jump in A   def rest(): R; def then(): A; return rest(); ...; return if_(c, then, other, site)
    for x in xs: A              def body(item): x = item; A; for_(xs, body, site)
    while c: A                  def test(): return c; def body(): A; while_(test, body, site)
    return, break, continue     inside of such a function: it returns a `Signal`, or None for going on
    a and b, not a, x if c else y, a < b < c, f(x), assert        calls of and_, not_, choose, chain, fn; an if

Variables of the user's function stay variables: the inner functions declare them `nonlocal`, and `flow.py` reads and sets their cells.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from tengen.jit.script.desugar import RUNTIME, located
from tengen.jit.script.liveness import MUTATORS, Liveness, Names, base_of, changed, names, rebound, written

MADE = "__script_"  # how the names of functions that are made here begin
ITERATORS = frozenset({"enumerate", "zip", "reversed"})
Block = list[ast.stmt]


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name(RUNTIME, ast.Load()), name, ast.Load()), list(args), [])


def _lambda(body: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), body)


def _name(x: str) -> ast.Name:
    return ast.Name(x, ast.Load())


def _places(body: Sequence[ast.stmt]) -> dict[str, int]:
    """The last line of a block on which a name is set, or what it is the name of is changed in place."""
    found: dict[str, int] = {}
    for s in body:
        for n in ast.walk(s):
            if isinstance(n, ast.stmt) and not isinstance(n, (ast.If, ast.For, ast.While, ast.With, ast.FunctionDef)):
                found |= {x: max(found.get(x, 0), n.lineno) for x in names(n, ast.Store) | changed([n])}
            if isinstance(n, ast.For):
                found |= {x: max(found.get(x, 0), n.lineno) for x in names(n.target, ast.Store)}
            if isinstance(n, ast.Return):
                found["return"] = n.lineno
    return found


def _goes_on(loop: ast.For | ast.While) -> bool:
    """Whether what follows a loop can be reached: not behind ``while True`` without a break."""
    if not (isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant) and loop.test.value):
        return True
    todo: list[ast.AST] = list(loop.body)
    while todo:
        n = todo.pop()
        if isinstance(n, ast.Break):
            return True
        todo += [] if isinstance(n, (ast.For, ast.While, ast.FunctionDef)) else ast.iter_child_nodes(n)
    return False


def _falls_through(body: Sequence[ast.stmt]) -> bool:
    """Whether the end of a block may be reached."""
    for s in body:
        match s:
            case ast.Return() | ast.Break() | ast.Continue() | ast.Raise():
                return False
            case ast.If() if not (_falls_through(s.body) or _falls_through(s.orelse)):
                return False
            case ast.While() if not _goes_on(s):
                return False
            case ast.With() if not _falls_through(s.body):
                return False
    return True


def _continues(s: ast.stmt) -> bool:
    """Whether a statement has a `continue` of a loop around it."""
    inside = [*getattr(s, "body", ()), *getattr(s, "orelse", ())] if isinstance(s, (ast.If, ast.With)) else []
    return isinstance(s, ast.Continue) or any(map(_continues, inside))


def _only_grows(loop: ast.For | ast.While, name: str) -> bool:
    """Whether all that a loop does with a name is ``name.append(...)``."""
    uses = sum(isinstance(n, ast.Name) and n.id == name for n in ast.walk(loop))
    grows = 0
    for s in ast.walk(loop):
        match s:
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(id=found), "append"), [_], [])) if found == name:
                grows += 1
    return uses == grows


IN_PLACE: dict[type[ast.operator], str] = {
    ast.Add: "iadd", ast.Sub: "isub", ast.Mult: "imul", ast.Div: "itruediv", ast.FloorDiv: "ifloordiv", ast.Mod: "imod", ast.Pow: "ipow",
    ast.MatMult: "imatmul", ast.BitAnd: "iand", ast.BitOr: "ior", ast.BitXor: "ixor", ast.LShift: "ilshift", ast.RShift: "irshift",
}  # fmt: skip


class Expressions(ast.NodeTransformer):
    """Rewrites expressions. local: the function's variables. owner: the class whose private names it uses, or "". first: its first
    parameter, which ``super()`` means."""

    def __init__(self, local: Names, owner: str, first: str):
        self.local, self.owner, self.first = local, owner, first

    def visit(self, node: ast.AST) -> Any:
        made = super().visit(node)
        if isinstance(made, (ast.expr, ast.stmt)) and hasattr(node, "lineno"):
            ast.copy_location(made, node)
            located([made], node)
        return made

    def visit_Name(self, n: ast.Name) -> ast.expr:
        n.id = self._mangled(n.id)
        return n

    def _mangled(self, name: str) -> str:
        private = self.owner and name.startswith("__") and not name.endswith("__")
        return f"_{self.owner.lstrip('_')}{name}" if private else name

    def visit_Attribute(self, n: ast.Attribute) -> ast.expr:
        n.attr = self._mangled(n.attr)
        n.value = self.visit(n.value)
        if not isinstance(n.ctx, ast.Load):
            n.value = ast.copy_location(_call("owner", n.value), n.value)
        return n

    def visit_Subscript(self, n: ast.Subscript) -> ast.expr:
        base, local = n.value, not isinstance(n.ctx, ast.Load)
        while isinstance(base, ast.Subscript):
            base = base.value
        local = local and not (isinstance(base, ast.Name) and base.id in self.local)
        n.value, n.slice = self.visit(n.value), self.visit(n.slice)
        if not isinstance(n.ctx, ast.Load):
            n.value = ast.copy_location(_call("owner" if local else "own", n.value), n.value)
        key = n.slice.operand if isinstance(n.slice, ast.UnaryOp) else n.slice
        if isinstance(n.ctx, ast.Load) and not isinstance(key, (ast.Constant, ast.Slice, ast.Tuple)):
            return _call("at", n.value, n.slice)
        return n

    def visit_AugAssign(self, n: ast.AugAssign) -> ast.stmt:
        if not isinstance(n.target, ast.Attribute):
            return ast.AugAssign(self.visit(n.target), n.op, self.visit(n.value))
        name = ast.Constant(self._mangled(n.target.attr))
        in_place = ast.Constant(IN_PLACE[type(n.op)])
        return ast.Expr(_call("augmented", self.visit(n.target.value), name, in_place, _lambda(self.visit(n.value))))

    def visit_BinOp(self, n: ast.BinOp) -> ast.expr:
        a, b = self.visit(n.left), self.visit(n.right)
        return _call("modulo", a, b) if isinstance(n.op, ast.Mod) else ast.BinOp(a, n.op, b)

    def visit_Call(self, n: ast.Call) -> ast.expr:
        if isinstance(n.func, ast.Name) and n.func.id == "super" and not n.args and "super" not in self.local:
            n.args = [_name("__class__"), _name(self.first)]
            return n
        if isinstance(n.func, ast.Attribute) and isinstance(n.func.value, ast.Name) and n.func.value.id == RUNTIME:
            n.args = [self.visit(a) for a in n.args]
            return n
        changes = isinstance(n.func, ast.Attribute) and n.func.attr in MUTATORS
        return self.called(n, "method" if changes and base_of(n.func) in self.local else "fn")

    def called(self, n: ast.Call, how: str, *told: ast.expr) -> ast.Call:
        """A call of what a function of the runtime gives in place of the called. told: its further arguments."""
        f = ast.copy_location(_call(how, self.visit(n.func), *told), n.func)
        return ast.Call(f, [self.visit(a) for a in n.args], [self.visit(k) for k in n.keywords])

    def iterated(self, n: ast.expr) -> ast.expr:
        """What a loop goes over: ``x.split(1)`` is cut only if the loop cannot go over x itself."""
        if not isinstance(n, ast.Call):
            return self.visit(n)
        if isinstance(n.func, ast.Name) and n.func.id in ITERATORS:
            args, keywords = [self.iterated(a) for a in n.args], [self.visit(k) for k in n.keywords]
            return ast.copy_location(ast.Call(_call("fn", n.func), args, keywords), n)
        return ast.copy_location(self.called(n, "pieces"), n)

    def visit_BoolOp(self, n: ast.BoolOp) -> ast.expr:
        name = "and_" if isinstance(n.op, ast.And) else "or_"
        made = self.visit(n.values[-1])
        for v in reversed(n.values[:-1]):
            simple = not any(
                isinstance(x, (ast.Call, ast.Subscript, ast.Pow, ast.Div, ast.Mod, ast.FloorDiv)) for x in ast.walk(made)
            )
            made = ast.copy_location(_call(name, self.visit(v), _lambda(made), ast.Constant(simple)), n)
        return made

    def visit_UnaryOp(self, n: ast.UnaryOp) -> ast.expr:
        n.operand = self.visit(n.operand)
        return _call("not_", n.operand) if isinstance(n.op, ast.Not) else n

    def visit_JoinedStr(self, n: ast.JoinedStr) -> ast.expr:
        return _call("text", *map(self._part, n.values))

    def _part(self, p: ast.expr) -> ast.expr:
        if not isinstance(p, ast.FormattedValue):
            return p
        source = ast.Constant(ast.unparse(p.value))
        spec = ast.Constant(None) if p.format_spec is None else self.visit(p.format_spec)
        return ast.Tuple([self.visit(p.value), ast.Constant(p.conversion), spec, source], ast.Load())

    def visit_IfExp(self, n: ast.IfExp) -> ast.expr:
        return _call("choose", self.visit(n.test), _lambda(self.visit(n.body)), _lambda(self.visit(n.orelse)))

    def visit_Compare(self, n: ast.Compare) -> ast.expr:
        values = [self.visit(v) for v in (n.left, *n.comparators)]
        if len(n.ops) == 1:
            return self._compared(values[0], n.ops[0], values[1])
        pairs = []
        for op in n.ops:
            compare = self._compared(_name("a"), op, _name("b"))
            pairs.append(ast.Lambda(ast.arguments([], [ast.arg("a"), ast.arg("b")], None, [], [], None, []), compare))
        rest = [_lambda(v) for v in values[2:]]
        return _call("chain", values[0], values[1], ast.Tuple(list(pairs), ast.Load()), ast.Tuple(list(rest), ast.Load()))


    def _compared(self, a: ast.expr, op: ast.cmpop, b: ast.expr) -> ast.expr:
        if isinstance(op, (ast.Is, ast.IsNot)) and not any(isinstance(v, ast.Constant) for v in (a, b)):
            made = _call("is_", a, b)
            return made if isinstance(op, ast.Is) else ast.UnaryOp(ast.Not(), made)
        if isinstance(op, (ast.In, ast.NotIn)):
            made = _call("in_", a, b)
            return made if isinstance(op, ast.In) else _call("not_", made)
        return ast.Compare(a, [op], [b])

    def visit_comprehension(self, n: ast.comprehension) -> ast.comprehension:
        n.target, n.iter = self.visit(n.target), self.visit(n.iter)
        n.ifs = [ast.copy_location(_call("known", self.visit(i)), i) for i in n.ifs]
        return n


class Unannotated(ast.NodeTransformer):
    """``x: Tensor = y`` is ``x = y``: a variable of a part may have no annotation in Python."""

    def visit_AnnAssign(self, n: ast.AnnAssign) -> ast.stmt:
        made = ast.Pass() if n.value is None else ast.Assign([n.target], n.value)
        return ast.copy_location(made, n)


class Unfolded(ast.NodeTransformer):
    """``x = a if c else b`` is an `if` with two assignments where a or b is a variable: x is then another name of its tensor, which is followed
    as behind any other `if`."""

    def visit_Assign(self, n: ast.Assign) -> ast.stmt:
        value, targets = n.value, n.targets
        if not isinstance(value, ast.IfExp) or len(targets) > 1 or not isinstance(targets[0], ast.Name):
            return n
        if not any(isinstance(v, (ast.Name, ast.IfExp)) for v in (value.body, value.orelse)):
            return n
        sides = [self.visit(ast.copy_location(ast.Assign(targets, v), n)) for v in (value.body, value.orelse)]
        return ast.copy_location(ast.If(value.test, [sides[0]], [sides[1]]), n)


class Rewriter:
    """Rewrites the statements of one function."""

    def __init__(self, f: ast.FunctionDef, owner: str):
        a = f.args
        params = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
        self.params = frozenset(p.arg for p in params)
        self.stored = names(f.body, ast.Store)
        self.live = Liveness(f)
        self.owner = owner
        self.in_place = written(f)
        self.expressions = Expressions(self.stored | self.params, owner, params[0].arg if params else "self")
        self.count = 0
        self.whiles = 0  # loops with a condition around
        self.joined = False  # whether what follows in the iteration is called behind the part that is rewritten, and not by it
        self.end_live: Names = self.live.always  # read behind the end of the block, of the innermost loop or the function

    def function(self, f: ast.FunctionDef) -> ast.FunctionDef:
        """The whole function: a copy with another body."""
        stored = sorted(self.stored)
        bind: Block = [
            ast.If(ast.Constant(False), [ast.Assign([ast.Name(n, ast.Store()) for n in stored], ast.Constant(None))], [])
        ]
        body = (bind if stored else []) + self.block(f.body, lambda: [], True)
        for s in body:
            if not hasattr(s, "lineno"):
                ast.copy_location(s, f)
        f.body = body
        return f

    # -- blocks ----------------------------------------------------------------------------------------------------------
    def block(self, body: Sequence[ast.stmt], end: Callable[[], Block], top: bool) -> Block:
        """A block, with what follows it. top: it stands in the user's function itself, and not in one that was made of a part."""
        out: Block = []
        for i, s in enumerate(body):
            if isinstance(s, ast.Assert):
                s = self._checked(s)
            rest = body[i + 1 :]
            if isinstance(s, (ast.Return, ast.Break, ast.Continue)):
                return [*out, self._jump(s, top)]
            if isinstance(s, ast.Raise):
                return [*out, self._raise(s)]
            if self._leaves(s):
                return [*out, *self._with_rest(s, rest, end, top)]
            out += self._plain(s)
        return out + end()

    def _jump(self, s: ast.stmt, top: bool) -> ast.stmt:
        match s:
            case ast.Return(value):
                shown = ast.Constant(None) if value is None else self.expressions.visit(value)
                made = ast.Return(shown if top else _call("returned", shown))
            case ast.Break():
                made = ast.Return(ast.Attribute(_name(RUNTIME), "BREAK", ast.Load()))
            case _:
                made = ast.Return(ast.Attribute(_name(RUNTIME), "NEXT", ast.Load()) if self.joined else ast.Constant(None))
        return self._at(made, s)

    def _raise(self, s: ast.Raise) -> ast.stmt:
        assert s.exc is not None
        e, source = s.exc, ast.Constant(ast.unparse(s.exc))
        e = self.expressions.called(e, "exception", source) if isinstance(e, ast.Call) else self.expressions.visit(e)
        cause = None if s.cause is None else self.expressions.visit(s.cause)
        return self._at(ast.Raise(_call("error", e), cause), s)

    def _checked(self, s: ast.Assert) -> ast.stmt:
        """The `if` that an assert is."""
        error = ast.Call(_name("AssertionError"), [] if s.msg is None else [s.msg], [])
        made = ast.If(ast.UnaryOp(ast.Not(), s.test), [ast.Raise(error, None)], [])
        for n in ast.walk(made):
            if not hasattr(n, "lineno"):
                ast.copy_location(n, s)
        after = self.live.always | self.stored | self.params
        self.live.after[made] = frozenset(after)
        return made

    def _leaves(self, s: ast.stmt, loops: int = 0, by: tuple[type, ...] = (ast.Break, ast.Continue)) -> bool:
        """Whether a statement may leave the block in another way than at its end: by return, or by break and continue (`by`) of a loop
        around, or, in a loop with a condition, which might else never end, by an error."""
        match s:
            case ast.Return():
                return True
            case ast.Break() | ast.Continue():
                return loops == 0 and isinstance(s, by)
            case ast.Raise() | ast.Assert():
                return self.whiles > 0
            case ast.For() | ast.While():
                return any(self._leaves(x, loops + 1, by) for x in s.body)
            case ast.If():
                return any(self._leaves(x, loops, by) for x in (*s.body, *s.orelse))
            case ast.With():
                return any(self._leaves(x, loops, by) for x in s.body)
        return False

    def _with_rest(self, s: ast.stmt, rest: Sequence[ast.stmt], end: Callable[[], Block], top: bool) -> Block:
        """A statement that may leave the block; what follows it is a function of its own."""
        self.count += 1
        name = f"{MADE}rest_{self.count}"
        follows = self.block(rest, (lambda: [ast.Return(_call("returned", ast.Constant(None)))]) if top else end, False)
        go_on = lambda: [ast.Return(ast.Call(_name(name), [], []))]
        out = [self._at(self._function(name, follows), s)]
        after = lambda call: _call("after", call, _name(name), self._site_of_rest(), self._others(s))
        match s:
            case ast.If():
                if all(map(_falls_through, (s.body, s.orelse))):  # what follows would be recorded in both
                    outer = self.end_live, self.joined
                    self.end_live, self.joined = self.end_live | self.live.after[s], True
                    made, call = self._if(s, lambda: [], frozenset(), self.end_live)
                    self.end_live, self.joined = outer
                    call = after(call)
                else:
                    made, call = self._if(s, go_on, self.stored)
            case ast.For() | ast.While():
                made, call = self._loop(s)
                if _goes_on(s):
                    call = _call("after", call, _name(name), self._site_of_rest())
            case ast.With():
                self.count += 1
                inside = f"{MADE}with_{self.count}"
                outer = self.end_live, self.joined
                self.end_live, self.joined = self.end_live | self.live.after[s], True
                made = [self._function(inside, self.block(s.body, lambda: [], False))]
                self.end_live, self.joined = outer
                made.append(
                    ast.With(
                        self._items(s), [ast.Assign([ast.Name(f"{inside}_left", ast.Store())], ast.Call(_name(inside), [], []))]
                    )
                )
                call = after(_name(f"{inside}_left"))
        out += made
        out.append(ast.Return(_call("value", call) if top else call))
        return [self._at(x, s) for x in out]

    def _others(self, s: ast.stmt) -> ast.expr:
        """For a statement behind which what follows is called: whether it may leave the block by more than `continue`; None where it cannot
        by that, or the block is a part of one for which this is asked."""
        return ast.Constant(None if self.joined or not _continues(s) else self._leaves(s, 0, (ast.Break,)))

    def _plain(self, s: ast.stmt) -> Block:
        """A statement that the next one follows."""
        match s:
            case ast.If():
                made, call = self._if(s, lambda: [], frozenset())
                return [self._at(x, s) for x in (*made, ast.Expr(call))]
            case ast.For() | ast.While():
                made, call = self._loop(s)
                return [self._at(x, s) for x in (*made, ast.Expr(call))]
            case ast.With():
                return [self._at(ast.With(self._items(s), self.block(s.body, lambda: [], True) or [ast.Pass()]), s)]
            case ast.FunctionDef():
                inner = Rewriter(s, self.owner)
                s.decorator_list = [self.expressions.visit(d) for d in s.decorator_list]
                s.args = self.expressions.visit(s.args)
                return [inner.function(s)]
        return [self.expressions.visit(s)]

    def _items(self, s: ast.With) -> list[ast.withitem]:
        return [self.expressions.visit(i) for i in s.items]

    # -- branches and loops ----------------------------------------------------------------------------------------------
    def _if(self, s: ast.If, end: Callable[[], Block], more: Names, read: Names = frozenset()) -> tuple[Block, ast.expr]:
        """(Its functions, the call.) more: names that are set in what follows, where that is a part of the branches. read: names that
        are read where the branches lead besides."""
        self.count += 1
        n = self.count
        set_in = [names(b, ast.Store) | changed(b) for b in (s.body, s.orelse)]
        found = sorted((set_in[0] | set_in[1] | more) & (self.stored | self.params))
        other_objects = rebound([*s.body, *s.orelse]) | more
        live = sorted(set(found) & (self.end_live if more else self.live.after[s] | read))
        lines = (tuple(_places(b).items()) for b in (s.body, s.orelse))
        site = (
            tuple(found),
            tuple(live),
            tuple(x for x in found if x not in other_objects),
            *lines,
            bool(self.whiles),
            self.in_place,
        )
        branches = (("then", s.body), ("else", s.orelse))
        then, other = (self._function(f"{MADE}{what}_{n}", self.block(b, end, False)) for what, b in branches)
        return [then, other], _call(
            "if_", self.expressions.visit(s.test), _name(then.name), _name(other.name), ast.Constant(site)
        )

    def _loop(self, s: ast.For | ast.While) -> tuple[Block, ast.expr]:
        self.count += 1
        n, what = self.count, "for" if isinstance(s, ast.For) else "while"
        target = names(s.target, ast.Store) if isinstance(s, ast.For) else frozenset()
        other_objects = rebound(s.body) | target
        found = sorted((names(s.body, ast.Store) | target | changed(s.body)) & (self.stored | self.params))
        grows = tuple(x for x in found if _only_grows(s, x))
        inner, after = self.live.head[s], self.live.after[s]
        self.whiles += what == "while"
        site = (
            tuple(found), tuple(x for x in found if x in inner), tuple(x for x in found if x in after), grows,
            tuple(x for x in found if x not in other_objects), tuple(_places([s]).items()),
            self.whiles > (what == "while"), self.in_place,
        )  # fmt: skip
        item = f"{MADE}item_{n}"
        outer = self.end_live, self.joined
        self.end_live, self.joined = inner | after | self.live.always, False
        body = self.block(s.body, lambda: [ast.Return(ast.Constant(None))], False)
        self.end_live, self.joined = outer
        self.whiles -= what == "while"
        if isinstance(s, ast.For):
            body.insert(0, self._at(ast.Assign([self.expressions.visit(s.target)], _name(item)), s))
            made = [self._function(f"{MADE}body_{n}", body, item)]
            return made, _call("for_", self.expressions.iterated(s.iter), _name(f"{MADE}body_{n}"), ast.Constant(site))
        test = self._function(f"{MADE}test_{n}", [ast.Return(self.expressions.visit(s.test))])
        made = [test, self._function(f"{MADE}body_{n}", body)]
        return made, _call("while_", _name(test.name), _name(f"{MADE}body_{n}"), ast.Constant(site))

    def _site_of_rest(self) -> ast.expr:
        found = tuple(sorted(self.stored))
        return ast.Constant((found, tuple(sorted(self.stored & self.end_live)), (), (), (), bool(self.whiles), self.in_place))

    def _function(self, name: str, body: Block, *params: str) -> ast.FunctionDef:
        """A function of a part of the user's, whose variables are those of the whole."""
        mine = sorted(x for x in names(body, ast.Store) if x in self.stored | self.params)
        body = [*([ast.Nonlocal(mine)] if mine else []), *(body or [ast.Pass()])]
        args = ast.arguments([], [ast.arg(p) for p in params], None, [], [], None, [])
        made = ast.FunctionDef(name, args, body, [], None)
        if hasattr(made, "type_params") or "type_params" in ast.FunctionDef._fields:
            made.type_params = []
        return made

    def _at(self, made: ast.stmt, s: ast.stmt) -> ast.stmt:
        """A statement that was made, and what is inside of it that has no line, at a line of the user's."""
        todo: list[ast.AST] = [made]
        while todo:
            n = todo.pop()
            if isinstance(n, (ast.expr, ast.stmt, ast.arg, ast.keyword)) and not hasattr(n, "lineno"):
                ast.copy_location(n, s)
                vars(n).update(end_lineno=s.lineno, end_col_offset=s.col_offset)
            todo += ast.iter_child_nodes(n)
        return made
