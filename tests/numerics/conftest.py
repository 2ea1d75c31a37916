"""Puts the helpers of the kernel tests (an interpreter of lowerings) and of the code generator's tests within reach."""

import sys
from pathlib import Path

for folder in ("kernels", "codegen", "ops"):
    path = str(Path(__file__).resolve().parent.parent / folder)
    if path not in sys.path:
        sys.path.append(path)
