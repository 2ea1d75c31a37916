"""Writes what is derived from the code: the op table, the table of math functions, the stubs that editors read, and where ops and
functions are defined.

    python docs/generate.py            writes the files that are not current
    python docs/generate.py --check    writes nothing; fails when one is not

In: the op registry, `loops/math.py`, the methods on `Tensor`, the names in `tengen.functional`. Out: the files of `pages()`.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill

import tengen
from tengen import functional
from tengen.loops.math import FUNCTIONS
from tengen.ops.complex_forms import load_rules
from tengen.ops.define import REGISTRY, SUBMODULES, Op
from tengen.tensor import Tensor
from tengen.tensor.methods import operators

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "tengen"
AGAIN = "`python docs/generate.py` writes this file again."
FOR_TYPES = "for editors and type checkers"
WIDTH = 128
DECLARED = (  # names by which ops declare what an attribute may be
    "Algorithm", "Axes", "Causal", "Color", "Count", "Diagonal", "DTypeLike", "Extent", "Mode", "Natural", "Naturals", "NewShape", "Number",
    "Offset", "OpenDiagonal", "Positive", "Positives", "Precision", "Shape", "Step",
)  # fmt: skip
SOURCES = {  # what annotations may name -> where the stubs import it from, in the order of imports
    "Callable": "collections.abc", "Iterable": "collections.abc", "Sequence": "collections.abc", "Any": "typing", "Literal": "typing",
    "DType": "tengen.base.dtype", **dict.fromkeys(DECLARED, "tengen.ops.attributes"), "Tensor": "tengen.tensor.tensor",
}  # fmt: skip
KNOWN = {*SOURCES, "np"} | {n for n in vars(builtins) if n[0].islower()}
ALIAS = "TensorLike = Tensor | np.ndarray | float\n"

# ---- signatures --------------------------------------------------------------------------------------------------------


def annotation(p: inspect.Parameter, op: Op | None) -> str:
    """The type of a parameter as the stubs write it. Operands of an op may be numbers and arrays, too."""
    note = "" if p.annotation is p.empty else p.annotation if isinstance(p.annotation, str) else p.annotation.__name__
    if op is not None and p.name in op.tensors:
        if "list[" in note or "Sequence[" in note:
            return "Sequence[Tensor]"
        return "TensorLike | None" if "None" in note or p.default is None else "TensorLike"
    return known(note)


def known(note: str) -> str:
    """An annotation, or Any where it names something that the stubs do not import."""
    try:
        names = {n.id for n in ast.walk(ast.parse(note, mode="eval")) if isinstance(n, ast.Name)}
    except SyntaxError:
        return "Any"
    return note if names <= KNOWN else "Any"


def signature(f: Callable, op: Op | None = None, this: bool = False) -> str:
    """``(x: TensorLike, axis: int | None = None) -> Tensor``; with `this` the first parameter becomes self."""
    sig = inspect.signature(f)
    parts: list[str] = []
    for i, p in enumerate(sig.parameters.values()):
        if this and i == 0:
            parts.append("self")
            continue
        if p.kind is p.KEYWORD_ONLY and "*" not in parts and not any(s.startswith("*") for s in parts):
            parts.append("*")
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        text = f"{star}{p.name}: {annotation(p, op)}"
        if p.default is not p.empty:
            plain = p.default is None or isinstance(p.default, (bool, int, float, str, tuple))
            text += f" = {p.default!r}" if plain else " = ..."
        parts.append(text)
    note = sig.return_annotation
    if op is not None and op.kind == "elementwise":
        note = "Tensor"
    elif note is sig.empty:
        note = "Tensor" if op is not None else "Any"
    return f"({', '.join(parts)}) -> {known(note) if isinstance(note, str) else 'None' if note is None else note.__name__}"


def summary(doc: str | None) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((inspect.cleandoc(doc or "")).split("\n\n")[0].split())


def stub(name: str, f: Callable, indent: str = "", this: bool = False, ignore: str = "") -> list[str]:
    """The lines of one function of a stub."""
    op = getattr(f, "op", None)
    head = f"{indent}def {name}{signature(f, op, this)}:"
    if len(head) + len(ignore) > WIDTH:
        opening, inner = head.index("("), head[head.index("(") + 1 : head.rindex(") ->")]
        head = f"{head[: opening + 1]}\n{indent}    {inner},\n{indent}{head[head.rindex(') ->') :]}"
        head = head.replace(", **ignored: Any,", ", **ignored: Any")  # nothing may follow **
        if any(len(line) > WIDTH for line in head.splitlines()):
            head = head.replace(f"    {inner},", "".join(f"    {p},\n{indent}" for p in split(inner)).rstrip())
    doc = summary(getattr(op, "doc", None) or f.__doc__)
    if not doc:
        return [f"{head} ...{ignore}"]
    lines = wrap(f'"""{doc}"""', indent + "    ")
    return [head + ignore, *lines]


def split(text: str) -> list[str]:
    """The parameters of a signature, one by one: at commas outside brackets."""
    found, depth, at = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            found.append(text[at:i].strip())
            at = i + 1
    return [*found, text[at:].strip()]


def wrap(text: str, indent: str) -> list[str]:
    """The words of a text in lines of bounded width."""
    lines, line = [], indent
    for word in text.replace("\\", "\\\\").split(" "):
        if len(line) + len(word) > WIDTH - 1 and line.strip():
            lines.append(line.rstrip())
            line = indent
        line += word + " "
    return [*lines, line.rstrip()]


def imports(lines: list[str], more: Sequence[str] = ()) -> list[str]:
    """The import lines that a stub of these lines needs; `more` are further ones of the package."""
    used = set(re.findall(r"\w+", "\n".join([ALIAS, *(s for s in lines if "def " in s or ": " in s)])))
    by_module: dict[str, list[str]] = {}
    for name, module in SOURCES.items():
        if name in used:
            by_module.setdefault(module, []).append(name)
    made = {m: f"from {m} import {', '.join(names)}" for m, names in by_module.items()}
    standard = [line for m, line in made.items() if not m.startswith("tengen")]
    own = sorted([*(line for m, line in made.items() if m.startswith("tengen")), *more])
    return [*standard, "", "import numpy as np", "", *own, "", ALIAS]


# ---- stubs -------------------------------------------------------------------------------------------------------------


def own_names() -> set[str]:
    """What `tensor.py` itself defines on Tensor."""
    tree = ast.parse((PACKAGE / "tensor" / "tensor.py").read_text())
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Tensor").body
    return {n.name for n in body if isinstance(n, ast.FunctionDef)}


def is_ours(value: object) -> bool:
    """Whether Tengen defines a function: programs give Tensor and `functional` ops of their own."""
    op = getattr(value, "op", None)
    return op is None or op.fn.__module__.startswith("tengen.")


def installed() -> Iterator[tuple[str, object]]:
    """Names and values that `methods.py` puts on Tensor, operators first."""
    own = own_names()
    dialect = getattr(sys.modules.get("tengen.pytorch.tensor_methods"), "OF_THE_DIALECT", ())
    own = own | {*dialect}
    found = {k: v for k, v in vars(Tensor).items() if k not in own and (callable(v) or isinstance(v, property)) and is_ours(v)}
    for k in ("__hash__", "__weakref__", "__class_getitem__"):
        found.pop(k, None)
    yield from sorted(found.items(), key=lambda kv: (not kv[0].startswith("__"), kv[0]))


def tensor_methods() -> str:
    """The stub of Tensor's operators and methods."""
    lines = ["class TensorMethods:"]
    operands = {n: len(op.tensors) for op in REGISTRY.values() for n in operators(op)}
    for name, value in installed():
        ignore = "  # type: ignore[override]  # a tensor, no bool" if name in ("__eq__", "__ne__") else ""
        if isinstance(value, property):
            made = known(value.fget.__annotations__.get("return", "Tensor"))
            lines += ["    @property", f"    def {name}(self) -> {made}:", f'        """{summary(value.__doc__)}"""'] if value.__doc__ else []
        elif operands.get(name) == 2:
            lines.append(f"    def {name}(self, other: TensorLike) -> Tensor: ...{ignore}")
        elif operands.get(name) == 1:
            lines.append(f"    def {name}(self) -> Tensor: ...")
        elif inspect.isfunction(value):
            lines += stub(name, value, "    ", this=True)
    head = f'"""Operators and methods of Tensor, {FOR_TYPES}. {AGAIN}"""'
    return "\n".join([head, "", *imports(lines), *lines]) + "\n"


