"""How large artifacts are, and that compiling again gives the same bytes."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from needs import needs
from recorded import dumped

from tengen import Tensor, deploy, load_graph, models
from tengen.base.config import config

# KiB of code of LeNet; RISC-V without vectors does in 16 instructions what others do in one
MOST = {
    "x86-64": 16, "x86-64-v3": 16, "x86-64-v4": 16, "aarch64": 16, "riscv64-v": 16, "windows-x86-64": 16, "macos-arm64": 16, "riscv64": 20,
    "wasm32": 16,
}  # fmt: skip


@pytest.fixture(scope="module")
def lenet(tmp_path_factory):
    file = tmp_path_factory.mktemp("sizes") / "lenet.tgn"
    dumped(models.lenet().eval(), [Tensor(np.zeros((1, 1, 32, 32), "f4"))], file)
    return load_graph(file)


def test_lenet_is_small(lenet, tmp_path):
    sizes = {target: deploy.compile_model(lenet, target, tmp_path, "lenet").code_bytes for target in MOST}
    assert all(2048 < sizes[t] <= most << 10 for t, most in MOST.items()), sizes


@pytest.mark.parametrize("target", ["aarch64", "wasm32", "windows-x86-64", "macos-arm64"])
def test_the_same_bytes_again(lenet, target, tmp_path):
    with config.scope(cache=False):
        for folder in ("a", "b"):
            deploy.package(deploy.compile_model(lenet, target, tmp_path / folder, "lenet"), "cmake")
    files = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert len(files) == 5 and all((tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes() for f in files)


@needs("ziglang")
def test_a_module_for_the_web_is_small(tmp_path):
    """A MobileNetV2 of all its stages, one block each, at a fourth of its width: the code of each is one of the whole network's."""
    stages = tuple((e, c, 1, s) for e, c, _, s in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1)))
    net = models.mobilenet_v2(10, width=0.25, stages=stages).eval()
    dumped(net, [Tensor(np.zeros((1, 3, 64, 64), "f4"))], tmp_path / "net.tgn")
    artifact = deploy.compile_model(tmp_path / "net.tgn", "wasm32", tmp_path, "net")
    module = next(f for f in deploy.package(artifact, "javascript") if f.endswith(".wasm"))
    assert len(gzip.compress(Path(module).read_bytes(), 9, mtime=0)) < 60 << 10
