"""Modules of PyTorch's and programs of `torch.export` as Tengen's modules."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tengen.base import extras
from tengen.base.errors import ArgumentError, FileFormatError
from tengen.deploy.tensorfile import line_that_converts
from tengen.interop.torch.network import DENSE, Exported, TorchNetwork, Weight
from tengen.interop.torch.reader import Constants, Program, array_of, read
from tengen.tensor import Tensor

# What torch.export would take apart, and Tengen has a kernel, or a shorter way, for; and `detach`, which says where gradients end.
WHOLE = (
    "linear", "matmul", "scaled_dot_product_attention", "silu", "mish", "hardswish", "hardsigmoid", "softplus", "rms_norm", "stack",
    "upsample_bilinear2d.vec", "upsample_nearest2d.vec", "upsample_bicubic2d.vec", "upsample_nearest1d.vec", "upsample_nearest3d.vec",
    "upsample_linear1d.vec", "upsample_trilinear3d.vec", "_upsample_nearest_exact1d.vec", "_upsample_nearest_exact2d.vec",
    "_upsample_nearest_exact3d.vec", "adaptive_avg_pool1d", "avg_pool1d", "im2col", "unbind.int", "roll", "reflection_pad1d",
    "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d", "replication_pad3d", "pixel_shuffle", "lerp.Scalar",
    "lerp.Tensor", "addcmul", "addcdiv", "triu", "tril", "eye", "eye.m", "linspace", "index_add", "logsumexp", "log_sigmoid", "detach",
    "lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input",
)  # fmt: skip


def package() -> Any:
    """The package torch. Errors: ArgumentError where it is not installed, or something else has its name."""
    return extras.package("torch", "Tensor", "PyTorch's networks need")


def decomposed(program: Any) -> Any:
    """An ExportedProgram in the ops of the table: PyTorch's core ops, and those of `WHOLE`."""
    torch = package()
    table = torch.export.default_decompositions()
    for name in WHOLE:
        base, _, overload = name.partition(".")
        packet = getattr(torch.ops.aten, base, None)
        found = getattr(packet, overload or "default", None)
        if found is not None:
            table.pop(found, None)
    with quiet(), marked(torch, program), with_new_constants(program):
        try:
            return without_tokens(program.run_decompositions(table))
        except IndexError as e:  # of PyTorch 2.11, where arguments are numbers
            said = f"PyTorch {torch.__version__} cannot decompose its own program: IndexError: {e}"
            raise ArgumentError(f"{said}; help: a newer PyTorch, or leave out arguments that are no tensors") from e


def without_tokens(program: Any) -> Any:
    """A program without the tokens that put checks (whether a matrix was singular, assertions) in an order."""
    if all(spec.kind.name != "TOKEN" for spec in program.graph_signature.input_specs):
        return program
    from torch.export._remove_effect_tokens_pass import _remove_effect_tokens

    return _remove_effect_tokens(program)


@contextlib.contextmanager
def marked(torch: Any, program: Any) -> Iterator[None]:
    """For a while, results of parts under ``torch.no_grad()`` pass through a `detach`: decomposition writes these parts out, after which
    nothing else would tell that they have no gradient."""
    added = []
    nodes = [n for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule) for n in m.graph.nodes]
    parts = [n for n in nodes if n.target is torch.ops.higher_order.wrap_with_set_grad_enabled and n.args[0] is False]
    for n in [user for part in parts for user in part.users]:
        with n.graph.inserting_after(n):
            d = n.graph.call_function(torch.ops.aten.detach.default, (n,))
        d.meta = dict(n.meta)
        n.replace_all_uses_with(d, delete_user_cb=lambda user, d=d: user is not d)
        name = n.name  # the signature knows outputs by their names
        n._rename(f"{name}_with_gradient")
        d._rename(name)
        added.append((d, n, name))
    try:
        yield
    finally:
        for d, n, name in added:
            d.replace_all_uses_with(n)
            n.graph.erase_node(d)
            n._rename(name)


