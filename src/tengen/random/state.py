"""Generators: a seed and the number of the next draw, held in a tensor, so that a traced program updates it like any state."""

from __future__ import annotations

import functools
import itertools
import operator
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite, prod
from operator import index
from typing import Any, cast

import numpy as np

from tengen.base.arguments import Checked
from tengen.base.device import Device, default_device
from tengen.base.digest import blake2b
from tengen.base.dtype import dtype as _dtype
from tengen.base.dtype import int64, promote, uint64
from tengen.base.errors import ArgumentError, DeviceError
from tengen.compiler.arrays import new_buffer
from tengen.compiler.plans import Layout
from tengen.ops import rng as _ops
from tengen.ops.attributes import DeviceLike, DTypeLike, Kind, Shape, kind
from tengen.ops.define import REGISTRY, broadcast_shapes, dispatch
from tengen.ops.rejection import random_binomial, random_gamma, random_poisson
from tengen.tensor import Tensor, tensor_over, tracing
from tengen.tensor.batched import innermost
from tengen.tensor.batching import drawn

_SHAPE = cast(Kind, kind("Shape"))
TensorLike = Tensor | np.ndarray | float


def checked_seed(seed: int) -> int:
    """A seed as an int. Errors: ArgumentError for one out of range, and for what is no whole number."""
    try:
        index(seed)
    except TypeError:
        raise ArgumentError(f"seed {seed!r} is no whole number; help: 0 .. 2^64 - 1") from None
    if not 0 <= (seed := operator.index(seed)) < 2**64:
        raise ArgumentError(f"seed {seed} is outside 0 .. 2^64 - 1")
    return seed


