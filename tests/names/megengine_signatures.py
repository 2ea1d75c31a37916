"""Writes `megengine_signatures.txt`: the signatures of the public functions, classes and methods of an installed MegEngine, in the namespaces
of `megengine.txt`. Run by a Python that has MegEngine 1.13: `python megengine_signatures.py`. A line is `namespace.name(parameters)`, with
defaults as Python writes them; those that have no such form stand as `...`."""

import importlib
import inspect
import re
from pathlib import Path

HERE = Path(__file__).parent
TOOLS = ("tools.", "utils.tensorboard", "xla", "experimental")  # not for programs, or in need of packages
PLAIN = (type(None), bool, int, float, str)


def home_of(namespace: str):
    """A module or class of MegEngine; None where 1.13 has none."""
    if namespace == "megengine":
        return importlib.import_module("megengine")
    try:
        return importlib.import_module(f"megengine.{namespace}")
    except ModuleNotFoundError:
        value = importlib.import_module("megengine")
        for part in namespace.split("."):
            value = getattr(value, part, None)
        return value


def written(value) -> str:
    """A default as Python writes it."""
    if isinstance(value, PLAIN) or isinstance(value, (tuple, list)) and all(isinstance(v, PLAIN) for v in value):
        return repr(value)
    return "..."


def signature(f) -> "str | None":
    """The parameters of a function without annotations; None where Python knows none."""
    try:
        found = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return None
    empty = inspect.Parameter.empty
    plain = [p.replace(annotation=empty, default=empty) for p in found]
    text = str(inspect.Signature(plain))
    for p in found:
        if p.default is not empty:
            default = written(p.default).replace("\\", r"\\")
            text = re.sub(rf"(?<=[(, ]){p.name}(?=[,)])", f"{p.name}={default}", text, count=1)
    return text.replace("(self, ", "(").replace("(self)", "()")


def lines() -> "list[str]":
    """A line for each callable of each namespace."""
    found = []
    text = (HERE / "megengine.txt").read_text()
    for namespace, words in re.findall(r"^([\w.]+):\n((?: +.*\n)+)", text, re.MULTILINE):
        home = None if namespace.startswith(TOOLS) else home_of(namespace)
        for name in words.split():
            value = inspect.getattr_static(home, name, None)  # some are properties that need a cluster
            value = getattr(home, name, None) if inspect.isroutine(value) or inspect.isclass(value) else None
            if value is None:
                continue
            parameters = signature(value)
            if parameters is not None:
                found.append(f"{namespace}.{name}{parameters}")
            if inspect.isclass(value) and namespace in ("module", "optimizer", "data", "autodiff", "jit", "amp"):
                for method, function in inspect.getmembers(value, inspect.isfunction):
                    if method[0] != "_" and function.__qualname__.startswith(value.__name__ + "."):
                        found.append(f"{namespace}.{name}.{method}{signature(function)}")
    return sorted(set(found))


if __name__ == "__main__":
    (HERE / "megengine_signatures.txt").write_text("\n".join(lines()) + "\n")
