"""Artifacts for machines that this one is not, run by emulators and engines: the bytes of eager runs, several networks in one program.

Each target compiles the same networks into one folder and links them into one program, which is run once.
"""

import functools
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from exhaustive import but
from models import same
from recorded import dumped

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, deploy, load_graph, models, random
from tengen import quantization as Q
from tengen.codegen.targets import Target
from tengen.deploy.emulators import emulators, runners
from tengen.deploy.graphs import Graph
from tengen.deploy.objects import read_object
from tengen.deploy.run import call_program, link_program

ELSEWHERE = (
    "x86-64", "x86-64-exact", "aarch64", "riscv64", "riscv64-v", "armv7", "armv7-exact", "wasm32", "wasm32-exact", "cortex-m4", "cortex-m7",
)  # fmt: skip
ROUNDS_TWICE = ("x86-64", "wasm32")  # products of sums: integers and single operations alone have the bits

SOME = {  # what is run on targets whose code is nearly that of another
    "x86-64": ("single", "int8", "resnet_int8", "integers", "camera", "functions", "lenet"),
    "x86-64-exact": ("single", "int8", "lenet", "resnet", "gpt"),
    "wasm32": ("single", "int8", "resnet_int8", "integers", "camera", "functions", "lenet"), "cortex-m7": ("single", "int8", "camera", "lenet"),
    "aarch64": ("int8", "integers", "camera", "lstm", "resnet", "resnet_int8"), "riscv64": ("single", "int8", "gpt", "lenet", "resnet_int8"),
    # QEMU 7.2 fails where conversions to integers follow one another
    "riscv64-v": ("single", "integers", "camera", "lenet", "mobilenet", "resnet", "lstm", "gpt"),
}  # fmt: skip
MOST = ("single", "int8", "integers", "camera", "lenet", "mobilenet", "resnet", "resnet_int8", "lstm", "gpt")
FLUSHES = ("armv7",)  # NEON takes subnormal numbers of float32 for zeros


def edges():
    """Numbers at which emulated operations go wrong: halves, subnormal numbers, the ends of float16, NaN."""
    ends = [0.5, 1.5, 2.5, 8388607.5, 65504.0, 65519.9, 65520.0, 6e-8, 2.98e-8, 6.1e-5, 1e-40, 3e38, np.inf, 0.0]
    drawn = np.random.default_rng(2).standard_normal(98) * np.exp(np.random.default_rng(3).uniform(-40, 40, 98))
    return np.array([*ends, *(-np.array(ends)), np.nan, *drawn, 1.0], "f4")


def single(x):
    """Operations that some processors have no instruction for."""
    half = x.astype("float16")
    return F.floor(x), F.ceil(x), F.round(x), half, half.astype("float32") * 3.0, x.astype("int32"), F.floor(x.astype("float64") * 1.5)


def integers(x, y):
    """Products of all bytes, by dot products where there are some: rows, a column, and one filter for each channel."""
    filters = (np.arange(8 * 9).reshape(8, 1, 1, 3, 3) * 37 % 256 - 128).astype("i1")
    images = F.reshape(x, (1, 8, 5, 7))
    return F.matmul_int(F.reshape(x, (7, 40)), y), F.matmul_int(F.reshape(x, (7, 40))[:1], y[:, :1]), F.conv_int(images, filters, groups=8)


def camera(frame, picture):
    """Pixels whose channels lie beside each other: colours, other orders, floats, a warp; around whole vectors of them."""
    colours = F.vision.cvt_color(frame, "BT601_YUV2RGB_NV12")
    turned = F.vision.flip(picture, False, True), F.vision.cvt_color(picture, "RGB2BGR"), picture.astype("float32") * Tensor([0.5, 2.0, 4.0])
    warped = F.vision.warp_affine(picture, Tensor([[[0.75, 0.25, 0.5], [-0.25, 1.0, 0.25]]]), (3, 37), "constant")  # quarters: exact sums
    larger = F.vision.resize(picture, (6, 68), "NHWC"), F.vision.resize(picture.astype("float32"), (12, 136), "NHWC")  # quarters, eighths
    small = F.vision.resize(colours, (2, 17), "NHWC", "nearest")
    return colours, *turned, small, *larger, F.stack([picture, picture + 1], -1), warped


class Quantised(M.Module):
    """A convolution and a matrix product between stubs."""

    def __init__(self):
        super().__init__()
        self.quant, self.dequant = M.QuantStub(), M.DequantStub()
        self.conv, self.fc = M.ConvRelu2d(1, 4, 3, stride=2), M.Linear(4 * 5 * 5, 6)

    def forward(self, x):
        y = self.conv(self.quant(x))
        return self.dequant(self.fc(F.flatten(y, 1)))


