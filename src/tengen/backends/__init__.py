"""Back ends: other programs that compute parts of a model.

`partition(model, "openvino")` gives the parts of a model that a back end takes to it; Tengen computes the rest. A package brings a back
end of its own by an entry point of the group "tengen.backends" that names a `Backend`. See docs/deploy.md.
"""

from tengen.deploy.backends import Backend, Part, Partitioned, Refused, find, load, names, partition

__all__ = ["Backend", "Part", "Partitioned", "Refused", "find", "load", "names", "partition"]