@contextlib.contextmanager
def with_new_constants(program: Any) -> Iterator[None]:
    """For a while, constants that decomposition makes are entered in the program: PyTorch 2.13 names them in the new program's signature,
    gives that the old program's constants, and then refuses it."""
    try:
        from torch._export.passes import lift_constants_pass as module

        lift = module.lift_constants_pass
    except (ImportError, AttributeError):  # a version without this pass
        yield
        return

    def lifted(*args: Any, **kwargs: Any) -> Any:
        found = lift(*args, **kwargs)
        for name, value in found.items():
            program.constants.setdefault(name, value)
        return found

    module.lift_constants_pass = lifted
    try:
        yield
    finally:
        module.lift_constants_pass = lift


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without PyTorch's warnings of its own future, which its exporter gives of itself."""
    with warnings.catch_warnings():
        for kind in (FutureWarning, DeprecationWarning, UserWarning):
            warnings.simplefilter("ignore", kind)
        yield


def with_caches(torch: Any) -> None:
    """Lets `torch.export` take apart the caches of transformers' models, where that package is in use."""
    if "transformers" not in sys.modules:
        return
    try:
        from transformers.cache_utils import EncoderDecoderCache
        from transformers.integrations.executorch import register_dynamic_cache_export_support
    except ImportError:  # a version that has its caches elsewhere: torch.export tells what it does not take
        return
    register_dynamic_cache_export_support()
    nodes = torch.utils._pytree
    if EncoderDecoderCache in nodes.SUPPORTED_NODES:
        return
    parts = ["self_attention_cache", "cross_attention_cache"]
    keyed = [nodes.GetAttrKey(name) for name in parts]
    of = lambda cache: [getattr(cache, name) for name in parts]
    nodes.register_pytree_node(
        EncoderDecoderCache, lambda cache: (of(cache), parts), lambda values, _: EncoderDecoderCache(*values),
        serialized_type_name="transformers.cache_utils.EncoderDecoderCache",
        flatten_with_keys_fn=lambda cache: (list(zip(keyed, of(cache))), parts),
    )  # fmt: skip
    torch.fx._pytree.register_pytree_flatten_spec(EncoderDecoderCache, lambda cache, _: of(cache))


def refuse_files(source: Any) -> None:
    """Errors: FileFormatError for a path: files of PyTorch's are not read here, since reading them unpickles what they contain."""
    if not isinstance(source, (str, bytes, os.PathLike)):
        return
    name = os.fspath(source) if not isinstance(source, bytes) else "the file"
    if str(name).endswith(".pt2"):
        raise FileFormatError(
            f"{name}: a .pt2 archive may hold pickles, which are not read here; help: if you trust who made it, "
            f"load_program(torch.export.load({name!r}))"
        )
    raise FileFormatError(
        f"{name}: files of torch.save are pickles, which may run code when they are read, and are not read here; help: convert a state dict "
        f"once with PyTorch's restricted reader\n{line_that_converts(str(name))}"
    )


def refuse_sparse(torch: Any, named: Iterable[tuple[str, Any]]) -> None:
    """Errors: ArgumentError that lists the tensors that are sparse, or have another layout without strides."""
    found = [f"{name} ({t.layout})" for name, t in named if isinstance(t, torch.Tensor) and t.layout != torch.strided]
    if found:
        raise ArgumentError(f"{', '.join(found)}: {DENSE}")


def state_of(programs: Mapping[bool, tuple[Program, dict[str, Any], Constants]], order: Any, trained: Any) -> dict[str, Weight]:
    """The parameters and buffers of a network by name, in PyTorch's order."""
    found: dict[str, Weight] = {}
    tensors = {name: t for _, state, _ in programs.values() for name, t in state.items()}
    first: dict[tuple, str] = {}
    for name in dict.fromkeys(
        [n for n in order if n in tensors] + list(tensors)
    ):  # what a module adds that is no tensor stays out
        t = tensors[name]
        key = (t.data_ptr(), tuple(t.shape), t.stride(), t.dtype)
        same = first.get(key) if t.numel() else None
        first.setdefault(key, name)
        found[name] = Weight(found[same].value if same else array_of(t), name in trained, True, same)
    for _, _, constants in programs.values():
        for name in constants.buffers:
            found.setdefault(name, Weight(constants.arrays[name], False, False))
    return found


def network_of(programs: Mapping[bool, Any], order: Any, trained: Any, why_not: Mapping[bool, str]) -> TorchNetwork:
    """The module that runs exported programs; programs: by mode, True for training."""
    read_ = {mode: read(decomposed(p)) for mode, p in programs.items()}
    constants = {mode: {n: Tensor(a) for n, a in c.arrays.items() if n not in c.buffers} for mode, (_, _, c) in read_.items()}
    exported = Exported({mode: p for mode, (p, _, _) in read_.items()}, constants, dict(why_not))
    return TorchNetwork(exported, state_of(read_, order, trained))