def quantised():
    net = Quantised()
    images = Tensor(np.random.default_rng(4).standard_normal((6, 1, 11, 11)).astype("f4"))
    qat = Q.quantize_qat(net, inplace=False)
    qat.train()
    qat(images)
    return Q.quantize(qat.eval(), inplace=False), images[:1]


@functools.cache
def networks():
    """name -> (a function of tensors, its inputs)."""
    rng = np.random.default_rng(1)
    random.seed(3)
    number = lambda *shape: Tensor(rng.standard_normal(shape).astype("f4"))
    bytes_ = lambda n: rng.choice(np.array([-128, -128, -127, -1, 0, 1, 127], "i1"), n)  # pairs of -128 among them
    ids = lambda *shape: Tensor(rng.integers(0, 17, shape).astype("i4"))
    small = models.mobilenet_v2(5, width=0.25, stages=((1, 16, 1, 1), (2, 24, 1, 2))).eval()
    step = models.gpt(layers=1, width=16, heads=2, context=8, vocabulary=17).eval()
    int8, picture = quantised()
    resnet, pictures = models.resnet18(5, width=8).eval(), number(3, 3, 32, 32)
    for m in resnet.modules():  # batch norms that do something
        if isinstance(m, M.BatchNorm2d):
            m.running_mean[...], m.running_var[...] = (rng.uniform(low, 1.5, m.running_mean.shape).astype("f4") for low in (-0.5, 0.5))
    by_integers = Q.ptq(resnet, pictures, None).graph
    by_integers.set_batch(1)
    return {
        "single": (single, (Tensor(edges()),)),
        "int8": (int8, (picture,)),
        "integers": (integers, (Tensor(bytes_(7 * 40)), Tensor(bytes_(40 * 19).reshape(40, 19)))),
        "camera": (camera, tuple(Tensor(rng.integers(0, 256, (1, h, 34, c)).astype("u1")) for h, c in ((6, 1), (3, 3)))),
        "lenet": (models.lenet().eval(), (number(1, 1, 32, 32),)),
        "mobilenet": (small, (number(1, 3, 16, 16),)),
        "resnet": (resnet, (pictures[:1],)),
        "resnet_int8": (by_integers, (pictures[:1],)),
        "lstm": (models.lstm(17, embedding=8, hidden=12).eval(), (ids(1, 3),)),
        "gpt": (step, (ids(1, 5),)),
        "functions": (lambda x: (F.exp(x), F.sin(x), F.tanh(x), F.log(F.abs(x) + 1.0)), (number(37),)),
    }


@functools.cache
def recorded_networks(folder):
    """name -> (the model, its inputs, its eager results)."""
    found = {}
    for name, (f, inputs) in networks().items():
        want = f(*inputs)
        f.save(folder / f"{name}.tgn") if isinstance(f, Graph) else dumped(f, inputs, folder / f"{name}.tgn")
        found[name] = load_graph(folder / f"{name}.tgn"), inputs, want if isinstance(want, tuple) else (want,)
    return found


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return recorded_networks(tmp_path_factory.mktemp("networks"))


def refusals(p, arguments, scratch):
    """C that asks for the codes of pointers and of memory that cannot be used."""
    for i, bad in enumerate(arguments):
        call = lambda value, i=i: f"{p}_run({', '.join([*arguments[:i], value, *arguments[i + 1 :]])})"
        yield f"  if ({call('NULL')} != 1) return 6;"
        if bad.startswith(f"{p}_own"):  # an input of single bytes is aligned everywhere
            yield f"  if ({call(f'(char *){bad} + 4')} != 2) return 7;"
    if scratch:
        memory = f"{p}_own{[a.startswith(f'{p}_own') for a in arguments].count(True) - 1}"
        for value, n, code in ((memory, scratch, 0), (memory, scratch - 1, 1), ("NULL", scratch, 3), (f"(char *){memory} + 32", scratch, 4)):
            yield f"  if ({p}_check_workspace({value}, {n}) != {code}) return 8;"


