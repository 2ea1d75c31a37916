"""What the papers say is true: every Python block of the README and of docs/ runs, and every example in a docstring.

A block fenced as ```python runs, together with the ones before it in its file, in an empty directory. Text that shall not
run is fenced as something else.
"""

import ast
import contextlib
import doctest
import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from each import each

from tengen.base.config import config
from tengen.codegen.targets import Target
from tengen.deploy.run import CannotRun, linker
from tengen.tensor.nodes import leaves

ROOT = Path(__file__).resolve().parent.parent
PAGES = [p for p in [*ROOT.glob("README.md"), *sorted((ROOT / "docs").rglob("*.md"))] if "```python\n" in p.read_text()]
SOURCES = ROOT / "src"
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def blocks(text):
    """Yields (line number of the first line, code) of the Python blocks of a page."""
    for match in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, match.start(1)) + 1, match.group(1)


def own_schedules(text, folder):
    """A block in which examples that tune have a cache of their own: what they find, which is another schedule each time, would be part of
    the key of every program that is made afterwards, and nothing that was kept before would be found."""
    return config.scope(cache_dir=str(folder / "cache")) if "tune(" in text else contextlib.nullcontext()


def run_page(path, namespace):
    for line, code in blocks(path.read_text()):
        exec(compile("\n" * (line - 1) + code, str(path), "exec"), namespace)  # so that tracebacks show the page's lines


IN_C = {"custom_ops.md"}  # pages that compile C
WITH_TORCH = ("pytorch.md", "tengen.interop.torch")  # a page and modules whose examples call PyTorch


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page.name in WITH_TORCH:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    if page.name in IN_C:
        try:
            linker(Target.machine())
        except CannotRun as e:
            pytest.skip(str(e))
    if page.name == "pytorch.md":  # what to import the dialect does, once in a process: another test may have done it
        leaves.of_parameters(True)
    with own_schedules(page.read_text(), tmp_path):
        run_page(page, {"__name__": "__main__"})


def public_modules():
    """The dotted names of the modules that show examples."""
    for path in sorted((SOURCES / "tengen").rglob("*.py")):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        if ">>>" in path.read_text() and not any(p.startswith("_") and p != "__init__" for p in parts):
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("name", list(public_modules()))
def test_docstrings(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name.startswith(WITH_TORCH):
        pytest.importorskip("torch", reason="PyTorch is not installed")
    module = importlib.import_module(name)
    failed = []
    # An op is a function that was made elsewhere with the docstring of its definition: the finder leaves those out.
    tests = doctest.DocTestFinder(exclude_empty=True).find(module)
    seen = {t.docstring for t in tests}
    for key, value in vars(module).items():
        doc = getattr(value, "__doc__", None)
        if isinstance(doc, str) and ">>>" in doc and doc not in seen and getattr(value, "__module__", None) == name:
            seen.add(doc)
            tests.append(doctest.DocTestParser().get_doctest(doc, dict(vars(module)), f"{name}.{key}", module.__file__, None))
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    for test in tests:
        with own_schedules(test.docstring, tmp_path):
            runner.run(test, out=failed.append)
    assert not failed, "\n" + "".join(failed)


def test_the_page_runner_sees(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# T\n```python\nx = 1\n```\ntext\n```text\nnot code\n```\n```python\ny = x + 1\nraise KeyError(y)\n```\n")
    assert [line for line, _ in blocks(page.read_text())] == [3, 10]
    names = {}
    with pytest.raises(KeyError) as e:
        run_page(page, names)
    assert names["y"] == 2 and e.tb.tb_next.tb_next.tb_lineno == 11


def migration_rows():
    """(name in Tengen, remark) of the rows of docs/migration.md that give one."""
    for row in re.findall(r"^\|.*\|$", (ROOT / "docs" / "migration.md").read_text(), re.MULTILINE):
        cells = [c.strip() for c in row.strip("|").split("|")]
        if len(cells) == 4 and re.fullmatch(r"`tengen(\.\w+)+`", cells[2]):
            yield cells[2].strip("`"), cells[3]


def exists(name):
    """Whether a dotted name can be reached from `import tengen`, or imported."""
    parts = name.split(".")
    value = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], 2):
        if not hasattr(value, part):
            try:
                importlib.import_module(".".join(parts[:i]))
            except ImportError:
                return False
        value = getattr(value, part)
    return True


@each("name, remark", list(migration_rows()))
def test_the_migration_table_is_true(name, remark):
    assert exists(name) == (remark != "planned"), f"{name}: a row is marked planned exactly when its name does not exist"


def test_exists_sees():
    assert exists("tengen.functional.relu") and exists("tengen.ops.define.Op")
    assert not exists("tengen.functional.no_such") and not exists("tengen.nowhere.name")


def generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_files_are_current():
    old = [str(p.relative_to(ROOT)) for p in generator().stale()]
    assert not old, f"{', '.join(old)}: run `python docs/generate.py` and commit what it writes"


PAPERS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def anchors(path):
    """What a link into a page may name: its headings as GitHub spells them."""
    prose = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", prose, re.MULTILINE)}


