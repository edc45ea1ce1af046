# Each target sets up .venv by itself; on a fresh machine `make demo` or `make test` is the first command to type.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

# What `make test-fast` runs: the rooms whose tests need no whole experiment, no other process and no browser.
FAST := tests/base tests/core tests/data tests/methods tests/models tests/paper tests/report/tables

# Threads that spin while they wait make shared cores several times slower.
export OMP_WAIT_POLICY := PASSIVE
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo serve test test-fast check bench docs wheel clean
help:
	@echo "make demo       run five methods on the embedded data; needs the package only"
	@echo "make serve      serve the embedded model at http://127.0.0.1:8000/, with a live page"
	@echo "make test       run all tests, except those marked 'timing' (pytest -m timing)"
	@echo "make test-fast  run the tests of $(subst tests/,,$(FAST)) in a minute;"
	@echo "                leaves out the other folders of tests/ and what is marked 'slow'"
	@echo "make check      run ruff, mypy and import-linter, and compare two collections of the tests"
	@echo "make bench      measure time and memory of every method, as ratios"
	@echo "make docs       build the documentation into build/docs; fails if a link or a name leads nowhere"
	@echo "make wheel      build the wheel and try it on each Python of 3.11 to 3.13 that is installed"
	@echo "make clean      remove .venv and build files"

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "ctta needs Python 3.11 or newer, and '$(PYTHON)' is not. Try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "'$(PYTHON)' has no venv module. On Debian or Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Setting up $(VENV) (once, a minute or two) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet -e .
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet -e '.[bench]'
	@touch $@

$(VENV)/.tests: $(VENV)/.installed
	@echo "Adding what the tests need (once, a few minutes) ..."
	@$(BIN)/python -m pip install --quiet -e '.[test,dev]'
	@touch $@

$(VENV)/.serve: $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet -e '.[serve]'
	@touch $@

serve: $(VENV)/.serve
	@$(BIN)/ctta serve --method tent --set log=text

$(VENV)/.docs: $(VENV)/.installed
	@echo "Adding what the documentation needs (once) ..."
	@$(BIN)/python -m pip install --quiet -e '.[docs]'
	@touch $@

demo: $(VENV)/.installed
	@$(BIN)/ctta demo

# Compiled first, so that no process that a test starts has to do it again.
test: $(VENV)/.tests
	@$(BIN)/python -m compileall -q src
	$(PYTEST) -n auto --dist worksteal

test-fast: $(VENV)/.tests
	$(PYTEST) -n auto --dist worksteal -m "not slow and not timing" $(FAST)

check: $(VENV)/.tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@echo "collecting the tests twice, under two hash seeds"
	@for seed in 1 2; do \
	  PYTHONHASHSEED=$$seed $(PYTEST) --collect-only -q -m "" >$(VENV)/collected || { cat $(VENV)/collected; exit 1; }; \
	  grep :: $(VENV)/collected >$(VENV)/collected.$$seed; \
	done
	@diff $(VENV)/collected.1 $(VENV)/collected.2 || \
	  { echo "The order or the names of these tests depend on hashes or addresses: parametrise over a list." >&2; exit 1; }

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "The site is at build/docs/index.html. Its search needs a server: python3 -m http.server -d build/docs"

wheel: $(VENV)/.installed
	$(BIN)/python scripts/check_wheel.py

clean:
	rm -rf $(VENV) build dist
