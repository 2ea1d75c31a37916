"""`DataLoader` with PyTorch's arguments, `Subset` and `random_split`."""

import numpy as np
import pytest

from tengen import data
from tengen.data import ArrayDataset, DataLoader, RandomSampler, SequentialSampler, Subset, random_split

NUMBERS = ArrayDataset(np.arange(10))


def total(samples):
    return sum(samples)


def batches(loader):
    return [np.asarray(b).tolist() for b in loader]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_same_batches_as_with_samplers(workers):
    for ours, theirs in [
        (DataLoader(NUMBERS, SequentialSampler(NUMBERS, 4)), DataLoader(NUMBERS, batch_size=4, num_workers=workers)),
        (DataLoader(NUMBERS, SequentialSampler(NUMBERS, 4, drop_last=True)), DataLoader(NUMBERS, 4, drop_last=True, num_workers=workers)),
        (DataLoader(NUMBERS, RandomSampler(NUMBERS, 3, seed=5)),
         DataLoader(NUMBERS, batch_size=3, shuffle=True, seed=5, num_workers=workers, prefetch_factor=1, pin_memory=True)),
        (DataLoader(NUMBERS), DataLoader(NUMBERS, batch_size=1, num_workers=workers)),
    ]:  # fmt: skip
        assert len(ours) == len(theirs)
        for _ in range(2):  # another order in each epoch
            assert batches(ours) == batches(theirs)
    assert batches(DataLoader(NUMBERS, 4, collate_fn=total, num_workers=workers)) == [6, 22, 17]


def test_a_shuffled_loader_resumes():
    loader = DataLoader(NUMBERS, batch_size=3, shuffle=True)
    it = iter(loader)
    next(it)
    state = loader.state_dict()
    rest = [b.tolist() for b in it]
    other = DataLoader(NUMBERS, batch_size=3, shuffle=True)
    other.load_state_dict(state)
    assert batches(other) == rest


def test_arguments_that_do_not_go_together():
    class Stream(data.StreamDataset):
        def __iter__(self):
            return iter(range(5))

    for call, error, message in [
        (lambda: DataLoader(NUMBERS, RandomSampler(NUMBERS), batch_size=2), TypeError, "belong to the sampler"),
        (lambda: DataLoader(NUMBERS, RandomSampler(NUMBERS), shuffle=True), TypeError, "belong to the sampler"),
        (lambda: DataLoader(NUMBERS, collator=data.Collator(), collate_fn=total), TypeError, "either collator or collate_fn"),
        (lambda: DataLoader(Stream(), batch_size=2, shuffle=True), ValueError, "cannot be shuffled"),
        (lambda: DataLoader(NUMBERS, batch_size=0), ValueError, "batch_size"),
        (lambda: Subset(NUMBERS, [10]), IndexError, "index 10 is outside of 10"), (lambda: Subset(Stream(), [0]), TypeError, "stream"),
        (lambda: random_split(NUMBERS, [3, 3]), ValueError, "sum is 10"), (lambda: random_split(NUMBERS, [-1, 11]), ValueError, "negative"),
        (lambda: random_split(NUMBERS, [0.5, 0.25]), ValueError, "shares whose sum is 1"),
    ]:  # fmt: skip
        with pytest.raises(error, match=message):
            call()
    assert batches(DataLoader(Stream(), batch_size=2)) == [[0, 1], [2, 3], [4]]


def test_splits_are_disjoint_and_whole():
    for lengths, sizes in [([7, 3], [7, 3]), ([0.7, 0.3], [7, 3]), ([0.33, 0.33, 0.34], [4, 3, 3]), ([0, 10], [0, 10])]:
        parts = random_split(NUMBERS, lengths, seed=1)
        assert [len(p) for p in parts] == sizes
        assert sorted(int(x) for p in parts for x in p) == list(range(10))
    one, two = ([list(map(int, p)) for p in random_split(NUMBERS, [7, 3], seed=1)] for _ in range(2))
    assert one == two
    assert list(map(int, random_split(NUMBERS, [10], seed=1)[0])) != list(range(10))
