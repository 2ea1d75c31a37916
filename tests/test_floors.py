"""The house stands: imports only point down, in no circle, and not from inside functions.

Reads the sources with `ast`; nothing is imported. A new folder or top-level file needs its place in `FLOORS`.
"""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "src" / "tengen"

# Top floor first. What stands in one row may import one another as long as no circle arises. For folders in a floor see `ROOMS`.
FLOORS = [
    "__main__ cli pytorch serve visual",
    "traced_module",
    "backends hub models interop utils core serving",
    "module optimizer data quantization amp distributed",
    "array_api arrays fft custom_ops debug",
    "device functional linalg random distributions autodiff jit tuning dtr memory logger serialization",
    "deploy",
    "profiling",
    "tensor",
    "compiler",
    "runtime",
    "codegen",
    "passes",
    "ops",
    "kernels",  # below ops: an op's lowering calls the strategy that computes it
    "ir",
    "loops transport",
    "base",
]
RANK = {name: -row for row, names in enumerate(FLOORS) for name in names.split()}

# The folders inside of a floor, top row first; "." are the files that lie in the floor's own folder. A file imports from its own
# folder and from rows below it: two folders of one row know nothing of each other. A new folder needs its place here.
ROOMS = {
    "interop": [".", "migrate onnx tflite torch weights", "networks"],
    "kernels": ["linalg", "attention convolution indexing recurrent", "contraction reduction", "."],
    "codegen": [".", "targets"],
    "jit": [".", "script"],
    "module": ["quantized", "qat utils", "."],
    "core": ["tensor", "."],
    "pytorch": [".", "fx signal", "autograd backends cuda distributions nn optim utils", "amp functions"],
}
ROOM_RANK = {floor: {name: -row for row, names in enumerate(rows) for name in names.split()} for floor, rows in ROOMS.items()}

# (file, imported module): why this one import inside a function is right. Heavy third-party packages need no entry.
ALLOWED_INSIDE = {
    ("base/lazy.py", "tengen.base.other_names"): "a table that only a message needs",
    ("loops/calls.py", "tengen.loops.math"): "a large table that only kernels with calls need",
    ("ops/complex_forms.py", "tengen.ops.complex_functions"): "rules over most ops, which only complex numbers need",
    ("ops/shape.py", "tengen.ops.reduce"): "the gradient of a broadcast is a sum, and that of a sum is a broadcast",
    (
        "runtime/native.py",
        "tengen.runtime.process",
    ): "a process that imports Tengen and makes no tensor does not load the runtime",
    ("runtime/tiers.py", "tengen.runtime.finishing"): "only a process that ends before its good code is there needs it",
    ("tensor/eager.py", "tengen.tensor.recorder"): "it brings all passes, and a process that runs no composite needs neither",
    (
        "tensor/methods.py",
        "tengen.tensor.assignment",
    ): "it brings the ops of keys and indices, and many processes write no element",
    ("tensor/tape.py", "tengen.tensor.control"): "it walks the tape itself; and only loops and branches need it",
    ("tensor/tensor.py", "tengen.tensor.html"): "only notebooks ask for it",
    ("compiler/pattern_cache.py", "tengen.ir.text"): "it brings json, and only loops and branches are told by their text",
    ("tensor/eager.py", "tengen.tensor.batching"): "it calls ops, which `eager.py` runs; and only `vmap` needs it",
    ("data/dataloader.py", "tengen.tensor"): "workers and users of NumPy batches need no runtime",
}


def module_of(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(p): p for p in sorted(ROOT.rglob("*.py"))}


def floor_of(module):
    """The name in `FLOORS` that a module belongs to; None for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else None


def room_of(module):
    """The folder inside of its floor that a module lies in; "." for the floor's own folder."""
    parts = module.split(".")
    inside = len(parts) > 3 or (module in FILES and FILES[module].name == "__init__.py" and len(parts) > 2)
    return parts[2] if inside else "."


@functools.cache
def statements(source):
    """(import statement, inside a function?, for type checkers alone?) of all in a source. It is parsed once for all tests."""

    def visit(node, inside, checked):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, inside, checked
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for some, only in ((node.body, True), (node.orelse, checked)):
                for child in some:
                    yield from visit(child, inside, only)
        elif not isinstance(node, ast.expr):  # no expression holds a statement
            inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for child in ast.iter_child_nodes(node):
                yield from visit(child, inside, checked)

    return tuple(visit(ast.parse(source), False, False))


@functools.cache
def imports(module, source):
    """(imported module, line, inside a function?) of each of a source's imports of Tengen, except those for type checkers."""
    is_package = module in FILES and FILES[module].name == "__init__.py"
    found = []
    for node, inside, checked in statements(source):
        if checked:
            continue
        if isinstance(node, ast.Import):
            found += [(name.name, node.lineno, inside) for name in node.names if name.name.split(".")[0] == "tengen"]
            continue
        base = node.module or ""
        if node.level:
            here = module.split(".")
            base = ".".join(here[: len(here) - node.level + is_package] + ([base] if base else []))
        if base.split(".")[0] == "tengen":
            full = [f"{base}.{name.name}" for name in node.names]
            found += [(name if name in FILES else base, node.lineno, inside) for name in full]
    return tuple(found)


