"""Peak memory of training steps and of inference: resident bytes above the process's own start, each in its own process.

`child.py` measures: the start is when everything is imported and a first small program has run; the peak is that of three
calls after the first, so that what compiling needs is left out. Caches are the user's, and warm (a first process fills them).
"""

from __future__ import annotations

import os
import tempfile

import compare
import peers
from bench_compile import child, export
from compare import Cell, Row
from networks import NETWORKS

TRAINING = ("ResNet-18", "ResNet-50", "MobileNetV2", "ViT-Tiny", "GPT", "LSTM", "LeNet", "MLP")
INFERENCE = ("ResNet-18", "ResNet-50", "MobileNetV2", "ViT-Tiny", "GPT")
QUICK = {"LeNet, training", "MobileNetV2, inference"}


def contenders(name: str, kind: str, quick: bool) -> list[str]:
    """Who can do it; "tengen" first."""
    import jax_peer

    network = NETWORKS[name]
    styles = [who for who in peers.torch_styles(network) if not (quick and who == "torch.compile")]
    found = ["tengen", *(styles if compare.peer("torch") else [])]
    if kind == "inference":
        found = [who for who in found if who != "torch" or not network.convolutions]
        return found + [who for who in ("onnxruntime", "openvino") if compare.peer(who) and compare.peer("onnx")]
    return found + (["jax"] if name in jax_peer.FORWARD and compare.peer("jax") else [])


def peak(name: str, kind: str, quick: bool) -> Row:
    """The row of one network."""
    batch = NETWORKS[name].batch if kind == "training" else 1
    row = Row(f"{name}, batch {batch}, {kind}", unit="peak", rounds=1)
    with tempfile.TemporaryDirectory() as folder:
        file = export(name, batch, folder) if kind == "inference" else ""
        for who in contenders(name, kind, quick):
            session = who in ("onnxruntime", "openvino")
            try:
                for _ in range(2 if who in ("tengen", "torch.compile") else 1):
                    found = child(who, name, batch, kind, None, file if session else "")
            except RuntimeError as e:
                if who == "tengen":
                    raise
                print(f"skipped: {e}", flush=True)
                continue
            row.seconds[who] = float(found["peak"] - found["base"])
    mine, others = row.seconds["tengen"], {who: b for who, b in row.seconds.items() if who != "tengen"}
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
        Cell(f"{n}, {kind}", lambda n=n, kind=kind: peak(n, kind, args.quick), f"{n}, {kind}" in QUICK) for n, kind in names
    ]
    for cell in compare.progress(compare.chosen(cells, args), "memory"):
        try:
            rows.append(cell.make())
        except Exception as e:
            rows.append(Row(cell.name, error=f"{type(e).__name__}: {' '.join(str(e).split())[:160]}"))
        print(compare.format_rows(rows[-1:]), flush=True)
    compare.finish("memory", "Peak memory above the process's own start", rows, load, args)


if __name__ == "__main__":
    main()
