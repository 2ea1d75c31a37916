"""jit: one `trace` line turns eager code into a static program."""

from tengen.jit.trace import trace

__all__ = ["trace"]
