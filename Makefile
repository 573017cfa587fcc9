# Everything a clone needs, one line each. The work is done by pip, the tools named here, and tools/.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/setup-done
STEP := tools/step.sh
# A test that fails is run once more, at most two of a stage, and both texts are shown; never a promise or a time-out
# (CONTRIBUTING.md). ARGS="-k lease" goes to pytest.
PYTEST := $(if $(UNBROKEN_COVERAGE),-m coverage run --rcfile=$(CURDIR)/pyproject.toml) -m pytest --durations=10 --reruns=1 \
	--max-suite-reruns=2 --rerun-except=from.pytest-timeout --rerun-show-tracebacks
TESTS := $(BIN)/python $(PYTEST)
QUICK := not process and not slow and not slurm and not gpu and not tensorflow and not presets and not frameworks
TENSORFLOW := .venv-tensorflow
TENSORFLOW_STAMP := $(TENSORFLOW)/setup-done
PRESETS := .venv-presets
PRESETS_STAMP := $(PRESETS)/setup-done
FRAMEWORKS := .venv-frameworks
FRAMEWORKS_STAMP := $(FRAMEWORKS)/setup-done
ON_TORCH := $(wildcard tests/unit/test_training_*.py tests/unit/test_torch_*.py tests/unit/test_atomic_*.py tests/engines/test_torch*.py)
WORKFLOW := Snakefile workflow
# The one of DMTCP needs DMTCP.
BENCHMARKS := $(filter-out $(if $(shell command -v dmtcp_launch),,benchmarks/dmtcp.py),$(wildcard benchmarks/*.py))
# Where tests on a cluster are (tests/conftest.py sees to that): no worker of those stages reads the other files.
ON_SLURM := tests/cluster tests/unit/test_benchmarks.py
CODE := $(wildcard src scripts tests tools examples benchmarks)
# make slurm-tests SLURM=/prefix: another release than the installed one; every daemon and command is taken from there.
OTHER_SLURM := $(if $(SLURM),UNBROKEN_SLURM="$(abspath $(SLURM))" PATH="$(abspath $(SLURM))/bin:$(abspath $(SLURM))/sbin:$(PATH)")

# Where it is set, each of the tests' processes compiles its modules again, and pytest rewrites each test file again.
unexport PYTHONDONTWRITEBYTECODE
# Said to make, it would reach the setup of .venv too, which keeps the pinned one.
unexport TORCH

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup lock demo test all-tests quick check lint types format-check workflow-lint components apptainer prepare unit-tests slurm-tests \
	test-dmtcp test-torch test-python tensorflow-tests tensorflow-setup frameworks-tests frameworks-setup presets-setup test-slow slow-tests slow-slurm-tests presets presets-tests training-cases soak kills coverage coverage-table mutants gpu gpu-wheels cluster bench docs dist docs-keys format clean

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
	$(BIN)/unbroken status --directory examples/torch
	@tools/show_demo.sh examples/torch

test: prepare all-tests ## everything before a change goes in: components, check, tests

# The tests on a cluster wait more than they work, and most of the checks is mypy's one process: side by side with the
# other tests they cost a third of their time.  What they print comes when the others are done.
all-tests: setup
	@beside=$$(mktemp -d) && trap 'rm -rf "$$beside"; kill $$check $$cluster 2>/dev/null' EXIT INT TERM; \
		$(MAKE) --no-print-directory check >"$$beside/check" 2>&1 & check=$$!; \
		$(MAKE) --no-print-directory slurm-tests >"$$beside/cluster" 2>&1 & cluster=$$!; \
		$(MAKE) --no-print-directory unit-tests; units=$$?; wait $$check; checks=$$?; wait $$cluster; slurm=$$?; \
		cat "$$beside/cluster" "$$beside/check"; [ $$units -eq 0 ] && [ $$slurm -eq 0 ] && [ $$checks -eq 0 ]

# Side by side: without its cache mypy takes as long as the tests.
quick: setup ## under a minute: lint, types, layout, and the tests that start no process
	@$(MAKE) --no-print-directory lint types format-check & check=$$!; \
		$(STEP) pytest-quick $(TESTS) -m "$(QUICK)" --timeout=60 $(ARGS); tests=$$?; \
		wait $$check || { echo "lint, types or layout failed, see above"; exit 1; }; exit $$tests

check: lint types format-check workflow-lint docs ## the quick part: lint, types, layout, dead links

lint: setup ## ruff, and the layers of the package (import-linter)
	@$(STEP) ruff $(BIN)/ruff check $(CODE)
	@$(STEP) import-linter $(BIN)/lint-imports --no-cache --no-logo

types: setup ## mypy --strict
	@$(STEP) mypy $(BIN)/mypy

format-check: setup ## is the layout what the formatters make of it
	@$(STEP) ruff-format $(BIN)/ruff format --check --quiet $(CODE)
	@$(STEP) snakefmt $(BIN)/snakefmt --check $(WORKFLOW)

workflow-lint: setup ## snakemake --lint
	@$(STEP) snakemake-lint $(BIN)/python tools/lint_workflow.py

components: ## the real things that tests use (apt, as root on Debian and Ubuntu); names what is missing
	@$(STEP) components $(PYTHON) tools/components.py
	@$(STEP) apptainer tools/apptainer.sh .apptainer || echo "without Apptainer the tests of containers are left out"

apptainer: ## the real Apptainer, in .apptainer (Debian and Ubuntu), for the tests of containers
	@tools/apptainer.sh .apptainer

# Side by side: both wait for downloads.
prepare: ## setup and components
	@beside=$$(mktemp) && trap 'rm -f "$$beside"; kill $$components 2>/dev/null' EXIT INT TERM; \
		$(MAKE) --no-print-directory components >"$$beside" 2>&1 & components=$$!; \
		$(MAKE) --no-print-directory setup; setup=$$?; wait $$components; found=$$?; cat "$$beside"; \
		[ $$setup -eq 0 ] && [ $$found -eq 0 ]

unit-tests: setup
	@$(STEP) pytest $(TESTS) -n5 $(ARGS)

# DMTCP is in no package registry: elsewhere a stand-in plays it (tests/dmtcp_stand_in).
test-dmtcp: setup ## the tests of the engine dmtcp on the real one: DMTCP=/folder/of/its/programs
	@UNBROKEN_DMTCP="$(abspath $(DMTCP))" $(STEP) pytest-dmtcp $(TESTS) -n1 -m "not slurm" tests/engines -k dmtcp $(ARGS)

# Each in an environment of its own, .venv-torch-2.6.0.
test-torch: setup ## the tests of trainings on another torch than the pinned one: TORCH=2.6.0
	@test -n "$(TORCH)" || { echo "which torch? make test-torch TORCH=2.6.0"; exit 2; }
	@PYTHON="$(PYTHON)" VENV=.venv-torch-$(TORCH) TORCH=$(TORCH) $(STEP) setup-torch-$(TORCH) tools/setup.sh
	@$(STEP) pytest-torch-$(TORCH) .venv-torch-$(TORCH)/bin/python $(PYTEST) -n2 $(ON_TORCH) $(ARGS)

# In an environment of its own, .venv-python3.13; which Python that is, its path says.
test-python: ## the tests on another Python than that of .venv: PYTHON=/path/to/python3.13
	@PYTHON="$(PYTHON)" VENV=.venv-$(notdir $(PYTHON)) $(STEP) setup-$(notdir $(PYTHON)) tools/setup.sh
	@$(STEP) pytest-$(notdir $(PYTHON)) .venv-$(notdir $(PYTHON))/bin/python $(PYTEST) -n5 $(ARGS)

# Tests on a cluster wait more than they work, so more of them than there are cores run side by side.
slurm-tests: setup ## the quick tests on a real Slurm cluster, started for them on this machine
	@$(OTHER_SLURM) $(STEP) pytest-slurm $(TESTS) -n6 -m "slurm and not slow" --timeout=1200 $(ON_SLURM) $(ARGS)

# TensorFlow has an environment of its own: nobody else waits for 2.1 GB.
tensorflow-tests: $(TENSORFLOW_STAMP) ## the tests of TensorFlow and Keras, in .venv-tensorflow
	@$(STEP) pytest-tensorflow $(TENSORFLOW)/bin/python $(PYTEST) -m tensorflow --timeout=1200 $(ARGS)

tensorflow-setup: $(TENSORFLOW_STAMP)

$(TENSORFLOW_STAMP): pyproject.toml constraints.txt tools/setup.sh
	@PYTHON="$(PYTHON)" VENV=$(TENSORFLOW) $(STEP) setup-tensorflow tools/setup.sh workflow,tensorflow,demo,dev
	@touch $@

# What a training may stand on beside torch: nobody else waits for 1 GB.
frameworks-tests: $(FRAMEWORKS_STAMP) ## the tests of JAX, DeepSpeed, W&B, MLflow and streams, in .venv-frameworks
	@$(STEP) pytest-frameworks $(FRAMEWORKS)/bin/python $(PYTEST) -m "frameworks and not gpu" --timeout=1200 $(ARGS)

frameworks-setup: $(FRAMEWORKS_STAMP)

$(FRAMEWORKS_STAMP): pyproject.toml constraints.txt tools/setup.sh
	@PYTHON="$(PYTHON)" VENV=$(FRAMEWORKS) $(STEP) setup-frameworks tools/setup.sh workflow,torch,torchdata,tensorboard,adapters,frameworks,demo,dev
	@touch $@

# Programs of users have an environment of their own, as on users' machines: unbroken starts them from outside.
presets-setup: $(PRESETS_STAMP) ## in .venv-presets the programs with a preset that pip brings (OpenMM, XGBoost, Optuna, ...)

$(PRESETS_STAMP): pyproject.toml constraints.txt tools/setup.sh
	@PYTHON="$(PYTHON)" VENV=$(PRESETS) $(STEP) setup-presets tools/setup.sh presets
	@touch $@

test-slow: slow-tests slow-slurm-tests ## the tests that take longer than a commit should wait

slow-tests: setup
	@$(STEP) pytest-slow $(TESTS) -n3 -m "slow and not soak and not slurm and not gpu and not tensorflow and not frameworks" --timeout=1200 $(ARGS)

slow-slurm-tests: setup
	@$(OTHER_SLURM) $(STEP) pytest-slurm-slow $(TESTS) -n6 -m "slow and slurm and not soak and not gpu and not tensorflow" \
		--timeout=1200 $(ON_SLURM) $(ARGS)

presets: setup components $(PRESETS_STAMP) ## every preset with its real program, with all kills of its case; WRITE=1 puts the table into docs/evidence.md
	@UNBROKEN_PRESET_KILLS=all UNBROKEN_PRESET_RESULTS=$(if $(WRITE),$(CURDIR)/docs/presets.jsonl) \
		$(STEP) pytest-presets $(TESTS) -n2 -m presets --timeout=3000 tests/presets $(ARGS)
	@$(if $(WRITE),$(BIN)/python tools/preset_table.py docs/presets.jsonl --write docs/evidence.md)

presets-tests: setup $(PRESETS_STAMP) ## every preset with its real program, killed once
	@$(STEP) pytest-presets $(TESTS) -n3 -m presets -k "test_a_run_that_is_killed" --timeout=1200 tests/presets $(ARGS)

training-cases: setup ## public trainings, ported, with all kills of each; WRITE=1 puts the table into docs/evidence.md
	@UNBROKEN_TRAINING_CASES=all UNBROKEN_TRAINING_RESULTS=$(if $(WRITE),$(CURDIR)/docs/training-cases.jsonl) \
		$(STEP) pytest-training-cases $(TESTS) -n2 -m "not gpu and not tensorflow" --timeout=3000 tests/training_cases $(ARGS)
	@$(if $(WRITE),$(BIN)/python tools/training_cases_table.py docs/training-cases.jsonl --write docs/evidence.md)

gpu-wheels: setup ## what `make gpu` needs where there is no network: GPU_PYTHON="3.12"
	@$(STEP) gpu-wheels tools/gpu_wheels.sh

# Nothing is set up: with the Python there that has torch.
gpu: ## all that only a GPU answers, in gpu.json: PARTS="pieces save-1gb"
	@$(PYTHON) tools/gpu.py $(PARTS)

cluster: setup components ## a shell in which sbatch, sinfo and snakemake --profile slurm work, on a cluster of your own
	@$(OTHER_SLURM) $(BIN)/python tests/cluster/lab.py shell

bench: setup $(TENSORFLOW_STAMP) ## measure (benchmarks/*.py)
	@for script in $(BENCHMARKS); do \
		case "$$script" in */keras_*) python=$(TENSORFLOW)/bin/python ;; *) python=$(BIN)/python ;; esac; \
		echo "== $$script"; $$python "$$script" || exit 1; done

