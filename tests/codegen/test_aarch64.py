"""The same kernels on an emulated ARM processor give the same bits: every op, every cast, gathers and partial accesses."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from launching import array_of
from needs import QEMU, needs
from running import same
from test_access import INDEX, gather_kernel, values
from test_dot2 import kernel as dots
from test_dot2 import operands
from test_dot2i import kernel as integer_dots
from test_dot2i import operands as integers
from test_dot4 import DOTS
from test_dot4 import kernel as byte_dots
from test_dot4 import operands as byte_groups
from test_values import COMPUTED, cast_cases, op_cases

from tengen.base.dtype import ALL, DType, int8
from tengen.codegen.llvm import emit_module
from tengen.codegen.targets import Target
from tengen.kernels.contraction.contract import contract
from tengen.kernels.contraction.formats import dot_format
from tengen.kernels.lowering import Lowering
from tengen.loops.interp import interpret
from tengen.loops.lang import as_int
from tengen.runtime.cache import compiled

# Without a C library, so that none has to be built: it reads everything, runs the kernels in place, and writes everything.
MAIN = """
typedef long i64;
typedef void kernel(void **, i64 *, i64, i64);
DECLARATIONS
static kernel *const kernels[] = { NAMES };
static char memory[BYTES + 8] __attribute__((aligned(64)));
static i64 call(i64 number, i64 a, i64 b, i64 c) {
  register i64 x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}
