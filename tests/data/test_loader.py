"""The loader: the same batches with any number of workers, resuming, errors, and what it leaves behind."""

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tengen.data import (
    ArrayDataset,
    Collator,
    ConcatDataset,
    DataLoader,
    Dataset,
    Infinite,
    RandomSampler,
    ReplacementSampler,
    SequentialSampler,
    StreamDataset,
    StreamSampler,
    WorkerError,
    WorkerTimeout,
    get_worker_info,
    rng,
)
from tengen.data.transform import Compose, RandomCrop, RandomHorizontalFlip, Transform


class Noisy(Dataset):
    """Draws while it reads, sleeps out of order, and is large enough for shared memory."""

    def __init__(self, n=11, pixels=40):
        self.n, self.pixels = n, pixels

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        time.sleep(0.004 * ((i * 7) % 3))
        image = np.arange(self.pixels * self.pixels * 3, dtype=np.float32).reshape(self.pixels, self.pixels, 3)
        return image + rng().random(dtype=np.float32), i, f"name {i}"


class Lines(StreamDataset):
    def __init__(self, n=11):
        self.n = n

    def __iter__(self):
        for i in range(self.n):
            yield np.full((60, 60), i, np.float64), i


class Shift(Transform):
    def apply(self, input):
        return input[0] + rng().uniform(), *input[1:]


AUGMENT = Compose([RandomCrop(30), RandomHorizontalFlip()])


def loader(workers=0, sampler=RandomSampler, **more):
    data = Noisy()
    return DataLoader(data, sampler(data, batch_size=4, seed=9), AUGMENT, num_workers=workers, **more)


def same(a, b):
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    else:
        assert a == b


def shared_blocks():
    folder = Path("/dev/shm")
    return {p.name for p in folder.glob(f"tengen-{os.getpid()}-*")} if folder.exists() else set()


@pytest.fixture(autouse=True)
def nothing_left_behind():
    before = shared_blocks()  # of loaders that other tests of this process have left
    yield
    assert not shared_blocks() - before


@pytest.mark.parametrize("more", [{}, {"divide": True}, {"sampler": ReplacementSampler}, {"prefetch": 1}], ids=str)
def test_workers_change_nothing(more):
    expected = list(loader(0, **{k: v for k, v in more.items() if k == "sampler"}))
    assert len(expected) == 3 and expected[0][0].shape == (4, 30, 30, 3) and expected[0][2][0].startswith("name")
    for workers in (1, 2):
        same(list(loader(workers, **more)), expected)


def test_spawned_workers():
    same(list(loader(2, context="spawn")), list(loader(0)))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("divide", [False, True])
def test_streams(workers, divide):
    def make(n):
        return DataLoader(Lines(), StreamSampler(4), Shift(), num_workers=n, divide=divide and n > 0, seed=1)

    expected = list(make(0))
    assert [len(b[1]) for b in expected] == [4, 4, 3]
    same(list(make(workers)), expected)


def test_stream_ends():
    assert [b.tolist() for b in DataLoader(iter_once([1, 2, 3]), StreamSampler(2, drop_last=True))] == [[1, 2]]
    assert list(DataLoader(Lines(0))) == []
    with pytest.raises(TypeError, match="len"):
        len(DataLoader(Lines()))


class iter_once:
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


def test_augmentation_differs_between_epochs_and_samples():
    data = ArrayDataset(np.zeros((6, 1)))
    it = DataLoader(data, SequentialSampler(data, 6), Shift2(), seed=0)
    first, second = next(iter(it)), next(iter(it))
    assert len(np.unique(np.concatenate([first, second]))) == 12


class Shift2(Transform):
    def apply(self, input):
        return input + rng().uniform()


def test_ranks_together_give_one_ranks_samples():
    """Augmentation is keyed by the sample, so two ranks' batches are the halves of one rank's."""
    data = ArrayDataset(np.arange(12.0).reshape(12, 1))
    one = list(DataLoader(data, RandomSampler(data, 4, seed=2), Shift2()))
    ranks = [list(DataLoader(data, RandomSampler(data, 2, seed=2, world_size=2, rank=r), Shift2())) for r in (0, 1)]
    for k, batch in enumerate(one):
        same(np.stack([ranks[0][k], ranks[1][k]], axis=1).reshape(4, 1), batch)


def test_repeated_draws_of_a_sample_differ():
    data = ArrayDataset(np.zeros((1, 1)))
    batch = next(iter(DataLoader(data, ReplacementSampler(data, 5, num_samples=5, seed=0), Shift2())))
    assert len(np.unique(batch)) == 5
    passes = list(islice(DataLoader(data, Infinite(RandomSampler(data, 1, seed=0)), Shift2()), 3))
    assert len(np.unique(passes)) == 3


