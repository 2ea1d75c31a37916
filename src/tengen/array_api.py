"""The array API standard, version 2024.12, for Tensors: what ``x.__array_namespace__()`` gives, and nothing else.

Its functions compute as those of `tengen.functional` do and give Tensors, with gradients, inside of traces and `vmap` too where their
shapes do not depend on values. They take what the standard lets them take, and no more: `arrays/rules.py` has the table. Where the standard
leaves a choice: the default dtypes are float32, complex64 and int64; arrays made of NumPy's keep their dtype; NaNs sort last.

``//`` and `floor_divide` of infinities are those of Python, NumPy and PyTorch: ``inf // 1`` is NaN and ``1 // -inf`` is -1, which the
standard allows beside inf and -0.0.

Source: https://data-apis.org/array-api/2024.12

>>> import tengen.array_api as xp
>>> x = xp.asarray([[1.0, 2.0], [3.0, 4.0]])
>>> x.__array_namespace__() is xp, xp.sum(x, axis=0).tolist()
(True, [4.0, 6.0])
"""

from __future__ import annotations

from tengen.arrays import fft, linalg
from tengen.arrays.creation import *  # noqa: F403  (the names of `__all__`)
from tengen.arrays.creation import __all__ as _creation
from tengen.arrays.dtypes import *  # noqa: F403  (the names of `__all__`)
from tengen.arrays.dtypes import __all__ as _dtypes
from tengen.arrays.elementwise import *  # noqa: F403  (the names of `__all__`)
from tengen.arrays.elementwise import __all__ as _elementwise
from tengen.arrays.reductions import *  # noqa: F403  (the names of `__all__`)
from tengen.arrays.reductions import __all__ as _reductions
from tengen.arrays.rules import DTYPES as _DTYPES
from tengen.arrays.shapes import *  # noqa: F403  (the names of `__all__`)
from tengen.arrays.shapes import __all__ as _shapes

__array_api_version__ = "2024.12"

globals().update({d.name: d for d in _DTYPES})

__all__ = ["__array_api_version__", "fft", "linalg", *(d.name for d in _DTYPES), *_creation, *_dtypes, *_elementwise, *_reductions, *_shapes]


def __dir__() -> list[str]:
    return sorted(__all__)
