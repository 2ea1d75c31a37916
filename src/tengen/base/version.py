"""The version of Tengen, in one place: pyproject.toml, `tengen.__version__` and the kernel cache read it here."""

VERSION = "0.1.0"
