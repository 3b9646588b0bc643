# Everything that developers do, as short commands. `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test check fix bench docs clean

help: ## list the commands
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,demo]'
	@touch $@

setup: $(STAMP) ## make a virtual environment with everything in it

demo: $(STAMP) ## train a digit classifier with tile kernels
	$(BIN)/python examples/digits.py

test: $(STAMP) ## run the tests
	$(BIN)/python -m pytest -n 2 -q

check: $(STAMP) ## formatting, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

fix: $(STAMP) ## mend formatting and what lint can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) ## compare speed with the peers that are installed
	$(BIN)/python bench/bench.py

docs: $(STAMP) ## build the reference from the docstrings into out/docs
	$(BIN)/pdoc -o out/docs tilegrad

clean: ## remove what was built
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
