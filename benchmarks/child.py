"""One contender alone in a process: what `bench_memory.py` starts.

    python child.py <contender> <network> <batch> <inference|training> [FILE]

FILE is an ONNX model, for `tengen` a model file, for PyTorch and "tengen, mapped" a file of weights, which is mapped. Without it
the weights are drawn: `tengen` traces a module whose weights are constants, as "tengen, mapped" does, and "tengen, module" one
whose weights stay the module's, read anew in each run.

Out: one line of JSON on the standard output. `base`: resident bytes after importing and a first small program; `peak`: the most
while the network was made and the call was run STEPS times after the first, compiling left out.
"""

from __future__ import annotations

import contextlib
import json
import sys

STEPS = 3


def resident(field: str) -> int:
    """VmRSS or VmHWM (the peak) in bytes."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith(field))


def forget_peak() -> None:
    """Lets the peak begin anew at what is resident now."""
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")


def tengen_side(network, batch: int, training: bool, style: str, file: str):
    """(what makes the call, done after `base`, which returns what compiles and runs it)."""
    from networks import Inference, Trainer

    import tengen

    def make():
        if style == "mapped":
            net, data = network.tengen(), tengen.Tensor(network.data(batch))
            net.load_state_dict(tengen.load(file, mmap=True))
            run = tengen.trace(net, capture_as_const=True)
            return lambda: run(data).numpy()
        if file or style == "module":
            run, data = tengen.load_graph(file) if file else tengen.trace(network.tengen()), tengen.Tensor(network.data(batch))
            return lambda: run(data).numpy()
        if training:
            trainer = Trainer(network, batch, traced=True)
            return lambda: trainer.step().numpy()
        run = Inference(network, batch).traced
        return lambda: run().numpy()

    return make


def torch_side(network, batch: int, training: bool, style: str, file: str):
    """PyTorch eager or compiled."""
    import torch
    from peers import TorchTrainer, torch_call

    if style == "compile":
        torch.compile(lambda x: x + 1)(torch.ones(3))

    def make():
        with torch.device("meta") if file else contextlib.nullcontext():
            net = network.torch(None, training=training)
        if file:
            net.load_state_dict(torch.load(file, mmap=True, weights_only=True), assign=True)
        if training:
            return TorchTrainer(network, net, batch, style).step
        return torch_call(net, network, network.data(batch), style == "compile", first=False)

    return make


def session_side(who: str, network, batch: int, file: str):
    """onnxruntime or OpenVINO, from a file."""
    import importlib

    from peers import onnxruntime_call, openvino_call

    importlib.import_module(who)
    data = network.data(batch)

    def make():
        held: list = []

        def run():
            if not held:
                held.append((onnxruntime_call if who == "onnxruntime" else openvino_call)(file, data))
            return held[0]()

        return run

    return make


def jax_side(network, batch: int):
    """JAX's step, from Tengen's weights."""
    from jax_peer import JaxTrainer

    weights = {k: p.numpy().copy() for k, p in network.tengen().named_parameters()}
    return lambda: JaxTrainer(network, weights, batch).step


def main() -> None:
    who, name, batch, kind, *more = sys.argv[1:]
    import compare  # it sets the number of threads
    from networks import NETWORKS

    network, training = NETWORKS[name], kind == "training"
    file, style = (more or [""])[0], who.partition(", ")[2]
    if who.startswith("tengen"):
        import tengen

        tengen.trace(lambda x: x + 1)(tengen.Tensor([1.0])).numpy()
        make = tengen_side(network, int(batch), training, style, file)
    elif who.startswith("torch"):
        compare.peer("torch")
        make = torch_side(network, int(batch), training, who.partition(".")[2] or style or "eager", file)
    elif who == "jax":
        make = jax_side(network, int(batch))
    else:
        make = session_side(who, network, int(batch), file)
    base = resident("VmRSS")
    forget_peak()
    call = make()
    call()
    if who.startswith("tengen"):
        tengen.jit.wait_for_compilation()  # what runs from here on is good code
        call()
    forget_peak()
    for _ in range(STEPS):
        call()
    print(json.dumps({"base": base, "peak": resident("VmHWM")}), flush=True)


if __name__ == "__main__":
    main()
