"""PyTorch's samples of modules and optimizers, run by both libraries; `pytorch_samples.py` runs this."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from beside_pytorch import (
    Differs,
    Found,
    Report,
    array_of,
    as_ours,
    at_path,
    compare,
    gradients_differ,
    loss_of,
    make,
    shown,
    tensor_of,
)
from pytorch_differs import DRAWN, MODULES_SKIPPED

import tengen.pytorch as ours

STEPS, PATIENCE_S = 5, 120


@contextmanager
def reported(report: Report, name: str) -> Iterator[None]:
    """What is found of one module or optimizer: it is written at the end of the block, which is a finding itself where it takes too long."""
    signal.alarm(PATIENCE_S)
    try:
        yield
    except TimeoutError:
        report.add(name, Found("hang", name, f"longer than {PATIENCE_S} s"))
    finally:
        signal.alarm(0)
    print(name, file=sys.stderr, flush=True)
    report.write()


def run_modules(report: Report, only: str | None) -> None:
    """The samples of module_db in float64: results and gradients, training and evaluating, and inputs that PyTorch refuses."""
    from torch.testing._internal.common_modules import ModuleErrorEnum, module_db

    for info in module_db:
        name = info.name
        if (only and only != name and only != name.rpartition(".")[2]) or name in MODULES_SKIPPED:
            continue
        with reported(report, name):
            for training in (True, False) if info.train_and_eval_differ else (True,):
                torch.manual_seed(0)
                samples = info.module_inputs_func(info, device="cpu", dtype=torch.float64, requires_grad=True, training=training)
                for sample in samples:
                    _one_module(report, name, info.module_cls, sample, training)
            if info.module_error_inputs_func is not None:
                for bad in info.module_error_inputs_func(info, device="cpu", dtype=torch.float64, requires_grad=False, training=True):
                    _bad_module(report, name, info.module_cls, bad, bad.error_on is ModuleErrorEnum.FORWARD_ERROR)


def _made(module_class: type, args: tuple, kwargs: dict, theirs: Any) -> Any:
    """Our module of the same class, arguments and parameters."""
    kind = at_path(ours, f"nn.{module_class.__name__}")
    args, kwargs = list(args), dict(kwargs)
    net = make(lambda: kind(*map(as_ours, args), **as_ours(kwargs)).to(ours.float64))
    known = dict(make(net.state_dict))
    state = {k: tensor_of(v) for k, v in theirs.state_dict().items() if k in known or not k.endswith("num_batches_tracked")}
    make(lambda: net.load_state_dict(state))
    return net


def _one_module(report: Report, name: str, module_class: type, sample: Any, training: bool) -> None:
    given, inputs = sample.constructor_input, sample.forward_input
    texts = [f"{', '.join(map(shown, g.args))} {shown(g.kwargs)}" for g in (given, inputs)]
    call = f"{name}({texts[0]})({texts[1]}) {'training' if training else 'evaluating'}"
    try:
        theirs = module_class(*given.args, **given.kwargs).to(torch.float64).train(training)
        before = {k: v.clone() for k, v in theirs.state_dict().items()}
    except Exception:
        return
    with report.case(name, call):
        net = _made(module_class, given.args, given.kwargs, theirs).train(training)
        try:
            torch.manual_seed(0)
            want = theirs(*inputs.args, **inputs.kwargs)
        except Exception:
            theirs.load_state_dict(before)
            return
        leaves: list = []
        args, kwargs = as_ours(inputs.args, leaves), as_ours(inputs.kwargs, leaves)
        have = make(lambda: net(*args, **kwargs))
        drawn = training and f"nn.functional.{name.rpartition('.')[2].lower()}" in DRAWN | {"nn.functional.dropout1d"}
        compare(want, have, values=not drawn)
        state = dict(make(net.state_dict))
        for key, value in theirs.state_dict().items():
            if not key.endswith("num_batches_tracked"):
                if key not in state:
                    raise Differs("structure", f"the state dict has no {key!r}")
                compare(value, state[key], what="numbers")
        if drawn:
            return
        mine = dict(net.named_parameters())
        for key, p in theirs.named_parameters():
            if key not in mine:
                raise Differs("structure", f"no parameter {key!r}")
            if p.requires_grad:
                leaves.append((p, mine[key]))
        weights: list = []
        loss = loss_of(torch, want, weights)
        if loss is not None and leaves:
            gradients_differ(leaves, loss, have, weights)


def _bad_module(report: Report, name: str, module_class: type, bad: Any, in_forward: bool) -> None:
    sample = bad.module_error_input
    given, inputs = sample.constructor_input, sample.forward_input
    inputs_text = "" if inputs is None else f"({', '.join(map(shown, inputs.args))} {shown(inputs.kwargs)})"
    with report.case(name, f"{name}({', '.join(map(shown, given.args))} {shown(given.kwargs)}){inputs_text}"):
        from pytorch_samples import refused

        kind = at_path(ours, f"nn.{module_class.__name__}")
        said = f"{bad.error_type.__name__}: {bad.error_regex}"
        if not in_forward:
            return refused(lambda: kind(*map(as_ours, given.args), **as_ours(given.kwargs)), bad.error_type, said)
        theirs = module_class(*given.args, **given.kwargs).to(torch.float64)
        try:
            theirs(*inputs.args, **inputs.kwargs)
            return
        except Exception as e:
            expected = type(e)
        try:
            net = _made(module_class, given.args, given.kwargs, theirs)
        except Differs as e:
            if e.kind == "refused":  # earlier than in PyTorch
                return
            raise
        refused(lambda: net(*as_ours(inputs.args), **as_ours(inputs.kwargs)), expected, said)


# ---- optimizers --------------------------------------------------------------------------------------------------------------


def _objective(params: list, targets: list) -> Any:
    total = None
    for i, (p, t) in enumerate(zip(params, targets)):
        part = ((p - t) ** 2 * (i + 1)).sum() + (p**4).sum() * 0.1
        total = part if total is None else total + part
    return total


def run_optimizers(report: Report, only: str | None) -> None:
    """The configurations of optim_db: parameters of float64 after each of five steps, also from the state dict in the middle."""
    from torch.testing._internal.common_optimizers import optim_db

    for info in optim_db:
        name = f"optim.{info.optim_cls.__name__}"
        if (only and only not in (name, info.optim_cls.__name__)) or info.only_supports_sparse_grads:
            continue
        with reported(report, name):
            for sample in info.optim_inputs_func(device="cpu"):
                _one_optimizer(report, name, info, sample)
            if info.optim_error_inputs_func is not None:
                for bad in info.optim_error_inputs_func(device="cpu", dtype=torch.float64):
                    _bad_optimizer(report, name, info, bad)


def _one_optimizer(report: Report, name: str, info: Any, sample: Any) -> None:
    rng = np.random.default_rng(0)
    shapes = [(3, 4), (5, 2)] if name == "optim.Muon" else [(3, 4), (5,), ()]
    starts, ends = [rng.normal(size=s) for s in shapes], [rng.normal(size=s) for s in shapes]
    kwargs = {k: v for k, v in sample.kwargs.items()}
    with report.case(name, f"{name}({shown(kwargs)}) {sample.desc}"):
        theirs = [torch.tensor(s, requires_grad=True) for s in starts]
        try:
            first = info.optim_cls(theirs, **kwargs)
        except Exception:
            return
        mine = [ours.tensor(s, requires_grad=True) for s in starts]
        kind = at_path(ours, name)
        second = make(lambda: kind(mine, **{k: as_ours(v) for k, v in kwargs.items()}))
        for step in range(STEPS):
            for library, opt, params in ((torch, first, theirs), (ours, second, mine)):
                targets = [library.tensor(e) for e in ends]

                def closure(opt: Any = opt, params: list = params, targets: list = targets) -> Any:
                    opt.zero_grad()
                    loss = _objective(params, targets)
                    loss.backward()
                    return loss

                if library is torch:
                    opt.step(closure)
                else:
                    make(lambda closure=closure: second.step(closure))
            for i, (a, b) in enumerate(zip(theirs, mine)):
                if not np.allclose(b.detach().numpy(), array_of(a), rtol=1e-11, atol=1e-12):
                    raise Differs("numbers", f"parameter {i} after step {step + 1}: {b.tolist()}, PyTorch's {a.tolist()}")


def _bad_optimizer(report: Report, name: str, info: Any, bad: Any) -> None:
    from pytorch_samples import refused
    from torch.testing._internal.common_optimizers import OptimizerErrorEnum

    sample = bad.optimizer_error_input
    if bad.error_on is not OptimizerErrorEnum.CONSTRUCTION_ERROR:
        return
    try:
        info.optim_cls(sample.params, **sample.kwargs)
        return
    except Exception as e:
        theirs = e
    with report.case(name, f"{name}({shown(sample.params)[:60]}, {shown(sample.kwargs)}) {sample.desc}"):
        kind = at_path(ours, name)
        params = as_ours(sample.params, [])
        refused(lambda: kind(params, **as_ours(sample.kwargs)), type(theirs), f"{type(theirs).__name__}: {theirs}")
