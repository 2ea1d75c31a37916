"""Fuzzing of the ONNX reader with atheris: python benchmarks/fuzz/fuzz_onnx.py [seconds] [folder of models]

Inputs are models whose protos are mutated: nodes, attributes, names, shapes, types, arrays, graphs inside of nodes; now and then bytes.
Whatever they hold, reading gives a network, or one FileFormatError or ArgumentError, within a second and 64 MB beside twice the file;
recording a network that was read gives a program or an error of Tengen's or Python's arithmetic, and no file but the model is opened.
It prints the count of executions, and how many were read, recorded and refused.
"""

from __future__ import annotations

import os
import random
import resource
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

os.environ.setdefault("TENGEN_CACHE", "0")
os.environ.setdefault("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "upb")
import atheris
import onnx
from onnx import parser

import tengen.deploy.dump
import tengen.fft
import tengen.functional
import tengen.linalg
import tengen.module  # noqa: F401  (these first, so that the reader alone is instrumented)

with atheris.instrument_imports(include=["tengen.interop.onnx"]):
    from tengen.interop.onnx import load as loading
    from tengen.interop.onnx import reader, to_module

from tengen.base.errors import ArgumentError, FileFormatError, TengenError

SLOWEST_S, SPARE_MB = 5.0, 64
ONES = lambda n: "{" + ", ".join("1" * n) + "}"
SEEDS = [
    "net (float[n, 3] x) => (float[n, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { a = MatMul(x, w) b = Relu(a) y = Softmax <axis = 1> (b) }",
    f"""net (float[1, 2, 5, 5] x) => (float[1, 3, k, l] y) <float[3, 2, 3, 3] w = {ONES(54)}>
       {{ y = Conv <pads = [1, 1, 1, 1]> (x, w) }}""",
    """net (float[2] x, bool c) => (float[2] y) { y = If <then_branch = a () => (float[2] p) { p = Neg(x) },
       else_branch = b () => (float[2] q) { q = Abs(x) }> (c) }""",
    """net (float[2] x) => (float[2] y) { three = Constant <value = int64 {3}> () yes = Constant <value = bool {1}> ()
       y = Loop <body = f (int64 i, bool g, float[2] v) => (bool h, float[2] w) { h = Identity(g) w = Add(v, v) }> (three, yes, x) }""",
    """net (float[2, 3, 4] x) => (float[k] y) { s = Shape(x) z = Constant <value_ints = [-1]> () t = Transpose <perm = [2, 0, 1]> (x)
       y = Reshape(t, z) }""",
    f"""net (float[4, 1, 3] x) => (float[4, 1, 1, 2] y) <float[1, 8, 3] w = {ONES(24)}, float[1, 8, 2] r = {ONES(16)}>
       {{ y = LSTM <hidden_size = 2> (x, w, r) }}""",
    f"""net (float[1, 2, 5, 5] x) => (float y)
       <float s = {{0.1}}, float t = {{0.2}}, uint8 z = {{3}}, int8[3, 2, 1, 1] w = {ONES(6)}, int8 n = {{0}}> {{
       q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) k = DequantizeLinear(w, s, n) c = Conv(d, k) r = Relu(c)
       p = QuantizeLinear(r, t, z) e = DequantizeLinear(p, t, z) a = Add(e, e) b = QuantizeLinear(a, t, z) f = DequantizeLinear(b, t, z)
       m = MaxPool <kernel_shape = [2, 2]> (f) o = QuantizeLinear(m, t, z) y = DequantizeLinear(o, t, z) }}""",
    f"""net (float[2, 3, 4] q, float[2, 4, 5] k, float[2, 5, 2] v) => (float[2, 3, 2] y) <float[3, 5] m = {ONES(15)}> {{
       f = Constant <value = float {{0.5}}> () a = Mul(q, f) b = Mul(f, k) s = MatMul(a, b) t = Mul(s, f) u = Add(t, m)
       w = Softmax <axis = -1> (u) y = MatMul(w, v) }}""",
    """net (float[n, 3] x) => (float[n, 3] y) { r = Constant <value = float {1.4142135}> () h = Constant <value = float {0.5}> ()
       one = Constant <value = float {1.0}> () d = Div(x, r) e = Erf(d) p = Add(e, one) g = Mul(x, p) y = Mul(g, h) }""",
    """net (float[n] x) => (float[k] y) { zero = Constant <value = float {0.0}> () one = Constant <value = float {1.0}> ()
       at = Constant <value = int64 {0}> () s = Shape(x) d = Gather(s, at) f = Cast <to = 1> (d) r = Range(zero, f, one) y = Add(r, r) }""",
    """net (float[n] x) => (float[k] y) <int64[1] to = {9}, int64[1] front = {0}> { s = Shape(x) d = Sub(to, s) m = Max(d, front)
       p = Concat <axis = 0> (front, m) y = Pad(x, p) }""",
]  # fmt: skip
WORDS = ["", "x", "y", "w", "a", "Relu", "Conv", "Reshape", "If", "Loop", "Scan", "com.microsoft", "ai.onnx.ml", "../../etc/passwd", "a" * 300]
NUMBERS = [0, 1, -1, 2, 3, 7, 255, 1 << 16, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63)]
OPS = sorted({s.name for s in onnx.defs.get_all_schemas_with_history()})


def seeds(folder: str | None) -> list[bytes]:
    """Models in ONNX's text form, and those of a folder."""
    found = [parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]>\n{text}').SerializeToString() for text in SEEDS]
    return found + [p.read_bytes() for p in sorted(Path(folder).glob("*.onnx"))] if folder else found


