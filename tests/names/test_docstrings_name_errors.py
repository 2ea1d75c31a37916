"""Docstrings of public names say which errors they raise: what a function or a method raises itself, by its class."""

import ast
import importlib
import inspect
import textwrap

import pytest

NAMESPACES = (
    "functional functional.vision functional.loss functional.metric functional.distributed linalg fft optimizer optimizer.swa_utils data "
    "data.transform data.dataset module module.init random distributions autodiff jit device serialization hub amp utils"
).split()
WITHOUT = {  # that nothing is there is said by the name
    "NotImplementedError", "StopIteration", "AssertionError",
}  # fmt: skip


def raised(function) -> set[str]:
    """The classes that the body of a function names behind `raise`, those of functions inside of it left out."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError):  # made by a program
        return set()
    found, todo = set(), list(ast.iter_child_nodes(tree))
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            found.add(node.exc.func.id)
        todo += ast.iter_child_nodes(node)
    return {name for name in found - WITHOUT if name[0].isupper()}


def lacking(name: str, value) -> list[str]:
    """What a public name raises, and does not say."""
    if inspect.isclass(value):
        methods = {m: f for m, f in vars(value).items() if inspect.isfunction(f) and (m in ("__init__", "__call__", "forward") or m[0] != "_")}
        return [
            f"{name}.{m}: {e}" for m, f in methods.items() for e in sorted(raised(f)) if e not in f"{value.__doc__} {f.__doc__}"
        ]  # fmt: skip
    function = inspect.unwrap(value)
    return [f"{name}: {e}" for e in sorted(raised(function)) if e not in (value.__doc__ or "")] if inspect.isfunction(function) else []


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_errors_are_said(namespace):
    home = importlib.import_module(f"tengen.{namespace}")
    names = getattr(home, "__all__", [n for n in dir(home) if n[0] != "_"])
    ours = {n: v for n in names if getattr(v := getattr(home, n), "__module__", "").startswith("tengen")}
    missing = [text for n, v in ours.items() for text in lacking(n, v)]
    assert not missing, f"docstrings of tengen.{namespace} that do not name what is raised:\n" + "\n".join(missing)


def test_the_look_finds_what_is_not_said():
    def silent(x):
        """Something."""
        if x:
            raise ValueError("x")
        return lambda: (_ for _ in ()).throw(KeyError)

    assert lacking("silent", silent) == ["silent: ValueError"]
    silent.__doc__ = "Errors: ValueError for x."
    assert lacking("silent", silent) == []
