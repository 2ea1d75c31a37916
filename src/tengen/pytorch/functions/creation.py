"""Tensors made of nothing, of data or by chance, as PyTorch makes them: floats are of the default dtype, ranges of integers are int64."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tengen import functional as F
from tengen import random as _random
from tengen.base.dtype import complex64, complex128, float64, int64
from tengen.base.dtype import dtype as named
from tengen.base.errors import ArgumentError, DTypeError
from tengen.pytorch.functions import in_words
from tengen.pytorch.functions.dtypes import get_default_dtype
from tengen.random import RNG
from tengen.random.state import default_rng
from tengen.tensor import Tensor
from tengen.tensor.dialect_views import views_of_each
from tengen.tensor.dlpack import from_dlpack
from tengen.tensor.in_place import written_to
from tengen.tensor.leaves import set_requires_grad
from tengen.tensor.parts import as_array_of


def _finished(x: Tensor, dtype: Any, requires_grad: bool) -> Tensor:
    """A new tensor in a dtype, as a leaf where one is wanted."""
    x = x if dtype is None or x.dtype is named(dtype) else x.astype(dtype)
    if requires_grad:
        set_requires_grad(x, True)
    return x


def _extents(size: tuple) -> tuple:
    """Extents given one by one, or as one tuple."""
    return tuple(size[0]) if len(size) == 1 and not hasattr(size[0], "__index__") else size


def _floats(dtype: Any) -> Any:
    return get_default_dtype() if dtype is None else dtype


def _plain(data: Any) -> Any:
    """Nested lists whose tensors have become arrays."""
    if isinstance(data, (list, tuple)):
        return [_plain(d) for d in data]
    return data.numpy() if isinstance(data, Tensor) else data


def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """A tensor of data, always a copy. Floats of Python are of the default dtype, integers int64; arrays keep their dtype.

    Args: data: a number, nested lists of numbers, an array or a tensor. dtype, device: of the result. requires_grad: whether it is a
        leaf. pin_memory: accepted; it changes nothing here.

    >>> tensor([1, 2]).dtype, tensor([1.0, 2.0], requires_grad=True).requires_grad
    (int64, True)
    """
    if isinstance(data, Tensor):
        made = data.detach().clone()
    else:
        array = np.asarray(_plain(data))
        from_python = not isinstance(data, (np.ndarray, np.generic)) and not hasattr(data, "__array__")
        if dtype is None and from_python and array.dtype == np.float64:
            dtype = get_default_dtype()
        elif dtype is None and from_python and array.dtype == np.complex128:
            dtype = complex128 if get_default_dtype() is float64 else complex64
        made = Tensor(array, dtype=dtype, device=device)
    return _finished(made, dtype, requires_grad)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """The tensor itself where data is one of this dtype; `from_numpy` of an array of this dtype; else `tensor`."""
    if isinstance(data, Tensor):
        return data if dtype is None or data.dtype is named(dtype) else data.astype(dtype)
    if isinstance(data, np.ndarray) and (dtype is None or named(dtype) is named(data.dtype)):
        return from_numpy(data)
    return tensor(data, dtype=dtype, device=device)


def asarray(obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, requires_grad: bool = False) -> Tensor:
    """`as_tensor`, or with copy=True `tensor`."""
    return tensor(obj, dtype=dtype, requires_grad=requires_grad) if copy or requires_grad else as_tensor(obj, dtype, device)


def from_numpy(ndarray: np.ndarray) -> Tensor:
    """A tensor of an array's values and dtype. What is written to it in place is written to the array; what is written to the array later
    is not in the tensor, until that is written.

    >>> a = np.zeros(2)
    >>> from_numpy(a).add_(1).tolist(), a.tolist()
    ([1.0, 1.0], [1.0, 1.0])
    """
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"from_numpy takes an array, got a {type(ndarray).__name__}; help: torch.tensor(data)")
    return as_array_of(ndarray, Tensor(ndarray, dtype=ndarray.dtype))


def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A tensor of the bytes of a buffer: a copy."""
    return _finished(Tensor(np.frombuffer(buffer, named(dtype).numpy, count, offset)), None, requires_grad)


