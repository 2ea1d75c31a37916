"""A tour of the house: how a deep-learning compiler works, from a line of Python down to bytes of machine code.

    python docs/tour.py

Read this file from top to bottom, with what it prints beside it. Five things go through the floors of the house, each a
little larger than the one before: one op, one fused kernel, one training step, one file, one compiled artifact. Each chapter says on which
floor (folder of src/tengen) it is, shows what that floor has made, and ends by comparing results as bytes. It takes some seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import io
import json
import mmap
import re
import tempfile
from pathlib import Path

import numpy as np

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, load_graph, trace
from tengen.autodiff import GradManager
from tengen.base.config import config
from tengen.base.dtype import float32
from tengen.codegen.targets import Target
from tengen.compiler.arrays import array_over, buffer_over
from tengen.compiler.building import build
from tengen.compiler.plans import Layout
from tengen.compiler.program import Program
from tengen.deploy import compile_model
from tengen.deploy.objects import read_object
from tengen.ir.graph import Graph
from tengen.ir.text import print_graph
from tengen.kernels.lowering import Lowering
from tengen.kernels.steps_text import print_steps
from tengen.loops.derive import derive
from tengen.loops.interp import interpret
from tengen.loops.lang import var
from tengen.loops.text import print_expr, print_kernel
from tengen.ops.define import elementwise
from tengen.optimizer import SGD
from tengen.passes.lower import lower
from tengen.passes.pipeline import optimize
from tengen.runtime.compile import compile_object, load_object
from tengen.tensor.recorder import Recorder

TARGET = Target.host()  # the processor that this runs on; any other could be compiled for as well


def chapter(title: str) -> None:
    print(f"\n\n{'=' * 100}\n{title}\n{'=' * 100}")


def floor(name: str, what: str, text: str = "", most: int = 30) -> None:
    """The floor that we are on, what it does, and what it has made: its first `most` lines."""
    print(f"\n[{name}] {what}")
    lines = text.strip("\n").split("\n") if text else []
    shown = [line if len(line) <= 116 else line[:113] + "..." for line in lines[:most]]
    print("".join(f"    {line}\n" for line in shown), end="")
    if len(lines) > most:
        print(f"    ... and {len(lines) - most} lines more")


def same_bits(**results: np.ndarray) -> None:
    """Compares results as bytes, not within a tolerance."""
    digests = {name: hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()[:16] for name, a in results.items()}
    assert len(set(digests.values())) == 1, f"the bits differ: {digests}"
    print(f"\n==> the same bits: {' = '.join(digests)} (digest {digests.popitem()[1]})")


def recorded(name: str, function, *arguments: Tensor) -> Graph:
    """The graph of a function. While a `Recorder` is active, an op that is called does not run: it becomes a node."""
    with Recorder(name, lines=False) as recorder:
        stand_ins = [recorder.argument(f"x{i}", t) for i, t in enumerate(arguments)]  # types without values
        return recorder.finish([("y", function(*stand_ins))])


def program_of(graph: Graph, lowering: Lowering) -> Program:
    """One function in LLVM IR that launches all kernels, with a place in memory for every value between them."""
    reads = [("in", i) for i in range(len(graph.inputs))]
    reads += [("state", name) for name in graph.states] + [("const", name) for name in graph.constants]
    return build(lowering, reads, [("out", i) for i in range(len(graph.outputs))], graph.name)


def machine_code(program: Program) -> None:
    """LLVM's part: an object file, as a C compiler would write it."""
    code = compile_object(program.text, program.target)
    size = read_object(code).code_bytes
    floor("runtime", f"LLVM made {size:,} bytes of machine code for {program.target.cpu}, in an object of {len(code):,} bytes")


# ---- 1. one op --------------------------------------------------------------------------------------------------------------


def softsign(x):
    """x / (1 + |x|), from -1 to 1."""
    return x / (abs(x) + 1.0)


