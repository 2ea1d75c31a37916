"""jit: one `trace` line turns eager code into a static program."""

from tengen.base.errors import TraceError
from tengen.jit.options import DTRConfig, GraphOptimizationConfig, SublinearMemoryConfig, exclude_from_trace, partial_trace
from tengen.jit.passes import observe_passes
from tengen.jit.trace import trace
from tengen.runtime.tiers import wait_for_compilation

__all__ = [
    "DTRConfig", "GraphOptimizationConfig", "SublinearMemoryConfig", "TraceError", "exclude_from_trace", "observe_passes", "partial_trace",
    "trace", "wait_for_compilation",
]  # fmt: skip
