"""PyTorch's side of the sequence networks, written from the papers, with the parameter names of `tengen.models`."""

import torch
import torch.nn.functional as F
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, width, heads, causal=False):
        super().__init__()
        self.heads, self.causal, self.qkv, self.proj = heads, causal, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask=None):
        n, t, w = x.shape
        q, k, v = (a.view(n, t, self.heads, w // self.heads).transpose(1, 2) for a in self.qkv(x).split(w, 2))
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal)
        return self.proj(y.transpose(1, 2).reshape(n, t, w))


class Block(nn.Module):
    def __init__(self, width, heads, causal, eps):
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(width, eps), SelfAttention(width, heads, causal), nn.LayerNorm(width, eps)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class ViT(nn.Module):
    def __init__(self, num_classes=1000, image=224, patch=16, width=192, heads=3, depth=12):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, width, patch, patch)
        self.blocks = nn.ModuleList([Block(width, heads, False, 1e-6) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width, 1e-6), nn.Linear(width, num_classes)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, width))

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.pos_embed
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x[:, 0]))


def vit_tiny(num_classes=1000, **o):
    return ViT(num_classes, **{"width": 192, "heads": 3, **o})


def vit_small(num_classes=1000, **o):
    return ViT(num_classes, **{"width": 384, "heads": 6, **o})


def vit_base(num_classes=1000, **o):
    return ViT(num_classes, **{"width": 768, "heads": 12, **o})


class EncoderLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attn, self.norm1, self.norm2 = SelfAttention(width, heads), nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        x = self.norm1(x + self.attn(x, mask))
        return self.norm2(x + self.fc2(F.gelu(self.fc1(x))))


class BERT(nn.Module):
    def __init__(self, vocabulary=30522, width=768, heads=12, depth=12, context=512, segments=2):
        super().__init__()
        self.tokens, self.positions, self.segments = (nn.Embedding(n, width) for n in (vocabulary, context, segments))
        self.norm, self.layers = nn.LayerNorm(width, 1e-12), nn.ModuleList([EncoderLayer(width, heads) for _ in range(depth)])
        self.pooler = nn.Linear(width, width)

    def forward(self, tokens, segments=None, mask=None):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        x = self.norm(x + (self.segments.weight[0] if segments is None else self.segments(segments)))
        mask = None if mask is None else (1 - mask)[:, None, None] * -1e9
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


def bert_base(**o):
    return BERT(**o)


class GPT(nn.Module):
    def __init__(self, vocabulary, layers, width, heads, context):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads, True, 1e-5) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


def gpt(layers=12, width=768, heads=12, context=1024, vocabulary=50257):
    return GPT(vocabulary, layers, width, heads, context)


class LSTMClassifier(nn.Module):
    def __init__(self, vocabulary=8192, num_classes=2, embedding=256, hidden=256, layers=1):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, num_classes)

    def state_dict(self, *a, **k):
        """The same tensors under Tengen's names: lstm.cells.0.0.weight_ih for lstm.weight_ih_l0."""
        found = super().state_dict(*a, **k)
        return {_tengen_name(name): t for name, t in found.items()}

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[1][0][-1])


def _tengen_name(name):
    if not name.startswith("lstm."):
        return name
    kind, layer = name.removeprefix("lstm.").rsplit("_l", 1)
    return f"lstm.cells.{layer}.0.{kind}"


def lstm(vocabulary=8192, num_classes=2, **o):
    return LSTMClassifier(vocabulary, num_classes, **o)
