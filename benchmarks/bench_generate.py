"""Text from a GPT, greedily, with a cache of keys and values: tokens per second, and what a token costs at each place of the text.

The network has random weights. PyTorch's rows: a cache that is concatenated to, as its tutorials write it, and one that is allocated
once and written in place, run eagerly and by `torch.compile`. The work of a token is reading all weights once, and the cache so far.
"""

from __future__ import annotations

from collections.abc import Callable

import compare
import numpy as np
from compare import Case, Cell, Goal, Row
from networks import NETWORKS, VOCABULARY

import tengen
from tengen.models.generation import SEEN, Sampling

torch = compare.peer("torch")
CONTEXT, PROMPT, NEW = 1088, 16, 128
SIZES = {"6 x 384": {"layers": 6, "width": 384, "heads": 6}, "12 x 768": {"layers": 12, "width": 768, "heads": 12}}
PLACES = (1, 64, 256, 512, 1023)
FLAT = 1.1  # of a token at the first place, without the time of reading the keys and values that attention sees


def network(size: str):
    """A GPT of Tengen's, and PyTorch's with its weights or None."""
    options = {**SIZES[size], "context": CONTEXT, "vocabulary": VOCABULARY}
    gpt = NETWORKS["GPT"]
    net = gpt.tengen(**options)
    return net, gpt.torch(net, **options).eval() if torch else None


class TorchDecoder:
    """PyTorch's side: `generate(ids, count)` with the definition of `torch_sequence`, and a cache of one of two kinds."""

    def __init__(self, net, static: bool, compiled: bool):
        self.net, self.static = net, static
        heads = net.blocks[0].attn.heads
        width = net.blocks[0].attn.qkv.in_features // heads
        self.room = [torch.zeros(2, 1, heads, CONTEXT, width) for _ in net.blocks] if static else []
        self.places = torch.arange(CONTEXT)
        self.token = torch.compile(self.step, dynamic=False) if compiled else self.step

    def attend(self, block, i: int, x, caches: list, at):
        """A block's attention, with its keys and values put into the cache."""
        n, t, width = x.shape
        attn = block.attn
        q, k, v = (part.reshape(n, t, attn.heads, -1).transpose(1, 2) for part in attn.qkv(x).chunk(3, 2))
        if self.static:
            self.room[i][0].index_copy_(2, at, k)
            self.room[i][1].index_copy_(2, at, v)
            k, v = self.room[i]
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, (self.places <= at[:, None])[None, None])
        else:
            if caches[i] is not None:
                k, v = torch.cat([caches[i][0], k], 2), torch.cat([caches[i][1], v], 2)
            caches[i] = (k, v)
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        return attn.proj(y.transpose(1, 2).reshape(n, t, width))

    def step(self, ids, at, caches: list):
        """Logits of the last of the tokens at these places."""
        net = self.net
        x = net.tokens(ids) + net.positions(at)
        for i, block in enumerate(net.blocks):
            x = x + self.attend(block, i, block.norm1(x), caches, at)
            x = x + block.fc2(torch.nn.functional.gelu(block.fc1(block.norm2(x))))
        return net.head(net.norm(x[:, -1:]))[:, -1]

    def generate(self, ids: np.ndarray, count: int) -> np.ndarray:
        """The ids with `count` more."""
        caches: list = [None] * len(self.net.blocks)
        with torch.inference_mode():
            new = given = torch.from_numpy(ids).long()
            out, at = [given], self.places[: given.shape[1]]
            for i in range(count):
                logits = self.token(new, at, caches) if i else self.step(new, at, caches)
                new = logits.argmax(-1, keepdim=True)
                out.append(new)
                at = self.places[ids.shape[1] + i : ids.shape[1] + i + 1]
            return torch.cat(out, 1).numpy()


def text(size: str) -> Case:
    """A prompt, and the tokens after it."""
    net, theirs = network(size)
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (1, PROMPT)).astype(np.int32)
    found: dict[str, Callable] = {"tengen": lambda: net.generate(ids, NEW)}
    if theirs is not None:
        found["torch, growing cache"] = lambda d=TorchDecoder(theirs, False, False): d.generate(ids, NEW)
        found["torch, written cache"] = lambda d=TorchDecoder(theirs, True, False): d.generate(ids, NEW)
        found |= compare.attempt("torch.compile", lambda: lambda d=TorchDecoder(theirs, True, True): d.generate(ids, NEW))
    return Case(f"GPT {size}, {NEW} tokens", found, Goal(1.0, "fastest"), NEW * bytes_of_weights(net), "B")


def bytes_of_weights(net) -> float:
    """The weights that each token reads whole."""
    return 4.0 * sum(p.size for name, p in net.named_parameters() if name not in ("tokens.weight", "positions.weight"))


def places() -> list[Row]:
    """The time of one token at some places of a text, all in turns.

    Attention's own share is the time of reading the keys and values at that place, as quickly as the token at the first place reads the
    weights. The rest is what has to be flat.
    """
    net, _ = network("6 x 384")
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (1, PROMPT)).astype(np.int32)
    how = Sampling()
    decode, more = net._decoder(1, CONTEXT, how.key()), (tengen.Tensor(how.numbers()), tengen.Tensor(np.zeros((1, 1), np.float32)))
    new = decode.begin(ids, np.array([PROMPT], np.int32), *more, np.zeros((1, 1), bool))
    args = compare.arguments("generate", 4.0)

    def token(t: int):
        decode.at(new, np.array([t]))
        return decode(*more)

    times, _ = compare.run_rounds(Case("a token", {str(t): lambda t=t: token(t) for t in PLACES}), args)
    weights = bytes_of_weights(net)
    read = {t: 4 * -(-(t + 1) // SEEN) * SEEN * sum(x.size // x.shape[2] for pair in decode.caches for x in pair) for t in PLACES}
    rows = []
    for t in PLACES:
        ratio = float(np.median(np.array(times[str(t)]) / np.array(times[str(PLACES[0])])))
        own = (read[t] - read[PLACES[0]]) / (read[PLACES[0]] + weights)
        said = f"{1e3 * float(np.median(times[str(t)])):.2f} ms, {ratio:.2f} of the first"
        value = f"{said}; {own:.2f} for keys and values, {ratio - own:.2f} without"
        rows.append(Row(f"GPT 6 x 384, the token at {t}", value=value, reached=ratio - own <= FLAT))
    return rows


if __name__ == "__main__":
    args = compare.arguments("generate", 4.0)
    cells = [Cell(size, lambda size=size: text(size), size == "6 x 384") for size in SIZES]
    compare.main("generate", "Text from a GPT with a cache", cells, more=places(), args=args)
