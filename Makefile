# Everything that developers do, as short commands. `make help` lists them.
#
# All work happens in $(VENV). It is made again when pyproject.toml changes, and with the extras that a target needs:
# `make demo` does not wait for the developers' tools.
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
DEMO := $(VENV)/.demo-installed
DEV := $(VENV)/.dev-installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test check fix bench docs fuzz clean

help: ## list the commands
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tilegrad needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(DEMO): pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[demo]'
	@touch $@

$(DEV): pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[dev,demo]'
	@touch $@ $(DEMO)

setup: $(DEV) ## make a virtual environment with everything in it

demo: $(DEMO) ## train a digit classifier with tile kernels
	$(BIN)/python examples/digits.py

test: $(DEV) ## run the tests
	$(BIN)/python -m pytest -q -n $(JOBS)

check: $(DEV) ## formatting, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py

fix: $(DEV) ## mend formatting and what lint can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV) ## compare speed with the peers that are installed
	$(BIN)/python bench/bench.py

fuzz: $(DEV) ## run N random programs (N=1000) in every way and compare
	$(BIN)/python -m tilegrad.fuzz $(or $(N),1000) --jobs $(JOBS)

docs: $(DEV) ## build the documentation into out/docs
	$(BIN)/mkdocs build --strict --quiet

clean: ## remove what was built
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
