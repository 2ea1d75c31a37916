"""Which code tests run: quick code alone, which LLVM makes in a third of the time and which has the same bits, or good code alone,
where a test is of code. In both nothing is compiled twice and no process compiles in the background, so what a test compiles does
not depend on time. See `src/tengen/runtime/tiers.py`. Artifacts are good code in both: their tests compare them with quick code.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

VARIABLE, QUICK, GOOD = "TENGEN_QUICK_COMPILE", "only", "0"
OF_CODE = (  # below tests/
    "codegen", "compiler", "runtime", "tuning", "numerics/test_targets.py",
)  # fmt: skip
OF_PROGRAMS = ("runtime/test_eviction.py", "runtime/test_open_channels.py", "runtime/test_open_programs.py")  # their number, memory and bits
_TESTS = os.path.dirname(os.path.abspath(__file__))

os.environ.setdefault(VARIABLE, QUICK)  # before Tengen is imported, and for children
_asked = os.environ[VARIABLE]


def use(tier: str) -> None:
    """Makes this process and its children use a tier. This process forgets the programs that it has for eager calls."""
    if tier == os.environ[VARIABLE]:
        return
    os.environ[VARIABLE] = tier
    if "tengen" in sys.modules:
        from tengen.base.config import Config, config
        from tengen.compiler import plans
        from tengen.tensor import hide_plans

        config.quick_compile = Config({VARIABLE: tier}).quick_compile
        hide_plans()
        plans.forget_programs()


def use_for(file: str) -> None:
    """The same, for a file of tests. Where the environment asks for something else than quick code, that is used for all."""
    name = os.path.relpath(file, _TESTS)
    use(GOOD if _asked == QUICK and name.startswith(OF_CODE) and name not in OF_PROGRAMS else _asked)


@contextlib.contextmanager
def using(tier: str) -> Iterator[None]:
    """The same for a block."""
    before = os.environ[VARIABLE]
    use(tier)
    try:
        yield
    finally:
        use(before)
