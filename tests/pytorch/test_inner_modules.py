"""The modules inside PyTorch's packages from which programs import names, and samplers and constraints that they find there."""

import importlib
import pickle
import pkgutil
import subprocess
import sys

import pytest

import tengen.pytorch as torch
from tengen.base.errors import DeviceError
from tengen.pytorch.autograd.variable import Variable
from tengen.pytorch.distributions import constraints
from tengen.pytorch.distributions.categorical import Categorical
from tengen.pytorch.distributions.kl import kl_divergence
from tengen.pytorch.distributions.normal import Normal
from tengen.pytorch.inner_modules import VIEWS
from tengen.pytorch.nn.modules.conv import Conv2d
from tengen.pytorch.nn.utils.clip_grad import clip_grad_norm_
from tengen.pytorch.optim.optimizer import Optimizer
from tengen.pytorch.utils.data.dataloader import default_collate
from tengen.pytorch.utils.data.sampler import BatchSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler


def test_names_are_those_of_the_package():
    assert Normal is torch.distributions.Normal and Categorical is torch.distributions.Categorical and Conv2d is torch.nn.Conv2d
    assert Optimizer is torch.optim.Optimizer and clip_grad_norm_ is torch.nn.utils.clip_grad_norm_ and Variable is torch.autograd.Variable
    assert kl_divergence is torch.distributions.kl_divergence and default_collate is torch.utils.data.default_collate
    assert callable(torch.nn.utils.weight_norm) and torch.distributions.normal.Normal is Normal
    for package, names in VIEWS.items():
        for name in names.split():
            assert dir(importlib.import_module(f"tengen.pytorch.{package}.{name}")) == dir(importlib.import_module(f"tengen.pytorch.{package}"))
    with pytest.raises(ImportError, match="Nomral"):
        exec("from tengen.pytorch.distributions.normal import Nomral")
    for home in (torch.distributions.normal, torch.distributions):
        with pytest.raises(AttributeError, match="is it Normal"):
            print(home.Nomral)
    assert pickle.loads(pickle.dumps(Normal)) is Normal


def test_samplers_give_indices():
    assert list(SequentialSampler(range(3))) == [0, 1, 2] and sorted(SubsetRandomSampler([7, 2, 5])) == [2, 5, 7]
    weighted = WeightedRandomSampler(torch.tensor([0.0, 1.0, 0.0, 3.0]), 40)
    assert set(weighted) == {1, 3} and len(weighted) == 40
    assert sorted(WeightedRandomSampler([0.5, 1.0, 0.0, 3.0], 3, replacement=False)) == [0, 1, 3]
    assert list(BatchSampler(SequentialSampler(range(5)), 2, False)) == [[0, 1], [2, 3], [4]]
    rows = torch.utils.data.TensorDataset(torch.arange(4))
    loader = torch.utils.data.DataLoader(rows, batch_size=2, sampler=WeightedRandomSampler([0.0, 0.0, 0.0, 1.0], 4))
    assert [x.tolist() for (x,) in loader] == [[3, 3], [3, 3]]
    loader = torch.utils.data.DataLoader(rows, batch_size=3, sampler=SubsetRandomSampler([2, 1]))
    assert [sorted(x.tolist()) for (x,) in loader] == [[1, 2]]
    for weights, n, replacement in (([-1.0, 2.0], 1, True), ([0.0], 1, True), ([[1.0]], 1, True), ([1.0, 0.0], 2, False), ([1.0], 0, True)):
        with pytest.raises(ValueError, match="WeightedRandomSampler"):
            WeightedRandomSampler(weights, n, replacement)


def test_constraints():
    x = torch.tensor([-1.0, 0.0, 0.5, 2.0])
    for found, want in (
        (constraints.positive, [0, 0, 1, 1]), (constraints.nonnegative, [0, 1, 1, 1]), (constraints.unit_interval, [0, 1, 1, 0]),
        (constraints.integer_interval(-1, 0), [1, 1, 0, 0]), (constraints.greater_than(0.5), [0, 0, 0, 1]),
        (constraints.greater_than_eq(0.5), [0, 0, 1, 1]), (constraints.less_than(0.0), [1, 0, 0, 0]),
        (constraints.interval(0, 1), [0, 1, 1, 0]),
    ):  # fmt: skip
        assert found.check(x).tolist() == [bool(w) for w in want], found


def test_modules_inside_are_there_once_the_package_is():
    names = [m.name for m in pkgutil.walk_packages(torch.__path__, "tengen.pytorch.")]
    reads = "import tengen.pytorch; from operator import attrgetter; [attrgetter(n)(tengen) for n in {!r}]"
    subprocess.run([sys.executable, "-c", reads.format([n.removeprefix("tengen.") for n in names])], check=True)
    assert len(names) > 60
    with pytest.raises(AttributeError, match="is it DataLoader"):
        print(torch.utils.data.DataLoder)


def test_an_import_of_what_is_not_there_says_what_stands_for_it():
    for place, says in {"ao.quantization": "tengen.quantization", "utils.tensorboard": "SummaryWriter", "sparse": "dense tensor"}.items():
        with pytest.raises(ModuleNotFoundError, match=f"No module named 'tengen.pytorch.{place.partition('.quant')[0]}'; help: .*{says}"):
            importlib.import_module(f"tengen.pytorch.{place}")
    with pytest.raises(ModuleNotFoundError, match="No module named 'tengen.pytorch.nothing'$"):
        importlib.import_module("tengen.pytorch.nothing")
    with pytest.raises(AttributeError, match="here it is tengen.save_checkpoint"):
        print(torch.distributed.checkpoint)


def test_a_machine_without_an_accelerator():
    device = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"
    assert torch.ones(1, device=device).device == "cpu" and torch.accelerator.current_accelerator() is None
    assert not torch.mps.is_available() and not torch.xpu.is_available() and torch.cpu.device_count() == 1
    for of in (torch.cuda, torch.xpu, torch.mps, torch.accelerator):
        of.empty_cache()
        assert of.device_count() == 0 and (of is torch.accelerator or of.manual_seed(1) is None)
    torch.accelerator.synchronize(), torch.cpu.synchronize()
    assert torch.cuda.memory_stats() == {} and issubclass(MemoryError, torch.cuda.OutOfMemoryError)
    for make in (torch.cuda.Event, torch.cuda.Stream, torch.cuda.get_device_capability):
        with pytest.raises(DeviceError, match="there is no GPU here"):
            make()


def test_what_programs_say_to_the_compiler():
    torch._dynamo.config.suppress_errors = True
    torch._dynamo.reset()
    x = torch.ones(2)
    torch._dynamo.mark_dynamic(x, 0)
    made = torch._dynamo.optimize("inductor")(lambda x: x * 2 if torch._dynamo.is_compiling() else x)
    assert made(x).tolist() == [2.0, 2.0] and not torch._dynamo.is_compiling()
    step = lambda x: torch.cond(x.sum() > 2, lambda x: x + 1, lambda x: x - 1, (x,))
    for f in (step, torch.compile(step)):
        assert f(x).tolist() == [0.0, 0.0] and f(x * 2).tolist() == [3.0, 3.0]
    with pytest.raises(AttributeError, match="_dynamo.*is it optimize"):
        print(torch._dynamo.optimise)
