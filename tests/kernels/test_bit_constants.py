"""Constants of the kernels: those that decide bits stand in one file, all others change none, and say their unit.

A constant that decides a bit and does not stand in `kernels/numerics.py` is found by what its change does: `FREE` changes free
constants of each strategy and compares bits; `DECIDE` changes those of the file, and expects other bits."""

import ast
import functools
import importlib
import io
import re
import tokenize
from pathlib import Path

import numpy as np
import pytest
from exhaustive import but
from launching import array_of
from machine import Compiled

from tengen.base.dtype import float32, uint32
from tengen.codegen.targets import Target
from tengen.compiler.building import build
from tengen.kernels import numerics
from tengen.kernels.attention.forward import attention
from tengen.kernels.attention.integers import attention_int
from tengen.kernels.contraction.contract import contract
from tengen.kernels.convolution import (
    depthwise,
    few_channels,
    few_channels_transposed,
    few_channels_weights,
    few_outputs,
    winograd,
)
from tengen.kernels.convolution.winograd_weights import winograd_weights
from tengen.kernels.lowering import Lowering
from tengen.kernels.pointwise import copy, pointwise
from tengen.kernels.reduction.reduce import reduce
from tengen.kernels.reduction.scan import scan
from tengen.kernels.source import Elementwise, Leaf
from tengen.loops.interp import evaluate
from tengen.loops.lang import const
from tengen.ops.rng import philox
from tengen.runtime import environment

HOST = Target.host()
TARGETS = [Target.named(name) for name in ("x86-64-v3", "x86-64-v4", "aarch64")]
ROOT = Path(numerics.__file__).resolve().parent.parent
FOLDERS = ("kernels", "ops", "passes")  # those whose constants could decide what a kernel computes
UNITS = """BYTES ELEMENTS ROWS COLUMNS TILES VECTORS PIECES BLOCKS CHANNELS LANES TERMS POSITIONS PIXELS RESULTS GRADIENTS
    CHUNKS TAPS PARTS SHARES GROUPS PANELS COST MULTIPLICATIONS PRODUCTS MULTIPLY_ADDS ROUNDS RUNS GAIN SCORE EXPONENT POINTS
    STEPS MULTIPLIERS WORD WORDS DIGITS BITS CHARACTERS DRAWS EXTENT FEATURES COUNTS INPUTS ROOTS NODES BEFORE DERIVATIVES EXPONENTIALS
    ITERATIONS GROWTH STRETCHES SWEEPS FLOPS REGISTERS KEYS PAIRS""".split()
NO_UNIT = {"NOWHERE", "GREATEST_PACKED", "LARGEST", "LARGEST_EXTENT", "LARGEST_SIZE", "SIXTEEN"}  # values, not amounts
NO_UNIT |= {"FACTORS", "TINY", "UNFINISHED", "KEPT", "TURN", "LIMIT", "FLAT", "LARGE", "SMALL", "UP", "DOWN", "LARGE_DIVISORS", "NEVER"}
NO_UNIT |= {"GREATEST_PAIR", "NO_POSITION"}  # of weights, of an index
NO_UNIT |= {"LEAST_SCALE", "MOST_SCALE"}  # of integers that stand for numbers: ratios
NO_UNIT |= {"ROOT_HALF", "ROOT_2_BY_PI", "POSITIVE", "SELU_ALPHA", "SELU_SCALE", "TRANSFORMS"}  # of definitions and samples
NO_UNIT |= {"INTEGER_TRANSFORMS", "INVERSE_OF_9", "MOST_IN_FLOATS", "SHARPNESS"}


def constants(path: Path) -> list[tuple[str, int]]:
    """(name, line) of the numbers that a module gives a name in capitals."""
    found, source = [], path.read_text()
    for node in ast.parse(source).body if re.search(r"^(?=\w)[\w ,=]*?\b[A-Z][A-Z\d_]+ *[,=]", source, re.M) else ():
        if not isinstance(node, ast.Assign):
            continue
        numeric = not any(isinstance(n, (ast.Attribute, ast.Lambda, ast.Compare)) for n in ast.walk(node.value))
        literal = any(isinstance(n, ast.Constant) and type(n.value) in (int, float) for n in ast.walk(node.value))
        for target in node.targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            capitals = [n.id for n in names if isinstance(n, ast.Name) and n.id.isupper()]
            found += [(name, node.lineno) for name in capitals if numeric and literal]
    return [(name, line) for name, line in found if not name.startswith("_") and len(name) > 1]


