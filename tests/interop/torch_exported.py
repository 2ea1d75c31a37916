"""PyTorch's own samples of its operators as programs of `torch.export`, beside what PyTorch computes of them.

`python tests/interop/torch_exported.py [samples of each operator] [names]`, with torch, prints the programs that hold an operator that is not
known, those whose results differ, and the counts.
"""

import collections
import re
import sys
import types
import unittest
import warnings

import torch
import torch_cases
from torch.utils import _pytree as pytree

from tengen import Tensor
from tengen.base.errors import ArgumentError
from tengen.interop.torch import load_program
from tengen.interop.torch.reader import array_of

DRAWN = {*torch_cases.RANDOM, "multinomial", "normal", "randint_like", "uniform", "exponential", "geometric", "cauchy", "log_normal"}


class Called(torch.nn.Module):
    """A call of an operator as a module, whose arguments are the call's tensors."""

    def __init__(self, op, leaves, form):
        super().__init__()
        self.op, self.leaves, self.form = op, leaves, form

    def forward(self, *tensors):
        given = iter(tensors)
        args, kwargs = pytree.tree_unflatten([next(given) if isinstance(v, torch.Tensor) else v for v in self.leaves], self.form)
        return [v for v in pytree.tree_leaves(self.op(*args, **kwargs)) if isinstance(v, torch.Tensor)]


def tried(info, sample, unknown):
    """What became of a sample: "equal", "differs", "unknown operator" or "not exported"."""
    leaves, form = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    tensors = [v for v in leaves if isinstance(v, torch.Tensor)]
    module = Called(info.op, leaves, form)
    try:
        with torch.no_grad():
            want, program = module(*(t.clone() for t in tensors)), torch.export.export(module, tuple(tensors))
    except Exception:  # what torch.export does not take
        return "not exported"
    try:
        net = load_program(program)
    except ArgumentError as e:
        found = set(re.findall(r"aten\.[\w.]+", str(e)))
        unknown.update(found)
        print(f"{info.name}: not known: {', '.join(sorted(found))}")
        return "unknown operator"
    try:
        have = net(*(Tensor(array_of(t)) for t in tensors))
        if info.name.rpartition(".")[2] not in DRAWN and "dropout" not in info.name:
            torch_cases.compare(want, have)
    except Exception as e:
        print(f"{info.name} of {[tuple(t.shape) for t in tensors]}: {type(e).__name__}: {' '.join(str(e).split())[:300]}")
        return "differs"
    return "equal"


def main(most, names):
    """Tries samples in float32 and int64."""
    sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))  # of which the samples need nothing
    from torch.testing._internal.common_methods_invocations import op_db

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    counts, unknown = collections.Counter(), collections.Counter()
    for info in op_db:
        for dtype in (torch.float32, torch.int64):
            if (names and info.name not in names) or dtype not in info.dtypes:
                continue
            samples = list(info.sample_inputs("cpu", dtype))
            for sample in [samples[i * len(samples) // most] for i in range(most)] if len(samples) > most else samples:
                leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
                if all(v.layout is torch.strided for v in leaves if isinstance(v, torch.Tensor)):
                    counts[tried(info, sample, unknown)] += 1
    print(dict(counts), unknown.most_common())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2, sys.argv[2:])