docs: setup ## the pages as a site, build/site/index.html; a dead link fails
	@NO_MKDOCS_2_WARNING=1 $(STEP) docs $(BIN)/mkdocs build --quiet

dist: setup ## wheel and sdist, in dist/
	@rm -rf dist
	@$(STEP) dist $(BIN)/python -m hatchling build -d dist

docs-keys: setup ## write the tables of configuration keys from the schemas, and the pages of the presets
	$(BIN)/python tools/config_reference.py
	$(BIN)/python tools/preset_pages.py

format: setup ## let the formatters change the files
	$(BIN)/ruff check --fix --quiet $(CODE) || true
	$(BIN)/ruff format $(CODE)
	$(BIN)/snakefmt $(WORKFLOW)

soak: setup ## all accidents for MINUTES (60) to runs of ENGINE (toy) on a real Slurm cluster; HOW=detached SEED=2 WRITE=1
	@UNBROKEN_SOAK_ENGINE=$(or $(ENGINE),toy) UNBROKEN_SOAK_HOW=$(or $(HOW),attached) UNBROKEN_SOAK_MINUTES=$(or $(MINUTES),60) \
		UNBROKEN_SOAK_SEED=$(or $(SEED),1) UNBROKEN_SOAK_RESULTS=$(if $(WRITE),$(CURDIR)/docs/soak.jsonl) \
		$(if $(filter tensorflow,$(ENGINE)),$(TENSORFLOW)/bin/python,$(BIN)/python) -m pytest -n0 -s -m soak tests/cluster/test_soak.py
	@$(if $(WRITE),$(BIN)/python tools/soak_table.py docs/soak.jsonl --write docs/evidence.md)

