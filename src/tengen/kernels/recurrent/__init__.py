"""Recurrent cells. `lstm.py`: an LSTM over a sequence, which is a loop of the program with one or two kernels for each step.

`ctc.py`: the likelihood of a labelling over all its alignments.

`gate_product.py` computes a step's matrix product and the cell's arithmetic in one kernel: the sums of all gates of a unit, or of one
gate after the other, are in registers, and lie in L1 when the cell needs them. It is chosen where the batch has more than a few rows
and the registers hold enough rows of one gate; else a step is a contraction and a pointwise kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tengen.base.lazy import modules_of

if TYPE_CHECKING:
    from tengen.kernels.recurrent import ctc, gate_product, lstm  # noqa: F401  (loads when it is named)

__getattr__ = modules_of(__name__)
