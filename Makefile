# Two commands do all the set-up: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Most tests wait for something: more of them at once than there are cores.
TEST_JOBS ?= 4
PYTEST_ARGS ?=

.PHONY: help demo test check lint format types engine image bench bench-quick clean
.DEFAULT_GOAL := help

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

demo: $(VENV)/.installed ## a recorded model, real code in a real sandbox: Docker, or bubblewrap where no engine answers
	@docker/setup.sh sandbox $(BIN)
	@$(BIN)/codeact demo

test: image ## the tests, against a real engine
	@docker/setup.sh bubblewrap
	@$(BIN)/pytest --numprocesses $(TEST_JOBS) --dist loadfile $(PYTEST_ARGS)

check: lint types test ## the gate: ruff, mypy strict, tests

lint: $(VENV)/.installed ## ruff
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

format: $(VENV)/.installed ## put the code into shape
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

# A type checker needs the import path to exist as folders.
types: $(VENV)/.installed ## mypy, strict
	@mkdir -p .typing/autogen_codeact
	@for name in agents cli executors integrations sandbox teams; do ln -sfn ../../$$name .typing/autogen_codeact/$$name; done
	@ln -sfn ../../autogen_codeact/__init__.py .typing/autogen_codeact/__init__.py
	@$(BIN)/mypy .typing/autogen_codeact

engine: $(VENV)/.installed ## a Docker engine that answers; installed and started on Debian as root only
	@docker/setup.sh engine $(BIN)/python

image: engine ## the sandbox image
	@docker/setup.sh debootstrap
	@$(BIN)/codeact image build

bench: image ## everything side by side; writes docs/benchmarks.md and README's table (a quiet machine, a quarter of an hour)
	@$(BIN)/python benchmarks/compare.py

bench-quick: image ## a short run that says what got slower than in the last full one
	@$(BIN)/python benchmarks/compare.py --quick

$(VENV)/.installed: pyproject.toml constraints.txt
	@docker/setup.sh venv $(VENV) $(PYTHON)
	@$(BIN)/python -m pip install --quiet --upgrade --target $(VENV)/mcp2 "mcp>=2,<3"
	@echo "installing the project and its development tools" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]' || { \
		echo "pip could not install the project: see its message above; is a package registry reachable?" >&2; exit 1; }
	@touch $@

clean: ## what make has made here
	rm -rf $(VENV) .typing build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
