"""The compiler's driver: from a graph, or one op, to a `Program` that runs on this machine.

Read `driver.py` (a graph becomes a program), `program.py` and `program_ir.py` (what a program is), `arena.py` (the memory of
its temporaries), `budget.py` and `memory_plan.py` (programs that need no more memory than so many bytes), `plans.py` (eager calls:
one program for a pattern of calls), `program_record.py` (programs as data), `program_cache.py` and `pattern_cache.py` (those of graphs
and of eager calls, kept for later processes), `schedules.py` (what tuning found), `arrays.py` (NumPy's arrays as buffers, and back).
"""

from typing import TYPE_CHECKING

from tengen.base.lazy import modules_of

if TYPE_CHECKING:
    from tengen.compiler import building, driver  # noqa: F401  (load when named: a process that finds its programs makes none)

__getattr__ = modules_of(__name__)
