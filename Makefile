# `make demo` and `make test` are the two to remember; each sets up .venv on its first use.
# PYTHON=python3.12 make demo   takes another interpreter (3.11 or newer) for a fresh .venv.

PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin

# Tests and benchmarks run one thread per process: BLAS threads on top only take turns.
OMP_NUM_THREADS ?= 1
OPENBLAS_NUM_THREADS ?= 1
# Tests start many processes, which would compile our sources again and again without bytecode.
PYTHONDONTWRITEBYTECODE :=
export PYTHON OMP_NUM_THREADS OPENBLAS_NUM_THREADS PYTHONDONTWRITEBYTECODE

# Where `make demo` leaves its run, and which paper `make reproduce` repeats.
OUT ?= tellers-demo
PAPER ?= pate2017
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test behaviour test-all lint quick coverage chaos bench reproduce docs fresh browser postgres compiler clean clean-all

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: .venv/.base ## teachers, votes, a ledger, a student and its report, on digits that come along
	@$(BIN)/tellers demo --out $(OUT)

test: .venv/.dev browser postgres ## lint, types, import contracts, dependencies and the tests of behaviour
	@# Types take a core for half a minute: the tests have the other one from the start.
	@$(MAKE) --no-print-directory -j 2 lint behaviour

behaviour: .venv/.dev
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not reproduction and not campaign"

test-all: .venv/.dev browser postgres compiler ## the rest: campaigns of faults, long proofs, quick reproductions of the papers
	$(BIN)/python -m pytest -n $(JOBS) -m "campaign or reproduction" --ignore=tests/parties tests
	@# Sessions between parties share their processes: a file of tests stays together.
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m campaign tests/parties

lint: .venv/.dev ## format, lint, types, import contracts, dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry src

# Mechanisms, accounting, ledgers, settings and what is pinned; no whole runs, processes, browsers or networks.
LONG := $(addprefix tests/test_,docs.py envelope.py estimator%.py examples.py experiments.py label_alternatives.py \
	multiwinner.py votes_stay.py)
QUICK := tests/card tests/config tests/ledger tests/mechanisms tests/golden/test_names.py \
	tests/golden/test_settings.py $(filter-out $(LONG),$(wildcard tests/test_*.py))

quick: .venv/.dev ## a minute of tests, of what everything else stands on
	$(BIN)/python -m pytest -n $(JOBS) -q -m "not slow and not reproduction and not campaign" $(QUICK)

coverage: .venv/.dev ## all tests, with branch coverage
	$(BIN)/python -m pytest -n $(JOBS) --cov --cov-report=term

chaos: .venv/.dev postgres compiler ## kills and power cuts under load, per backend: make chaos ARGS="--seconds 180" for less
	$(BIN)/python scripts/chaos --backend sqlite $(or $(ARGS),--kills 2000 --power-losses 200 --pause 0.1)
	$(BIN)/python scripts/chaos --backend postgresql $(or $(ARGS),--kills 2000 --power-losses 200 --pause 0.1)

bench: .venv/.dev ## CPU time per question, as ratios to a plain reference
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/teachers.py
	$(BIN)/python benchmarks/labels.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/audio.py --clips 40 --jobs 1
	$(BIN)/python benchmarks/demo.py
	$(BIN)/python benchmarks/parties.py

reproduce: .venv/.dev ## the numbers of a paper beside ours: make reproduce PAPER=pate2018 ARGS=--quick
	$(BIN)/python experiments/$(PAPER)/run.py $(ARGS)

browser: ## Chromium, which the tests look at pages with
	@sh scripts/system.sh browser

postgres: ## PostgreSQL, on which the tests try the ledger
	@sh scripts/system.sh postgres

compiler: ## a C compiler, for tests that cut the power
	@sh scripts/system.sh compiler

docs: .venv/.dev ## build the documentation into docs/_build
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

fresh: .venv/.base ## install the package into an empty environment and run the README there
	@sh scripts/fresh_install.sh

clean: ## remove what building and testing left behind
	rm -rf build dist tellers-demo docs/_build docs/reference/generated .coverage .coverage.* .pytest_cache .mypy_cache \
		.ruff_cache .hypothesis .import_linter_cache chaos-evidence
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

clean-all: clean ## the same, and .venv
	rm -rf .venv

.venv/.base: pyproject.toml constraints/ci.txt scripts/setup.sh
	@sh scripts/setup.sh base
	@touch $@

.venv/.dev: .venv/.base
	@sh scripts/setup.sh dev
	@touch $@
