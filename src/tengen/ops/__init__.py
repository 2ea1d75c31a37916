"""Every op, in one place each. `define.py` says how; each other file is a family, which is loaded when one of its ops is first named
(`registry.py`)."""

from tengen.base.lazy import modules_of

__getattr__ = modules_of(__name__)
