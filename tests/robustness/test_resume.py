"""Checkpoints of a training run: one that is killed again and again, also while it saves, ends with the bits of one that was not; files
and states that do not fit are refused, and change nothing. The run is `killed_run.py`."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

import killed_run
import numpy as np
import pytest
from exhaustive import but

import tengen
import tengen.module as M
from tengen import Tensor, amp, data, optimizer
from tengen.base.errors import FileFormatError

# ---- killed ----------------------------------------------------------------------------------------------------------


def start(*args) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, killed_run.__file__, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_run_that_is_killed_ends_with_the_same_bits(tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    reference, err = start(whole).communicate(timeout=300)
    assert reference.count("\n") == killed_run.STEPS + 1, err
    rng = np.random.default_rng(time.time_ns())  # the promise holds for every moment
    last = 0
    for moment, after in [("writing", 3), ("", 2), ("replacing", 2), ("replaced", 3), ("", 1), ("before", 1)]:
        p = start(tmp_path, moment, last + after)
        for line in p.stdout:  # each step that is about to be saved
            last = int(line)
            if not moment and last >= after:
                time.sleep(rng.uniform(0, 0.02))
                p.send_signal(signal.SIGKILL)
                break
        _, err = p.communicate(timeout=300)
        assert p.returncode == -signal.SIGKILL, err
    out, err = start(tmp_path).communicate(timeout=300)
    assert out.splitlines()[-1] == reference.splitlines()[-1], (out, err)
    assert [p.name for p in tmp_path.iterdir() if p != whole] == ["run.tgc"]  # parts of what the dead wrote are gone


# ---- every optimizer and every schedule ------------------------------------------------------------------------------


def kinds(base):
    found = {n: getattr(optimizer, n) for n in optimizer.__all__}
    return [n for n, k in found.items() if isinstance(k, type) and issubclass(k, base) and k is not base]


def stepped(run, n, seed):
    """Some steps with drawn gradients; the parameters' bytes and the rates after each."""
    rng, found = np.random.default_rng(seed), []
    opt = run["opt"]

    def closure():
        for g in opt.param_groups:
            for p in g["params"]:
                p.grad = Tensor(rng.normal(size=p.shape).astype(np.float32))
        return Tensor(float(rng.normal()))

    for _ in range(n):
        opt.step(closure)
        if (s := run.get("schedule")) is not None:
            s.step(*([float(rng.random())] if isinstance(s, optimizer.ReduceLROnPlateau) else []))
        groups = [{k: v for k, v in g.items() if k != "params"} for g in opt.param_groups]
        found.append((repr(groups), [p.numpy().tobytes() for g in opt.param_groups for p in g["params"]]))
    return found


SCHEDULES = {
    "ChainedScheduler": lambda o: optimizer.ChainedScheduler([optimizer.StepLR(o, 2), optimizer.ConstantLR(o, 0.5, 3)]),
    "SequentialLR": lambda o: optimizer.SequentialLR(o, [optimizer.LinearLR(o, 0.5, total_iters=3), optimizer.ExponentialLR(o, 0.5)], [3]),
    "ReduceLROnPlateau": lambda o: optimizer.ReduceLROnPlateau(o, patience=0), "CyclicLR": lambda o: optimizer.CyclicLR(o, 0.01, 0.1, 2),
    "OneCycleLR": lambda o: optimizer.OneCycleLR(o, 0.1, 9), "MultiStepLR": lambda o: optimizer.MultiStepLR(o, [1, 3]),
    "StepLR": lambda o: optimizer.StepLR(o, 2), "CosineAnnealingLR": lambda o: optimizer.CosineAnnealingLR(o, 4),
    "CosineAnnealingWarmRestarts": lambda o: optimizer.CosineAnnealingWarmRestarts(o, 2, 2),
    "LambdaLR": lambda o: optimizer.LambdaLR(o, lambda e: 1 / (e + 1)), "ExponentialLR": lambda o: optimizer.ExponentialLR(o, 0.5),
    "MultiplicativeLR": lambda o: optimizer.MultiplicativeLR(o, lambda e: 1 / (e + 1)),
}  # fmt: skip


@but(every=4)
@pytest.mark.parametrize("kind, schedule", [
    *[(n, None) for n in kinds(optimizer.Optimizer)], *[("SGD", n) for n in kinds(optimizer.LRScheduler)],
])  # fmt: skip
def test_every_optimizer_and_schedule_goes_on_from_a_file(kind, schedule, tmp_path):
    def made():
        net = M.Linear(2, 3)
        options = {"momentum": 0.9} if kind == "SGD" else {}
        opt = getattr(optimizer, kind)(net.parameters(), lr=0.1, **options)
        more = {} if schedule is None else {"schedule": SCHEDULES.get(schedule, getattr(optimizer, schedule))(opt)}
        return {"net": net, "opt": opt, **more}

    run, again = made(), made()
    stepped(run, 3, 0)
    tengen.save_checkpoint(tmp_path / "c", **run)
    assert tengen.load_checkpoint(tmp_path / "c", **again) == {}
    assert stepped(again, 3, 1) == stepped(run, 3, 1)


