"""Looking for what goes wrong in a program: the first NaN, the first bit that differs, a value each time that it is computed. See
`docs/debug.md`."""

from tengen.debug.comparing import Comparison, compare
from tengen.debug.finite import check_finite, set_check_finite
from tengen.debug.watching import watch

__all__ = ["Comparison", "check_finite", "compare", "set_check_finite", "watch"]
