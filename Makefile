# Everything a clone needs, one line each. The work is done by pip, the tools named here, and tools/.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/setup-done
STEP := tools/step.sh
WORKFLOW := Snakefile workflow
CODE := $(wildcard src scripts tests tools examples benchmarks)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup lock demo test check lint types format-check workflow-lint components unit-tests test-slow bench \
	docs-keys format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## prepare .venv (PYTHON=... to choose the Python); quick when nothing changed

$(STAMP): pyproject.toml constraints.txt tools/setup.sh
	@PYTHON="$(PYTHON)" $(STEP) setup tools/setup.sh
	@touch $@

lock: ## write constraints.txt anew (needs python3.11)
	tools/lock.sh

demo: setup ## train a small network as a chain of segments, then show what came out
	$(BIN)/snakemake --directory examples/torch
	$(BIN)/longhaul status --directory examples/torch
	@tools/show_demo.sh examples/torch

test: setup components check unit-tests ## everything before a change goes in: components, check, tests

check: lint types format-check workflow-lint ## the quick part: lint, types, layout

lint: setup ## ruff
	@$(STEP) ruff $(BIN)/ruff check $(CODE)

types: setup ## mypy --strict
	@$(STEP) mypy $(BIN)/mypy

format-check: setup ## is the layout what the formatters make of it
	@$(STEP) ruff-format $(BIN)/ruff format --check --quiet $(CODE)
	@$(STEP) snakefmt $(BIN)/snakefmt --check $(WORKFLOW)

workflow-lint: setup ## snakemake --lint
	@$(STEP) snakemake-lint $(BIN)/python tools/lint_workflow.py

components: setup ## the real things that tests use (apt, as root on Debian and Ubuntu); names what is missing
	@$(STEP) components $(BIN)/python tools/components.py

unit-tests: setup
	@$(STEP) pytest $(BIN)/pytest

# pytest ends with 5 where no test is marked so.
test-slow: setup ## the tests that take longer than a commit should wait
	@$(STEP) pytest-slow sh -c '$(BIN)/pytest -m "slow and not slurm and not gpu" --timeout=1200 || [ $$? -eq 5 ]'

bench: setup ## measure (benchmarks/*.py)
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

docs-keys: setup ## write the table of configuration keys from the schemas
	$(BIN)/python -m longhaul.config_docs

format: setup ## let the formatters change the files
	$(BIN)/ruff check --fix --quiet $(CODE) || true
	$(BIN)/ruff format $(CODE)
	$(BIN)/snakefmt $(WORKFLOW)

clean: ## remove .venv, caches and what the examples left (not results/ of your own)
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf examples/*/.snakemake examples/*/results examples/*/logs
