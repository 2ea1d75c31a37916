"""What a program runs and the buffers that it takes: what the passes from a graph to launches make, and what eager calls begin
with.

In: a `Lowering`. Out: what memory planning and code generation need.
"""

from __future__ import annotations

from collections.abc import Hashable

from tengen.base.device import Device, cpu
from tengen.base.record import record
from tengen.ir.graph import Graph
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.steps import verify_steps
from tengen.kernels.steps_text import print_steps
from tengen.passes.run import Form


@record(frozen=True)
class Lowered:
    """What a program runs, and the buffers that it takes.

    Attributes:
        name: the program's. lo: its launches. inputs, outputs: buffers that it takes, in order; inputs may be written too.
            device: where they lie. log_launches: whether its launches are logged. graph: what was lowered, and arrays: how its
            outputs lie; None and nothing where there was no graph. constants: the last of the inputs: constants of the graph,
            and what is made of such by `setup`, which runs once. setup: its inputs are constants and then the buffers that it
            fills, output_bytes are the sizes of these.
    """

    name: str
    lo: Lowering
    inputs: tuple[Hashable, ...]
    outputs: tuple[Hashable, ...]
    device: Device = cpu
    log_launches: bool = False
    graph: Graph | None = None
    arrays: tuple[Array, ...] = ()
    constants: tuple[Hashable, ...] = ()
    setup: Lowered | None = None
    output_bytes: tuple[int, ...] = ()

    def text(self) -> str:
        """Its steps and kernels, and those of its set-up."""
        return print_steps(self.lo) + ("" if self.setup is None else f"\nset-up:\n{self.setup.text()}")

    def verify(self) -> None:
        """Checks its steps and those of its set-up. Errors: VerifyError."""
        verify_steps(self.lo.steps, self.lo.temps, self.lo.ints)
        if self.setup is not None:
            self.setup.verify()


LOWERED = Form(3, Lowered.text, Lowered.verify)
