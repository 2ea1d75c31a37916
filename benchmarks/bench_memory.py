"""Peak memory of training steps and of inference: resident bytes above the process's own start, each in its own process.

`child.py` measures: the start is when everything is imported and a first small program has run; the peak is that of three
calls after the first, so that what compiling needs is left out. Caches are the user's, and warm (a first process fills them).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import compare
import peers
from compare import Cell, Row
from networks import NETWORKS

import tengen

TRAINING = ("ResNet-18", "ResNet-50", "MobileNetV2", "ViT-Tiny", "GPT", "LSTM", "LeNet", "MLP")
INFERENCE = ("ResNet-18", "ResNet-50", "MobileNetV2", "ViT-Tiny", "GPT")
QUICK = {"LeNet, training", "MobileNetV2, inference"}
CHILD = str(Path(__file__).parent / "child.py")
PATIENCE_S = 600


def opponents(name: str, kind: str, quick: bool) -> list[str]:
    """The peers that can do it."""
    import jax_peer

    network = NETWORKS[name]
    styles = [who for who in peers.torch_styles(network) if not (quick and who == "torch.compile")]
    found = styles if compare.peer("torch") else []
    if kind == "inference":
        found = [who for who in found if who != "torch" or not network.convolutions]
        return found + [who for who in ("onnxruntime", "openvino") if compare.peer(who) and compare.peer("onnx")]
    return found + (["jax"] if name in jax_peer.FORWARD and compare.peer("jax") else [])


def child(who: str, name: str, batch: int, kind: str, file: str = "") -> dict:
    """What `child.py` says of this contender. Errors: RuntimeError where it fails."""
    command = [sys.executable, CHILD, who, name, str(batch), kind, *([file] if file else [])]
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode:
        raise RuntimeError(f"{who}, {name}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def export(name: str, batch: int, folder: str) -> str:
    """The network as an ONNX file; "" where it cannot be had."""
    if not all(map(compare.peer, ("torch", "onnx"))):
        return ""
    network = NETWORKS[name]
    return peers.onnx_file(network.torch(None).eval(), network.data(batch), folder)


def dumped(name: str, batch: int, folder: str) -> str:
    """The network as a model file."""
    network, file = NETWORKS[name], os.path.join(folder, "model.tgn")
    run = tengen.trace(network.tengen(), capture_as_const=True, example_input=tengen.Tensor(network.data(batch)))
    run.dump(file)
    return file


def saved(name: str, who: str, folder: str) -> str:
    """The network's weights as a file of Tengen's or of PyTorch's."""
    network, file = NETWORKS[name], os.path.join(folder, f"weights.{who}")
    if who == "tengen":
        tengen.save(network.tengen().state_dict(), file)
    else:
        import torch

        torch.save(network.torch(None).state_dict(), file)
    return file


def figure(who: str, name: str, batch: int, kind: str, file: str = "") -> float:
    """Bytes above the start; what is compiled is in the cache."""
    for _ in range(2 if who.startswith("tengen") or who == "torch.compile" else 1):
        found = child(who, name, batch, kind, file)
    return float(found["peak"] - found["base"])


def peaks(name: str, kind: str, quick: bool) -> list[Row]:
    """The rows of one network. Those of inference: from a model file, as onnxruntime and OpenVINO have it; of a traced module
    whose weights stay its own, as PyTorch's; and of one whose weights are packed once more as constants, which is faster: with
    weights mapped from a file, and with weights that were drawn. PyTorch's are drawn, or mapped where that needs less."""
    batch = NETWORKS[name].batch if kind == "training" else 1
    others: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        mine = {"": ("tengen", "")}
        onnx = ""
        if kind == "inference":
            mine = {
                ", model file": ("tengen", dumped(name, batch, folder)), ", module": ("tengen, module", ""),
                ", module with mapped weights, packed constants": ("tengen, mapped", saved(name, "tengen", folder)),
                ", module, packed constants": ("tengen", ""),
            }  # fmt: skip
            onnx = export(name, batch, folder)
        found = {style: figure(who, name, batch, kind, file) for style, (who, file) in mine.items()}
        for who in opponents(name, kind, quick):
            sessions = who in ("onnxruntime", "openvino")
            files = [onnx] if sessions else ["", saved(name, "torch", folder)] if kind == "inference" else [""]
            try:
                others[who] = min(figure(who, name, batch, kind, file) for file in files)
            except RuntimeError as e:
                print(f"skipped: {e}", flush=True)
    title = f"{name}, batch {batch}, {kind}"
    return [judged(Row(title + style, unit="peak", rounds=1), b, others) for style, b in found.items()]


def judged(row: Row, mine: float, others: dict[str, float]) -> Row:
    """The row with its figures."""
    row.seconds = {"tengen": mine} | others
    row.ratios = {who: (mine / b,) * 3 for who, b in others.items()}
    if others:
        least = min(others, key=others.__getitem__)
        row.goal, row.reached = {"ratio": 1.0, "peer": "fastest", "against": least}, mine <= others[least]
    return row


def main() -> None:
    args = compare.arguments("memory")
    load, rows = os.getloadavg(), []
    names = [(n, "training") for n in reversed(TRAINING)] + [(n, "inference") for n in INFERENCE]
    cells = [
        Cell(f"{n}, {kind}", lambda n=n, kind=kind: peaks(n, kind, args.quick), f"{n}, {kind}" in QUICK) for n, kind in names
    ]
    for cell in compare.progress(compare.chosen(cells, args), "memory"):
        try:
            made = cell.make()
        except Exception as e:
            made = [Row(cell.name, error=f"{type(e).__name__}: {' '.join(str(e).split())[:160]}")]
        rows += made
        print(compare.format_rows(made), flush=True)
    compare.finish("memory", "Peak memory above the process's own start", rows, load, args)


if __name__ == "__main__":
    main()
