"""Computed positions: `gather.py` reads at them (also padding, joining, one-hot, binary search), `scatter.py` writes at them,
in logical order whatever the number of threads, `sort.py` sorts along an axis and selects the first k.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tengen.base.lazy import modules_of

if TYPE_CHECKING:
    from tengen.kernels.indexing import gather, scatter, sort  # noqa: F401

__getattr__ = modules_of(__name__)