def broken_links(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = page.parent / file if file else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            yield target


@pytest.mark.parametrize("page", PAPERS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    assert not list(broken_links(page))


@pytest.mark.parametrize("page", PAPERS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_named_files_and_commands_exist(page):
    """Paths in backquotes that begin in a folder of the repository, and `make` targets."""
    text = page.read_text()
    named = re.findall(r"`((?:src|tests|docs|examples|benchmarks)/[\w./-]*)", text)
    assert not [n for n in named if not (ROOT / n).exists()]
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make (\w+)", text, re.MULTILINE)) <= targets


def test_the_link_check_sees(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Two words: `here`\n[a](#two-words-here) [b](page.md#none) [c](gone.md) [d](https://x.y/z)\n")
    assert list(broken_links(page)) == ["page.md#none", "gone.md"]


SNIPPET = """\
from tengen import Tensor, functional as F

x = Tensor([1.0])
reveal_type(x + 1)
reveal_type(2 - x)
reveal_type(x @ x)
reveal_type(x == 1)
reveal_type(x.sum(0))
reveal_type(F.relu(x))
x.sum(axes=0)
x.nothing
"""


def test_type_checkers_see_operators_and_methods(tmp_path, monkeypatch):
    api = pytest.importorskip("mypy.api")
    (tmp_path / "user.py").write_text(SNIPPET)
    # Tengen's modules with the settings of `make types`, so that what that has looked at is not looked at again.
    strict = '\n[[tool.mypy.overrides]]\nmodule = ["user"]\nenable_error_code = ["attr-defined", "operator", "call-overload", "misc"]\n'
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + strict)
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    found, errors, _ = api.run([
        f"--config-file={tmp_path / 'pyproject.toml'}", f"--cache-dir={ROOT / '.mypy_cache'}", str(tmp_path / "user.py"),
    ])  # fmt: skip
    lines = dict(re.findall(r"user\.py:(\d+): (?:note|error): (.*)", found))
    assert not errors
    for i in range(4, 10):
        assert lines[str(i)] == 'Revealed type is "tengen.tensor.tensor.Tensor"', found
    assert "Unexpected keyword" in found and "no attribute" in found and "Found 2 errors" in found


def rows_of(page, heading):
    """The cells of each row of the first table below a heading, without its head."""
    table = re.search(r"(?:^\|.*\|\n)+", page.read_text().split(f"\n## {heading}\n")[1], re.MULTILINE)[0]
    return [[c.strip() for c in row.strip("|").split("|")] for row in table.splitlines()[2:]]


def missing_names(text):
    """The names of Tengen in a text."""
    return re.findall(r"`(tengen(?:\.\w+)+)`", text)


def test_what_does_not_work_yet_does_not():
    """No name in the last column of the README's status table exists; at times there is none in it."""
    rows = rows_of(ROOT / "README.md", "Status")
    assert len(rows) > 5 and all(len(row) == 3 for row in rows)
    assert missing_names("no `tengen.distributed.Server` yet") == ["tengen.distributed.Server"] and exists("tengen.distributed.Server")
    for name in missing_names(" ".join(row[2] for row in rows)):
        assert not exists(name), f"{name} exists now: take it out of the README's column of what does not work yet"


def held_by():
    """(promise, file, test) for each test that the contract's table names."""
    for row in rows_of(ROOT / "docs" / "numerics.md", "What is promised, and what holds it"):
        promise, _, tests = row
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
        assert named, f"no test holds the promise {promise!r}"
        yield from ((promise, *n) for n in named)


def test_the_tests_that_hold_the_contract_exist():
    found = list(held_by())
    assert len(found) > 30
    for promise, file, test in found:
        module = ast.parse((ROOT / file).read_text()).body
        there = {f.name: [ast.unparse(d) for d in f.decorator_list] for f in module if isinstance(f, ast.FunctionDef)}
        assert test in there, f"{file} has no {test}, which is to hold: {promise}"
        left_out = "exhaustive" in there[test] or "pytestmark = exhaustive" in map(ast.unparse, module)
        assert not left_out, f"`make test` leaves out {file}::{test}, which is to hold: {promise}"


def test_both_drawings_have_the_floors_of_the_house():
    """The README's, from the top, and the table of the architecture page, from the ground."""
    spec = importlib.util.spec_from_file_location("test_floors", ROOT / "tests" / "test_floors.py")
    house = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(house)
    there = lambda n: (house.ROOT / n).is_dir() or (n != "__main__" and (house.ROOT / f"{n}.py").is_file())
    floors = [{n for n in names.split() if there(n)} for names in house.FLOORS]
    floors = [f for f in floors if f]
    drawn = re.search(r"```text\n\+-+.*?```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    assert [set(row.split("|")[1].split()) for row in drawn.splitlines() if row.startswith("|")] == floors
    assert [set(re.findall(r"`(\w+)`", row[0])) for row in rows_of(ROOT / "docs" / "architecture.md", "Floors")] == floors[::-1]


TOUR = ROOT / "docs" / "tour.py"


def test_the_tour_goes_through_the_house(tmp_path):
    """It runs, compares bits at the end of each chapter, and shows what every floor that it names has made."""
    assert len(TOUR.read_text().splitlines()) <= 300
    done = subprocess.run([sys.executable, str(TOUR)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(\d)\. ", done.stdout, re.MULTILINE) == list("12345") and done.stdout.count("==> the same bits: ") == 5
    shown = dict.fromkeys(re.findall(r"^\[(\w+)\] ", done.stdout, re.MULTILINE))
    assert "\n[passes] after fuse\n" in done.stdout and "\n[kernels] 11 nodes became one kernel\n" in done.stdout
    assert list(shown) == ["ops", "loops", "ir", "kernels", "codegen", "runtime", "passes", "compiler", "deploy"]
    assert max(map(len, done.stdout.splitlines())) <= 120 and str(ROOT) not in done.stdout
