"""A training run that may be killed, and goes on from its last checkpoint: what `test_resume.py` starts, again and again. It imports no more
than the run needs.

    killed_run.py FOLDER [MOMENT STEP]          it kills itself at a moment of a step
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sys
from pathlib import Path

import numpy as np

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, amp, data, optimizer
from tengen.autodiff import GradManager
from tengen.base import files

EPOCHS, SAMPLES, BATCH = 3, 23, 5
STEPS = EPOCHS * -(-SAMPLES // BATCH)


# ---- the run ---------------------------------------------------------------------------------------------------------


class Images(data.Dataset):
    """Images that are augmented, by the worker that reads them."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, i):
        rng = data.rng()
        image = np.random.RandomState(i).normal(size=(8, 8)) + 0.1 * rng.normal(size=(8, 8))
        return i, (image[:, ::-1] if rng.random() < 0.5 else image).astype(np.float32).ravel(), i % 4


class Run:
    """All that a run has a state of."""

    def __init__(self, seed: int = 1):
        np.random.seed(seed)
        random.seed(seed)
        tengen.random.seed(seed)
        self.net = M.Sequential(M.Linear(64, 16), M.BatchNorm1d(16), M.ReLU(), M.Dropout(0.5), M.Linear(16, 4))
        self.opt = optimizer.Adam(optimizer.decay_groups(self.net, 0.01), lr=0.01)
        warm, then = optimizer.LinearLR(self.opt, 0.25, total_iters=4), optimizer.CosineAnnealingLR(self.opt, 9)
        self.schedule = optimizer.SequentialLR(self.opt, [warm, then], [4])
        self.scaler = amp.GradScaler(1024.0, growth_interval=3)
        self.loader = data.DataLoader(Images(), batch_size=BATCH, shuffle=True, num_workers=2)
        self.gm = GradManager().attach(self.net.parameters())
        self.step = tengen.trace(self._step)

    def _step(self, x, y):
        with self.gm:
            loss = F.cross_entropy(self.net(x), y)
            self.scaler.backward(self.gm, loss)
        self.opt.step().clear_grad()
        return loss

    def parts(self):
        return {name: getattr(self, name) for name in ("net", "opt", "schedule", "scaler", "loader")}

    def train(self, path, before=lambda step: None):
        """The numbers of the samples in order, and the losses. before: is called before each step is saved."""
        seen, losses, first = [], [], 0
        if path.exists():
            found = tengen.load_checkpoint(path, **self.parts())
            seen, losses, first = found["seen"], found["losses"], found["epoch"]
        for epoch in range(first, EPOCHS):
            for indices, x, y in self.loader:
                x = x + np.float32(np.random.normal() + random.random())  # what users do beside the loader
                losses.append(self.step(Tensor(x), Tensor(y)).item())
                self.schedule.step()
                seen += indices.tolist()
                before(len(losses))
                ballast = np.full(1 << 18, len(losses))  # so that writing takes a while
                tengen.save_checkpoint(path, **self.parts(), seen=seen, losses=losses, epoch=epoch, ballast=ballast)
        return seen, losses

    def digest(self):
        h = hashlib.sha256()
        for states in (self.net.state_dict(), *self.opt.state_dict()["state"].values()):
            for name, a in states.items():
                h.update(f"{name} {a.dtype} {a.shape} ".encode() + a.tobytes())
        h.update(repr([g["lr"] for g in self.opt.param_groups] + [self.scaler.state_dict()]).encode())
        h.update(tengen.random.get_state().tobytes() + repr([np.random.random(), random.random()]).encode())
        return h.hexdigest()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def dies(moment: str):
    """From now on the process kills itself at a moment of saving."""
    write, replace = files.Counted.write, os.replace
    if moment == "before":
        die()
    if moment == "writing":
        files.Counted.write = lambda self, b: die() if self.bytes > 1 << 20 else write(self, b)
    if moment == "replacing":
        os.replace = lambda *a, **k: die()
    if moment == "replaced":
        os.replace = lambda *a, **k: (replace(*a, **k), die())


def main(folder: str, moment: str = "", at: str = "0") -> None:
    def before(step: int) -> None:
        print(step, flush=True)
        if step == int(at):
            dies(moment)

    run = Run()
    seen, losses = run.train(Path(folder, "run.tgc"), before)
    print("done", run.digest(), repr((seen, losses)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
