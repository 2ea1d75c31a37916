"""Expressions by chance: machine code gives the interpreter's bits."""

import ctypes

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_kernels import DTYPES, Scope

from tengen.base.dtype import bool_
from tengen.base.errors import VerifyError
from tengen.codegen.llvm import emit_module
from tengen.codegen.targets import Target
from tengen.loops.builder import Builder
from tengen.loops.interp import interpret
from tengen.loops.lang import LANES, Expr
from tengen.runtime.cache import compiled
from tengen.runtime.compile import load_object


def shows_nan_bits(e: Expr) -> bool:
    """Whether the bits of a NaN, which mean nothing, could reach the result: through a bitcast of a float."""
    seen, stack = set(), [e]
    while stack:
        x = stack.pop()
        if x.op == "bitcast" and x.args[0].dtype.is_float:
            return True
        if x not in seen:
            seen.add(x)
            stack.extend(x.args)
    return False


def inputs(rng: np.random.Generator) -> list[np.ndarray]:
    """16 values of each dtype: small ones, large ones, and random bits."""
    arrays = []
    for d in DTYPES:
        if d is bool_:
            arrays.append(rng.integers(0, 2, LANES, np.uint8))
            continue
        a = np.frombuffer(rng.bytes(LANES * d.size), d.numpy).copy()
        a[: LANES // 2] = rng.integers(0, 9, LANES // 2).astype(d.numpy)
        arrays.append(rng.permutation(a))
    return arrays


def run_compiled(kernel, arrays: list[np.ndarray]) -> None:
    loaded = load_object(compiled(emit_module([kernel], Target.host()), Target.host()), Target.host())
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(loaded.address(kernel.name))
    call((ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays)), (ctypes.c_int64 * 1)(), 0, 1)


@given(st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_machine_code_agrees_with_the_interpreter(data):
    k = Builder("chance")
    s = Scope(data.draw)
    buffers = [k.input(f"b{i}", d) for i, d in enumerate(DTYPES)]
    s.known = [k.load(b, 0, lanes) for b in buffers for lanes in (1, LANES)]
    outs, empty = [], []
    for i in range(4):
        d, lanes = data.draw(st.sampled_from(DTYPES)), data.draw(st.sampled_from([1, LANES]))
        e = s.expr(d, lanes, 5)
        if not shows_nan_bits(e):
            outs.append(k.output(f"y{i}", d))
            empty.append(np.zeros(LANES, np.uint8 if d is bool_ else d.numpy))
            k.store(outs[-1], 0, e)
    kernel = k.build()
    given_ = inputs(np.random.default_rng(data.draw(st.integers(0, 1 << 32))))
    want, got = [a.copy() for a in empty], [a.copy() for a in empty]
    try:
        interpret(kernel, [*given_, *want])
    except VerifyError:  # an index division outside of its domain
        return
    run_compiled(kernel, [*given_, *got])
    for g, w in zip(got, want):
        with np.errstate(invalid="ignore"):  # NumPy warns of some NaNs of bfloat16
            nan = (g != g) & (w != w)
        assert (nan | (g.view(np.uint8).reshape(LANES, -1) == w.view(np.uint8).reshape(LANES, -1)).all(1)).all(), (g, w)
