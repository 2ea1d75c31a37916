"""From a user's function to the function that a script records.

In: a function with a source. Out: one with the same parameters, globals, defaults and cells of closures, whose code is that of
`rewrite.py` under the user's file and lines. Each source is rewritten once.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import re
import textwrap
import types
from typing import Any

from tengen.base.errors import ScriptError
from tengen.jit.script.desugar import desugar
from tengen.jit.script.liveness import changed
from tengen.jit.script.rewrite import MADE, RUNTIME, Rewriter, Unannotated, Unfolded
from tengen.jit.script.subset import Refuse, check


class NoSource(ScriptError):
    """A function whose source is not there."""


_factories: dict[tuple[str, types.CodeType], types.CodeType] = {}  # the user's file and code -> that of the function which is recorded
_sources: dict[int, types.CodeType] = {}  # the user's code, by the id of what was made of it, which `_factories` keeps
_made: set[types.CodeType] = set()  # code that was made here: of whole functions, and of those inside of them


def is_converted(f: types.FunctionType) -> bool:
    """Whether a function was made here."""
    return f.__code__ in _made


def is_made(code: types.CodeType) -> bool:
    """Whether code was made here."""
    return code in _made


def source_of(code: types.CodeType) -> types.CodeType | None:
    """The user's code of a whole function from which code was made here; None for any other."""
    return _sources.get(id(code))


def converted(f: types.FunctionType, runtime: Any) -> types.FunctionType:
    """The function that is recorded in place of f.

    Args:
        runtime: what the free variable `__script__` of the code holds.

    Errors: ScriptError for a source that is not there, or holds what no script has.
    """
    key = f.__code__.co_filename, f.__code__  # equal code of two files is equal
    code = _factories.get(key)
    if code is None:
        code = _factories[key] = _code(f)
        _sources[id(code)] = f.__code__
    cells = dict(zip(f.__code__.co_freevars, f.__closure__ or ()))
    cells[RUNTIME] = types.CellType(runtime)
    made = types.FunctionType(code, f.__globals__, f.__name__, f.__defaults__, tuple(cells[n] for n in code.co_freevars))
    made.__kwdefaults__, made.__qualname__, made.__module__ = f.__kwdefaults__, f.__qualname__, f.__module__
    made.__dict__.update({k: v for k, v in f.__dict__.items() if k != "__wrapped__"})
    return made


def _code(f: types.FunctionType) -> types.CodeType:
    file, (lines, first) = f.__code__.co_filename, _source(f)
    text = textwrap.dedent("".join(lines))
    indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    tree = ast.parse(text)
    ast.increment_lineno(tree, first - 1)
    for n in ast.walk(tree):
        if isinstance(n, (ast.expr, ast.stmt, ast.arg, ast.keyword)):
            n.col_offset += indent
            n.end_col_offset = (n.end_col_offset or 0) + indent
    refuse = Refuse(file, lines, first)
    node = tree.body[0] if len(tree.body) == 1 else tree
    if not isinstance(node, ast.FunctionDef) or node.name != f.__code__.co_name:
        refuse(node, f"{f.__name__} is no function with a `def`; help: def f(x): ...")
    assert isinstance(node, ast.FunctionDef)
    check(node, refuse)
    desugar(node, refuse)
    node.decorator_list = []
    node.args.defaults = [ast.copy_location(ast.Constant(None), d) for d in node.args.defaults]
    node.args.kw_defaults = [d and ast.copy_location(ast.Constant(None), d) for d in node.args.kw_defaults]
    Unannotated().visit(node)
    for n in ast.walk(node):
        if isinstance(n, ast.arg):
            n.annotation = None
    node.returns = None
    parts = f.__qualname__.split(".")
    owner = parts[-2] if len(parts) > 1 and parts[-2] != "<locals>" else ""
    if changed(node.body) or any(isinstance(n, ast.AugAssign) for n in ast.walk(node)):
        Unfolded().visit(node)
    made = Rewriter(node, owner).function(node)
    made.name = MADE + "function"  # the user's name may be that of a variable in it
    free = sorted({*f.__code__.co_freevars, RUNTIME})
    args = ast.arguments([], [ast.arg(n) for n in free], None, [], [], None, [])
    outer = ast.FunctionDef("__script_factory", args, [made, ast.Return(ast.Name(made.name, ast.Load()))], [], None)
    if "type_params" in ast.FunctionDef._fields:
        outer.type_params = []
    module = ast.fix_missing_locations(ast.Module([ast.copy_location(outer, node)], []))
    factory = _inner(compile(module, file, "exec", dont_inherit=True), "__script_factory")
    code = _named(_inner(factory, made.name), f.__name__, f.__qualname__)
    _note(code)
    return code


def innermost(e: Exception) -> types.TracebackType | None:
    """The last entry of an error's traceback that is a line of a script."""
    tb, found = e.__traceback__, None
    while tb is not None:
        found = tb if tb.tb_frame.f_code in _made else found
        tb = tb.tb_next
    return found


def with_source(e: Exception) -> None:
    """Adds to the text of an error the line of a script in which it was raised, with a caret, where it shows none."""
    text, found = str(e), innermost(e)
    if found is None or "\n" in text or len(e.args) != 1:
        return
    code = found.tb_frame.f_code
    line, _, column, _ = next(itertools.islice(code.co_positions(), found.tb_lasti // 2, None))
    if line is None:  # the error has left a `with`, whose code for that has no line
        line = int(match[1]) if (match := re.match(re.escape(code.co_filename) + r":(\d+): ", text)) else 0
    shown = linecache.getline(code.co_filename, line).rstrip("\n")
    column = len(shown) - len(shown.lstrip()) if column is None else column
    if shown:
        e.args = (f"{text}\n    {shown}\n    {' ' * column}^",)
        if isinstance(e, SyntaxError):
            e.msg = e.args[0]


def _named(code: types.CodeType, name: str, qualname: str) -> types.CodeType:
    """The code under the user's name, and so its parts: a traceback shows the user's function."""
    parts = tuple(_named(c, name, qualname) if _is_part(c) else c for c in code.co_consts)
    return code.replace(co_consts=parts, co_name=name, co_qualname=qualname)


def _is_part(c: Any) -> bool:
    return isinstance(c, types.CodeType) and c.co_name.startswith(MADE)


def _source(f: types.FunctionType) -> tuple[list[str], int]:
    try:
        return inspect.getsourcelines(f.__code__)
    except (OSError, TypeError):
        raise NoSource(
            f"{f.__code__.co_filename}:{f.__code__.co_firstlineno}: the source of {f.__name__} is not there, and script compiles sources; "
            "help: define it in a file or a notebook's cell, not by exec"
        ) from None


def _inner(code: types.CodeType, name: str) -> types.CodeType:
    return next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)


def _note(code: types.CodeType) -> None:
    _made.add(code)
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            _note(c)
