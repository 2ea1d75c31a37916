"""`DataLoader` with PyTorch's arguments, `Subset` and `random_split`."""

import numpy as np
import pytest

from tengen import Tensor, data, random
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
        (lambda: DataLoader(NUMBERS, RandomSampler(NUMBERS, 3), batch_size=2), TypeError, "belong to the sampler"),
        (lambda: DataLoader(NUMBERS, batch_sampler=[[1]], batch_size=2), TypeError, "belong to the sampler"),
        (lambda: DataLoader(NUMBERS, [[1]], batch_sampler=[[1]]), TypeError, "either sampler or batch_sampler"),
        (lambda: DataLoader(NUMBERS, 2, seed=1, generator=1), TypeError, "either seed or generator"),
        (lambda: DataLoader(NUMBERS, 2, generator="x"), TypeError, "generator must be a seed"),
        (lambda: data.WeightedRandomSampler([1], 1, replacement=False), ValueError, "replacement=False"),
        (lambda: data.BatchSampler([1], 0), ValueError, "batch_size"),
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


class Noise(data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return i + data.rng().random()


def test_samplers_of_single_samples():
    """A loader cuts what they give into batches, in every epoch."""
    drawn = batches(DataLoader(NUMBERS, batch_size=4, sampler=data.SubsetRandomSampler([1, 3, 5, 7, 9], generator=3)))
    assert [len(b) for b in drawn] == [4, 1] and sorted(sum(drawn, [])) == [1, 3, 5, 7, 9]
    for sampler, wanted in [
        ([9, 8, 7], [[9, 8], [7]]), (range(3), [[0, 1], [2]]), (SequentialSampler(NUMBERS, indices=[4, 2, 0]), [[4, 2], [0]]),
        (data.WeightedRandomSampler([0.0] * 4 + [1.0], 3), [[4, 4], [4]]),
    ]:  # fmt: skip
        loader = DataLoader(NUMBERS, batch_size=2, sampler=sampler)
        assert batches(loader) == batches(loader) == wanted and len(loader) == 2 and loader.batch_size == 2
        assert batches(DataLoader(NUMBERS, batch_size=2, drop_last=True, sampler=sampler)) == wanted[:1]
    assert batches(DataLoader(NUMBERS, batch_sampler=[[1, 2], [3]])) == [[1, 2], [3]]
    with pytest.raises(ValueError, match="RandomSampler gives batches"):
        data.BatchSampler(RandomSampler(NUMBERS, 3), 2)
    cut = DataLoader(Noise(), batch_sampler=data.BatchSampler(RandomSampler(NUMBERS, seed=5), 3), num_workers=1)
    whole = DataLoader(Noise(), RandomSampler(NUMBERS, 3, seed=5))
    for _ in range(2):  # two epochs, whose orders and draws are keyed by the epoch
        assert len(cut) == 4 and batches(cut) == batches(whole)
    next(it := iter(cut))
    cut.load_state_dict(cut.state_dict())
    assert batches(cut) == [b.tolist() for b in it]
    loader = DataLoader(NUMBERS, batch_size=2, sampler=[9, 8, 7])
    next(it := iter(loader))
    loader.load_state_dict(loader.state_dict())
    assert batches(loader) == [b.tolist() for b in it] == [[7]]


def test_generators_are_seeds():
    order = lambda g: batches(DataLoader(NUMBERS, 4, True, generator=g))
    for make in (lambda: 5, lambda: np.random.default_rng(5), lambda: np.random.RandomState(5), lambda: random.RNG(5)):
        assert order(make()) == order(make())
        assert [s.indices for s in random_split(NUMBERS, [7, 3], generator=make())] == [
            s.indices for s in random_split(NUMBERS, [7, 3], generator=make())
        ]
    assert order(5) != order(6)


class Marked(data.Dataset):
    mark = None

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return self.mark


def mark(worker):
    info = data.get_worker_info()
    assert (info.id, info.num_workers) == (worker, 2)
    info.dataset.mark = worker


def fail(worker):
    raise OSError(f"no device for {worker}")


def test_workers_begin_with_a_function():
    assert sorted(batches(DataLoader(Marked(), num_workers=2, worker_init_fn=mark, multiprocessing_context="fork"))) == [[0], [0], [1], [1]]
    with pytest.raises(OSError, match="no device for 0") as e:
        list(DataLoader(Marked(), num_workers=2, worker_init_fn=fail))
    assert "in fail" in "".join(e.value.__notes__)  # the worker's own traceback


def test_datasets_of_tensors():
    x, y = Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), Tensor([1, 2, 3])
    both = data.TensorDataset(x, y) + data.TensorDataset(x, y)
    pixels, labels = next(iter(DataLoader(both, batch_size=6, num_workers=1)))
    assert isinstance(pixels, np.ndarray) and pixels.tolist() == x.tolist() * 2 and labels.tolist() == [1, 2, 3] * 2
    assert issubclass(data.IterableDataset, data.StreamDataset)


class Numbers(data.IterableDataset):
    """A stream of range(start, stop)."""

    def __init__(self, start, stop):
        self.start, self.stop = start, stop

    def __iter__(self):
        return iter(range(self.start, self.stop))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_chain_of_streams(num_workers):
    chain = data.ChainDataset([Numbers(0, 3), data.ArrayDataset(np.arange(3, 5)), Numbers(5, 7)])
    for _ in range(2):  # each epoch begins from the front
        assert [b.tolist() for b in data.DataLoader(chain, batch_size=3, num_workers=num_workers)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(Numbers(0, 2) + Numbers(5, 6)) == [0, 1, 5] and len(data.ChainDataset([[1, 2], [3]])) == 3
    with pytest.raises(TypeError, match="has no length"):
        len(chain)
    with pytest.raises(ValueError, match="at least one"):
        data.ChainDataset([])


def test_datasets_side_by_side():
    both = data.StackDataset(x=np.arange(4), y=[10, 20, 30, 40])
    batch = next(iter(data.DataLoader(both, batch_size=2)))
    assert batch["x"].tolist() == [0, 1] and batch["y"].tolist() == [10, 20]
    assert len(both) == 4 and data.StackDataset([1], [2])[0] == (1, 2)
    for error, match, call in (
        (ValueError, "by position", data.StackDataset), (ValueError, "by name", lambda: data.StackDataset([1], y=[1])),
        (ValueError, "lengths differ: 1, 2", lambda: data.StackDataset([1], [1, 2])),
        (TypeError, "is a stream", lambda: data.StackDataset(Numbers(0, 2))),
    ):  # fmt: skip
        with pytest.raises(error, match=match):
            call()
