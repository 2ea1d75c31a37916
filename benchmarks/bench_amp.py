"""bfloat16: matrix products, inference and training steps under `amp.autocast`, against PyTorch's autocast.

"tengen" computes products by dot products of bfloat16 (`precision="bfloat16"`) where the processor has them; rows "highest" have
the same storage and multiply in float32, rows "float32" no autocast. Elsewhere "tengen" is what "highest" is there, and products
have a row "emulated" too: what the dot products' bits cost without the instruction. PyTorch's side is `torch.autocast("cpu",
torch.bfloat16)`, channels-last where there are convolutions, eager and compiled; it is entered once for a turn of inference, so that
the weights it has converted are kept, as Tengen's constants are. Losses and logits are compared within what bfloat16 rounds, Tengen's
traced and eager results as bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

import compare
import numpy as np
import peers
from compare import Case, Cell, Goal
from networks import NETWORKS, Inference, Trainer

import tengen
import tengen.functional as F
from tengen import amp
from tengen.codegen.targets import Target

SIZES = (1024, 2048)
TRAINED = {"GPT": 8, "ViT-Tiny": 16, "ResNet-50": 8}
RUN = {"GPT": 1, "ViT-Tiny": 8, "ResNet-50": 8}
STEPS = 2  # before Tengen's traced and eager weights are compared
NEAR = 0.02  # of a loss, or of the largest logit
PAIRS = partial(amp.autocast, dtype="bfloat16", precision="bfloat16")
HIGHEST = partial(amp.autocast, dtype="bfloat16")
NATIVE = Target.host().has("avx512bf16")
BLOCKS: dict[str, Callable] = {
    **({"tengen": PAIRS, "tengen highest": HIGHEST} if NATIVE else {"tengen": HIGHEST}),
    "tengen float32": contextlib.nullcontext,
}
EMULATED: dict[str, Callable] = {} if NATIVE else {"tengen emulated": PAIRS}  # of products; whole networks would take minutes


def torch_block():
    """PyTorch's autocast."""
    import torch

    return torch.autocast("cpu", torch.bfloat16)


@contextlib.contextmanager
def off_the_tape():
    """PyTorch's autocast where nothing is differentiated."""
    import torch

    with torch.inference_mode(), torch_block():
        yield


def styles(quick: bool) -> list[str]:
    """PyTorch's contenders; quickly, without the one that compiles for a minute."""
    return [] if compare.peer("torch") is None else ["torch"] if quick else ["torch", "torch.compile"]


def product(n: int) -> Case:
    """Square matrices that are in bfloat16 already."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((n, n), np.float32) for _ in range(2)]
    low = [tengen.Tensor(a).astype("bfloat16") for a in arrays]
    wide = [tengen.Tensor(a) for a in arrays]

    def multiply(block: Callable, operands: list) -> Callable:
        def run():
            with block():
                return F.matmul(*operands)

        return run

    contenders = {who: multiply(block, wide if who == "tengen float32" else low) for who, block in (BLOCKS | EMULATED).items()}
    if torch := compare.peer("torch"):
        a, b = (torch.from_numpy(x).bfloat16() for x in arrays)
        contenders["torch"] = lambda: a @ b

    def check() -> None:
        exact = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
        for who, call in contenders.items():
            got = call()
            got = np.asarray((got.float() if who == "torch" else got.astype("float32")).numpy(), np.float64)
            assert np.abs(got - exact).max() < NEAR * np.abs(exact).max(), who

    block = torch.inference_mode if torch else contextlib.nullcontext
    return Case(f"matmul {n}", contenders, Goal(1.0, "fastest"), 2.0 * n**3, check=check, torch_block=block)


def inference(name: str, batch: int, quick: bool) -> Case:
    """A network's logits."""
    network = NETWORKS[name]
    mine = {who: Inference(network, batch, block) for who, block in BLOCKS.items()}
    contenders: dict[str, Callable] = {who: x.traced for who, x in mine.items()}
    peers.forget()
    for who in styles(quick):
        theirs = network.torch(mine["tengen"].net), network, network.data(batch), who == "torch.compile"
        contenders |= compare.attempt(who, partial(peers.torch_call, *theirs, first=False))
    case = Case(f"{name}, inference, batch {batch}", contenders, Goal(1.0, "fastest"), 1e9 * batch * network.forward)
    case.torch_block = off_the_tape

    def check() -> None:
        exact = np.asarray(mine["tengen float32"].traced().numpy(), np.float64)
        for who, run in contenders.items():
            with case.block(who):
                got = run()
            got = np.asarray((got.float() if who.startswith("torch") else got.astype("float32")).numpy(), np.float64)
            assert np.abs(got - exact).max() < 3 * NEAR * np.abs(exact).max(), who
        for who, x in mine.items():
            same = x.traced().astype("float32").numpy().tobytes() == x.eager().astype("float32").numpy().tobytes()
            assert same, f"{who}: eager and traced logits differ in their bits"

    case.check = check
    return case


def training(name: str, batch: int, quick: bool) -> Case:
    """A network's step."""
    network = NETWORKS[name]
    mine = {who: Trainer(network, batch, True, block=block) for who, block in BLOCKS.items()}
    eager = Trainer(network, batch, False, block=BLOCKS["tengen"])
    contenders: dict[str, Callable] = {who: x.step for who, x in mine.items()}
    peers.forget()
    plain = "channels-last" if network.convolutions else "eager"
    for who in styles(quick):
        style = plain if who == "torch" else "compile"
        make = partial(peers.TorchTrainer, network, mine["tengen"].net, batch, style, block=torch_block)
        contenders |= {k: t.step for k, t in compare.attempt(who, make).items()}

    def check() -> None:
        losses = {who: float(step().item()) for who, step in contenders.items()}
        for loss in losses.values():
            assert abs(loss - losses["tengen float32"]) < NEAR * abs(loss), f"losses {losses}"
        eager.step()
        for _ in range(1, STEPS):
            mine["tengen"].step(), eager.step()
        after = mine["tengen"].weights()
        for k, w in eager.weights().items():
            assert w.tobytes() == after[k].tobytes(), f"eager and traced {k} differ in their bits"

    return Case(f"{name}, training, batch {batch}", contenders, Goal(1.0, "fastest"), network.step_work(batch), check=check)


def cells(quick: bool) -> list[Cell]:
    """The cases."""
    products = [Cell(f"matmul {n}", partial(product, n), n == SIZES[0]) for n in SIZES]
    runs = [Cell(f"{name}, inference, batch {n}", partial(inference, name, n, quick)) for name, n in RUN.items()]
    steps = [Cell(f"{name}, training, batch {n}", partial(training, name, n, quick)) for name, n in TRAINED.items()]
    return [*products, *runs, *steps]


if __name__ == "__main__":
    args = compare.arguments("amp", 8.0)
    compare.main("amp", "bfloat16 under autocast", cells(args.quick), args=args)
