"""The passes from a graph to launches. `compiler/driver.py` has the list of all; `run.py` runs a list and tells observers."""

from typing import TYPE_CHECKING

from tengen.base.lazy import modules_of

if TYPE_CHECKING:
    from tengen.passes import layout, pipeline  # noqa: F401  (load when named: a program that is found in a cache takes none of them)

__getattr__ = modules_of(__name__)