def public_names(module: str = "") -> list[str]:
    """The public names of tengen.functional, or those that ops have in one of its submodules, in alphabetical order."""
    ours = {n for n in functional.__all__ if is_ours(getattr(functional, n))}
    return sorted(ours & {n for op in REGISTRY.values() for m, n in op.functional if m == module} if module else ours)


def functional_names() -> dict[str, list[str]]:
    """Public names of tengen.functional by where they come from: "" for ops, else the module that defines the function."""
    where: dict[str, list[str]] = {}
    for name in public_names():
        value = getattr(functional, name)
        module = "tengen.functional" if inspect.ismodule(value) else "" if hasattr(value, "op") else value.__module__
        where.setdefault(module, []).append(name)
    return where


def functional_stub() -> str:
    """The stub of tengen.functional: ops with their signatures, plain functions from where they are written."""
    where = functional_names()
    shared = [f"from {m} import {functional_home(n, m)} as {n}" for m, names in where.items() if m for n in names]
    lines = ["__all__ = [", *wrap(", ".join(f'"{n}"' for n in public_names()), "    "), "]", ""]
    for name in where.get("", []):
        lines += stub(name, getattr(functional, name))
    head = f'"""Functions of tensors, {FOR_TYPES}. {AGAIN}"""'
    return "\n".join([head, "", *imports(lines, shared), *lines]) + "\n"


