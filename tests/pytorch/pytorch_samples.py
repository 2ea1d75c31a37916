"""PyTorch's own samples of its operators, modules and optimizers, run by PyTorch and by `tengen.pytorch`.

``python tests/pytorch/pytorch_samples.py [--only NAME] [--dtype float32] [--parts ops,modules,optimizers] [--report FILE]`` in an environment
that has both, with `src` and `tests` on the path. What it prints is what differs; `pytorch_differs.py` lists what is meant to, with reasons.
"""

from __future__ import annotations

import argparse
import functools
import signal
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from beside_pytorch import Differs, Found, Report, as_ours, at_path, compare, gradients_differ, loss_of, make, shown
from pytorch_differs import DRAWN, PHASE, SKIPPED, reason_of

import tengen.pytorch as ours
from tengen import Tensor

sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))  # of which the samples need nothing
warnings.simplefilter("ignore")

DTYPES = "float32 float64 int64 int32 bool complex64".split()
DIFFERENTIATED = ("float64", "complex128")
SECONDS = 60


def limited(seconds: int) -> None:
    """An alarm after so many seconds; 0 for none."""
    signal.alarm(seconds)


def _late(number: int, frame: Any) -> None:
    raise TimeoutError


# ---- operators ---------------------------------------------------------------------------------------------------------------


def function_of(info: Any) -> Callable:
    """What `tengen.pytorch` has for an operator: the function of its name; a function of the samples' own file, with our library as torch."""
    op = info.op
    if isinstance(op, types.FunctionType) and op.__module__.startswith("torch.testing"):
        return types.FunctionType(op.__code__, {**op.__globals__, "torch": ours}, op.__name__, op.__defaults__, op.__closure__)
    if type(op).__name__ == "method_descriptor":
        return method(op.__name__)
    if info.name.startswith("__"):
        return lambda x, *args, **kwargs: getattr(x, info.name)(*args, **kwargs)
    return at_path(ours, info.name)


def method(name: str) -> Callable:
    """The method of this name of the first argument."""

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = getattr(x, name)
        except AttributeError:
            raise Differs("missing", f"Tensor.{name}") from None
        return bound(*args, **kwargs)

    return call


def phase_free(made: Any) -> Any:
    """Results whose signs are open, by their sizes."""
    if isinstance(made, (list, tuple)):
        return tuple(phase_free(m) for m in made)
    return abs(made) if isinstance(made, (torch.Tensor, Tensor)) and "bool" not in str(made.dtype) else made