class RNG(Checked):
    """A stream of random numbers of its own.

    Args:
        seed: 0 to 2^64 - 1; default: taken from the system. device: where its numbers are made, a `Device` or its name; default:
            the default device. A draw's `device=` must be that one.

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
        """Starts the stream of `seed` from its beginning.

        Errors: ArgumentError for a seed out of range
        """
        self._first = checked_seed(seed)
        if "_key" in vars(self):  # a trace may know this tensor
            self._key._reset(Tensor(np.array([self._first, 0], np.uint64)))

    def state(self) -> np.ndarray:
        """Seed and number of the next draw, for a checkpoint; `set_state` takes it back."""
        return self._key.numpy().copy()

    def set_state(self, state: np.ndarray) -> None:
        """Continues from a saved state.

        Errors: ArgumentError for what is no such state
        """
        words = np.asarray(state)
        if words.shape != (2,) or words.dtype.kind not in "iu" or any(int(w) < 0 for w in words):
            raise ArgumentError(f"the state of a generator is two whole numbers, seed and number of the next draw, got {state!r}")
        self._key._reset(Tensor(words.astype(np.uint64)))

    def state_dict(self) -> dict[str, np.ndarray]:
        """The state in a dict, as `save_checkpoint` asks for it."""
        return {"state": self.state()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes back what `state_dict` gave."""
        self.set_state(state_dict["state"])

    def named_states(self, names: Mapping[int, str]) -> Iterator[tuple[str, Tensor]]:
        """The tensor that it keeps, with a name for a file."""
        yield "random_state", self._key

    def _check_device(self, device: DeviceLike | None) -> None:
        """DeviceError where numbers are asked for on another device than the one that this generator draws on."""
        if device is not None and (there := Device.named(device)) is not self._key.device:
            raise DeviceError(f"this generator draws on {self._key.device}, not on {there}; help: RNG(seed, device={there.name!r})")

    def _draw(self, op, shape) -> Tensor:
        if type(shape) is not tuple:  # the elements of one are for the op to read
            shape = () if shape is None else _SHAPE.plain(shape, "size", dispatch.known)
        key = self._key.detach()
        if innermost() is not None:
            out = drawn(op, key, (), shape)
        elif tracing.active is None and all(type(d) is int and d >= 0 for d in shape):
            # in a row, since an element depends on its number alone: all shapes share one program
            out = REGISTRY["reshape"](op(key, (prod(shape),)), shape)
        else:
            out = op(key, shape)
        self._key._reset(self._key + self._next)
        return out

    def uniform(self, low: float = 0.0, high: float = 1.0, size: Shape | None = (), device: DeviceLike | None = None) -> Tensor:
        """float32 in [low, high).

        Errors: ArgumentError for a bound that is NaN or infinite
        """
        self._check_device(device)
        _check_finite("uniform", low=low, high=high)
        u = self._draw(_ops.random_uniform, size)
        return u if _is(low, 0) and _is(high, 1) else u * (high - low) + low

    def normal(self, mean: float = 0.0, std: float = 1.0, size: Shape | None = (), device: DeviceLike | None = None) -> Tensor:
        """Normal float32.

        Errors: ArgumentError for a negative standard deviation, and for NaN and infinity
        """
        self._check_device(device)
        _check_finite("normal", mean=mean, std=std)
        if isinstance(std, (int, float)) and std < 0:
            raise ArgumentError(f"normal: std={std} must not be negative")
        z = self._draw(_ops.random_normal, size)
        return z if _is(mean, 0) and _is(std, 1) else z * std + mean

    def randint(
        self, low: int, high: int | None = None, size: Shape | None = (), device: DeviceLike | None = None
    ) -> Tensor:
        """int64 in [low, high), or [0, low).

        Errors: ArgumentError for an interval that is empty or wider than 2^32
        """
        self._check_device(device)
        low, high = (0, index(low)) if high is None else (index(low), index(high))
        if high <= low or high - low > 2**32:
            raise ArgumentError(f"randint: [{low}, {high}) is empty or wider than 2^32")
        bits = self._draw(_ops.random_bits, size)
        return REGISTRY["astype"](REGISTRY["right_shift"](REGISTRY["astype"](bits, "uint64") * (high - low), 32), "int64") + low

    def permutation(self, n: int | Tensor, dtype: DTypeLike = "int64", device: DeviceLike | None = None) -> Tensor:
        """The numbers 0 .. n - 1 in random order: the order of n random keys (equal keys keep their order). Of a tensor with axes: a
        copy whose rows, what its first axis counts, are in random order; `dtype` is that of numbers alone."""
        self._check_device(device)
        if isinstance(n, Tensor) and n.ndim:
            return n[self.permutation(n.shape[0])]
        order = REGISTRY["argsort"](self._draw(_ops.random_bits, (n,)))
        return order if _dtype(dtype) is int64 else REGISTRY["astype"](order, dtype)

    def shuffle(self, inp: Tensor) -> None:
        """Puts a tensor's rows, what its first axis counts, into random order: the tensor itself changes.

        Errors: ArgumentError for a tensor without an axis
        """
        if not inp.ndim:
            raise ArgumentError("shuffle: a 0-d tensor has no rows")
        inp._reset(inp.detach()[self.permutation(inp.shape[0])])

    # -- distributions with parameters: numbers or tensors; the result has the shape size + their common shape ----------------
    def exponential(self, rate: TensorLike = 1.0, size: Shape | None = None) -> Tensor:
        """Exponentially distributed numbers: -log(u) / rate for a uniform u in (0, 1) of 32 bits."""
        (r,) = self._parameters("exponential", size, rate=rate)
        return _where(r >= 0, REGISTRY["astype"](-REGISTRY["log"](self.open_uniform(r.shape)), r.dtype) / r)

    def gamma(self, shape: TensorLike, scale: TensorLike = 1.0, size: Shape | None = None) -> Tensor:
        """Gamma distributed numbers of a shape parameter above 0 and a scale; see the op `random_gamma`."""
        _check_positive("gamma", shape=shape)
        a, s = self._parameters("gamma", size, shape=shape, scale=scale)
        return _where(s >= 0, self._sample(random_gamma, a) * s)

    def beta(self, alpha: TensorLike, beta: TensorLike, size: Shape | None = None) -> Tensor:
        """Beta distributed numbers, as x / (x + y) of two gamma distributed ones. Both parameters are above 0."""
        _check_positive("beta", alpha=alpha, beta=beta)
        a, b = self._parameters("beta", size, alpha=alpha, beta=beta)
        x = self._sample(random_gamma, a)
        return x / (x + self._sample(random_gamma, b))

    def poisson(self, lam: TensorLike, size: Shape | None = None) -> Tensor:
        """Poisson distributed whole numbers, as floats; see the op `random_poisson`."""
        (rate,) = self._parameters("poisson", size, lam=lam)
        return self._sample(random_poisson, rate)

    def binomial(self, n: TensorLike, p: TensorLike, size: Shape | None = None) -> Tensor:
        """Binomially distributed whole numbers, as floats; see the op `random_binomial`."""
        count, probability = self._parameters("binomial", size, n=n, p=p)
        return self._sample(random_binomial, count, probability)

    def bernoulli(self, p: TensorLike, size: Shape | None = None) -> Tensor:
        """1 with probability p, else 0."""
        (probability,) = self._parameters("bernoulli", size, p=p)
        x = REGISTRY["astype"](self._draw(_ops.random_uniform, probability.shape) < probability, probability.dtype)
        return _where(REGISTRY["logical_and"](probability >= 0, probability <= 1), x)

    def multinomial(self, input: Tensor, num_samples: int, replacement: bool = False) -> Tensor:
        """The numbers of outcomes, drawn with probabilities in proportion to the last axis of `input`, (n,) or (batch, n).

        Shapes: (n,) -> (num_samples,); (batch, n) -> (batch, num_samples), int64. Without replacement the outcomes of a row differ:
        they have the largest of log p - log e, for exponentially distributed e.

        Errors: ArgumentError where a weight is negative or not finite, or fewer than num_samples are positive without replacement;
        not in a trace, which does not know the values.
        """
        p = _float(input)
        if p.ndim not in (1, 2) or num_samples < 1:
            raise ArgumentError(f"multinomial: weights of shape {p.shape}, num_samples={num_samples}; help: (n,) or (batch, n), at least 1")
        if tracing.recorder is None:
            w = p.numpy()
            if not ((w >= 0) & (w < np.inf)).all() or not ((w > 0).sum(-1) >= (1 if replacement else num_samples)).all():
                raise ArgumentError(f"multinomial: weights must be finite, not negative, and enough of them positive for {num_samples}")
        op, weights = REGISTRY, REGISTRY["astype"](p, "float64")
        if not replacement:
            keys = op["log"](weights) - op["log"](-op["log"](self.open_uniform(p.shape)))
            return op["astype"](op["topk"](keys, num_samples, descending=True)[1], "int64")
        ends = op["cumsum"](weights, -1)
        u = self.open_uniform((*p.shape[:-1], num_samples)) * ends[..., -1:]
        below = op["expand_dims"](ends, -2) < op["expand_dims"](u, -1)
        return op["sum"](op["astype"](below, "int64"), -1)

    def _sample(self, op, *parameters: Tensor) -> Tensor:
        key, ps = self._key.detach(), [p.detach() for p in parameters]
        out = op(key, *ps) if innermost() is None else drawn(op, key, ps)
        self._key._reset(self._key + self._next)
        return out

    def open_uniform(self, shape) -> Tensor:
        """float64 in (0, 1), the middles of 2^32 parts."""
        return (REGISTRY["astype"](self._draw(_ops.random_bits, tuple(shape)), "float64") + 0.5) * 2.0**-32

    def _parameters(self, owner: str, size: Shape | None, **given: TensorLike) -> list[Tensor]:
        """Tensors of floats in the shape of a result. A number among them that is negative is an
        error; a tensor's element makes a NaN, since its value may not be known yet."""
        for name, value in given.items():
            if isinstance(value, (int, float)) and not 0 <= value < np.inf:
                raise ArgumentError(f"{owner}: {name}={value} must be finite and not negative")
        shape = () if size is None else _SHAPE.plain(size, "size", dispatch.known)
        tensors = [_float(v) for v in given.values()]
        d = functools.reduce(promote, (t.dtype for t in tensors))
        shape = (*shape, *broadcast_shapes(*(t.shape for t in tensors)))
        return [REGISTRY["broadcast_to"](t if t.dtype is d else REGISTRY["astype"](t, d), shape) for t in tensors]


