"""Random tensors. Their numbers come from Tengen's generator, not from PyTorch's; a `generator` that a call names is not used.

What writes random numbers into a tensor (`x.uniform_()`) is, in a graph, an operator that takes x for its shape and dtype alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import tengen.functional as F
from tengen import random
from tengen.base.dtype import int64
from tengen.base.errors import ArgumentError
from tengen.interop.torch.dtypes import named, of
from tengen.interop.torch.registry import op
from tengen.random.state import default_rng, uniform_mask
from tengen.tensor import Tensor


@op("rand")
def rand(size: Sequence[Any], *, dtype: str | None = None) -> Tensor:
    """Uniform in [0, 1)."""
    return of(random.uniform(size=tuple(size)), named(dtype))


@op("randn")
def randn(size: Sequence[Any], *, dtype: str | None = None) -> Tensor:
    """Standard normal."""
    return of(random.normal(size=tuple(size)), named(dtype))


@op("rand_like")
def rand_like(x: Tensor, *, dtype: str | None = None) -> Tensor:
    """Uniform in the shape of x."""
    return rand(x.shape, dtype=dtype or x.dtype.name)


@op("randn_like")
def randn_like(x: Tensor, *, dtype: str | None = None) -> Tensor:
    """Standard normal in the shape of x."""
    return randn(x.shape, dtype=dtype or x.dtype.name)


@op("randint.low")
def randint(low: int, high: int, size: Sequence[Any], *, dtype: str | None = None) -> Tensor:
    """Integers in [low, high)."""
    return of(random.randint(low, high, tuple(size)), named(dtype, int64))


@op("randint")
def randint_below(high: int, size: Sequence[Any], *, dtype: str | None = None) -> Tensor:
    """Integers in [0, high)."""
    return randint(0, high, size, dtype=dtype)


@op("randint_like", "randint_like.generator")
def randint_like(x: Tensor, high: int, *, dtype: str | None = None, generator: Any = None) -> Tensor:
    """Integers in [0, high) in the shape of x."""
    return randint(0, high, x.shape, dtype=dtype or x.dtype.name)


@op("randint_like.low_dtype", "randint_like.low_generator_dtype")
def randint_like_from(x: Tensor, low: int, high: int, *, dtype: str | None = None, generator: Any = None) -> Tensor:
    """Integers in [low, high) in the shape of x."""
    return randint(low, high, x.shape, dtype=dtype or x.dtype.name)


@op("uniform")
def uniform(x: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> Tensor:
    """Uniform in [low, high)."""
    return random.uniform(low, high, tuple(x.shape)).astype(x.dtype)


@op("normal_functional")
def normal_functional(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """Normal."""
    return random.normal(mean, std, tuple(x.shape)).astype(x.dtype)


@op("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor")
def normal(mean: Any, std: Any = 1.0, *, generator: Any = None) -> Tensor:
    """Normal, each element with a mean and a deviation of its own."""
    shape = np.broadcast_shapes(*(v.shape for v in (mean, std) if isinstance(v, Tensor)))
    kind = mean.dtype if isinstance(mean, Tensor) else std.dtype
    return (random.normal(size=shape).astype(kind) * std + mean).astype(kind)


@op("normal.float_float")
def normal_of(mean: float, std: float, size: Sequence[Any], *, dtype: str | None = None, generator: Any = None) -> Tensor:
    """Normal of a size."""
    return of(random.normal(mean, std, tuple(size)), named(dtype))


@op("log_normal")
def log_normal(x: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> Tensor:
    """exp of normal numbers."""
    return F.exp(random.normal(mean, std, tuple(x.shape))).astype(x.dtype)


@op("exponential")
def exponential(x: Tensor, rate: float = 1.0, *, generator: Any = None) -> Tensor:
    """Exponentially distributed."""
    return (-F.log(default_rng.open_uniform(tuple(x.shape))) / rate).astype(x.dtype)


@op("geometric")
def geometric(x: Tensor, p: float, *, generator: Any = None) -> Tensor:
    """How many trials it takes, each with probability p: 1, 2, ..."""
    if not 0 < p < 1:
        raise ArgumentError(f"geometric: p={p} is not above 0 and below 1")
    return F.ceil(F.log(default_rng.open_uniform(tuple(x.shape))) / math.log1p(-p)).astype(x.dtype)


@op("cauchy")
def cauchy(x: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None) -> Tensor:
    """Cauchy distributed: the tangent of a uniform angle."""
    return (F.tan((default_rng.open_uniform(tuple(x.shape)) - 0.5) * math.pi) * sigma + median).astype(x.dtype)


@op("random.from")
def random_from(x: Tensor, low: int, high: int | None, *, generator: Any = None) -> Tensor:
    """Whole numbers in [low, high); without `high`, up to the largest up to which x's dtype holds all."""
    return random.randint(low, _end(x) if high is None else high, tuple(x.shape)).astype(x.dtype)


@op("random.to")
def random_to(x: Tensor, high: int, *, generator: Any = None) -> Tensor:
    """Whole numbers in [0, high)."""
    return random_from(x, 0, high)


@op("random")
def random_all(x: Tensor, *, generator: Any = None) -> Tensor:
    """Whole numbers from 0 to the largest up to which x's dtype holds all, and to 2^32 - 1 at most."""
    return random_from(x, 0, None)


def _end(x: Tensor) -> int:
    """What `random_` stays below: at most 2^32, since the generator's numbers have 32 bits."""
    whole = {"bool": 1, "float16": 11, "bfloat16": 8}  # bits of the whole numbers that a dtype holds
    bits = whole.get(x.dtype.name, 24 if x.dtype.name == "float32" else 8 * x.dtype.size - (x.dtype.kind == "i"))
    return 1 << min(bits, 32)


@op("multinomial")
def multinomial(p: Tensor, count: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
    """The numbers of outcomes, drawn in proportion to the last axis."""
    return random.multinomial(p, count, replacement)


@op("poisson")
def poisson(rate: Tensor, generator: Any = None) -> Tensor:
    """Poisson distributed, with a rate for each element."""
    return random.poisson(rate).astype(rate.dtype)


@op("binomial")
def binomial(count: Tensor, p: Tensor, generator: Any = None) -> Tensor:
    """How many of `count` trials succeed, each with probability p."""
    return random.binomial(count, p).astype(count.dtype)


@op("randperm")
def randperm(n: int, *, dtype: str | None = None) -> Tensor:
    """0 .. n - 1 in a random order."""
    return of(random.permutation(n), named(dtype, int64))


@op("bernoulli.p")
def bernoulli_p(x: Tensor, p: float = 0.5, *, generator: Any = None) -> Tensor:
    """1 with probability p, else 0."""
    return uniform_mask(x.shape, p).astype(x.dtype)


@op("bernoulli.Tensor")
def bernoulli_of(x: Tensor, p: Tensor, *, generator: Any = None) -> Tensor:
    """As `bernoulli`, with probabilities of another tensor, in x's shape and dtype."""
    return F.less(random.uniform(size=tuple(x.shape)), p).astype(x.dtype)


@op("bernoulli")
def bernoulli(x: Tensor, *, generator: Any = None) -> Tensor:
    """1 with the probability that stands there."""
    return F.less(random.uniform(size=tuple(x.shape)), x).astype(x.dtype)


@op("native_dropout", wants=True)
def native_dropout(x: Tensor, p: float, train: bool | None = None, *, wanted: frozenset[int]) -> tuple[Tensor, Tensor | None]:
    """(x with elements zeroed with probability p and the others divided by 1 - p, the mask of those that are kept)."""
    if train is False or p == 0:
        return x, F.full(x.shape, True, "bool") if 1 in wanted else None
    if 1 not in wanted:
        return F.dropout(x, float(p)), None
    mask = uniform_mask(x.shape, 1 - p)
    return x * mask.astype(x.dtype) * (1 / (1 - p) if p < 1 else 0.0), mask


@op("dropout")
def dropout(x: Tensor, p: float, train: bool) -> Tensor:
    """Zeroes elements with probability p."""
    return F.dropout(x, float(p), bool(train))


@op("rrelu_with_noise_functional", wants=True)
def rrelu(
    x: Tensor, noise: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None, *,
    wanted: frozenset[int],
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """(x, times a slope where it is not above 0: drawn for each element in training, else the mean of both ends; the slopes)."""
    if not training:
        return F.leaky_relu(x, (lower + upper) / 2), noise if 1 in wanted else None
    slopes = F.where(x <= 0, random.uniform(lower, upper, size=tuple(x.shape)).astype(x.dtype), 1.0)
    return x * slopes, slopes
