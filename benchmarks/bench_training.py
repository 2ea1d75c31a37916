"""Training steps with SGD and momentum at batch 64: LeNet, and an MLP 784-512-512-10. And what compiling the traced step costs.

Tengen and PyTorch start from the same weights and are compared after three steps, before they are timed; so are eager and
traced, as bits. A step is forward, backward, update and clearing the gradients, on a batch that is a tensor already.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import compare
import numpy as np
from compare import Case, Goal, Row

import tengen
import tengen.functional as F
import tengen.module as M
from tengen.autodiff import GradManager
from tengen.optimizer import SGD

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from lenet import LeNet  # noqa: E402

torch = compare.peer("torch")
BATCH, RATE, MOMENTUM = 64, 0.01, 0.9
SHAPES = {"LeNet": (BATCH, 1, 32, 32), "MLP": (BATCH, 784)}
# Multiply-adds of each layer for one image, in order. A step does each three times (output, gradients of input and weights),
# but the first twice.
LAYERS = {
    "LeNet": [28 * 28 * 6 * 25, 10 * 10 * 16 * 150, 400 * 120, 120 * 84, 84 * 10],
    "MLP": [784 * 512, 512 * 512, 512 * 10],
}


def network(name: str) -> M.Module:
    """Tengen's network."""
    if name == "LeNet":
        return LeNet()
    return M.Sequential(M.Linear(784, 512), M.ReLU(), M.Linear(512, 512), M.ReLU(), M.Linear(512, 10))


def example(name: str) -> tuple[np.ndarray, np.ndarray]:
    """A batch of noise with labels."""
    rng = np.random.default_rng(0)
    return rng.standard_normal(SHAPES[name], np.float32), rng.integers(0, 10, BATCH).astype(np.int32)


class Trainer:
    """Tengen's side: `step()` trains once and returns the loss."""

    def __init__(self, name: str, traced: bool):
        tengen.random.seed(1)
        self.net = network(name)
        opt = SGD(self.net.parameters(), lr=RATE, momentum=MOMENTUM)
        gm = GradManager().attach(self.net.parameters())

        def train(data, label):
            with gm:
                loss = F.loss.cross_entropy(self.net(data), label)
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        run = tengen.trace(train, symbolic=True) if traced else train
        data, label = (tengen.Tensor(a) for a in example(name))
        self.step = lambda: run(data, label)

    def weights(self) -> dict[str, np.ndarray]:
        """The parameters' values by name."""
        return {k: np.array(p.numpy()) for k, p in self.net.named_parameters()}


def torch_network(name: str):
    """PyTorch's network, its parameters in the order of Tengen's names."""
    n = torch.nn
    if name == "MLP":
        return n.Sequential(n.Linear(784, 512), n.ReLU(), n.Linear(512, 512), n.ReLU(), n.Linear(512, 10))
    return n.Sequential(
        n.Conv2d(1, 6, 5), n.ReLU(), n.MaxPool2d(2, 2), n.Conv2d(6, 16, 5), n.ReLU(), n.MaxPool2d(2, 2), n.Flatten(),
        n.Linear(400, 120), n.ReLU(), n.Linear(120, 84), n.ReLU(), n.Linear(84, 10),
    )  # fmt: skip


ORDER = {
    "LeNet": ["conv1", "conv2", "fc1", "fc2", "classifier"],
    "MLP": ["0", "2", "4"],
}


class TorchTrainer:
    """PyTorch's side, from the same weights. `fused`: its fused optimizer; otherwise what SGD chooses by itself."""

    def __init__(self, name: str, weights: dict[str, np.ndarray], fused: bool):
        self.names = [f"{layer}.{kind}" for layer in ORDER[name] for kind in ("weight", "bias")]
        self.net = torch_network(name)
        with torch.no_grad():
            for p, k in zip(self.net.parameters(), self.names, strict=True):
                p.copy_(torch.from_numpy(weights[k]).reshape(p.shape))
        opt = torch.optim.SGD(self.net.parameters(), lr=RATE, momentum=MOMENTUM, fused=fused or None)
        data, label = (torch.from_numpy(a) for a in example(name))
        label = label.long()

        def step():
            loss = torch.nn.functional.cross_entropy(self.net(data), label)
            loss.backward()
            opt.step()
            opt.zero_grad(set_to_none=True)
            return loss

        self.step = step

    def weights(self) -> dict[str, np.ndarray]:
        """The parameters' values by Tengen's name."""
        return {k: p.detach().numpy().copy() for k, p in zip(self.names, self.net.parameters())}


