"""Names for the tensors that a traced function reaches: the dotted names they have in their module.

In: a function and the objects it was called with. Out: id of a tensor -> name. A module is anything with `named_tensors()`, an
optimizer anything with `named_states()`; it may be the function itself, the owner of a method or an attribute of that, an
argument, or a variable that the function's code mentions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from tengen.random.state import default_rng


def tensor_names(function: Callable, objects: list[Any]) -> dict[int, str]:
    """Names of tensors, by their id. With one module they are its own (``fc.weight``); of several, each gets a prefix: the name
    of the variable it was found under, or ``module0``, ``module1``. What an optimizer keeps for a parameter follows that one's
    name (``fc.weight.momentum_buffer``).
    """
    found: dict[int, tuple[str, Any]] = {}
    optimizers: list[Any] = [default_rng]
    for name, x in [*_known_to(function), *(("", x) for x in objects)]:
        if isinstance(x, type):
            continue
        if hasattr(x, "named_tensors"):
            found.setdefault(id(x), (name, x))
        elif hasattr(x, "named_states"):
            optimizers.append(x)
    modules = [(name, x) for name, x in found.values() if not any(_inside(x, m) for _, m in found.values() if m is not x)]
    names: dict[int, str] = {}
    for i, (name, m) in enumerate(modules):
        prefix = "" if len(modules) == 1 else f"{name or f'module{i}'}."
        for path, t in m.named_tensors():
            names.setdefault(id(t), prefix + path)
    for x in optimizers:
        for name, t in x.named_states(dict(names)):
            names.setdefault(id(t), name)
    return names


def _inside(x: Any, m: Any) -> bool:
    return hasattr(m, "modules") and any(child is x for child in m.modules())


def _known_to(function: Callable) -> Iterator[tuple[str, Any]]:
    """(name, value) of what a function can reach: itself, its owner (the attributes, unless that is a module), its closure, the
    globals that its code mentions."""
    yield "", function
    owner = getattr(function, "__self__", None)
    yield "", owner
    if not hasattr(owner, "named_tensors"):
        yield from getattr(owner, "__dict__", {}).items()
    f = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(f, "__code__", None)
    if code is None:
        return
    for name, cell in zip(code.co_freevars, getattr(f, "__closure__", None) or ()):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not yet assigned
            continue
    scope = getattr(f, "__globals__", {})
    for name in code.co_names:
        if name in scope:
            yield name, scope[name]


def result_names(structure: Any, n: int) -> list[str]:
    """The keys of a dict, or the fields of a dataclass, of tensors; numbered names for any other result."""
    held = {"dict": structure[1:2], "D": structure[2:3]}.get(structure[0], ((),))[0]
    if len(held) == n and all(v == ("T",) for _, v in held):
        keys = [str(k) for k, _ in held]
        if len(set(keys)) == n and all(k and k.isprintable() and "`" not in k for k in keys):
            return keys
    return [f"output{i}" for i in range(n)]
