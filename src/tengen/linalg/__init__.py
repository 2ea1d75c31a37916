"""Linear algebra: the functions of the array API's extension `linalg`, and those of NumPy, SciPy and PyTorch that users reach for.

All take stacks of matrices, (..., rows, columns), and compute each matrix alike and alone: its bits depend on no other, and not on
threads. Kernels are Tengen's own (`tengen.kernels.linalg`). Complex matrices are taken by all. float16 and bfloat16 are computed in
float32; integers are errors where the array API says so.
"""

from tengen.base.lazy import modules_of
from tengen.linalg import products, reflectors, spectra, systems
from tengen.linalg.products import *  # noqa: F403  (the names of `__all__`)
from tengen.linalg.reflectors import *  # noqa: F403  (the names of `__all__`)
from tengen.linalg.spectra import *  # noqa: F403  (the names of `__all__`)
from tengen.linalg.systems import *  # noqa: F403  (the names of `__all__`)

__getattr__ = modules_of(__name__)
__all__ = [*products.__all__, *reflectors.__all__, *spectra.__all__, *systems.__all__]
