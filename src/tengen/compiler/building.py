"""The last passes: launches get a memory plan, and become the text of a `Program`.

In: what the passes before have lowered, or a lowering that was written without a graph. Out: a `Program`, of which nothing is
compiled yet. A process that finds its programs in a cache does not load this file.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tengen.base.config import config
from tengen.base.device import Device, cpu
from tengen.base.record import record
from tengen.codegen.llvm import emit_module
from tengen.compiler.arena import Temporaries
from tengen.compiler.memory_plan import MemoryPlan
from tengen.compiler.program import Program
from tengen.compiler.program_ir import ProgramText
from tengen.kernels.lowering import Lowering
from tengen.kernels.steps import every_leaf
from tengen.kernels.steps_text import spelled
from tengen.loops.external import HOST
from tengen.loops.statements import Kernel
from tengen.loops.verify import verify
from tengen.passes.lowered import LOWERED, Lowered
from tengen.passes.run import Form, Pass, run_passes
from tengen.runtime import compile as compiler
from tengen.runtime import tiers
from tengen.runtime.cache import object_name


@record(frozen=True)
class Planned:
    """What a program runs, and where its temporaries lie. setup: the same of what runs once, if anything does. within: how it keeps to a
    budget, if it was made for one."""

    lowered: Lowered
    temps: Temporaries
    setup: Planned | None = None
    within: MemoryPlan | None = None

    @staticmethod
    def of(x: Lowered) -> Planned:
        """Plans the memory of a program and of its set-up."""
        return Planned(x, Temporaries.of(x.lo), None if x.setup is None else Planned.of(x.setup))

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels that it launches, each once, and those of its set-up."""
        own = dict.fromkeys(leaf.launch.kernel for leaf in every_leaf(self.lowered.lo.steps))
        return [*own, *([] if self.setup is None else self.setup.kernels)]

    def text(self) -> str:
        """One line for each temporary; then those of the set-up."""
        t = self.temps
        rows = zip(t.ids, t.sizes, t.offsets(), t.lives)
        lines = [f"{spelled(id)}: {size} bytes at {at}, holds something in {life}" for id, size, at, life in rows]
        return "\n".join([f"memory of {self.lowered.name}:", *lines, "" if self.setup is None else self.setup.text()])

    def verify(self) -> None:
        """Checks the kernels. Errors: VerifyError."""
        for k in self.kernels:
            verify(k)


def emit(x: Planned) -> Program:
    """Writes the LLVM IR of a program and of its set-up. Nothing is compiled yet."""
    setup = None if x.setup is None else emit(x.setup)
    w, lo = x.lowered, x.lowered.lo
    made = ProgramText(lo, [*w.inputs, *w.outputs], x.temps, w.log_launches)
    text = emit_module(list(made.unique.values()), lo.target, made.text)
    return Program(
        w.name, text, lo.target, len(w.inputs), len(w.outputs), list(lo.ints), made.derived, x.temps, len(made.unique), w.device,
        list(w.constants), setup, list(w.output_bytes), every_leaf(lo.steps) if w.log_launches else None,
        checks=[] if w.graph is None else w.graph.checks, asks=made.asks or f"@{HOST}(" in text, memory=x.within,
        object=object_name(text, lo.target, tiers.kept_level(lo.target)),
    )  # fmt: skip


def _printed(p: Program) -> str:
    """The program's LLVM IR and that of its set-up; with TENGEN_DEBUG=5 the machine's assembly too."""
    own = p.text + (compiler.assembly(p.text, p.target) if config.debug >= 5 else "")
    return own if p.setup is None else own + _printed(p.setup)


MEMORY = Pass("memory", Planned.of, Form(3, Planned.text, Planned.verify))
EMIT = Pass("emit", emit, Form(4, _printed))


def build(
    lo: Lowering,
    inputs: Sequence[Hashable],
    outputs: Sequence[Hashable],
    name: str,
    log_launches: bool = False,
    device: Device = cpu,
) -> Program:
    """The program of a lowering that was written without a graph. Nothing is compiled yet. log_launches: whether each launch is
    passed to `parallel` with its number, as `launch_log.py` needs it; the kernels are the same."""
    lowered = lambda lo: Lowered(name, lo, tuple(inputs), tuple(outputs), device, log_launches)
    return run_passes(lo, [Pass("launches", lowered, LOWERED), MEMORY, EMIT])
