"""What programs ask of a `DataLoader` of PyTorch's dialect: its samplers and settings."""

import pytest

import tengen.pytorch as torch
from tengen import data
from tengen.pytorch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler
from tengen.pytorch.utils.data.distributed import DistributedSampler


def test_a_sampler_is_the_one_that_was_given():
    rows = list(range(6))
    sampler = DistributedSampler(rows, num_replicas=2, rank=1, shuffle=True)
    loader = DataLoader(rows, batch_size=2, sampler=sampler)
    assert loader.sampler is sampler and type(loader.batch_sampler) is BatchSampler and loader.batch_size == 2
    epochs = []
    for epoch in range(4):
        loader.sampler.set_epoch(epoch)
        epochs.append([i for batch in loader for i in batch.tolist()])
    assert all(len(e) == 3 for e in epochs) and len(set(map(tuple, epochs))) > 1


def test_samplers_that_a_loader_makes():
    rows = list(range(5))
    in_order, shuffled = DataLoader(rows, batch_size=2), DataLoader(rows, batch_size=2, shuffle=True, drop_last=True)
    assert type(in_order.sampler) is SequentialSampler and type(shuffled.sampler) is RandomSampler and shuffled.drop_last
    assert [list(b) for b in in_order.batch_sampler] == [[0, 1], [2, 3], [4]] and list(in_order.sampler) == rows
    given = [[4, 0], [2]]
    batched = DataLoader(rows, batch_sampler=given, num_workers=0, pin_memory=False)
    assert batched.batch_sampler is given and batched.batch_size is None and [b.tolist() for b in batched] == given
    single = DataLoader(rows, batch_size=None)
    assert single.batch_sampler is None and single.batch_size is None and list(single) == rows
    assert shuffled.collate_fn is torch.utils.data.default_collate and shuffled.generator is None and not shuffled.persistent_workers
    with pytest.raises(ValueError, match="shuffle=True and sampler= exclude each other"):
        DataLoader(rows, shuffle=True, sampler=in_order.sampler)


def test_a_loader_of_megengines_has_one_sampler():
    loader = data.DataLoader(data.ArrayDataset([1, 2, 3]), data.SequentialSampler(data.ArrayDataset([1, 2, 3]), batch_size=2))
    assert type(loader.sampler) is data.SequentialSampler and loader.batch_size == 2
    loader.sampler = data.SequentialSampler(loader.dataset, batch_size=3)
    assert len(loader) == 1
