"""The sizes of Winograd's tiles: how many image tiles a piece has, and how many rows and vectors the register tiles that multiply them.

In: a problem's channels and tiles, as far as they are known, and the target. Out: a schedule, and what follows from it. None of it
changes a bit.
"""

from __future__ import annotations

from typing import ClassVar

from tengen.base.record import record
from tengen.kernels.machine import Machine, machine, registers_of, too_large
from tengen.kernels.schedule import Schedule, outside
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Index, as_int, cdiv, maximum, minimum

MOST_IMAGE_BYTES = 992 << 10  # bytes of a piece's transformed tiles: a kernel may have 1 MiB, and needs some rows beside them
MOST_PRODUCT_ROWS = 12  # rows of a register tile, at most: some registers stay free for what the compiler keeps in them
MOST_PIECE_TILES = 16  # tiles of a piece, by rule
UNROLLED_CHANNELS = 4  # channels in the body of the loop over c, by rule, where numbers of channels and of image tiles are known
OPEN_PRODUCT_ROWS = 8  # rows of a register tile, at most, where they are not


@record(frozen=True)
class Winograd(Schedule, kind="winograd"):
    """rows, vectors: the register tile has `rows` image tiles by `vectors` vectors of LANES output channels. high: register
    tiles of a piece, one below the other. panels: panels of the filter of a piece; 0: by rule. unroll: channels in a loop's
    body."""

    rows: int
    vectors: int
    high: int
    panels: int = 0
    unroll: int = 1

    steps: ClassVar = {
        "unroll": (1, 2, 4), "rows": tuple(range(1, MOST_PRODUCT_ROWS + 1)), "vectors": (1, 2, 3, 4), "high": (1, 2, 3, 4, 6),
        "panels": (0, 1, 2, 4, 8, 16),
    }  # fmt: skip


@record(frozen=True)
class Blocks:
    """Sizes that follow from a schedule.

    Attributes:
        schedule: what was chosen. pitch: elements from one image tile to the next in scratch memory. room: elements of a point of
            `image`, which decide how many tiles a piece has where `pitch` is open.
    """

    schedule: Winograd
    pitch: Index
    room: int

    @property
    def rows(self) -> int:
        """Image tiles of the register tile."""
        return self.schedule.rows

    @property
    def vectors(self) -> int:
        """Vectors of output channels of the register tile."""
        return self.schedule.vectors

    @property
    def most_tiles(self) -> int:
        """Image tiles of a piece, at most."""
        return self.schedule.rows * self.schedule.high

    def heights(self, tiles: int) -> tuple[int, int, int]:
        """(rows of the higher register tiles, of the lower ones, how many there are in a piece), where all blocks have about as many of so
        many image tiles, and so have their register tiles."""
        blocks = -(-tiles // self.most_tiles)
        most, least = -(-tiles // blocks), tiles // blocks
        parts = -(-most // self.rows)
        return -(-most // parts), least // parts, parts

    @property
    def tiles(self) -> Index:
        """Image tiles of a piece, at most."""
        if as_int(self.pitch) is not None:
            return self.most_tiles
        return minimum(maximum(as_expr((self.room - LANES) // self.pitch), 1), self.most_tiles)

    @property
    def columns(self) -> int:
        """Output channels of a panel of the packed filter."""
        return self.vectors * LANES

    @property
    def image(self) -> Index:
        """Elements from one point to the next in `image`: no multiple of a large power of two, or all points fell into one
        cache set."""
        return self.tiles * self.pitch + LANES

    @property
    def products(self) -> int:
        """Elements from one point to the next in `products`."""
        return self.most_tiles * self.columns + LANES


def rule(points: int, c: int | None, o: int | None, tiles: int | None, size: int, target: Machine | None) -> Winograd:
    """The schedule for C and O channels and so many image tiles, as far as they are known, and elements of `size` bytes."""
    _, registers, _ = machine(target)
    each = registers_of(size, target)
    vectors = 1 if each > 1 or (o is not None and o <= LANES) else 2
    most = max(1, min(MOST_PRODUCT_ROWS, (registers - vectors * each - 1) // (vectors * each)))
    if c is None:
        return Winograd(min(most, OPEN_PRODUCT_ROWS), vectors, 1)
    room = max(1, MOST_IMAGE_BYTES // (size * points * points * (pitch_of(c) + vectors * LANES)))
    if tiles is None or o is None:  # a little code: numbers that are met often get a program of their own
        n = min(room, MOST_PIECE_TILES)
        rows = _rows(n, min(most, OPEN_PRODUCT_ROWS))
        return Winograd(rows, vectors, -(-n // rows))
    n = min(range(1, max(1, min(room, MOST_PIECE_TILES, tiles)) + 1), key=lambda n: _cost(n, tiles))
    rows = _rows(n, most)
    return Winograd(rows, vectors, -(-n // rows), unroll=UNROLLED_CHANNELS)


def pitch_of(c: Index) -> Index:
    return cdiv(c, LANES) * LANES + LANES


def fits(s: Winograd, points: int, c: int | None, size: int, target: Machine | None) -> str:
    """Why C channels (None: an open number of them) cannot have the schedule on this target; empty if they can."""
    why = outside(s, rows=(1, MOST_PRODUCT_ROWS), vectors=(1, 4), high=(1, 64), panels=(0, 1 << 12), unroll=(1, 4))
    if why := why or too_large(s.rows, s.vectors, size, target):
        return why
    tiles = s.rows * s.high
    scratch = 0 if c is None else size * points * points * tiles * ((as_int(pitch_of(c)) or 0) + s.vectors * LANES)
    if tiles > 1 and scratch > MOST_IMAGE_BYTES:
        return f"{tiles} image tiles need {scratch} bytes of scratch memory, more than {MOST_IMAGE_BYTES}"
    return ""


def _rows(tiles: int, most: int) -> int:
    return -(-tiles // -(-tiles // most))


def _cost(n: int, tiles: int) -> int:
    """The cost of blocks of n tiles: the rows of the largest, where reading the filter for a block counts as two more."""
    blocks = -(-tiles // n)
    return blocks * (-(-tiles // blocks) + 2)