kills: setup ## 200 kills each of programs that save in eleven ways, about an hour
	@$(BIN)/python -m pytest -n3 -m soak --timeout=3000 tests/engines/test_savers.py

# A red test is no reason to measure nothing. Side by side as in all-tests.
coverage coverage-table: export UNBROKEN_COVERAGE := $(abspath build/coverage/data)
coverage: setup ## lines and branches that all tests reach, and what they start, jobs on Slurm included: two hours on two cores
	@rm -rf build/coverage && mkdir -p build/coverage
	@{ $(MAKE) --no-print-directory slurm-tests; $(MAKE) --no-print-directory slow-slurm-tests; } >build/coverage/slurm.log 2>&1 & \
		$(MAKE) --no-print-directory unit-tests; $(MAKE) --no-print-directory slow-tests; \
		$(MAKE) --no-print-directory tensorflow-tests; wait; cat build/coverage/slurm.log
	@$(MAKE) --no-print-directory coverage-table

coverage-table: ## the table of what `make coverage` measured; WRITE=docs/evidence.md
	@$(BIN)/coverage json --keep-combined --quiet --ignore-errors -o build/coverage/coverage.json
	@$(BIN)/python tools/coverage_table.py build/coverage/coverage.json $(if $(WRITE),--write $(WRITE))

# Not part of the set-up: it brings a screen of its own.
mutants: setup ## change store, lease, passport and classify in a thousand ways; which changes no test sees
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[mutants]"
	@$(BIN)/mutmut run --max-children $(or $(JOBS),2)
	@$(BIN)/python tools/mutants_table.py mutants $(if $(WRITE),--write $(WRITE))

clean: ## remove .venv, caches and what the examples left (not results/ of your own)
	rm -rf .apptainer .venv .venv-tensorflow .venv-presets .venv-frameworks .venv-torch-* .venv-python* build dist mutants .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf examples/*/.snakemake examples/*/.unbroken examples/*/results examples/*/logs examples/interruptible/ckpt examples/interruptible/assembly
