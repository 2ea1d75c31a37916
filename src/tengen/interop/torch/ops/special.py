"""Functions of probability and physics: PyTorch's `torch.special`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tengen.functional as F
from tengen.functional import bessel, orthogonal, special
from tengen.interop.torch.dtypes import alike, floating, result_type, tensor
from tengen.interop.torch.registry import op
from tengen.ops.widths import narrowed, widened
from tengen.tensor import Tensor


def _of_floats(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A function of floats: integers and bools become float32, halves are computed in float32."""

    def computed(x: Tensor) -> Tensor:
        x = floating(x)
        return narrowed(f(widened(x)), x)

    return computed


for name, function in {
    "erfinv": special.erfinv, "special_ndtri": special.ndtri, "special_erfcx": special.erfcx, "special_log_ndtr": special.log_ndtr,
    "i0": bessel.i0, "special_i0e": bessel.i0e, "special_i1": bessel.i1, "special_i1e": bessel.i1e,
    "special_modified_bessel_i0": bessel.i0, "special_modified_bessel_i1": bessel.i1,
}.items():  # fmt: skip
    op(name)(_of_floats(function))
for name in bessel.__all__:
    op(f"special_{name}")(_of_floats(getattr(bessel, name)))


def _polynomial(f: Callable[[Tensor, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
    """A polynomial of x whose degree is a number or a tensor; both may be numbers of Python."""

    def computed(x: Any, n: Any) -> Tensor:
        d = floating(tensor(x, result_type(x, n))).dtype
        return f(tensor(x, d), n if isinstance(n, Tensor) else int(n))

    return computed


for name in orthogonal.__all__:
    op(f"special_{name}", f"special_{name}.n_scalar", f"special_{name}.x_scalar")(_polynomial(getattr(orthogonal, name)))


@op("special_zeta", "special_zeta.other_scalar", "special_zeta.self_scalar")
def zeta(x: Any, q: Any) -> Tensor:
    """Hurwitz's zeta function."""
    x, q = alike(x, q)
    like = floating(x if isinstance(x, Tensor) else q)
    return special.zeta(*(floating(v) if isinstance(v, Tensor) else F.full((), v, like.dtype) for v in (x, q)))


@op("polygamma")
def polygamma(n: int, x: Tensor) -> Tensor:
    """The n-th derivative of digamma."""
    return special.polygamma(n, floating(x))


@op("igamma")
def igamma(a: Tensor, x: Tensor) -> Tensor:
    """The regularised lower incomplete gamma function; eager alone, since the largest `a` decides how many terms it has."""
    return special.gammainc(*alike(a, x))


@op("igammac")
def igammac(a: Tensor, x: Tensor) -> Tensor:
    """The regularised upper incomplete gamma function; eager alone, as `igamma`."""
    return special.gammaincc(*alike(a, x))
