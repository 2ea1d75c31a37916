"""Every product: matrices, linear layers, convolutions and both their gradients are one contraction over strided windows.

In: two arrays and where their product goes, axes by role. Out: launches. The order of the sum is fixed by `chunks.Chunks`, so
every strategy gives the same bits: `microkernel.py` (register tiles), `inplace.py` (a matrix times few columns), and
`channelwise.py` (one channel to one lane).
"""

from __future__ import annotations

from tengen.kernels.channelwise import channelwise, fits
from tengen.kernels.inplace import fits_in_place, in_place
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.microkernel import register_tile
from tengen.kernels.problem import Epilogue, normalise
from tengen.loops.lang import as_int


def contract(
    lo: Lowering,
    a: Array,
    b: Array,
    out: Array,
    g: int,
    m: int,
    k: int,
    n: int,
    epilogue: Epilogue | None = None,
    chunk: int | None = None,
    name: str = "contract",
) -> None:
    """out[g, m, n] = the sum over k of a[g, m, k] * b[g, k, n].

    Shapes:   a ([g], [m], [k]), b ([g], [k], [n]), out ([g], [m], [n]), where g, m, k, n are the numbers of axes of each
              role, each may be 0; strides are arbitrary (0, negative, overlapping windows), known or not
    Dtypes:   a and b of one dtype, not bool; float16 and bfloat16 are computed in float32; integers wrap
    Args:
        epilogue: makes what is stored from the sum (in the dtype computed in), at coordinates of out, a vector or not;
            default: a cast. It may load anything but out.
        chunk: positions of a run in the rule of `Chunks`, if not its 256: changes bits.
        name: of the kernels.
    Numerics: see `Chunks`: each chunk of k is accumulated by fma in logical order from zero, chunks are added in order
    """
    if any(as_int(d) == 0 for d in out.shape):
        return
    p = normalise(a, b, out, g, m, k, n, epilogue, chunk, name)
    if fits(p):
        channelwise(lo, p)
    elif fits_in_place(p):
        in_place(lo, p)
    else:
        register_tile(lo, p)
