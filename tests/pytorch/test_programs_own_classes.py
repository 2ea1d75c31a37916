"""What programs take from the corners of PyTorch: distributions of their own, functions of lists, bases of layers, questions about autocast;
and hooks with keywords under `torch.compile`."""

import math
import re

import pytest

import tengen.pytorch as torch
from tengen.pytorch import distributions as D
from tengen.pytorch import nn
from tengen.pytorch.distributions import constraints
from tengen.pytorch.distributions.utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits


class Laplacian(D.Distribution):
    arg_constraints = {"mu": constraints.real, "b": constraints.positive}
    support = constraints.real
    has_rsample = True
    computed = 0

    def __init__(self, mu, b, validate_args=None):
        self.mu, self.b = broadcast_all(mu, b)
        super().__init__(self.mu.size(), validate_args=validate_args)

    @lazy_property
    def log_norm(self):
        Laplacian.computed += 1
        return torch.log(2 * self.b)

    def log_prob(self, v):
        if self._validate_args:
            self._validate_sample(v)
        return -self.log_norm - (v - self.mu).abs() / self.b


def test_a_distribution_of_ones_own():
    d = Laplacian(torch.zeros(3), 0.5)
    assert d.batch_shape == (3,) and d.log_prob(torch.ones(3)).tolist() == [-2.0] * 3 and d.log_prob(torch.ones(3)).shape == (3,)
    assert Laplacian.computed == 1
    with pytest.raises(ValueError, match=re.escape("Laplacian: b must be")):
        Laplacian(0.0, torch.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match=re.escape("Laplacian: a value must be")):
        d.log_prob(torch.full((3,), math.nan))
    unchecked = Laplacian(0.0, torch.tensor([1.0, -1.0]), validate_args=False)
    assert unchecked.batch_shape == (2,) and math.isnan(unchecked.log_prob(torch.tensor(math.nan))[0].item())
    assert torch.compile(lambda x: Laplacian(x, 0.5).log_prob(x + 1))(torch.zeros(3)).tolist() == [-2.0] * 3


def test_a_parameter_whose_set_depends_on_another_is_not_looked_at():
    class Between(D.Distribution):
        arg_constraints = {"low": constraints.dependent, "high": constraints.dependent}

        def __init__(self, low, high):
            self.low, self.high = broadcast_all(low, high)
            super().__init__(self.low.shape)

    assert Between(0.0, torch.ones(2)).batch_shape == (2,)


def test_probabilities_and_their_logarithms():
    a, b = broadcast_all(1, torch.ones(2, dtype=torch.float64))
    assert a.dtype == torch.float64 and a.shape == b.shape == (2,)
    p = torch.tensor([0.25, 0.75])
    assert torch.allclose(logits_to_probs(probs_to_logits(p, True), True), p) and torch.allclose(logits_to_probs(probs_to_logits(p)), p)
    assert torch.isfinite(probs_to_logits(torch.tensor([0.0, 1.0]), True)).all()


def test_functions_of_lists():
    average, now = [torch.zeros(2), torch.zeros(3)], [torch.ones(2), torch.full((3,), 2.0)]
    torch._foreach_mul_(average, 0.5)
    torch._foreach_add_(average, now, alpha=0.5)
    assert [x.tolist() for x in average] == [[0.5] * 2, [1.0] * 3]
    torch._foreach_lerp_(average, now, 0.5)
    torch._foreach_mul_(average, [2.0, 3.0])
    assert [x.tolist() for x in average] == [[1.5] * 2, [4.5] * 3]
    assert [x.item() for x in torch._foreach_norm([torch.tensor([3.0, 4.0])])] == [5.0]
    with pytest.raises(AttributeError, match="_foreach_nothing"):
        torch._foreach_nothing([])


def test_bases_of_layers():
    conv, drop = nn.modules.conv._ConvNd, nn.modules.dropout._DropoutNd
    made = [nn.Conv1d(1, 1, 1), nn.Conv3d(1, 1, 1), nn.ConvTranspose2d(1, 1, 1), nn.Linear(1, 1), nn.Dropout2d()]
    assert [isinstance(m, conv) for m in made] == [True, True, True, False, False] and isinstance(made[-1], drop)
    assert isinstance(nn.InstanceNorm1d(2), nn.modules.instancenorm._InstanceNorm)


def test_what_autocast_says_of_itself():
    assert not torch.is_autocast_enabled() and not torch.is_autocast_cpu_enabled() and torch.get_autocast_dtype("cpu") == torch.bfloat16
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.is_autocast_enabled("cpu") and torch.get_autocast_cpu_dtype() == torch.float16 and not torch.is_autocast_enabled()
    assert torch.get_autocast_gpu_dtype() == torch.float16


def test_the_older_way_to_set_the_default_dtype():
    try:
        torch.set_default_tensor_type("torch.DoubleTensor")
        assert torch.ones(1).dtype == torch.float64
    finally:
        torch.set_default_tensor_type(torch.FloatTensor)
    with pytest.raises(TypeError, match=re.escape("set_default_tensor_type(float64): no class of tensors")):
        torch.set_default_tensor_type(torch.float64)


@pytest.mark.parametrize("kind", ["with_kwargs", "always_call", "pre"])
def test_what_hooks_read_and_write_under_compile(kind):
    seen, factor = [], [2.0]

    def hook(module, given, *rest):
        seen.append(type(module).__name__)
        return ((given[0] * factor[0],), rest[0]) if kind == "pre" else rest[-1] * factor[0]

    net = nn.Linear(1, 1, bias=False)
    nn.init.ones_(net.weight)
    if kind == "pre":
        net.register_forward_pre_hook(hook, with_kwargs=True)
    else:
        net.register_forward_hook(hook, **{kind: True})
    run = torch.compile(net)
    values = [run(torch.ones(1, 1)).item() for _ in range(3)]
    factor[0] = 3.0
    assert [*values, run(torch.ones(1, 1)).item()] == [2.0, 2.0, 2.0, 3.0] and seen == ["Linear"] * 4
