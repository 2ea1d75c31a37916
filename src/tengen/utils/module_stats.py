"""What a network holds and computes, layer by layer: parameters, multiplications, activations. MegEngine's names.

In: a network and inputs, or their shapes. Out: totals, a table of each, printed or as data. An operation is a multiplication with
its addition, as in MegEngine and most papers; what no rule is known for is not counted.
"""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tengen import module as M
from tengen.logger import get_logger
from tengen.tensor import Tensor

__all__ = [
    "dict2table", "disable_receptive_field", "enable_receptive_field", "flops_adaptivePool", "flops_batchmatmul", "flops_convNd",
    "flops_convNdTranspose", "flops_linear", "flops_norm", "flops_pool", "get_activation_stats", "get_op_stats", "get_param_stats",
    "hook_modules", "module_stats", "preprocess_receptive_field", "print_activations_stats", "print_op_stats", "print_param_stats",
    "print_summary", "register_flops", "register_hook_module", "register_receptive_field", "sizeof_fmt", "sum_activations_stats",
    "sum_op_stats", "sum_param_stats",
]  # fmt: skip

Rule = Callable[[Any, Sequence[Tensor], Sequence[Tensor]], float]
_rules: dict[type, Rule] = {}
total_stats = namedtuple("total_stats", ["param_size", "param_dims", "flops", "act_size", "act_dims"])
stats_tables = namedtuple("stats_tables", ["params", "flops", "activations"])


def register_flops(*modules: type) -> Callable[[Rule], Rule]:
    """A decorator: says how many operations a call of these modules takes: rule(module, inputs, outputs) -> number."""

    def put(rule: Rule) -> Rule:
        _rules.update(dict.fromkeys(modules, rule))
        return rule

    return put


