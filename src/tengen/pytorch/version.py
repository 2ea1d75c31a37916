"""`torch.version`: which one this is, and that there is no GPU."""

from tengen.base.version import VERSION

__version__ = f"2.0+tengen.{VERSION}"
cuda = hip = xpu = None
debug = False
git_version = ""

__all__ = ["cuda", "debug", "git_version", "hip", "xpu"]
