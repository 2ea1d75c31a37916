"""Clicks on advertisements, foretold as by DLRM (M. Naumov and others, arXiv 1906.00091), on synthetic data.

    tengen run -n 2 examples/clicks.py --steps 50

Rows of the categories' embeddings are shared out among the processes (`distributed.EmbeddingTable`), the dense layers are the same in all. It
prints a hash of everything that was trained, which does not depend on the number of processes.
"""

from __future__ import annotations

import argparse
import hashlib

import numpy as np

import tengen
from tengen import autodiff
from tengen import distributed as dist
from tengen import functional as F
from tengen import module as M
from tengen import optimizer as optim

CATEGORIES, NUMBERS, DIM = 6, 4, 8


class Clicks(M.Module):
    """Numbers (n, 4) and rows of categories (n, 6, 8) -> logits (n,)."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = M.Sequential(M.Linear(NUMBERS, 16), M.ReLU(), M.Linear(16, DIM), M.ReLU())
        pairs = (CATEGORIES + 1) * CATEGORIES // 2
        self.top = M.Sequential(M.Linear(DIM + pairs, 32), M.ReLU(), M.Linear(32, 1))
        rows, columns = np.tril_indices(CATEGORIES + 1, -1)
        self.places = tengen.Tensor(rows * (CATEGORIES + 1) + columns)

    def forward(self, numbers, rows):
        dense = self.bottom(numbers)
        every = F.concat([F.expand_dims(dense, 1), rows], 1)
        products = F.matmul(every, every, transpose_b=True).reshape(len(numbers), -1)
        return self.top(F.concat([dense, products[:, self.places]], 1)).reshape(-1)


def batch(step: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers, keys of categories, and whether there was a click, which follows from some of the keys."""
    rng = np.random.default_rng(step)
    numbers = rng.standard_normal((size, NUMBERS)).astype(np.float32)
    keys = (rng.zipf(1.3, (size, CATEGORIES)) % 100_000) * CATEGORIES + np.arange(CATEGORIES)
    tastes = np.sin(keys * 12.9898).sum(1) + numbers[:, 0]
    return numbers, keys.astype(np.int64), (tastes > 0).astype(np.float32)


def train(steps: int, size: int, optimizer: str = "adagrad", checkpoint: str | None = None) -> tuple[str, float, int]:
    """(Hash of what was trained, the last loss, rows that this process owns)."""
    tengen.random.seed(0)
    net = dist.DataParallel(Clicks(), micro_batches=4)
    table = dist.EmbeddingTable(DIM, optimizer, lr=0.05)
    gm, opt = autodiff.GradManager().attach(net.parameters()), optim.Adam(net.parameters(), lr=0.01)
    loss = 0.0
    for step in range(steps):
        for numbers, keys, clicked in table.micro_batches(net, *batch(step, size), keys=1):
            with gm:
                found = F.nn.binary_cross_entropy(net(tengen.Tensor(numbers), table(keys)), tengen.Tensor(clicked))
                gm.backward(found)
            loss = found.item()
        opt.step().clear_grad()
        table.step()
    if checkpoint is not None:
        dist.save_checkpoint(checkpoint, net=net, opt=opt, table=table)
    digest = hashlib.blake2b(digest_size=8)
    for a in (*net.state_dict().values(), *table.state_dict().values()):
        digest.update(np.ascontiguousarray(a).tobytes())
    return digest.hexdigest(), loss, table.rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--optimizer", choices=["adagrad", "adam", "sgd"], default="adagrad")
    parser.add_argument("--checkpoint", help="a folder to write")
    given = parser.parse_args()
    hashed, last, owned = train(given.steps, given.batch, given.optimizer, given.checkpoint)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: loss {last:.4f}, {owned} rows here, trained {hashed}", flush=True)
