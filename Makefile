# Every target sets itself up: the first run needs the network, later ones do not. ARGS="…" goes to the command behind it.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-annotate --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) pyproject.toml --extra postgres

# Python keeps its bytecode: without it every process of the tests compiles and rewrites every test file.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test quick check bench proof lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s %s\n", $$1, $$2 }' Makefile

demo: .venv/.headway ## start Headway on a SQLite file and show jobs at work
	@$(BIN)/headway demo --open $(ARGS)

test: .venv/.headway ## run every test, on SQLite and PostgreSQL
	@echo "Running the tests"
	@$(BIN)/python -m compileall -q src tests
	@$(BIN)/python -m pytest $(or $(ARGS),--numprocesses 4 --dist worksteal --tb short -r fE -m "not alone")
	@$(if $(ARGS),,echo "Running the tests of whole systems: killed, loaded, two at a time" && \
		$(BIN)/python -m pytest tests/system --numprocesses 2 --dist loadfile --tb short -r fE -m alone)

quick: .venv/.headway ## run the tests of model and store on SQLite, for work in progress
	@echo "Running the tests of model and store on SQLite"
	@$(BIN)/python -m pytest --numprocesses 4 --dist worksteal -m "not alone and not slow" -k "not postgres" \
		tests/model tests/store tests/test_names.py $(ARGS)

check: .venv/.headway ## check format, lint, types, prose and import contracts
	@echo "Checking the format"
	@$(BIN)/ruff format --check .
	@echo "Checking for lint"
	@$(BIN)/ruff check .
	@echo "Checking the types"
	@$(BIN)/mypy
	@echo "Checking the prose"
	@$(BIN)/python scripts/check_prose.py
	@echo "Checking the import contracts"
	@$(BIN)/lint-imports

bench: .venv/.bench .venv/.headway ## run the benchmarks, other schedulers beside Headway
	@echo "Running the benchmarks"
	@$(BIN)/python -m benchmarks $(ARGS)

proof: .venv/.headway ## run the crash tests at full length: hours
	@echo "Running the tests of the store through PgBouncer"
	@HEADWAY_TEST_POOLER=1 $(BIN)/python -m pytest tests/store $(ARGS)
	@echo "Running the crash tests at full length"
	@HEADWAY_PROOF=1 $(BIN)/python -m pytest tests/system tests/store tests/engine tests/model/test_cron_oracle.py \
		tests/cli tests/dashboard $(ARGS)

lock: .venv/.dev ## lock the dependencies anew; UPGRADE=1 takes the newest versions
	@echo "Locking requirements/dev.lock and requirements/bench.lock"
	@$(COMPILE) --extra dev --output-file requirements/dev.lock
	@$(COMPILE) --extra bench --constraints requirements/dev.lock --output-file requirements/bench.lock

clean: ## remove .venv, caches and build output; databases stay
	@echo "Removing .venv, caches and build output"
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp in .venv is newer than the file whose content was installed.

.venv/.headway: pyproject.toml .venv/.dev
	@echo "Installing Headway from this folder"
	@$(INSTALL) --no-index --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.dev: requirements/dev.lock | .venv/pyvenv.cfg
	@echo "Installing the packages of $< (about a minute)"
	@$(INSTALL) --require-hashes -r $< || { echo "Could not install $<: the first run needs the network." >&2; exit 1; }
	@touch $@

.venv/.bench: requirements/bench.lock .venv/.dev
	@echo "Installing the packages of $< (about a minute)"
	@$(INSTALL) --require-hashes -r $< || { echo "Could not install $<: the first run needs the network." >&2; exit 1; }
	@touch $@

.venv/pyvenv.cfg:
	@python="$(PYTHON)"; \
	refuse() { echo "$$1" >&2; exit 1; }; \
	"$${python:-false}" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		refuse "$${python:-python3} is missing or older than Python 3.11. Install a newer one, or name it: make PYTHON=/path/to/python3.12"; \
	"$$python" -c 'import ensurepip, venv' 2>/dev/null || \
		refuse "$$python cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv"; \
	echo "Creating .venv with $$("$$python" --version)"; \
	"$$python" -m venv .venv || { rm -rf .venv; refuse "$$python could not create .venv"; }