@register_flops(M.Conv1d, M.Conv2d, M.Conv3d)
def flops_convNd(module: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> float:
    """Of a convolution: for each output its window times the channels of its group, and 1 for a bias."""
    return outputs[0].size * (math.prod(_kernel(module)) * module.in_channels // module.groups + (module.bias is not None))


@register_flops(M.ConvTranspose1d, M.ConvTranspose2d, M.ConvTranspose3d)
def flops_convNdTranspose(module: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> float:
    """Of a transposed convolution: for each input its window times the output channels of its group, and 1 for each output's bias."""
    each = math.prod(_kernel(module)) * module.out_channels // module.groups
    return inputs[0].size * each + (outputs[0].size if module.bias is not None else 0)


def _kernel(module: Any) -> Sequence[int]:
    size = module.kernel_size
    return (size, size) if isinstance(size, int) else size


@register_flops(M.BatchNorm1d, M.BatchNorm2d, M.LayerNorm, M.GroupNorm, M.InstanceNorm, M.GeneralNorm, M.RMSNorm)
def flops_norm(module: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> float:
    """Of a norm: 7 for each element."""
    return 7 * inputs[0].size


@register_flops(M.MaxPool2d, M.AvgPool2d)
def flops_pool(module: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> float:
    """Of pooling: for each output its window."""
    return outputs[0].size * math.prod(_kernel(module))


@register_flops(M.AdaptiveAvgPool2d, M.AdaptiveMaxPool2d)
def flops_adaptivePool(module: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> float:
    """Of adaptive pooling: for each output the share of the input that it covers, at least one element on each axis."""
    window = [max(-(-i // o), 1) for i, o in zip(inputs[0].shape[2:], outputs[0].shape[2:])]
    return outputs[0].size * math.prod(window)


@register_flops(M.Linear)
def flops_linear(module: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> float:
    """Of a linear layer: for each output the inputs, and 1 for a bias."""
    return outputs[0].size * (module.in_features + (module.bias is not None))


@register_flops(M.BatchMatMulActivation)
def flops_batchmatmul(module: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> float:
    """Of a batch of products: for each output the inputs, and 1 for a bias."""
    return outputs[0].size * (module.in_features + (module.bias is not None))


def _rule(module: Any) -> Rule | None:
    return next((_rules[k] for k in type(module).__mro__ if k in _rules), None)


hook_modules: list[type] = list(_rules)  # the classes of which `module_stats` has rows of activations


def register_hook_module(module: type | Sequence[type]) -> None:
    """`module_stats` has rows of activations for these classes of modules too, whether or not their operations have a rule."""
    for kind in module if isinstance(module, (list, tuple)) else [module]:
        if not (isinstance(kind, type) and issubclass(kind, M.Module)):
            raise TypeError(f"register_hook_module() takes classes of modules, got {kind!r}")
        hook_modules.append(kind)


# ---- receptive fields ------------------------------------------------------------------------------------------------------

Field = tuple[tuple[int, int], tuple[int, int]]  # (rows, columns) of the input that an element depends on; and between neighbours
_fields: dict[type, Callable[[Any, Sequence[Any], Sequence[Any]], Field]] = {}
_fields_enabled = False


def register_receptive_field(*kinds: type) -> Callable:
    """A decorator: says how many pixels of the input an element of these operators' results depends on: rule(operator, inputs, outputs)
    -> ((rows, columns), (rows, columns) between neighbours). `preprocess_receptive_field` gives both for what they read."""

    def put(rule: Callable) -> Callable:
        _fields.update(dict.fromkeys(kinds, rule))
        return rule

    return put


def enable_receptive_field() -> None:
    """From now on `get_op_stats` of a network's operators (`utils.network`), asked in order, says "receptive_field" and "stride"."""
    global _fields_enabled
    _fields_enabled = True


def disable_receptive_field() -> None:
    """The opposite of `enable_receptive_field`, and how it is at first."""
    global _fields_enabled
    _fields_enabled = False


def preprocess_receptive_field(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Field:
    """The largest field, and step between neighbours, of what an operator reads; ((1, 1), (1, 1)) of the network's inputs."""
    of = lambda name, axis: max((getattr(i.owner, name, (1, 1))[axis] for i in inputs), default=1)
    return (of("_rf", 0), of("_rf", 1)), (of("_stride", 0), of("_stride", 1))


def window_field(module: Any, inputs: Sequence[Any], outputs: Sequence[Any], kernel: Any, stride: Any, dilation: Any = (1, 1)) -> Field:
    """The field of a window that slides over what an operator reads, and its step."""
    (field, step) = preprocess_receptive_field(module, inputs, outputs)
    grown = tuple(f + (k - 1) * d * s for f, s, k, d in zip(field, step, kernel, dilation))
    module._rf, module._stride = grown, tuple(a * b for a, b in zip(step, stride))
    return module._rf, module._stride


def _field(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> dict[str, Any]:
    """What `get_op_stats` says of an operator's field: by its rule, else the largest of what it reads. Modules do not know what made their
    inputs, and have none."""
    if not _fields_enabled or not all(hasattr(i, "owner") for i in (*inputs, *outputs)):
        return {}
    rule = next((_fields[k] for k in type(module).__mro__ if k in _fields), preprocess_receptive_field)
    module._rf, module._stride = rule(module, inputs, outputs)
    return {"receptive_field": module._rf, "stride": module._stride}


def sizeof_fmt(num: float, suffix: str = "B") -> str:
    """A number for people: with suffix "B" in units of 1024, else of 1000.

    >>> sizeof_fmt(2048), sizeof_fmt(37050, "OPs")
    ('2.000 KiB', '37.050 KOPs')
    """
    scale, units = (1024.0, ["", "Ki", "Mi", "Gi", "Ti", "Pi"]) if suffix == "B" else (1000.0, ["", "K", "M", "G", "T", "P"])
    unit = 0
    while abs(num) >= scale and unit < len(units) - 1:
        num, unit = num / scale, unit + 1
    return f"{num:.3f} {units[unit]}{suffix}".rstrip()


def dict2table(list_of_dict: Sequence[dict], header: Sequence[str]) -> Iterator[list]:
    """Rows of a table: the header, then of each dict the values of those names, "" where one is missing."""
    yield list(header)
    for row in list_of_dict:
        yield [row.get(name, "") for name in header]


def _text(rows: Sequence[dict], header: Sequence[str]) -> str:
    table = [[str(c) for c in row] for row in dict2table(rows, header)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    table.insert(1, ["-" * w for w in widths])
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in table)


def _with_shares(rows: list[dict], key: str, suffix: str, column: str, cumulated: str, bar: str, bar_length_max: int) -> float:
    """Adds each row's size as text, its share, the sum so far and a bar; returns the sum."""
    total = sum(r[key] for r in rows)
    most, sum_so_far = max((r[key] for r in rows), default=0), 0.0
    for r in rows:
        sum_so_far += r[key]
        ratio = r[key] / total if total else 0.0
        r.update({
            column: sizeof_fmt(r[key], suffix), cumulated: sizeof_fmt(sum_so_far, suffix), "ratio": ratio, "percentage": f"{ratio:.2%}",
            bar: "#" * int(bar_length_max * r[key] / most if most else 0),
        })  # fmt: skip
    return total


def get_param_stats(param: Tensor) -> dict[str, Any]:
    """Of a parameter: its dtype, shape, mean, standard deviation, elements, bits of one, bytes."""
    values = param.numpy().astype(np.float64)
    return {
        "dtype": param.dtype, "shape": param.shape, "mean": f"{values.mean():.3g}", "std": f"{values.std():.3g}",
        "param_dim": param.size, "nbits": 8 * param.dtype.size, "size": param.size * param.dtype.size,
    }  # fmt: skip


def sum_param_stats(params: list[dict], bar_length_max: int = 20) -> tuple[dict, list[dict]]:
    """(total, rows): the rows of `get_param_stats` with shares, and their sums."""
    return _sum_sizes(params, "param", bar_length_max)


def _sum_sizes(rows: list[dict], kind: str, bar_length_max: int) -> tuple[dict, list[dict]]:
    """(total, rows): the rows of parameters ("param") or results ("act") with shares of their bytes, and the sums."""
    for r in rows:
        r["bytes"] = r["size"]
    size = _with_shares(rows, "bytes", "B", "size", "size_cum", "size_bar", bar_length_max)
    dims = sum(r[f"{kind}_dim"] for r in rows)
    total = {"name": "total", f"{kind}_dim": dims, "bytes": size, "size": sizeof_fmt(size), "size_cum": sizeof_fmt(size)}
    return {f"total_{kind}_dims": dims, f"total_{kind}_size": size}, [*rows, total]


def print_param_stats(params: list[dict]) -> None:
    """Logs the table of parameters."""
    header = ["name", "dtype", "shape", "mean", "std", "param_dim", "nbits", "size", "size_cum", "percentage", "size_bar"]
    get_logger().info("param stats: \n" + _text(params, header))


def get_op_stats(module: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> dict[str, Any] | None:
    """Of a module's call, or of an operator of a network: shapes and the number of operations, and with `enable_receptive_field` of an
    operator its receptive field; None where nothing is known of it."""
    rule, field = _rule(module), _field(module, inputs, outputs)
    if rule is None and not field:
        return None
    shapes = [[t.shape for t in ts] for ts in (inputs, outputs)]
    counted = {} if rule is None else {"flops_num": rule(module, inputs, outputs)}
    return {"input_shapes": shapes[0], "output_shapes": shapes[1], **counted, **field}


def sum_op_stats(flops: list[dict], bar_length_max: int = 20) -> tuple[float, list[dict]]:
    """(total, rows): the rows of `get_op_stats` with shares, and the sum of operations."""
    total = _with_shares(flops, "flops_num", "OPs", "flops", "flops_cum", "bar", bar_length_max)
    return total, [*flops, {"name": "total", "flops_num": total, "flops": sizeof_fmt(total, "OPs")}]


def print_op_stats(flops: list[dict]) -> None:
    """Logs the table of operations."""
    header = ["name", "class_name", "input_shapes", "output_shapes", "flops", "flops_cum", "percentage", "bar"]
    get_logger().info("flops stats: \n" + _text(flops, header))


def get_activation_stats(output: Tensor, has_input: bool = False) -> dict[str, Any]:
    """Of a result: its dtype, shape, elements, bits of one, bytes; with `has_input` its mean and standard deviation, too."""
    found: dict[str, Any] = {
        "dtype": output.dtype, "shape": output.shape, "act_dim": output.size, "nbits": 8 * output.dtype.size,
        "size": output.size * output.dtype.size,
    }  # fmt: skip
    if has_input:
        values = output.numpy().astype(np.float64)
        found |= {"mean": f"{values.mean():.3g}", "std": f"{values.std():.3g}"}
    return found


def sum_activations_stats(activations: list[dict], bar_length_max: int = 20) -> tuple[dict, list[dict]]:
    """(total, rows): the rows of `get_activation_stats` with shares, and their sums."""
    return _sum_sizes(activations, "act", bar_length_max)


def print_activations_stats(activations: list[dict], has_input: bool = False) -> None:
    """Logs the table of results."""
    header = ["name", "class_name", "dtype", "shape", *(["mean", "std"] if has_input else []), "nbits", "act_dim", "size", "size_cum"]
    get_logger().info("activations stats: \n" + _text(activations, [*header, "percentage", "size_bar"]))


def print_summary(**kwargs: Any) -> None:
    """Logs totals, a line each."""
    get_logger().info("summary\n" + _text([{"item": k, "value": v} for k, v in kwargs.items()], ["item", "value"]))


def tensors_in(x: Any) -> list[Tensor]:
    """The tensors in tuples, lists and dicts."""
    parts = x.values() if isinstance(x, dict) else x if isinstance(x, (tuple, list)) else ()
    return [x] if isinstance(x, Tensor) else [t for p in parts for t in tensors_in(p)]


@contextmanager
def evaluated(model: M.Module) -> Iterator[None]:
    """A block in which a network evaluates; then each module has its mode again."""
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for m, mode in modes:
            m.training = mode


def given_inputs(owner: str, inputs: Any, input_shapes: Any) -> list[Any]:
    """The inputs, or zeros of the shapes. Errors: ValueError without either, or with both."""
    if (inputs is None) == (input_shapes is None):
        raise ValueError(f"{owner}: give inputs, or input_shapes in their place")
    if inputs is None:
        several = isinstance(input_shapes[0], (tuple, list))
        inputs = [np.zeros(s, np.float32) for s in (input_shapes if several else [input_shapes])]
    return [inputs] if isinstance(inputs, (np.ndarray, Tensor)) else list(inputs)


def module_stats(
    model: M.Module, inputs: Iterable[Any] | None = None, input_shapes: Any = None, cal_params: bool = True, cal_flops: bool = True,
    cal_activations: bool = True, logging_to_stdout: bool = True, bar_length_max: int = 20,
) -> tuple[Any, Any]:  # fmt: skip
    """What a network holds and computes. It runs once, in evaluation.

    Args:
        inputs: what it is called with: an array or a Tensor, or several. input_shapes: in their place, a shape or several, of float32
            zeros. cal_params, cal_flops, cal_activations: which tables. logging_to_stdout: log them (`tengen.get_logger`).

    Returns: (totals, tables): param_size and act_size are bytes, param_dims and act_dims elements, flops operations; the tables are
        lists of dicts, one for each parameter or layer, and the sum.
    Errors: ValueError without inputs, or with both.

    >>> total, tables = module_stats(M.Linear(8, 10), input_shapes=(2, 8), logging_to_stdout=False)
    >>> total.flops, total.param_dims, tables.flops[0]["class_name"]
    (180, 90, 'Linear')
    """
    given = given_inputs("module_stats", inputs, input_shapes)
    names = {id(m): n or type(m).__name__ for n, m in model.named_modules()}
    flops: list[dict] = []
    activations: list[dict] = []

    def look(module: M.Module, ins: Any, outs: Any) -> None:
        about = {"name": names[id(module)], "class_name": type(module).__name__}
        found = get_op_stats(module, tensors_in(ins), tensors_in(outs))
        if found is not None:
            flops.append(about | found)
        if found is not None or isinstance(module, tuple(hook_modules)):
            activations.append(about | get_activation_stats(tensors_in(outs)[0], True))

    hooks = [m.register_forward_hook(look) for m in model.modules()]
    try:
        with evaluated(model):
            model(*(x if isinstance(x, Tensor) else Tensor(x) for x in given))
    finally:
        for h in hooks:
            h.remove()
    params = [get_param_stats(p) | {"name": n} for n, p in model.named_parameters()] if cal_params else []
    count = len(params)
    in_params, param_rows = sum_param_stats(params, bar_length_max)
    total_flops, op_rows = sum_op_stats(flops if cal_flops else [], bar_length_max)
    in_acts, act_rows = sum_activations_stats(activations if cal_activations else [], bar_length_max)
    if logging_to_stdout:
        summary: dict[str, Any] = {}
        if cal_params:
            print_param_stats(param_rows)
            summary |= {"#params": count, "total_param_dims": in_params["total_param_dims"]}
            summary["total_param_size"] = sizeof_fmt(in_params["total_param_size"])
        if cal_flops:
            print_op_stats(op_rows)
            summary["total_flops"] = sizeof_fmt(total_flops, "OPs")
        if cal_activations:
            print_activations_stats(act_rows, True)
            summary |= {"total_act_dims": in_acts["total_act_dims"], "total_act_size": sizeof_fmt(in_acts["total_act_size"])}
        print_summary(**summary)
    totals = total_stats(
        in_params["total_param_size"], in_params["total_param_dims"], total_flops, in_acts["total_act_size"], in_acts["total_act_dims"]
    )
    return totals, stats_tables(param_rows, op_rows, act_rows)
