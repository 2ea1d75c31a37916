"""Small modules of PyTorch's that programs import: `compiler`, `version`, `utils.hooks`, `utils._pytree`, `nn.utils.stateless`."""

from collections import OrderedDict, namedtuple

import pytest

import tengen.pytorch as torch
from tengen.pytorch.nn.utils.stateless import functional_call
from tengen.pytorch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_map_only, tree_unflatten
from tengen.pytorch.utils.hooks import RemovableHandle


def test_code_knows_whether_it_is_compiled_and_parts_of_it_are_not():
    seen = []

    @torch.compiler.disable
    def log(x):
        seen.append(x.tolist())
        return x * 3

    @torch.compiler.disable(recursive=False)
    def other(x):
        return x

    @torch.compile
    def step(x):
        y = x + 1 if torch.compiler.is_compiling() else x
        return other(log(y)) - 1

    assert [step(torch.tensor([v])).tolist() for v in (1.0, 2.0)] == [[5], [8]] and seen == [[2], [3]]
    assert not torch.compiler.is_compiling() and torch.compiler.allow_in_graph(log) is log


def test_nests_and_the_rest():
    Pair = namedtuple("Pair", "a b")
    nest = OrderedDict(x=[1, (2, None)], y=Pair(3, {}))
    leaves, spec = tree_flatten(nest)
    built = tree_unflatten(leaves, spec)
    assert leaves == tree_leaves(nest) == [1, 2, None, 3] and built == nest and type(built) is OrderedDict
    assert tree_map(lambda a, b: a + b, (1, [2]), (3, [4])) == (4, [6])
    assert tree_map_only(int, lambda v: -v, {"a": 1, "b": "c"}) == {"a": -1, "b": "c"}
    assert tree_map(len, [(1, 2), (3,)], is_leaf=lambda v: isinstance(v, tuple)) == [2, 1]
    with pytest.raises(ValueError, match="3 leaves for a structure that has 4"):
        tree_unflatten(leaves[:3], spec)
    net = torch.nn.Linear(2, 1)
    assert isinstance(net.register_forward_hook(lambda *a: None), RemovableHandle)
    doubled = {n: p * 2 for n, p in net.named_parameters()}
    assert functional_call(net, doubled, (torch.ones(1, 2),)).item() == pytest.approx(2 * net(torch.ones(1, 2)).item(), rel=1e-6)
    assert torch.version.cuda is None and torch.__version__ == torch.version.__version__