def complaints(module, source):
    """What is wrong with one file's imports, as sentences."""
    path = FILES[module].relative_to(ROOT).as_posix() if module in FILES else module
    own = floor_of(module)
    if own is None:  # the package's own file gathers the public names from every floor
        return []
    if own not in RANK:
        return [f"{path}: {own!r} stands on no floor; give it one in FLOORS of tests/test_floors.py"]
    rooms, room, found = ROOM_RANK.get(own, {".": 0}), room_of(module), []
    if room not in rooms:
        return [f"{path}: the folder {own}/{room} has no place; give it one in ROOMS of tests/test_floors.py"]
    for target, line, inside in imports(module, source):
        floor = floor_of(target)
        where = f"{path}:{line}: imports {target}"
        if floor is None:
            found.append(f"{where}, the roof; import from the floor that defines the name")
        elif floor not in RANK:
            found.append(f"{where}, which stands on no floor")
        elif floor != own and RANK[floor] > RANK[own]:
            found.append(f"{where}: up from {own} to {floor}")
        elif floor == own and (there := room_of(target)) != room and rooms.get(there, 0) >= rooms[room]:
            found.append(f"{where}: from {own}/{room} to {own}/{there}, which does not lie below it")
        if inside and (path, target) not in ALLOWED_INSIDE:
            found.append(f"{where} inside a function; put it on top of the file, or give the reason in ALLOWED_INSIDE")
    return found


def test_imports_point_down():
    wrong = [line for module, path in FILES.items() for line in complaints(module, path.read_text())]
    assert not wrong, "\n" + "\n".join(wrong)


def test_private_names_stay_in_their_module():
    taken = [
        f"{path}:{node.lineno}: {a.name} of {node.module}"
        for path in FILES.values()
        for node, _, _ in statements(path.read_text())
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tengen")
        for a in node.names
        if a.name.startswith("_") and not a.name.startswith("__")
    ]
    assert not taken, "private names of other modules:\n" + "\n".join(taken)


def test_no_circles():
    edges = {}
    for module, path in FILES.items():
        edges[module] = {t for t, _, inside in imports(module, path.read_text()) if not inside and t in FILES and t != module}
    done, walk = set(), []

    def visit(module):
        if module in walk:
            raise AssertionError("a circle of imports: " + " -> ".join([*walk[walk.index(module) :], module]))
        if module not in done:
            walk.append(module)
            for target in sorted(edges[module]):
                visit(target)
            done.add(walk.pop())

    for module in edges:
        visit(module)


def test_allowances_are_used():
    used = {
        (path.relative_to(ROOT).as_posix(), target)
        for module, path in FILES.items()
        for target, _, inside in imports(module, path.read_text())
        if inside
    }
    assert not (stale := ALLOWED_INSIDE.keys() - used), f"no longer needed in ALLOWED_INSIDE: {stale}"


@pytest.mark.parametrize("module, source, words", [
    ("tengen.ops.x", "from tengen.tensor import Tensor", "up from ops to tensor"),
    ("tengen.ops.x", "import tengen.runtime.cache", "up from ops to runtime"),
    ("tengen.ops.x", "from ..runtime import cache", "up from ops to runtime"),
    ("tengen.ops.x", "if True:\n    from tengen.kernels.lowering import Array\n    import tengen", "the roof"),
    ("tengen.base.x", "def f():\n    from tengen.base.dtype import DType", "inside a function"),
    ("tengen.base.x", "class A:\n    def f(self):\n        import tengen.base.errors", "inside a function"),
    ("tengen.attic.x", "", "stands on no floor"),
    ("tengen.base.x", "from tengen.attic import old", "stands on no floor"),
    ("tengen.kernels.attic.x", "", "kernels/attic has no place"),
    ("tengen.ops.attic.x", "", "ops/attic has no place"),
    ("tengen.kernels.x", "from tengen.kernels.contraction.tile import rule", "from kernels/. to kernels/contraction"),
    ("tengen.kernels.reduction.x", "import tengen.kernels.contraction.tile", "from kernels/reduction to kernels/contraction"),
    ("tengen.kernels.contraction.x", "from tengen.kernels.convolution import halo", "from kernels/contraction to kernels/convolution"),
    ("tengen.kernels.contraction.x", "from tengen.kernels import reduction", "from kernels/contraction to kernels/reduction"),
])  # fmt: skip
def test_the_check_sees(module, source, words):
    assert words in "\n".join(complaints(module, source))


def test_the_check_lets_pass():
    good = "import numpy\nfrom typing import TYPE_CHECKING\nfrom tengen.ir.types import Dim\nfrom tengen.ops.define import Op\n"
    good += "if TYPE_CHECKING:\n    from tengen.tensor import Tensor\ndef f():\n    import llvmlite\n"
    assert complaints("tengen.ops.x", good) == []
    down = "from tengen.kernels.contraction.tile import rule\nfrom tengen.kernels.lowering import Array\nfrom tengen.kernels import pointwise"
    assert complaints("tengen.kernels.convolution.x", down + "\nfrom tengen.kernels.convolution.halo import image") == []


