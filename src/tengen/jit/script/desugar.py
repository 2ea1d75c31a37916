"""Statements that are written in terms of others before a function is rewritten: `else` of a loop, `:=`, `match`, and lists that grow inside of
dicts and lists.

In: the tree of a user's function. Out: the same tree, with these in place of them:

    for x in xs: A else: B      left = False; for x in xs: A, with left = True before each break; if not left: B
    if (y := e) > 0: A          y = e; if y > 0: A
    while (y := e) > 0: A       while True: y = e; if not y > 0: break; A
    match x: case P: A          match x: case P: chosen = 0; if chosen == 0: A
    for ...: d["k"].append(e)   rows = d["k"]; for ...: rows.append(e); d["k"] = rows

Variables that are made here have names that no variable of a user's can have: an error that names one says what it is.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tengen.jit.script.liveness import SCOPES, Names, names

RUNTIME = "__script__"
THE_CALLERS = "the caller's "
Block = list[ast.stmt]
Loop = (ast.For, ast.While)


def desugar(f: ast.FunctionDef, refuse: Callable[[ast.AST, str], None]) -> None:
    """Writes the statements of a function, and of those inside of it, in terms of others. refuse: raises the error for a node."""
    _Statements(f, refuse).function()


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _set(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(_load(RUNTIME), name, ast.Load()), list(args), [])


def _not(x: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), x)


def located(made: list[Any], s: Any) -> Any:
    """Nodes that were made, with what is inside of them that has no line, at the place of the user's."""
    for n in (n for x in made for n in ast.walk(x)):
        if isinstance(n, (ast.expr, ast.stmt, ast.pattern, ast.keyword, ast.arg)) and not hasattr(n, "lineno"):
            at = s.lineno, s.col_offset
            vars(n).update(lineno=at[0], col_offset=at[1], end_lineno=at[0], end_col_offset=at[1])
    return made


def _outside_of_scopes(n: ast.AST) -> Iterator[ast.AST]:
    """A node and those inside of it, without those in functions and comprehensions in it."""
    yield n
    for x in ast.iter_child_nodes(n) if not isinstance(n, SCOPES) else ():
        yield from _outside_of_scopes(x)


def _names_something(n: ast.AST) -> bool:
    return any(isinstance(x, ast.NamedExpr) for x in _outside_of_scopes(n))


class _Statements:
    """Those of one function."""

    def __init__(self, f: ast.FunctionDef, refuse: Callable[[ast.AST, str], None]):
        self.f, self.refuse = f, refuse
        a = f.args
        self.params = frozenset(p.arg for p in [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))])
        self.local = names(f.body, ast.Store) | self.params

    def function(self) -> None:
        """Changes its body."""
        for n in ast.walk(self.f):
            if isinstance(n, SCOPES) and not isinstance(n, ast.FunctionDef):
                named = next((x for x in ast.walk(n) if isinstance(x, ast.NamedExpr)), None)
                if named is not None:
                    self.refuse(named, ":= in a comprehension or a lambda is not a part of script; help: a loop, or a function with def")
        self.f.body = self.block(self.f.body)

    def block(self, body: Sequence[ast.stmt]) -> Block:
        return [made for s in body for made in self.statement(s)]

    def statement(self, s: ast.stmt) -> Block:
        """What stands in the place of a statement."""
        match s:
            case ast.FunctionDef():
                self._lifted(s)
                desugar(s, self.refuse)
                return [s]
            case ast.Match():
                before = self._lifted(s)
                for case in s.cases:
                    case.body = self.block(case.body)
                return [*before, *located(_match(s), s)]
            case ast.For() | ast.While() if s.orelse:
                return self.block(located(_without_else(s), s))
            case ast.For() | ast.While():
                grown = _growing(s, self.local, self.params)
                if len(grown) > 1:
                    return self.block(located(grown, s))
                if isinstance(s, ast.While) and _names_something(s.test):
                    leave = ast.If(_not(s.test), [ast.Break()], [])
                    s.test, s.body = ast.Constant(True), [leave, *s.body]
                    located([s], s)
        before = self._lifted(s)
        for part in ("body", "orelse"):
            if hasattr(s, part):
                setattr(s, part, self.block(getattr(s, part)))
        return [*before, s]

    def _lifted(self, s: ast.stmt) -> Block:
        """The statements that a statement's `:=` are, which stand before it."""
        named = next((x for n in _own(s) for x in _outside_of_scopes(n) if isinstance(x, ast.NamedExpr)), None)
        if named is None:
            return []
        lift, head = _Lift(), s.items[0] if isinstance(s, ast.With) else s
        field = _HEADS.get(type(head), "value")
        if isinstance(getattr(head, field, None), ast.expr):
            setattr(head, field, lift.value(getattr(head, field)))
        read_before = isinstance(s, ast.AugAssign) and names(s.target, ast.Store) & names(lift.before, ast.Store)
        if read_before or any(map(_names_something, _own(s))):
            self.refuse(named, ":= is not a part of script here; help: an assignment on a line of its own")
        return located(lift.before, s)


