"""The peers' sides of inference and training: PyTorch, onnxruntime, OpenVINO; `jax_peer.py` has JAX's.

In: a network and Tengen's module, whose weights they take. Out: calls for `compare.Case`. Each peer runs as its documentation
asks for speed in float32 with the benchmarks' number of threads: PyTorch's convolutions channels-last, its inference without
autograd's records, its optimizers fused, torch.compile with weights frozen; OpenVINO for latency on all processors, its results not
copied; onnxruntime with all its rewriting. What else there is stays at its default, spinning between calls too: `compare.rest` waits
for it. README.md has these rules as a table.
"""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Callable

import compare
import numpy as np
from networks import RATES, Network, torch_name

INFERENCE = ("onnxruntime", "openvino", "torch.compile", "torch")


def onnx_file(net, data: np.ndarray, folder: str) -> str:
    """PyTorch's network as an ONNX file for inputs like `data`."""
    import torch

    file = f"{folder}/model.onnx"
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (torch.from_numpy(data),), file, dynamo=False, opset_version=17, input_names=["data"])
    return file


def onnxruntime_session(file: str):
    """A session on as many threads as Tengen has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = compare.THREADS, 1
    options.log_severity_level = 3  # errors
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def onnxruntime_call(file: str, data: np.ndarray) -> Callable:
    """A session's run."""
    session = onnxruntime_session(file)
    return lambda: session.run(None, {"data": data})[0]


def openvino_call(file: str, data: np.ndarray) -> Callable:
    """A compiled model's inference request."""
    import openvino

    settings = {
        "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": compare.THREADS, "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_HYPER_THREADING": True,  # for latency it would use one processor of each core
    }  # fmt: skip
    request = openvino.Core().compile_model(file, "CPU", settings).create_infer_request()
    return lambda: request.infer({0: data}, share_inputs=True, share_outputs=True)[0]


def torch_call(net, network: Network, data: np.ndarray, compiled: bool, first: bool = True) -> Callable:
    """PyTorch's, channels-last where there are convolutions; `first`: run once before, so that it is compiled."""
    import torch

    x = torch.from_numpy(data)
    if network.convolutions:
        net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    if compiled:
        net = torch.compile(net, options={"freezing": True}, dynamic=False)

    def run():
        with torch.inference_mode():
            return net(x)

    if first:
        run()
    return run


def inference(network: Network, module, data: np.ndarray, who: str) -> Callable:
    """One peer's inference."""
    if compare.peer("torch") is None:
        raise ImportError("the definitions are PyTorch's")
    net = network.torch(module)
    if who.startswith("torch"):
        return torch_call(net, network, data, who == "torch.compile")
    if compare.peer(who) is None:
        raise ImportError(who)
    if who == "openvino" and compare.ISA and not network.convolutions:
        raise RuntimeError("its products take AVX-512, whatever oneDNN is told; its convolutions stop at AVX2")
    with tempfile.TemporaryDirectory() as folder:
        file = onnx_file(net, data, folder)
        return {"onnxruntime": onnxruntime_call, "openvino": openvino_call}[who](file, data)


class TorchTrainer:
    """PyTorch's side of training, from the weights of Tengen's module, or of PyTorch's own. `style`: "eager", "channels-last" or "compile"
    (channels-last where there are convolutions). `block`: makes what the forward pass runs in."""

    def __init__(
        self, network: Network, module, batch: int, style: str, shape: tuple[int, ...] | None = None,
        block: Callable = contextlib.nullcontext, **options,
    ):  # fmt: skip
        import torch

        given = isinstance(module, torch.nn.Module)
        self.net = net = module if given else network.torch(module, training=True, **options)
        data, label = (torch.from_numpy(a) for a in (network.data(batch, shape=shape), network.labels(batch, shape=shape)))
        label = label.long().flatten()  # the dtype that its loss takes, converted once
        if network.convolutions and style != "eager":
            net.to(memory_format=torch.channels_last)
            data = data.contiguous(memory_format=torch.channels_last)
        kind = {"SGD": torch.optim.SGD, "AdamW": torch.optim.AdamW}[network.optimizer]
        opt = kind(net.parameters(), **RATES[network.optimizer], fused=True)
        run = torch.compile(net, dynamic=False) if style == "compile" else net

        def step():
            with block():
                loss = torch.nn.functional.cross_entropy(run(data).reshape(-1, network.classes), label)
            loss.backward()
            opt.step()
            opt.zero_grad(set_to_none=True)
            return loss.detach()

        self.step: Callable = step

    def weights(self) -> dict[str, np.ndarray]:
        """The parameters' values by name."""
        return {torch_name(k): p.detach().numpy().copy() for k, p in self.net.named_parameters()}


def torch_styles(network: Network) -> dict[str, str]:
    """Name of the contender -> style."""
    if network.convolutions:
        return {"torch": "eager", "torch, channels-last": "channels-last", "torch.compile": "compile"}
    return {"torch": "eager", "torch.compile": "compile"}


def forget() -> None:
    """Drops what torch.compile keeps, so that the next case starts anew."""
    if torch := compare.peer("torch"):
        torch._dynamo.reset()
