"""What each operator of PyTorch means here: files by family, one function for each op, entered in `OPS`."""

from tengen.interop.torch.ops import (
    backward,
    control,
    convolution,
    creation,
    drawing,
    elementwise,
    indexing,
    linalg,
    normalization,
    numbers,
    ordering,
    pooling,
    products,
    recurrent,
    reduction,
    resize,
    shapes,
    special,
    vision,
)
from tengen.interop.torch.registry import OPS, op

FAMILIES = (
    backward, control, convolution, creation, drawing, elementwise, indexing, linalg, normalization, numbers, ordering, pooling, products,
    recurrent, reduction, resize, shapes, special, vision,
)  # fmt: skip

__all__ = ["FAMILIES", "OPS", "op"]