void _start(void) {
  i64 size = 0, done = 0, got;
  while ((got = call(63, 0, (i64)memory + size, BYTES + 8 - size)) > 0) size += got;
  char *at = memory;
  for (unsigned k = 0; k < sizeof kernels / sizeof *kernels; k++) {
    void *buffers[8];
    i64 *head = (i64 *)at, n = head[0], m = head[1], pieces = head[2];
    at += 8 * (3 + m);
    for (int i = 0; i < n; i++) { i64 bytes = *(i64 *)at; buffers[i] = at + 8; at += 8 + bytes; }
    kernels[k](buffers, head + 3, 0, pieces);
  }
  while (done < size && (got = call(64, 1, (i64)memory + done, size - done)) > 0) done += got;
  call(93, size != BYTES || done != size, 0, 0);
  for (;;) {}
}
"""


def run_emulated(folder, kernels, arrays, ints, features="", pieces=None) -> list[list[np.ndarray]]:
    """Runs each kernel once on its arrays; what the arrays hold then. features: of LLVM's, that code may use. pieces: of each kernel,
    default 1."""
    target = Target.named("aarch64")
    target = replace(target, features=target.features + features)
    (folder / "kernels.o").write_bytes(compiled(emit_module(kernels, target), target, parts=False))
    data, places = b"", []
    for xs, ns, n in zip(arrays, ints, pieces or [1] * len(kernels)):
        data += np.array([len(xs), len(ns), n, *ns], np.int64).tobytes()
        places.append([])
        for x in xs:
            padding = bytes(-x.nbytes % 8)
            data += np.int64(x.nbytes + len(padding)).tobytes()
            places[-1].append((len(data), x))
            data += x.tobytes() + padding
    names = ", ".join(k.name for k in kernels)
    main = MAIN.replace("DECLARATIONS", f"kernel {names};").replace("NAMES", names).replace("BYTES", str(len(data)))
    (folder / "main.c").write_text(main)
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-none", "-nostdlib", "-static", "-ffreestanding"]
    subprocess.run([*zig, "-O1", "main.c", "kernels.o", "-o", "main"], cwd=folder, check=True, capture_output=True)
    out = subprocess.run([QEMU, "-cpu", "max", str(folder / "main")], input=data, check=True, capture_output=True).stdout
    return [[np.frombuffer(out, x.dtype, len(x), at) for at, x in row] for row in places]


@needs("qemu", "ziglang")
def test_the_same_bits_on_arm(tmp_path):
    kernels, arrays, ints, expected = [], [], [], []

    def add(cases) -> None:
        for k, xs, want in zip(*cases):
            kernels.append(k)
            arrays.append([*xs, np.zeros_like(want), np.zeros_like(want)])
            ints.append([len(xs[0])])
            expected.append([*xs, want, want])

    for dt in COMPUTED:
        add(op_cases(dt))
    for dt in ALL:
        add(cast_cases(dt))
        add_gather(dt, kernels, arrays, ints, expected)
    xs = [x[::4].copy() for x in operands()] + [np.zeros(len(operands()[0]) // 4, "float32")]
    want = [x.copy() for x in xs]
    interpret(dots(), want, [len(xs[0])])
    add_one((dots(), xs, [len(xs[0])], want), kernels, arrays, ints, expected)
    xs = [*integers(), np.zeros_like(integers()[0])]
    want = [x.copy() for x in xs]
    interpret(integer_dots(), want, [len(xs[0])])
    add_one((integer_dots(), xs, [len(xs[0])], want), kernels, arrays, ints, expected)
    for k, got, want in zip(kernels, run_emulated(tmp_path, kernels, arrays, ints), expected):
        for a, b in zip(got, want):
            try:
                same(a, b)
            except AssertionError as e:
                raise AssertionError(f"{k.name}: {e}") from None


@needs("qemu", "ziglang")
def test_products_of_bytes_on_arm_with_and_without_instructions(tmp_path):
    for features, instructions in (("", False), (",+dotprod,+i8mm", True)):
        which = [(name, filled) for name in DOTS for filled in (False, True)]
        kernels, arrays, wanted = [byte_dots(name, filled=filled) for name, filled in which], [], []
        for k, (name, _) in zip(kernels, which):
            totals = byte_groups(name)[0]
            arrays.append([*byte_groups(name), np.zeros_like(totals)])
            wanted.append([x.copy() for x in arrays[-1]])
            interpret(k, wanted[-1], [1 << 12])
        text = emit_module(kernels, replace(Target.named("aarch64"), features="+neon" + features))
        assert all((f"neon.{x}" in text) == instructions for x in ("sdot", "usdot", "smmla", "usmmla"))
        assert instructions != ("neon.saddlp" in text)
        for got, want in zip(run_emulated(tmp_path, kernels, arrays, [[1 << 12]] * len(kernels), features), wanted):
            for a, b in zip(got, want):
                same(a, b)


@needs("qemu", "ziglang")
@pytest.mark.parametrize("sign", ["int8", "uint8"])
def test_products_of_bytes_two_rows_by_two_columns_on_arm(sign, tmp_path):
    """By SMMLA or USMMLA: what NumPy's int64 gives, of odd numbers of rows and of groups, and of several chunks."""
    features, rng = ",+dotprod,+i8mm", np.random.default_rng(3)
    target = Target.named("aarch64")
    target = replace(target, features=target.features + features)
    drawn = lambda shape, d: rng.integers(np.iinfo(d).min, np.iinfo(d).max, shape, d, endpoint=True)
    for m, k, n in ((7, 13, 19), (2, 8, 16), (33, 4200, 40)):
        a, b = drawn((m, k), sign), drawn((n, k), "int8").T
        lo, out = Lowering(target), np.full((m, n), 7, np.int32)
        made = [array_of(x, id) for x, id in ((a, "a"), (b, "b"), (out, "out"))]
        contract(lo, *(x for x, _ in made), 0, 1, 1, 1, format=dot_format(made[0][0].dtype, "int32", int8, target))
        kernels, memory = [step.kernel for step in lo.steps], {x.id: flat for x, flat in made}
        assert f"neon.{'smmla' if sign == 'int8' else 'usmmla'}" in emit_module(kernels, target)
        memory |= {id: np.full(as_int(size), 77, dt.numpy) for id, (dt, size) in lo.temps.items()}
        for step in lo.steps:  # each reads what the one before has written
            got = run_emulated(tmp_path, [step.kernel], [[memory[id] for id in step.ids]], [[]], features, [as_int(step.kernel.pieces)])
            memory |= dict(zip(step.ids, got[0]))
        want = (a.astype("int64") @ b.astype("int64")).astype("int32")
        assert memory["out"].reshape(m, n).tolist() == want.tolist(), (m, k, n)


def add_gather(dt: DType, kernels, arrays, ints, expected) -> None:
    """The gathers and scatters of test_access, as the interpreter runs them."""
    k, xs, ns = gather_kernel(dt), [values(dt, 128), INDEX, np.zeros(600, dt.numpy)], [5, -3]
    want = [x.copy() for x in xs]
    interpret(k, want, ns)
    add_one((k, xs, ns, want), kernels, arrays, ints, expected)


def add_one(case, *lists) -> None:
    for x, to in zip(case, lists):
        to.append(x)