def _own(s: ast.stmt) -> list[ast.AST]:
    """What stands in a statement, but for the statements inside of it."""
    found = [n for _, x in ast.iter_fields(s) for n in (x if isinstance(x, list) else [x]) if isinstance(n, ast.AST)]
    found += [n for case in getattr(s, "cases", ()) for n in (case.pattern, case.guard) if n is not None]
    return [n for n in found if not isinstance(n, (ast.stmt, ast.match_case))]


# What of a statement is evaluated first, where that is not its value.
_HEADS: dict[type[ast.AST], str] = {
    ast.If: "test", ast.Assert: "test", ast.For: "iter", ast.Match: "subject", ast.Raise: "exc", ast.withitem: "context_expr",
}  # fmt: skip


# ---- else of a loop --------------------------------------------------------------------------------------------------


def _without_else(s: ast.For | ast.While) -> Block:
    left = f"whether the loop of line {s.lineno} was left by break"
    breaks = _breaks(s.body, left)
    other, s.orelse = s.orelse, []
    if not breaks:
        return [s, *other]
    return [_set(left, ast.Constant(False)), s, ast.If(_not(_load(left)), other, [])]


def _breaks(body: Block, left: str) -> int:
    """Sets a variable before each `break` of the loop with this body. Returns how many there are."""
    found = 0
    for i in reversed(range(len(body))):
        s = body[i]
        if isinstance(s, ast.Break):
            body.insert(i, ast.copy_location(_set(left, ast.Constant(True)), s))
            found += 1
        inner = [s.orelse] if isinstance(s, Loop) else [getattr(s, f, []) for f in ("body", "orelse")]
        inner += [case.body for case in s.cases] if isinstance(s, ast.Match) else []
        found += sum(_breaks(b, left) for b in inner if not isinstance(s, ast.FunctionDef))
    return found


# ---- := --------------------------------------------------------------------------------------------------------------


class _Lift:
    """Takes `:=` out of an expression. before: the statements that compute what is evaluated up to the last one, in Python's order."""

    def __init__(self) -> None:
        self.before: Block = []
        self.count = 0

    def value(self, e: ast.expr) -> ast.expr:
        """What the expression is behind these statements."""
        if not _names_something(e):
            return e
        match e:
            case ast.NamedExpr(ast.Name(name), value):
                self._do(_set(name, self.value(value)), e)
                return ast.copy_location(_load(name), e)
            case ast.BoolOp(op, [first, *rest]):
                made = self._kept(self.value(first))
                for v in rest:
                    test = _load(made.id) if isinstance(op, ast.And) else _not(_load(made.id))
                    self._do(ast.If(test, self._branch(made.id, v), []), e)
                return made
            case ast.IfExp(test, a, b):
                made = self._name(e)
                self._do(ast.If(self.value(test), self._branch(made.id, a), self._branch(made.id, b)), e)
                return made
            case ast.Compare(left, [op, *ops], [right, *rest]) if rest:
                a, b = self._kept(self.value(left)), self._kept(self.value(right))
                made = self._kept(ast.copy_location(ast.Compare(a, [op], [b]), e))
                [behind] = located([ast.Compare(_load(b.id), ops, rest)], e)
                self._do(ast.If(_load(made.id), self._branch(made.id, behind), []), e)
                return made
        return self._parts(e)

    def _parts(self, e: ast.expr) -> ast.expr:
        """Any other expression: what is evaluated before the last `:=` is kept in variables."""
        slots = list(_slots(e))
        last = max(i for i, (holder, key) in enumerate(slots) if _names_something(holder[key]))
        for i, (holder, key) in enumerate(slots[: last + 1]):
            made = holder[key] = self.value(holder[key])
            later = {n.target.id for h, k in slots[i + 1 :] for n in _outside_of_scopes(h[k]) if isinstance(n, ast.NamedExpr)}
            if i < last and not isinstance(made, ast.Constant) and not (isinstance(made, ast.Name) and made.id not in later):
                holder[key] = self._kept(made)
        return e

    def _branch(self, name: str, e: ast.expr) -> Block:
        outer, self.before = self.before, []
        self._do(_set(name, self.value(e)), e)
        made, self.before = self.before, outer
        return made

    def _kept(self, e: ast.expr) -> ast.Name:
        name = self._name(e)
        self._do(_set(name.id, e), e)
        return name

    def _name(self, e: ast.expr) -> ast.Name:
        self.count += 1
        return ast.copy_location(_load(f"value {self.count} of line {e.lineno}"), e)

    def _do(self, s: ast.stmt, e: ast.expr) -> None:
        self.before += located([s], e)


