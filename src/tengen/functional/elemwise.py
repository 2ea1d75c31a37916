"""Elementwise functions: the ops that say to stand here."""

from __future__ import annotations

from tengen.functional.export import export

__all__ = export(globals(), "elemwise")
