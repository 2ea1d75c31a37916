"""jit: one `trace` line turns eager code into a static program; `script` keeps its loops and branches."""

from tengen.base.errors import TraceError
from tengen.jit.options import DTRConfig, GraphOptimizationConfig, SublinearMemoryConfig, exclude_from_trace, partial_trace
from tengen.jit.passes import observe_passes
from tengen.jit.script.python_calls import ignore, unused
from tengen.jit.scripting import script
from tengen.jit.trace import trace
from tengen.runtime.tiers import wait_for_compilation

__all__ = [
    "DTRConfig", "GraphOptimizationConfig", "SublinearMemoryConfig", "TraceError", "exclude_from_trace", "ignore", "observe_passes",
    "partial_trace", "script", "trace", "unused", "wait_for_compilation",
]  # fmt: skip
