"""Random tensors. Numbers are counter-based: a draw depends on the seed and its own number alone, so eager and traced programs
give the same, with any number of threads.

`get_state` and `set_state` save the default generator and take it back, between traced runs too: what is drawn afterwards has the
same bits. `RNG` makes generators of one's own; `tengen.distributions` has densities, too."""

from tengen.base.lazy import modules_of
from tengen.random.state import (
    RNG,
    bernoulli,
    beta,
    binomial,
    exponential,
    gamma,
    get_state,
    manual_seed,
    multinomial,
    normal,
    permutation,
    poisson,
    rand,
    randint,
    randn,
    randperm,
    seed,
    set_state,
    shuffle,
    uniform,
)

__getattr__ = modules_of(__name__)
__all__ = [
    "RNG", "bernoulli", "beta", "binomial", "exponential", "gamma", "get_state", "manual_seed", "multinomial", "normal", "permutation",
    "poisson", "rand", "randint", "randn", "randperm", "seed", "set_state", "shuffle", "uniform",
]  # fmt: skip
