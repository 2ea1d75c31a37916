"""What machine code is made for. Each architecture is one file that says all that is true of it alone; the rest of Tengen asks.

Read `architecture.py` (what there is to say of one), `x86_64.py` and the others, `registry.py` (the list of them), `system.py`
(operating systems, and none), `processor.py` (what this machine has), `target.py` (an architecture with the features of some
processors, and a system: what programs are compiled for).

To add an architecture, write its file and name it in `registry.py`. Nothing else in Tengen names an architecture, one of its
features or its instructions; `tests/codegen/test_architectures.py` holds that.
"""

from __future__ import annotations

from tengen.codegen.targets.architecture import Architecture
from tengen.codegen.targets.registry import ARCHITECTURES
from tengen.codegen.targets.target import TARGET_NAMES, Target

__all__ = ["ARCHITECTURES", "TARGET_NAMES", "Architecture", "Target"]
