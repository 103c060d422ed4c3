# One command for each thing one does with this checkout. Each sets up first what it needs.
SHELL := bash
PYTHON ?= python3
export PYTHON

.PHONY: help setup demo check coverage test nightly bench lock clean
.DEFAULT_GOAL := help

help: ## list these commands
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: ## prepare .venv, Java, a browser and Kafka's jars: everything that the checks need
	@scripts/setup.sh --browser

demo: ## run examples/flights.py on real flights
	@scripts/setup.sh
	@.venv/bin/drivetrain run examples/flights.py --set run.max-batch-bytes="1 MiB" --fresh

check: setup ## run the quick checks, for while one works: lint, types, layers, unit, simulation
	@scripts/check.sh --quick

coverage: setup ## measure which lines and branches of src the unit tests and simulations reach
	@scripts/check.sh --coverage

test: setup ## run every check: lint, types, layers, unit, simulation, integration, browser
	@scripts/check.sh

nightly: setup ## the same, with thousands of seeds, two million absurd messages, and random applications for seven hours
	@DRIVETRAIN_SEEDS=$${DRIVETRAIN_SEEDS:-2000} TESTS_FUZZ=$${TESTS_FUZZ:-2000000} \
		TESTS_APPLICATIONS=$${TESTS_APPLICATIONS:-2000} \
		scripts/check.sh --timeout 3600
	@DRIVETRAIN_SEEDS=20 scripts/versitygw.sh

bench: ## the main figures beside their peers in 15 minutes, or benchmarks in full (NAMES="wheel sol" ARGS="--quick")
	@scripts/setup.sh
	@scripts/bench.sh $(NAMES) -- $(ARGS)

lock: ## resolve the dependencies anew and write requirements.lock
	@scripts/setup.sh
	@scripts/lock.sh

clean: ## remove what tests and builds leave behind (not .venv)
	@rm -rf build dist .hypothesis .mypy_cache .ruff_cache .import_linter_cache spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
