"""Samplers: order, batches, ranks, epochs, and errors."""

import os
from itertools import islice

import numpy as np
import pytest

import tengen
from tengen.data import (
    ArrayDataset,
    DataLoader,
    Infinite,
    MapSampler,
    RandomSampler,
    ReplacementSampler,
    Sampler,
    SequentialSampler,
    StreamSampler,
    random_split,
)


def flat(batches):
    return [i for b in batches for i in b]


@pytest.mark.parametrize("n", [0, 1, 5, 6, 7])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("make", [SequentialSampler, RandomSampler])
def test_every_sample_once_and_len(make, n, drop_last):
    s = make(range(n), batch_size=3, drop_last=drop_last)
    batches = list(s)
    assert len(batches) == len(s) == (n // 3 if drop_last else -(-n // 3))
    assert sorted(flat(batches)) == list(range(n)) or drop_last
    assert len(set(flat(batches))) == len(flat(batches))
    assert all(len(b) == 3 for b in batches[:-1])


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_ranks_cover_the_order_in_step(world):
    whole = flat(RandomSampler(range(10), seed=3).batches(2))
    shares = [flat(RandomSampler(range(10), batch_size=2, world_size=world, rank=r, seed=3).batches(2)) for r in range(world)]
    assert len({len(s) for s in shares}) == 1
    woven = [i for row in zip(*shares) for i in row]
    assert woven[:10] == whole
    assert woven[10:] == (whole * 2)[: len(woven) - 10], "lengthened from the front"
    sampler = RandomSampler(range(10), batch_size=2, world_size=world, rank=0, seed=3)
    assert len(list(sampler)) == len(sampler)


def test_ranks_agree_without_a_seed():
    shares = [flat(RandomSampler(range(8), world_size=2, rank=r)) for r in (0, 1)]
    assert sorted(flat(shares)) == list(range(8))


def test_more_ranks_than_samples():
    assert [flat(SequentialSampler(range(2), world_size=5, rank=r)) for r in range(5)] == [[0], [1], [0], [1], [0]]


def test_epochs_differ_and_repeat():
    s = RandomSampler(range(50), batch_size=7, seed=11)
    first, second = list(s), list(s)
    assert first != second
    assert first == list(RandomSampler(range(50), batch_size=7, seed=11))
    assert second == list(s.batches(epoch=1))
    assert first != list(RandomSampler(range(50), batch_size=7, seed=12))


def philox(counter, key):
    """Philox4x64-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011."""
    mask = (1 << 64) - 1
    c, k = list(counter), list(key)
    for _ in range(10):
        p, q = c[0] * 0xD2E7470EE14C6C93, c[2] * 0xCA5A826395121157
        c = [(q >> 64) ^ c[1] ^ k[0], q & mask, (p >> 64) ^ c[3] ^ k[1], p & mask]
        k = [(k[0] + 0x9E3779B97F4A7C15) & mask, (k[1] + 0xBB67AE8584CAA73B) & mask]
    return c


@pytest.mark.parametrize("seed, epoch", [(0, 0), (12345, 7), ((1 << 64) - 1, 3)])
def test_the_order_is_sorted_philox(seed, epoch):
    """A run of last year must resume today: the order is a function that we can state, not a library's version."""
    top = (1 << 64) - 1
    words = [w for block in range(1, 4) for w in philox((block, 0, top, top), (seed, epoch))][:11]
    assert flat(RandomSampler(range(11), seed=seed).batches(epoch)) == sorted(range(11), key=words.__getitem__)


def test_who_has_seeded_decides_when_no_seed_is_given(monkeypatch):
    """`tengen.random.seed` where it was called in this process, each sampler another order; else NumPy's global state."""

    def orders(seed, of):
        seed(of)
        return [flat(RandomSampler(range(30))) for _ in range(2)]

    first, second = orders(tengen.random.seed, 4)
    np.random.seed(5)
    assert [first, second] == orders(tengen.random.seed, 4) == orders(tengen.random.manual_seed, 4) != orders(tengen.random.seed, 5)
    assert first != second
    tengen.random.seed(5)
    draws = tengen.random.uniform(size=(3,)).tolist()
    orders(tengen.random.seed, 5)
    assert draws == tengen.random.uniform(size=(3,)).tolist()  # a sampler moves no stream on
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as in a forked process
    assert orders(np.random.seed, 4) == orders(np.random.seed, 4) != [first, second]


def test_a_program_that_seeds_sees_its_data_in_one_order():
    def order():
        tengen.random.seed(7)
        data = ArrayDataset(np.arange(20), np.arange(20))
        parts = [list(part.indices) for part in random_split(data, [12, 8])]
        return parts, [x.tolist() for x, _ in DataLoader(data, batch_size=4, shuffle=True)]

    assert order() == order()


@pytest.mark.parametrize("make", [
    lambda: SequentialSampler(range(20), 3),
    lambda: RandomSampler(range(20), 3, seed=1, drop_last=True),
    lambda: ReplacementSampler(range(20), 3, seed=1),
    lambda: RandomSampler(range(20), 3, seed=1, world_size=2, rank=1),
])  # fmt: skip
def test_start_skips(make):
    whole = list(make().batches(5))
    for start in range(len(whole) + 2):
        assert list(make().batches(5, start)) == whole[start:]


def test_indices():
    assert flat(SequentialSampler(range(10), indices=[4, 2, 2])) == [4, 2, 2]
    assert sorted(flat(RandomSampler(range(10), indices=[7, 3, 5]))) == [3, 5, 7]
    assert len(RandomSampler(range(10), 2, indices=[7, 3, 5])) == 2


def test_replacement_is_fair():
    draws = flat(ReplacementSampler(range(4), 100, num_samples=40_000, seed=0, weights=[1, 0, 2, 1]))
    share = np.bincount(draws, minlength=4) / 40_000
    assert np.abs(share - [0.25, 0, 0.5, 0.25]).max() < 0.01
    share = np.bincount(flat(ReplacementSampler(range(4), num_samples=40_000, seed=0)), minlength=4) / 40_000
    assert np.abs(share - 0.25).max() < 0.01


def test_infinite():
    s = Infinite(RandomSampler(range(4), batch_size=3, seed=5))
    first = list(islice(s, 6))
    inner = RandomSampler(range(4), batch_size=3, seed=5)
    assert first == [b for e in range(3) for b in inner.batches(e)]
    assert list(islice(s.batches(0, 3), 3)) == first[3:]
    assert s.batch_size == 3 and s.seed == 5
    with pytest.raises(ValueError, match="no batch"):
        next(Infinite(SequentialSampler([])).batches(0))


def test_stream_sampler():
    assert list(islice(StreamSampler(2), 2)) == [[0, 1], [2, 3]]
    assert next(StreamSampler(2).batches(0, 5)) == [10, 11]


def test_own_samplers():
    class Backwards(MapSampler):
        def sample(self):
            return list(range(len(self.dataset)))[::-1]

    class Plain(Sampler):
        def __iter__(self):
            yield from ([0, 1], [2])

    assert list(Backwards(range(3), 2)) == [[2, 1], [0]]
    assert list(Plain().batches(0, 1)) == [[2]]


@pytest.mark.parametrize("bad", [
    {"batch_size": 0}, {"batch_size": 1.5}, {"batch_size": True}, {"world_size": 0}, {"world_size": 2, "rank": 2}, {"rank": -1},
    {"rank": 1}, {"seed": "x"}, {"indices": 3}, {"indices": [1.5]}, {"indices": [-1]},
])  # fmt: skip
def test_bad_arguments(bad):
    with pytest.raises(ValueError, match="RandomSampler"):
        RandomSampler(range(4), **bad)


@pytest.mark.parametrize("weights", [[1, 2], [1, -1, 1], [0, 0, 0], [1, np.nan, 1], [1, np.inf, 1]])
def test_bad_weights(weights):
    with pytest.raises(ValueError, match="weights"):
        ReplacementSampler(range(3), weights=weights)


@pytest.mark.parametrize("make", [
    lambda seed=None: RandomSampler(range(11), 4, seed=seed), lambda seed=None: SequentialSampler(range(11), 4),
    lambda seed=None: ReplacementSampler(range(11), 4, seed=seed),
    lambda seed=None: RandomSampler(range(11), 2, world_size=2, rank=1, seed=seed),
    lambda seed=None: Infinite(RandomSampler(range(11), 4, seed=seed)),
])  # fmt: skip
@pytest.mark.parametrize("taken", [0, 1, 3, 4])
def test_a_state_goes_on_where_it_was_taken(make, taken):
    """In the middle of an epoch, at its end, and in the next one."""

    def epochs(s):
        while True:
            yield from s

    s, again = make(7), make(8)
    it = epochs(s)
    list(islice(it, taken))
    again.load_state_dict(s.state_dict())
    assert list(islice(epochs(again), 7)) == list(islice(it, 7))


def test_states_that_do_not_fit():
    s = RandomSampler(range(11), 4, seed=1)
    state = s.state_dict()
    for other, wrong, words in (
        (RandomSampler(range(12), 4), {}, "samples 11, this one has 12"), (RandomSampler(range(11), 5), {}, "batch_size 4"),
        (s, {"epoch": -1}, "epoch must be at least 0"), (s, {"seed": "1"}, "seed must be a whole number"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            other.load_state_dict(state | wrong)
    with pytest.raises(KeyError, match="no 'batch'"):
        s.load_state_dict({"epoch": 1, "seed": 1})

    class Own(Sampler):
        def __iter__(self):
            return iter([[0]])

    with pytest.raises(TypeError, match="defines __iter__"):
        Own().state_dict()
