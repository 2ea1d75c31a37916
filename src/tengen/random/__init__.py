"""Random tensors. Numbers are counter-based: a draw depends on the seed and its own number alone, so eager and traced programs
give the same, with any number of threads."""

from tengen.random.state import RNG, manual_seed, normal, permutation, randint, seed, uniform

__all__ = ["RNG", "manual_seed", "normal", "permutation", "randint", "seed", "uniform"]
