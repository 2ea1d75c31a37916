"""Feeding data: datasets, samplers, transforms, and a loader with worker processes that repeats and resumes exactly."""

from tengen.base.lazy import modules_of
from tengen.data import dataset, transform
from tengen.data.collator import Collator
from tengen.data.dataloader import DataLoader
from tengen.data.dataset import (
    ArrayDataset,
    ChainDataset,
    ConcatDataset,
    Dataset,
    StackDataset,
    StreamDataset,
    Subset,
    random_split,
)
from tengen.data.draws import rng
from tengen.data.pytorch_names import BatchSampler, SubsetRandomSampler, WeightedRandomSampler, default_collate
from tengen.data.sampler import (
    Infinite,
    MapSampler,
    RandomSampler,
    ReplacementSampler,
    Sampler,
    SequentialSampler,
    StreamSampler,
)
from tengen.data.workers import WorkerError, WorkerInfo, WorkerTimeout, get_worker_info

TensorDataset, IterableDataset = ArrayDataset, StreamDataset  # PyTorch's names

__getattr__ = modules_of(__name__)
__all__ = [
    "ArrayDataset", "BatchSampler", "ChainDataset", "Collator", "ConcatDataset", "DataLoader", "Dataset", "Infinite",
    "IterableDataset", "MapSampler", "RandomSampler", "ReplacementSampler", "Sampler", "SequentialSampler",
    "StackDataset", "StreamDataset", "StreamSampler", "Subset", "SubsetRandomSampler", "TensorDataset",
    "WeightedRandomSampler", "WorkerError", "WorkerInfo", "WorkerTimeout", "dataset", "default_collate",
    "get_worker_info", "random_split", "rng", "transform",
]  # fmt: skip
