"""The whole promise on a small scale: train LeNet on scanned digits, eagerly and traced, dump it, load it in a new process,
compile it
for two processors, and compare every result as bytes.

    python examples/digits.py [--epochs 12] [--out out]

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from lenet import LeNet, digits
from tqdm import tqdm

import tengen
import tengen.functional as F
from tengen import Tensor, deploy, trace
from tengen.autodiff import GradManager
from tengen.data import ArrayDataset, DataLoader, RandomSampler
from tengen.optimizer import SGD, CosineAnnealingLR

BATCH, RATE, MOMENTUM, SEED = 64, 0.05, 0.9, 1


class Run:
    """One training run: losses and parameters as bytes, and how long a step took."""

    def __init__(self, name: str, traced: bool, threads: int, split: int = 1):
        self.name, self.traced, self.threads, self.split = name, traced, threads, split
        self.losses: list[float] = []
        self.step_ms = 0.0

    def train(self, images: np.ndarray, labels: np.ndarray, epochs: int) -> Run:
        tengen.set_threads(self.threads)
        tengen.random.seed(SEED)
        self.net = net = LeNet()
        opt = SGD(net.parameters(), lr=RATE, momentum=MOMENTUM)
        schedule = CosineAnnealingLR(opt, epochs, min_lr=RATE / 100)
        gm = GradManager().attach(net.parameters())
        split = self.split

        def step(data, label):
            total = 0.0
            part = data.shape[0] // split
            for i in range(split):  # gradients of the parts are added in order
                with gm:
                    pred = net(data[i * part : (i + 1) * part])
                    loss = F.loss.cross_entropy(pred, label[i * part : (i + 1) * part]) * (1 / split)
                    gm.backward(loss)
                total = loss + total
            opt.step().clear_grad()
            return total

        run = trace(step, symbolic=True) if self.traced else step
        loader = DataLoader(
            ArrayDataset(images, labels), RandomSampler(ArrayDataset(images, labels), BATCH, drop_last=True, seed=SEED)
        )
        net.train()
        times = []
        with tqdm(total=epochs * len(loader), desc=f"{self.name:28}", leave=False, disable=None) as bar:
            for _ in range(epochs):
                for data, label in loader:
                    start = time.perf_counter()
                    loss = run(Tensor(data), Tensor(label))
                    self.losses.append(loss.item())
                    times.append(time.perf_counter() - start)
                    bar.update()
                bar.set_postfix(loss=f"{self.losses[-1]:.4f}", refresh=False)
                schedule.step()
        net.eval()
        self.step_ms = 1e3 * float(np.median(times))
        print(f"{self.name:28} {len(times)} steps of {self.step_ms:.2f} ms, last loss {self.losses[-1]:.4f}", flush=True)
        return self

    def fingerprint(self) -> str:
        """A hash of every loss and every parameter."""
        h = hashlib.sha256(np.asarray(self.losses, np.float32).tobytes())
        for name, p in self.net.named_parameters():
            h.update(name.encode() + p.numpy().tobytes())
        return h.hexdigest()


def differing_bits(a: np.ndarray, b: np.ndarray) -> int:
    """How many bits differ; NaNs count as equal."""
    a, b = np.ascontiguousarray(a, np.float32), np.ascontiguousarray(b, np.float32)
    if a.shape != b.shape:
        return a.size * 32
    bits = a.view(np.uint32) ^ b.view(np.uint32)
    bits[np.isnan(a) & np.isnan(b)] = 0
    return int(np.unpackbits(bits.view(np.uint8)).sum())


def in_new_process(model: Path, images: np.ndarray, out: Path) -> np.ndarray:
    """The loaded model's logits, computed by another Python process."""
    np.save(out / "images.npy", images)
    code = (
        "import sys, numpy, tengen\n"
        "model = tengen.load_graph(sys.argv[1])\n"
        "numpy.save(sys.argv[3], model(tengen.Tensor(numpy.load(sys.argv[2]))).numpy())\n"
    )
    subprocess.run([sys.executable, "-c", code, str(model), str(out / "images.npy"), str(out / "reloaded.npy")], check=True)
    return np.load(out / "reloaded.npy")


