"""Products: out[g, m, n] = the sum over k of a[g, m, k] * b[g, k, n]. Below convolutions, attention and recurrent cells.

Read `contract.py` (the entry, and the choice of a strategy), `problem.py` (axes by role), `chunks.py` (the order of the sum:
part of the contract on bits), then `register_tile.py` with `plans.py` (which operand is packed by whom), `tile.py` (sizes),
`sharing.py` (pieces), `packing.py` and `prefetch.py`. `operands.py` says how operands lie in memory.

Which strategy `contract` takes, the first that fits:

- by chunks (`contract.by_chunks`): few results of a long sum, whose chunks are shared among threads.
- `register_tile.py`: whatever has a border, a prologue, pairs of bfloat16 or zeros to store.
- `channelwise.py`: no columns, and groups that are dense: groups in the lanes.
- `transposed_operand.py`: one column, or few rows, and a matrix that is dense along k: squares are transposed in registers.
- `unpacked.py`: one column, or few rows times a matrix that is dense along n: nothing is packed.
- `register_tile.py`: everything else.

`halves.py` multiplies columns that need half of a vector. `formats.py` says how terms are stored and which operation multiplies
them. `border.py` packs windows that reach over the border of an image, `groups.py` packs two or four terms into 32 bits,
`matching.py` weights of 8 bits in pairs whose products fit in int16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tengen.base.lazy import modules_of

if TYPE_CHECKING:
    from tengen.kernels.contraction import (  # noqa: F401  (loads when it is named)
        border,
        channelwise,
        chunks,
        contract,
        formats,
        grouped_integers,
        grouped_weights,
        groups,
        halves,
        matching,
        operands,
        packing,
        plans,
        prefetch,
        problem,
        register_tile,
        sharing,
        tile,
        transposed_operand,
        unpacked,
    )

__getattr__ = modules_of(__name__)
