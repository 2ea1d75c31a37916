"""How large the LeNet artifact is: bytes of machine code, by target, with its own runtime and without the weights."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import compare
import numpy as np
from compare import Row

import tengen
from tengen import deploy

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from lenet import LeNet

LIMIT = 64 << 10


def main() -> None:
    args = compare.arguments("artifact")
    load = os.getloadavg()
    if not hasattr(deploy, "compile_model"):
        print("skipped: tengen.deploy cannot compile a model yet")
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "lenet.tgn"
        image = tengen.Tensor(np.zeros((1, 1, 32, 32), np.float32))
        predict = tengen.trace(LeNet(), capture_as_const=True, example_input=image)
        predict.dump(model, arg_names=["data"], output_names=["logits"])
        for target in ("x86-64-v3", "aarch64"):
            size = deploy.compile_model(model, target=target, out_dir=Path(folder) / target, name="lenet").code_bytes
            row = Row(f"LeNet, batch 1, {target}", value=f"{size} bytes of code", goal={"text": f"< {LIMIT} bytes"})
            row.reached = size < LIMIT
            rows.append(row)
    compare.finish("artifact", "The artifact of LeNet", rows, load, args)


if __name__ == "__main__":
    main()