class MegEngineTrainer:
    """MegEngine's side: `megengine_peer.py` in a process of the Python that MEGENGINE_PYTHON names."""

    def __init__(self, name: str, weights: dict[str, np.ndarray], traced: bool):
        here = str(Path(__file__).parent / "megengine_peer.py")
        command = [os.environ["MEGENGINE_PYTHON"], here, str(compare.THREADS)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        data, label = example(name)
        with tempfile.TemporaryDirectory() as folder:
            np.savez(f"{folder}/start.npz", images=data, labels=label, **weights)
            self._ask({"make": [name, traced, f"{folder}/start.npz", RATE, MOMENTUM]})

    def _ask(self, request: dict) -> float:
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        self.process.send_signal(signal.SIGSTOP)  # its threads must not disturb the others' turns
        return answer

    def step(self) -> np.float32:
        """Trains once; the way to the other process and back is part of it (about 0.1 ms)."""
        return np.float32(self._ask({"steps": 1}))

    def __del__(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def megengine(name: str, weights: dict[str, np.ndarray], traced: bool) -> dict[str, MegEngineTrainer]:
    """MegEngine as a contender where there is one; by the clock only, since its processor time is another process's."""
    if "MEGENGINE_PYTHON" not in os.environ:
        print("skipped: MegEngine; set MEGENGINE_PYTHON to a Python 3.10 that has it", flush=True)
        return {}
    return {"MegEngine": MegEngineTrainer(name, weights, traced)} if compare.THREADS > 1 else {}


def training(name: str, traced: bool, goal: Goal) -> Case:
    """One network, eager or traced, beside PyTorch in eager mode and MegEngine in the same mode."""
    mine, reference = Trainer(name, traced), Trainer(name, False)
    start = mine.weights()
    others = {}
    if torch:
        others = {"torch": TorchTrainer(name, start, False), "torch, fused SGD": TorchTrainer(name, start, True)}
    mge = megengine(name, start, traced)

    def check() -> None:
        for _ in range(3):
            loss, same = mine.step(), reference.step()
            assert loss.numpy().tobytes() == same.numpy().tobytes(), "eager and traced losses differ in their bits"
            for who, t in others.items():
                theirs = t.step().item()
                assert abs(loss.item() - theirs) < 1e-4 * abs(theirs), f"loss {loss.item()}, {who} has {theirs}"
            for who, m in mge.items():
                theirs = float(m.step())
                assert abs(loss.item() - theirs) < 1e-3 * abs(theirs), f"loss {loss.item()}, {who} has {theirs}"
        after = mine.weights()
        for k, w in reference.weights().items():
            assert w.tobytes() == after[k].tobytes(), f"eager and traced {k} differ in their bits"
        for who, t in others.items():
            for k, w in t.weights().items():
                step = np.abs(w.reshape(-1) - start[k].reshape(-1)).max()
                worst = np.abs(w.reshape(-1) - after[k].reshape(-1)).max()
                assert worst <= 1e-3 * step + 1e-7, f"{k} differs from {who}'s by {worst:.3g} after moving by {step:.3g}"

    contenders = {"tengen": mine.step} | {who: t.step for who, t in (others | mge).items()}
    work = 2.0 * BATCH * (3 * sum(LAYERS[name]) - LAYERS[name][0])
    return Case(f"{name}, {'traced' if traced else 'eager'} step", contenders, goal, work, check=check)


CASES = [
    partial(training, "LeNet", False, Goal(1.0)),
    partial(training, "LeNet", True, Goal(0.5)),
    partial(training, "MLP", False, Goal(1.0)),
    partial(training, "MLP", True, Goal(1 / 1.3)),
]

# ---- compiling -------------------------------------------------------------------------------------------------------------

COLD = """
import sys
sys.path.insert(0, {here!r})
import bench_training as b
from tengen.runtime import compile as compiler
t = b.Trainer({name!r}, True)
made, before = b.compare.clock(), compiler.compilations
t.step().numpy()
done, first = b.compare.clock(), compiler.compilations - before
t.step().numpy()
print(done - made, first, compiler.compilations)
"""


def first_step(name: str, cache: str, bytecode: str) -> tuple[float, int, int]:
    """(seconds of the first traced step, modules compiled for it, and by the whole process), in a fresh process."""
    code = COLD.format(here=str(Path(__file__).parent), name=name)
    env = {**os.environ, "TENGEN_CACHE_DIR": cache, "PYTHONPYCACHEPREFIX": bytecode}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True, check=True)
    seconds, first, total = done.stdout.split()[-3:]
    return float(seconds), int(first), int(total)


def compiling(name: str, rounds: int) -> list[Row]:
    """The first call of the traced step with an empty cache, and with a warm one."""
    cold, warm, counts = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        first_step(name, f"{folder}/throw-away", f"{folder}/bytecode")
        for r in range(rounds):
            seconds, modules, _ = first_step(name, f"{folder}/kernels{r}", f"{folder}/bytecode")
            cold.append(seconds)
            seconds, _, again = first_step(name, f"{folder}/kernels{r}", f"{folder}/bytecode")
            warm.append(seconds)
            counts.append(again)
    rows = []
    for what, times, most in (("an empty cache", cold, 2.0), ("a warm cache", warm, None)):
        low, mid, high = np.percentile(times, [25, 50, 75])
        row = Row(f"{name}: first traced step in a fresh process with {what}", {"tengen": mid})
        row.value = f"{compare.duration(mid)} ({compare.duration(low)} - {compare.duration(high)})"
        if most and name == "LeNet":
            row.goal, row.reached = {"text": f"< {most:g} s"}, bool(mid < most)
        rows.append(row)
    rows[0].value += f", {modules} modules compiled"
    row = Row(f"{name}: modules that the second process compiled", value=str(max(counts)), goal={"text": "0"})
    row.reached = max(counts) == 0
    return [*rows, row]


if __name__ == "__main__":
    args = compare.arguments("training")
    load = os.getloadavg()
    rows = [r for name in SHAPES if args.only in name for r in compiling(name, min(args.rounds, 5))]
    compare.main("training", "Training steps, batch 64, SGD with momentum", CASES, more=rows, load=load)