def _slots(e: ast.AST) -> Iterator[tuple[Any, Any]]:
    """The places of the expressions that a node evaluates, in order: (what holds it, its key there)."""
    places: list[tuple[Any, Any]] = []
    if isinstance(e, ast.Dict):
        places = [(xs, i) for i in range(len(e.values)) for xs in (e.keys, e.values)]
    else:
        for name, x in ast.iter_fields(e):
            places += [(x, i) for i in range(len(x))] if isinstance(x, list) else [(vars(e), name)]
    for holder, key in places:
        x = holder[key]
        if isinstance(x, (ast.Slice, ast.Starred, ast.keyword, ast.FormattedValue)):
            yield from _slots(x)
        elif isinstance(e, ast.Call) and x is e.func and isinstance(x, ast.Attribute):
            yield vars(x), "value"  # a method is found again
        elif isinstance(x, ast.expr):
            yield holder, key


# ---- match -----------------------------------------------------------------------------------------------------------


def _match(s: ast.Match) -> Block:
    chosen = f"the case of match of line {s.lineno}"
    branch: Block = []
    for i, case in reversed(list(enumerate(s.cases))):
        branch = [ast.If(ast.Compare(_load(chosen), [ast.Eq()], [ast.Constant(i)]), case.body, branch)]
        located(branch, case.pattern)
        case.body = located([_set(chosen, ast.Constant(i))], case.pattern)
        case.guard = case.guard and ast.copy_location(_call("known", case.guard, ast.Constant("case")), case.guard)
    s.subject = ast.copy_location(_call("matched", s.subject), s.subject)
    done = ast.With([ast.withitem(_call("matching"), None)], [s])
    return [_set(chosen, ast.Constant(-1)), done, *branch]


# ---- lists inside of dicts and lists ---------------------------------------------------------------------------------


def _growing(loop: ast.For | ast.While, local: Names, params: Names) -> Block:
    """A loop that appends to ``d["k"]`` of a local variable d, and does nothing else with d, appends to a variable in its place."""
    places: dict[str, list[ast.Attribute]] = {}
    uses: dict[str, int] = {}
    for s in ast.walk(loop):
        if isinstance(s, ast.Name):
            uses[s.id] = uses.get(s.id, 0) + 1
        match s:
            case ast.Expr(ast.Call(ast.Attribute(ast.Subscript() as place, "append") as f, [_], [])) if root := _root(place):
                places.setdefault(root, []).append(f)
    before, behind = [], []
    for root, found in places.items():
        if len(found) < uses[root] or root not in local:
            continue
        whose = THE_CALLERS if root in params else ""
        for name, place in {whose + ast.unparse(f.value): f.value for f in found}.items():
            before.append(_set(name, _call("element", *_way(place))))
            behind.append(ast.Expr(_call("put_back", _load(name), *_way(place))))
        for f in found:
            f.value = ast.copy_location(_load(whose + ast.unparse(f.value)), f.value)
    return [*before, loop, *behind]


def is_element(name: str) -> bool:
    """Whether a variable is that of an element of a list or a dict which the function has made."""
    return "[" in name and not name.startswith(THE_CALLERS)


def _root(place: ast.expr) -> str:
    """The variable of an element at constant keys, or ""."""
    while isinstance(place, ast.Subscript):
        if not isinstance(place.slice, ast.Constant):
            return ""
        place = place.value
    return place.id if isinstance(place, ast.Name) else ""


def _way(place: Any) -> tuple[ast.expr, ast.expr]:
    """The variable of an element, and its keys from the outside to the inside."""
    keys: list[ast.expr] = []
    while isinstance(place, ast.Subscript):
        keys.insert(0, place.slice)
        place = place.value
    return _load(place.id), ast.Tuple(keys, ast.Load())