def _check_finite(owner: str, **given: Any) -> None:
    for name, value in given.items():
        if isinstance(value, (int, float)) and not isfinite(value):
            raise ArgumentError(f"{owner}: {name}={value} must be finite")


def _check_positive(owner: str, **given: Any) -> None:
    for name, value in given.items():
        if isinstance(value, (int, float)) and not 0 < value < np.inf:
            raise ArgumentError(f"{owner}: {name}={value} must be finite and above 0")


def _float(value: Any) -> Tensor:
    """A parameter as a tensor of floats; numbers and integers are float32."""
    t = value if isinstance(value, Tensor) else Tensor(np.float32(value) if isinstance(value, (int, float)) else value)
    return t if t.dtype.is_float else REGISTRY["astype"](t, "float32")


def _where(valid: Tensor, x: Tensor) -> Tensor:
    """x, and NaN for parameters that are not valid."""
    return REGISTRY["where"](valid, x, float("nan"))


def _is(value, number: int) -> bool:
    """Whether it is this number; an array or a tensor is none."""
    return isinstance(value, (int, float)) and value == number


def _outside(seed: int, draw: int, device: Device | None) -> Tensor:
    """A key, as if it had been made before the trace that is being recorded: it is a state of the trace, not a constant."""
    device = device or default_device()
    return tensor_over(new_buffer(np.array([seed, draw], np.uint64), device), Layout((2,), uint64, None, device))


