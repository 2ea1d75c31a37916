"""Text from language models whose weights alone are integers: what a token costs, and how much of the memory's speed that is.

Networks of the size of GPT-2 small (124 million weights) and of a Llama of 1.1 billion (22 layers of 2,048, 4 groups of keys and values), with
random weights in 8 and 4 bits by groups of 32, and activations that products take as integers of 8 bits. A call draws tokens greedily after a
short prompt, by a traced step; beside it the same weights with activations in float32, and networks of the same size and bits by llama.cpp
(`pip install llama-cpp-python gguf`) and OpenVINO (`decode_peers.py`). GPT-2's size is drawn in float32 too, by Tengen and PyTorch; a Llama's
4.4 GB are given back once its integers are made. The work of a token is reading all integers and scales once, and the keys and values of the
places before it; the roof is the speed at which a kernel on as many threads adds up as many bytes as the weights have, 256 MiB at most: of
a network that is not much larger than a cache, part is still there when the next token comes. A row of its own says what 512 tokens of a
prompt cost at once.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable

import compare
import numpy as np
from bench_generate import TorchDecoder
from compare import Case, Cell, Goal
from decode_peers import DECODERS, GROUP, Size
from networks import NETWORKS
from roof import usual

import tengen
import tengen.functional as F
from tengen.models import llama
from tengen.models.generation import TRACED
from tengen.module.quantized.weights import GroupedWeight, WeightOnlyLinear
from tengen.quantization import quantize_weights

PROMPT, NEW, LONG, CONTEXT = 8, TRACED, 512, 1088  # a prompt of few rows, which are multiplied as a token is
MOST_READ_BYTES = 256 << 20  # of the sum that measures the roof
SHARE = 0.8  # of the memory's speed
SIZES = {
    "gpt2-small": Size(12, 768, 12, 12, 3072, 50257, CONTEXT, gated=False),
    "llama-1.1b": Size(22, 2048, 32, 4, 5632, 32000, CONTEXT, gated=True),
}


def network(s: Size):
    """Tengen's network in float32, and PyTorch's with its weights or None."""
    tengen.random.seed(0)
    if s.gated:
        return llama(s.layers, s.width, s.heads, s.hidden, s.words, groups=s.groups, context=s.context).eval(), None
    options = {"layers": s.layers, "width": s.width, "heads": s.heads, "context": s.context, "vocabulary": s.words}
    gpt = NETWORKS["GPT"]
    net = gpt.tengen(**options)
    return net, gpt.torch(net, **options).eval() if compare.peer("torch") else None


def reading(size: int) -> float:
    """Bytes that one kernel reads in a second, of so many again and again."""
    x = F.ones((min(size, MOST_READ_BYTES) // 4,))
    add = tengen.trace(lambda: F.sum(x))
    return x.size * 4 / usual(lambda: add().item(), 0.5)


def bytes_of_weights(net) -> int:
    """Integers and scales that each token reads whole."""
    return sum(m.grouped.bytes for m in net.modules() if isinstance(m, WeightOnlyLinear))


def bytes_of_places(s: Size) -> int:
    """Keys and values that NEW tokens read, of which the prompt gives the first: float32 of all places up to their own."""
    return sum(range(PROMPT + 1, PROMPT + NEW)) * 2 * 4 * s.layers * s.shared


def with_floats(net):
    """A copy that multiplies activations in float32, with the same integers."""
    weights = [m for m in net.modules() if isinstance(m, GroupedWeight)]
    made = copy.deepcopy(net, {id(t): t for m in weights for t in (m.codes, m.scale)})
    for m in made.modules():
        if isinstance(m, GroupedWeight):
            m.activations = "float32"
    return made


def contenders(name: str, bits: int, prompt: int, new: int):
    """The quantised network, and calls that generate."""
    s = SIZES[name]
    net, theirs = network(s)
    small = quantize_weights(net, bits=bits, group=GROUP, inplace=s.gated, activations="int8")
    floats = with_floats(small)
    ids = np.random.default_rng(0).integers(0, s.words, (1, prompt)).astype(np.int32)
    found: dict[str, Callable] = {
        "tengen": lambda: small.generate(ids, new),
        "activations in float32": lambda: floats.generate(ids, new),
    }
    if not s.gated:
        found["float32"] = lambda: net.generate(ids, new)
    if theirs is not None:
        found["torch, float32"] = lambda d=TorchDecoder(theirs, False, False): d.generate(ids, new)
    for who, (module, decoder) in DECODERS.items():
        if compare.peer(module):
            found |= compare.attempt(who, lambda decoder=decoder: lambda d=decoder(s, bits): d.generate(ids, new))
    return small, found, ids


def checked(found: dict[str, Callable], ids: np.ndarray, new: int) -> None:
    """Whether each text is the prompt and `new` tokens more. Which they are differs: weights of few bits are others."""
    for call in found.values():
        given = np.asarray(call())
        assert given.shape == (1, ids.shape[1] + new) and (given[:, : ids.shape[1]] == ids).all(), "a text does not begin with the prompt"


def text(name: str, bits: int) -> Case:
    """Tokens one after the other."""
    small, found, ids = contenders(name, bits, PROMPT, NEW)
    goal = Goal(1.0, "llama.cpp", SHARE) if SIZES[name].gated else Goal(0.30 if bits == 8 else 0.20, "float32", SHARE)
    title, weights = f"{name}, weights of {bits} bits, {NEW} tokens", bytes_of_weights(small)
    work, roof = NEW * weights + bytes_of_places(SIZES[name]), functools.partial(reading, weights)
    return Case(title, found, goal, work, "B", check=lambda: checked(found, ids, NEW), roof=roof)


def prompt(name: str, bits: int) -> Case:
    """One token after a prompt of LONG, which is read at once."""
    _, found, ids = contenders(name, bits, LONG, 1)
    return Case(f"{name}, weights of {bits} bits, a prompt of {LONG}", found, check=lambda: checked(found, ids, 1))


if __name__ == "__main__":
    args = compare.arguments("decode", 3.0)
    small = ("gpt2-small", 8)
    which = [(name, bits) for name in SIZES for bits in (8, 4)]
    cells = [Cell(f"{name}, {bits} bits", lambda a=(name, bits): text(*a), (name, bits) == small) for name, bits in which]
    cells += [Cell(f"{name}, {bits} bits, prompt", lambda a=(name, bits): prompt(*a)) for name, bits in which]
    compare.main("decode", "Text from networks whose weights alone are integers", cells, args=args)
