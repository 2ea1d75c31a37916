"""One library does one task in a fresh process, as a user's script would: what `bench_first_minute.py` starts.

    python first.py <library> <task> <folder> <threads> [causes]

Nothing is imported but the library, NumPy, and the definitions of the peers' networks, and this file runs with Python 3.10, which
MegEngine needs. A class here is a library, a method of it a task; a task that a library has no method for is skipped. The folder has
the files of `resnet50_from_a_file`. With "causes", Tengen's time is split by what it was spent on (`causes.py`).

Out: one line of JSON, printed when the task is done. `seconds`: of the part of the task that is timed by itself, None where that is
the whole process; `modules`: how many modules Tengen has compiled in that part; `causes`: seconds by cause.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

BATCHES, SIDE = (2, 3, 4), 224  # images: a first, a second and a third size of the batch; pixels
BATCH = BATCHES[0]
GPT = {"layers": 2, "width": 192, "heads": 6, "context": 256, "vocabulary": 1000}
TEXTS, LENGTHS = 4, (64, 80, 96)  # a batch of texts; a first, a second and a third length
TOKENS = LENGTHS[0]
NEW = 40  # tokens that are generated
RNG = np.random.default_rng(0)


def images(n: int, classes: int = 1000, shape: tuple = (3, SIDE, SIDE)) -> tuple[np.ndarray, np.ndarray]:
    """A batch of noise and its labels."""
    return RNG.standard_normal((n, *shape), np.float32), RNG.integers(0, classes, n).astype(np.int32)


def texts(length: int) -> tuple[np.ndarray, np.ndarray]:
    """A batch of tokens, and the tokens that follow them."""
    ids = RNG.integers(0, GPT["vocabulary"], (TEXTS, length + 1)).astype(np.int32)
    return np.ascontiguousarray(ids[:, :-1]), np.ascontiguousarray(ids[:, 1:])


class Library:
    """What tasks have in common. A subclass imports its library when it is made, and has:

    `operations`: twenty common ops; `trainer(name, compiled)`: a step that trains a network on (data, labels) until the loss is there;
    `modules`: how many modules it has compiled.
    """

    folder = Path()
    modules = 0

    def imported(self) -> None:
        """The library is imported, and no more."""

    def resnet18(self, compiled: bool = False) -> None:
        """The first training step."""
        self.trainer("resnet18", compiled)(*images(BATCH))

    def resnet18_compiled(self) -> None:
        """The first training step, compiled."""
        self.resnet18(True)

    def resnet18_further(self) -> tuple[float, int]:
        """A training step with a second size of the batch."""
        return self.further(self.trainer("resnet18", False), *map(images, BATCHES[:2]))

    def resnet18_second_compiled(self) -> tuple[float, int]:
        """The same, compiled."""
        return self.further(self.trainer("resnet18", True), *map(images, BATCHES[:2]))

    def resnet18_further_compiled(self) -> tuple[float, int]:
        """A compiled training step with a third size."""
        return self.further(self.trainer("resnet18", True), *map(images, BATCHES))

    def efficientnet(self) -> None:
        """Two training steps, and two compiled ones of a network of its own."""
        for compiled in (False, True):
            step, batch = self.trainer("efficientnet_b0", compiled), images(BATCH)
            for _ in range(2):
                step(*batch)

    def gpt(self, compiled: bool = False) -> None:
        """The first training step."""
        self.trainer("gpt", compiled)(*texts(TOKENS))

    def gpt_compiled(self) -> None:
        """The first training step, compiled."""
        self.gpt(True)

    def gpt_second_compiled(self) -> tuple[float, int]:
        """A compiled training step on texts of a second length."""
        return self.further(self.trainer("gpt", True), *map(texts, LENGTHS[:2]))

    def gpt_further_compiled(self) -> tuple[float, int]:
        """A compiled training step on texts of a third length."""
        return self.further(self.trainer("gpt", True), *map(texts, LENGTHS))

    def lenet_compiled(self) -> None:
        """The first training step, compiled."""
        self.trainer("lenet", True)(*images(64, 10, (1, 32, 32)))

    def resnet50_compiled(self) -> None:
        """The first training step, compiled."""
        self.trainer("resnet50", True)(*images(8))

    def generation(self) -> None:
        """Tokens one by one, each of the whole text before it."""
        follow, ids = self.language(), texts(TOKENS)[0]
        for _ in range(NEW):
            ids = np.concatenate([ids, follow(ids).argmax(-1)[:, None].astype(np.int32)], 1)

    def further(self, step, *batches) -> tuple[float, int]:
        """Seconds of a step on the last batch, after one on each other, and the modules that it has compiled."""
        *others, last = batches
        for batch in others:
            step(*batch)
        start, before = time.perf_counter(), self.modules
        step(*last)
        return time.perf_counter() - start, self.modules - before


def options(name: str) -> dict:
    """Of the network of this name."""
    return GPT if name == "gpt" else {}


def twenty(x, y, f, nn, top, concat) -> list:
    """Twenty common ops of a library on two matrices of the same shape, by the names that libraries agree on."""
    return [
        x + y, x - y, x * y, x / y, -x, f.exp(x), f.log(y), f.sqrt(y), f.tanh(x), nn.sigmoid(x), nn.relu(x), f.maximum(x, y), f.matmul(x, y),
        f.sum(x, axis=1), f.mean(x, axis=0), top(x, 1), f.argmax(x, axis=1), nn.softmax(x, 1), concat([x, y], 1), f.where(x > y, x, y),
    ]  # fmt: skip


MATRICES = RNG.standard_normal((48, 48), np.float32), RNG.uniform(0.5, 2, (48, 48)).astype(np.float32)


class Tengen(Library):
    """Tengen."""

    def __init__(self):
        import tengen

        self.tengen = tengen

    @property
    def modules(self) -> int:
        """Those of this process, in whichever process or thread a compiler ran for it, quick code too."""
        from tengen.runtime.provenance import CACHE, PACK, provenance

        return sum(n for how, n in provenance.counts.items() if how not in (CACHE, PACK))

    def operation(self) -> None:
        """An addition."""
        x = self.tengen.Tensor([1.0, 2.0, 3.0])
        (x + x).numpy()

    def operations(self) -> None:
        """Twenty common ops."""
        F = self.tengen.functional
        for r in twenty(*map(self.tengen.Tensor, MATRICES), F, F, F.max, F.concat):
            r.numpy()

    def trainer(self, name: str, compiled: bool):
        """A training step."""
        import tengen.functional as F
        from tengen import Tensor, models, trace
        from tengen.autodiff import GradManager
        from tengen.optimizer import SGD

        net = getattr(models, name)(**options(name))
        gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.01, momentum=0.9)

        def train(data, label):
            with gm:
                logits = net(data)
                loss = F.loss.cross_entropy(F.reshape(logits, (-1, logits.shape[-1])), F.flatten(label))
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        run = trace(train) if compiled else train
        return lambda data, label: run(Tensor(data), Tensor(label)).item()

    def language(self):
        """The last logits of a text."""
        net = self.tengen.models.gpt(**GPT).eval()
        return lambda ids: net(self.tengen.Tensor(ids))[:, -1].numpy()

    def generation_with_caches(self) -> None:
        """Tokens one by one; keys and values of those before are kept."""
        self.tengen.models.gpt(**GPT).eval().generate(texts(TOKENS)[0], NEW)

    def resnet50_from_a_file(self) -> None:
        """The first answer of a model file."""
        self.tengen.load_graph(self.folder / "resnet50.tgn")(data=self.tengen.Tensor(images(1)[0])).numpy()

    def write(self) -> None:
        """The file for it."""
        net, x = self.tengen.models.resnet50().eval(), self.tengen.Tensor(images(1)[0])
        run = self.tengen.trace(net, example_input=x)
        run.dump(self.folder / "resnet50.tgn", arg_names=["data"])


class Torch(Library):
    """PyTorch with the definitions of `tests/models`."""

    def __init__(self):
        import torch

        self.torch = torch

    def operation(self) -> None:
        """An addition."""
        x = self.torch.tensor([1.0, 2.0, 3.0])
        (x + x).numpy()

    def operations(self) -> None:
        """Twenty common ops."""
        t = self.torch
        for r in twenty(*map(t.from_numpy, MATRICES), t, t, t.amax, t.cat):
            r.numpy()

    def network(self, name: str):
        """A definition."""
        import importlib

        sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "models"))
        definitions = importlib.import_module("torch_sequence" if name == "gpt" else "torch_vision")
        return getattr(definitions, name)(**options(name))

    def trainer(self, name: str, compiled: bool):
        """A training step."""
        net = self.network(name)
        opt = self.torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True)
        run = self.torch.compile(net) if compiled else net

        def step(data, label):
            logits = run(self.torch.from_numpy(data))
            loss = self.torch.nn.functional.cross_entropy(
                logits.reshape(-1, logits.shape[-1]), self.torch.from_numpy(label).long().flatten()
            )
            loss.backward()
            opt.step()
            opt.zero_grad(set_to_none=True)
            return loss.item()

        return step

    def language(self):
        """The last logits of a text."""
        net = self.network("gpt").eval()

        def follow(ids):
            with self.torch.inference_mode():
                return net(self.torch.from_numpy(ids))[:, -1].numpy()

        return follow

    def resnet50_from_a_file(self) -> None:
        """The first answer of a file of weights."""
        with self.torch.device("meta"):
            net = self.network("resnet50").eval()
        net.load_state_dict(self.torch.load(self.folder / "resnet50.pt", mmap=True, weights_only=True), assign=True)
        with self.torch.inference_mode():
            net(self.torch.from_numpy(images(1)[0])).numpy()

    def write(self) -> None:
        """The files for it, for onnxruntime and for OpenVINO."""
        net = self.network("resnet50").eval()
        self.torch.save(net.state_dict(), self.folder / "resnet50.pt")
        data = (self.torch.from_numpy(images(1)[0]),)
        self.torch.onnx.export(net, data, self.folder / "resnet50.onnx", dynamo=False, opset_version=17, input_names=["data"])


class Jax(Library):
    """JAX with the definitions of `jax_networks.py`: compiled, and op by op."""

    def __init__(self):
        import jax

        self.jax = jax

    def operation(self) -> None:
        """An addition."""
        x = self.jax.numpy.asarray(np.array([1, 2, 3], np.float32))
        np.asarray(x + x)

    def operations(self) -> None:
        """Twenty common ops."""
        j, nn = self.jax.numpy, self.jax.nn
        for r in twenty(*map(j.asarray, MATRICES), j, nn, j.max, j.concatenate):
            np.asarray(r)

    def trainer(self, name: str, compiled: bool):
        """A training step."""
        from jax_networks import FORWARD, sgd

        jax, j = self.jax, self.jax.numpy
        forward = {"gpt": FORWARD["GPT"], "lenet": FORWARD["LeNet"]}[name]
        weights = {k: j.asarray(a) for k, a in (gpt_weights() if name == "gpt" else lenet_weights()).items()}

        def loss_of(w, data, label):
            logits = forward(w, data)
            return -j.take_along_axis(jax.nn.log_softmax(logits.reshape(-1, logits.shape[-1])), label[:, None], 1).mean()

        def train(w, v, data, label):
            loss, g = jax.value_and_grad(loss_of)(w, data, label)
            return loss, *sgd(w, g, v, 0.01, 0.9)

        run = jax.jit(train, donate_argnums=(0, 1)) if compiled else train
        state = weights, {k: j.zeros_like(a) for k, a in weights.items()}

        def step(data, label):
            nonlocal state
            loss, *state = run(*state, j.asarray(data), j.asarray(label.ravel()))
            return float(loss)

        return step


def drawn(shapes: dict[str, tuple]) -> dict[str, np.ndarray]:
    """Weights of these shapes: scales are ones, biases zeros."""
    scale = lambda name, s: np.full(s, float("norm" in name and name.endswith("weight")), np.float32)
    return {k: scale(k, s) if len(s) == 1 else RNG.standard_normal(s, np.float32) * np.float32(0.02) for k, s in shapes.items()}


def gpt_weights() -> dict[str, np.ndarray]:
    """By Tengen's names."""
    n = GPT["width"]
    shapes = {"tokens.weight": (GPT["vocabulary"], n), "positions.weight": (GPT["context"], n), "head.weight": (GPT["vocabulary"], n)}
    for at in (f"blocks.{i}." for i in range(GPT["layers"])):
        for layer, shape in (("attn.qkv", (3 * n, n)), ("attn.proj", (n, n)), ("fc1", (4 * n, n)), ("fc2", (n, 4 * n))):
            shapes |= {f"{at}{layer}.weight": shape, f"{at}{layer}.bias": shape[:1]}
    for norm in ("norm", *(f"blocks.{i}.norm{j}" for i in range(GPT["layers"]) for j in (1, 2))):
        shapes |= {f"{norm}.weight": (n,), f"{norm}.bias": (n,)}
    return drawn(shapes)