class Operators:
    """Runs the samples of operators."""

    def __init__(self, report: Report, dtypes: list[str], most: int, reference: bool):
        self.report, self.dtypes, self.most, self.reference = report, dtypes, most, reference

    def run(self, info: Any) -> None:
        """All samples of one operator."""
        name = f"{info.name}{'.' + info.variant_test_name if info.variant_test_name else ''}"
        from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

        self.elementwise = isinstance(info, (BinaryUfuncInfo, UnaryUfuncInfo))
        self.values = info.name not in DRAWN
        self.seen = phase_free if info.name in PHASE else lambda made: made
        try:
            f = function_of(info)
        except Differs as e:
            self.report.ran[name] += 1
            return self.report.add(name, Found(e.kind, info.name, str(e)))
        for dtype in self.dtypes:
            if getattr(torch, dtype) in info.dtypes:
                for sample in self.samples(info, dtype):
                    self.one(name, info, f, sample, dtype)
        if "float32" in self.dtypes:
            self.errors(name, info, f)

    def samples(self, info: Any, dtype: str) -> Iterator[Any]:
        """At most so many samples, the first ones and then others spread over all."""
        torch.manual_seed(0)
        source = info.reference_inputs if self.reference else info.sample_inputs
        wanted = dtype in DIFFERENTIATED and info.supports_autograd
        try:
            found = list(source("cpu", getattr(torch, dtype), requires_grad=wanted))
        except Exception:
            found = list(info.sample_inputs("cpu", getattr(torch, dtype), requires_grad=wanted))
        step = max(len(found) // self.most, 1)
        chosen = found[::step][: self.most]
        yield from (s for s in chosen if not _is_sparse(s))

    def one(self, name: str, info: Any, f: Callable, sample: Any, dtype: str) -> None:
        """One sample: the function, its gradients, the method, the method that writes, and `out=`."""
        given, kwargs = (sample.input, *sample.args), sample.kwargs
        call = f"{info.name}({', '.join(map(shown, given))}{', ' if kwargs else ''}{shown(kwargs)})"
        try:
            want = info.op(*given, **kwargs)
        except Exception:
            return
        with self.report.case(name, call):
            leaves: list = []
            args, named = (as_ours(v, leaves if dtype in DIFFERENTIATED else None) for v in (given, kwargs))
            have = make(lambda: f(*args, **named))
            compare(self.seen(want), make(lambda: self.seen(have)), self.elementwise, self.values)
            if leaves and self.values:
                weights: list = []
                processed = [make(lambda made=made: sample.output_process_fn_grad(made)) for made in (want, have)]
                if (loss := loss_of(torch, processed[0], weights)) is not None:
                    gradients_differ(leaves, loss, processed[1], weights)
        if dtype in ("float32", "int64", "complex64", "bool"):
            self.method(f"x.{name}", info, want, given, kwargs, call)
            self.in_place(f"x.{name}_", info, given, kwargs, call)
        if dtype in ("float32", "int64") and info.supports_out and self.values:
            self.out(f"{name}(out=)", info, f, want, given, kwargs, call)

    def method(self, name: str, info: Any, want: Any, given: tuple, kwargs: dict, call: str) -> None:
        variant = info.method_variant
        if variant is None or not hasattr(variant, "__name__") or variant.__name__ == "<lambda>" or not isinstance(given[0], torch.Tensor):
            return
        if info.name.startswith("__"):
            return
        try:
            want = variant(*given, **kwargs)
        except Exception:
            return
        with self.report.case(name, call):
            have = make(lambda: method(variant.__name__)(*as_ours(given), **as_ours(kwargs)))
            compare(self.seen(want), make(lambda: self.seen(have)), self.elementwise, self.values)

    def in_place(self, name: str, info: Any, given: tuple, kwargs: dict, call: str) -> None:
        variant = info.inplace_variant
        if variant is None or not hasattr(variant, "__name__") or variant.__name__ == "<lambda>" or not isinstance(given[0], torch.Tensor):
            return
        x = given[0].detach().clone()
        try:
            variant(x, *given[1:], **kwargs)
        except Exception:
            return
        with self.report.case(name, call):
            mine = as_ours(given[0].detach())
            have = make(lambda: method(variant.__name__)(mine, *as_ours(given[1:]), **as_ours(kwargs)))
            if have is not mine:
                raise Differs("structure", "the method does not return the tensor itself")
            compare(x, mine, self.elementwise, self.values)

    def out(self, name: str, info: Any, f: Callable, want: Any, given: tuple, kwargs: dict, call: str) -> None:
        parts = want if isinstance(want, (tuple, list)) else (want,)
        if not all(isinstance(p, torch.Tensor) for p in parts) or self.report.ran[name] >= 4:
            return
        def places(fill: Callable) -> Any:
            made = tuple(fill(p) for p in parts)
            return made if isinstance(want, (tuple, list)) else made[0]

        try:
            info.op(*given, **kwargs, out=places(torch.empty_like))
        except Exception:
            return
        with self.report.case(name, call):
            mine = places(lambda p: ours.zeros(*p.shape, dtype=as_ours(p.dtype)))
            have = make(lambda: f(*as_ours(given), **as_ours(kwargs), out=mine))
            compare(self.seen(want), self.seen(mine), self.elementwise)
            compare(self.seen(want), self.seen(have), self.elementwise)

    def errors(self, name: str, info: Any, f: Callable) -> None:
        """Inputs that PyTorch refuses are refused, with an error that the same `except` catches."""
        if info.error_inputs_func is None:
            return
        for bad in list(info.error_inputs("cpu")):
            sample = bad.sample_input
            given, kwargs = (sample.input, *sample.args), sample.kwargs
            if _is_sparse(sample) or getattr(sample.input, "ndim", 0) > 64:  # which NumPy's arrays have not
                continue
            try:
                info.op(*given, **kwargs)
                continue
            except Exception as e:
                theirs = e
            call = f"{info.name}({', '.join(map(shown, given))}{', ' if kwargs else ''}{shown(kwargs)})"
            with self.report.case(name, call):
                said = f"{type(theirs).__name__}: {' '.join(str(theirs).split())[:160]}"
                refused(functools.partial(f, *as_ours(given), **as_ours(kwargs)), type(theirs), said)


def refused(call: Callable, kind: type, said: str) -> None:
    """Raises Differs unless call() raises an error of the kind that PyTorch raises."""
    try:
        made = call()
    except Differs:
        raise
    except kind:
        return
    except Exception as e:
        raise Differs("other error", f"{type(e).__name__}: {' '.join(str(e).split())[:160]}; PyTorch's {said}") from None
    raise Differs("not raised", f"gives {shown(made)[:100]}; PyTorch's {said}")


def _is_sparse(sample: Any) -> bool:
    leaves = torch.utils._pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return any(isinstance(v, torch.Tensor) and (v.layout is not torch.strided or v.device.type != "cpu") for v in leaves)


def run_operators(report: Report, given: argparse.Namespace) -> None:
    """The samples of op_db."""
    from torch.testing._internal.common_methods_invocations import op_db

    runner = Operators(report, given.dtype.split(","), given.most, given.reference)
    only, waiting = given.only, given.after is not None
    for info in op_db:
        if waiting:
            waiting = info.name != given.after
            continue
        if (only and only not in (info.name, info.name.rpartition(".")[2])) or (not only and SKIPPED(info.name)):
            continue
        limited(SECONDS)
        try:
            runner.run(info)
        except TimeoutError:
            report.add(info.name, Found("hang", info.name, f"longer than {SECONDS} s"))
        except Exception as e:  # of the samples themselves, which some versions of PyTorch do not make
            report.add(info.name, Found("not compared", info.name, f"{type(e).__name__}: {e}"))
        finally:
            limited(0)
        print(info.name, file=sys.stderr, flush=True)
        report.write()


def main() -> None:
    """Reads the command line, runs, and prints the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="the name of an operator, module or optimizer")
    parser.add_argument("--dtype", default=",".join(DTYPES), help="names of dtypes, with commas; others: uint8, int16, int8, float16, bfloat16")
    parser.add_argument("--parts", default="ops,modules,optimizers")
    parser.add_argument("--most", type=int, default=12, help="samples of each operator and dtype")
    parser.add_argument("--reference", action="store_true", help="the longer lists of samples")
    parser.add_argument("--after", help="of operators, those behind this one")
    parser.add_argument("--report", help="a file for the report")
    given = parser.parse_args()
    signal.signal(signal.SIGALRM, _late)
    report = Report(reason_of, given.report)
    if "ops" in given.parts:
        run_operators(report, given)
    if "modules" in given.parts or "optimizers" in given.parts:
        import module_samples

        if "modules" in given.parts:
            module_samples.run_modules(report, given.only)
        if "optimizers" in given.parts:
            module_samples.run_optimizers(report, given.only)
    report.write()
    print("\n".join(report.lines()))


if __name__ == "__main__":
    main()