def one_op(x: np.ndarray) -> None:
    chapter("1. One op: softsign(x) = x / (1 + |x|)")

    # An op is defined once. This one is a scalar expression: the function above, called with a variable in place of a number.
    v = var("x", float32)
    floor("ops", "the definition, as an expression of the kernel language", print_expr(softsign(v)))

    # Gradients of such ops are not written by anyone: expressions have derivatives.
    floor("loops", "its derivative, made by the chain rule", print_expr(derive(softsign(v), v)))

    # The decorator makes an op of the function: with rules for shapes and dtypes, a gradient, and a place in the registry.
    op = elementwise(result="float")(softsign)
    graph = recorded("softsign", op, Tensor(x))
    floor("ir", "a call as a graph: what is computed, tensor by tensor", print_graph(graph))

    # Lowering is the crossing from graphs to loops. A kernel computes one piece of its output; the pieces are independent, so
    # that threads may share them. A vector has 16 lanes on every processor: `f32x16` is a number of the language.
    lowering, _ = lower(graph, TARGET)
    kernel = lowering.launches[0].kernel
    floor("kernels", "the same as a loop: how it is computed, element by element", print_kernel(kernel))

    # What a kernel means is said by an interpreter of 300 lines in plain Python. The compiler has to give the same bits.
    meaning = np.zeros_like(x)
    interpret(kernel, [x.ravel(), meaning.ravel()])

    # From here on it is what every compiler does: LLVM IR for a target, machine code, and a call. There is no flag that allows
    # LLVM to reorder or to contract anything: `fdiv`, not `fdiv fast`.
    program = program_of(graph, lowering)
    floor("codegen", "the kernel in LLVM IR for this processor", program.text[program.text.index("define") :].split("}")[0], 36)
    machine_code(program)

    # A plan is a C function that is called with buffers: it takes memory for the result, runs the program, returns the buffer.
    result = program.plan(1, [x.nbytes])(buffer_over(x))
    native = array_over(result, Layout(x.shape, float32))

    # And this is what a user writes. It went the same way, except that its kernel leaves the extent open: one serves all sizes.
    eager = op(Tensor(x)).numpy()
    same_bits(interpreter=meaning, machine_code=native, eager_call=eager)


# ---- 2. one fused kernel ----------------------------------------------------------------------------------------------------


def scores(x):
    """Written as one writes: with a value that nobody needs, and another one computed twice."""
    F.exp(x)
    return F.softmax(F.tanh(x * 0.5) + F.tanh(x * 0.5), axis=1)


def one_fused_kernel(x: np.ndarray) -> None:
    chapter("2. One fused kernel: softmax of tanh(x / 2) + tanh(x / 2)")

    # The body of a composite op is recorded in its place: softmax is five nodes here.
    graph = recorded("scores", scores, Tensor(x))
    floor("ir", f"as it was recorded: {len(graph.nodes)} nodes", print_graph(graph))

    # Passes take a graph and give a graph. None of them may change a bit, so none reorders a sum.
    with config.scope(debug=2), contextlib.redirect_stdout(io.StringIO()) as told:
        optimized = optimize(graph)
    before = print_graph(graph)
    for name, text in re.findall(r"^# after (\S+)[^\n]*\n(.*?)(?=^# after |\Z)", told.getvalue(), re.MULTILINE | re.DOTALL):
        if text.strip() != before.strip():
            before = text
            floor("passes", f"after {name}", text)

    # What was fused is one kernel. It goes over a row three times (for its largest element, for the exponentials and their sum,
    # and to divide) while the row is in the nearest cache, and stores the exponentials where the result will be, nothing else.
    # `first 8`: what is left over behind the last 16 elements. `fold.add`: 16 lanes are added by a fixed tree.
    lowering, _ = lower(optimized, TARGET)
    (launch,) = lowering.launches
    floor("kernels", f"{len(graph.nodes)} nodes became one kernel", print_kernel(launch.kernel), most=44)

    fused = trace(scores)(Tensor(x)).numpy()
    same_bits(op_by_op=scores(Tensor(x)).numpy(), fused=fused)


# ---- 3. one trace -----------------------------------------------------------------------------------------------------------


def training():
    """A small network, and a step that trains it: forward, backward, update."""
    rng = np.random.default_rng(7)
    net = M.Sequential(M.Linear(8, 16), M.ReLU(), M.Linear(16, 3))
    for name, p in net.named_parameters():
        p[...] = Tensor(rng.normal(size=p.shape).astype("float32"))
        p.name = name
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        with gm:
            loss = F.loss.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return net, step