def lenet_weights() -> dict[str, np.ndarray]:
    """By Tengen's names."""
    layers = {"conv0": (6, 1, 5, 5), "conv1": (16, 6, 5, 5), "fc0": (120, 400), "fc1": (84, 120), "classifier": (10, 84)}
    return drawn({f"{k}.{what}": s if what == "weight" else s[:1] for k, s in layers.items() for what in ("weight", "bias")})


class MegEngine(Library):
    """MegEngine: it comes without networks, so there is ResNet-18 here, and LeNet of `megengine_peer.py`."""

    def __init__(self):
        import megengine

        self.mge = megengine
        megengine.set_default_device("cpu0" if sys.argv[4] == "1" else f"multithread{sys.argv[4]}:0")

    def operation(self) -> None:
        """An addition."""
        x = self.mge.Tensor([1.0, 2.0, 3.0])
        (x + x).numpy()

    def operations(self) -> None:
        """Twenty common ops."""
        import megengine.functional as F

        for r in twenty(*map(self.mge.Tensor, MATRICES), F, F.nn, F.max, F.concat):
            r.numpy()

    def trainer(self, name: str, compiled: bool):
        """A training step."""
        from megengine_peer import LeNet, resnet18, step_of

        step = step_of({"lenet": LeNet, "resnet18": resnet18}[name](), compiled, 0.01, 0.9)
        return lambda data, label: step(self.mge.Tensor(data), self.mge.Tensor(label)).item()


