"""Preprocessing and postprocessing as parts of a model: a camera's picture in, a label or boxes out, in one program.

In: a model, functions of tensors. Out: a model whose graph is that of the first function, then the model's own, then that of the second.
The functions are recorded as a trace records one, so the new model has the bits of the three calls made one after another.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tengen.base.errors import DTypeError, ShapeError, TraceError
from tengen.deploy.model import Model
from tengen.ir.graph import Check
from tengen.ir.rewrite import inline
from tengen.passes.extents import at_extents, extents_of
from tengen.tensor import Tensor, from_numpy
from tengen.tensor.recorder import Recorder, traced

Processing = Callable[..., Any]


def with_processing(
    model: Model, preprocess: Processing | None = None, postprocess: Processing | None = None, example_input: Any = None
) -> Model:
    """A model that computes `postprocess(model(preprocess(...)))`.

    Args:
        preprocess: a function of tensors (or arrays), which returns what the model takes: a tensor, a tuple in the order of the model's
            inputs, or a dict by their names. The new model's inputs have the names of its parameters.
        postprocess: a function of the model's results, in order, which returns a tensor, a tuple or a dict of tensors, whose keys become the
            names of outputs.
        example_input: what `preprocess` is recorded with, a tensor or an array, or a tuple of them: the new model takes these shapes and
            dtypes. Their values do not matter. Extents that are open in the model get the numbers that the pictures' shapes decide.

    Returns: a model; `model` is as it was. States start with the values that they had in the model's file.

    Errors: TraceError where the functions ask for a value, draw random numbers or change a tensor, or where `example_input` is missing;
        ShapeError, DTypeError or TypeError where what `preprocess` returns is not what the model takes.

    Numerics: the bits of the three calls, made one after another.

    >>> import tengen, numpy as np
    >>> from tengen import Tensor, deploy, trace
    >>> import os, tempfile
    >>> f = trace(lambda x: x * 2, example_input=Tensor(np.zeros((1, 2), "f4")))
    >>> with tempfile.TemporaryDirectory() as d:
    ...     _ = f.dump(os.path.join(d, "f.tgn"))
    ...     m = tengen.load_graph(os.path.join(d, "f.tgn"))
    >>> picture = np.array([[3, 9]], "u1")
    >>> whole = deploy.with_processing(m, lambda picture: picture.astype("float32") / 3, lambda y: {"best": y.argmax(1)}, picture)
    >>> whole.inputs, whole.outputs, whole(picture=picture).tolist()
    ((picture: u8[1,2],), (best: i64[1],), [1])
    """
    if preprocess is not None and example_input is None:
        raise TraceError("preprocess= is recorded with pictures; help: example_input= a tensor of their shape and dtype, or a tuple of them")
    names, examples = _examples(model, preprocess, example_input)
    rec = Recorder(model.name, constants=True)
    with rec:
        raw = [rec.argument(name, t) for name, t in zip(names, examples)] if preprocess else []
        if preprocess is None:
            fed = [traced(rec.graph.add_input(v.name or f"arg{i}", v.type)) for i, v in enumerate(model.graph.inputs)]
            graph = model.graph
        else:
            fed = _fed(model, _results(preprocess(*raw), "preprocess"))
            graph = at_extents(model.graph, _extents(model, fed))
        outs = _inlined(rec, graph, fed)
        named = dict(zip(model.graph.output_names, outs))
        if postprocess is not None:
            named = _results(postprocess(*outs), "postprocess")
            named = named if isinstance(named, dict) else {f"output{i}": t for i, t in enumerate(named)}
        made = rec.finish([*named.items()])
    return Model(made, model.initial)


def _examples(model: Model, preprocess: Processing | None, given: Any) -> tuple[list[str], list[Tensor]]:
    """The names and examples of the new model's inputs."""
    some = [] if given is None or preprocess is None else list(given) if isinstance(given, (tuple, list)) else [given]
    tensors = [x.detach() if isinstance(x, Tensor) else from_numpy(x) if hasattr(x, "dtype") else Tensor(x) for x in some]
    try:
        known = [p.name for p in inspect.signature(preprocess).parameters.values() if p.kind == p.POSITIONAL_OR_KEYWORD] if preprocess else []
    except (TypeError, ValueError):  # a function without a signature
        known = []
    return [known[i] if i < len(known) else f"arg{i}" for i in range(len(tensors))], tensors


def _results(made: Any, what: str) -> Any:
    """What a function returned: a list of tensors, or a dict of them."""
    if isinstance(made, Mapping):
        found: Any = dict(made)
        every = list(found.values())
    else:
        found = every = list(made) if isinstance(made, (tuple, list)) else [made]
    if not every or not all(isinstance(t, Tensor) for t in every):
        odd = next((type(t).__name__ for t in every if not isinstance(t, Tensor)), "nothing")
        raise TypeError(f"{what} returned {odd}; help: it returns a tensor, or a tuple or a dict of tensors")
    return found


def _fed(model: Model, made: list[Tensor] | dict[str, Tensor]) -> list[Tensor]:
    """What `preprocess` made, in the order of the model's inputs."""
    xs = model.ordered((), made) if isinstance(made, dict) else model.ordered(tuple(made), {})
    for p, x in zip(model.inputs, xs):
        if x.dtype is not p.dtype:
            raise DTypeError(f"{model.name}: preprocess gives {x.dtype}{list(x.shape)} for the input {p!r}; help: astype('{p.dtype}')")
        if len(x.shape) != len(p.shape):
            raise ShapeError(f"{model.name}: preprocess gives {x.dtype}{list(x.shape)} for the input {p!r}")
    return xs


def _extents(model: Model, fed: Sequence[Tensor]) -> dict[str, int]:
    """The numbers of the model's open extents. Errors: ShapeError where shapes do not fit."""
    for p, x in zip(model.inputs, fed):
        if any(isinstance(n, int) and n != m for n, m in zip(p.shape, x.shape)):
            raise ShapeError(f"{model.name}: preprocess gives {x.dtype}{list(x.shape)} for the input {p!r}")
    types = [v.type for v in model.graph.inputs]
    found = extents_of(types, [tuple(x.shape) for x in fed], [f"{model.name}: input {p.name}" for p in model.inputs])
    return {name: found[name] for name in model.extents}


def _inlined(rec: Recorder, graph: Any, fed: Sequence[Tensor]) -> list[Tensor]:
    """The results of a graph within a recording; its states and checks become the recording's."""
    inner = graph.copy()
    states, checks = list(inner.states.values()), inner.checks
    outs, written = list(inner.outputs), [s for s in states if s.written is not None]
    reads = [rec.graph.add_state(s.name, s.read.type) for s in states]
    inner.inputs = [*inner.inputs, *(s.read for s in states)]
    inner.outputs = [*outs, *(s.written for s in written), *(c.bad for c in checks)]
    inner.output_names = [f"value{i}" for i in range(len(inner.outputs))]
    inner.states, inner.checks = {}, []
    made = inline(rec.graph, inner, [*(rec.value(x) for x in fed), *reads])
    for s, v in zip(written, made[len(outs) :]):
        rec.graph.states[s.name].written = v
    rec.graph.checks += [Check(v, c.error, c.message, c.where) for c, v in zip(checks, made[len(outs) + len(written) :])]
    return [traced(v) for v in made[: len(outs)]]