def files():
    return [p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.py")) if p.name != "numerics.py"]


def test_names_say_one_thing_and_its_unit():
    homes: dict[str, list[str]] = {}
    for path in files():
        for name, line in constants(path):
            homes.setdefault(name, []).append(f"{path.relative_to(ROOT)}:{line}")
    assert len(homes) > 100, "the search finds no constants"
    several = {name: at for name, at in homes.items() if len(at) > 1}
    assert not several, f"one name, several meanings: {several}; help: import it, or say what each one counts"
    bare = {name: at[0] for name, at in homes.items() if not set(name.split("_")) & set(UNITS) and "MULTIPLY" not in name}
    assert not (bare := {k: v for k, v in bare.items() if k not in NO_UNIT}), f"names without a unit: {bare}"


def test_what_decides_bits_stands_in_one_file():
    for path in files():
        source = path.read_text()
        there = any("contract" in line and "numerics" not in line for line in re.findall(r"^\s*[A-Z].*#.*", source, re.M))
        for token in tokenize.generate_tokens(io.StringIO(source).readline) if there else ():
            if token.type == tokenize.COMMENT and token.line.lstrip()[:1].isupper():
                assert "contract" not in token.string or "numerics" not in token.string, f"{path}: {token.line}"
    tree = ast.parse(Path(numerics.__file__).read_text())
    kinds = {type(n) for n in tree.body[1:]}
    assert kinds == {ast.ImportFrom, ast.Assign}, "only constants stand there"
    lines = Path(numerics.__file__).read_text().split("\n")
    for node in tree.body[1:]:
        if isinstance(node, ast.Assign):
            before = next(x for x in reversed(lines[: node.lineno - 1]) if " = " not in x)
            assert before.startswith("#") and not before.startswith("# ---"), f"line {node.lineno}: which bits?"


@pytest.mark.parametrize("name", [n for n in vars(numerics) if n.isupper() and n != "LANES"])
def test_every_constant_that_decides_bits_is_read(name):
    assert any(f"numerics.{name}" in p.read_text() for p in files())


def test_constants_that_are_named_exist():
    """Modules of kernels are found by name when they are used: no type checker sees a constant that is gone."""
    families, named = {x.stem for x in (ROOT / "kernels").iterdir()}, 0
    of_a_family = re.compile(rf"\b({'|'.join(map(re.escape, families))})\s*\.(\s*\w+\s*\.)*\s*[A-Z][A-Z\d_]*\b")
    for path in sorted(ROOT.rglob("*.py")):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)) if of_a_family.search(source) else ():
            if not (isinstance(node, ast.Attribute) and node.attr.isupper()):
                continue
            chain = ast.unparse(node).removeprefix("kernels.").split(".")
            if chain[0] in families and len(chain) > 1:
                home = importlib.import_module(".".join(["tengen.kernels", *chain[:-1]]))
                assert hasattr(home, node.attr), f"{path}:{node.lineno}: {ast.unparse(node)}"
                named += 1
    assert named > 50


def test_kept_programs_are_of_this_file():
    """An edit of the file makes other programs: none of before is taken from the cache."""
    assert Path(numerics.__file__).resolve().relative_to(ROOT).parts[0] in environment.FLOORS


# ---- kernels -----------------------------------------------------------------------------------------------------------------


def noise(*shape, dtype="float32"):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)


def codes(rows, features):
    return np.random.default_rng(rows).integers(-128, 128, (2, rows, features)).astype("int8")


def zeros(*shape):
    return np.zeros(shape, "float32")