def _into(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function, which takes ``out=`` as well: a tensor that its result is written to, and whose dtype it has unless one is given."""

    @functools.wraps(f)
    def made(*args: Any, out: Tensor | None = None, requires_grad: bool = False, **how: Any) -> Tensor:
        if out is None:
            return f(*args, requires_grad=requires_grad, **how)
        return written_to(f(*args, **{"dtype": out.dtype, **how}), out, f.__name__)

    return made


@_into
def zeros(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_how: Any) -> Tensor:
    """Zeros of the default dtype, or another. Extents one by one, or as a tuple."""
    return _finished(F.zeros(_sized(size, _how), _floats(dtype), device), None, requires_grad)


@_into
def ones(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_how: Any) -> Tensor:
    """Ones of the default dtype, or another. Extents one by one, or as a tuple."""
    return _finished(F.ones(_sized(size, _how), _floats(dtype), device), None, requires_grad)


@_into
def empty(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_how: Any) -> Tensor:
    """`zeros`: here no tensor has values that nobody gave."""
    return zeros(*size, dtype=dtype, device=device, requires_grad=requires_grad, **_how)


_CHANGE_NOTHING = {"size", "layout", "pin_memory", "memory_format", "names", "device"}


def _sized(size: tuple, how: dict[str, Any]) -> tuple:
    """The extents, which `size=` may give too. Errors: TypeError for arguments that mean something and are not there."""
    if unknown := [n for n in how if n not in _CHANGE_NOTHING or (n == "names" and how[n] is not None)]:
        raise TypeError(f"argument {unknown[0]!r} is not there")
    return _extents((how["size"],) if "size" in how else size)


def full(
    size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """One value everywhere: floats of the default dtype, integers int64, bools bool."""
    value = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    found = dtype if dtype is not None else "bool" if isinstance(value, bool) else int64 if isinstance(value, int) else get_default_dtype()
    return _finished(F.full(_extents((size,)), value, found, device), None, requires_grad)


def _like(x: Tensor, made: Tensor, dtype: Any, requires_grad: bool) -> Tensor:
    return _finished(made, x.dtype if dtype is None else dtype, requires_grad)


def zeros_like(input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, memory_format: Any = None) -> Tensor:
    """Zeros in the shape and dtype of another tensor."""
    return _finished(F.zeros(input.shape, input.dtype if dtype is None else dtype), None, requires_grad)


def ones_like(input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, memory_format: Any = None) -> Tensor:
    """Ones in the shape and dtype of another tensor."""
    return _finished(F.ones(input.shape, input.dtype if dtype is None else dtype), None, requires_grad)


def empty_like(input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, memory_format: Any = None) -> Tensor:
    """`zeros_like`: here no tensor has values that nobody gave."""
    return zeros_like(input, dtype=dtype, requires_grad=requires_grad)


def full_like(
    input: Tensor, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, memory_format: Any = None
) -> Tensor:
    """One value in the shape and dtype of another tensor."""
    return _finished(F.full(input.shape, fill_value, input.dtype if dtype is None else dtype), None, requires_grad)


@_into
def arange(
    start: Any, end: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_how: Any
) -> Tensor:
    """start, start + step, ... below end; ``arange(n)`` begins with 0. int64 where all numbers are integers, else the default dtype.

    Errors: ArgumentError for bounds that are not finite, and for a step that leads away from the end

    >>> arange(3).tolist(), arange(0, 1, 0.5).tolist()
    ([0, 1, 2], [0.0, 0.5])
    """
    _sized((), _how)
    start, end = (0, start) if end is None else (start, end)
    start, end, step = (int(v) if isinstance(v, bool) else v for v in (start, end, step))
    if all(isinstance(v, (int, float)) for v in (start, end, step)):
        if not (math.isfinite(start) and math.isfinite(end)) or (end - start) * step < 0 or not step:
            raise ArgumentError(f"arange({start}, {end}, {step}): the bounds must be finite, and the step must lead from one to the other")
        if dtype is not None and named(dtype) is int64:  # whose numbers PyTorch cuts off before it counts
            start, end, step = (int(v) for v in (start, end, step))
    whole = all(hasattr(v, "__index__") or (isinstance(v, Tensor) and v.dtype.is_int) for v in (start, end, step))
    return _finished(F.arange(start, end, step, dtype or (int64 if whole else get_default_dtype())), None, requires_grad)


def range(start: Any, end: Any, step: Any = 1, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """As `arange` of floats, with the end."""
    count = int(np.floor((end - start) / step)) + 1
    return _finished(F.arange(count, dtype="float64") * step + start, _floats(dtype), requires_grad)


def linspace(start: Any, end: Any, steps: int, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """`steps` numbers from start to end, both included."""
    return _finished(F.linspace(start, end, steps, _floats(dtype)), None, requires_grad)


def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """base to the powers `linspace`."""
    found = named(_floats(dtype))
    made = F.logspace(start, end, steps, base, found if found.is_float else "float64")
    return _finished(made, found, requires_grad)


def eye(n: int, m: int | None = None, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """The identity, n x n or n x m."""
    return _finished(F.eye(n, m, dtype=_floats(dtype)), None, requires_grad)


def complex(real: Tensor, imag: Tensor) -> Tensor:
    """Complex numbers of their real and imaginary parts. Errors: DTypeError unless both are floats of one dtype"""
    if real.dtype is not imag.dtype or not real.dtype.is_float:
        raise DTypeError(f"complex takes two tensors of one dtype of floats, got {real.dtype} and {imag.dtype}")
    return F.complex(real, imag)


def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = int64, device: Any = None) -> Tensor:
    """The (2, N) indices of a lower triangle."""
    return F.tril_indices(row, col, offset).astype(dtype)


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = int64, device: Any = None) -> Tensor:
    """The (2, N) indices of an upper triangle."""
    return F.triu_indices(row, col, offset).astype(dtype)


# ---- by chance ---------------------------------------------------------------------------------------------------------


class Generator(RNG):
    """A stream of random numbers: Tengen's `RNG` with PyTorch's methods. Its numbers are Tengen's, not those of PyTorch for the seed.

    >>> g = Generator().manual_seed(3)
    >>> rand(2, generator=g).tolist() == rand(2, generator=Generator().manual_seed(3)).tolist()
    True
    """

    def __init__(self, device: Any = None):
        super().__init__(67280421310721, None)  # the seed that PyTorch's generators begin with

    def manual_seed(self, seed: int) -> Generator:
        """Starts the stream of a seed from its beginning; returns the generator."""
        super().seed(seed % 2**64)
        return self

    def seed(self, seed: int | None = None) -> Any:
        """Without an argument: a seed taken from the system, which is returned."""
        if seed is None:
            seed = int.from_bytes(np.random.SeedSequence().generate_state(2).tobytes(), "little")
        super().seed(seed)
        return seed

    def initial_seed(self) -> int:
        """The seed of the stream."""
        return self._first

    def get_state(self) -> Tensor:
        """The state: seed and number of the next draw."""
        return Tensor(self.state())

    def set_state(self, state: Any) -> None:
        """Goes on from a state."""
        super().set_state(state.numpy() if isinstance(state, Tensor) else state)


def _from(generator: RNG | None) -> RNG:
    return default_rng if generator is None else generator


def manual_seed(seed: int) -> RNG:
    """Seeds the default generator; returns it. The numbers are Tengen's, not those of PyTorch for the seed."""
    default_rng.seed(int(seed) % 2**64)
    return default_rng


def seed() -> int:
    """Seeds the default generator by the system; returns the seed."""
    made = int.from_bytes(np.random.SeedSequence().generate_state(2).tobytes(), "little")
    default_rng.seed(made)
    return made


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_rng._first


def get_rng_state() -> Tensor:
    """The state of the default generator."""
    return Tensor(_random.get_state())


def set_rng_state(new_state: Any) -> None:
    """Goes on from a state of the default generator."""
    _random.set_state(new_state.numpy() if isinstance(new_state, Tensor) else new_state)


@_into
def rand(
    *size: Any, generator: RNG | None = None, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_how: Any
) -> Tensor:
    """Uniform in [0, 1)."""
    return _finished(_from(generator).uniform(size=_sized(size, _how)), _floats(dtype), requires_grad)


@_into
def randn(
    *size: Any, generator: RNG | None = None, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_how: Any
) -> Tensor:
    """Normal, of mean 0 and variance 1."""
    return _finished(_from(generator).normal(size=_sized(size, _how)), _floats(dtype), requires_grad)


def randint(
    low: int, high: Any = None, size: Any = None, *, generator: RNG | None = None, dtype: Any = int64, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """int64 in [low, high), or ``randint(high, size)`` in [0, high)."""
    if size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if size is None:
        raise ArgumentError("randint needs a size; help: randint(high, (n,)), or randint(low, high, (n,))")
    return _finished(_from(generator).randint(int(low), int(high), tuple(size)), dtype, requires_grad)


def randperm(n: int, *, generator: RNG | None = None, dtype: Any = int64, device: Any = None, requires_grad: bool = False) -> Tensor:
    """The numbers 0 .. n - 1 in random order."""
    return _finished(_from(generator).permutation(n), dtype, requires_grad)


def rand_like(input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_how: Any) -> Tensor:
    """Uniform in [0, 1), in the shape and dtype of another tensor."""
    return _like(input, default_rng.uniform(size=input.shape), dtype, requires_grad)


def randn_like(input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_how: Any) -> Tensor:
    """Normal, in the shape and dtype of another tensor."""
    return _like(input, default_rng.normal(size=input.shape), dtype, requires_grad)


def randint_like(
    input: Tensor, low: int, high: int | None = None, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Integers in [low, high), or [0, low), in the shape and dtype of another tensor."""
    return _like(input, default_rng.randint(low, high, input.shape), dtype, requires_grad)


@_into
def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: RNG | None = None, **_how: Any) -> Tensor:
    """Normal numbers of a mean and a standard deviation: numbers with a size, or tensors that give the shape."""
    if size is None:
        size = (mean + std).shape if isinstance(mean, Tensor) or isinstance(std, Tensor) else ()
    given = [t for t in (mean, std) if isinstance(t, Tensor)]
    dtype = _how.pop("dtype", None) or (given[0].dtype if given else get_default_dtype())
    requires_grad = _how.pop("requires_grad", False)
    _sized((), _how)
    if not isinstance(std, Tensor) and std < 0:
        raise ArgumentError(f"normal: std={std} must not be negative")
    z = _from(generator).normal(size=tuple(size)).astype(dtype)
    return _finished((z * std + mean).detach(), dtype, requires_grad)


def bernoulli(input: Tensor, p: float | None = None, *, generator: RNG | None = None) -> Tensor:
    """1 with the probability that each element is (or `p`), else 0, in the dtype of the input."""
    chance = input.detach() if p is None else F.full(input.shape, p, input.dtype if input.dtype.is_float else "float32")
    return _from(generator).bernoulli(chance).astype(input.dtype)


def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator: RNG | None = None) -> Tensor:
    """The numbers of outcomes, drawn in proportion to the last axis of `input`; see `tengen.random.multinomial`."""
    return _from(generator).multinomial(input, num_samples, replacement)


def poisson(input: Tensor, generator: RNG | None = None) -> Tensor:
    """Poisson numbers of the rates that are given."""
    return _from(generator).poisson(input.detach()).astype(input.dtype)


def binomial(count: Tensor, prob: Tensor, generator: RNG | None = None) -> Tensor:
    """Binomial numbers."""
    return _from(generator).binomial(count.detach(), prob.detach())



def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """The same values in memory of their own, on the tape."""
    return input.clone()


def detach(input: Tensor) -> Tensor:
    """The same values, off the tape."""
    return input.detach()


def bartlett_window(window_length: int, periodic: bool = True, *, dtype: Any = None) -> Tensor:
    """Bartlett's window."""
    return F.bartlett_window(window_length, periodic, _floats(dtype))


def blackman_window(window_length: int, periodic: bool = True, *, dtype: Any = None) -> Tensor:
    """Blackman's window."""
    return F.blackman_window(window_length, periodic, _floats(dtype))


def hamming_window(window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: Any = None) -> Tensor:
    """Hamming's window."""
    return F.hamming_window(window_length, periodic, alpha, beta, _floats(dtype))


def hann_window(window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Hann's window."""
    return F.hann_window(window_length, periodic, _floats(dtype))


def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None) -> Tensor:
    """Kaiser's window."""
    return F.kaiser_window(window_length, periodic, beta, _floats(dtype))


def meshgrid(*tensors: Any, indexing: Any = "ij") -> tuple[Tensor, ...]:
    """The coordinates of a grid; `indexing` is "ij" unless it says "xy", as PyTorch's."""
    given: Sequence[Tensor] = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    return tuple(F.meshgrid(*given, indexing=indexing))


__all__ = [
    "Generator", "arange", "as_tensor", "asarray", "bartlett_window", "bernoulli", "binomial", "blackman_window", "clone", "complex", "detach",
    "empty", "empty_like", "eye", "from_dlpack", "from_numpy", "frombuffer", "full", "full_like", "get_rng_state", "hamming_window",
    "hann_window", "initial_seed", "kaiser_window", "linspace", "logspace", "manual_seed", "meshgrid", "multinomial", "normal", "ones",
    "ones_like", "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "range", "seed",
    "set_rng_state", "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like",
]  # fmt: skip
meshgrid = views_of_each(meshgrid)
in_words(globals(), __all__)
