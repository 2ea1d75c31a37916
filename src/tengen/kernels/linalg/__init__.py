"""Linear algebra: factorisations of stacks of matrices, and what is computed from factors.

`triangular.py`: triangular systems. `factor.py`: Cholesky and LU with partial pivoting. `reflectors.py`: Householder reflectors in
blocks, and QR. `tridiagonal.py`: symmetric eigenproblems. `bidiagonal.py`: singular values. `sweeps.py`: what the last two share.
`complex_reflectors.py`: factorisations of complex matrices. `schur.py`: eigenvalues and vectors of general matrices.

A stack of matrices is dense, (count, rows, columns). The matrices of a stack are computed alike and alone, so no bit of one depends on
the others. Sizes of tiles and of the blocks of `factor.py` change no bit: every element is one chain of fma in the order of the
textbook's sum. The block of `reflectors.py` does, and stands in `kernels/numerics.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tengen.base.lazy import modules_of

if TYPE_CHECKING:
    from tengen.kernels.linalg import (  # noqa: F401  (for type checkers)
        bidiagonal,
        complex_reflectors,
        factor,
        reflectors,
        schur,
        stacks,
        sweeps,
        triangular,
        tridiagonal,
    )

__getattr__ = modules_of(__name__)