def functional_home(name: str, module: str) -> str:
    """The name under which a function stands in the module that defines it."""
    value = getattr(functional, name)
    return name if inspect.ismodule(value) else value.__name__


def functional_part(module: str) -> str:
    """The stub of the ops in a submodule of tengen.functional."""
    found = public_names(module)
    listed = ", ".join(f'"{n}"' for n in found)
    lines = [f'"""The ops of `{module}.py`, {FOR_TYPES}. {AGAIN}"""', ""]
    lines += [f"from tengen.functional import {n} as {n}" for n in found]
    return "\n".join([*lines, "", "__all__ = [", *wrap(listed, "    "), "]"]) + "\n"


PARTS = {m: m if m in ("elemwise", "tensor") else f"{m}_ops" for m in SUBMODULES}  # submodule -> the stub of its ops

# ---- tables ------------------------------------------------------------------------------------------------------------

FAMILIES = {  # file of src/tengen/ops -> heading, in the order of the page; others follow by name
    "elementwise": "Arithmetic and functions", "division": "Division", "logic": "Comparison, logic, bits",
    "activation": "Activations", "creation": "Making tensors", "shape": "Shapes", "views": "Views", "indexing": "Indexing",
    "complex_numbers": "Complex numbers", "float_parts": "Signs, neighbours, lengths",
    "reduce": "Reductions", "contract": "Products of matrices", "conv": "Convolutions", "pool": "Pooling",
    "nn": "Normalisation and losses", "rng": "Random numbers", "statistics": "Statistics", "update": "Steps of optimizers",
}  # fmt: skip
KINDS = """\
*Kind*: **elementwise** ops are one scalar expression, **views** share memory where strides allow, **composites** are plain
functions over other ops that run as one fused program, **shorthands** other ways to call an op, **primitives** have rules of
their own. *Names*: where users find the op, in `tengen.functional` (F) and on a tensor x; some have a function of MegEngine's
signature in `functional` instead. *Fuses*: whether the op can be computed inside the kernel of another one. *Autocast*: the
precision that it is computed in there.
[How to add an op](architecture.md#how-to-add-an-op)."""


def gradient(op: Op) -> str:
    """Where the gradient of an op comes from."""
    if op.why_no_vjp is not None:
        return f"none: {op.why_no_vjp}"
    if op.kind in ("elementwise", "shorthand"):
        return "of the expression" if op.kind == "elementwise" else "of what it calls"
    if op.rules.vjp is not None:
        return "a rule"
    if op.rules.same is not None:
        return f"of `{op.rules.same.name}`"
    return "of the body" if op.kind == "composite" else "none yet"


