"""A tensor as a table for notebooks: its type, and its numbers with colour for their size."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tengen.tensor.tensor import Tensor

EDGE = 5  # rows and columns that are shown from each end
MOST = 2 * EDGE + 1  # of a matrix that is shown whole


def table(t: Tensor, values: np.ndarray) -> str:
    """The tensor's type, and a table of its last two axes; of the axes before those, the first element.

    Colour: red for positive and blue for negative numbers, the stronger the larger, relative to the largest finite one that is shown.
    Complex numbers have none.
    """
    head = f"<code>{html.escape(type(t).__name__)} {html.escape(repr(t._layout.type))}</code>"
    if not values.size:
        return f"<div>{head} no elements</div>"
    lead = max(values.ndim - 2, 0)
    shown = np.atleast_2d(values[(0,) * lead])
    where = f" [{', '.join(['0'] * lead)}, :, :]" if lead else ""
    rows, columns = _few(shown.shape[0]), _few(shown.shape[1])
    picked = shown[np.ix_([r for r in rows if r is not None], [c for c in columns if c is not None])]
    size = np.abs(picked if np.iscomplexobj(picked) else picked.astype(np.float64))
    largest = float(np.max(size, where=np.isfinite(size), initial=0.0)) or 1.0
    lines = ["".join(_cell(None if r is None or c is None else shown[r, c], largest) for c in columns) for r in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div>{head}{where}<table style="border-collapse:collapse;font-family:monospace">{body}</table></div>'


def _few(n: int) -> list[int | None]:
    """The positions that are shown of n; None for what is left out."""
    return list(range(n)) if n <= MOST else [*range(EDGE), None, *range(n - EDGE, n)]


def _cell(v: np.generic | None, largest: float) -> str:
    if v is None:
        return "<td>&hellip;</td>"
    if np.iscomplexobj(v):
        return f'<td style="padding:1px 6px;text-align:right">{v:.4g}</td>'
    x = float(v)
    strength = 0.0 if np.isnan(x) else min(abs(x) / largest, 1.0)
    colour = "255,200,0" if np.isnan(x) else "200,60,50" if x > 0 else "50,90,200"
    alpha = 0.6 if np.isnan(x) else 0.55 * strength
    text = f"{x:.4g}" if v.dtype.kind not in "iub" else str(v)
    return f'<td style="padding:1px 6px;text-align:right;background:rgba({colour},{alpha:.2f})">{text}</td>'
