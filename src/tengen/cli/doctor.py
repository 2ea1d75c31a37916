"""``tengen doctor``: whether this installation works here, and what would make it better."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterator

import click
import numpy as np

from tengen.base.config import config
from tengen.base.errors import TengenError
from tengen.codegen.targets import TARGET_NAMES, Target
from tengen.deploy.emulators import CannotRun, runner
from tengen.deploy.run import linked_by
from tengen.functional import matmul, softmax
from tengen.runtime import cache
from tengen.tensor import Tensor

EXTRAS = {  # of `pip install 'tengen[...]'` -> the modules that it brings, and what for
    "profile": (("tqdm", "rich", "matplotlib"), "progress bars, tables and pictures"), "data": (("PIL",), "pictures of data sets"),
    "deploy": (("ziglang",), "linking for other processors"), "onnx": (("onnx",), "ONNX files"), "tflite": (("tflite",), "TFLite files"),
    "hub": (("tokenizers",), "texts of Hugging Face's networks"), "dist": (("mpi4py",), "several processes"),
    "serve": (("starlette", "uvicorn", "prometheus_client"), "tengen serve"),
}  # fmt: skip
OK, NOTE, FAILS = "ok", "note", "fails"
COLOURS = {OK: "green", NOTE: "yellow", FAILS: "red"}
Finding = tuple[str, str, str]  # what was looked at, OK or NOTE or FAILS, and what was found


def findings() -> Iterator[Finding]:
    """Everything that is looked at, in order."""
    yield _python()
    yield _processor()
    yield _kernels()
    yield _threads()
    yield _cache()
    yield from _shipping()
    lacks = lambda modules: any(importlib.util.find_spec(name) is None for name in modules)
    missing = [f"{extra} ({use})" for extra, (modules, use) in EXTRAS.items() if lacks(modules)]
    told = f"not installed, as pip install 'tengen[{missing[0].split()[0]}]' does it: {', '.join(missing)}" if missing else "all installed"
    yield "extras", NOTE if missing else OK, told


def _python() -> Finding:
    text = ".".join(map(str, sys.version_info[:3]))
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return "python", FAILS, f"{text} runs without its global lock, which Tengen needs; help: set PYTHON_GIL=1"
    return "python", OK if sys.version_info < (3, 15) else NOTE, text


def _processor() -> Finding:
    host = Target.machine()
    features = " ".join(f for f in host.architecture.notable if host.has(f)) or "none of note"
    text = f"{host.cpu}: {features}, vectors of {host.vector_bytes} bytes"
    return "processor", OK, text


def _kernels() -> Finding:
    """A product and a softmax, compiled here, beside NumPy's."""
    a = np.random.default_rng(0).standard_normal((37, 21)).astype(np.float32)
    start = time.perf_counter()
    try:
        with config.scope(cache=False):
            got = softmax(matmul(Tensor(a), Tensor(a.T.copy())), -1).numpy()
    except (TengenError, OSError) as e:
        return "kernels", FAILS, str(e).splitlines()[0]
    seconds = time.perf_counter() - start
    scores = a.astype(np.float64) @ a.T.astype(np.float64)
    want = np.exp(scores - scores.max(-1, keepdims=True))
    error = float(np.abs(got - want / want.sum(-1, keepdims=True)).max())
    if not error < 1e-5:
        return "kernels", FAILS, f"a product and a softmax are wrong by {error:.2g}: a defect, please report it with `tengen config`"
    return "kernels", OK, f"a product and a softmax were compiled and run in {seconds:.2f} s, and are right"


def _threads() -> Finding:
    allowed = len(os.sched_getaffinity(0))
    if config.threads < allowed:
        why = "TENGEN_NUM_THREADS, OMP_NUM_THREADS or a container's limit"
        return "threads", NOTE, f"{config.threads} of {allowed} processors are used ({why})"
    return "threads", OK, f"{config.threads}, as many as this process may use"


def _cache() -> Finding:
    if not config.cache:
        return "cache", NOTE, "TENGEN_CACHE=0: every process compiles its kernels anew"
    i = cache.info()
    key = f"doctor {os.getpid()}"
    cache.put(key, b"x")
    if cache.get(key) != b"x":
        return "cache", FAILS, f"{i.path} cannot be used: every process compiles its kernels anew; help: set TENGEN_CACHE_DIR"
    return "cache", OK, f"{i.path}: {i.entries} kernels, {i.bytes / 1e6:.1f} of {i.limit / 1e6:.0f} MB"


def _shipping() -> Iterator[Finding]:
    """What `tengen verify` needs for each target, where that is not the same as for the one before."""
    said: set[tuple[str, str]] = set()
    for target in map(Target.named, TARGET_NAMES[1:]):
        lacks, by, how = [], "", ""
        try:
            by = linked_by(target)
        except CannotRun:
            lacks.append("a linker (pip install 'tengen[deploy]')")
        try:
            how = runner(target)[1]
        except CannotRun as e:
            lacks.append(str(e).split(",")[0].split(";")[0])
        if (target.arch, target.system.name) in said:
            continue
        said.add((target.arch, target.system.name))
        if lacks:
            yield f"verify {target.name}", NOTE, f"artifacts cannot be run here: {' and '.join(lacks)}"
        else:
            yield f"verify {target.name}", OK, f"artifacts are linked by {by}, and run {how if how == 'natively' else f'by {how}'}"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def doctor() -> None:
    """Looks at this installation: Python, processor, whether kernels compile and are right, threads, cache, what verifying and the
    extras need.

    Exit code 0 when everything that is needed works, 1 when something fails.

    \b
        tengen doctor
    """
    found = list(findings())
    width = max(len(what) for what, _, _ in found)
    for what, state, text in found:
        click.echo(f"{click.style(f'{state:<5}', fg=COLOURS[state], bold=True)}  {what:<{width}}  {text}")
    if any(state == FAILS for _, state, _ in found):
        sys.exit(1)
