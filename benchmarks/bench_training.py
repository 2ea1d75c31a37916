"""Training steps of whole networks, float32: forward, loss, backward, and an update by SGD with momentum or AdamW.

Tengen's step traced, the network alone traced in a plain loop, Tengen eager (a row of its own) and the peers start from the same
weights and are compared after one step, before they are timed: the losses, and the way that the weights went. (More steps would
compare how roundings grow: networks with batch norm and fresh weights magnify them by orders.) Tengen's are compared as bits after
three. A step is on a batch that is a tensor already, and clears the gradients.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import compare
import jax_peer
import numpy as np
import peers
from compare import Case, Cell, Goal
from networks import NETWORKS, RATES, Network, Trainer, torch_name
from roof import roof

# The traced step's speed to reach, in that of the fastest peer
AIMS = {
    "ResNet-18": 1.5, "ResNet-50": 1.5, "MobileNetV2": 2.5, "ViT-Tiny": 1.3, "GPT": 1.3, "LSTM": 1.3, "LeNet": 2.5, "MLP": 1.3,
}  # fmt: skip
STEPS = 3  # before Tengen's are compared


class Steps:
    """Training steps in another process. A call is one; `many` asks for several at once, so that a batch pays the way to the other
    process and back (about 0.1 ms) once."""

    def __init__(self, ask: Callable[[dict], float]):
        self.ask = ask

    def __call__(self) -> np.float32:
        return np.float32(self.ask({"steps": 1}))

    def many(self, n: int) -> None:
        """n steps."""
        self.ask({"steps": n})


class MegEngineTrainer:
    """MegEngine's side: `megengine_peer.py` in a process of the Python that MEGENGINE_PYTHON names."""

    # Tengen's layers -> those of `megengine_peer.py`
    NAMES = {
        "LeNet": {"conv0": "conv1", "conv1": "conv2", "fc0": "fc1", "fc1": "fc2", "classifier": "classifier"},
        "MLP": {"layers.0": "0", "layers.2": "2", "layers.4": "4"},
    }

    def __init__(self, network: Network, weights: dict[str, np.ndarray]):
        script = str(Path(__file__).parent / "megengine_peer.py")
        command = [os.environ["MEGENGINE_PYTHON"], script, str(compare.THREADS)]
        quiet = {"stderr": subprocess.DEVNULL, "text": True}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **quiet)
        layers = self.NAMES[network.name].items()
        theirs = {f"{there}.{kind}": weights[f"{here}.{kind}"] for here, there in layers for kind in ("weight", "bias")}
        data, label = network.data(network.batch), network.labels(network.batch)
        with tempfile.TemporaryDirectory() as folder:
            np.savez(f"{folder}/start.npz", images=data, labels=label, **theirs)
            self._ask({"make": [network.name, True, f"{folder}/start.npz", RATES["SGD"]["lr"], RATES["SGD"]["momentum"]]})
        self.step = Steps(self._ask)

    def _ask(self, request: dict) -> float:
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        self.process.send_signal(signal.SIGSTOP)  # its threads must not disturb the others' turns
        return answer

    def __del__(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def others(network: Network, mine: Trainer, quick: bool) -> dict[str, object]:
    """The peers that can train this network; `quick`: without the one that compiles for a minute."""
    start, batch, found = mine.weights(), network.batch, {}
    if compare.peer("torch"):
        for who, style in peers.torch_styles(network).items():
            if not (quick and style == "compile"):
                found |= compare.attempt(who, partial(peers.TorchTrainer, network, mine.net, batch, style))
    if network.name not in jax_peer.FORWARD:
        print(f"skipped: jax: no definition of {network.name} for it here", flush=True)
    elif compare.peer("jax"):
        found |= compare.attempt("jax", partial(jax_peer.JaxTrainer, network, start, batch))
    if network.name in MegEngineTrainer.NAMES and compare.THREADS > 1:  # its processor time is another process's
        if "MEGENGINE_PYTHON" in os.environ:
            found["MegEngine"] = MegEngineTrainer(network, start)
        else:
            print("skipped: MegEngine; set MEGENGINE_PYTHON to a Python 3.10 that has it", flush=True)
    return found


def distance(a: dict[str, np.ndarray], b: dict[str, np.ndarray], start: dict[str, np.ndarray]) -> float:
    """How far apart two ways from `start` ended, in the length of the first."""
    a, b, start = ({torch_name(k): v for k, v in w.items()} for w in (a, b, start))
    gap = sum(float(np.sum((a[k].ravel() - b[k].ravel()) ** 2.0)) for k in a)
    way = sum(float(np.sum((a[k].ravel() - start[k].ravel()) ** 2.0)) for k in a)
    return (gap / way) ** 0.5


def training(name: str, quick: bool = False) -> Case:
    """One network's step."""
    network = NETWORKS[name]
    mine, eager, alone = (Trainer(network, network.batch, traced) for traced in (True, False, "network"))
    start = mine.weights()
    peers.forget()
    more = others(network, mine, quick)
    near = 0.05 if network.optimizer == "SGD" else 0.1  # Adam's first steps have one length, however small the gradient

    def check() -> None:
        first = mine.step().item()
        after = mine.weights()
        for who, t in more.items():
            theirs = float(t.step())
            assert abs(first - theirs) < 1e-4 * abs(theirs), f"loss {first}, {who} has {theirs}"
            if hasattr(t, "weights"):
                far = distance(after, t.weights(), start)
                assert far < near, f"{who}'s weights went elsewhere, by {far:.3g} of the way"
        for other in (eager, alone):
            other.step()
        for _ in range(1, STEPS):
            assert len({t.step().numpy().tobytes() for t in (mine, eager, alone)}) == 1, "eager and traced losses differ in their bits"
        after = mine.weights()
        for k, w in [*eager.weights().items(), *alone.weights().items()]:
            assert w.tobytes() == after[k].tobytes(), f"eager and traced {k} differ in their bits"

    own = {"tengen": mine.step, "tengen network alone": alone.step, "tengen eager": eager.step}
    contenders = own | {who: t.step for who, t in more.items()}
    best = "torch, channels-last" if network.convolutions and network.name != "LeNet" else "torch"
    aim, goals = Goal(1 / AIMS[name], "fastest"), {"tengen eager": Goal(1.0, best)}
    work = network.step_work(network.batch)
    title = f"{name}, batch {network.batch}"
    return Case(title, contenders, aim, work, check=check, roof=roof("FLOP"), goals=goals)


def cells(quick: bool) -> list[Cell]:
    """The row's cells."""
    return [
        Cell(f"{name}, batch {NETWORKS[name].batch}", partial(training, name, quick), name in ("MLP", "LeNet", "LSTM"))
        for name in reversed(AIMS)
    ]


if __name__ == "__main__":
    args = compare.arguments("training", 15.0)
    compare.main("training", "Training steps, float32, traced and eager", cells(args.quick), args=args)
