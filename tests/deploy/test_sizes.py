"""How large artifacts are, and that compiling again gives the same bytes."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from exhaustive import but, exhaustive
from needs import needs
from recorded import dumped

from tengen import Tensor, deploy, load_graph, models
from tengen.base.config import config

SMALL = (  # targets whose code of LeNet has at most 16 KiB
    "x86-64", "x86-64-exact", "x86-64-v3", "x86-64-v4", "aarch64", "riscv64-v", "windows-x86-64", "macos-arm64", "riscv64", "wasm32",
    "wasm32-exact",
)  # fmt: skip


@pytest.fixture(scope="module")
def lenet(tmp_path_factory):
    file = tmp_path_factory.mktemp("sizes") / "lenet.tgn"
    dumped(models.lenet().eval(), [Tensor(np.zeros((1, 1, 32, 32), "f4"))], file)
    return load_graph(file)


def test_lenet_is_small(lenet, tmp_path):
    sizes = {target: deploy.compile_model(lenet, target, tmp_path, "lenet").code_bytes for target in SMALL}
    assert all(2048 < size <= 16 << 10 for size in sizes.values()), sizes


@but(every=2)
@pytest.mark.parametrize("target", ["aarch64", "wasm32", "windows-x86-64", "macos-arm64"])
def test_the_same_bytes_again(lenet, target, tmp_path):
    with config.scope(cache=False):
        for folder in ("a", "b"):
            deploy.package(deploy.compile_model(lenet, target, tmp_path / folder, "lenet"), "cmake")
    files = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert len(files) == 5 and all((tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes() for f in files)


@exhaustive
@needs("ziglang")
def test_a_module_for_the_web_is_small(tmp_path):
    """A MobileNetV2 of all its stages, one block each, at a fourth of its width: the code of each is one of the whole network's."""
    stages = tuple((e, c, 1, s) for e, c, _, s in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1)))
    net = models.mobilenet_v2(10, width=0.25, stages=stages).eval()
    dumped(net, [Tensor(np.zeros((1, 3, 64, 64), "f4"))], tmp_path / "net.tgn")
    for target, most in (("wasm32", 40), ("wasm32-exact", 45)):
        artifact = deploy.compile_model(tmp_path / "net.tgn", target, tmp_path / target, "net")
        module = next(f for f in deploy.package(artifact, "javascript") if f.endswith(".wasm"))
        size = len(gzip.compress(Path(module).read_bytes(), 9, mtime=0))
        assert size < most << 10, (target, size)
    for target, most in (("riscv64", 192), ("x86-64-exact", 88)):  # the largest code of all; where every fma is a call
        assert deploy.compile_model(tmp_path / "net.tgn", target, tmp_path / target, "net").code_bytes < most << 10