def last(x):
    """An image (N, C, H, W) whose memory is channels-last."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


WINDOW = few_channels.Window((3, 3), 3, (1, 1), (1, 1), (1, 1))


def _stencil(lo, x, w, out):
    phases = depthwise.convolution((3, 3), (1, 1), (1, 1), out.shape[2:])
    depthwise.stencil(lo, x, depthwise.packed_filter(lo, w), out, phases, (1, 1), (1, 1), None)


def _pixels(lo, x, w, out):
    sizes = few_outputs.sizes(lo, w, out, (1, 1))
    few_outputs.few_outputs(lo, sizes, x, w, out, [1, 1], (1, 1), None, "t")


KERNELS = {  # name -> (arrays, the result last; launches)
    "product": ([noise(150, 600), noise(600, 96), zeros(150, 96)], lambda lo, a, b, c: contract(lo, a, b, c, 0, 1, 1, 1)),
    "wide": ([noise(40, 300), noise(300, 640), zeros(40, 640)], lambda lo, a, b, c: contract(lo, a, b, c, 0, 1, 1, 1)),
    "few_rows": ([noise(3, 300), noise(300, 300), zeros(3, 300)], lambda lo, a, b, c: contract(lo, a, b, c, 0, 1, 1, 1)),
    "column": ([noise(90, 300), noise(300), zeros(90)], lambda lo, a, b, c: contract(lo, a, b, c, 0, 1, 1, 0)),
    "by_chunks": ([noise(8, 64, 64, 16), noise(64, 64, 16, 24), zeros(8, 24)],
                  lambda lo, a, b, c: contract(lo, a, b, c, 0, 1, 3, 1)),
    "channelwise": ([noise(9, 30, 48).transpose(2, 0, 1), noise(48, 30), zeros(9, 48).T],
                    lambda lo, a, b, c: contract(lo, a, b, c, 1, 1, 1, 0)),
    "sum": ([noise(5, 9000), zeros(5)], lambda lo, x, out: reduce(lo, "add", Leaf(x), out, (1,))),
    "sum_short": ([noise(20, 40), zeros(40)], lambda lo, x, out: reduce(lo, "add", Leaf(x), out, (0,))),
    "sum_down": ([noise(9000, 40), zeros(40)], lambda lo, x, out: reduce(lo, "add", Leaf(x), out, (0,))),
    "scan": ([noise(50, 300), zeros(50, 300)], lambda lo, x, out: scan(lo, "add", Leaf(x), out, 0)),
    "pointwise": ([noise(300, 300), zeros(300, 300)],
                  lambda lo, x, out: pointwise(lo, [Elementwise(lambda v: v * v, [Leaf(x)], x.shape, float32)], [out], "t")),
    "transposed": ([noise(300, 200).T, zeros(200, 300)], lambda lo, x, out: copy(lo, x, out, "t")),
    "attention": ([noise(2, 150, 24), noise(2, 170, 24) + 1, noise(2, 170, 20) - 1, zeros(2, 150, 20), zeros(2, 150)],
                  lambda lo, q, k, v, out, lse: attention(lo, q, k, v, None, out, lse, 0.3, None)),
    "attention_int": ([*map(codes, (150, 170, 170), (24, 24, 20)), np.float32([1e-4])[0, ...], np.float32([0.1])[0, ...],
                       zeros(2, 150, 20)], attention_int),
    "causal": ([noise(1, 100, 16), noise(1, 100, 16) + 1, noise(1, 100, 16) - 1, zeros(1, 100, 16), zeros(1, 100)],
               lambda lo, q, k, v, out, lse: attention(lo, q, k, v, None, out, lse, 0.3, 0)),
    "winograd": ([last(noise(2, 40, 14, 14)), noise(36, 40, 3, 3), last(zeros(2, 36, 14, 14))],
                 lambda lo, x, w, out: winograd.winograd(lo, x, w, out, 4, (1, 1), None)),
    "winograd_weights": ([last(noise(2, 40, 30, 30)), last(noise(2, 36, 30, 30)), zeros(36, 40, 3, 3)],
                         lambda lo, x, g, out: winograd_weights(lo, x, g, out, 4, (1, 1), "t")),
    "depthwise": ([last(noise(2, 40, 14, 14)), noise(40, 1, 3, 3), last(zeros(2, 40, 14, 14))], _stencil),
    "few_channels": ([last(noise(2, 3, 20, 20)), noise(20, 3, 3, 3), last(zeros(2, 20, 20, 20))],
                     lambda lo, x, w, out: few_channels.convolve(lo, x, w, out, WINDOW, None)),
    "few_channels_weights": ([last(noise(4, 3, 20, 20)), last(noise(4, 20, 20, 20)), zeros(3, 3, 3, 20)],
                             lambda lo, x, g, out: few_channels_weights.weights(lo, x, g, out, WINDOW, "t")),
    "few_channels_transposed": ([last(noise(2, 20, 10, 10)), noise(20, 3, 3, 3), last(zeros(2, 3, 20, 20))],
                                lambda lo, *a: few_channels_transposed.transposed(lo, *a, (2, 2), (1, 1), (1, 1), "t")),
    "few_outputs": ([noise(1, 8, 32, 64), noise(3, 3, 8, 2), zeros(1, 2, 32, 64)], _pixels),
}  # fmt: skip


def lowered(name: str, target) -> tuple[Lowering, dict, list[str]]:
    """The launches of a kernel, the memory of its arrays, and which of them are results."""
    arrays, launch = KERNELS[name]
    lo, memory, views = Lowering(target), {}, []
    for i, x in enumerate(arrays):
        view, flat = array_of(x, f"a{i}")
        views.append(view)
        memory[f"a{i}"] = flat.copy()
    launch(lo, *views)
    return lo, memory, [f"a{i}" for i, x in enumerate(arrays) if not x.any()]


def results(name: str) -> list[bytes]:
    """The bits of a kernel's results on this machine."""
    lo, memory, outs = lowered(name, HOST)
    Compiled(lo, memory, outs)()
    return [memory[i].tobytes() for i in outs]