# ---- what does not fit -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A small checkpoint of a few steps."""
    path = tmp_path_factory.mktemp("saved") / "run.tgc"
    run = small()
    tengen.save_checkpoint(path, **run, epoch=2)
    return path


def small(width: int = 3, lr_scheduler=optimizer.ExponentialLR, kind=optimizer.Adam):
    net = M.Linear(2, width)
    opt = kind(net.parameters(), lr=0.1)
    schedule = lr_scheduler(opt, 0.5)
    sampler = data.RandomSampler(range(10), 3, seed=4)
    return {"net": net, "opt": opt, "schedule": schedule, "scaler": amp.GradScaler(), "sampler": sampler, "rng": tengen.random.RNG(5)}


def states(run):
    return repr([x.state_dict() for x in run.values()] + [tengen.random.get_state(), np.random.get_state(), random.getstate()])


@pytest.mark.parametrize("other, words", [
    ({"width": 4}, "'net' does not fit"), ({"lr_scheduler": lambda o, g: optimizer.StepLR(o, 2, g)}, "'schedule' does not fit"),
    ({"kind": optimizer.SGD}, "'opt' does not fit"),
])  # fmt: skip
def test_states_of_other_objects_are_refused_and_nothing_changes(saved, other, words):
    run = small(**other)
    before = states(run)
    with pytest.raises(FileFormatError, match=words):
        tengen.load_checkpoint(saved, **run)
    assert states(run) == before


def test_names(saved, tmp_path):
    run = small()
    with pytest.raises(FileFormatError, match="no state of 'ema'; it has 'net', 'opt'"):
        tengen.load_checkpoint(saved, ema=run["net"])
    with pytest.raises(TypeError, match="epoch is a int and takes no state"):
        tengen.load_checkpoint(saved, epoch=3)
    found = tengen.load_checkpoint(saved, net=run["net"], random_state=False)
    assert found["epoch"] == 2 and sorted(found) == ["epoch", "opt", "rng", "sampler", "scaler", "schedule"]
    for content, words in [({"net": 1}, "no file of save_checkpoint"), ([1], "no file of save_checkpoint")]:
        tengen.save(content, tmp_path / "other")
        with pytest.raises(FileFormatError, match=words):
            tengen.load_checkpoint(tmp_path / "other", **run)
    with pytest.raises(TypeError, match=r"cannot save values\.f"):
        tengen.save_checkpoint(saved, f=lambda: 1)
    with pytest.raises(TypeError, match="no part can be called random_state"):
        tengen.save_checkpoint(saved, random_state=1)
    assert tengen.load_checkpoint(saved, **run) == {"epoch": 2}


def test_damaged_files(saved, tmp_path):
    """Bytes that were cut off, changed or added give an error of the file, or of a state in it, and change nothing."""
    good, bad, run = saved.read_bytes(), tmp_path / "bad", small()
    before, rng = states(run), np.random.default_rng(0)
    cut = [good[:n] for n in (0, 1, 8, len(good) // 2, len(good) - 1)]
    flipped = []
    for at in rng.integers(0, len(good), 60):
        flipped.append(bytearray(good))
        flipped[-1][at] ^= 1 << rng.integers(8)
    for damaged in [*cut, *flipped, good + b"x"]:
        bad.write_bytes(damaged)
        with pytest.raises(FileFormatError):
            tengen.load_checkpoint(bad, **run)
    assert states(run) == before


def test_structures_that_are_not_those_of_save_checkpoint(saved, tmp_path):
    """Valid files of `save` with one part of a checkpoint replaced by something else."""
    run, whole = small(), tengen.load(saved)
    before, rng = states(run), random.Random(0)
    odd = [None, 1, -1, 1.5, "x", b"x", [], {}, (1, 2), [[]], np.zeros((2, 2)), Tensor([1.0]), 1 << 80, float("nan")]

    def places(x, path=()):
        yield path
        for key in x if isinstance(x, dict) else range(len(x)) if isinstance(x, (list, tuple)) and len(x) < 9 else ():
            yield from places(x[key], (*path, key))

    def replaced(x, path, value):
        if not path:
            return value
        if isinstance(x, dict):
            return {k: replaced(v, path[1:], value) if k == path[0] else v for k, v in x.items()}
        return type(x)(replaced(v, path[1:], value) if i == path[0] else v for i, v in enumerate(x))

    refused = 0
    for path in places(whole):
        tengen.save(replaced(whole, path, rng.choice(odd)), tmp_path / "odd")
        try:
            tengen.load_checkpoint(tmp_path / "odd", **run)
        except FileFormatError:
            refused += 1
            assert states(run) == before, path
        else:  # another number, of a learning rate say, is a checkpoint as well
            tengen.load_checkpoint(saved, **run)
            before = states(run)
    assert refused > 40
