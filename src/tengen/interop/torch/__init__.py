"""PyTorch's networks, tensors and functions in Tengen. Needs the package ``torch``, which is imported where it is used.

`to_module` makes a Module of an ``nn.Module``, `load_program` one of a program of ``torch.export``, `interpret` one that runs the
module's Python code; `from_torch` and `to_torch` share memory;
`as_torch_function` and `from_torch_function` let gradients cross the border. Read in this order: `reader.py` (an exported program as a
plain description), `network.py` (how nodes are run), `dtypes.py`, `ops/` (what each operator means).
"""

from tengen.interop.torch.functions import as_torch_function, from_torch_function
from tengen.interop.torch.interpreted import interpret
from tengen.interop.torch.load import load_program, to_module
from tengen.interop.torch.network import TorchNetwork
from tengen.interop.torch.sharing import from_torch, to_torch

__all__ = ["TorchNetwork", "as_torch_function", "from_torch", "from_torch_function", "interpret", "load_program", "to_module", "to_torch"]
