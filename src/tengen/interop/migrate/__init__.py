"""`tengen.interop.migrate`: how networks leave frameworks that are not here.

`script()` is a file that runs in the old environment and writes safetensors; `load_megengine` reads the graphs that it writes of
MegEngine's traced modules and .mge files. Weights are read by `tengen.interop.weights.load`. See docs/migrate.md.
"""

from tengen.interop.migrate.traced import load_megengine, script

__all__ = ["load_megengine", "script"]
