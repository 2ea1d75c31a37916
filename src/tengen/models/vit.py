"""Vision transformers over patches of 16 pixels. Source: Dosovitskiy et al., arXiv 2010.11929; small sizes: Touvron et al.,
arXiv 2012.12877."""

from __future__ import annotations

import numpy as np

import tengen.functional as F
import tengen.module as M
from tengen.models.build import network
from tengen.models.transformer import Block, initialise
from tengen.tensor import Parameter, Tensor


class ViT(M.Module):
    """Shapes: (N, 3, image, image) -> (N, num_classes).

    Args:
        image, patch: pixels of a side. width, heads, depth: of the blocks. eps: of the norms. hidden: features
            between the perceptrons' layers, default 4 * width. activation: "gelu", "gelu_tanh", "relu" or "silu". channels: of the image.
    """

    def __init__(
        self, num_classes: int = 1000, image: int = 224, patch: int = 16, width: int = 192, heads: int = 3, depth: int = 12,
        drop_prob: float = 0.0, drop_path: float = 0.0, eps: float = 1e-6,
        hidden: int | None = None, activation: str = "gelu", channels: int = 3,
    ):  # fmt: skip
        super().__init__()
        if image % patch:
            raise ValueError(f"an image of {image} pixels cannot be cut into patches of {patch}")
        self.patch_embed = M.Conv2d(channels, width, patch, patch)
        more = (eps, hidden, activation)
        self.blocks = [Block(width, heads, False, 4, drop_prob, drop_path * i / max(1, depth - 1), *more) for i in range(depth)]
        self.norm, self.head = M.LayerNorm(width, eps), M.Linear(width, num_classes)
        initialise(self)
        self.cls_token = Parameter(np.zeros((1, 1, width), np.float32))
        self.pos_embed = Parameter(np.zeros((1, (image // patch) ** 2 + 1, width), np.float32))
        M.init.normal_(self.pos_embed, 0, 0.02)

    def forward(self, x: Tensor) -> Tensor:
        x = F.flatten(self.patch_embed(x), 2).transpose(0, 2, 1)
        cls = F.broadcast_to(self.cls_token, (x.shape[0], 1, x.shape[2]))
        x = F.concat([cls, x], 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))


@network
def vit_tiny(num_classes: int = 1000, **options) -> ViT:
    """ViT-Ti/16: width 192, 5.7 million parameters."""
    return ViT(num_classes, **{"width": 192, "heads": 3, **options})


@network
def vit_small(num_classes: int = 1000, **options) -> ViT:
    """ViT-S/16: width 384, 22.1 million parameters."""
    return ViT(num_classes, **{"width": 384, "heads": 6, **options})


@network
def vit_base(num_classes: int = 1000, **options) -> ViT:
    """ViT-B/16: width 768, 86.6 million parameters."""
    return ViT(num_classes, **{"width": 768, "heads": 12, **options})