class _Default(RNG):
    """The generator of draws that name none. A thread that is a rank of its own (`own_stream`) has a stream of its own, as a process has."""

    _threads = threading.local()

    @property
    def _key(self) -> Tensor:
        own = getattr(self._threads, "key", None)
        return self._everyones if own is None else own

    @functools.cached_property
    def _everyones(self) -> Tensor:
        return _outside(self._first, 0, self._device)

    def seed(self, seed: int) -> None:
        """Starts the stream of `seed` from its beginning; `another_seed` follows from it, too.

        Errors: ArgumentError for a seed out of range
        """
        own = getattr(self._threads, "key", None) is not None
        if not own and "_everyones" not in vars(self):
            super().seed(seed)
        else:
            self.set_state(np.array([checked_seed(seed), 0], np.uint64))
        (self._threads if own else self)._seeds = os.getpid(), map(functools.partial(_derived, seed), itertools.count())

    def another_seed(self) -> int | None:
        """A seed for a stream of its own, as that of a data loader: it follows from the seed that this process has given, and from how many
        of them were taken since. None where none was given: a forked process does not go on with its parent's."""
        own = getattr(self._threads, "key", None) is not None
        process, seeds = getattr(self._threads if own else self, "_seeds", (None, None))
        return next(seeds) if process == os.getpid() else None


def _derived(seed: int, n: int) -> int:
    """The n-th of the seeds that follow from another one, 62 bits."""
    return int.from_bytes(blake2b(f"{seed} {n}".encode(), digest_size=8).digest(), "little") >> 2


def own_stream(state: np.ndarray) -> None:
    """From now on the default generator of this thread has a stream of its own, which goes on from a state."""
    _Default._threads.key = Tensor(state.astype(np.uint64))


default_rng = _Default(0)

uniform, normal, randint, permutation, seed = (
    default_rng.uniform,
    default_rng.normal,
    default_rng.randint,
    default_rng.permutation,
    default_rng.seed,
)
gamma, beta, poisson, exponential, binomial = (
    default_rng.gamma,
    default_rng.beta,
    default_rng.poisson,
    default_rng.exponential,
    default_rng.binomial,
)
bernoulli, multinomial, shuffle = default_rng.bernoulli, default_rng.multinomial, default_rng.shuffle
get_state, set_state = default_rng.state, default_rng.set_state


def rand(*size: int, device: DeviceLike | None = None) -> Tensor:
    """PyTorch's name: uniform float32 in [0, 1)."""
    return default_rng.uniform(size=_given(size), device=device)


def randn(*size: int, device: DeviceLike | None = None) -> Tensor:
    """PyTorch's name: normal float32."""
    return default_rng.normal(size=_given(size), device=device)


def randperm(n: int, device: DeviceLike | None = None) -> Tensor:
    """PyTorch's name for `permutation`."""
    return default_rng.permutation(n, device=device)


def _given(size: tuple) -> Any:
    """A size given as numbers, or as one tuple."""
    return size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size


def manual_seed(seed: int) -> None:
    """Seeds the default generator, and so every draw that names no other, and the order of every loader that is made afterwards."""
    default_rng.seed(seed)


def uniform_mask(shape: Sequence[int], keep: float) -> Tensor:
    """A bool tensor, true with probability `keep` (dropout)."""
    return default_rng._draw(_ops.random_uniform, shape) < keep