def messages(m, depth: int = 0):
    """All messages inside of one, with itself."""
    yield m
    if depth < 12:
        for f, v in m.ListFields():
            if f.type == f.TYPE_MESSAGE:
                for inner in v if f.is_repeated else (v,):
                    yield from messages(inner, depth + 1)


def value(r: random.Random, f, old):
    """Another value of a field."""
    if f.type in (f.TYPE_STRING, f.TYPE_BYTES):
        text = r.choice([*WORDS, r.choice(OPS)])
        return text if f.type == f.TYPE_STRING else text.encode() if r.random() < 0.5 else r.randbytes(r.randrange(40))
    if f.type in (f.TYPE_FLOAT, f.TYPE_DOUBLE):
        return r.choice([0.0, 1.0, -1.0, 1e30, float("inf"), float("nan")])
    if f.type == f.TYPE_ENUM:
        return r.choice([v.number for v in f.enum_type.values])
    if f.type == f.TYPE_INT32:
        return r.choice([n for n in NUMBERS if -(1 << 31) <= n < 1 << 31] + list(range(24)))
    if f.type == f.TYPE_UINT64:
        return r.choice([abs(n) for n in NUMBERS])
    return r.choice(NUMBERS) if r.random() < 0.6 else (old + r.randrange(-2, 3) if isinstance(old, int) and abs(old) < 1 << 40 else 5)


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """A model with a few of its fields changed, removed, repeated or copied from elsewhere in it."""
    r = random.Random(seed)
    if r.random() < 0.05:
        return bytes(atheris.Mutate(data, max_size))
    try:
        m = onnx.ModelProto.FromString(data)
    except Exception:
        return r.choice(STARTS)
    for _ in range(r.randrange(1, 6)):
        all_ = list(messages(m))
        target = r.choice(all_)
        fields = list(target.DESCRIPTOR.fields)
        f = r.choice(fields)
        try:
            if f.is_repeated:
                held = getattr(target, f.name)
                how = r.random()
                if how < 0.3 and len(held):
                    del held[r.randrange(len(held))]
                elif f.type == f.TYPE_MESSAGE:
                    others = [x for x in all_ if x.DESCRIPTOR is f.message_type and x is not target and x.ByteSize() < 2000]
                    if others:
                        held.add().ParseFromString(r.choice(others).SerializeToString())  # never a part of itself
                    elif how < 0.6:
                        held.add()
                elif how < 0.6 or not len(held):
                    held.append(value(r, f, 0))
                else:
                    i = r.randrange(len(held))
                    held[i] = value(r, f, held[i])
            elif f.type == f.TYPE_MESSAGE:
                others = [x for x in all_ if x.DESCRIPTOR is f.message_type and x.ByteSize() < 2000]
                if others:
                    getattr(target, f.name).ParseFromString(r.choice(others).SerializeToString())
            elif r.random() < 0.15:
                target.ClearField(f.name)
            else:
                setattr(target, f.name, value(r, f, getattr(target, f.name)))
        except (ValueError, TypeError):
            pass
    made = m.SerializeToString()
    return made if len(made) <= max_size else data


counts: Counter[str] = Counter()
began = time.monotonic()
PLAIN = (TengenError, ValueError, TypeError, IndexError, KeyError, ZeroDivisionError, OverflowError, MemoryError)


def one(data: bytes) -> None:
    """Reads a model, and records what was read where that is small."""
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    counts["executions"] += 1
    try:
        source = reader.read(data)
    except FileFormatError:
        counts["refused"] += 1
        return after(start, before, data)
    after(start, before, data)
    try:
        net = to_module(data)
    except (ArgumentError, FileFormatError):
        counts["unknown operators"] += 1
        return None
    counts["read"] += 1
    if counts["read"] % 4 or any(n.op in ("Loop", "Scan") for n in source.graph.nodes):
        return None  # recording loops of any length takes as long as they say
    assert net is not None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loading(data)
        counts["recorded"] += 1
    except PLAIN:
        counts["not recorded"] += 1
    return None


def after(start: float, before: int, data: bytes) -> None:
    """The bounds on time and memory of reading."""
    assert time.monotonic() - start < SLOWEST_S, f"reading {len(data)} bytes took {time.monotonic() - start:.1f} s"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 2 * len(data) / 1024 + SPARE_MB * 1024, f"reading {len(data)} bytes took {grown} KB"


def main() -> None:
    """Runs for so many seconds, and says what happened."""
    global STARTS
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    STARTS = seeds(sys.argv[2] if len(sys.argv) > 2 else None)
    corpus = Path(os.environ.get("TMPDIR", "/tmp")) / f"fuzz-onnx-{os.getpid()}"
    corpus.mkdir(mode=0o700)
    for i, s in enumerate(STARTS):
        (corpus / str(i)).write_bytes(s)
    flags = [f"-max_total_time={seconds}", "-timeout=60", "-rss_limit_mb=4096", "-max_len=20000", "-print_final_stats=1", "-verbosity=0"]

    def told(data: bytes) -> None:
        one(data)
        if time.monotonic() - began > told.next:
            told.next += 15
            print(f"{time.monotonic() - began:.0f} s: {dict(counts)}", flush=True)

    told.next = 15.0
    atheris.Setup([sys.argv[0], *flags, str(corpus)], told, custom_mutator=mutate)
    atheris.Fuzz()


STARTS: list[bytes] = []
if __name__ == "__main__":
    main()
