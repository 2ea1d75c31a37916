"""Text from a network that predicts the next token: caches of keys and values, a traced step, and how tokens are chosen.

In: a network with `_states`, `_decoded` and `_logits` (GPT, Llama), and prompts. Out: tokens, all at once or one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

import tengen.functional as F
import tengen.module as M
from tengen.base.record import record
from tengen.jit.trace import trace
from tengen.models.transformer import Cache
from tengen.tensor import Tensor

SEEN = 32  # what is seen of a cache grows by so many places
TRACED = 64  # tokens that pay for a trace of the step
COLDEST = 1e-30  # logits divided by less would be infinite in float32
AHEAD = 8  # tokens that one call of the traced step draws where nothing can end a text sooner, and nobody waits for each
MORE = 4  # tokens beyond the bytes of a stop string, in which it is looked for


@record(frozen=True)
class Sampling:
    """How a token is chosen. temperature 0 takes the likeliest. The filters follow one another: top_k, top_p, min_p."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self):
        real = lambda x: isinstance(x, int | float | np.integer | np.floating)
        fits = {
            "temperature": real(self.temperature) and (self.temperature == 0 or COLDEST <= self.temperature < np.inf),
            "top_k": self.top_k is None or isinstance(self.top_k, int | np.integer) and 1 <= self.top_k < 1 << 24,
            "top_p": self.top_p is None or real(self.top_p) and 0 < self.top_p <= 1,
            "min_p": self.min_p is None or real(self.min_p) and 0 <= self.min_p <= 1,
            "repetition_penalty": real(self.repetition_penalty) and 0 < self.repetition_penalty < np.inf,
        }
        if wrong := [f"{name}={getattr(self, name)!r}" for name, fit in fits.items() if not fit]:
            raise ValueError(
                f"{', '.join(wrong)}: temperature is 0 or at least {COLDEST}, top_k an int of at least 1, top_p in (0, 1], "
                "min_p in [0, 1], repetition_penalty above 0"
            )

    def key(self) -> tuple[bool, ...]:
        """Which steps there are: what decides the program. Their numbers are arguments of it."""
        drawn = self.temperature > 0
        filters = (self.top_k is not None, self.top_p is not None and self.top_p < 1, bool(self.min_p))
        return drawn, *(drawn and f for f in filters), self.repetition_penalty != 1

    def numbers(self) -> np.ndarray:
        """(5,) float32, as `chosen` reads them."""
        filled = (self.temperature, self.top_k or 0, self.top_p or 0, self.min_p or 0, self.repetition_penalty)
        return np.array(filled, np.float32)


def chosen(logits: Tensor, how: tuple[bool, ...], numbers: Tensor, uniform: Tensor, said: Tensor) -> Tensor:
    """One token of each row, as operations of a graph.

    Shapes: logits (N, V), numbers (5,), uniform (N, 1) in [0, 1), said (N, V) -> (N,), int32
    Args: how, numbers: a `Sampling`'s key and numbers. uniform: what is drawn with. said: true for tokens that have occurred.
    Numerics: probabilities are summed in float32 from the likeliest on; a row does not depend on the others.
    """
    drawn, some, nucleus, least, penalised = how
    if penalised:
        logits = F.where(said, F.where(logits > 0, logits / numbers[4], logits * numbers[4]), logits)
    if not drawn:
        return F.argmax(logits, -1).astype("int32")
    scores, tokens = F.sort(logits / numbers[0], True)
    p = F.softmax(scores, -1)
    if some:
        p = F.where(F.arange(p.shape[1]) < numbers[1], p, 0.0)
        p = p / F.sum(p, 1, keepdims=True)
    if nucleus:
        p = F.where(F.cumsum(p, 1, exclusive=True) < numbers[2], p, 0.0)
    if least:
        p = F.where(p >= numbers[3] * p[:, :1], p, 0.0)
    upto = F.cumsum(p, 1)
    index = F.sum((upto <= uniform * upto[:, -1:]).astype("int32"), 1, keepdims=True)
    most = F.sum((p > 0).astype("int32"), 1, keepdims=True) - 1  # the product may have been rounded up to the sum
    index = F.maximum(F.minimum(index, most), 0)  # and logits that are NaN give no probability at all
    return F.gather(tokens.astype("int32"), 1, index)[:, 0]


