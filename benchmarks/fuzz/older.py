"""Fuzzing of older opsets of ONNX with atheris: python benchmarks/fuzz/older.py [seconds]

Inputs are models of one operator (`tests/interop/older_cases.py`): its dtypes, shapes, attributes and numbers are drawn from the bytes. In each
opset that says such a model ONNX's own evaluator gives what it gives in opset 18. It prints the count of executions, and now and then how
many forms were compared for each operator.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from pathlib import Path

import atheris

import tengen.interop.onnx.load  # noqa: F401  (first, so that what writes older opsets alone is instrumented)

for name in ("older", "opsets"):
    del sys.modules[f"tengen.interop.onnx.{name}"]
sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "tests" / "interop")]
with atheris.instrument_imports(include=["tengen.interop.onnx.older", "tengen.interop.onnx.opsets"]):
    import older_cases

found: Counter[str] = Counter()


def one(data: bytes) -> None:
    """Tries a model."""
    made = older_cases.case(atheris.FuzzedDataProvider(data).ConsumeIntInRange)
    for opset, older in older_cases.forms(made):
        have = older_cases.reference(older, made.feeds)
        if have is None:
            continue
        found[made.op] += 1
        if why := older_cases.differs(made.want, have):
            raise AssertionError(f"{made.op} in opset {opset}: {why}\n{made.model}")
        if not found.total() % 5000:
            print(dict(found), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    seconds = int(float(sys.argv[1])) if len(sys.argv) > 1 else 60
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", "-max_len=96", "-len_control=0", "-print_final_stats=1", "-verbosity=0"], one)
    atheris.Fuzz()
