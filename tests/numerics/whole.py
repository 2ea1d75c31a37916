"""Whole models, compiled ahead of time and run many at once: single ops, pairs of ops, and graphs with unusual outputs.

Every model is an object file of its own, as `tengen compile` writes it. All of them run in one process over one block of memory:
those for this processor in this process, others in one program that is linked once and emulated. Each runs twice, so that what a
run leaves in its workspace must not matter.

    python tests/numerics/whole.py 1000 7     # a longer hunt: so many pairs, drawn from this seed, and all single ops
"""

from __future__ import annotations

import ctypes
import random
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    sys.path += [str(here.parent / folder) for folder in ("", "kernels", "codegen", "ops")]

from programs import apply
from recorded import dumped
from test_each_op import CASES, OF_ARTIFACTS, TARGETS, given, of_artifact
from ways import agree, arrays

import tengen.functional as F
from tengen import Tensor, load_graph
from tengen.autodiff import GradManager
from tengen.base.errors import ShapeError, TengenError, TraceError, UsageWarning
from tengen.codegen.targets import Target
from tengen.deploy import CannotRun, compile_model
from tengen.deploy.compile import Artifact
from tengen.deploy.emulators import runner
from tengen.deploy.model import Model
from tengen.deploy.run import link_program
from tengen.ops.define import Case, Op
from tengen.runtime.compile import load_object

ALIGN, MARGIN = 64, 64
RUNS = 2


@dataclass
class Whole:
    """A model, what it is given, what its last run gives eagerly, and what its states are then."""

    name: str
    model: Model
    inputs: list[np.ndarray]
    want: list[np.ndarray]
    states: list[np.ndarray]


def whole(name: str, folder: Path, make: Callable[[], Callable], inputs: Sequence[np.ndarray]) -> Whole:
    """The function that `make` returns, with states of its own each time, as a model that was written to a file and loaded, beside
    the results of its eager runs. Errors: TraceError where it cannot be recorded."""
    eager = make()
    for _ in range(RUNS):
        want = arrays(eager(*map(Tensor, inputs)))
    file = folder / "model.tgn"
    dumped(make(), list(map(Tensor, inputs)), file)
    model, ran = load_graph(file), load_graph(file)
    for _ in range(RUNS if model.initial else 0):
        ran(*inputs)
    return Whole(name, model, list(inputs), want, [ran.states[k].numpy() for k in ran.graph.states])


# ---- ops and pairs of ops ------------------------------------------------------------------------------------------------


def singles(folder: Path, seed: int, cases: Sequence = CASES) -> Iterable[Whole]:
    """Ops on sample inputs, in a dtype by chance, or in float32 where they do not take that one."""
    for p in cases:
        op, case = p.values
        for name in dict.fromkeys([of_artifact(p.id, seed), "float32"]):
            if (ins := given(op, case, name)) is not None:
                yield from recorded(f"{p.id} {name}", folder, lambda *x: tuple(apply(op, list(x), case.attrs)), ins)  # noqa: B023  (called at once)
                break


def gradients(folder: Path, at_once: int = 8) -> Iterable[Whole]:
    """Derivatives of elementwise ops, which are ops that only gradients use, some ops in a model."""
    ops = [op for op, case in (p.values for p in CASES if p.id.endswith("-numbers")) if _slopes(op, _numbers(op, case))]
    cases = {p.values[0].name: p.values[1] for p in CASES if p.id.endswith("-numbers")}
    for i in range(0, len(ops), at_once):
        some = ops[i : i + at_once]
        inputs = [_numbers(op, cases[op.name]) for op in some]
        counts = [len(x) for x in inputs]

        def f(*tensors):
            it = iter(tensors)
            return tuple(g for op, n in zip(some, counts) for g in _slopes(op, [next(it) for _ in range(n)]))  # noqa: B023  (called at once)

        yield whole(f"gradients of {', '.join(op.name for op in some)}", folder, lambda f=f: f, [a for x in inputs for a in x])


def _numbers(op: Op, case: Case) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return [np.asarray(a, np.float32) for a in case.inputs(np.random.default_rng(5))]


def _slopes(op: Op, operands: Sequence) -> list[Tensor]:
    """Gradients of an op's operands; none where it has no gradient."""
    xs = [Tensor(x) if isinstance(x, np.ndarray) else x for x in operands]
    gm = GradManager().attach(xs)
    try:
        with gm, warnings.catch_warnings():
            warnings.simplefilter("ignore", UsageWarning)  # of an op without a gradient
            gm.backward(F.sum(apply(op, xs, {})[0]))
    except TengenError:
        return []
    found = [x.grad for x in xs]
    for x in xs:
        x.grad = None
    return [g for g in found if g is not None]


