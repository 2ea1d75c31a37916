"""GPT: a pre-norm decoder with learned positions, and text from it with a cache of keys and values.

Source: Radford et al., 2019 (GPT-2).
"""

from __future__ import annotations

import numpy as np

import tengen.functional as F
import tengen.module as M
from tengen.jit.trace import trace
from tengen.models.transformer import Block, Cache, initialise
from tengen.tensor import Tensor

SEEN = 64  # keys that attention looks at together; what is seen of a cache grows by so many
TRACED = 64  # tokens that pay for a trace of the step


class GPT(M.Module):
    """Token ids (N, T) -> logits of the next token (N, T, vocabulary).

    Args:
        context: T at most. tied: whether the head's weights are the embedding's.

    >>> import tengen
    >>> net = tengen.models.gpt(layers=1, width=16, heads=2, context=8, vocabulary=11).eval()
    >>> net(tengen.Tensor([[1, 2, 3]], dtype="int32")).shape
    (1, 3, 11)
    """

    def __init__(
        self, vocabulary: int = 50257, layers: int = 12, width: int = 768, heads: int = 12, context: int = 1024, tied: bool = False,
        drop_prob: float = 0.0,
    ):  # fmt: skip
        super().__init__()
        self.vocabulary, self.context = vocabulary, context
        self.tokens, self.positions, self.dropout = (
            M.Embedding(vocabulary, width),
            M.Embedding(context, width),
            M.Dropout(drop_prob),
        )
        self.blocks = [Block(width, heads, True, 4, drop_prob) for _ in range(layers)]
        self.norm, self.head = M.LayerNorm(width), None if tied else M.Linear(width, vocabulary, bias=False)
        initialise(self)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self._embedded(tokens, 0)
        for block in self.blocks:
            x = block(x)
        return self._logits(x)

    def step(self, tokens: Tensor, caches: list[Cache] | None = None) -> tuple[Tensor, list[Cache]]:
        """The logits of tokens that follow what the caches hold, and the caches with them."""
        empty = caches is None
        x = self._embedded(tokens, 0 if caches is None else caches[0][0].shape[2])
        longer: list[Cache] = []
        for i, block in enumerate(self.blocks):
            x, cache = block(x, None, self._empty(x, block.attn.heads) if empty else caches[i])
            longer.append(cache)
        return self._logits(x), longer

    def generate(
        self, tokens, count: int, temperature: float = 0.0, top_k: int | None = None, seed: int = 0, top_p: float | None = None
    ) -> np.ndarray:
        """Continues sequences.

        Args:
            tokens: ids (N, T), T >= 1. count: how many tokens to add; T + count is at most `context`. temperature: 0 takes the
                likeliest token, 1 draws from the distribution. top_k: draws only among so many. seed: of the draws.
            top_p: draws only among the likeliest whose probabilities reach this sum together (after top_k), at least one.
        Returns: ids (N, T + count), int32.
        Numerics: the first tokens are computed together, each later one from the caches; a row's sum does not depend on the other
            rows, so the logits have the bits of `forward`. From `TRACED` tokens on, the step is traced, which changes no bit.
        Memory: the traced step and its caches, 2 x layers x N x width numbers for each place, stay with the network for the next call.
        """
        ids = np.asarray(tokens.numpy() if isinstance(tokens, Tensor) else tokens, np.int32)
        if ids.ndim != 2 or not ids.shape[1] or ids.shape[1] + count > self.context:
            raise ValueError(f"tokens of shape {ids.shape} and {count} more do not fit a context of {self.context}")
        if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and not 0 < top_p <= 1):
            raise ValueError(f"temperature={temperature}, top_k={top_k}, top_p={top_p}: at least 0, at least 1, in (0, 1]")
        rng, t, caches, decode, new = np.random.default_rng(seed), ids.shape[1], None, None, ids
        for i in range(t, t + count):
            if decode is not None:
                logits = decode(new, i - 1)
            else:
                logits, caches = self.step(Tensor(new), caches)
                decode = self._decoder(caches, t + count) if count >= TRACED else None
            new = _chosen(logits[:, -1].numpy(), temperature, top_k, top_p, rng)[:, None]
            ids = np.concatenate([ids, new], 1)
        if decode is not None:
            self.__dict__["_decoder_of_last_call"] = decode
        return ids

    def _decoder(self, held: list[Cache], total: int) -> Decoder:
        """A decoder with room for `total` tokens, whose caches begin with those held: the last call's, if it fits. It is taken out
        of the network meanwhile, so that another thread that generates makes its own."""
        room = min(-(-self.context // SEEN) * SEEN, max(SEEN, 1 << (total - 1).bit_length()))  # few sizes make few programs
        room += SEEN  # a recording is checked for more of them than it was made with
        decode = self.__dict__.pop("_decoder_of_last_call", None)
        if decode is None or not decode.fits(held, room):
            decode = Decoder(self, held, room)
        decode.begin(held)
        return decode

    def __getstate__(self) -> dict:
        return {k: v for k, v in self.__dict__.items() if k != "_decoder_of_last_call"}  # a copy makes its own

    def _embedded(self, tokens: Tensor, start: int) -> Tensor:
        t = tokens.shape[1]
        if isinstance(t, int) and start + t > self.context:  # where it is open, each run looks at the slice below
            raise ValueError(f"{start + t} tokens do not fit a context of {self.context}")
        return self.dropout(self.tokens(tokens) + self.positions.weight[start : start + t])

    def _logits(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return F.linear(x, self.tokens.weight) if self.head is None else self.head(x)

    @staticmethod
    def _empty(x: Tensor, heads: int) -> Cache:
        nothing = F.zeros((x.shape[0], heads, 0, x.shape[2] // heads), dtype=x.dtype)
        return nothing, nothing


class Decoder:
    """A network's step for one token as one program, with caches that it writes in place.

    Attributes:
        caches: keys and values of each block, (N, heads, room, width / heads). run: the traced step.
    """

    def __init__(self, net: GPT, held: list[Cache], room: int):
        zeros = lambda x: F.zeros((*x.shape[:2], room, x.shape[3]), dtype=x.dtype)
        self.caches = caches = [(zeros(k), zeros(v)) for k, v in held]

        def decode(tokens: Tensor, at: Tensor, seen: Tensor) -> Tensor:
            x = net.dropout(net.tokens(tokens) + net.positions(at))
            mask = (seen <= at).reshape(1, 1, 1, seen.shape[0])
            for block, cache in zip(net.blocks, caches):
                x, _ = block(x, mask, cache, at)
            return net._logits(x)

        self.run = trace(decode, dynamic_axes={"seen": {0: "seen"}})

    def fits(self, held: list[Cache], room: int) -> bool:
        """Whether the caches are of the shapes and dtypes of those held, with this room."""
        kind = lambda x: (x.shape[0], x.shape[1], x.shape[3], x.dtype, x.device)
        mine, theirs = ([kind(x) for pair in caches for x in pair] for caches in (self.caches, held))
        return mine == theirs and all(k.shape[2] == room for k, _ in self.caches)

    def begin(self, held: list[Cache]) -> None:
        """Makes the caches those held, and zeros after them: what an earlier text left there may be infinite, and times a weight of
        zero it would be NaN."""
        for pair, kept in zip(self.caches, held):
            for cache, x in zip(pair, kept):
                cache[:, :, : x.shape[2]] = x
                cache[:, :, x.shape[2] :] = 0

    def __call__(self, tokens: np.ndarray, place: int) -> Tensor:
        """Tokens (N, 1) and their place -> logits (N, 1, vocabulary)."""
        seen = np.arange(-(-(place + 1) // SEEN) * SEEN, dtype=np.int32)
        return self.run(Tensor(tokens), Tensor(np.array([place], np.int32)), Tensor(seen))


def _chosen(
    logits: np.ndarray, temperature: float, top_k: int | None, top_p: float | None, rng: np.random.Generator
) -> np.ndarray:
    """One token of each row."""
    if temperature == 0:
        return logits.argmax(-1).astype(np.int32)
    scaled = logits.astype(np.float64) / temperature
    if top_k is not None:
        least = np.sort(scaled, -1)[:, -min(top_k, scaled.shape[-1]), None]
        scaled = np.where(scaled >= least, scaled, -np.inf)
    p = np.exp(scaled - scaled.max(-1, keepdims=True))
    if top_p is not None:
        order = np.argsort(-p, -1, kind="stable")
        likely = np.take_along_axis(p / p.sum(-1, keepdims=True), order, -1)
        np.put_along_axis(p, order, np.where(likely.cumsum(-1) - likely < top_p, likely, 0), -1)
    return np.array([rng.choice(len(row), p=row / row.sum()) for row in p], np.int32)


def gpt(layers: int = 12, width: int = 768, heads: int = 12, context: int = 1024, vocabulary: int = 50257, **options) -> GPT:
    """A GPT of any size; the defaults are GPT-2's smallest."""
    return GPT(vocabulary, layers, width, heads, context, **options)
