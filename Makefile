# Everything a developer types. `make help` lists it. Each target makes what it needs, on a clean checkout too.
SHELL := /bin/bash
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check -q
CODE := $(wildcard src tests examples benchmarks)

.PHONY: help setup test lint types tests exhaustive unit demo bench wheel clean
.DEFAULT_GOAL := help

help:  ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

setup: $(VENV)/.all  ## make .venv and install Tengen with everything that tests and examples need

# Types are checked beside the tests, on a processor that would wait for the longest of them; what was found is shown at the end.
test: setup  ## style, types and the tests but for the exhaustive ones; fails when any of them fails
	@status=0; found=$$(mktemp); \
	$(MAKE) --no-print-directory types >$$found 2>&1 & types=$$!; \
	trap 'kill $$types 2>/dev/null; rm -f $$found; exit 130' INT TERM; \
	for step in lint tests; do $(MAKE) --no-print-directory $$step || { status=1; echo "make test: $$step failed" >&2; }; done; \
	wait $$types || { status=1; echo "make test: types failed" >&2; }; \
	cat $$found; rm -f $$found; exit $$status

lint: setup  ## ruff alone
	$(VENV)/bin/ruff check $(CODE)

types: setup  ## mypy alone
	$(VENV)/bin/mypy

# The cache has room for all that the tests compile, so that a second run compiles little. Python keeps its bytecode, whatever the
# environment says: hundreds of tests start an interpreter, and each would compile all of Tengen's modules.
tests exhaustive unit: export TENGEN_CACHE_BYTES ?= 2147483648
tests exhaustive unit: export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(PY) -m pytest -n 2 --dist worksteal --durations 10

tests: setup
	$(PYTEST) -m "not exhaustive" $(ARGS)

exhaustive: setup  ## the tests that `make test` leaves out: further dtypes, sizes, networks, programs
	$(PYTEST) -m exhaustive $(ARGS)

unit: setup  ## pytest alone, every test; make unit ARGS="tests/data -x" for some of it
	$(PYTEST) $(ARGS)

demo: $(VENV)/.examples  ## train, trace, dump and ship a network on real digits
	$(PY) examples/digits.py

bench: setup  ## measure; see benchmarks/README.md
	@found=0; for f in $(sort $(wildcard benchmarks/bench_*.py)); do found=1; echo "== $$f"; $(PY) $$f || exit 1; done; \
	test $$found = 1 || echo "no benchmarks/bench_*.py here"

# A cache of its own: nothing that this user has tuned gets into a pack, and a second wheel compiles what has changed.
wheel: export TENGEN_CACHE_DIR := $(CURDIR)/build/pack-cache
wheel: export TENGEN_CACHE_BYTES := 2147483648
wheel: setup  ## compile the packs, and put everything into a wheel in dist/
	@mkdir -p build && rm -rf build/lib
	$(PY) -m tengen cache pack
	$(PIP) wheel --no-deps -w dist .

clean:  ## remove the environment and everything that was built
	rm -rf $(VENV) build dist out src/tengen/runtime/packs .pytest_cache .ruff_cache .mypy_cache .hypothesis src/*.egg-info
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The stamps are older than pyproject.toml exactly when the environment is out of date.
$(VENV)/.all: pyproject.toml | $(PY)
	$(PIP) install -e '.[test,examples]'
	@touch $@ $(VENV)/.examples

$(VENV)/.examples: pyproject.toml | $(PY)
	$(PIP) install -e '.[examples]'
	@touch $@

# PYTHON=... chooses the interpreter; otherwise the first one here that is new enough and can make an environment.
$(PY):
	@for p in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11 python; do \
	  if $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    echo "making $(VENV) with $$($$p -c 'import sys; print(sys.executable)')"; exec $$p -m venv $(VENV); fi; done; \
	echo "Tengen needs Python 3.11 or newer with the venv module; none found. Set PYTHON=/path/to/python." >&2; exit 1
