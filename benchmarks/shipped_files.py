"""Networks in ONNX and TFLite files, such as packages ship: read here, run, and compared with onnxruntime or TFLite's interpreter.

    python benchmarks/shipped_files.py FILE_OR_FOLDER ... [--sizes SHAPE ...] [--values NAME=NUMBER ...] [--seconds 1]

prints for each file the largest difference over the largest element of each output, of the program (with open extents where the file has
them, and none of them needs a number), of the module, and of the other runtime's results when its inputs move by 1e-7 (which tells a network
that is sensitive from one that is wrong); and the processor time of a run over the other runtime's, on one thread, in turns. Open extents
are filled by the first SHAPE of --sizes that fits an input's known ones (default: 1x3x96x96, 1x96x96x3, 1x3x48x160, 1x16000 and others).
An ONNX input of a name in --values is filled with that number (default: lengths and rates of 16,000); other inputs are drawn. TFLite's
results are those of its reference kernels, its time is that of XNNPACK. Exit status: 1 where a file was not read or results differ by more
than 1e-3 and ten times what a movement of the inputs does.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.update(TENGEN_NUM_THREADS="1", TENGEN_QUICK_COMPILE="0", OMP_NUM_THREADS="1")

import numpy as np

VALUES: dict[str, float] = {"sr": 16000, "waveforms_lens": 16000}
SIZES = "1x3x96x96 1x96x96x3 1x3x48x160 1x3x48x192 1x16000 1x43844x1 1x16x8 1x16 1"
Run = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
Opener = Callable[[], Run]  # a network that keeps states begins anew


def filled(shape: Sequence[Any], sizes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """A shape with numbers for its open extents, which are no ints or below 0."""
    known = [d if isinstance(d, int) and d >= 0 else None for d in shape]
    for size in sizes:
        if len(size) == len(known) and all(k in (None, s) for k, s in zip(known, size)):
            return size
    return tuple(1 if k is None else k for k in known)


def made(shape: Sequence[int], dtype: np.dtype, seed: int) -> np.ndarray:
    """Data of an input."""
    r = np.random.default_rng(seed)
    if dtype.kind == "f":
        return np.asarray(r.standard_normal(shape) * 0.3, dtype)
    if dtype.kind == "b":
        return np.ones(shape, dtype)
    return np.asarray(r.integers(-100 if dtype == np.int8 else 0, 9 if dtype.itemsize > 1 else 100, shape), dtype)


def of_onnx(path: str, sizes: Sequence[tuple[int, ...]]) -> tuple[list[np.ndarray], Opener, Opener, Opener, Opener]:
    """(Inputs; what opens the file: in onnxruntime, for its results and its time, and here, as a program and as a module)."""
    import onnxruntime

    from tengen.base.errors import TraceError
    from tengen.interop.onnx import load, to_module

    def session() -> Run:
        opened = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = [p.name for p in opened.get_inputs()]
        return lambda xs: list(map(np.asarray, opened.run(None, dict(zip(names, xs)))))

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.add_session_config_entry("session.x64quantprecision", "1")
    ports = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).get_inputs()
    kinds = [p.type.removeprefix("tensor(").removesuffix(")") for p in ports]
    dtypes = [np.dtype({"float": "float32", "double": "float64"}.get(k, k)) for k in kinds]
    shapes = [filled(p.shape, sizes) for p in ports]
    inputs = [
        np.full(s, VALUES[p.name], d) if p.name in VALUES else made(s, d, i) for i, (p, s, d) in enumerate(zip(ports, shapes, dtypes))
    ]

    def program() -> Run:
        try:
            return results(load(path))
        except TraceError:  # its parts fit each other for some numbers alone
            return results(load(path, dict(zip([p.name for p in ports], shapes))))

    return inputs, session, session, program, lambda: results(to_module(path).eval())


def of_tflite(path: str, sizes: Sequence[tuple[int, ...]]) -> tuple[list[np.ndarray], Opener, Opener, Opener, Opener]:
    """See `of_onnx`."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    from tengen.interop.tflite import load, to_module

    def interpreter(**options: Any) -> Run:
        it = Interpreter(model_path=path, num_threads=1, **options)
        for d in it.get_input_details():
            if any(e < 0 for e in d["shape_signature"]):
                it.resize_tensor_input(d["index"], filled([int(e) for e in d["shape_signature"]], sizes))
        it.allocate_tensors()
        ports[:] = it.get_input_details()

        def run(xs: Sequence[np.ndarray]) -> list[np.ndarray]:
            for d, x in zip(it.get_input_details(), xs):
                it.set_tensor(d["index"], x)
            it.invoke()
            return [it.get_tensor(d["index"]).copy() for d in it.get_output_details()]

        return run

    ports: list[dict] = []
    reference = lambda: interpreter(experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter()
    inputs = [made(d["shape"], np.dtype(d["dtype"]), i) for i, d in enumerate(ports)]
    return inputs, reference, interpreter, lambda: results(load(path)), lambda: results(to_module(path).eval())


def results(net: Callable) -> Run:
    """A network of Tengen's as a function of arrays."""

    def run(xs: Sequence[np.ndarray]) -> list[np.ndarray]:
        found = net(*xs)
        return [t.numpy() for t in (found if isinstance(found, tuple) else (found,))]

    return run


def difference(have: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> float:
    """The largest one, over the largest element of each output; of integers in steps."""
    worst = 0.0
    for h, w in zip(have, want, strict=True):
        if h.shape != w.shape or h.dtype != w.dtype:
            raise ValueError(f"an output is {h.dtype}{list(h.shape)}, the other runtime's {w.dtype}{list(w.shape)}")
        far = np.abs(h.astype(np.float64) - w.astype(np.float64))
        if w.size and not np.array_equal(h, w, equal_nan=w.dtype.kind == "f"):
            worst = max(worst, float(far.max() / (np.abs(w.astype(np.float64)).max() if w.dtype.kind == "f" else 1)))
    return worst


def moved(x: np.ndarray) -> np.ndarray:
    """An input that is another one by rounding."""
    return np.asarray(x * (1 + 1e-7 * np.random.default_rng(1).standard_normal(x.shape)), x.dtype) if x.dtype.kind == "f" else x


def ratio(mine: Run, theirs: Run, xs: Sequence[np.ndarray], seconds: float) -> str:
    """The median of processor times over the other's, in turns, and the other's."""
    spent: list[tuple[float, float]] = []
    until = time.process_time() + seconds
    while len(spent) < 5 or time.process_time() < until:
        start = time.process_time()
        mine(xs)
        middle = time.process_time()
        theirs(xs)
        spent.append((middle - start, time.process_time() - middle))
    return f"{np.median([a / b for a, b in spent[1:]]):.2f} of {np.median([b for _, b in spent]) * 1e3:.2f} ms"


def row(path: str, sizes: Sequence[tuple[int, ...]], seconds: float) -> tuple[str, bool]:
    """What is said of a file, and whether it is as it should be."""
    xs, theirs, timed, *readers = (of_onnx if path.endswith(".onnx") else of_tflite)(path, sizes)
    steps = lambda run, xs: run(xs) + run(xs)  # two, for states
    want = steps(theirs(), xs)
    sensitive = difference(steps(theirs(), [moved(x) for x in xs]), want)
    said, good = [], True
    for reader in readers:
        try:
            run = reader()
            far = difference(steps(run, xs), want)
            good, text = good and far <= max(1e-3, 10 * sensitive), f"{far:.1e}"
            said.append(text if said else f"{text}  {ratio(run, timed(), xs, seconds)}")
        except Exception as e:  # whatever it is, it is said, and the next file is tried
            good = False
            said.append(f"{type(e).__name__}: {str(e)[:200]}")
    return f"program {said[0]}  module {said[1]}  moved inputs {sensitive:.1e}", good


def files(paths: Sequence[str]) -> Iterator[str]:
    """The files, and those in folders."""
    for p in map(Path, paths):
        yield from sorted(str(f) for kind in ("onnx", "tflite") for f in p.rglob(f"*.{kind}")) if p.is_dir() else [str(p)]


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="FILE_OR_FOLDER")
    parser.add_argument("--sizes", nargs="*", default=[], metavar="SHAPE")
    parser.add_argument("--values", nargs="*", default=[], metavar="NAME=NUMBER")
    parser.add_argument("--seconds", type=float, default=1.0, help="of processor time for the comparison of times")
    args = parser.parse_args()
    VALUES.update((name, float(number)) for name, number in (v.split("=") for v in args.values))
    sizes, bad = [tuple(map(int, s.split("x"))) for s in (*args.sizes, *SIZES.split())], 0
    for path in files(args.paths):
        try:
            said, good = row(path, sizes, args.seconds)
        except Exception as e:  # the other runtime does not take the file, or the shapes
            said, good = f"not compared, the other runtime says {type(e).__name__}: {str(e)[:160]}", True
        bad += not good
        print(f"{'' if good else '! '}{Path(path).name}  {said}", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