class Onnxruntime(Library):
    """onnxruntime: answers from a file alone."""

    def __init__(self):
        import onnxruntime

        self.library = onnxruntime

    def resnet50_from_a_file(self) -> None:
        """The first answer of a model file."""
        settings = self.library.SessionOptions()
        settings.intra_op_num_threads = int(sys.argv[4])
        session = self.library.InferenceSession(str(self.folder / "resnet50.onnx"), settings, providers=["CPUExecutionProvider"])
        session.run(None, {"data": images(1)[0]})


class Openvino(Library):
    """OpenVINO: answers from a file alone."""

    def __init__(self):
        import openvino

        self.library = openvino

    def resnet50_from_a_file(self) -> None:
        """The first answer of a model file."""
        settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": int(sys.argv[4]), "PERFORMANCE_HINT": "LATENCY"}
        request = self.library.Core().compile_model(self.folder / "resnet50.onnx", "CPU", settings).create_infer_request()
        request.infer({0: images(1)[0]})


class Numpy(Library):
    """NumPy, which every library imports."""


LIBRARIES = {
    "tengen": Tengen, "torch": Torch, "jax": Jax, "MegEngine": MegEngine, "onnxruntime": Onnxruntime, "openvino": Openvino, "numpy": Numpy,
}  # fmt: skip


def main() -> None:
    who, task, folder, _, *more = sys.argv[1:]
    watch = None
    if more:
        import causes

        watch = causes.Watch()
    Library.folder = Path(folder)
    library = LIBRARIES[who]()
    if watch:
        watch.begin()
    seconds, modules = getattr(library, task)() or (None, None)
    if who == "tengen" and modules is None and task != "imported":
        modules = library.modules
    print(json.dumps({"seconds": seconds, "modules": modules, "causes": watch.end() if watch else None}), flush=True)
    if who == "tengen" and task != "imported":
        library.tengen.jit.wait_for_compilation()  # so that the next process finds good code: the time is over by now


if __name__ == "__main__":
    main()
