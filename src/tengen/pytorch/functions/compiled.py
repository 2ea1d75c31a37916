"""A function as `torch.compile` makes it a program."""

from tengen.jit.trace import trace


class CompiledFunction(trace):
    """A `tengen.trace` that does in every call what the function does besides computing tensors, where a `trace` appends plain values to a
    list (``shapes.append(x.shape)``) when it is recorded."""

    repeats_appends = True
