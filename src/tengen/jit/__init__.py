"""jit: one `trace` line turns eager code into a static program."""

from tengen.jit.trace import trace
from tengen.runtime.tiers import wait_for_compilation

__all__ = ["trace", "wait_for_compilation"]
