"""Every constant of the kernels that decides a bit of a result, and nothing else: part of the numerics contract.

A value here says in which order numbers are added, where an iteration begins or stops, or which algorithm computes a
convolution or attention. Whoever changes one changes the bits of results, of `tests/numerics/digests.json`, and of models that
people have: see CONTRIBUTING.md, "The numerics contract". Every other constant of the strategies (sizes of tiles, pieces,
scratch memory) is free: it may be any legal number, and no bit of a result depends on it. Such constants stand in the file that
uses them, and their names say their unit.

Strategies read these as ``numerics.NAME``, so that each place where a bit is decided shows it. What decides bits and is not a
constant of a kernel stands elsewhere: the 16 lanes of a vector are a number of the kernel language (`loops/lang.py`, LANES),
the dtype that a dtype is accumulated in is a fact of the dtype (`DType.compute`, `base/dtype.py`), and the coefficients of exp,
tanh and the others are their definition (`loops/polynomials.py`).
"""

from __future__ import annotations

from tengen.loops.lang import LANES

# ---- the order of sums -------------------------------------------------------------------------------------------------------

# Contractions (products of matrices, convolutions, recurrent cells): the terms of a sum that are added, fma by fma, from zero.
# The results of these chunks are added in order. `contraction/chunks.py` has the rule.
CHUNK_TERMS = 256

# Reductions (sum, mean, max, norms, softmax): the elements of a row that are folded in LANES virtual lanes before the lanes are
# joined by a tree, and the result joined with that of the chunks before: a multiple of LANES. See `reduction/folding.py`.
CHUNK_ELEMENTS = 4096

# Attention: the keys (of the backward kernels: keys or queries) after which the running maximum, sum and result are brought up
# to date. `attention/forward.py` has the rule.
CHUNK_ROWS = 64

# Attention with a causal mask: neighbouring queries (or keys), counted from the first, that leave out the rows which none of
# them sees; a row that one of them sees is a term of all of them, of weight 0 where it is hidden.
GROUP_LANES = 2 * LANES

# ---- attention --------------------------------------------------------------------------------------------------------------

# The lowest finite number, by bytes of the dtype: the running maximum begins with it, so that a row of which no key is seen has
# weights of 0 and no NaN.
LEAST_SCORE = {2: -65504.0, 4: -3.4028234663852886e38, 8: -1.7976931348623157e308}

# The argument, by bytes of the dtype, at and below which e^x is 0 in `attention.tiles.weight`.
LEAST_EXPONENT = {4: -88.0, 8: -709.2}

# `attention_int`: the integer that the softmax's largest weight becomes, as uint8.
LARGEST_WEIGHT = 255.0

# `F.scaled_dot_product_attention` is the op of `kernels/attention/` where a key and a value together have at most so many
# features (a piece's memory lies on a thread's stack); where they have more, two products around a softmax: other roundings.
ATTENTION_MOST_FEATURES = 1024

# ---- activations that a product rounds to integers ----------------------------------------------------------------------------

# `contraction/grouped_integers.py`: the integer that the largest magnitude of a group becomes, and the least magnitude that it stands for,
# whose quotients have full precision.
LARGEST_ROUNDED = 127.0
LEAST_ROUNDED = 2.0**-100

# ---- Winograd's convolutions -------------------------------------------------------------------------------------------------

# F(4, 3) interpolates at 0, +-p, +-q and infinity: these are p and q, about the most accurate of the dyadic choices. They are
# in every coefficient of the transforms of image, filter and result.
WINOGRAD_POINTS = 5 / 8, 3 / 2

# `winograd.pays` decides whether "auto" records a convolution as a Winograd one: reading a weight and computing a transformed
# value cost so many multiplications, the direct convolution must cost more by this factor, and no axis may have more channels.
WEIGHT_MULTIPLICATIONS = 6
VALUE_MULTIPLICATIONS = 8
WINOGRAD_LEAST_GAIN = 1.2
WINOGRAD_MOST_CHANNELS = 4096  # one tile of more would not fit a thread's stack either

# The filter's gradient, for each m of F(m, 3): the tiles whose products are added, fma by fma, from zero.
SUMMED_TILES = {2: 32, 4: 16}

# The filter's gradient: tiles are cut into runs, each summed alone, and the runs added in order. There are as many runs as
# make, with the pairs of blocks of so many channels, this number of pieces; but an image has so many tiles for each run.
BLOCK_CHANNELS = 64
GRADIENT_RUNS = 8
GRADIENT_RUN_TILES = 16

# ---- random numbers ----------------------------------------------------------------------------------------------------------

# Philox4x32: the two multipliers of a round, what each round adds to the two words of the key, and the number of rounds.
PHILOX_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
PHILOX_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
PHILOX_ROUNDS = 10

# Samplers that reject (`ops/rejection.py`): the bit of the counter's second word from which on it holds the number of the round (a
# tensor has less than 2^58 elements, so the bits above are free); the rounds, each of which accepts more than 0.95 for gamma
# (Marsaglia and Tsang, 2000) and more than 0.7 for Poisson and binomial (Hormann, 1993), so that none of them accepts with a
# probability below 1e-30.
COUNTER_FREE_BIT = 26
GAMMA_ROUNDS = 24
COUNT_ROUNDS = 60

# Poisson and binomial with a mean below this number go through so many outcomes in order; the others have less than 2^-53 together.
SEARCHED_MEAN = 10.0
SEARCHED_OUTCOMES = 96

# ---- linear algebra ----------------------------------------------------------------------------------------------------------

# Householder reflectors that are applied together (`linalg/reflectors.py`): the compact form of their product rounds otherwise than one
# reflector after the other.
REFLECTOR_BLOCK = 16

# A QR iteration (`linalg/sweeps.py`) takes at most so many sweeps for each eigenvalue or singular value; what has not converged by then
# is NaN. Two are usual.
MOST_SWEEPS = 30
