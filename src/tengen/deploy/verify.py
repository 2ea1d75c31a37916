"""Runs a compiled artifact and compares what it computes with the model, bit by bit.

In: a model, the folder that `compile_model` wrote, inputs. Out: a `Verified`. The example program that lies beside the object
is linked through the `ziglang` wheel and run here, or under qemu for another processor. What cannot run is skipped, with the
reason. NaNs compare as one: their sign and payload are outside the promise.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tengen.base.dtype import int8, uint8
from tengen.base.errors import ConfigError, FileFormatError, TengenError
from tengen.base.files import File, read_regular
from tengen.base.record import record
from tengen.codegen.targets import Target
from tengen.codegen.targets.architecture import EQUAL
from tengen.deploy.compile import compile_model
from tengen.deploy.emulators import CannotRun
from tengen.deploy.extents import parse_range
from tengen.deploy.loader import load_graph
from tengen.deploy.model import Model, Port
from tengen.deploy.run import run_program
from tengen.ir.verify import describe
from tengen.tensor import Tensor


@record(frozen=True)
class Verified:
    """What was found.

    Attributes:
        target: what the artifact is for. status: "equal", "different" or "skipped". runs: sets of inputs. values: numbers
            compared. differing: how many of them have other bits. how: what ran it, or why nothing could, or the first
            difference.
    """

    target: str
    status: str
    runs: int
    values: int
    differing: int
    how: str


def verify(
    model: Model | File,
    out_dir: str | os.PathLike,
    inputs: Sequence[Sequence[Any] | Mapping[str, Any]] | None = None,
    name: str | None = None,
    runs: int = 4,
    seed: int = 0,
    target: str | None = None,
) -> Verified:
    """Compares an artifact with its model. Where bits differ, the model is compiled once more with all of its values as outputs, and the
    first op whose bits differ is named.

    Args:
        model: a model, or its file (a path, or open for reading bytes).
        out_dir: where `compile_model` wrote. name: of the artifact, where the folder holds several.
        inputs: the sets of inputs to run, each in order or by name; default: `runs` random ones from `seed`, as `random_inputs` draws them.
        target: what the artifact must be for, where the folder holds several.

    Errors: ConfigError for an unknown target; FileFormatError when the folder holds no artifact of this interface; TengenError when
        linking or running fails.
    """
    model = Model(model.graph, model.initial, model.checksum, model.bytes) if isinstance(model, Model) else load_graph(model)
    folder, name = _artifact(out_dir, name, target)
    target, extents = _target(folder / f"{name}.h", model)
    if inputs is not None or not any(isinstance(n, range) for n in extents.values()):
        return _verify_at(model, folder, name, target, extents, inputs, runs, seed)
    ranges = [n if isinstance(n, range) else range(n, n + 1) for n in extents.values()]
    some = [[r[i] for r in ranges for i in (j * (len(r) - 1) // 2,)] for j in range(3)]  # the least, the largest, one between
    each = [_verify_at(model, folder, name, target, dict(zip(extents, x)), None, -(-runs // 3), seed + i, True) for i, x in enumerate(some)]
    odd = next((v for v in each if v.status != "equal"), each[0])
    count = lambda what: sum(getattr(v, what) for v in each)
    return Verified(target, odd.status, count("runs"), count("values"), count("differing"), odd.how)


def _verify_at(
    model: Model, folder: Path, name: str, target: str, extents: Mapping, inputs, runs: int, seed: int, opened: bool = False
) -> Verified:
    """The same for these extents. opened: they are arguments of the program."""
    if any(isinstance(n, range) for n in extents.values()):
        raise ConfigError(f"{name} has open extents; help: verify it with random inputs, which are of several sizes")
    model = model.at(**extents)
    sets = random_inputs(model, runs, seed) if inputs is None else [_set(model, x) for x in inputs]
    if not any(prod(p.shape) for p in model.inputs):
        sets = sets[:1]  # the program then has nothing to wait for, and runs once
    data = b"".join(a.tobytes() for x in sets for a in x)
    try:
        got, how = run_program(folder, name, target, data, list(extents.values()) if opened else ())
    except CannotRun as e:
        return Verified(target, "skipped", len(sets), 0, 0, str(e))
    found = _compare(model, target, [_bytes_of(model(*x)) for x in sets], got, how)
    if found.status != "different":
        return found
    level = Target.named(target).level
    promise = f"; {target} promises {level.bits}" if level.bits != EQUAL else ""
    return replace(found, how=f"{found.how}; {first_op(model, target, sets[0])}{promise}")


def first_op(model: Model, target: str, inputs: Sequence[np.ndarray]) -> str:
    """Which op of a model gives other bits on a target than here, in a sentence: the first in the order of the graph. Every value of the
    graph is an output of the program that is compiled for this; fusion changes no bit."""
    graph = model.graph.copy()
    made = [(n, v) for n in graph.nodes for v in n.outputs]
    graph.outputs, graph.output_names = [v for _, v in made], [f"value{i}" for i in range(len(made))]
    whole = Model(graph, model.initial)
    with tempfile.TemporaryDirectory(prefix="tengen-verify-") as folder:
        compile_model(whole, target, folder, "values")
        got, _ = run_program(Path(folder), "values", target, b"".join(a.tobytes() for a in inputs))
    at = 0
    for (n, _), a in zip(made, _bytes_of(whole(*inputs))):
        b = np.frombuffer(got, np.uint8, a.nbytes, at).view(a.dtype).reshape(a.shape)
        at += a.nbytes
        if odd := int(differing(a, b).sum()):
            return f"the first op that differs is {describe(n)}, in {odd} of {a.size} values"
    return "no op differs when it is compiled anew: the artifact was made from another model, or by another version"


def _artifact(out_dir: str | os.PathLike, name: str | None, target: str | None = None) -> tuple[Path, str]:
    folder = Path(out_dir)
    names = [p.stem for p in sorted(folder.glob("*.o"))] if name is None else [name]
    if target is not None:
        Target.named(target)
        fits = [n for n in names if (folder / f"{n}.h").is_file() and _named(folder / f"{n}.h") == target]
        if names and not fits:
            raise FileFormatError(f"{folder} holds no artifact for {target}; help: tengen compile --target {target}")
        names = fits
    if not names:
        raise FileFormatError(f"{folder} holds no artifact; help: tengen compile writes one")
    if len(names) > 1:
        raise FileFormatError(f"{folder} holds {len(names)} artifacts; help: name one of {', '.join(names)}")
    missing = [f for end in (".o", ".h", ".bin", "_main.c") if not (folder / (f := names[0] + end)).is_file()]
    if missing:
        raise FileFormatError(f"{folder} holds no {' and no '.join(missing)}; help: tengen compile writes them")
    return folder, names[0]


def _named(header: Path) -> str | None:
    """The target that a header names."""
    m = re.search(r'^#define \w+_TARGET "([\w.-]+)"$', read_regular(header).decode(errors="replace"), re.M)
    return m and m[1]


def _target(header: Path, model: Model) -> tuple[str, dict[str, int | range]]:
    """The target that a header names, and the extents, or their ranges, that it was compiled for.

    Errors: FileFormatError when it was made from another model.
    """
    text = read_regular(header).decode(errors="replace")
    target = _named(header)
    if target is None:
        raise FileFormatError(f"{header} does not say its target; it is no header of Tengen's")
    made_from = re.search(r"^ \* ([0-9a-f]{64})\.$", text, re.M)
    if made_from and model.checksum and made_from[1] != model.checksum:
        raise FileFormatError(f"{header.parent} was compiled from another model than {model.name}")
    if model.checksum and f"\n * {model.checksum},\n * and functions before or behind it." in text:
        help = "help: verify it with the model that with_processing gives, or with a file of `dump` that was given the functions"
        raise FileFormatError(f"{header.parent} was compiled from {model.name} and functions before or behind it; {help}")
    extents = re.search(r'^#define \w+_EXTENTS "([\w=,.:]+)"$', text, re.M)
    pairs = [e.partition("=") for e in extents[1].split(",")] if extents else []
    return target, {name: parse_range(n) for name, _, n in pairs}


def random_inputs(model: Model, runs: int, seed: int) -> list[list[np.ndarray]]:
    """Sets of inputs: normal floats; integers of 8 bits, which are pixels or stand for numbers, of their whole range, but where the model
    looks whether values are in a range, as indices must be; other integers and bools that are 0 or 1."""
    rng, whole = np.random.default_rng(seed), not model.graph.checks

    def one(p: Port) -> np.ndarray:
        if p.dtype.is_complex:
            return rng.standard_normal((*p.shape, 2)).astype(p.dtype.part.numpy).view(p.dtype.numpy)[..., 0]
        ends = (-(p.dtype.kind == "i") << 7, 256 >> (p.dtype.kind == "i")) if whole and p.dtype in (int8, uint8) else (0, 2)
        a = rng.standard_normal(p.shape) if p.dtype.is_float else rng.integers(*ends, p.shape)
        return np.asarray(a).astype(p.dtype.numpy)

    return [[one(p) for p in model.inputs] for _ in range(runs)]


def _set(model: Model, given: Sequence[Any] | Mapping[str, Any]) -> list[np.ndarray]:
    """One set of inputs in order, as dense arrays of the right types."""
    values = model.ordered((), dict(given)) if isinstance(given, Mapping) else model.ordered(tuple(given), {})
    return [np.asarray(model.argument(p, v).numpy(), order="C") for p, v in zip(model.inputs, values)]


def _bytes_of(result: Tensor | tuple[Tensor, ...]) -> list[np.ndarray]:
    return [np.asarray(t.numpy(), order="C") for t in (result if isinstance(result, tuple) else (result,))]


def differing(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two arrays of one shape and dtype differ in their bits; two NaNs do not."""
    if a.dtype.kind == "c":
        parts = lambda z: np.atleast_1d(z)[..., None].view(z.real.dtype)
        return differing(parts(a), parts(b)).any(-1)
    bits = f"u{a.dtype.itemsize}"
    odd = np.atleast_1d(a).view(bits) != np.atleast_1d(b).view(bits)
    if np.dtype(a.dtype).kind in "iub":
        return odd
    return odd & ~(np.isnan(np.atleast_1d(a)) & np.isnan(np.atleast_1d(b)))


def _compare(model: Model, target: str, wanted: list[list[np.ndarray]], got: bytes, how: str) -> Verified:
    size = sum(a.nbytes for x in wanted for a in x)
    if len(got) != size:
        raise TengenError(f"the program wrote {len(got)} bytes for {len(wanted)} runs, {size} were expected")
    at, values, wrong, first = 0, 0, 0, ""
    for i, arrays in enumerate(wanted):
        for p, a in zip(model.outputs, arrays):
            b = np.frombuffer(got, np.uint8, a.nbytes, at).view(a.dtype).reshape(a.shape)
            at += a.nbytes
            values += a.size
            odd = differing(a, b)
            wrong += int(odd.sum())
            if odd.any() and not first:
                where = tuple(int(j[0]) for j in np.nonzero(odd))
                first = f"run {i}, {p.name}{list(where)}: {np.atleast_1d(a)[where]!r} here, {np.atleast_1d(b)[where]!r} there"
    status = "different" if wrong else "equal"
    return Verified(target, status, len(wanted), values, wrong, first or how)