@contextlib.contextmanager
def in_mode(module: Any, training: bool) -> Iterator[None]:
    """A PyTorch module in a mode for a while; afterwards its parts are in theirs."""
    before = [(m, m.training) for m in module.modules()]
    module.train(training)
    try:
        yield
    finally:
        for m, mode in before:
            m.training = mode


def to_module(
    module: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None, *, dynamic_shapes: Any = None, training: bool = True,
    strict: bool = False,
) -> TorchNetwork:  # fmt: skip
    """A PyTorch module as a Tengen `Module` with the same names of parameters and buffers, which runs and trains.

    The module is exported by ``torch.export``: in evaluation mode, and once more in training mode, and `train` and `eval` of what is returned
    choose between the two.

    Args:
        module: an ``nn.Module``; it is not changed, and its weights are copied. args, kwargs: examples of its arguments, PyTorch's tensors; one
            tensor is an example of the only argument.
        dynamic_shapes: as ``torch.export.export`` takes it: which extents stay open. Default: none, so that the result takes the shapes of
            the examples alone. training: False exports for evaluation alone: for modules that cannot be exported, or return something
            else, in training mode. strict: as ``torch.export.export`` takes it.
    Returns: a `TorchNetwork`. It takes what the module takes, Tengen's tensors (or arrays) in place of PyTorch's.
    Errors: ArgumentError that lists all nodes whose op has no meaning here, each with the line it comes from; FileFormatError for a path;
        what ``torch.export`` raises for a module that it cannot export.
    Numerics: as PyTorch's within float rounding; equal bits eager, traced and shipped.

    >>> import torch
    >>> from tengen import Tensor
    >>> from tengen.interop.torch import to_module
    >>> net = to_module(torch.nn.Linear(2, 1), (torch.zeros(3, 2),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    >>> list(net.state_dict()), net(Tensor([[1.0, 2.0]])).shape
    (['weight', 'bias'], (1, 1))
    """
    refuse_files(module)
    torch = package()
    if not isinstance(module, torch.nn.Module):
        raise ArgumentError(
            f"to_module takes an nn.Module, got a {type(module).__name__}; help: load_program takes an ExportedProgram"
        )
    with_caches(torch)
    examples = (args,) if isinstance(args, torch.Tensor) else tuple(args)
    leaves = torch.utils._pytree.tree_leaves((examples, dict(kwargs or {})))
    state = itertools.chain(module.named_parameters(), module.named_buffers())
    refuse_sparse(torch, [*state, *((f"argument {i}", x) for i, x in enumerate(leaves))])
    programs = {}
    for mode in (False, True) if training else (False,):
        with in_mode(module, mode), quiet():
            programs[mode] = torch.export.export(
                module, examples, dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=strict
            )
    trained = {name for name, p in module.named_parameters(remove_duplicate=False) if p.requires_grad}
    why = "the network was exported for evaluation alone; help: net.eval(), or to_module(..., training=True)"
    made = network_of(programs, list(module.state_dict()), trained, {True: why})
    return made.train(module.training and training)


def load_program(program: Any) -> TorchNetwork:
    """A program of ``torch.export`` as a Tengen `Module`.

    It runs the one graph that was exported, in training mode too: what dropout and batch norm do there was decided by the mode of the PyTorch
    module. `to_module` exports both.

    Args: program: an ``ExportedProgram``, decomposed or not. Extents that are dynamic there stay open.
    Returns, Errors: as `to_module`.

    >>> import numpy as np, torch
    >>> from tengen.interop.torch import load_program
    >>> program = torch.export.export(torch.nn.ReLU(), (torch.zeros(3),))
    >>> load_program(program)(np.array([-1.0, 0.0, 2.0], "float32")).tolist()
    [0.0, 0.0, 2.0]
    """
    refuse_files(program)
    torch = package()
    if not isinstance(program, torch.export.ExportedProgram):
        raise ArgumentError(
            f"load_program takes an ExportedProgram, got a {type(program).__name__}; help: to_module takes an nn.Module"
        )
    refuse_sparse(torch, [*program.state_dict.items(), *program.constants.items()])
    trained = {name for name in program.graph_signature.parameters if program.state_dict[name].requires_grad}
    return network_of({False: program}, list(program.state_dict), trained, {})