# ---- how long files and functions are --------------------------------------------------------------------------------

FILE_LINES, FUNCTION_LINES = 640, 60  # at most; a file of more than 600 is to be split at the next work on it


def code_lines(function):
    """How many lines of code a function has: without its docstring, and without what stands inside of long texts (of a file in another
    language, say), which is not read as a path through the function."""
    inside = set()
    for x in ast.walk(function):
        if isinstance(x, ast.JoinedStr) or (isinstance(x, ast.Constant) and isinstance(x.value, str)):
            inside |= {*range(x.lineno + 1, x.end_lineno + 1)}
    return function.end_lineno - function.lineno + 1 - len(inside)


def long_functions(source):
    """(name, line, lines of code) of each function of a source that is too long."""
    every = (x for x in ast.walk(ast.parse(source)) if isinstance(x, ast.FunctionDef | ast.AsyncFunctionDef))
    return [(f.name, f.lineno, n) for f in every if (n := code_lines(f)) > FUNCTION_LINES]


def test_functions_can_be_read_at_once():
    found = [(p, *row) for p in FILES.values() for row in long_functions(p.read_text())]
    assert not found, "\n".join(f"{p}:{line}: {name} has {n} lines, {FUNCTION_LINES} at most" for p, name, line, n in found)


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples", "docs"])
def test_files_can_be_read_at_once(folder):
    lines = {p: p.read_text().count("\n") for p in sorted((ROOT.parent.parent / folder).rglob("*.py"))}
    assert lines and not (long := {str(p): n for p, n in lines.items() if n > FILE_LINES}), long


def test_long_functions_are_seen():
    code = "\n".join(f"    a{i} = {i}" for i in range(FUNCTION_LINES - 1))
    said = '    """A docstring\n    of three\n    lines."""\n'
    assert long_functions(f"def f():\n{code}") == [] == long_functions(f"async def f():\n{code}")
    assert long_functions(f"class A:\n  def f(self):\n{code}\n    b = 1") == [("f", 2, FUNCTION_LINES + 1)]
    assert long_functions(f"def f():\n{said}{code}") == [("f", 1, FUNCTION_LINES + 1)]  # its first line counts
    text = "    b = f'''\n" + "a line of C\n" * 100 + "'''\n"
    assert long_functions(f"def f():\n{text}    return b") == []


# ---- checks that are told to look away -------------------------------------------------------------------------------

_EXEMPTION = re.compile(r"#\s*(noqa|type:\s*ignore)(?P<codes>:\s*[A-Z]+[0-9]+(?:,\s*[A-Z]+[0-9]+)*|\[[a-z, -]+\])?(?P<rest>.*)")


def unexplained(line):
    """Whether a line exempts itself from ruff or mypy without saying from which rule and why: ``# noqa: F401  (the reason)``,
    ``# type: ignore[arg-type]  # the reason``. Exemptions that nothing needs are found by ruff's RUF100 and mypy's unused-ignore."""
    found = _EXEMPTION.search(line)
    return bool(found) and not (found["codes"] and re.fullmatch(r"\s+(\(\w.*\)|# \w.*)", found["rest"]))


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples", "docs"])
def test_exemptions_carry_a_reason(folder):
    bad = []
    for path in sorted((ROOT.parent.parent / folder).rglob("*.py*")):
        if path.suffix in (".py", ".pyi") and path != Path(__file__).resolve():
            bad += [f"{path}:{i}: {line.strip()}" for i, line in enumerate(path.read_text().splitlines(), 1) if unexplained(line)]
    assert not bad, "\n".join(bad)


def test_exemptions_are_seen():
    for line in ("import x  # noqa", "import x  # noqa: F401", "f(x)  # type: ignore", "f(x)  # type: ignore[arg-type]", "x # noqa: F401 ("):
        assert unexplained(line), line
    for line in ("import x  # noqa: F401  (why)", "f(x)  # type: ignore[arg-type]  # why", "f(x)  # a plain comment"):
        assert not unexplained(line), line


def test_the_architecture_page_names_the_folders_of_floors():
    """All that there are, but for the `ops` of importers, which are below their own folders."""
    page = (ROOT.parent.parent / "docs" / "architecture.md").read_text()
    table = page.partition("| floor | folders |")[2].partition("\n\n")[0].splitlines()[2:]
    rows = [[set(re.findall(r"`([\w.]+)`", cell)) for cell in line.split("|")[1:3]] for line in table]
    folders = {floor.pop(): inside - {"ops"} for floor, inside in rows}
    assert folders == {floor: {*" ".join(rows).split()} for floor, rows in ROOMS.items()}
    there = {p.parent.relative_to(ROOT).parts for p in ROOT.rglob("*.py")}
    assert {t for t in there if len(t) == 2} == {(f, n) for f, names in folders.items() for n in names - {"."}}
