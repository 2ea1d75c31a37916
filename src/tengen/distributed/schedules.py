"""What the processes of a pipeline do, in which order, and where the network is cut among them.

In: the number of stages, micro-batches and chunks; costs of layers. Out: each process's works in order; the layers at which parts begin.

Sources: those of `pipeline.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from tengen.base.record import NamedTuple


class Work(NamedTuple):
    """What a process does next: the forward ("f") or backward ("b") of a round's micro-batch through one of its chunks of layers."""

    kind: str
    round: int
    chunk: int


def schedule(name: str, stage: int, stages: int, rounds: int, chunks: int = 1) -> list[Work]:
    """What the process of a stage does, in order. name: "gpipe" or "1f1b". chunks: of layers that each process has; with several, chunk c of
    stage s is the part c * stages + s of the network.

    >>> [f"{w.kind}{w.round}" for w in schedule("1f1b", 1, 3, 4)]
    ['f0', 'f1', 'b0', 'f2', 'b1', 'f3', 'b2', 'b3']
    """
    if chunks == 1:
        forwards, backwards = ([Work(kind, j, 0) for j in range(rounds)] for kind in "fb")
        ahead = rounds if name == "gpipe" else stages - stage - 1
    else:  # groups of as many rounds as there are stages go through all chunks before the next group begins; the last one is filled up
        groups = [range(j, j + stages) for j in range(0, rounds, stages)]
        forwards = [Work("f", j, c) for group in groups for c in range(chunks) for j in group]
        backwards = [Work("b", j, c) for group in groups for c in reversed(range(chunks)) for j in group]
        ahead = len(forwards) if name == "gpipe" else 2 * (stages - stage - 1) + (chunks - 1) * stages
    ahead = min(ahead, len(forwards))
    found = forwards[:ahead]
    for f, b in zip(forwards[ahead:], backwards):
        found += [f, b]
    return [w for w in found + backwards[len(forwards) - ahead :] if w.round < rounds]


def balanced(costs: Sequence[float], parts: int) -> list[int]:
    """Where to cut a row of costs into parts, none empty, so that the dearest part costs least: the index at which each but the first begins.

    Errors: ValueError for fewer costs than parts, and for costs that are negative, infinite or NaN.

    >>> balanced([1, 1, 1, 5, 2, 2], 3)
    [3, 4]
    """
    n = len(costs)
    if not 1 <= parts <= n:
        raise ValueError(f"balanced: {n} layers cannot be cut into {parts} parts, none of them empty")
    if not all(0 <= c < math.inf for c in costs):
        raise ValueError(f"balanced: costs must be finite and not negative, got {list(costs)}")
    before = [0, *accumulate(costs)]
    best: list[list[tuple[float, list[int]]]] = [[(before[i], []) for i in range(n + 1)]]  # [parts - 1][layers]
    for k in range(1, parts):
        row: list[tuple[float, list[int]]] = [(float("inf"), [])] * (n + 1)
        for i in range(k + 1, n + 1):
            row[i] = min((max(best[-1][j][0], before[i] - before[j]), [*best[-1][j][1], j]) for j in range(k, i))
        best.append(row)
    return best[-1][n][1]
