"""`torch.random`: the default generator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tengen.pytorch.functions.creation import get_rng_state, initial_seed, manual_seed, seed, set_rng_state


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, **how: Any) -> Iterator[None]:
    """A block after which the default generator goes on from where it was before."""
    before = get_rng_state()
    try:
        yield
    finally:
        if enabled:
            set_rng_state(before)


__all__ = ["fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]