def program(artifacts):
    """C that reads the weights and inputs of all artifacts from its input, runs each, and writes all outputs."""
    lines = ["#include <stdio.h>", "#include <stdlib.h>", "static void *take(size_t n) { return aligned_alloc(64, (n / 64 + 1) * 64); }"]
    lines += [f'#include "{a.name}.h"' for a in artifacts] + ["int main(int argc, char **argv) {", "  (void)argc, (void)argv;"]
    for a in artifacts:
        p, inputs, outputs = a.name, [], []
        sizes = [a.weights_bytes] * (a.weights_bytes > 0) + [a.workspace_bytes] * (a.workspace_bytes > 0)
        for i, n in enumerate(sizes):
            lines.append(f"  void *{p}_own{i} = take({n});")
        if a.weights_bytes:
            n = a.weights_bytes
            lines.append(f"  if (fread({p}_own0, 1, {n}, stdin) != {n} || {p}_check({p}_own0, {n})) return 3;")
        for kind, ports, names in (("in", a.inputs, inputs), ("out", a.outputs, outputs)):
            for i, port in enumerate(ports):
                n = int(np.prod(port.shape)) * port.dtype.size
                names.append((f"{p}_{kind}{i}", n))
                lines.append(f"  void *{p}_{kind}{i} = take({n});")
        lines += [f"  if (fread({x}, 1, {n}, stdin) != {n}) return 4;" for x, n in inputs]
        arguments = [f"{p}_own{i}" for i in range(len(sizes))] + [x for x, _ in inputs + outputs]
        lines += refusals(p, arguments, a.workspace_bytes)
        lines.append(f"  if ({p}_run({', '.join(arguments)})) return 5;")
        lines += [f"  fwrite({x}, 1, {n}, stdout);" for x, n in outputs]
    return "\n".join([*lines, "  return fflush(stdout) != 0;", "}", ""])


@but(these=["aarch64", "wasm32"])
@pytest.mark.parametrize("target", ELSEWHERE)
def test_networks_have_the_bytes_of_eager_runs(target, recorded, tmp_path):
    t = Target.named(target)
    made = [deploy.compile_model(recorded[name][0], target, tmp_path, name) for name in SOME.get(target, MOST)]
    for a in made:
        data = read_object(Path(a.files[0]).read_bytes())
        assert data.format == t.system.format and data.defined == {
            f"{a.name}_run", a.interface.linked(),
            *[f"{a.name}_check"] * bool(a.weights_bytes), *[f"{a.name}_check_workspace"] * bool(a.workspace_bytes),
        }  # fmt: skip
    if not (ways := runners(t)):
        pytest.skip(f"none of {', '.join(emulators(t))} is installed")
    (tmp_path / "main.c").write_text(program(made))
    files = [str(tmp_path / "main.c"), *(a.files[0] for a in made)]
    if find_spec("ziglang") is None:
        pytest.skip("the wheel ziglang is not installed (pip install ziglang)")
    built = link_program(t, files, tmp_path / "program")
    if t.cpu == "x86-64" and (older := shutil.which("qemu-x86_64")):
        ways = [*ways, ([older, "-cpu", "core2duo"], "on a processor without AVX")]
    given = b"".join(Path(a.files[2]).read_bytes() + b"".join(x.numpy().tobytes() for x in recorded[a.name][1]) for a in made)
    for start, how in ways:
        out = call_program(t, start, built, [], given)
        at = 0
        for a in made:
            for want in recorded[a.name][2]:
                want = np.ascontiguousarray(want.numpy())
                got = np.frombuffer(out, np.uint8, want.nbytes, at).view(want.dtype).reshape(want.shape)
                at += want.nbytes
                if target in ROUNDS_TWICE and a.name not in ("single", "int8", "resnet_int8", "integers", "camera", "functions"):
                    assert np.allclose(got, want, rtol=1e-4, atol=1e-5), (how, a.name)
                else:
                    x = recorded[a.name][1][0].numpy()
                    assert same_numbers(got, want, x if target in FLUSHES else None), (how, a.name)
        assert at == len(out)


def same_numbers(got, want, flushed=None):
    """The same bytes, but for NaNs, and, where subnormal numbers are taken for zeros, for results of them and those that are some.
    flushed: the operand, in that case."""
    if got.dtype.kind != "f":
        return same(got, want)
    alike = (got.view(f"u{got.itemsize}") == want.view(f"u{got.itemsize}")) | (np.isnan(got) & np.isnan(want))
    if flushed is not None:
        least = 2.0**-126
        alike |= (np.abs(want) < least) & (np.abs(got) < least)
        if flushed.shape == want.shape and flushed.dtype.kind == "f":
            alike |= (np.abs(flushed) < least) & (flushed != 0)
    return bool(alike.all())
