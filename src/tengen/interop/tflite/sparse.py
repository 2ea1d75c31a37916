"""Sparse arrays of TFLite made dense (the format of TACO: dimensions in some order, blocks, each dense or compressed)."""

from __future__ import annotations

from math import prod

import numpy as np

from tengen.base.errors import FileFormatError
from tengen.interop.tflite.flat import Record

DENSE, COMPRESSED = 0, 1


def densified(s: Record, data: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, what: str, most: int) -> np.ndarray:
    """The array of a shape whose stored elements are `data`. most: bytes that the places of elements may take meanwhile.

    Errors: FileFormatError where dimensions, segments and indices do not fit.
    """
    order, blocks = [int(d) for d in s["TraversalOrder"]], [int(d) for d in s["BlockMap"]]
    levels, rank = s["DimMetadata"], len(shape)
    if sorted(order) != list(range(rank + len(blocks))) or len(levels) != len(order) or any(not 0 <= b < rank for b in blocks):
        raise FileFormatError(f"{what} of {rank} dimensions stores them in the order {order} with the blocks {blocks}")
    if data.size % dtype.itemsize:
        raise FileFormatError(f"{what} has {data.size} bytes of {dtype}")
    values = np.frombuffer(data, dtype) if data.size else np.empty(0, dtype)
    # the extent of each dimension of the traversal: a block's is what its level says, which divides the one that it is of
    sides = {rank + i: levels[order.index(rank + i)]["DenseSize"] for i in range(len(blocks))}
    extents = list(shape)
    for i, b in enumerate(blocks):
        side = sides[rank + i]
        if side <= 0 or extents[b] % side:
            raise FileFormatError(f"{what} of shape {shape} has blocks of {side}")
        extents[b] //= side
    extents += [sides[rank + i] for i in range(len(blocks))]
    places = np.zeros(1, np.int64)  # of what is stored up to a level, in the dense array of the traversal
    for d, level in zip(order, levels):
        extent = extents[d]
        if level["Format"] == DENSE:
            if level["DenseSize"] != extent or len(places) * extent > max(prod(shape), 1):
                raise FileFormatError(f"{what}: a dimension of {extent} is stored as one of {level['DenseSize']}")
            if len(places) * extent * 16 > most:
                raise FileFormatError(f"{what} of shape {shape} has more places than {most:,} bytes hold")
            places = (places[:, None] * extent + np.arange(extent)).reshape(-1)
        elif level["Format"] == COMPRESSED:
            places = compressed(level, places, extent, what)
        else:
            raise FileFormatError(f"{what} has a dimension of the unknown format {level['Format']}")
    if len(places) != len(values):
        raise FileFormatError(f"{what} stores {len(values)} elements at {len(places)} places")
    found = np.zeros(prod(shape), dtype)
    found[places] = values
    found = found.reshape([extents[d] for d in order]).transpose(np.argsort(order))
    axes = [a for d in range(rank) for a in (d, *(rank + i for i, b in enumerate(blocks) if b == d))]
    return np.ascontiguousarray(found.transpose(axes)).reshape(shape)


def compressed(level: Record, places: np.ndarray, extent: int, what: str) -> np.ndarray:
    """The places one level on, where each slice stores some of its entries: segments say how many, indices which."""
    ends, at = (
        np.zeros(0, np.int64) if v is None else np.asarray(v["Values"], np.int64)
        for v in (level["ArraySegments"], level["ArrayIndices"])
    )
    fits = len(ends) == len(places) + 1 and ends[0] == 0 and ends[-1] == len(at) and (np.diff(ends) >= 0).all()
    if not fits or (len(at) and not 0 <= at.min() <= at.max() < extent):
        raise FileFormatError(f"{what}: {len(ends)} segments and {len(at)} indices do not fit {len(places)} slices of {extent}")
    return np.repeat(places, np.diff(ends)) * extent + at
