# OmniGraph's everyday commands. Bare `make` lists them.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Three workers keep two cores busy, because tests wait for disks and children; each is below 1 GB.
WORKERS ?= 3

# Tests start hundreds of processes; without .pyc files each would compile all of the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all check lint fmt docs site console bench clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(STAMP) ## make the virtual environment and install everything into it
	@$(BIN)/python -m compileall -q src

# The stamp is newer than pyproject.toml exactly when the environment matches it.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "OmniGraph needs Python 3.11 or newer; try: make PYTHON=python3.11 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all]' --group dev
	@touch $@

demo: $(STAMP) ## show everything on a graph of this machine's packages; writes omnigraph-demo/report.html
	@$(BIN)/omnigraph demo

test: $(STAMP) ## run the tests
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup -m "not slow" tests

test-all: $(STAMP) ## run the tests, the slow ones too
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup tests

lint: $(STAMP) ## formatting, ruff, mypy, import-linter
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

check: lint test ## everything a change must pass

fmt: $(STAMP) ## format the code and mend what ruff can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix --exit-zero .

docs: $(STAMP) ## rewrite the generated pages and the picture of the code
	@$(BIN)/python tools/reference.py
	@$(BIN)/python tools/grammars.py
	@$(BIN)/python tools/architecture.py

site: $(STAMP) ## build the documents as a web site in site/
	@$(BIN)/python -m mkdocs build --quiet --strict

console: ## build the console's bundle from ui/ (needs Node 20.19 or newer)
	@cd ui && npm ci --no-audit --no-fund --silent && npm run --silent build

bench: $(STAMP) ## run the benchmarks
	@$(BIN)/python benches/run.py

clean: ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
