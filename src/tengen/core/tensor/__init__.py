"""MegEngine's `core.tensor`: `dtype`."""

from tengen.base.lazy import modules_of

__getattr__ = modules_of(__name__)
