"""`tengen.utils`: figures of networks, profiles, folding of batch norms, DLPack: each in a module that loads when it is named."""

from tengen.base.lazy import modules_of

__getattr__ = modules_of(__name__)
__all__ = ["bn_fusion", "dlpack", "module_stats", "profiler", "summary"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
