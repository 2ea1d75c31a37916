"""Reads a model file: every byte is checked, nothing is executed, and the weights stay where they are, in the mapped file.

In: a path. Out: a `Model`, or FileFormatError. Checked are the file (`tensorfile.py`), the JSON (`ir/jsonform.py`), the rules
of the graph IR, that every op is known and its attributes are in the form that Tengen itself writes, and that every type is
what the op's own rule derives. Nothing is allocated for what a file only promises.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from typing import Any

from tengen.base.collector import young_objects
from tengen.base.errors import ScheduleError, TengenError, VerifyError
from tengen.base.files import File
from tengen.compiler import program_cache
from tengen.compiler.schedules import parsed
from tengen.deploy.model import FORMAT, VERSION, Model
from tengen.deploy.tensorfile import TensorFile, fail, read_tensors
from tengen.ir.graph import Graph, UnreadGraph, attr_graphs, attrs_key
from tengen.ir.jsonform import from_json, unread_from_json
from tengen.ir.plain_json import load_json
from tengen.ir.types import TensorType
from tengen.ir.verify import Infer, verify
from tengen.ops.attributes import same
from tengen.ops.define import REGISTRY, Op, lookup
from tengen.passes.extents import check_symbols
from tengen.runtime import cache, environment, mapped

KEYS = {"format", "version", "tengen", "graph", "checksum"}
OPTIONAL = {"schedules"}


def load_graph(file: File) -> Model:
    """The model that `trace.dump` wrote.

    Args:
        file: a path, or a file that is open for reading bytes, which is read to its end.

    Its weights are the mapped file: they cost memory only when they are read. The file must not be changed in place meanwhile
    (dumping over it is safe). While the checksum of a long file is computed, the model's program is read from the cache, if it is there. A
    later load of the same file, which has not been changed since, does not compute it again (the knob `check` has it computed each time).
    What has been found right once, this user's later processes with the same Tengen do not check again: a model with that checksum reads its
    nodes when somebody asks for its graph.

    Where a path is given and no process has made the model's program yet, the first call takes its nodes one by one, if the programs of
    all are there; its bits are those of the program, which the second call makes, or a process in the background.

    Errors: FileFormatError, which names the file, for anything that is not exactly such a file; OSError where it cannot be
    read.
    """
    with young_objects():
        model = read_tensors(file, _model_and_program)
        _remember(model)
    if isinstance(file, (str, bytes, os.PathLike)):
        model.comes_from(os.fsdecode(os.path.abspath(file)), load_graph)
    return model


def _model_and_program(content: TensorFile) -> Model:
    """The model, with its program where reading that takes no time: while a thread computes the checksum."""
    model = model_of(content)
    if content.waits:
        model.look_ahead()
    return model


def model_of(content: TensorFile) -> Model:
    """The model in a checked file of tensors."""
    texts = content.texts
    if texts.get("format") != FORMAT:
        kind = texts.get("format", "a file of tensors")[:60]
        fail(f"it is no model of Tengen, but {kind!r}; help: tengen.load reads checkpoints and tensors")
    if texts.get("version") != VERSION:
        has, made = texts.get("version", "none")[:20], texts.get("tengen", "unknown")[:20]
        fail(f"it has version {has} of the format (by Tengen {made}), this Tengen reads {VERSION}")
    if set(texts) - OPTIONAL != KEYS:
        fail(f"its metadata has the keys {[k[:60] for k in sorted(texts)[:8]]}, not {sorted(KEYS)}")
    graph: Graph | None = None
    if content.fits and program_cache.in_use() and (digest := cache.get(_fact(texts["checksum"]), cache.FACTS)) is not None:
        graph = unread_from_json(texts["graph"], content.arrays, content.bytes, _verify, digest.decode())
    if graph is None:
        graph = from_json(texts["graph"], content.arrays, content.bytes, _verify)
        _check_data(graph, content)
    states = {name: content.arrays[name] for name in graph.states}
    try:
        schedules = parsed(load_json(texts.get("schedules", "{}"), content.bytes, "its schedules"))
    except ScheduleError as e:
        fail(str(e))
    return Model(graph, states, texts["checksum"], content.bytes, schedules)


def _fact(checksum: str) -> str:
    """The key under which the cache keeps the digest of a graph that these sources have found right, in a file with this checksum."""
    return f"verified model {checksum} {environment.sources()}"


def _remember(model: Model) -> None:
    """Keeps the digest of a model that was found right, with its checksum, where sources that the key names decide what is right."""
    fact = _fact(model.checksum or "")
    if isinstance(model.kept_graph, UnreadGraph) or cache.stamp(fact, cache.FACTS) is not None:
        return
    if (digest := program_cache.digest_of(model.kept_graph)) is not None:
        cache.put(fact, digest.encode(), cache.FACTS)
        mapped.trim()  # small constants are part of the digest, and their pages were read for it


def _verify(graph: Graph) -> None:
    """Checks every rule of the IR and the ops' own, once the nodes of an older file have the attributes that their ops have got since."""
    for g in graph.graphs():
        for n in g.nodes:
            op = REGISTRY.get(n.op)
            if op is not None and any(name not in n.attrs for name in op.older):
                known = op.older | n.attrs
                n.attrs = {name: known.pop(name) for name in op.attrs if name in known} | known  # in the order of the op's
    verify(graph, _derived_once())