def recorded(name: str, folder: Path, f: Callable, ins: list) -> Iterable[Whole]:
    """The function of tensors and Nones as a model of its tensors; nothing where its shapes depend on values."""

    given = [a is not None for a in ins]

    def of_tensors(*tensors):
        it = iter(tensors)
        return f(*(next(it) if here else None for here in given))

    try:
        yield whole(name, folder, lambda: of_tensors, [a for a in ins if a is not None])
    except TraceError:
        pass


def pairs(folder: Path, seed: int, count: int) -> Iterable[Whole]:
    """Two ops, of which the second reads a result of the first in place of its first operand: one of that shape, or its only one.
    What the first gave is an output too, half of the time. Pairs that do not fit together are drawn again."""
    rng = random.Random(seed)
    found = 0
    while found < count:
        (first, second), name = (rng.choice(CASES) for _ in range(2)), rng.choice(OF_ARTIFACTS)
        for w in pair(folder, first, second, name, rng.random() < 0.5):
            found += 1
            yield w


def pair(folder: Path, first, second, name: str, both: bool) -> Iterable[Whole]:
    """One pair, or nothing."""
    (a, case_a), (b, case_b) = first.values, second.values
    ins, more = given(a, case_a, name), given(b, case_b, name)
    if ins is None or not more:
        return

    n, any_shape, wanted = len(ins), len(more) == 1, None if more[0] is None else more[0].shape

    def f(*tensors):
        ys = apply(a, list(tensors[:n]), case_a.attrs)
        if not any_shape and ys[0].shape != wanted:
            raise ShapeError("the second op takes another shape")
        zs = apply(b, [ys[0], *tensors[n:]], case_b.attrs)
        return (*zs, *ys) if both else tuple(zs)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UsageWarning)  # of a softmax whose case says no axis: here its operand may have more axes
            made = list(recorded(f"{first.id} > {second.id} {name}", folder, f, [*ins, *more[1:]]))
        yield from made
    except (TengenError, TypeError, ValueError):  # the second op takes no such operand
        return


# ---- memory, and running -------------------------------------------------------------------------------------------------


@dataclass
class Call:
    """An artifact and where its arguments lie. reset: what `name_reset` takes. given: the places that a run must leave as they are,
    and what is in them."""

    what: Whole
    artifact: Artifact
    places: list[int]
    outs: list[int]
    reset: tuple[int, int] | None
    given: list[tuple[int, bytes]]