def texts(name: str) -> list[str]:
    """The texts of a kernel's programs for all targets."""
    found = []
    for target in TARGETS:
        lo, memory, outs = lowered(name, target)
        found.append(build(lo, [i for i in memory if i not in outs], outs, "test").text)
    return found


@functools.cache
def by_rule(name: str) -> tuple[list[bytes], list[str]]:
    """Bits and texts with the constants as they are."""
    return results(name), texts(name)


FREE = {  # kernel -> (module, constant, another legal value)
    "product": [
        ("contraction.plans", "ROWS_BYTES", 1 << 13), ("contraction.plans", "MOST_TILE_ROWS", 5),
        ("contraction.plans", "ENOUGH_PIECES", 100), ("contraction.sharing", "PIECE_COST", 1),
        ("contraction.sharing", "READ_COST", 1000), ("contraction.register_parts", "PREFETCH_STRETCHES", 32),
        ("contraction.register_parts", "LEAST_STRETCH_POSITIONS", 64), ("contraction.register_tile", "STORED_ROWS", 1),
        ("contraction.prefetch", "CACHE_LINE_BYTES", 128),
    ],
    "few_rows": [("contraction.unpacked", "FEW_ROWS", 1), ("contraction.unpacked", "TILE_VECTORS", 1)],
    "column": [("contraction.transposed_operand", "LEAST_ROW_PIECES", 1)],
    "by_chunks": [("contraction.contract", "MOST_SHARED_RESULTS", 1), ("contraction.contract", "ADDED_RESULTS", 24)],
    "channelwise": [("contraction.channelwise", "MOST_ABREAST_ROWS", 3)],
    "sum": [("reduction.reduce", "LEAST_PIECES", 1)],
    "sum_short": [("reduction.columns", "UNROLLED_ELEMENTS", 4)],
    "sum_down": [
        ("reduction.columns", "LANE_UNROLLED_ELEMENTS", 2), ("reduction.columns", "MOST_FLAT_COLUMNS", 64),
        ("reduction.columns", "PAGE_BYTES", 64),
    ],
    "pointwise": [("pointwise", "PIECE_ELEMENTS", 64), ("axes", "STREAMED_BYTES", 0)],
    "transposed": [
        ("transposing_copy", "TILE_SIDE_ELEMENTS", 32), ("transposing_copy", "PIECE_WIDTH_ELEMENTS", 64),
        ("transposing_copy", "LEAST_TILED_EXTENT", 1 << 20),
    ],
    "attention": [
        ("attention.sizes", "LANE_BLOCK_BYTES", 1 << 10), ("attention.sizes", "MOST_LANES", 16),
        ("attention.sizes", "ENOUGH_PIECES", 64), ("attention.tiles", "MOST_FEATURE_VECTORS", 1),
        ("attention.forward", "EXPONENTIALS_ABREAST", 1),
    ],
    "attention_int": [
        ("attention.integers", "PACKED_KEYS", 16), ("attention.integers", "MOST_LANE_BLOCK_BYTES", 0),
        ("attention.integers", "MOST_FEATURE_REGISTERS", 1),
    ],
    "winograd": [
        ("convolution.winograd_sizes", "MOST_PIECE_TILES", 3), ("convolution.winograd_sizes", "MOST_PRODUCT_ROWS", 2),
        ("convolution.winograd_sizes", "UNROLLED_CHANNELS", 1), ("convolution.winograd_sizes", "MOST_IMAGE_BYTES", 1 << 17),
        ("convolution.winograd_transforms", "READ_CHANNELS", 16),
    ],
    "winograd_weights": [("convolution.winograd_weights", "UNROLLED_TILES", 1)],
    "depthwise": [("convolution.depthwise", "STENCIL_PIECES", 100), ("convolution.depthwise", "L1_WEIGHTS_BYTES", 600)],
    "few_channels": [("convolution.few_channels", "L1_STRIP_BYTES", 2000), ("convolution.few_channels", "STRIP_PIECES", 64)],
    "few_channels_weights": [("convolution.few_channels_weights", "GRADIENT_PIECE_MULTIPLY_ADDS", 1)],
    "few_channels_transposed": [("convolution.few_channels_transposed", "L2_STRIP_BYTES", 4096)],
    "few_outputs": [("convolution.few_outputs", "MOST_PLANE_VECTORS", 1), ("convolution.few_outputs", "PLANES_BYTES", 30000)],
}  # fmt: skip