def names_for_users(op: Op) -> str:
    """Where users find an op: functions, methods and operators."""
    shown = [f"`F.{name}`" for name in dict.fromkeys(n for _, n in op.functional)]
    operator = [f"`__{op.operator}__`"] if op.operator else []
    return ", ".join([*shown, *(f"`x.{name}`" for name in op.methods), *operator])


def ops_page() -> str:
    """The table of all ops, by family."""
    ops = [op for name, op in sorted(REGISTRY.items()) if "." not in name and op.fn.__module__.startswith("tengen.ops.")]
    out = ["# Ops", "", f"Every op of the registry, by the file of `src/tengen/ops/` that defines it. {AGAIN}", "", KINDS]
    families = {op.fn.__module__.rsplit(".", 1)[-1] for op in ops}
    for family in [*(f for f in FAMILIES if f in families), *sorted(families - FAMILIES.keys())]:
        about = summary(sys.modules[f"tengen.ops.{family}"].__doc__)
        out += ["", f"## {FAMILIES.get(family, family.capitalize())}", "", about, ""]
        out += ["| op | meaning | names | kind | fuses | autocast | gradient |", "| --- " * 7 + "|"]
        for op in ops:
            if op.fn.__module__.rsplit(".", 1)[-1] == family:
                call = f"{op.name}({', '.join(inspect.signature(op.fn).parameters)})"
                doc = summary(op.doc).replace("|", "\\|")
                fuses = "yes" if op.fuses or op.reduces or op.rules.epilogue is not None or op.kind == "composite" else ""
                facts = [doc, names_for_users(op), op.kind, fuses, op.autocast or "", gradient(op)]
                out.append(f"| `{call}` | {' | '.join(facts)} |")
    return "\n".join(out) + "\n"


def math_table() -> str:
    """Math functions with their measured errors."""
    out = ["| function | operands | float32 | float64 | meaning and edges |", "| --- " * 5 + "|"]
    for name, f in sorted(FUNCTIONS.items()):
        out.append(f"| `{name}` | {f.operands} | {f.ulp[0]} | {f.ulp[1]} | {f.doc.replace('|', chr(92) + '|')} |")
    return "\n".join(out)


def complex_list() -> str:
    """The ops that have a rule for complex numbers, or for which they are elements like any others."""
    load_rules()
    known = lambda op: op.rules.complex is not None or op.kind == "view" or op.name == "complex"
    there = [op for name, op in sorted(REGISTRY.items()) if "." not in name and op.fn.__module__.startswith("tengen.ops.")]
    return fill(", ".join(f"`{op.name}`" for op in there if known(op)) + ".", 128, break_long_words=False, break_on_hyphens=False)


# ---- where names are defined -------------------------------------------------------------------------------------------

# Modules of tengen.functional whose public names stand in tengen.functional itself, too.
SHOWN = ("accumulated", "activations", "arranged", "composed", "control", "loss", "math", "metric", "nn", "pooling")


def defined_ops() -> list[Op]:
    """Tengen's own ops by name, of all files of `ops`, whether or not the tables know them."""
    for path in sorted((PACKAGE / "ops").glob("[!_]*.py")):
        importlib.import_module(f"tengen.ops.{path.stem}")
    ops = sorted(REGISTRY.loaded(), key=lambda op: op.name)
    return [op for op in ops if "." not in op.name and op.fn.__module__.startswith("tengen.ops.")]


def text_of(names: Sequence[str], indent: str) -> str:
    """Words as a text in the source of a program, on lines of their own."""
    return "\n".join(['"""', *wrap(" ".join(names), f"{indent}    "), f'{indent}"""'])


def table(by_file: Mapping[str, Sequence[str]]) -> str:
    """A dictionary from files to words, in the source of a program."""
    return "\n".join(["{", *(f'    "{file}": {text_of(names, "    ")},' for file, names in sorted(by_file.items())), "}"])


