"""Puts the helpers of the kernel tests within reach: a kernel is lowered here, and run as code for another processor."""

import sys
from pathlib import Path

kernels = str(Path(__file__).resolve().parents[1] / "kernels")
if kernels not in sys.path:
    sys.path.append(kernels)
