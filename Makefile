# `make` lists the targets. Everything a target needs is installed by it when missing.
PYTHON ?= /usr/bin/python3
BIN := .venv/bin
UV := $(BIN)/uv
COMPILE := $(UV) pip compile --quiet --generate-hashes --universal --python-version 3.11 \
	--no-annotate --no-emit-index-url --custom-compile-command "make lock"

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test conformance week matrix matrix-quick lint format bench bench-quick acceptance venv dev packages \
	features lock docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: venv ## a real Slurm cluster grows from nothing, runs jobs, and shrinks to nothing
	$(BIN)/tide demo

# Tests start Python hundreds of times, which takes thrice as long if it may not keep what it compiled.
test bench bench-quick: export PYTHONDONTWRITEBYTECODE :=
test: lint ## lint, then every test
	@scripts/install-packages tests
	@scripts/link-libvirt
	$(BIN)/pytest -n 5 --dist loadfile --no-loadscope-reorder

conformance: dev ## the tests that providers and batch systems share; the tables of docs/conformance*.md
	$(BIN)/python -m pytest -n 2 --dist loadfile -p tests.providers.table \
		--conformance-table docs/conformance.md tests/providers
	$(BIN)/python -m pytest -n 2 --dist loadfile -p tests.batch.table \
		--conformance-table docs/conformance-batch.md tests/batch

week: dev ## random weeks in virtual time: SEEDS=1000 of them, or SEED=17 again with all that happened
	$(BIN)/python -m tests.sim.week $(if $(SEED),--seed $(SEED) --trace,--seeds $(or $(SEEDS),100))

matrix: dev ## the tests of real clusters on Debian 12, 13 and sid, and so on three Slurms; SUITES="trixie sid"
	@scripts/install-packages tests
	$(BIN)/python -m tests.matrix $(SUITES)

matrix-quick: dev ## the most important of them on Debian 13
	@scripts/install-packages tests
	$(BIN)/python -m tests.matrix --quick trixie

lint: dev ## style, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	PYTHONPATH=. $(BIN)/lint-imports

format: dev ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: dev ## latencies beside their floor, and beside Slurm without the cure
	$(BIN)/python -m bench

bench-quick: dev ## all of them, few and small: whether they work
	$(BIN)/python -m bench --quick

acceptance: dev ## the acceptance table, with the tests behind each row
	$(BIN)/python scripts/acceptance.py

docs: dev ## print the generated tables of the docs from the code
	$(BIN)/python scripts/docs.py

venv: .venv/.run ## what `tide` needs: its Debian packages, and the Python environment with it

dev: .venv/.tests ## and what style, types and tests need of Python

packages: ## the Debian packages of a cluster of containers
	@scripts/install-packages run

features: ## and those that only some cluster files need: accounting, NFS, DNS, libvirt, keys
	@scripts/install-packages features
	@scripts/link-libvirt

# Locked: several makes in one checkout must not install over each other (uv has .venv/.lock itself).
.venv/.run: pyproject.toml requirements/build.txt requirements/run.txt | packages
	@mkdir -p .venv
	@flock .venv/.making scripts/make-venv run $(PYTHON)

.venv/.tests: .venv/.run requirements/uv.txt requirements/dev.txt
	@flock .venv/.making scripts/make-venv tests $(PYTHON)

lock: dev ## choose the newest versions and write them, with hashes, to requirements/
	$(COMPILE) --upgrade requirements/uv.in -o requirements/uv.txt
	$(COMPILE) --upgrade requirements/build.in -o requirements/build.txt
	$(COMPILE) --upgrade pyproject.toml -o requirements/run.txt
	$(COMPILE) --upgrade pyproject.toml --group dev -c requirements/build.txt -c requirements/run.txt \
		-o requirements/dev.txt
	$(COMPILE) --upgrade requirements/openstack.in -o requirements/openstack.txt

clean: ## remove what can be made again
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
