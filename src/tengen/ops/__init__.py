"""Every op, in one place each. `define.py` says how; each other file is a family.

Importing this package registers all ops.
"""

from tengen.ops import (
    activation,
    adaptive_update,
    attention,
    contract,
    conv,
    creation,
    division,
    elementwise,
    indexing,
    joining,
    keys,
    logic,
    masks,
    nn,
    ordering,
    pool,
    recurrent,
    reduce,
    rng,
    shape,
    update,
    views,
)

__all__ = [
    "activation",
    "adaptive_update",
    "attention",
    "contract",
    "conv",
    "creation",
    "division",
    "elementwise",
    "indexing",
    "joining",
    "keys",
    "logic",
    "masks",
    "nn",
    "ordering",
    "pool",
    "recurrent",
    "reduce",
    "rng",
    "shape",
    "update",
    "views",
]
