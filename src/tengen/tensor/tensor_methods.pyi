"""Operators and methods of Tensor, for editors and type checkers. `python docs/generate.py` writes this file again."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tengen.ops.attributes import Count, DTypeLike, Extent, Offset, Precision, Shape
from tengen.tensor.tensor import Tensor

TensorLike = Tensor | np.ndarray | float

class TensorMethods:
    def __abs__(self) -> Tensor: ...
    def __add__(self, other: TensorLike) -> Tensor: ...
    def __and__(self, other: TensorLike) -> Tensor: ...
    def __array_function__(self, func: Callable, types: Any, args: tuple, kwargs: dict) -> Any:
        """`np.sum(t)` and the like."""
    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The functions of the array API standard, `tengen.array_api`."""
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """`np.sin(t)` and the like, and operators of an array and a Tensor."""
    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Tensor:
        """What NumPy's functions make of results for a subclass of arrays; a Tensor of it."""
    def __buffer__(self, flags: int) -> memoryview:
        """A read-only view of the tensor's memory, by Python's buffer protocol (Python 3.12 and newer ask for it)."""
    def __ceil__(self) -> Tensor: ...
    def __complex__(self) -> complex: ...
    def __contains__(self, value: Any) -> bool:
        """Whether an element equals a number, as in NumPy."""
    def __dir__(self) -> Any: ...
    def __divmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        """(self // other, self % other)."""
    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule over this tensor's memory, marked read-only where the consumer speaks DLPack 1.0."""
    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's name of the tensor's device: (1, 0) for the processor. Errors: BufferError for one that DLPack does not
        know."""
    def __eq__(self, other: TensorLike) -> Tensor: ...  # type: ignore[override]  # a tensor, no bool
    def __floor__(self) -> Tensor: ...
    def __floordiv__(self, other: TensorLike) -> Tensor: ...
    def __ge__(self, other: TensorLike) -> Tensor: ...
    def __gt__(self, other: TensorLike) -> Tensor: ...
    def __iadd__(self, other: TensorLike) -> Tensor: ...
    def __iand__(self, other: TensorLike) -> Tensor: ...
    def __ifloordiv__(self, other: TensorLike) -> Tensor: ...
    def __ilshift__(self, other: TensorLike) -> Tensor: ...
    def __imatmul__(self, other: TensorLike) -> Tensor: ...
    def __imod__(self, other: TensorLike) -> Tensor: ...
    def __imul__(self, other: TensorLike) -> Tensor: ...
    def __invert__(self) -> Tensor: ...
    def __ior__(self, other: TensorLike) -> Tensor: ...
    def __ipow__(self, other: TensorLike) -> Tensor: ...
    def __irshift__(self, other: TensorLike) -> Tensor: ...
    def __isub__(self, other: TensorLike) -> Tensor: ...
    def __itruediv__(self, other: TensorLike) -> Tensor: ...
    def __ixor__(self, other: TensorLike) -> Tensor: ...
    def __le__(self, other: TensorLike) -> Tensor: ...
    def __lshift__(self, other: TensorLike) -> Tensor: ...
    def __lt__(self, other: TensorLike) -> Tensor: ...
    def __matmul__(self, other: TensorLike) -> Tensor: ...
    def __mod__(self, other: TensorLike) -> Tensor: ...
    def __mul__(self, other: TensorLike) -> Tensor: ...
    def __ne__(self, other: TensorLike) -> Tensor: ...  # type: ignore[override]  # a tensor, no bool
    def __neg__(self) -> Tensor: ...
    def __or__(self, other: TensorLike) -> Tensor: ...
    def __pos__(self) -> Tensor: ...
    def __pow__(self, other: TensorLike) -> Tensor: ...
    def __radd__(self, other: TensorLike) -> Tensor: ...
    def __rand__(self, other: TensorLike) -> Tensor: ...
    def __rdivmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        """(other // self, other % self)."""
    def __rfloordiv__(self, other: TensorLike) -> Tensor: ...
    def __rlshift__(self, other: TensorLike) -> Tensor: ...
    def __rmatmul__(self, other: TensorLike) -> Tensor: ...
    def __rmod__(self, other: TensorLike) -> Tensor: ...
    def __rmul__(self, other: TensorLike) -> Tensor: ...
    def __ror__(self, other: TensorLike) -> Tensor: ...
    def __round__(self, decimals: int = 0) -> Tensor:
        """x rounded to so many decimal digits, halves to even; negative: to tens, hundreds, ... Integers stay integers."""
    def __rpow__(self, other: TensorLike) -> Tensor: ...
    def __rrshift__(self, other: TensorLike) -> Tensor: ...
    def __rshift__(self, other: TensorLike) -> Tensor: ...
    def __rsub__(self, other: TensorLike) -> Tensor: ...
    def __rtruediv__(self, other: TensorLike) -> Tensor: ...
    def __rxor__(self, other: TensorLike) -> Tensor: ...
    def __sub__(self, other: TensorLike) -> Tensor: ...
    def __truediv__(self, other: TensorLike) -> Tensor: ...
    def __trunc__(self) -> Tensor: ...
    def __xor__(self, other: TensorLike) -> Tensor: ...
    @property
    def T(self) -> Tensor:
        """The tensor with its axes reversed."""
    @property
    def _tuple_shape(self) -> Tensor:
        """The extents, as MegEngine's own programs ask for them."""
    def abs(self) -> Tensor:
        """|x|; the gradient at 0 is 0. The least integer of a dtype stays, as in NumPy."""
    def abs_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.abs` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def absolute(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.abs` of the tensor."""
    def acos(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.acos` of the tensor."""
    def acos_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.acos` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def acosh(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.acosh` of the tensor."""
    def add(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.add` of the tensor."""
    def add_(self, *args: Any, **kwargs: Any) -> Tensor:
        """x + alpha y; the tensor itself takes the value. Errors: ArgumentError for a view, whose write would be lost."""
    def addcdiv(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.addcdiv` of the tensor."""
    def addcdiv_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.addcdiv` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def addcmul(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.addcmul` of the tensor."""
    def addcmul_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.addcmul` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def addmm(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.addmm` of the tensor."""
    def addmm_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.addmm` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def all(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Whether every element is true (not zero)."""
    def allclose(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.allclose` of the tensor."""
    def amax(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.amax` of the tensor."""
    def amin(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.amin` of the tensor."""
    def aminmax(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.aminmax` of the tensor."""
    def angle(self) -> Tensor:
        """The argument of complex numbers in [-pi, pi], by `atan2`; of real numbers 0 or pi, and NaN of NaN, as in NumPy.
        Where a number is 0 so is its gradient."""
    def any(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Whether an element is true (not zero)."""
    def arccos(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.acos` of the tensor."""
    def arccosh(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.acosh` of the tensor."""
    def arcsin(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.asin` of the tensor."""
    def arcsinh(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.asinh` of the tensor."""
    def arctan(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.atan` of the tensor."""
    def arctan2(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.atan2` of the tensor."""
    def arctanh(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.atanh` of the tensor."""
    def argmax(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """The int64 position of the first largest element along `axis` (in the flattened tensor by default); a NaN counts as
        largest."""
    def argmin(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """The int64 position of the first smallest element along `axis` (in the flattened tensor by default); a NaN counts as
        smallest."""
    def argsort(self, descending: Any = False, axis: int = -1) -> Tensor:
        """The int64 positions that sort the tensor along `axis`: stable, descending too; NaN counts as largest."""
    def argwhere(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.non_zero` of the tensor."""
    def as_strided(self, size: Shape, stride: int | Sequence[int], storage_offset: int | None = None) -> Tensor:
        """Elements at places that strides name, as a view: element (i, j, ...) is number storage_offset + i stride[0] + j
        stride[1] + ... of the tensor's elements, counted with the last axis innermost. Places may be read several times; their
        gradients are added."""
    def asin(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.asin` of the tensor."""
    def asin_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.asin` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def asinh(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.asinh` of the tensor."""
    def astype(self, dtype: DTypeLike) -> Tensor:
        """x in another dtype: rounds to nearest even, float to int truncates and saturates (NaN gives 0), integers wrap,
        anything to bool is x != 0."""
    def atan(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.atan` of the tensor."""
    def atan2(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.atan2` of the tensor."""
    def atan_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.atan` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def atanh(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.atanh` of the tensor."""
    def backward(self, *args: Any, **kwargs: Any) -> Any:
        """`tensor.backward.backward` of the tensor."""
    def baddbmm(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.baddbmm` of the tensor."""
    def bernoulli(self, p: float | None = None) -> Tensor:
        """Draws of 0 and 1 in the tensor's dtype: 1 with the probability that is its element, or p."""
    def bernoulli_(self, *args: Any, **kwargs: Any) -> Tensor:
        """Draws of 0 and 1: the probability of 1; the tensor itself takes the value. Errors: ArgumentError for a view, whose
        write would be lost."""
    def bfloat16(self, memory_format: Any = None) -> Tensor:
        """`astype` bfloat16."""
    def bincount(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.bincount` of the tensor."""
    def bitwise_and(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.bitwise_and` of the tensor."""
    def bitwise_left_shift(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.left_shift` of the tensor."""
    def bitwise_not(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.bitwise_not` of the tensor."""
    def bitwise_or(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.bitwise_or` of the tensor."""
    def bitwise_right_shift(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.right_shift` of the tensor."""
    def bitwise_xor(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.bitwise_xor` of the tensor."""
    def bmm(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.matmul` of the tensor."""
    def bool(self, memory_format: Any = None) -> Tensor:
        """`astype` bool."""
    def broadcast_to(self, shape: Shape | Sequence[None]) -> Tensor:
        """x repeated along new and unit axes, without copying. None in the shape keeps the extent that x has there."""
    def byte(self, memory_format: Any = None) -> Tensor:
        """`astype` uint8."""
    def cdouble(self, memory_format: Any = None) -> Tensor:
        """`astype` complex128."""
    def ceil(self) -> Tensor:
        """The smallest integer that is not below x. The gradient is 0."""
    def ceil_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.ceil` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def cfloat(self, memory_format: Any = None) -> Tensor:
        """`astype` complex64."""
    def char(self, memory_format: Any = None) -> Tensor:
        """`astype` int8."""
    def cholesky(self, *args: Any, **kwargs: Any) -> Any:
        """`linalg.cholesky` of the tensor."""
    def chunk(self, chunks: int, dim: int = 0) -> list[Tensor]:
        """At most so many parts along an axis, all but the last of equal extent, as PyTorch cuts them; `functional.split`
        gives so many."""
    def clamp(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.clip` of the tensor."""
    def clamp_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.clip` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def clamp_max(self, max: Any) -> Tensor:
        """`clip` from above."""
    def clamp_min(self, min: Any) -> Tensor:
        """`clip` from below."""
    def clip(self, lower: TensorLike | None = None, upper: TensorLike | None = None) -> Tensor:
        """min(max(x, lower), upper), promoted to one dtype; a NaN stays. Where x is a bound the gradient goes to x."""
    def clip_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.clip` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def clone(self, *, memory_format: Any = None) -> Tensor:
        """`copy`: the same values in memory of their own, on the tape. memory_format: accepted, as PyTorch's."""
    def conj(self) -> Tensor:
        """The complex conjugate x - iy of x + iy; what is not complex, as it is."""
    def contiguous(self, memory_format: Any = None) -> Tensor:
        """The tensor with its elements dense in logical order; itself where they are. memory_format: accepted, as
        PyTorch's."""
    def copy_(self, *args: Any, **kwargs: Any) -> Tensor:
        """The values of another tensor, in this one's shape and dtype; the tensor itself takes the value. Errors:
        ArgumentError for a view, whose write would be lost."""
    def copysign(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.copysign` of the tensor."""
    def corrcoef(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.corrcoef` of the tensor."""
    def cos(self) -> Tensor:
        """The cosine of x in radians, at most 2 ULP off for every finite x; NaN at infinity."""
    def cos_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.cos` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def cosh(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.cosh` of the tensor."""
    def cosh_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.cosh` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def count_nonzero(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.count_nonzero` of the tensor."""
    def cov(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.cov` of the tensor."""
    def cpu(self) -> Tensor:
        """The tensor on the processor; itself where it lies there."""
    def cross(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.cross` of the tensor."""
    def cuda(self, device: Any = None) -> Tensor:
        """The tensor on a GPU. Errors: DeviceError while there is none."""
    def cummax(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.cummax` of the tensor."""
    def cummin(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.cummin` of the tensor."""
    def cumprod(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.cumprod` of the tensor."""
    def cumsum(self, axis: int, exclusive: bool = False, reverse: bool = False) -> Tensor:
        """Running sums along `axis`, in order; integers and bools give int64, float16 and bfloat16 add in float32."""
    @property
    def data(self) -> Any:
        """The tensor's values off the tape; what is written to them in place is written to the tensor, and not recorded."""
    def deg2rad(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.deg2rad` of the tensor."""
    def det(self, *args: Any, **kwargs: Any) -> Any:
        """`linalg.det` of the tensor."""
    def detach_(self) -> Tensor:
        """Takes the tensor itself off the tape; returns it. Gradients that were recorded through it before stay."""
    def diag(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.diag` of the tensor."""
    def diag_embed(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.diag_embed` of the tensor."""
    def diagflat(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.diagflat` of the tensor."""
    def diagonal(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.diagonal` of the tensor."""
    def diff(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.diff` of the tensor."""
    def digamma(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.digamma` of the tensor."""
    def dim(self) -> int:
        """`ndim`: the number of axes."""
    def dist(self, other: Tensor, p: float = 2) -> Tensor:
        """The p-norm of the difference, a 0-d tensor."""
    def div(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.div` of the tensor."""
    def div_(self, *args: Any, **kwargs: Any) -> Tensor:
        """x / y, rounded as rounding_mode says: 'floor', 'trunc' or None; the tensor itself takes the value. Errors:
        ArgumentError for a view, whose write would be lost."""
    def divide(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.div` of the tensor."""
    def divide_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.div` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def dot(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.dot` of the tensor."""
    def double(self, memory_format: Any = None) -> Tensor:
        """`astype` float64."""
    def element_size(self) -> int:
        """The bytes of an element."""
    def eq(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.equal` of the tensor."""
    def equal(self, other: Tensor) -> bool:
        """Whether both have one shape and equal elements, as PyTorch's; `eq` and `functional.equal` compare element by
        element."""
    def erf(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.erf` of the tensor."""
    def erf_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.erf` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def erfc(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.erfc` of the tensor."""
    def exp(self) -> Tensor:
        """e to the power x; at most 2 ULP off."""
    def exp2(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.exp2` of the tensor."""
    def exp_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.exp` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def expand(self, *sizes: Any) -> Tensor:
        """`broadcast_to`; an extent of -1 is the tensor's own."""
    def expand_as(self, other: Tensor) -> Tensor:
        """`broadcast_to` the shape of another tensor."""
    def expand_dims(self, axis: int | Sequence[int]) -> Tensor:
        """A view with unit axes at these places of the result."""
    def expm1(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.expm1` of the tensor."""
    def expm1_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.expm1` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def exponential_(self, *args: Any, **kwargs: Any) -> Tensor:
        """Draws of an exponential distribution: its rate; the tensor itself takes the value. Errors: ArgumentError for a view,
        whose write would be lost."""
    def fill_(self, *args: Any, **kwargs: Any) -> Tensor:
        """One number everywhere; the tensor itself takes the value. Errors: ArgumentError for a view, whose write would be
        lost."""
    def fix(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.trunc` of the tensor."""
    def flatten(self, start_axis: int = 0, end_axis: int = -1) -> Tensor:
        """Axes start_axis .. end_axis as one."""
    def flip(self, axis: int | Sequence[int] | None = None) -> Tensor:
        """A view with the order of elements turned round along `axis` (all axes by default)."""
    def fliplr(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.fliplr` of the tensor."""
    def flipud(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.flipud` of the tensor."""
    def float(self, memory_format: Any = None) -> Tensor:
        """`astype` float32."""
    def floor(self) -> Tensor:
        """The largest integer that is not above x. The gradient is 0."""
    def floor_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.floor` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def floor_divide(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.floor_div` of the tensor."""
    def fmax(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.fmax` of the tensor."""
    def fmin(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.fmin` of the tensor."""
    def fmod(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.fmod` of the tensor."""
    @property
    def format(self) -> str:
        """How an image's axes lie, in MegEngine: always "default" here, for the compiler chooses."""
    def frac(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.frac` of the tensor."""
    def gather(self, axis: int, index: TensorLike) -> Tensor:
        """out[..., i, ...] = inp[..., index[..., i, ...], ...] along `axis` (NumPy's take_along_axis, PyTorch's gather)."""
    def ge(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.greater_equal` of the tensor."""
    @property
    def grad_fn(self) -> Any:
        """The recorded call whose result the tensor is; None of a leaf."""
    def greater(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.greater` of the tensor."""
    def greater_equal(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.greater_equal` of the tensor."""
    def gt(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.greater` of the tensor."""
    def half(self, memory_format: Any = None) -> Tensor:
        """`astype` float16."""
    def hardshrink(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.hardshrink` of the tensor."""
    def heaviside(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.heaviside` of the tensor."""
    def histc(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.histc` of the tensor."""
    def hypot(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.hypot` of the tensor."""
    @property
    def imag(self) -> Tensor:
        """The imaginary parts: a view of complex numbers; zeros of what is not complex."""
    def index_add(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.index_add` of the tensor."""
    def index_add_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.index_add` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose
        write would be lost."""
    def index_copy(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.index_copy` of the tensor."""
    def index_copy_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.index_copy` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose
        write would be lost."""
    def index_fill(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.index_fill` of the tensor."""
    def index_fill_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.index_fill` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose
        write would be lost."""
    def index_put_(self, *args: Any, **kwargs: Any) -> Tensor:
        """Values at indices, which are a tuple of tensors; accumulate: added; the tensor itself takes the value. Errors:
        ArgumentError for a view, whose write would be lost."""
    def index_reduce(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.index_reduce` of the tensor."""
    def index_reduce_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.index_reduce` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose
        write would be lost."""
    def index_select(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.index_select` of the tensor."""
    def inner(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.inner` of the tensor."""
    def int(self, memory_format: Any = None) -> Tensor:
        """`astype` int32."""
    def inverse(self, *args: Any, **kwargs: Any) -> Any:
        """`linalg.inv` of the tensor."""
    def is_complex(self) -> bool:
        """Whether the dtype is complex64 or complex128."""
    def is_contiguous(self) -> bool:
        """Whether the elements lie densely in logical order."""
    @property
    def is_cuda(self) -> Tensor:
        """False: there is no GPU here."""
    def is_floating_point(self) -> bool:
        """Whether the dtype is one of floats; complex numbers are not."""
    @property
    def is_leaf(self) -> bool:
        """Whether the tensor is no result of recorded calls."""
    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers."""
    def isclose(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.isclose` of the tensor."""
    def isfinite(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.isfinite` of the tensor."""
    def isinf(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.isinf` of the tensor."""
    def isnan(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.isnan` of the tensor."""
    def isneginf(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.isneginf` of the tensor."""
    def isposinf(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.isposinf` of the tensor."""
    def istft(self, *args: Any, **kwargs: Any) -> Any:
        """`fft.istft` of the tensor."""
    def kron(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.kron` of the tensor."""
    def kthvalue(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.kthvalue` of the tensor."""
    def le(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.less_equal` of the tensor."""
    def lerp(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.lerp` of the tensor."""
    def lerp_(self, *args: Any, **kwargs: Any) -> Tensor:
        """x + weight (end - x); the tensor itself takes the value. Errors: ArgumentError for a view, whose write would be
        lost."""
    def less(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.less` of the tensor."""
    def less_equal(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.less_equal` of the tensor."""
    def lgamma(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.lgamma` of the tensor."""
    def log(self) -> Tensor:
        """The natural logarithm, at most 2 ULP off; -inf at 0, NaN below."""
    def log10(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.log10` of the tensor."""
    def log10_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.log10` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def log1p(self) -> Tensor:
        """log(1 + x) without cancellation near 0, at most 2 ULP off; -inf at -1, NaN below."""
    def log1p_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.log1p` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def log2(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.log2` of the tensor."""
    def log2_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.log2` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def log_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.log` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def log_softmax(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.logsoftmax` of the tensor."""
    def logaddexp(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.logaddexp` of the tensor."""
    def logaddexp2(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.logaddexp2` of the tensor."""
    def logcumsumexp(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.logcumsumexp` of the tensor."""
    def logical_and(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.logical_and` of the tensor."""
    def logical_and_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.logical_and` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose
        write would be lost."""
    def logical_not(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.logical_not` of the tensor."""
    def logical_not_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.logical_not` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose
        write would be lost."""
    def logical_or(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.logical_or` of the tensor."""
    def logical_or_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.logical_or` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose
        write would be lost."""
    def logical_xor(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.logical_xor` of the tensor."""
    def logit(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.logit` of the tensor."""
    def logsoftmax(self, axis: int | Sequence[int] | None = None) -> Tensor:
        """log(softmax(x)), without overflow. Args: axis: as of `softmax`."""
    def logsumexp(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.logsumexp` of the tensor."""
    def long(self, memory_format: Any = None) -> Tensor:
        """`astype` int64."""
    def lt(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.less` of the tensor."""
    @property
    def mH(self) -> Tensor:
        """Each matrix transposed and conjugated."""
    @property
    def mT(self) -> Tensor:
        """The tensor with its last two axes exchanged."""
    def masked_fill(self, mask: TensorLike, value: float) -> Tensor:
        """`where`: the value where the mask is true, else inp's element; in inp's dtype."""
    def masked_fill_(self, *args: Any, **kwargs: Any) -> Tensor:
        """A number where the mask is true; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def masked_scatter(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.masked_scatter` of the tensor."""
    def masked_scatter_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.masked_scatter` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view,
        whose write would be lost."""
    def masked_select(self, mask: Tensor) -> Tensor:
        """The elements where the mask is true, `x[mask]`; both broadcast. Inside of a trace their number is not known: a
        TraceError."""
    def matmul(
        self, inp2: TensorLike, transpose_a: bool = False, transpose_b: bool = False, precision: Precision = 'highest',
    ) -> Tensor:
        """Matrix product over the last two axes; leading axes broadcast. A 1-D operand is a row (first) or a column (second),
        whose axis disappears from the result, as in NumPy."""
    def matrix_exp(self, *args: Any, **kwargs: Any) -> Any:
        """`linalg.matrix_exp` of the tensor."""
    def matrix_power(self, *args: Any, **kwargs: Any) -> Any:
        """`linalg.matrix_power` of the tensor."""
    def max(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """The largest element; a NaN wins. The gradient is shared by equal largest elements. An empty one is an error."""
    def maximum(self, y: TensorLike) -> Tensor:
        """The larger of x and y; a NaN in either wins. In a tie the gradient goes to y."""
    def maximum_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.maximum` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """The sum divided by the number of elements; integers give float32. NaN where there are none."""
    def median(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.median` of the tensor."""
    def min(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """The smallest element; a NaN wins. The gradient is shared by equal smallest elements. An empty one is an error."""
    def minimum(self, y: TensorLike) -> Tensor:
        """The smaller of x and y; a NaN in either wins. In a tie the gradient goes to y."""
    def minimum_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.minimum` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def mm(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.matmul` of the tensor."""
    def mode(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.mode` of the tensor."""
    def moveaxis(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.moveaxis` of the tensor."""
    def movedim(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.moveaxis` of the tensor."""
    def msort(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.msort` of the tensor."""
    def mul(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.mul` of the tensor."""
    def mul_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.mul` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def multiply(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.mul` of the tensor."""
    def multiply_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.mul` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def mv(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.matmul` of the tensor."""
    @property
    def name(self) -> str:
        """What messages and files may call the tensor; "" at first."""
    def nan_to_num(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.nan_to_num` of the tensor."""
    def nan_to_num_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.nan_to_num` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose
        write would be lost."""
    def nanmean(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.nanmean` of the tensor."""
    def nanmedian(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.nanmedian` of the tensor."""
    def nanquantile(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.nanquantile` of the tensor."""
    def nansum(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.nansum` of the tensor."""
    def narrow(self, dim: int, start: int, length: int) -> Tensor:
        """`length` elements along an axis from `start` on: a view. A negative start counts from the end."""
    def ndimension(self) -> int:
        """`ndim`: the number of axes."""
    def ne(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.not_equal` of the tensor."""
    def neg(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.neg` of the tensor."""
    def neg_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.neg` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def negative(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.neg` of the tensor."""
    def negative_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.neg` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def nelement(self) -> int:
        """`size`: the number of elements."""
    def new(self, *args: Any, **how: Any) -> Tensor:
        """PyTorch's oldest way to make a tensor of this one's dtype: of a size, ``x.new(2, 3)`` or ``x.new(y.shape)``, whose
        numbers are 0, or of numbers, ``x.new([1, 2])``."""
    def new_empty(self, *size: Any, dtype: Any = None, **how: Any) -> Tensor:
        """`new_zeros`: here no tensor has values that nobody gave."""
    def new_full(
        self, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **how: Any,
    ) -> Tensor:
        """A tensor of one value, of this tensor's dtype and on its device unless others are given. how: `layout`,
        `pin_memory`: accepted."""
    def new_ones(self, *size: Any, dtype: Any = None, **how: Any) -> Tensor:
        """A tensor of ones, of this tensor's dtype unless another is given. how: as in `new_full`."""
    def new_tensor(
        self, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
    ) -> Tensor:
        """A tensor of these values, of this tensor's dtype and on its device unless others are given. pin_memory: accepted."""
    def new_zeros(self, *size: Any, dtype: Any = None, **how: Any) -> Tensor:
        """A tensor of zeros, of this tensor's dtype unless another is given. how: as in `new_full`."""
    def nextafter(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.nextafter` of the tensor."""
    def nonzero(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.non_zero` of the tensor."""
    def norm(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.norm` of the tensor."""
    def normal_(self, *args: Any, **kwargs: Any) -> Tensor:
        """Draws of a normal distribution: mean, std; the tensor itself takes the value. Errors: ArgumentError for a view,
        whose write would be lost."""
    def not_equal(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.not_equal` of the tensor."""
    def numel(self) -> int:
        """`size`: the number of elements."""
    def outer(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.outer` of the tensor."""
    def permute(self, *dims: Any) -> Tensor:
        """The axes in another order, all of them."""
    def pinv(self, *args: Any, **kwargs: Any) -> Any:
        """`linalg.pinv` of the tensor."""
    def pinverse(self, *args: Any, **kwargs: Any) -> Any:
        """`linalg.pinv` of the tensor."""
    def pow(self, y: TensorLike) -> Tensor:
        """x to the power y: of floats at most 2 ULP off with C99's special cases; of integers exact, and wrapping."""
    def pow_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.pow` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def prelu(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.prelu` of the tensor."""
    def prod(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """The product over `axis`; integers and bools give int64. An empty product is 1."""
    @property
    def qparams(self) -> Any:
        """What the numbers were rounded to, or the integers stand for (`quantization.QParams`); without a scale where nobody said."""
    def qr(self, *args: Any, **kwargs: Any) -> Any:
        """`linalg.qr` of the tensor."""
    def quantile(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.quantile` of the tensor."""
    def rad2deg(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.rad2deg` of the tensor."""
    def random_(self, *args: Any, **kwargs: Any) -> Tensor:
        """Draws of integers: from and to, or to alone; the tensor itself takes the value. Errors: ArgumentError for a view,
        whose write would be lost."""
    def ravel(self) -> Tensor:
        """All elements along one axis."""
    @property
    def real(self) -> Tensor:
        """The real parts: a view of complex numbers."""
    def reciprocal(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.reciprocal` of the tensor."""
    def reciprocal_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.reciprocal` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose
        write would be lost."""
    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> Any:
        """Calls hook(gradient) when a backward walk has computed this tensor's gradient; what it returns, if anything, takes
        the gradient's place. For a result of the block in which a gradient is being recorded; a Parameter has one that
        lasts."""
    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> Any:
        """Calls hook(tensor) when a backward walk has added a gradient to the leaf's ``grad``; see `Parameter`'s."""
    def relu(self) -> Tensor:
        """max(x, 0); the gradient at 0 is 0; a NaN stays. Integers are taken as they are."""
    def relu_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.relu` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def remainder(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.mod` of the tensor."""
    def remainder_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.mod` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def repeat(self, repeats: Extent | Sequence[int], axis: int | None = None) -> Tensor:
        """Each element repeated, as NumPy's repeat: one number for all, or one for each position of `axis`; flattened without
        an axis."""
    def repeat_interleave(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.repeat` of the tensor."""
    @property
    def requires_grad(self) -> bool:
        """Whether a gradient is recorded for the tensor; of a Parameter, whether it is to be trained."""
    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Sets `requires_grad`; returns the tensor."""
    def reset_zero(self) -> None:
        """Every element becomes 0."""
    def reshape(self, *shape: Any) -> Tensor:
        """The same elements with another shape; one extent may be -1."""
    def reshape_as(self, other: Tensor) -> Tensor:
        """`reshape` to the shape of another tensor."""
    def retain_grad(self, *args: Any, **kwargs: Any) -> Any:
        """`tensor.backward.retain_grad` of the tensor."""
    def roll(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.roll` of the tensor."""
    def rot90(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.rot90` of the tensor."""
    def round(self, decimals: int = 0) -> Tensor:
        """x rounded to so many decimal digits, halves to even; negative: to tens, hundreds, ... Integers stay integers."""
    def round_(self, *args: Any, **kwargs: Any) -> Tensor:
        """The nearest integers, or numbers of so many decimals; ties to even; the tensor itself takes the value. Errors:
        ArgumentError for a view, whose write would be lost."""
    def rsqrt(self) -> Tensor:
        """1 / sqrt(x), at most 1 ULP off; infinite at 0, NaN below."""
    def rsqrt_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.rsqrt` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def scatter(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.scatter` of the tensor."""
    def scatter_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.scatter` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def scatter_add(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.scatter_add` of the tensor."""
    def scatter_add_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.scatter_add` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose
        write would be lost."""
    def scatter_reduce(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.scatter_reduce` of the tensor."""
    def scatter_reduce_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.scatter_reduce` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view,
        whose write would be lost."""
    def select(self, dim: int, index: int) -> Tensor:
        """The elements at an index of an axis, which is gone: a view."""
    def set_value(self, value: Any) -> None:
        """Gives the tensor another value, as MegEngine's method of this name: a tensor, an array or a number, whose shape and
        dtype it takes. ``x[...] = value`` keeps both."""
    def sgn(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.sign` of the tensor."""
    def short(self, memory_format: Any = None) -> Tensor:
        """`astype` int16."""
    def sigmoid(self) -> Tensor:
        """1 / (1 + e^-x), at most 2 ULP off; nothing overflows on the way."""
    def sigmoid_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.sigmoid` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def sign(self) -> Tensor:
        """-1, 0 or 1; a NaN stays. The gradient is 0."""
    def sign_(self, *args: Any, **kwargs: Any) -> Tensor:
        """-1, 0 or 1; bools stay as they are; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def signbit(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.signbit` of the tensor."""
    def sin(self) -> Tensor:
        """The sine of x in radians, at most 2 ULP off for every finite x; NaN at infinity."""
    def sin_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.sin` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def sinc(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.sinc` of the tensor."""
    def sinh(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.sinh` of the tensor."""
    def sinh_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.sinh` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def slogdet(self, *args: Any, **kwargs: Any) -> Any:
        """`linalg.slogdet` of the tensor."""
    def softmax(self, axis: int | Sequence[int] | None = None) -> Tensor:
        """exp(x) divided by its sum along `axis`, without overflow: the largest element is taken out first."""
    def sort(self, descending: Any = False, axis: int = -1) -> tuple[Tensor, Tensor]:
        """(values in order along `axis`, the int64 positions they come from). Stable, descending too; NaN counts as
        largest."""
    def split(self, split_size_or_sections: Offset | Sequence[Offset], dim: int = 0) -> list[Tensor]:
        """Parts of so many elements along an axis, the last of what is left; or of these extents, whose sum is the axis's. As
        PyTorch's; `functional.split` is MegEngine's, of a number of parts, or positions."""
    def split_with_sizes(self, split_size_or_sections: Offset | Sequence[Offset], dim: int = 0) -> list[Tensor]:
        """Parts of so many elements along an axis, the last of what is left; or of these extents, whose sum is the axis's. As
        PyTorch's; `functional.split` is MegEngine's, of a number of parts, or positions."""
    def sqrt(self) -> Tensor:
        """The square root, correctly rounded; NaN below 0, -0.0 stays."""
    def sqrt_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.sqrt` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def square(self) -> Tensor:
        """x * x."""
    def square_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.square` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def squeeze(self, axis: int | Sequence[int] | None = None) -> Tensor:
        """A view without these unit axes (all unit axes by default)."""
    def std(
        self,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        correction: Count = 0,
        unbiased: bool | None = None,
    ) -> Tensor:
        """The standard deviation: the square root of `var`, which see for `correction`. The gradient is 0 where it is 0."""
    def stft(self, *args: Any, **kwargs: Any) -> Any:
        """`fft.stft` of the tensor."""
    def stride(self, dim: int | None = None) -> Any:
        """How many elements lie between neighbours along each axis, or along one."""
    def sub(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.sub` of the tensor."""
    def sub_(self, *args: Any, **kwargs: Any) -> Tensor:
        """x - alpha y; the tensor itself takes the value. Errors: ArgumentError for a view, whose write would be lost."""
    def subtract(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.sub` of the tensor."""
    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """The sum over `axis` (all axes by default). Integers and bools give int64; float16 and bfloat16 add in float32. An
        empty sum is 0."""
    def svd(self, *args: Any, **kwargs: Any) -> Any:
        """`linalg.svd` of the tensor."""
    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        """A view with two axes exchanged."""
    def swapdims(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.swapaxes` of the tensor."""
    def t(self) -> Tensor:
        """The tensor with its axes reversed; it has at most two."""
    def take(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.take` of the tensor."""
    def take_along_dim(self, indices: Tensor, dim: int) -> Tensor:
        """`functional.take_along_axis`."""
    def tan(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.tan` of the tensor."""
    def tan_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.tan` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def tanh(self) -> Tensor:
        """The hyperbolic tangent, at most 2 ULP off."""
    def tanh_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.tanh` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def tensor_split(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.tensor_split` of the tensor."""
    def tile(self, reps: Extent | Sequence[Extent]) -> Tensor:
        """The whole tensor repeated along each axis, as NumPy's tile."""
    def to(
        self,
        *args: Any,
        device: Any = None,
        dtype: Any = None,
        non_blocking: bool = False,
        copy: bool = False,
        memory_format: Any = None,
        other: Tensor | None = None,
    ) -> Tensor:
        """The tensor on a device, of a dtype, or both, in MegEngine's or PyTorch's spelling: `to("cpu0")`, `to("float64")`,
        `to("cpu", "int8")`, `to(other)`; itself where nothing changes. The processor is the only device so far. memory_format:
        accepted, as PyTorch's; how tensors lie in memory is a matter of the compiler."""
    def to_device(self, device: Any, *, stream: Any = None) -> Tensor:
        """The tensor on a device, `to` by the array API's name. `stream` must be None: a processor has none."""
    def topk(self, k: int, descending: Any = True, kth_only: bool = False, no_sort: bool = False, axis: int = -1) -> Tensor:
        """The k largest (smallest, if not descending) elements along `axis` and their positions."""
    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """`linalg.trace` of the tensor."""
    def transpose(self, *axes: Any) -> Tensor:
        """The axes in another order (reversed by default), as NumPy's, where "x" stands for a new unit axis; of a tensor of
        three axes or more, two numbers exchange two axes, as PyTorch's."""
    def tril(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.tril` of the tensor."""
    def tril_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.tril` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def triu(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.triu` of the tensor."""
    def triu_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.triu` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def true_divide(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.div` of the tensor."""
    def trunc(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.trunc` of the tensor."""
    def trunc_(self, *args: Any, **kwargs: Any) -> Tensor:
        """`functional.trunc` of the tensor; the tensor itself takes the value. Errors: ArgumentError for a view, whose write
        would be lost."""
    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The tensor in a dtype, or without one the name that PyTorch has for its type, as "torch.FloatTensor"."""
    def type_as(self, other: Tensor) -> Tensor:
        """`astype` the dtype of another tensor."""
    def unbind(self, dim: int = 0) -> tuple[Tensor, ...]:
        """The elements at each index of an axis, which is gone: views."""
    def unflatten(self, dim: int, sizes: tuple[int, ...]) -> Tensor:
        """An axis as several; one of their extents may be -1."""
    def unfold(self, dimension: int, size: int, step: int = 1) -> Tensor:
        """Windows of so many elements along an axis, each `step` behind the one before: they are an axis behind the others."""
    def uniform_(self, *args: Any, **kwargs: Any) -> Tensor:
        """Draws between two numbers; the tensor itself takes the value. Errors: ArgumentError for a view, whose write would be
        lost."""
    def unique(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.unique` of the tensor."""
    def unique_consecutive(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.unique_consecutive` of the tensor."""
    def unsqueeze(self, dim: int) -> Tensor:
        """`expand_dims`: an axis of extent 1 at a position."""
    def var(
        self,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        correction: Count = 0,
        unbiased: bool | None = None,
    ) -> Tensor:
        """The variance: the mean of the squared distance from the mean."""
    def view(self, *shape: Any) -> Tensor:
        """`reshape`: the same elements with another shape; one extent may be -1. Where strides do not allow a view, a copy."""
    def view_as(self, other: Tensor) -> Tensor:
        """The same elements in the shape of another tensor."""
    def view_as_complex(self) -> Tensor:
        """Pairs of floats along the last axis as complex numbers: a view, where the two of each pair are neighbours in
        memory."""
    def view_as_real(self) -> Tensor:
        """Complex numbers as pairs of floats: a view with one axis more, of the real and the imaginary part."""
    def where(self, x: TensorLike, y: TensorLike) -> Tensor:
        """x where the mask is true (not zero), else y. The dtype is what x and y promote to."""
    def xlogy(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.xlogy` of the tensor."""
    def zero_(self, *args: Any, **kwargs: Any) -> Tensor:
        """Zeros; the tensor itself takes the value. Errors: ArgumentError for a view, whose write would be lost."""
