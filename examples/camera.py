"""From a camera's frame to a label, in one program without Python: NV12 -> RGB -> 224 x 224 -> normalised -> MobileNetV2 -> label.

    python examples/camera.py [--size 1280x720] [--quick] [--out out]

Writes a model file and an artifact, builds a program in C that reads frames and prints labels, runs it, and compares what it printed with
the eager pipeline. The weights are random: give MobileNetV2 trained ones (docs/migrate.md), and a list of names. It needs a C compiler, or
`pip install ziglang`. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import tengen.functional as F
from tengen import Tensor, deploy, load_graph, models, random, trace
from tengen.functional import vision

MEAN, STD = (Tensor(np.array(v, "f4").reshape(1, 3, 1, 1)) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))

MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include "camera.h"

static void *bytes_from(const char *file, size_t size) {
    void *memory = aligned_alloc(CAMERA_ALIGN, (size + CAMERA_ALIGN - 1) / CAMERA_ALIGN * CAMERA_ALIGN);
    FILE *f = memory && file ? fopen(file, "rb") : NULL;
    if (!memory || (file && (!f || fread(memory, 1, size, f) != size))) {
        fprintf(stderr, "%s: not enough memory or bytes\n", file ? file : "scratch memory");
        exit(2);
    }
    if (f) fclose(f);
    return memory;
}

int main(int argc, char **argv) {
    void *weights = bytes_from(argc > 1 ? argv[1] : "camera.bin", CAMERA_WEIGHTS_BYTES);
    void *workspace = bytes_from(NULL, CAMERA_WORKSPACE_BYTES);
    if (camera_check(weights, CAMERA_WEIGHTS_BYTES)) return 3;
    for (int i = 2; i < argc; i++) {
        void *frame = bytes_from(argv[i], CAMERA_FRAME_BYTES);
        int32_t label;
        float probability;
        int code = camera_run(weights, workspace, frame, &label, &probability);
        if (code) return code;
        printf("%d %a\n", label, (double)probability);
        free(frame);
    }
    return 0;
}
"""


def preprocess(frame: Tensor) -> Tensor:
    """A frame as cameras give it, (1, 3 H / 2, W, 1) in NV12, as what the network takes."""
    picture = vision.cvt_color(frame.reshape(1, 1, *frame.shape[1:3]), "BT601_YUV2RGB_NV12", "NCHW")
    return (vision.resize(picture, (224, 224), antialias=True).astype("float32") / 255.0 - MEAN) / STD


def postprocess(scores: Tensor) -> dict[str, Tensor]:
    """The best class, and how probable it is."""
    p = F.softmax(scores, axis=1)
    return {"label": F.argmax(p, axis=1).astype("int32"), "probability": F.max(p, axis=1)}


def main() -> None:
    """Builds, runs, compares."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--size", default="1280x720")
    options.add_argument("--quick", action="store_true", help="two thin stages of MobileNetV2 alone, which compile quickly")
    options.add_argument("--out", type=Path, default=Path("out"))
    given = options.parse_args()
    w, h = map(int, given.size.split("x"))
    given.out.mkdir(parents=True, exist_ok=True)
    random.seed(0)
    thin = {"width": 0.25, "stages": ((1, 16, 1, 1), (2, 24, 1, 2))}
    net = models.mobilenet_v2(**(thin if given.quick else {})).eval()
    frames = [np.random.default_rng(i).integers(0, 256, (1, h * 3 // 2, w, 1), dtype=np.uint8) for i in range(2)]

    f = trace(net, example_input=Tensor(np.zeros((1, 3, 224, 224), "f4")))
    f.dump(given.out / "camera.tgn", preprocess=preprocess, postprocess=postprocess, example_input=frames[0])
    model = load_graph(given.out / "camera.tgn")
    a = deploy.compile_model(model, "native", given.out, "camera")
    print(model, a, sep="\n")

    (given.out / "label.c").write_text(MAIN)
    for i, frame in enumerate(frames):
        frame.tofile(given.out / f"frame{i}.nv12")
    compiler = ["cc"] if shutil.which("cc") else [sys.executable, "-m", "ziglang", "cc"]
    subprocess.run([*compiler, "-O1", "label.c", "camera.o", "-o", "label"], cwd=given.out, check=True)
    command = ["./label", "camera.bin", *(f"frame{i}.nv12" for i in range(len(frames)))]
    printed = subprocess.run(command, cwd=given.out, check=True, capture_output=True, text=True).stdout.splitlines()

    equal = True
    for frame, line in zip(frames, printed, strict=True):
        want = {k: t.numpy() for k, t in postprocess(net(preprocess(Tensor(frame)))).items()}
        label, probability = line.split()
        same = int(label) == want["label"][0] and np.float32(float.fromhex(probability)).tobytes() == want["probability"].tobytes()
        print(f"label {label}, probability {float.fromhex(probability):.6f}: {'the bits of' if same else 'NOT'} the eager pipeline")
        equal = equal and same
    print(json.dumps({"equal": equal, "code_bytes": a.code_bytes, "weights_bytes": a.weights_bytes, "workspace_bytes": a.workspace_bytes}))
    sys.exit(not equal)


if __name__ == "__main__":
    main()
