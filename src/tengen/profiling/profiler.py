"""`tengen.profile`: a block in which the launches of every kernel are recorded.

While it is active, plans of eager calls are made anew, and graphs (traced functions, loaded models) are compiled a second time,
so that they hand every launch to a function with a clock. Kernels, and so all bits, are the same. Programs of every day know
nothing of this and come back when the block ends. Read next: `runtime/launch_log.py`, `runtime/profile.py`.
"""

from __future__ import annotations

import time

from tengen.base.errors import TraceError
from tengen.profiling.result import Result
from tengen.runtime import launch_log
from tengen.tensor import hide_plans, restore_plans, tracing
from tengen.tensor.recorder import recording_lock


class profile(Result):
    """Records every kernel that runs in its block, in all threads: eager calls, traced functions, loaded models.

    Afterwards ``print(p)`` shows a table: for each kernel its launches, their time, billions of float operations and of bytes a
    second, the share of what this machine can do (`Row.share_of`), and the line that asked for it. ``p.rows`` has the same as data,
    ``p.table(sort="flops")`` as text, ``p.save("trace.json")`` writes a timeline for ui.perfetto.dev, ``p.plot("timeline.png")``
    draws one. What runs for the first time in the block is compiled first, which is no part of any kernel's time: run it
    once before (inside a block: programs that record are compiled anew).

    Operations and bytes are what the kernel's loops do, lanes of vectors that are padding included, and each buffer's elements
    counted once: a kernel that reads the same twice from cache moves them once.

    Errors: TraceError inside a traced function, or inside the block of another profile.

    >>> import tengen
    >>> from tengen import Tensor
    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> with tengen.profile() as p:
    ...     y = (x @ x).sum()
    >>> [(r.kernel, r.calls) for r in p.rows if r.kernel == "sum"]
    [('sum', 1)]
    """

    def __enter__(self) -> profile:
        if tracing.recorder is not None:
            raise TraceError("a profile cannot begin inside a traced function; help: put the block around the call")
        with recording_lock:
            if launch_log.active is not None:
                raise TraceError("a profile is active already; help: leave its block first")
            log = launch_log.open_log()
            vars(self).clear()  # it may be used again
            Result.__init__(self)
            self._plans = hide_plans()
            self._log = log
        self._begin = time.monotonic_ns()
        return self

    def __exit__(self, *exc) -> None:
        end = time.monotonic_ns()
        with recording_lock:
            restore_plans(self._plans)
            log = launch_log.close_log()
        self._close(log, self._begin, end)
