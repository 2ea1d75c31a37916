"""Every op, in one place each. `define.py` says how; each file that is imported here is a family.

Importing this package registers all ops.
"""

from tengen.ops import (
    activation,
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
