"""`torch.distributions.constraints`: the sets that values of distributions and parameters lie in; `check(x)` says which values do."""

from tengen.distributions.constraints import *  # noqa: F403  (its __all__ is the table of names)
from tengen.distributions.constraints import __all__  # noqa: F401  (the same names)
