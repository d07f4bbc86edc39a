# Two commands set everything up: `make demo` and `make test`. Both need only make and a Python of 3.11 or newer;
# choose one with `make PYTHON=/path/to/python test`. The environment lies in .venv and follows pyproject.toml.

VENV   ?= .venv
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
BIN    := $(VENV)/bin
# One test process per core of the smallest machine we support.
JOBS   ?= 2
PYTEST := $(BIN)/python -m pytest -n $(JOBS)

.PHONY: demo test test-long test-core lint types layers check format bench setup clean

demo: $(VENV)/.for-demo
	$(BIN)/python -m prejit demo $(ARGS)

test: $(VENV)/.for-dev
	$(PYTEST) -m "not long" $(ARGS)

test-long: $(VENV)/.for-dev
	$(PYTEST) --timeout 3600 $(ARGS)

# What must also hold on the newest JAX: .ci/run calls it with VENV=.venv-newest.
test-core: $(VENV)/.for-test
	$(PYTEST) -m "not slow and not long" $(wildcard tests/unit tests/property tests/process tests/transforms tests/cases tests/compat) $(ARGS)

lint: $(VENV)/.for-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.for-dev
	$(BIN)/pyright

layers: $(VENV)/.for-dev
	$(BIN)/lint-imports --no-cache

check: lint types layers

format: $(VENV)/.for-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.for-demo
	$(BIN)/python benchmarks/bench_dispatch.py $(ARGS)
	$(BIN)/python benchmarks/bench_import.py $(ARGS)
	$(BIN)/python benchmarks/bench_layers.py $(ARGS)
	$(BIN)/python benchmarks/bench_borders.py $(ARGS)
	$(BIN)/python benchmarks/bench_programs.py $(ARGS)
	$(BIN)/python benchmarks/bench_numerics.py $(ARGS)

setup: $(VENV)/.for-dev

clean:
	rm -rf .venv .venv-newest build dist .pytest_cache .ruff_cache .import_linter_cache

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "no Python of 3.11 or newer with venv was found: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# One stamp per set of extras; each installs again when pyproject.toml changes.
$(VENV)/.for-%: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@