class LanguageModel(M.Module):
    """A network that predicts the next of `vocabulary` tokens from at most `context` before it.

    A subclass has `blocks`, and computes states of tokens with caches (`_states`), those of one token at places of its own of caches
    that are written (`_decoded`), and logits of states (`_logits`).
    """

    vocabulary: int
    context: int
    tokens: M.Module
    blocks: list
    eos: tuple[int, ...] = ()  # tokens that end a text

    def forward(self, tokens: Tensor) -> Tensor:
        return self._logits(self._states(tokens, None)[0])

    def step(self, tokens: Tensor, caches: list[Cache] | None = None) -> tuple[Tensor, list[Cache]]:
        """The logits of tokens that follow what the caches hold, and the caches with them."""
        x, longer = self._states(tokens, self._empty(tokens.shape[0]) if caches is None else caches)
        return self._logits(x), longer

    def generate(
        self, tokens: Any, count: int, temperature: float = 0.0, top_k: int | None = None, seed: int | Sequence[int] = 0,
        top_p: float | None = None, *, min_p: float | None = None, repetition_penalty: float = 1.0, eos: int | Sequence[int] | None = None,
        stop: str | Sequence[str] = (), decode: Callable[[list[int]], str] | None = None,
        callback: Callable[[np.ndarray], Any] | None = None,
    ) -> np.ndarray | list[np.ndarray]:  # fmt: skip
        """Continues sequences.

        Args:
            tokens: ids (N, T), T >= 1, or N lists of ids of different lengths. count: how many tokens to add at most; the longest
                prompt and these are at most `context`. temperature: 0 takes the likeliest token, 1 draws from the distribution.
            top_k: draws only among so many. seed: of the draws: an int, from which row i draws as ``default_rng([seed, i])``, or one
                of each row, which then draws as alone with it. top_p: draws only among the likeliest whose probabilities reach this
                sum together (after top_k), at least one. min_p: only among those at least so many times as likely as the likeliest.
            repetition_penalty: divides positive logits of tokens that have occurred, and multiplies negative ones (Keskar et al.,
                arXiv 1909.05858). eos: a token, or several, behind which a row ends; default: those of
                the folder that the network came from. stop: texts behind which a row ends, found
                in `decode` of its new tokens; decode: ids -> text. callback: is called with each step's tokens, as `stream` gives them.

        Returns: ids (N, T + n), int32, where n is the most that a row has added; rows that ended earlier are filled with the first of
            eos, or 0. For prompts of different lengths a list of arrays, without what fills.
        Errors: ValueError for arguments outside of these bounds, and for stop without decode.
        Numerics: each row has the bits that it has alone: the logits are those of `forward`, whatever other prompts, their lengths,
            and the number of threads are. From `TRACED` tokens on, the step is traced, which changes no bit.
        Memory: the traced step and its caches, 2 x layers x N x width numbers for each place, stay with the network for the next call.
        """
        rows, ragged = _rows(tokens)
        if callback is not None and not callable(callback):
            raise ValueError(f"callback={callback!r} is no function; help: one of a step's tokens, as stream gives them")
        kept: list[np.ndarray] = []
        how, ahead = Sampling(temperature, top_k, top_p, min_p, repetition_penalty), AHEAD if callback is None else 1
        for new in self._stream(rows, count, how, seed, self._ends(eos), _stops(stop, decode), decode, ahead):
            kept.append(new)
            if callback is not None:
                callback(new)
        added = np.stack(kept, 1) if kept else np.zeros((len(rows), 0), np.int32)
        if ragged:
            return [np.concatenate([row, new[new >= 0]]).astype(np.int32) for row, new in zip(rows, added)]
        fill = (self._ends(eos) or (0,))[0]
        return np.concatenate([np.stack(rows), np.where(added < 0, fill, added)], 1).astype(np.int32)

    def stream(
        self, tokens: Any, count: int, temperature: float = 0.0, top_k: int | None = None, seed: int | Sequence[int] = 0,
        top_p: float | None = None, *, min_p: float | None = None, repetition_penalty: float = 1.0, eos: int | Sequence[int] | None = None,
        stop: str | Sequence[str] = (), decode: Callable[[list[int]], str] | None = None,
    ) -> Iterator[np.ndarray]:  # fmt: skip
        """The tokens of `generate` as they come: for each step (N,), int32, -1 for rows that have ended. Arguments and errors as there."""
        how = Sampling(temperature, top_k, top_p, min_p, repetition_penalty)
        return self._stream(_rows(tokens)[0], count, how, seed, self._ends(eos), _stops(stop, decode), decode)

    def _stream(self, rows, count, how, seed, eos, stop, decode, ahead=1) -> Iterator[np.ndarray]:
        lengths = np.array([len(row) for row in rows], np.int32)
        longest = int(lengths.max())
        if not isinstance(count, int | np.integer):
            raise ValueError(f"count={count!r} is no number of tokens")
        if count < 0 or longest + count > self.context:
            raise ValueError(f"a prompt of {longest} tokens and {count} more do not fit a context of {self.context}")
        if (least := min(int(row.min()) for row in rows)) < 0 or (most := max(int(row.max()) for row in rows)) >= self.vocabulary:
            raise ValueError(f"the token {least if least < 0 else most} is none of a vocabulary of {self.vocabulary}")
        seeds = [(seed, i) for i in range(len(rows))] if isinstance(seed, int | np.integer) else [(s, 0) for s in _ints("seed", seed)]
        if any(s < 0 for s, _ in seeds):
            raise ValueError(f"seed={seed!r} is negative")
        if len(seeds) != len(rows):
            raise ValueError(f"{len(seeds)} seeds for {len(rows)} prompts; help: one int, or one of each prompt")
        rows = [row.astype(np.int32) for row in rows]
        rngs = [np.random.default_rng(s) for s in seeds]
        return self._tokens(rows, lengths, count, how, rngs, eos, stop, decode, 1 if eos or stop else ahead)

    def _tokens(self, rows, lengths, count, how, rngs, eos, stop, decode, ahead) -> Iterator[np.ndarray]:
        """The loop over steps. A row that has ended goes on to be computed, and is not shown. ahead: how many steps a call may take."""
        n, longest, ragged = len(rows), int(lengths.max()), len(set(lengths.tolist())) > 1
        ended, added = [False] * n, [[] for _ in rows]
        numbers = Tensor(how.numbers())
        steps = how.key()
        penalised = steps[-1]
        said = np.zeros((n, self.vocabulary if penalised else 1), bool)
        if penalised:
            for i, row in enumerate(rows):
                said[i, row] = True
        decoder, caches, new = None, self._empty(n), np.zeros((n, longest), np.int32)
        for i, row in enumerate(rows):
            new[i, : len(row)] = row
        at = 0
        while at < count and not all(ended):
            some = 1 if decoder is None else min(ahead, count - at)
            uniform = np.zeros((some, n, 1), np.float32)
            if how.temperature:
                uniform[:, :, 0] = np.stack([rng.random(some, dtype=np.float32) for rng in rngs], 1)
            if decoder is not None:
                drawn = decoder(numbers, Tensor(uniform))
            elif at + 1 < count and (ragged or count >= TRACED):
                decoder = self._decoder(n, longest + count, steps)
                drawn = decoder.begin(new, lengths, numbers, Tensor(uniform[0]), said)[None]
            else:
                x, caches = self._states(Tensor(new), caches)
                last = x[F.arange(n).astype("int32"), Tensor(lengths - 1)] if at == 0 else x[:, 0]
                drawn = chosen(self._logits(last), steps, numbers, Tensor(uniform[0]), Tensor(said)).numpy()[None]
                new = drawn[0][:, None]
                if penalised:
                    said[np.arange(n), drawn[0]] = True
            for tokens in drawn:
                shown = np.where(ended, np.int32(-1), tokens) if any(ended) else tokens
                for i, token in enumerate(tokens.tolist()):
                    if not ended[i]:
                        added[i].append(token)
                        ended[i] = token in eos or _stopped(added[i], stop, decode)
                yield shown
            at += some
        if decoder is not None:
            self.__dict__["_decoder_of_last_call"] = decoder

    def _decoder(self, n: int, total: int, how: tuple[bool, ...]) -> Decoder:
        """A decoder of n rows with room for `total` tokens: the last call's, if it fits. It is taken out of the network meanwhile, so that
        another thread that generates makes its own."""
        room = min(-(-self.context // SEEN) * SEEN, max(SEEN, 1 << (total - 1).bit_length()))  # few sizes make few programs
        room += SEEN  # a recording is checked for more of them than it was made with
        decoder = self.__dict__.pop("_decoder_of_last_call", None)
        if decoder is None or not decoder.fits(self._empty(n), room, how):
            decoder = Decoder(self, n, room, how)
        return decoder

    def __getstate__(self) -> dict:
        return {k: v for k, v in self.__dict__.items() if k != "_decoder_of_last_call"}  # a copy makes its own

    def _ends(self, eos: int | Sequence[int] | None) -> tuple[int, ...]:
        eos = self.eos if eos is None else eos
        return (int(eos),) if isinstance(eos, int | np.integer) else tuple(_ints("eos", eos))

    def _states(self, tokens: Tensor, caches: list[Cache] | None) -> tuple[Tensor, list[Cache]]:
        raise NotImplementedError(f"{type(self).__name__} needs _states()")

    def _decoded(self, tokens: Tensor, at: Tensor, seen: Tensor, caches: list[Cache]) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} needs _decoded()")

    def _logits(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} needs _logits()")

    def _by_table(self, x: Tensor) -> Tensor:
        """Logits by the table of the tokens, `tokens`, where that is the last layer's weight too; it may be integers (`quantize_weights`)."""
        integers = getattr(self.tokens, "grouped", None)
        return F.linear(x, self.tokens.weight) if integers is None else integers.product(x)

    def _empty(self, n: int) -> list[Cache]:
        raise NotImplementedError(f"{type(self).__name__} needs _empty()")


class Decoder:
    """A network's steps for some tokens as one program, from the tokens to those that follow, and the prompt before them as another.

    They keep tokens and places in states that they write in place: a step makes no tensors of arrays. It reads more than caches hold, so
    all that Python runs and touches between two calls comes from memory, which takes many times as long as what it computes; a call that
    takes several steps, a loop of the program, does it once.

    Attributes:
        caches: keys and values of each block, (N, heads, room, features of a head). tokens, places: (N,), int32, of the next step. said:
            (N, V), which tokens have occurred, where that matters. prompt: the traced prompt, of any length. run: the traced steps, of any
            number.
    """

    def __init__(self, net: LanguageModel, n: int, room: int, how: tuple[bool, ...]):
        zeros = lambda x: F.zeros((*x.shape[:2], room, x.shape[3]), dtype=x.dtype)
        self.caches = caches = [(zeros(k), zeros(v)) for k, v in net._empty(n)]
        self.how = how
        self.said = said = F.zeros((n, net.vocabulary if how[-1] else 1), dtype="bool")
        self.tokens = tokens = F.zeros((n,), dtype="int32")
        self.places = places = F.zeros((n,), dtype="int32")
        rows = Tensor(np.arange(n, dtype=np.int32))
        self._furthest, self._seen = 0, Tensor(np.zeros(0, np.int32))

        def prompt(given: Tensor, lengths: Tensor, numbers: Tensor, uniform: Tensor, before: Tensor) -> None:
            x, held = net._states(given, net._empty(n))
            t = given.shape[1]
            kept = (F.arange(t) < lengths.reshape(n, 1)).reshape(n, 1, t, 1)
            for pair, found in zip(caches, held):
                for cache, new in zip(pair, found):
                    cache[:, :, :t] = F.where(kept, new, 0.0)
                    cache[:, :, t:] = 0
            said[:] = before
            tokens[:] = chosen(net._logits(x[rows, lengths - 1]), how, numbers, uniform, said)
            places[:] = lengths

        def decode(seen: Tensor, numbers: Tensor, uniform: Tensor) -> Tensor:
            def step(nothing: tuple, uniform: Tensor) -> tuple[tuple, Tensor]:
                if how[-1]:
                    said[rows, tokens] = True
                logits = net._logits(net._decoded(tokens.reshape(n, 1), places, seen, caches))
                tokens[:] = chosen(logits[:, 0], how, numbers, uniform, said)
                places[:] = places + 1
                return nothing, tokens

            return F.scan(step, (), uniform)[1]

        self.prompt = trace(prompt, dynamic_axes={"given": {1: "t"}})
        self.run = trace(decode, dynamic_axes={"seen": {0: "seen"}, "uniform": {0: "steps"}})

    def fits(self, held: list[Cache], room: int, how: tuple[bool, ...]) -> bool:
        """Whether the caches are of the shapes and dtypes of those held, with this room, and tokens are chosen by these steps."""
        kind = lambda x: (x.shape[0], x.shape[1], x.shape[3], x.dtype, x.device)
        mine, theirs = ([kind(x) for pair in caches for x in pair] for caches in (self.caches, held))
        return mine == theirs and all(k.shape[2] == room for k, _ in self.caches) and self.how == how

    def begin(self, given: np.ndarray, lengths: np.ndarray, numbers: Tensor, uniform: Tensor, said: np.ndarray) -> np.ndarray:
        """Reads prompts (N, T), of which rows have these lengths; the tokens that follow, (N,). Caches get zeros behind the prompts: what an
        earlier text left there may be infinite, and times a weight of zero it would be NaN."""
        self.prompt(Tensor(given), Tensor(lengths), numbers, uniform, Tensor(said))
        self._furthest = int(lengths.max())
        return self.tokens.numpy().copy()

    def at(self, tokens: np.ndarray, places: np.ndarray) -> None:
        """The next step takes these tokens, (N,), at these places, (N,)."""
        self.tokens[:], self.places[:] = tokens.astype(np.int32), places.astype(np.int32)
        self._furthest = int(places.max())

    def __call__(self, numbers: Tensor, uniform: Tensor) -> np.ndarray:
        """The tokens that follow, (steps, N). uniform: what each step draws with, (steps, N, 1)."""
        self._furthest += uniform.shape[0]
        if (seen := -(-self._furthest // SEEN) * SEEN) != self._seen.shape[0]:
            self._seen = Tensor(np.arange(seen, dtype=np.int32))
        return self.run(self._seen, numbers, uniform).numpy()


def _rows(tokens: Any) -> tuple[list[np.ndarray], bool]:
    """Prompts as arrays, and whether they were given as lists of different lengths."""
    if isinstance(tokens, Tensor | np.ndarray):
        ids = tokens.numpy() if isinstance(tokens, Tensor) else tokens
        rows, ragged = list(ids) if ids.ndim == 2 else [], False
    else:
        tokens = tokens if isinstance(tokens, Iterable) else ()
        rows = [np.asarray(row.numpy() if isinstance(row, Tensor) else row) for row in tokens]
        ragged = len({len(row) for row in rows if row.ndim}) > 1
    if not rows or any(row.ndim != 1 or not row.size or row.dtype.kind not in "iu" for row in rows):
        raise ValueError("tokens are ids (N, T) with N and T at least 1, or N lists of at least one id")
    return [row.astype(np.int64) for row in rows], ragged


def _ints(name: str, given: Any) -> list[int]:
    """Several whole numbers. ValueError for anything else."""
    found = list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(x, int | np.integer) for x in found):
        raise ValueError(f"{name}={given!r} is neither an int nor several of them")
    return [int(x) for x in found]


def _stops(stop: str | Sequence[str], decode: Callable | None) -> tuple[str, ...]:
    texts = (stop,) if not isinstance(stop, Iterable) or isinstance(stop, str) else tuple(stop)
    if texts and not callable(decode):
        given = "" if decode is None else f", and {decode!r} is no function"
        raise ValueError(f"stop needs decode=, which makes text of ids{given}; help: decode=tokenizer.decode")
    if not all(isinstance(t, str) and t for t in texts):
        raise ValueError("stop is a text, or several, none of them empty")
    return texts


def _stopped(added: list[int], stop: tuple[str, ...], decode: Callable | None) -> bool:
    """Whether one of the texts stands in the last tokens: each has at least a byte, so no more of them can hold it."""
    if not stop or decode is None:
        return False
    text = decode(added[-(max(len(t.encode()) for t in stop) + MORE) :])
    return any(t in text for t in stop)