# -- resuming -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("taken", [0, 1, 3, 4])
def test_resume(workers, taken):
    def stream_of_batches(it):
        while True:
            yield from it

    whole = list(islice(stream_of_batches(loader()), 6))  # two epochs of three
    first = loader(workers)
    same(list(islice(stream_of_batches(first), taken)), whole[:taken])
    state = json.loads(json.dumps(first.state_dict()))
    again = loader(2 - workers)
    again.seed, again.sampler.seed = 1, 2  # the state brings the right ones
    again.load_state_dict(state)
    same(list(islice(stream_of_batches(again), 6 - taken)), whole[taken:])


def test_resume_infinite_and_stream():
    data = ArrayDataset(np.arange(5.0))
    make = lambda: DataLoader(data, Infinite(RandomSampler(data, 2, seed=3)), Shift2())
    first = make()
    it = iter(first)
    head = [next(it) for _ in range(7)]
    state = first.state_dict()
    again = make()
    again.load_state_dict(state)
    same([next(iter(again))], [next(it)])
    assert len(head) == 7
    first = DataLoader(Lines(), StreamSampler(2), Shift(), seed=3)
    whole = list(DataLoader(Lines(), StreamSampler(2), Shift(), seed=3))
    same(list(islice(first, 2)), whole[:2])
    again = DataLoader(Lines(), StreamSampler(2), Shift(), num_workers=1)
    again.load_state_dict(first.state_dict())
    same(list(again), whole[2:])


def test_leaving_an_epoch_begins_the_next():
    it = loader()
    for _ in it:
        break
    assert it.state_dict()["epoch"] == 0 and it.state_dict()["batch"] == 1
    epochs = loader()
    list(epochs)
    same(list(it), list(epochs))
    assert (it.state_dict()["epoch"], it.state_dict()["batch"]) == (2, 0)


def test_a_state_of_other_data_is_refused():
    state = loader().state_dict()
    data = Noisy(12)
    with pytest.raises(ValueError, match="samples 11, this one has 12"):
        DataLoader(data, RandomSampler(data, 4)).load_state_dict(state)
    with pytest.raises(ValueError, match="batch_size 4"):
        DataLoader(Noisy(), RandomSampler(Noisy(), 5)).load_state_dict(state)
    for key, value, words in (("batch", -1, "batch must be at least 0"), ("epoch", "1", "epoch must be a whole"), ("seed", 0.5, "seed must")):
        with pytest.raises(ValueError, match=words):
            loader().load_state_dict(state | {key: value})
    with pytest.raises(KeyError, match="no 'epoch'"):
        loader().load_state_dict({})
    with pytest.raises(ValueError, match="a state is a dict, got list"):
        loader().load_state_dict([1])


# -- errors ---------------------------------------------------------------------------------------------------------------
class Broken(Dataset):
    def __init__(self, how):
        self.how = how

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 5:
            self.how()
        return i


