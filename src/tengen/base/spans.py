"""What took how long besides kernels, while a profile is active: transfers between processes."""

from __future__ import annotations

_active: list[tuple[str, int, int]] | None = None


def note_spans(into: list[tuple[str, int, int]] | None) -> None:
    """From now on spans go into this list; None: nowhere."""
    global _active
    _active = into


def note_span(name: str, begin: int, end: int) -> None:
    """Something took from begin to end, in nanoseconds of `time.monotonic_ns`."""
    if _active is not None:
        _active.append((name, begin, end))
