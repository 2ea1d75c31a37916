"""`torch.distributions.transforms`: Tengen's, whose names and arguments are PyTorch's."""

from tengen.distributions.joined_transforms import CatTransform, StackTransform, StickBreakingTransform
from tengen.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
    Transform,
)

__all__ = [
    "CatTransform", "StackTransform", "StickBreakingTransform",
    "AffineTransform", "ComposeTransform", "ExpTransform", "PowerTransform", "SigmoidTransform", "SoftplusTransform", "TanhTransform",
    "Transform",
]  # fmt: skip