def grouped(pairs: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """{first: the second ones in order}."""
    found: dict[str, list[str]] = {}
    for first, second in pairs:
        found.setdefault(first, []).append(second)
    return found


OPS_TABLE = '"""Which file of this folder defines which op, and what users call it: it is loaded when one of them is first named.\n\n{}\n"""\n'
OPS_TABLE += """
from __future__ import annotations


def _table(words: str) -> dict[str, str]:
    pairs = [word.partition("=") for word in words.split()]
    return {{name: op or name for name, _, op in pairs}}


OPS = {}

# Names of Tensor, and of the submodules of tengen.functional; behind "=" stands the op's own name, where it is another one.
ON_TENSOR = _table({})
IN_FUNCTIONAL = {{name: _table(words) for name, words in {}.items()}}
"""


def ops_table() -> str:
    """`ops/names.py`."""
    ops = defined_ops()
    word = lambda name, op: name if name == op.name else f"{name}={op.name}"
    files = grouped([(op.fn.__module__.rpartition(".")[2], op.name) for op in ops])
    methods = sorted(word(name, op) for op in ops for name in (*op.methods, *operators(op)))
    submodules = grouped(sorted((submodule, word(name, op)) for op in ops for submodule, name in op.functional))
    return OPS_TABLE.format(AGAIN, table(files), text_of(methods, ""), table(submodules))


def functions_table() -> str:
    """`functional/names.py`."""
    ops = {name for op in defined_ops() for _, name in op.functional}
    found: dict[str, str] = {}
    for shown in SHOWN:
        module = importlib.import_module(f"tengen.functional.{shown}")
        for name in module.__all__:
            if name not in ops:
                home = getattr(module, name).__module__
                there = getattr(sys.modules[home], name, None) is getattr(module, name)
                found.setdefault(name, home if there else module.__name__)
    homes = grouped(sorted((home, name) for name, home in found.items()))
    head = f'"""Which module defines which of the functions of `tengen.functional` that are no ops. {AGAIN}"""'
    return f"{head}\n\nFUNCTIONS = {table(homes)}\n"


def tables() -> dict[Path, str]:
    """The generated files of which the package itself is made."""
    return {PACKAGE / "ops" / "names.py": ops_table(), PACKAGE / "functional" / "names.py": functions_table()}


def between(path: Path, contents: Mapping[str, str]) -> str:
    """The page with what stands between its marks replaced."""
    text = path.read_text()
    for mark, content in contents.items():
        begin, end = f"<!-- generated: {mark} -->", f"<!-- end: {mark} -->"
        pattern = re.escape(begin) + r".*?" + re.escape(end)
        text, n = re.subn(pattern, lambda m, new=f"{begin}\n{content}\n{end}": new, text, flags=re.DOTALL)
        if n != 1:
            raise ValueError(f"{path}: expected one pair of marks {begin} ... {end}, found {n}")
    return text


def pages() -> dict[Path, str]:
    """Every generated file with what it should hold."""
    return {
        **tables(),
        ROOT / "docs" / "ops.md": ops_page(),
        ROOT / "docs" / "numerics.md": between(ROOT / "docs" / "numerics.md", {"math": math_table(), "complex": complex_list()}),
        PACKAGE / "tensor" / "tensor_methods.pyi": tensor_methods(),
        PACKAGE / "functional" / "__init__.pyi": functional_stub(),
        **{PACKAGE / "functional" / f"{file}.pyi": functional_part(module) for module, file in PARTS.items()},
    }


def stale() -> list[Path]:
    """The generated files that are not current."""
    return [path for path, text in pages().items() if not path.exists() or path.read_text() != text]


def main(args: list[str]) -> int:
    """Writes, or with --check only names, the files that are not current."""
    if unknown := set(args) - {"--check"}:
        print(f"unknown: {' '.join(unknown)}\n{__doc__}", file=sys.stderr)
        return 2
    changed = {path: text for path, text in tables().items() if not path.exists() or path.read_text() != text}
    if changed and not args:  # the package is made of them: what follows is of another process
        for path, text in changed.items():
            path.write_text(text)
            print(f"{path.relative_to(ROOT)}: written")
        os.execv(sys.executable, [sys.executable, __file__])
    old = stale()
    texts = pages()
    for path in old:
        if not args:
            path.write_text(texts[path])
        print(f"{path.relative_to(ROOT)}: {'is not current' if args else 'written'}")
    return int(bool(args and old))


assert Path(tengen.__file__).parent == PACKAGE, f"this is the generator of {PACKAGE}, but {tengen.__file__} was imported"

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