def pictures(run: Run, images: np.ndarray, labels: np.ndarray, logits: np.ndarray, out: Path) -> None:
    """The learning curve and the misread digits."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(7, 4))
    ax.semilogy(run.losses, linewidth=0.8)
    ax.set(xlabel="step", ylabel="cross entropy", title="LeNet on scanned digits")
    fig.tight_layout()
    fig.savefig(out / "learning_curve.png", dpi=120)
    wrong = np.flatnonzero(logits.argmax(1) != labels)[:32]
    rows = max(1, -(-len(wrong) // 8))
    fig, axes = plt.subplots(rows, 8, figsize=(9, 1 + 1.3 * rows))
    for ax in axes.ravel():
        ax.axis("off")
    for ax, i in zip(axes.ravel(), wrong):
        ax.imshow(images[i, 0], cmap="gray_r")
        ax.set_title(f"{labels[i]} read {logits[i].argmax()}", fontsize=8)
    fig.suptitle(f"{len(wrong)} of {len(labels)} misread")
    fig.tight_layout()
    fig.savefig(out / "misread.png", dpi=120)
    plt.close("all")


def compile_and_run(model: Path, target: str, images: np.ndarray, logits: np.ndarray, out: Path) -> tuple[str, int, int, float]:
    """("ran" or "skipped: why", differing bits, bytes of code, seconds of compiling) of the artifact for one processor."""
    start = time.perf_counter()
    artifact = deploy.compile_model(model, target=target, out_dir=out / target, name="lenet")
    seconds = time.perf_counter() - start
    print(f"{target}: compiled in {seconds:.2f} s; linking (the linker builds its libc the first time) and running", flush=True)
    try:
        (result,) = deploy.run_artifact(artifact, [images])
    except deploy.CannotRun as e:
        return f"skipped: {e}", 0, artifact.code_bytes, seconds
    return "ran", differing_bits(result, logits), artifact.code_bytes, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path("out"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    train_x, train_y, test_x, test_y = digits()
    print(f"{len(train_y)} digits to learn, {len(test_y)} held out; {os.cpu_count()} processors")

    threads = tengen.config.threads
    runs = [Run("eager", False, threads), Run("traced", True, threads), Run("traced, 1 thread", True, 1)]
    runs += [Run("eager, batch in 2 parts", False, threads, 2), Run("traced, batch in 2 parts", True, 1, 2)]
    for r in runs:
        r.train(train_x, train_y, args.epochs if r.split == 1 else 2)
    prints = [r.fingerprint() for r in runs]
    differing = 0 if prints[0] == prints[1] == prints[2] and prints[3] == prints[4] else 1
    if differing:
        for r, other in ((runs[1], runs[0]), (runs[2], runs[0]), (runs[4], runs[3])):
            differing += differing_bits(np.float32(r.losses), np.float32(other.losses))

    net = runs[1].net
    tengen.set_threads(threads)
    predict = trace(net, capture_as_const=True)
    logits = predict(Tensor(test_x)).numpy()
    eager = net(Tensor(test_x)).numpy()
    differing += differing_bits(eager, logits)
    differing += sum(
        differing_bits(net(Tensor(test_x[i : i + 1])).numpy(), logits[i : i + 1]) for i in range(0, len(test_x), 40)
    )
    accuracy = float((logits.argmax(1) == test_y).mean())
    pictures(runs[1], test_x, test_y, logits, args.out)

    model = args.out / "lenet.tgn"
    predict.dump(model, arg_names=["data"], output_names=["logits"])
    differing += differing_bits(in_new_process(model, test_x, args.out), logits)
    targets, code_bytes, compile_s = {}, {}, 0.0
    for target in ("x86-64-v3", "aarch64"):
        targets[target], bits, code_bytes[target], seconds = compile_and_run(model, target, test_x, logits, args.out)
        differing, compile_s = differing + bits, compile_s + seconds

    report = {
        "accuracy": round(accuracy, 4), "differing_bits": differing, "targets": targets, "code_bytes": code_bytes,
        "step_ms_eager": round(runs[0].step_ms, 3), "step_ms_traced": round(runs[1].step_ms, 3), "compile_s": round(compile_s, 2),
    }  # fmt: skip
    width = min(shutil.get_terminal_size().columns, 78)
    print("-" * width)
    for key, value in report.items():
        print(f"{key:18} {value}")
    print(f"{'pictures':18} {args.out / 'learning_curve.png'}, {args.out / 'misread.png'}")
    print("-" * width)
    print(json.dumps(report))
    if differing or accuracy < 0.98:
        sys.exit("the results differ, or too few digits were read")


if __name__ == "__main__":
    main()