class Odd(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")


def raise_key():
    raise KeyError("pear")


def raise_stop():
    raise StopIteration


def raise_odd():
    raise Odd("this", "that")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    sys.exit(3)


@pytest.mark.parametrize("preload", [False, True])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_an_error_arrives_in_its_turn(workers, preload):
    loader = DataLoader(Broken(raise_key), SequentialSampler(range(8), 2), num_workers=workers, preload=preload)
    it = iter(loader)
    assert next(it).tolist() == [0, 1] and next(it).tolist() == [2, 3]
    with pytest.raises(KeyError, match="pear") as e:
        next(it)
    notes = "\n".join(e.value.__notes__)
    assert "sample 5 of Broken" in notes
    assert workers == 0 or "in raise_key" in notes and "Caught KeyError in DataLoader worker process" in notes
    assert next(it, None) is None and loader.state_dict()["batch"] == 2


@pytest.mark.parametrize("how, error, words", [
    (raise_odd, WorkerError, "Odd: this and that"), (die, WorkerError, "SIGKILL"), (leave, WorkerError, "exit code 3"),
    (raise_stop, RuntimeError, "StopIteration"),
])  # fmt: skip
def test_workers_that_fail_badly(how, error, words):
    start = time.monotonic()
    with pytest.raises(error, match=words):
        list(DataLoader(Broken(how), SequentialSampler(range(8), 2), num_workers=2))
    assert time.monotonic() - start < 3


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stop_iteration_of_the_dataset_is_no_end(workers):
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(DataLoader(Broken(raise_stop), SequentialSampler(range(8), 2), num_workers=workers))


# -- timeouts -------------------------------------------------------------------------------------------------------------
class Stuck(StreamDataset):
    """Stops before sample `at` (-1: before there are any), until it is told to go on."""

    def __init__(self, at):
        self.at, self.go = at, threading.Event()

    def __iter__(self):
        if self.at < 0:
            self.go.wait()
        return self.samples()

    def samples(self):
        for i in range(8):
            if i == self.at:
                self.go.wait()
            yield np.full(3, i)


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("at", [-1, 0, 5])
def test_timeout_of_a_stream(workers, at):
    import multiprocessing

    data = Stuck(at)
    loader = DataLoader(data, StreamSampler(2), num_workers=workers, timeout=0.3, prefetch=1, context="fork")
    it, start = iter(loader), time.monotonic()
    what = "2 samples of the stream" if workers else "a batch of"
    with pytest.raises(WorkerTimeout, match=rf"waited 0\.3 s for {what} Stuck, which is read .*; help: a longer timeout"):
        list(it)
    assert time.monotonic() - start < 5 and next(it, None) is None and not multiprocessing.active_children()
    data.go.set()  # the reader that was given up ends with its read, and the loader can be used again
    assert [b[:, 0].tolist() for b in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    until = time.monotonic() + 5
    while (left := [t for t in threading.enumerate() if t.name == "tengen-data-reader"]) and time.monotonic() < until:
        time.sleep(0.01)
    assert not left


@pytest.mark.parametrize("workers", [0, 1])
def test_timeout_of_a_map_dataset(workers):
    data = Broken(lambda: time.sleep(5 if workers == 0 else 30))
    it = DataLoader(data, SequentialSampler(range(8), 2), num_workers=workers, timeout=0.3, context="fork")
    start, seen = time.monotonic(), []
    where = r"worker 0 of 1 \(process \d+\) to prepare batch 2 of Broken"
    where = where if workers else "a batch of Broken, which is read and prepared in this process"
    with pytest.raises(WorkerTimeout, match=rf"waited 0\.3 s for {where}; help: a longer timeout"):
        seen += (b.tolist() for b in it)
    assert time.monotonic() - start < 3 and seen == [[0, 1], [2, 3]]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_timeout_changes_no_batch(workers):
    class Drawing(Lines):
        def __iter__(self):
            return ((image + rng().uniform(), i) for image, i in super().__iter__())

    def make(timeout):
        return DataLoader(Drawing(), StreamSampler(4), Shift(), num_workers=workers, timeout=timeout, seed=1, context="fork")

    same(list(make(60)), list(make(0)))
    same(list(loader(workers, timeout=60)), list(loader(workers)))
    same(list(loader(workers, timeout=1e9)), list(loader(workers)))  # more milliseconds than the system's calls take
    first = make(60)
    next(it := iter(first))
    again = make(60)
    again.load_state_dict(first.state_dict())
    same(list(again), list(it))


@pytest.mark.parametrize("workers", [0, 1])
def test_errors_under_a_timeout(workers):
    with pytest.raises(KeyError, match="pear"):
        list(DataLoader(Broken(raise_key), SequentialSampler(range(8), 2), num_workers=workers, timeout=60))

    class BadLines(StreamDataset):
        def __iter__(self):
            yield 1
            raise Odd("this", "that")

    it = iter(DataLoader(BadLines(), num_workers=workers, timeout=60, context="fork", prefetch=1))
    with pytest.raises(Odd, match="this and that"):
        list(it)


def test_more_than_a_pipe_holds():
    """Tasks and results that fill both directions of a pipe: neither side waits for the other for ever."""

    class Many(StreamDataset):
        def __iter__(self):
            return (np.full(1900, i) for i in range(200))  # just not large enough for shared memory

    many = [int(b[0, 0]) for b in DataLoader(Many(), StreamSampler(1), num_workers=1, prefetch=150, context="fork", timeout=60)]
    assert many == list(range(200))
    stuck = DataLoader(Many(), StreamSampler(1), Sleep(), num_workers=1, prefetch=150, context="fork", timeout=0.3)
    with pytest.raises(WorkerTimeout, match=r"waited 0\.3 s for worker 0 of 1 \(process \d+\) to take batch \d+ of Many; help"):
        list(stuck)


class Sleep(Transform):
    def apply(self, input):
        time.sleep(30)


def test_a_batch_that_cannot_travel():
    class Local(Collator):
        def apply(self, inputs):
            return lambda: inputs

    with pytest.raises(Exception, match="(?i)pickle|local"):
        list(DataLoader(Broken(leave), SequentialSampler(range(2)), collator=Local(), num_workers=1, context="fork"))


def test_leaving_early_ends_the_workers():
    import multiprocessing

    before = set(multiprocessing.active_children())
    it = iter(loader(2))
    next(it)
    assert len(set(multiprocessing.active_children()) - before) == 2
    it.close()
    assert not set(multiprocessing.active_children()) - before


def test_arrays_are_writable_and_outlive_the_loader():
    batch = next(iter(loader(1)))[0]
    batch += 1
    same(batch, next(iter(loader(0)))[0] + 1)


def test_many_batches_may_be_kept():
    data = ArrayDataset(np.zeros((200, 100, 50)))
    it = DataLoader(data, SequentialSampler(data), num_workers=1)
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    kept = list(it)
    assert len(kept) == 200
    if descriptors:
        assert len(os.listdir("/proc/self/fd")) - descriptors < 80


def test_no_room_in_shared_memory(monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    same(list(loader(1, context="fork")), list(loader(0)))


SCRIPT = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with the signal ignored
import numpy as np
from tengen.data import DataLoader, Dataset, SequentialSampler
class Slow(Dataset):
    def __len__(self): return 1000
    def __getitem__(self, i):
        time.sleep(0.02)
        return np.zeros(100_000)
if __name__ == "__main__":
    data = Slow()
    for k, _ in enumerate(DataLoader(data, SequentialSampler(data, 2), num_workers=2)):
        if k == 1:
            print("ready", flush=True)
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_interrupted(tmp_path, sent):
    """Ctrl-C goes to the whole group; a kill reaches the parent only. Neither leaves processes."""
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    p = subprocess.Popen(
        [sys.executable, "script.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert p.stdout.readline() == "ready\n"
    if sent == signal.SIGINT:
        os.killpg(p.pid, sent)
    else:
        p.kill()
    _, errors = p.communicate(timeout=60)  # the pipe closes when the last worker is gone
    assert "data worker" not in errors and errors.count("Traceback") == (sent == signal.SIGINT), errors
    until = time.monotonic() + 3
    while (left := list(Path("/dev/shm").glob(f"tengen-{p.pid}-*"))) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left


# -- the pieces -----------------------------------------------------------------------------------------------------------
class Who(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        info = get_worker_info()
        return (-1, 0) if info is None else (info.idx, info.worker_num + len(info.dataset))


def test_worker_info():
    assert get_worker_info() is None
    seen, numbers = zip(*DataLoader(Who(), num_workers=2))
    assert set(np.concatenate(seen).tolist()) == {0, 1} and set(np.concatenate(numbers).tolist()) == {10}


def test_defaults():
    assert [b.tolist() for b in DataLoader(ArrayDataset([3, 4]))] == [[3], [4]]
    assert [b.tolist() for b in DataLoader([3, 4], [[1, 0]])] == [[4, 3]]
    assert list(DataLoader(ArrayDataset([]))) == [] and list(DataLoader(ArrayDataset([]), num_workers=2)) == []


@pytest.mark.parametrize("bad, error", [
    ({"num_workers": -1}, ValueError), ({"num_workers": 1.5}, TypeError), ({"prefetch": 0}, ValueError), ({"prefetch": "2"}, TypeError),
    *(({"timeout": t}, ValueError) for t in (-1, float("nan"), float("inf"), 1e300, "5", None)),
    ({"sampler": StreamSampler(2)}, ValueError), ({"transform": len}, TypeError),
])  # fmt: skip
def test_bad_arguments(bad, error):
    with pytest.raises(error, match="DataLoader"):
        DataLoader(Noisy(), **bad)


def test_collator():
    make = Collator().apply
    same(make([1, 2]), np.array([1, 2]))
    same(make([1.5, 2]), np.array([1.5, 2.0]))
    same(make([np.float32(1), np.float32(2)]), np.array([1, 2], np.float32))
    same(make([True, False]), np.array([True, False]))
    same(make(["a", "b"]), ["a", "b"])
    same(make([{"x": np.zeros(2), "y": (1, "s")}] * 2)["y"], (np.array([1, 1]), ["s", "s"]))
    for bad in ([], [np.zeros(2), np.zeros(3)], [(1,), (1, 2)], [{"a": 1}, {"b": 1}]):
        with pytest.raises(ValueError, match="Collator"):
            make(bad)
    for bad in ([object()], [None], [np.array([None])]):
        with pytest.raises(TypeError, match="Collator"):
            make(bad)


def test_datasets():
    with pytest.raises(ValueError, match="2, 3"):
        ArrayDataset([1, 2], [1, 2, 3])
    with pytest.raises(ValueError):
        ArrayDataset()
    both = ConcatDataset([ArrayDataset([]), ArrayDataset([1, 2]), ArrayDataset([]), ArrayDataset([3])])
    assert [both[i] for i in range(-3, 3)] == [1, 2, 3, 1, 2, 3]
    with pytest.raises(IndexError, match="3 samples"):
        both[3]
    with pytest.raises(TypeError, match="stream"):
        ConcatDataset([Lines()])
    with pytest.raises(TypeError, match="no sample"):
        Lines()[0]
    assert len(list(Lines())) == 11
