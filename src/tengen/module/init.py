"""Initial values. Each function fills a tensor in place."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from tengen import random
from tengen.base.dtype import DType, float32
from tengen.ops.define import REGISTRY
from tengen.runtime import native
from tengen.tensor import Parameter, Tensor, from_numpy

PAGES = 1 << 18  # bytes from which zeros are pages of their own
_UNDRAWN = ContextVar("undrawn", default=False)


@contextmanager
def undrawn() -> Iterator[None]:
    """Inside, `normal_` and `uniform_` draw nothing and give zeros, for which no memory is taken before they are read: for a network whose
    weights are loaded next.

    >>> from tengen import module as M
    >>> with M.init.undrawn():
    ...     net = M.Linear(2, 1)
    >>> net.weight.tolist()
    [[0.0, 0.0]]
    """
    before = _UNDRAWN.set(True)
    try:
        yield
    finally:
        _UNDRAWN.reset(before)
        native.trim()  # what the tensors had before they were zeros


def blank(*shape: int) -> Parameter:
    """A parameter of float32 that is given its values next: zeros, for which no memory is taken before they are read.

    >>> from tengen import module as M
    >>> M.init.blank(1, 2).tolist()
    [[0.0, 0.0]]
    """
    return Parameter(untouched(shape, float32))


def untouched(shape: Sequence[int], dtype: DType) -> Tensor:
    """Zeros over pages that the system gives when they are read. What the C library gives may have been used before, and then it writes zeros
    there: large ones are pages of their own."""
    size = math.prod(shape) * dtype.itemsize
    a = np.zeros(shape, dtype.numpy) if size < PAGES else np.frombuffer(mmap.mmap(-1, size), dtype.numpy).reshape(shape)
    return from_numpy(a, copy=False)


def _unread(tensor: Tensor) -> None:
    tensor._reset(untouched(tensor.shape, tensor.dtype))


def fill_(tensor: Tensor, val: float) -> None:
    """Every element becomes val."""
    _put(tensor, REGISTRY["copy"](REGISTRY["broadcast_to"](Tensor(float(val)), tensor.shape)))


def _put(tensor: Tensor, values: Tensor) -> None:
    """Gives a tensor values, in its dtype. Those that have it are not copied."""
    tensor._reset(values if values.dtype is tensor.dtype else values.astype(tensor.dtype))


def zeros_(tensor: Tensor) -> None:
    """Every element becomes 0."""
    fill_(tensor, 0.0)


def ones_(tensor: Tensor) -> None:
    """Every element becomes 1."""
    fill_(tensor, 1.0)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> None:
    """Uniform in [a, b)."""
    if _UNDRAWN.get():
        return _unread(tensor)
    _put(tensor, random.uniform(a, b, tensor.shape))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> None:
    """Normal."""
    if _UNDRAWN.get():
        return _unread(tensor)
    _put(tensor, random.normal(mean, std, tensor.shape))


def constant_(tensor: Tensor, val: float) -> None:
    """`fill_`, by PyTorch's name."""
    fill_(tensor, val)


def eye_(tensor: Tensor) -> None:
    """A matrix becomes the identity.

    Errors: ValueError for another number of axes than two
    """
    if tensor.ndim != 2:
        raise ValueError(f"eye_ takes a matrix, got shape {tensor.shape}")
    tensor._reset(REGISTRY["eye"](*tensor.shape).astype(tensor.dtype))


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> None:
    """Normal, of the numbers that lie in [a, b]: what lies outside is drawn again.

    Errors: ValueError where less than a thousandth of all would lie inside.
    """
    inside = 0.5 * (math.erf((b - mean) / (std * math.sqrt(2))) - math.erf((a - mean) / (std * math.sqrt(2)))) if std > 0 else 0.0
    if inside < 1e-3:
        share = f"a share of {max(inside, 0.0):.2g} of the normal numbers of mean {mean} and std {std}"
        raise ValueError(f"trunc_normal_: [{a}, {b}] holds {share}")
    op = REGISTRY
    x = random.normal(mean, std, tensor.shape)
    while op["any"](outside := op["logical_or"](op["less"](x, a), op["greater"](x, b))).item():
        x = op["where"](outside, random.normal(mean, std, tensor.shape), x)
    tensor._reset(x.astype(tensor.dtype))


