"""Eager programs serve all sizes: how many are made in a sweep over extents, of the calls that networks are made of.

Only programs are counted: they are lowered, and no code is made of them.
"""

import numpy as np
import pytest
from counted import counted_programs

import tengen
import tengen.functional as F
from tengen import Tensor
from tengen.autodiff import vjp


@pytest.fixture
def programs(monkeypatch):
    """The programs that are made."""
    yield from counted_programs(monkeypatch)


def z(*shape, dtype="float32"):
    return Tensor(np.zeros(shape, dtype))


def ids(*shape):
    return z(*shape, dtype="int32")


CALLS = {
    "add": lambda n, m: z(n, m) + z(n, m),
    "add a row": lambda n, m: z(n, m) + z(m),
    "add a column": lambda n, m: z(n, m) + z(n, 1),
    "where": lambda n, m: F.where(z(n, m) > 0, z(n, m), 1.0),
    "gelu": lambda n, m: F.gelu(z(n, m)),
    "sum": lambda n, m: z(n, m).sum(),
    "sum of columns": lambda n, m: z(n, m).sum(0),
    "max of rows": lambda n, m: z(n, m).max(1),
    "var": lambda n, m: z(n, m).var(1),
    "argmax": lambda n, m: F.argmax(z(n, m), 1),
    "softmax": lambda n, m: F.softmax(z(n, m), 1),
    "logsumexp": lambda n, m: F.logsumexp(z(n, m), 1),
    "cumsum": lambda n, m: F.cumsum(z(n, m), 1),
    "norm": lambda n, m: F.norm(z(n, m), axis=1),
    "matmul": lambda n, m: F.matmul(z(n, m), z(m, 16)),
    "linear": lambda n, m: F.linear(z(n, m, 24), z(16, 24), z(16)),
    "batched products": lambda n, m: F.matmul(z(n, m, 8), z(n, 8, m)),
    "gradient of a product": lambda n, m: F.matmul(z(m, n).T, z(m, n)),
    "einsum": lambda n, m: F.einsum("nm,mk->nk", z(n, m), z(m, 16)),
    "attention": lambda n, m: F.scaled_dot_product_attention(z(n, 2, m, 24), z(n, 2, m, 24), z(n, 2, m, 24), None, "lower_right"),
    "conv2d": lambda n, m: F.conv2d(z(n, 6, m, m), z(8, 6, 3, 3), z(1, 8, 1, 1), padding=1),
    "strided conv2d": lambda n, m: F.conv2d(z(n, 6, m, m), z(8, 6, 3, 3), None, stride=2),
    "max_pool2d": lambda n, m: F.max_pool2d(z(n, 6, m, m), 2),
    "avg_pool2d": lambda n, m: F.avg_pool2d(z(n, 6, m, m), 2),
    "global average": lambda n, m: F.adaptive_avg_pool2d(z(n, 6, m, m), 1),
    "large windows": lambda n, m: F.max_pool2d(z(n, 6, 3 * m, 2 * m), m),
    "gradient of large windows": lambda n, m: vjp(lambda x: F.avg_pool2d(x, m), z(n, 6, 3 * m, 2 * m))[1](z(n, 6, 3, 2)),
    "layer_norm": lambda n, m: F.layer_norm(z(n, m, 24), (24,), True, z(24), z(24)),
    "batch_norm": lambda n, m: F.batch_norm(z(n, 6, m, m), *(z(1, 6, 1, 1) for _ in range(4)), training=True),
    "cross_entropy": lambda n, m: F.loss.cross_entropy(z(n, m), ids(n)),
    "square_loss": lambda n, m: F.loss.square_loss(z(n, m), z(n, m)),
    "embedding": lambda n, m: F.embedding(ids(n, m), z(50, 24)),
    "gather": lambda n, m: F.gather(z(n, m), 1, ids(n, m)),
    "one_hot": lambda n, m: F.one_hot(ids(n, 2), m),
    "pad": lambda n, m: F.pad(z(n, m), ((n % 5 + 4, 0), (0, m % 7 + 11))),
    "a filter of each channel": lambda n, m: F.conv2d(z(n, m, 70, 70), z(m, 1, 1, 3, 3), z(1, m, 1, 1), padding=1, groups=m),
    "index": lambda n, m: z(n, m)[ids(m)],
    "slice": lambda n, m: z(n, m)[1:, :-1] + 0,
    "transpose": lambda n, m: z(n, m, 4).transpose(1, 0, 2) + 0,
    "reshape": lambda n, m: z(n, m).T.reshape(-1),
    "concat": lambda n, m: F.concat([z(n, m), z(n, m)], 1),
    "stack": lambda n, m: F.stack([z(n, m), z(n, m)]),
    "split": lambda n, m: [y + 0 for y in F.split(z(n, 2 * m), 2, 1)],
    "flip": lambda n, m: F.flip(z(n, m), 0),
    "tril": lambda n, m: F.tril(z(m, m)),
    "full": lambda n, m: F.full((n, m), 2.0),
    "arange": lambda n, m: F.arange(n),
    "linspace": lambda n, m: F.linspace(0, 1, n),
    "eye": lambda n, m: F.eye(n),
    "uniform": lambda n, m: tengen.random.uniform(size=(n, m)),
    "dropout": lambda n, m: F.dropout(z(n, m), 0.5, True),
    "setitem": lambda n, m: z(n, m).__setitem__(slice(1, 3), 1.0),
}
SIZES = [(33, 40), (34, 41), (50, 64), (64, 50), (45, 45), (37, 24), (8, 35), (12, 16), (6, 10), (3, 90)]


def test_ten_sizes_make_no_more_programs_than_one(programs):
    more = {}
    for name, call in CALLS.items():
        counts = []
        for n, m in SIZES:
            before = len(programs)
            call(n, m)
            counts.append(len(programs) - before)
        if any(counts[1:]):
            more[name] = counts
    assert not more
    assert len(programs) <= 1.5 * len(CALLS)


def test_extents_that_are_equal_by_chance_come_first(programs):
    """Two programs at most: one in which they are one extent, and one that serves all others."""
    for n, m in ((16, 16), (16, 20), (20, 16), (20, 20), (24, 30)):
        F.softmax(z(n, m), 1)
    assert len(programs) == 2
