"""Handwritten digits, trained by any number of processes, with the same bits.

    python examples/data_parallel.py                             # one process
    tengen run -n 2 examples/data_parallel.py                    # two: the last line says the same hash
    tengen run --elastic 1:3 examples/data_parallel.py --checkpoint run.tgc      # goes on with those that are left

Needs scikit-learn for the data (`pip install 'tengen[dist,examples]'`).
"""

from __future__ import annotations

import argparse
import hashlib

import numpy as np
from sklearn.datasets import load_digits

import tengen
from tengen import distributed as dist
from tengen import functional as F
from tengen import module as M
from tengen import optimizer as optim
from tengen.autodiff import GradManager


def main() -> None:
    """Trains, and prints the accuracy on digits that were not trained on, and a hash of all parameters."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=100, help="samples of a step, over all processes")
    parser.add_argument("--micro-batches", type=int, default=4, help="parts of a batch; they decide the bits")
    parser.add_argument("--checkpoint", help="a folder that is written after each epoch, and that a run goes on from")
    args = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    x, y = (images / 16).reshape(-1, 1, 8, 8).astype(np.float32), labels.astype(np.int32)
    train, test = slice(0, 1500), slice(1500, None)

    tengen.random.seed(0)
    net = M.Sequential(
        M.Conv2d(1, 16, 3, padding=1), M.BatchNorm2d(16), M.ReLU(), M.MaxPool2d(2), M.Flatten(), M.Dropout(0.2), M.Linear(16 * 16, 10),
    )  # fmt: skip
    net = dist.DataParallel(net, micro_batches=args.micro_batches)
    opt = dist.shard(net, optim.Adam(net.parameters(), lr=3e-3))
    gm = GradManager().attach(net.parameters())
    first = 0
    if args.checkpoint and dist.has_checkpoint(args.checkpoint):
        first = dist.load_checkpoint(args.checkpoint, net=net, opt=opt)["epochs"]

    @tengen.trace
    def gradients(xb, yb):
        with gm:
            loss = F.nn.cross_entropy(net(xb), yb)
            gm.backward(loss)
        return loss

    for epoch in range(first, args.epochs):
        net.train()
        order = np.random.default_rng(epoch).permutation(train.stop)  # the same in all processes
        for start in range(0, train.stop, args.batch):
            batch = order[start : start + args.batch]
            for xb, yb in net.micro_batches(tengen.Tensor(x[batch]), tengen.Tensor(y[batch])):
                gradients(xb, yb)
            opt.step().clear_grad()
        if args.checkpoint:
            dist.save_checkpoint(args.checkpoint, net=net, opt=opt, epochs=epoch + 1)
        net.eval()
        right = (net(tengen.Tensor(x[test])).numpy().argmax(1) == y[test]).mean()
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1}: {right:.3f} right", flush=True)
    if dist.get_rank() == 0:
        said = hashlib.sha256(b"".join(t.numpy().tobytes() for t in (*net.parameters(), *net.buffers()))).hexdigest()
        print(f"{dist.get_world_size()} processes, parameters {said[:16]}", flush=True)


if __name__ == "__main__":
    main()