def orthogonal_(tensor: Tensor, gain: float = 1.0) -> None:
    """`gain` times a random matrix with orthonormal rows, or columns where there are fewer; of more axes the first against all others
    (Saxe et al., arXiv 1312.6120). Normal numbers made orthogonal by Gram and Schmidt's method, twice over, in float64.

    Errors: ValueError for fewer than two axes
    """
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_ takes at least two axes, got shape {tensor.shape}")
    rows, columns = tensor.shape[0], tensor.size // tensor.shape[0]
    op, (few, many) = REGISTRY, sorted((rows, columns))
    a = random.normal(0.0, 1.0, (few, many)).astype("float64")
    q = op["zeros"]((few, many), "float64")
    for i in range(few):
        v = a[i]
        for _ in range(2):
            v = v - op["matmul"](op["matmul"](q, v), q)
        q[i] = v / op["sqrt"](op["sum"](v * v))
    q = op["permute"](q, (1, 0)) if rows > columns else q
    tensor._reset((q * gain).reshape(tensor.shape).astype(tensor.dtype))


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps a variance through a nonlinearity.

    Errors: ValueError for a nonlinearity that is not there
    """
    if nonlinearity in (
        "linear",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "sigmoid",
    ):
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else float(param)) ** 2))
    raise ValueError(f"no gain is known for {nonlinearity!r}")


def calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[float, float]:
    """How many inputs an output element sums over, and how many outputs an input element reaches, at stride 1.

    Shapes: (O, C), filters (O, C, *K) or grouped (G, O/G, C/G, *K). Five axes are a filter of `Conv3d` where the parameter is one
        (`Parameter.spatial`), else a grouped one of `Conv2d`, as in MegEngine. Filters of a transposed convolution begin with its
        inputs, so both numbers change places, as they do in MegEngine and PyTorch.
    Errors: ValueError for fewer than two axes
    """
    s = tensor.shape
    if len(s) < 2:
        raise ValueError(f"a tensor of shape {s} has no fans; help: at least two axes are needed")
    spatial = getattr(tensor, "spatial", None)
    grouped = len(s) > 4 if spatial is None else len(s) > 2 + spatial
    outputs, inputs, *kernel = s[1:] if grouped else s
    field = math.prod(kernel)
    return inputs * field, outputs * field


def calculate_correct_fan(tensor: Tensor, mode: str) -> float:
    """The fan that `mode` ("fan_in" or "fan_out") names.

    Errors: ValueError for a mode that is not there
    """
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"mode={mode!r} must be 'fan_in' or 'fan_out'")
    return calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> None:
    """Glorot and Bengio, AISTATS 2010."""
    a = gain * math.sqrt(6.0 / sum(calculate_fan_in_and_fan_out(tensor)))
    uniform_(tensor, -a, a)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> None:
    """Glorot and Bengio, AISTATS 2010."""
    normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(calculate_fan_in_and_fan_out(tensor))))


def msra_uniform_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> None:
    """He et al., arXiv 1502.01852."""
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3.0 / calculate_correct_fan(tensor, mode))
    uniform_(tensor, -bound, bound)


def msra_normal_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> None:
    """He et al., arXiv 1502.01852."""
    normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(calculate_correct_fan(tensor, mode)))


kaiming_uniform_, kaiming_normal_ = msra_uniform_, msra_normal_  # PyTorch's names


def dirac_(tensor: Tensor, groups: int = 1) -> None:
    """A filter (O, C, *K) becomes the identity: the middle of channel i's filter is 1 at channel i, all else 0.

    Errors: ValueError for what is no filter, or has more axes than three of space, or fewer channels than groups share
    """
    if not 3 <= tensor.ndim <= 5 or tensor.shape[0] % groups:
        raise ValueError(f"dirac_: a filter (O, C, *K) is needed whose O is a multiple of {groups}, got shape {tensor.shape}")
    values = np.zeros(tensor.shape, np.float32)
    each = tensor.shape[0] // groups
    for g in range(groups):
        for i in range(min(each, tensor.shape[1])):
            values[(g * each + i, i, *(k // 2 for k in tensor.shape[2:]))] = 1.0
    _put(tensor, Tensor(values))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01) -> None:
    """A matrix of normal numbers, of whose every column so great a share is 0, at places that are drawn. Source: Martens, ICML 2010.

    Errors: ValueError for what is no matrix
    """
    if tensor.ndim != 2:
        raise ValueError(f"sparse_: a matrix is needed, got shape {tensor.shape}")
    zeros = math.ceil(sparsity * tensor.shape[0])
    order = REGISTRY["argsort"](REGISTRY["argsort"](random.uniform(0.0, 1.0, tensor.shape), False, 0), False, 0)
    _put(tensor, REGISTRY["where"](REGISTRY["less"](order, zeros), 0.0, random.normal(0.0, std, tensor.shape)))
