# Each target sets up .venv by itself; on a fresh machine `make demo` or `make test` is the first command to type.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Threads that spin while they wait make shared cores several times slower.
export OMP_WAIT_POLICY := PASSIVE
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test check bench clean
help:
	@echo "make demo    the main job on the embedded default"
	@echo "make test    the tests"
	@echo "make check   ruff, mypy, import-linter"
	@echo "make bench   speed and memory, as ratios"

$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "ctta needs Python 3.11 or newer, and '$(PYTHON)' is not. Try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "'$(PYTHON)' has no venv module. On Debian or Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Setting up $(VENV) (once, a few minutes) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet -e '.[test,dev]'
	@touch $@

demo: $(VENV)/.ready
	@$(BIN)/ctta demo

test: $(VENV)/.ready
	$(BIN)/python -m pytest -n auto

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.ready
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist
