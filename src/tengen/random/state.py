"""Generators: a seed and the number of the next draw, held in a tensor, so that a traced program updates it like any state."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from operator import index
from typing import cast

import numpy as np

from tengen.base.device import Device, default_device
from tengen.base.dtype import uint64
from tengen.compiler.arrays import new_buffer
from tengen.compiler.plans import Layout
from tengen.ops import rng as _ops
from tengen.ops.attributes import Kind, Shape, kind
from tengen.ops.define import REGISTRY, dispatch
from tengen.tensor import Tensor, tensor_over

_SHAPE = cast(Kind, kind("Shape"))


class RNG:
    """A stream of random numbers of its own.

    Args:
        seed: 0 to 2^64 - 1; default: taken from the system. device: where its numbers are made, a `Device` or its name; default:
            the default device.

    >>> a, b = RNG(1), RNG(1)
    >>> a.uniform(size=(3,)).tolist() == b.uniform(size=(3,)).tolist()
    True
    """

    def __init__(self, seed: int | None = None, device=None):
        self._first = 0
        self._device = None if device is None else Device.named(device)
        self.seed(int.from_bytes(os.urandom(8), "little") if seed is None else seed)

    @functools.cached_property  # a process that draws nothing does not load the runtime for it
    def _key(self) -> Tensor:
        return _outside(self._first, 0, self._device)

    @functools.cached_property
    def _next(self) -> Tensor:
        return _outside(0, 1, self._device)

    def seed(self, seed: int) -> None:
        """Starts the stream of `seed` from its beginning."""
        if not 0 <= (seed := operator.index(seed)) < 2**64:
            raise ValueError(f"seed {seed} is outside 0 .. 2^64 - 1")
        self._first = seed
        if "_key" in vars(self):  # a trace may know this tensor
            self._key._reset(Tensor(np.array([seed, 0], np.uint64)))

    def state(self) -> np.ndarray:
        """Seed and number of the next draw, for a checkpoint; `set_state` takes it back."""
        return self._key.numpy().copy()

    def set_state(self, state: np.ndarray) -> None:
        """Continues from a saved state."""
        words = np.asarray(state)
        if words.shape != (2,) or words.dtype.kind not in "iu" or any(int(w) < 0 for w in words):
            raise ValueError(f"the state of a generator is two whole numbers, seed and number of the next draw, got {state!r}")
        self._key._reset(Tensor(words.astype(np.uint64)))

    def named_states(self, names: Mapping[int, str]) -> Iterator[tuple[str, Tensor]]:
        """The tensor that it keeps, with a name for a file."""
        yield "random_state", self._key

    def _draw(self, op, shape) -> Tensor:
        if type(shape) is not tuple:  # the elements of one are for the op to read
            shape = () if shape is None else _SHAPE.plain(shape, "size", dispatch.known)
        out = op(self._key.detach(), shape)
        self._key._reset(self._key + self._next)
        return out

    def uniform(self, low: float = 0.0, high: float = 1.0, size: Shape | None = ()) -> Tensor:
        """float32 in [low, high)."""
        u = self._draw(_ops.random_uniform, size)
        return u if _is(low, 0) and _is(high, 1) else u * (high - low) + low

    def normal(self, mean: float = 0.0, std: float = 1.0, size: Shape | None = ()) -> Tensor:
        """Normal float32."""
        if isinstance(std, (int, float)) and std < 0:
            raise ValueError(f"normal: std={std} must not be negative")
        z = self._draw(_ops.random_normal, size)
        return z if _is(mean, 0) and _is(std, 1) else z * std + mean

    def randint(self, low: int, high: int | None = None, size: Shape | None = ()) -> Tensor:
        """int64 in [low, high), or [0, low)."""
        low, high = (0, index(low)) if high is None else (index(low), index(high))
        if high <= low or high - low > 2**32:
            raise ValueError(f"randint: [{low}, {high}) is empty or wider than 2^32")
        bits = self._draw(_ops.random_bits, size)
        return REGISTRY["astype"](REGISTRY["right_shift"](REGISTRY["astype"](bits, "uint64") * (high - low), 32), "int64") + low

    def permutation(self, n: int) -> Tensor:
        """The int64 numbers 0 .. n - 1 in random order: the order of n random keys (equal keys keep their order)."""
        return REGISTRY["argsort"](self._draw(_ops.random_bits, (n,)))


def _is(value, number: int) -> bool:
    """Whether it is this number; an array or a tensor is none."""
    return isinstance(value, (int, float)) and value == number


def _outside(seed: int, draw: int, device: Device | None) -> Tensor:
    """A key, as if it had been made before the trace that is being recorded: it is a state of the trace, not a constant."""
    device = device or default_device()
    return tensor_over(new_buffer(np.array([seed, draw], np.uint64), device), Layout((2,), uint64, None, device))


default_rng = RNG(0)

uniform, normal, randint, permutation, seed = (
    default_rng.uniform,
    default_rng.normal,
    default_rng.randint,
    default_rng.permutation,
    default_rng.seed,
)


def manual_seed(seed: int) -> None:
    """Seeds the default generator, and so every draw that names no other."""
    default_rng.seed(seed)


def uniform_mask(shape: Sequence[int], keep: float) -> Tensor:
    """A bool tensor, true with probability `keep` (dropout)."""
    return default_rng._draw(_ops.random_uniform, shape) < keep
