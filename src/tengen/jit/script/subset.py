"""What of Python `jit.script` takes: everything else is an error that shows the line, a caret, and what to write instead.

In: the tree of a function. Out: nothing, or a `ScriptError`.
"""

from __future__ import annotations

import ast

from tengen.base.errors import ScriptError

_LOCAL = "a local variable, which the function returns"
REFUSED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Try: ("try", "a condition before what may fail: an error of a program is raised when its run has ended"),
    ast.Global: ("global", _LOCAL),
    ast.Nonlocal: ("nonlocal", _LOCAL),
    ast.Yield: ("yield", "a list that grows in the loop, or jit.ignore"),
    ast.YieldFrom: ("yield from", "a list that grows in the loop, or jit.ignore"),
    ast.Await: ("await", "jit.ignore, or a call outside of the script"),
    ast.AsyncFunctionDef: ("an async function", "a plain one"),
    ast.AsyncFor: ("async for", "for"),
    ast.AsyncWith: ("async with", "with"),
    ast.ClassDef: ("a class", "one outside of the function"),
}
for _name, _what in (("TryStar", "try"), ("TypeAlias", "type"), ("TemplateStr", "a t-string")):
    if hasattr(ast, _name):
        REFUSED[getattr(ast, _name)] = (_what, "a plain statement outside of the function")


def check(tree: ast.AST, refuse: Refuse) -> None:
    """ScriptError for the first thing in a function that no script has."""
    for node in ast.walk(tree):
        if type(node) in REFUSED:
            what, instead = REFUSED[type(node)]
            refuse(node, f"{what} is not a part of script; help: {instead}")
        if isinstance(node, ast.Raise) and node.exc is None:
            refuse(node, "raise without an error is not a part of script; help: raise ValueError(...)")
        if isinstance(node, (ast.comprehension,)) and node.is_async:
            refuse(node.target, "async for is not a part of script; help: for")


class Refuse:
    """Raises the error for a node of a source.

    Args:
        file, lines, first: the source's lines, the first of which has this number.
    """

    def __init__(self, file: str, lines: list[str], first: int):
        self.file, self.lines, self.first = file, lines, first

    def __call__(self, node: ast.AST, text: str) -> None:
        line, column = getattr(node, "lineno", self.first), getattr(node, "col_offset", 0)
        at = line - self.first
        shown = self.lines[at].rstrip("\n") if 0 <= at < len(self.lines) else ""
        raise ScriptError(f"{self.file}:{line}: {text}\n    {shown}\n    {' ' * column}^")
