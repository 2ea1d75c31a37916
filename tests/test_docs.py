"""What the papers say is true: every Python block of the README and of docs/ runs, and every example in a docstring.

A block fenced as ```python runs, together with the ones before it in its file, in an empty directory. Text that shall not
run is fenced as something else.
"""

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [p for p in [*ROOT.glob("README.md"), *sorted((ROOT / "docs").rglob("*.md"))] if "```python\n" in p.read_text()]
SOURCES = ROOT / "src"
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def blocks(text):
    """Yields (line number of the first line, code) of the Python blocks of a page."""
    for match in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, match.start(1)) + 1, match.group(1)


def run_page(path, namespace):
    for line, code in blocks(path.read_text()):
        exec(compile("\n" * (line - 1) + code, str(path), "exec"), namespace)  # so that tracebacks show the page's lines


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
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


def migration_names():
    """The names that the tables of docs/migration.md say Tengen has."""
    for row in re.findall(r"^\|.*\|$", (ROOT / "docs" / "migration.md").read_text(), re.MULTILINE):
        cells = [c.strip() for c in row.strip("|").split("|")]
        if len(cells) == 4 and cells[3] != "planned" and re.fullmatch(r"`tengen(\.\w+)+`", cells[2]):
            yield cells[2].strip("`")


@pytest.mark.parametrize("name", list(migration_names()))
def test_names_of_the_migration_table_exist(name):
    parts = name.split(".")
    value = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], 2):
        value = getattr(value, part) if hasattr(value, part) else importlib.import_module(".".join(parts[:i]))
