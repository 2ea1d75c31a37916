"""Which ops the tests that are made from definitions cover: every one of Tengen's, but for exclusions, each with its reason.

A test names what it leaves out, never what it takes, so that a new op is tested from its definition alone. Loops and branches are
not among them: their operands fit the graphs in their attributes alone. `jit/test_control_flow.py` has bodies of all kinds for them.
Neither are ops that call Python, which the planner and scripts alone record: `jit/test_offload.py` and `jit/test_script_python.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

import pytest

import tengen.functional
import tengen.ops.complex_functions  # noqa: F401  (rules of ops for complex numbers)
from tengen.ops.define import REGISTRY, Op

COUNTED = {
    "nonzero": "how large its result is depends on values, so it cannot be traced",
    "non_zero": "how large its result is depends on values, so it cannot be traced",
    "unique": "how large its results are depends on values, so it cannot be traced",
    "bincount": "how large its result is depends on values, so it cannot be traced",
    "cond_take": "how large its results are depends on values, so it cannot be traced",
}


def ops(excluded: Mapping[str, str] | None = None, where: Callable[[Op], bool] = lambda op: True) -> list[Op]:
    """Tengen's own ops for which `where` holds, but for those that are excluded. Gradients that were derived are left to the
    ops that they are of."""
    own = lambda name, op: "." not in name and op.fn.__module__.startswith("tengen.ops.") and not (op.has_bodies or op.rules.effect)
    named = [name for name, op in sorted(REGISTRY.items()) if own(name, op)]
    unknown = {*(excluded or ())} - {*named}
    assert not unknown, f"excluded, but no ops of Tengen: {sorted(unknown)}"
    return [REGISTRY[name] for name in named if name not in (excluded or ()) and where(REGISTRY[name])]


def cases(excluded: Mapping[str, str] | None = None, where: Callable[[Op], bool] = lambda op: True) -> list:
    """(op, case) of all samples of these ops, as parameters of a test."""
    return [pytest.param(op, c, id=f"{op.name}-{i}") for op in ops(excluded, where) for i, c in enumerate(op.samples)]


def others(op: Op, name: str) -> list:
    """Values of an attribute that are not its default: every other word, or a number."""
    kind, default = op.kinds[name], inspect.signature(op.call).parameters[name].default
    words = [w for item in kind.items for w in getattr(item, "words", ())]
    return [w for w in words if w != default] or [kind.example]
