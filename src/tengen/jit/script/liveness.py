"""Which variables of a function are read later: only those are results of a branch, or carried by a loop.

In: the tree of a function. Out: for each `If`, `For`, `While` and `With` the names that may be read behind it, and for each loop those
that may be read at the begin of an iteration. It is the backward analysis of textbooks over structured code; a loop is gone through
until nothing is added.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

MUTATORS = frozenset({
    "append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault", "popitem", "sort", "reverse", "add", "discard",
})  # fmt: skip

Names = frozenset[str]
SCOPES = (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def names(node: ast.AST | Iterable[ast.AST], kind: type[ast.expr_context]) -> Names:
    """The names in a tree that are read (Load) or set (Store: or deleted), in functions inside of it too where they are read."""
    found: set[str] = set()
    todo = [node] if isinstance(node, ast.AST) else list(node)
    while todo:
        n = todo.pop()
        if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Store, ast.Del) if kind is ast.Store else kind):
            found.add(n.id)
        if kind is ast.Store and isinstance(n, (ast.MatchAs, ast.MatchStar, ast.MatchMapping)):
            found |= {getattr(n, "rest" if isinstance(n, ast.MatchMapping) else "name")} - {None}
        if isinstance(n, SCOPES) and kind is ast.Store:
            found |= {n.name} if isinstance(n, ast.FunctionDef) else set()
            continue
        if isinstance(n, ast.alias) and kind is ast.Store:
            found.add((n.asname or n.name).split(".")[0])
        if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name) and kind is ast.Load:
            found.add(n.target.id)
        todo += ast.iter_child_nodes(n)
    return frozenset(found)


def rebound(body: Iterable[ast.AST]) -> Names:
    """The names that are given another object: not those of ``x += 1``, which may change x itself."""
    body = list(body)
    plain = [ast.Constant(0) if isinstance(s, ast.AugAssign) else s for s in body]
    found: Names = frozenset()
    for s in plain:
        parts = [getattr(s, f, []) for f in ("body", "orelse")]
        if isinstance(s, (ast.If, ast.For, ast.While, ast.With)):
            heads = [s.target] if isinstance(s, ast.For) else []
            heads += [i.optional_vars for i in s.items if i.optional_vars] if isinstance(s, ast.With) else []
            found |= names(heads, ast.Store) | rebound([x for p in parts for x in p])
        else:
            found |= names(s, ast.Store)
    return found


def changed(body: Sequence[ast.stmt]) -> Names:
    """The names whose lists or dicts are changed in place: ``x[i] = ...``, ``del x[i]``, ``x.append(...)``."""
    found = set()
    for s in body:
        for n in ast.walk(s):
            if isinstance(n, (ast.Subscript, ast.Attribute)) and isinstance(n.ctx, (ast.Store, ast.Del)):
                found.add(base_of(n))
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in MUTATORS:
                found.add(base_of(n.func))
            match n:
                case ast.Call(ast.Attribute(attr="put_back"), [_, ast.Name(name), _]):
                    found.add(name)
    return frozenset(n for n in found if n)


def written(f: ast.FunctionDef) -> tuple[str, ...]:
    """The names of what may be changed in place, by ``x += 1``, ``x[i] = ...``, ``x.add_(1)`` or ``x.append(...)``, and behind them those
    that ``x = y`` makes names of one thing with them."""
    found, copies = {""}, []
    for n in ast.walk(f):
        match n:
            case ast.AugAssign(ast.Name(name)):
                found.add(name)
            case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
                found.add(base_of(n))
            case ast.Call(ast.Attribute(attr=name) as called) if _changes(name):
                found.add(base_of(called))
            case ast.Assign(targets, value):
                names_ = [t.id for t in (*targets, value) if isinstance(t, ast.Name)]
                copies += [names_] if isinstance(value, ast.Name) else []
    first, before = sorted(found - {""}), 0
    while before != len(found):
        before = len(found)
        for some in copies:
            found |= set(some) if found & set(some) else set()
    return (*first, *sorted(found - {"", *first}))


def _changes(method: str) -> bool:
    return method in MUTATORS or method == "_reset" or (method.endswith("_") and not method.endswith("__"))


def base_of(n: Any) -> str:
    """x of ``x[i]`` and ``x.append``; "" for what begins with no name, or goes through an attribute of it."""
    n = n.value
    while isinstance(n, ast.Subscript):
        n = n.value
    return n.id if isinstance(n, ast.Name) else ""


class Liveness:
    """Of one function.

    Attributes:
        after: names read behind a statement, by the statement. head: of a loop, those read at the begin of an iteration (before its
            condition). always: names that functions inside of it read.
    """

    def __init__(self, f: ast.FunctionDef):
        self.after: dict[ast.stmt, Names] = {}
        self.head: dict[ast.stmt, Names] = {}
        inner = [n for n in ast.walk(f) if isinstance(n, (ast.FunctionDef, ast.Lambda)) and n is not f]
        self.always = names(inner, ast.Load)
        self._block(f.body, frozenset(), None)

    def _block(self, body: Sequence[ast.stmt], out: Names, loop: tuple[Names, Names] | None) -> Names:
        """The names read before a block. out: behind it. loop: those at the head and behind the innermost loop."""
        for s in reversed(body):
            out = self._statement(s, out, loop)
        return out

    def _statement(self, s: ast.stmt, out: Names, loop: tuple[Names, Names] | None) -> Names:
        match s:
            case ast.If():
                self._note(s, out)
                return self._block(s.body, out, loop) | self._block(s.orelse, out, loop) | names(s.test, ast.Load)
            case ast.While() | ast.For():
                return self._loop(s, out)
            case ast.With():
                self._note(s, out)
                inside = self._block(s.body, out, loop)
                targets = names([i.optional_vars for i in s.items if i.optional_vars], ast.Store)
                return (inside - targets) | names([i.context_expr for i in s.items], ast.Load)
            case ast.Return() | ast.Raise():
                return names(s, ast.Load)
            case ast.Break():
                return loop[1] if loop else out
            case ast.Continue():
                return loop[0] if loop else out
            case ast.AugAssign() | ast.Match():
                return out | names(s, ast.Load)
            case ast.FunctionDef():
                return (out - {s.name}) | names(s, ast.Load)
        return (out - names(s, ast.Store)) | names(s, ast.Load) | changed([s])

    def _note(self, s: ast.stmt, out: Names) -> None:
        self.after[s] = self.after.get(s, frozenset()) | out | self.always

    def _loop(self, s: ast.While | ast.For, out: Names) -> Names:
        self._note(s, out)
        head: Names = frozenset()
        while True:
            before = self._block(s.body, head | out, (head | out, out))
            if isinstance(s, ast.For):
                before = before - names(s.target, ast.Store)
                now = before | out
            else:
                before = before | names(s.test, ast.Load)
                now = before | out
            if now == head:
                break
            head = now
        self.head[s] = before
        return head | (names(s.iter, ast.Load) if isinstance(s, ast.For) else frozenset())