def one_trace(x: Tensor, y: Tensor) -> None:
    chapter("3. One trace: a training step of a network of two layers")

    # Gradient rules are ops, and so is an optimizer's update: recording the step records the backward pass along with it.
    # Parameters, momentum and the learning rate become states, which are read when a run begins and written when it ends.
    _, step = training()
    graph = optimize(recorded("step", step, x, y))
    floor("passes", f"forward, backward and update: {len(graph.nodes)} nodes after all passes", print_graph(graph), most=36)

    # A program is a tree of steps; here it has launches alone. (An LSTM has a loop, whose body is written once.)
    lowering, _ = lower(graph, TARGET)
    tree = print_steps(lowering).split("\nkernel ")[0]
    floor("kernels", "the program as a tree of steps, and its temporaries", tree, most=40)

    # All temporaries lie in one block. Two that are never needed at the same time share their bytes.
    program = program_of(graph, lowering)
    temps = program.temps
    offsets, arena = temps.place(temps.sizes)
    rows = [f"bytes {at:6} to {at + size:6}   needed by steps {life[0][0]} to {life[-1][1]}"
            for at, size, life in zip(offsets, temps.sizes, temps.lives)]  # fmt: skip
    floor("compiler", f"the memory plan: {sum(temps.sizes):,} bytes of temporaries in {arena:,}", "\n".join(rows), most=12)
    floor("codegen", f"{program.kernels} kernels and the code that launches them: {program.text.count(chr(10)):,} lines of IR")
    machine_code(program)

    # `trace` is all of this in one line. Three steps with it and three without end in the same parameters.
    found = {}
    for way in ("eager", "traced"):
        net, step = training()
        run = trace(step) if way == "traced" else step
        for _ in range(3):
            run(x, y)
        found[way] = np.concatenate([p.numpy().ravel() for p in net.parameters()])
    same_bits(**found)


# ---- 4. one file ------------------------------------------------------------------------------------------------------------


def one_file(x: Tensor, path: Path):
    chapter("4. One file: weights and program")
    net, _ = training()
    run = trace(net, example_input=x)
    run.dump(path, arg_names=["x"], output_names=["scores"])

    # The file is in the safetensors format, which anybody can read: the length of a header, the header, the numbers. The graph
    # is a text in it. Nothing in a file is executed, and loading checks every type against the ops' own rules.
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__")
    rows = [f"{name}: {t['dtype']}{t['shape']} in bytes {t['data_offsets']}" for name, t in header.items()]
    rows += [f"{key}: {value}" for key, value in metadata.items()]
    floor("deploy", f"a file of {len(data):,} bytes: tensors, then texts", "\n".join(rows))

    model = load_graph(path)
    floor("deploy", "loaded, it is a graph again, and goes through the same floors", print_graph(model.graph))
    same_bits(network=net(x).numpy(), loaded_file=model(x=x).numpy())
    return net


# ---- 5. one artifact --------------------------------------------------------------------------------------------------------


def one_artifact(net, x: Tensor, file: Path, folder: Path) -> None:
    chapter("5. One artifact: an object file and a header for a program in C")

    # The same kernels, compiled ahead of time, for this processor or another one. The object needs nothing but libc.
    for target in ("x86-64-v3", "aarch64"):
        made = compile_model(file, target, folder / target, "net")
        floor("deploy", f"{target}: {made.kernels} kernels, {made.code_bytes:,} bytes of code, {made.weights_bytes:,} of weights")
    header = Path(made.files[1]).read_text()
    floor("deploy", "what a C program includes", header[header.index("/* Runs") :].split("#ifdef")[0])

    # Run it here as a C program would: its own copy of the weights, memory for its temporaries, one call.
    made = compile_model(file, "native", folder / "native", "net")
    code = load_object(Path(made.files[0]).read_bytes(), TARGET)
    weights = np.memmap(made.files[2], np.uint8, "c")  # mapped memory begins on a page, and so on a multiple of 64
    workspace = np.frombuffer(mmap.mmap(-1, made.workspace_bytes), np.uint8)
    result = np.zeros(made.outputs[0].shape, np.float32)
    run = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(code.address("net_run"))
    assert run(*(a.ctypes.data for a in (weights, workspace, x.numpy(), result))) == 0
    same_bits(eager=net(x).numpy(), compiled_ahead_of_time=result)


def main() -> None:
    rng = np.random.default_rng(0)
    one_op(rng.normal(size=(3, 50)).astype("float32"))
    one_fused_kernel(rng.normal(size=(4, 40)).astype("float32"))
    x, y = Tensor(rng.normal(size=(5, 8)).astype("float32")), Tensor(rng.integers(0, 3, 5).astype("int32"))
    one_trace(x, y)
    with tempfile.TemporaryDirectory() as folder:
        net = one_file(x, Path(folder) / "net.tgn")
        one_artifact(net, x, Path(folder) / "net.tgn", Path(folder))
    print("\nThat was the house. docs/architecture.md says more about each floor, docs/numerics.md what its bits are.")


if __name__ == "__main__":
    main()
