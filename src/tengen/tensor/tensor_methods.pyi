"""Operators and methods of Tensor, for editors and type checkers. `python docs/generate.py` writes this file again."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tengen.ops.attributes import DTypeLike, Precision, Shape
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
    def abs(self) -> Tensor:
        """|x|; the gradient at 0 is 0. The least integer of a dtype stays, as in NumPy."""
    def add(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.add` of the tensor."""
    def all(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Whether every element is true (not zero)."""
    def angle(self) -> Tensor:
        """The argument of complex numbers in [-pi, pi], by `atan2`; of real numbers 0 or pi, and NaN of NaN, as in NumPy.
        Where a number is 0 so is its gradient."""
    def any(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Whether an element is true (not zero)."""
    def argmax(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """The int64 position of the first largest element along `axis` (in the flattened tensor by default); a NaN counts as
        largest."""
    def argmin(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """The int64 position of the first smallest element along `axis` (in the flattened tensor by default); a NaN counts as
        smallest."""
    def argsort(self, descending: bool = False, axis: int = -1) -> Tensor:
        """The int64 positions that sort the tensor along `axis`: stable, descending too; NaN counts as largest."""
    def astype(self, dtype: DTypeLike) -> Tensor:
        """x in another dtype: rounds to nearest even, float to int truncates and saturates (NaN gives 0), integers wrap,
        anything to bool is x != 0."""
    def backward(self, *args: Any, **kwargs: Any) -> Any:
        """Errors: GradientError always: gradients belong to a manager."""
    def bfloat16(self) -> Tensor:
        """`astype` bfloat16."""
    def bmm(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.matmul` of the tensor."""
    def bool(self) -> Tensor:
        """`astype` bool."""
    def broadcast_to(self, shape: Shape) -> Tensor:
        """x repeated along new and unit axes, without copying."""
    def byte(self) -> Tensor:
        """`astype` uint8."""
    def cdouble(self) -> Tensor:
        """`astype` complex128."""
    def ceil(self) -> Tensor:
        """The smallest integer that is not below x. The gradient is 0."""
    def cfloat(self) -> Tensor:
        """`astype` complex64."""
    def char(self) -> Tensor:
        """`astype` int8."""
    def chunk(self, chunks: int, dim: int = 0) -> list[Tensor]:
        """At most so many parts along an axis, all but the last of equal extent, as PyTorch cuts them; `functional.split`
        wants equal parts."""
    def clamp(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.clip` of the tensor."""
    def clip(self, lower: TensorLike | None = None, upper: TensorLike | None = None) -> Tensor:
        """min(max(x, lower), upper), promoted to one dtype; a NaN stays. Where a bound is reached the gradient goes to the
        bound."""
    def clone(self) -> Tensor:
        """`copy`: the same values in memory of their own, on the tape."""
    def conj(self) -> Tensor:
        """The complex conjugate x - iy of x + iy; what is not complex, as it is."""
    def contiguous(self) -> Tensor:
        """The tensor with its elements dense in logical order; itself where they are."""
    def cos(self) -> Tensor:
        """The cosine of x in radians, at most 2 ULP off for every finite x; NaN at infinity."""
    def cpu(self) -> Tensor:
        """The tensor on the processor; itself where it lies there."""
    def cuda(self, device: Any = None) -> Tensor:
        """The tensor on a GPU. Errors: DeviceError while there is none."""
    def cumprod(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.cumprod` of the tensor."""
    def cumsum(self, axis: int, exclusive: bool = False, reverse: bool = False) -> Tensor:
        """Running sums along `axis`, in order; integers and bools give int64, float16 and bfloat16 add in float32."""
    def detach_(self) -> Tensor:
        """Takes the tensor itself off the tape; returns it. Gradients that were recorded through it before stay."""
    def diag(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.diag` of the tensor."""
    def diagonal(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.diagonal` of the tensor."""
    def dim(self) -> int:
        """`ndim`: the number of axes."""
    def div(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.div` of the tensor."""
    def double(self) -> Tensor:
        """`astype` float64."""
    def element_size(self) -> int:
        """The bytes of an element."""
    def eq(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.equal` of the tensor."""
    def exp(self) -> Tensor:
        """e to the power x; at most 2 ULP off."""
    def expand(self, *sizes: Any) -> Tensor:
        """`broadcast_to`; an extent of -1 is the tensor's own."""
    def expand_as(self, other: Tensor) -> Tensor:
        """`broadcast_to` the shape of another tensor."""
    def expand_dims(self, axis: int | Sequence[int]) -> Tensor:
        """A view with unit axes at these places of the result."""
    def flatten(self, start_axis: int = 0, end_axis: int = -1) -> Tensor:
        """Axes start_axis .. end_axis as one."""
    def flip(self, axis: int | Sequence[int] | None = None) -> Tensor:
        """A view with the order of elements turned round along `axis` (all axes by default)."""
    def float(self) -> Tensor:
        """`astype` float32."""
    def floor(self) -> Tensor:
        """The largest integer that is not above x. The gradient is 0."""
    @property
    def format(self) -> str:
        """How an image's axes lie, in MegEngine: always "default" here, for the compiler chooses."""
    def gather(self, axis: int, index: TensorLike) -> Tensor:
        """out[..., i, ...] = inp[..., index[..., i, ...], ...] along `axis` (NumPy's take_along_axis, PyTorch's gather)."""
    def ge(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.greater_equal` of the tensor."""
    def gt(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.greater` of the tensor."""
    def half(self) -> Tensor:
        """`astype` float16."""
    @property
    def imag(self) -> Tensor:
        """The imaginary parts: a view of complex numbers; zeros of what is not complex."""
    def index_select(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.index_select` of the tensor."""
    def int(self) -> Tensor:
        """`astype` int32."""
    def is_complex(self) -> bool:
        """Whether the dtype is complex64 or complex128."""
    def is_contiguous(self) -> bool:
        """Whether the elements lie densely in logical order."""
    def is_floating_point(self) -> bool:
        """Whether the dtype is one of floats; complex numbers are not."""
    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers."""
    def isfinite(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.isfinite` of the tensor."""
    def isinf(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.isinf` of the tensor."""
    def isnan(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.isnan` of the tensor."""
    def le(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.less_equal` of the tensor."""
    def lerp(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.lerp` of the tensor."""
    def log(self) -> Tensor:
        """The natural logarithm, at most 2 ULP off; -inf at 0, NaN below."""
    def log1p(self) -> Tensor:
        """log(1 + x) without cancellation near 0, at most 2 ULP off; -inf at -1, NaN below."""
    def log_softmax(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.logsoftmax` of the tensor."""
    def logsoftmax(self, axis: int | Sequence[int] | None = -1) -> Tensor:
        """log(softmax(x)), without overflow."""
    def logsumexp(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.logsumexp` of the tensor."""
    def long(self) -> Tensor:
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
    def masked_select(self, mask: Tensor) -> Tensor:
        """The elements where the mask is true, `x[mask]`; both broadcast. Inside of a trace their number is not known: a
        TraceError."""
    def matmul(
        self, inp2: TensorLike, transpose_a: bool = False, transpose_b: bool = False, precision: Precision = 'highest',
    ) -> Tensor:
        """Matrix product over the last two axes; leading axes broadcast. A 1-D operand is a row (first) or a column (second),
        whose axis disappears from the result, as in NumPy."""
    def max(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """The largest element; a NaN wins. The gradient is shared by equal largest elements. An empty one is an error."""
    def maximum(self, y: TensorLike) -> Tensor:
        """The larger of x and y; a NaN in either wins. In a tie the gradient goes to y."""
    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """The sum divided by the number of elements; integers give float32. NaN where there are none."""
    def min(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """The smallest element; a NaN wins. The gradient is shared by equal smallest elements. An empty one is an error."""
    def minimum(self, y: TensorLike) -> Tensor:
        """The smaller of x and y; a NaN in either wins. In a tie the gradient goes to y."""
    def mm(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.matmul` of the tensor."""
    def movedim(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.moveaxis` of the tensor."""
    def mul(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.mul` of the tensor."""
    def mv(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.matmul` of the tensor."""
    @property
    def name(self) -> str:
        """What messages and files may call the tensor; "" at first."""
    def narrow(self, dim: int, start: int, length: int) -> Tensor:
        """`length` elements along an axis from `start` on: a view. A negative start counts from the end."""
    def ne(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.not_equal` of the tensor."""
    def neg(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.neg` of the tensor."""
    def nelement(self) -> int:
        """`size`: the number of elements."""
    def new_full(self, size: Any, fill_value: Any, *, dtype: Any = None) -> Tensor:
        """A tensor of one value, of this tensor's dtype unless another is given."""
    def new_ones(self, *size: Any, dtype: Any = None) -> Tensor:
        """A tensor of ones, of this tensor's dtype unless another is given."""
    def new_tensor(self, data: Any, *, dtype: Any = None) -> Tensor:
        """A tensor of these values, of this tensor's dtype unless another is given."""
    def new_zeros(self, *size: Any, dtype: Any = None) -> Tensor:
        """A tensor of zeros, of this tensor's dtype unless another is given."""
    def nonzero(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.non_zero` of the tensor."""
    def numel(self) -> int:
        """`size`: the number of elements."""
    def permute(self, *dims: Any) -> Tensor:
        """`transpose` with all axes: the axes in another order."""
    def pow(self, y: TensorLike) -> Tensor:
        """x to the power y: of floats at most 2 ULP off with C99's special cases; of integers exact, and wrapping."""
    def prod(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """The product over `axis`; integers and bools give int64. An empty product is 1."""
    @property
    def qparams(self) -> Any:
        """What the tensor's numbers were rounded to (`quantization.QParams`); None where nobody said, as of all that is computed."""
    @property
    def real(self) -> Tensor:
        """The real parts: a view of complex numbers."""
    def reciprocal(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.reciprocal` of the tensor."""
    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> Any:
        """Calls hook(gradient) when a backward walk has computed this tensor's gradient; what it returns, if anything, takes
        the gradient's place. For a result of the block in which a gradient is being recorded; a Parameter has one that
        lasts."""
    def relu(self) -> Tensor:
        """max(x, 0); the gradient at 0 is 0; a NaN stays. Integers are taken as they are."""
    def repeat(self, repeats: int | Sequence[int], axis: int | None = None) -> Tensor:
        """Each element repeated, as NumPy's repeat: one number for all, or one for each position of `axis`; flattened without
        an axis."""
    def reset_zero(self) -> None:
        """Every element becomes 0."""
    def reshape(self, *shape: Any) -> Tensor:
        """The same elements with another shape; one extent may be -1."""
    def roll(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.roll` of the tensor."""
    def round(self, decimals: int = 0) -> Tensor:
        """x rounded to so many decimal digits, halves to even; negative: to tens, hundreds, ... Integers stay integers."""
    def rsqrt(self) -> Tensor:
        """1 / sqrt(x), at most 1 ULP off; infinite at 0, NaN below."""
    def select(self, dim: int, index: int) -> Tensor:
        """The elements at an index of an axis, which is gone: a view."""
    def set_value(self, value: Any) -> None:
        """Gives the tensor another value, as MegEngine's method of this name: a tensor, an array or a number, whose shape and
        dtype it takes. ``x[...] = value`` keeps both."""
    def short(self) -> Tensor:
        """`astype` int16."""
    def sigmoid(self) -> Tensor:
        """1 / (1 + e^-x), at most 2 ULP off; nothing overflows on the way."""
    def sign(self) -> Tensor:
        """-1, 0 or 1; a NaN stays. The gradient is 0."""
    def sin(self) -> Tensor:
        """The sine of x in radians, at most 2 ULP off for every finite x; NaN at infinity."""
    def softmax(self, axis: int | Sequence[int] | None = -1) -> Tensor:
        """exp(x) divided by its sum along `axis`, without overflow: the largest element is taken out first."""
    def sort(self, descending: bool = False, axis: int = -1) -> tuple[Tensor, Tensor]:
        """(values in order along `axis`, the int64 positions they come from). Stable, descending too; NaN counts as
        largest."""
    def split(self, split_size_or_sections: int | Sequence[int], dim: int = 0) -> list[Tensor]:
        """Parts of so many elements along an axis, the last of what is left; or of these extents, whose sum is the axis's. As
        PyTorch's; `functional.split` is MegEngine's, of a number of equal parts, or positions."""
    def sqrt(self) -> Tensor:
        """The square root, correctly rounded; NaN below 0, -0.0 stays."""
    def square(self) -> Tensor:
        """x * x."""
    def squeeze(self, axis: int | Sequence[int] | None = None) -> Tensor:
        """A view without these unit axes (all unit axes by default)."""
    def std(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """The standard deviation: the square root of `var`."""
    def sub(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.sub` of the tensor."""
    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """The sum over `axis` (all axes by default). Integers and bools give int64; float16 and bfloat16 add in float32. An
        empty sum is 0."""
    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        """A view with two axes exchanged."""
    def swapdims(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.swapaxes` of the tensor."""
    def t(self) -> Tensor:
        """The tensor with its axes reversed; it has at most two."""
    def take(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.take` of the tensor."""
    def tanh(self) -> Tensor:
        """The hyperbolic tangent, at most 2 ULP off."""
    def tile(self, reps: int | Sequence[int]) -> Tensor:
        """The whole tensor repeated along each axis, as NumPy's tile."""
    def to(self, device: Any) -> Tensor:
        """The tensor on a device, in MegEngine's or PyTorch's spelling; itself where it lies there. The processor is the only
        device so far."""
    def to_device(self, device: Any, *, stream: Any = None) -> Tensor:
        """The tensor on a device, `to` by the array API's name. `stream` must be None: a processor has none."""
    def topk(self, k: int, descending: bool = True, kth_only: bool = False, no_sort: bool = False, axis: int = -1) -> Tensor:
        """The k largest (smallest, if not descending) elements along `axis` and their positions."""
    def transpose(self, *axes: Any) -> Tensor:
        """The axes in another order (reversed by default)."""
    def tril(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.tril` of the tensor."""
    def triu(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.triu` of the tensor."""
    def trunc(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.trunc` of the tensor."""
    def type_as(self, other: Tensor) -> Tensor:
        """`astype` the dtype of another tensor."""
    def unbind(self, dim: int = 0) -> tuple[Tensor, ...]:
        """The elements at each index of an axis, which is gone: views."""
    def unflatten(self, dim: int, sizes: tuple[int, ...]) -> Tensor:
        """An axis as several; one of their extents may be -1."""
    def unique(self, *args: Any, **kwargs: Any) -> Any:
        """`functional.unique` of the tensor."""
    def unsqueeze(self, dim: int) -> Tensor:
        """`expand_dims`: an axis of extent 1 at a position."""
    def var(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """The variance: the mean of the squared distance from the mean (divided by n)."""
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