@but(every=3)
@pytest.mark.parametrize("kernel", FREE)
def test_free_constants_change_code_and_no_bit(kernel, monkeypatch):
    bits, before = by_rule(kernel)
    for module, name, value in FREE[kernel]:
        with monkeypatch.context() as m:
            m.setattr(f"tengen.kernels.{module}.{name}", value)
            assert texts(kernel) != before, f"no target's kernel depends on {name}: the comparison shows nothing"
            assert results(kernel) == bits, f"{name} decides bits: its place is kernels/numerics.py"


DECIDE = [
    ("CHUNK_TERMS", 64, "product"), ("CHUNK_ELEMENTS", 1024, "sum"),
    ("CHUNK_ELEMENTS", 1024, "sum_down"), ("CHUNK_ROWS", 32, "attention"),
    ("SUMMED_TILES", {2: 32, 4: 8}, "winograd_weights"), ("GRADIENT_RUNS", 2, "winograd_weights"),
    ("GRADIENT_RUN_TILES", 1, "winograd_weights"),
    ("BLOCK_CHANNELS", 16, "winograd_weights"), ("LEAST_EXPONENT", {4: -1.0}, "attention"),
    ("LARGEST_WEIGHT", 127.0, "attention_int"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "kernel"), DECIDE, ids=lambda x: x if isinstance(x, str) else None)
def test_constants_of_the_file_decide_bits(name, value, kernel, monkeypatch):
    bits = by_rule(kernel)[0]
    monkeypatch.setattr(numerics, name, value)
    assert results(kernel) != bits


@pytest.mark.parametrize(("name", "value"), [("WINOGRAD_LEAST_GAIN", 4.0), ("WINOGRAD_MOST_CHANNELS", 63),
                                             ("WEIGHT_MULTIPLICATIONS", 10**6), ("VALUE_MULTIPLICATIONS", 10**3)])  # fmt: skip
def test_what_a_convolution_is_recorded_with(name, value, monkeypatch):
    assert winograd.pays(64, 64, 56, 56) == 4
    monkeypatch.setattr(numerics, name, value)
    assert winograd.pays(64, 64, 56, 56) == 0


@pytest.mark.parametrize("name, value", [("PHILOX_ROUNDS", 9), ("PHILOX_MULTIPLIERS", (3, 5)), ("PHILOX_KEY_STEPS", (3, 5))])
def test_what_random_numbers_are(name, value, monkeypatch):
    words = [const(0xFFFFFFFF, uint32)] * 6
    draw = lambda: [int(evaluate(w, {})) for w in philox(words[:4], words[4:])]
    assert draw() == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]  # Salmon et al., Random123's known answers
    monkeypatch.setattr(numerics, name, value)
    assert draw() != [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
