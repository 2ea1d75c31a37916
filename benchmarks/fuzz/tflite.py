"""Changes TFLite files by chance, guided by the branches that the reader takes (atheris), and looks whether every one gives a network or
one of the errors that are promised. `--record` also makes programs of those that are read.

    python benchmarks/fuzz/tflite.py [--record] [-runs=100000] [-max_total_time=300] [libFuzzer's other options]

It begins with the networks that the tests keep, and with a file of each operator that they run. Prints what became of the files after every
5,000, and at the end how many were tried.
"""

import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.pop(0)  # the folder of this file, which has the name of the package that holds TFLite's schema
import atheris

from tengen.interop import onnx, torch  # noqa: F401  (what is imported before is not instrumented, which takes minutes)

with atheris.instrument_imports(include=["tengen.interop.tflite"]):
    from tengen.interop.tflite import load, to_module

from tengen.base.errors import ArgumentError, FileFormatError, TraceError

TESTS = Path(__file__).resolve().parents[2] / "tests" / "interop"
sys.path.append(str(TESTS))
import tflite_cases  # noqa: E402  (after the path is set)
from tflite_integer_ops import integers  # noqa: E402  (after the path is set)
from tflite_ops import floats  # noqa: E402  (after the path is set)

RECORD = "--record" in sys.argv
LONGEST = 20_000  # bytes
found: Counter[str] = Counter()


def one(data: bytes) -> None:
    """Tries one file. Any other error than those that are promised ends the run."""
    found["files"] += 1
    try:
        (load if RECORD else to_module)(data)
        found["networks"] += 1
    except FileFormatError:
        found["FileFormatError"] += 1
    except (ArgumentError, TraceError) as e:  # operators that are not known; shapes that depend on values
        found[type(e).__name__] += 1
    if not found["files"] % 5000:
        print(dict(found), file=sys.stderr, flush=True)


def main() -> None:
    """Runs libFuzzer from the files of the tests."""
    with TemporaryDirectory() as corpus:
        for p in (TESTS / "tflite").glob("*.tflite"):
            (Path(corpus) / p.name).write_bytes(p.read_bytes())
        for i, case in enumerate([*floats(), *integers()]):
            if len(data := tflite_cases.to_bytes(case)) <= LONGEST:
                (Path(corpus) / f"operator{i}.tflite").write_bytes(data)
        options = [a for a in sys.argv[1:] if a != "--record"]
        atheris.Setup([sys.argv[0], corpus, f"-max_len={LONGEST}", "-rss_limit_mb=4000", "-print_final_stats=1", *options], one)
        atheris.Fuzz()  # ends the process, so that the count at the end is libFuzzer's


if __name__ == "__main__":
    main()
