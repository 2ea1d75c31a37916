"""The functions of PyTorch's that stand in `torch` itself, by subject; `tengen.pytorch` gathers them."""
