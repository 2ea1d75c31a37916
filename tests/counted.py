"""Eager calls whose programs are lowered and counted, and neither emitted, compiled nor run."""

from collections.abc import Iterator

import pytest

from tengen.compiler import plans, program
from tengen.runtime import native
from tengen.tensor import hide_plans, restore_plans


def _zeros(program, n_inputs, sizes, values):
    def zeros(*data):
        buffers = []
        for n in (n for n in sizes if n >= 0):  # below: a result that is written over an operand
            buffers.append(native.new_buffer(n))
            native.write(buffers[-1], bytes(n))
        return buffers[0] if len(buffers) == 1 else tuple(buffers)

    return zeros


def counted_programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict]:
    """The programs that are made while a fixture of a test yields this; none and no plan is known before. Calls give zeros."""
    made: dict = {}
    monkeypatch.setattr(program, "emit_module", lambda kernels, target, more: "")
    monkeypatch.setattr(plans, "_call", _zeros)
    monkeypatch.setattr(plans, "HOT_AFTER_S", float("inf"))
    monkeypatch.setattr(plans, "_programs", made)
    monkeypatch.setattr(plans, "_questions", {})
    monkeypatch.setattr(plans, "ready", lambda pattern, device, make: make(plans.target_of(device)))  # nothing is looked up or kept
    known = hide_plans()
    yield made
    restore_plans(known)