def _derived_once() -> Infer:
    """`derived_types`, which asks once for nodes that are alike: of a network's hundreds most are like another one."""
    known: dict[Hashable, Sequence[TensorType]] = {}

    def derived(name: str, types: list[TensorType | None], attrs: dict[str, Any]) -> Sequence[TensorType]:
        if attr_graphs(attrs):
            return derived_types(name, types, attrs)
        key = name, tuple(types), attrs_key(attrs)
        if key not in known:
            known[key] = derived_types(name, types, attrs)
        return known[key]

    return derived


def _check_data(graph: Graph, content: TensorFile) -> None:
    """Every constant and state has its tensor, every tensor its reader; only extents of inputs are open."""
    try:
        check_symbols(graph)
    except VerifyError as e:
        fail(str(e))
    wanted: dict[str, TensorType] = {}
    for g in graph.graphs():
        wanted.update({c.name: c.value.type for c in g.constants.values()})
    wanted.update({s.name: s.read.type for s in graph.states.values()})
    if wanted.keys() != content.arrays.keys():
        odd = sorted(wanted.keys() ^ content.arrays.keys())[0]
        fail(f"the tensor {odd[:60]!r} is {'missing' if odd in wanted else 'read by nobody'}")
    for name, t in wanted.items():
        a = content.arrays[name]
        if a.shape != t.shape or a.dtype != t.dtype.numpy:
            fail(f"the tensor {name[:60]!r} is {a.dtype}{list(a.shape)}, the graph says {t!r}")


def _unknown(name: str) -> str:
    """What is said of an op that is not registered."""
    space, of_a_user, _ = name[:60].partition("::")
    if not of_a_user:
        return f"no op named {name[:60]!r} in this Tengen"
    return (
        f"it needs the operator {name[:60]!r}, which is not registered; help: before loading, import the Python module that defines the "
        f"operators of {space!r} with tengen.custom_ops"
    )


def stands_in_files(op: Op) -> bool:
    """Whether a file may name this op: it has a rule that derives types, and does nothing but compute."""
    return op.rules.infer is not None and not op.rules.effect


def derived_types(name: str, types: list[TensorType | None], attrs: dict[str, Any]) -> Sequence[TensorType]:
    """The types that a node's op derives; VerifyError when it cannot, whatever the reason."""
    try:
        op = lookup(name)
    except (TengenError, RecursionError):
        raise VerifyError(_unknown(name)) from None
    if not stands_in_files(op):
        raise VerifyError(f"the op {name!r} does not stand in files")
    if len(attrs) != len(op.attrs):
        raise VerifyError(f"{name} takes the attributes {op.attrs}, not {tuple(attrs)}")
    try:
        canonical = op.canonical(types, tuple(attrs.values()))
        if canonical.keys() != attrs.keys() or not all(same(canonical[k], a) for k, a in attrs.items()):
            raise VerifyError(f"{name}: the attributes {attrs} are not in canonical form")
        return op.infer_types(types, canonical)
    except VerifyError:
        raise
    except Exception as e:  # rules are written for users' calls; a file can hold anything
        raise VerifyError(f"{name}: {type(e).__name__}: {e}") from e
