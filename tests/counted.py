"""Eager calls whose programs are lowered and counted, and neither emitted, compiled nor run."""

from collections.abc import Iterator

import pytest
import remembered

from tengen.base.device import Device
from tengen.base.errors import ShapeError, Undecided
from tengen.compiler import building, pattern_cache, plans
from tengen.compiler.program_record import Made
from tengen.runtime import cache, native
from tengen.runtime.environment import environment, knobs
from tengen.tensor import hide_plans, restore_plans


def _zeros(program, n_inputs, sizes, values):
    def zeros(*data):
        buffers = []
        for n in (n for n in sizes if n >= 0):  # below: a result that is written over an operand
            buffers.append(native.new_buffer(n))
            native.write(buffers[-1], bytes(n))
        return buffers[0] if len(buffers) == 1 else tuple(buffers)

    return zeros


def _lowered(pattern: pattern_cache.Pattern, device: Device, make: pattern_cache.Make) -> Made:
    """The program of a pattern without code, or the error that it has none. It is kept for later runs, under what decides it and under a key
    of its own: nobody takes it for a program that runs."""
    target = plans.target_of(device)
    facts = pattern.facts() if remembered.asked() else None
    if facts is None:
        return make(target)
    key = f"{environment(target, knobs())} counted {device} {facts}"
    if (kept := cache.get(key, cache.FACTS)) is not None and (found := pattern_cache.made_of(kept, device, target)) is not None:
        return found
    try:
        made = make(target)
    except (Undecided, ShapeError) as e:
        cache.put(key, pattern_cache.packed_entry(pattern_cache.undecided(e), b""), cache.FACTS)
        raise
    if (entry := pattern_cache.entry_of(*made)) is not None:
        cache.put(key, pattern_cache.packed_entry(entry, b""), cache.FACTS)
    return made


def counted_programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict]:
    """The programs that are made while a fixture of a test yields this; none and no plan is known before. Calls give zeros. The test patches
    nothing else that decides a program: what a pattern is lowered to is kept."""
    made: dict = {}
    monkeypatch.setattr(building, "emit_module", lambda kernels, target, more: "")
    monkeypatch.setattr(plans, "_call", _zeros)
    monkeypatch.setattr(plans, "HOT_AFTER_S", float("inf"))
    monkeypatch.setattr(plans, "_programs", made)
    monkeypatch.setattr(plans, "_questions", {})
    monkeypatch.setattr(plans, "ready", _lowered)
    known = hide_plans()
    yield made
    restore_plans(known)