@dataclass
class Memory:
    """One block for the arguments of all artifacts, each on 64 bytes with a margin behind it."""

    data: bytearray = field(default_factory=bytearray)
    calls: list[Call] = field(default_factory=list)

    def place(self, content: bytes) -> int:
        """Puts it at the end; where that is."""
        at = len(self.data)
        self.data += content + b"\xa5" * (MARGIN + -len(content) % ALIGN)
        return at

    def add(self, w: Whole, a: Artifact) -> None:
        """The arguments of `name_run`, in the header's order."""
        blob = Path(a.files[2]).read_bytes()
        states = b"".join(bytes(-(-x.nbytes // ALIGN) * ALIGN) for x in w.states)
        kept, places, reset = [], [], None
        if blob:
            kept.append((self.place(blob), blob))
            places.append(kept[0][0])
        if w.model.initial:
            places.append(self.place(states))
            reset = places[0], places[1]
        if a.workspace_bytes:
            places.append(self.place(b"\x77" * a.workspace_bytes))
        kept += [(self.place(x.tobytes()), x.tobytes()) for x in w.inputs]
        places += [at for at, _ in kept[bool(blob) :]]
        outs = [self.place(b"\x77" * x.nbytes) for x in w.want]
        self.calls.append(Call(w, a, places + outs, outs, reset, kept))

    def run_here(self) -> None:
        """In this process."""
        block = np.zeros(len(self.data) + ALIGN, np.uint8)
        at = -block.ctypes.data % ALIGN
        block[at:][: len(self.data)] = np.frombuffer(self.data, np.uint8)
        base = block.ctypes.data + at
        for c in self.calls:
            code = load_object(Path(c.artifact.files[0]).read_bytes(), Target.named("x86-64-v3"))
            if c.reset:
                address = code.address(f"{c.artifact.name}_reset")
                ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)(*(base + x for x in c.reset))
            run = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * len(c.places))(code.address(f"{c.artifact.name}_run"))
            for _ in range(RUNS):
                assert (answer := run(*(base + x for x in c.places))) == 0, f"{c.what.name} returned {answer}"
        self.data[:] = block[at:][: len(self.data)].tobytes()

    def run_linked(self, target: str, folder: Path) -> None:
        """In one program of its own. Errors: CannotRun without the linker or the emulator."""
        start, _ = runner(Target.named(target))
        (folder / "main.c").write_text(self._main())
        link_program(Target.named(target), [str(folder / "main.c"), *(str(c.artifact.files[0]) for c in self.calls)], folder / "main")
        done = subprocess.run([*start, str(folder / "main")], input=bytes(self.data), capture_output=True)
        assert done.returncode == 0, (done.returncode, done.stderr.decode())
        assert len(done.stdout) == len(self.data)
        self.data[:] = done.stdout

    def _main(self) -> str:
        """A C program that reads the memory, runs everything, and writes the memory."""
        lines, head = [], []
        pointers = lambda places: ", ".join(f"memory + {x}" for x in places)
        for c in self.calls:
            name = c.artifact.name
            head.append(f"int {name}_run({', '.join(['void *'] * len(c.places)) or 'void'});")
            if c.reset:
                head.append(f"void {name}_reset(const void *, void *);")
                lines.append(f"  {name}_reset({pointers(c.reset)});")
            lines += [f'  if (check("{name}", {name}_run({pointers(c.places)}))) return 1;'] * RUNS
        return _MAIN.format(declared="\n".join(head), size=len(self.data), runs="\n".join(lines))

    def check(self) -> list[str]:
        """What is not as it should be: outputs with other bits, operands or margins that were written."""
        wrong = []
        for c in self.calls:
            views = (np.frombuffer(self.data, w.dtype, w.size, at).reshape(w.shape) for w, at in zip(c.what.want, c.outs))
            try:
                agree(c.what.name, [np.array(v) for v in views], c.what.want)
            except AssertionError as e:
                wrong.append(str(e))
            at = c.reset[1] if c.reset else 0
            for x in c.what.states:
                if self.data[at : at + x.nbytes] != x.tobytes():
                    wrong.append(f"{c.what.name}: a state of {x.dtype}{list(x.shape)} has other bits")
                at += -(-x.nbytes // ALIGN) * ALIGN
            if any(self.data[at : at + len(content)] != content for at, content in c.given):
                wrong.append(f"{c.what.name}: an operand was written")
            for w, at in zip(c.what.want, c.outs):
                if self.data[at + w.nbytes :][:MARGIN] != b"\xa5" * MARGIN:
                    wrong.append(f"{c.what.name}: written behind an output")
        return wrong


_MAIN = """#include <stdio.h>
{declared}
static char memory[{size}] __attribute__((aligned(64)));
static int check(const char *name, int code) {{
  if (code) fprintf(stderr, "%s_run returned %d", name, code);
  return code;
}}
int main(int argc, char **argv) {{
  (void)argc, (void)argv;
  if (fread(memory, 1, sizeof memory, stdin) != sizeof memory) return 2;
{runs}
  return fwrite(memory, 1, sizeof memory, stdout) != sizeof memory || fflush(stdout);
}}
"""


def failures(wholes: Iterable[Whole], target: str, folder: Path) -> tuple[int, list[str], str]:
    """How many models were compiled and run, what is wrong with them, and why they were compiled only, if so."""
    memory, wrong = Memory(), []
    for i, w in enumerate(wholes):
        ports = [(p.shape, p.dtype.numpy) for p in w.model.outputs]
        if ports != [(a.shape, a.dtype) for a in w.want]:
            wrong.append(f"{w.name}: gives {w.model.outputs}, eagerly {[(a.shape, a.dtype) for a in w.want]}")
            continue
        try:
            memory.add(w, compile_model(w.model, target, folder, f"p{i}"))
        except Exception as e:  # every graph that runs compiles
            wrong.append(f"{w.name}: {type(e).__name__}: {e}")
    if memory.calls:
        if Target.named(target).arch == Target.host().arch:
            memory.run_here()
        else:
            try:
                memory.run_linked(target, folder)
            except CannotRun as e:
                return len(memory.calls), wrong, f"compiled, not run: {e}"
    return len(memory.calls), wrong + memory.check(), ""


def main() -> None:
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    for target in TARGETS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            for what, wholes in (("ops", singles(path, seed)), ("gradients", gradients(path)), ("pairs", pairs(path, seed, count))):
                n, wrong, skipped = failures(wholes, target, path)
                print(f"{target}: {n} {what}, {len(wrong)} failures {skipped}", *wrong, sep="\n", flush=True)


if __name__ == "__main__":
    main()
