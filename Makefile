# `make demo` and `make test` do all the set-up themselves. As root on Debian they first print what they may install.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Most tests wait for something, so more of them run at once than there are cores.
TEST_JOBS ?= 4
PYTEST_ARGS ?=
PYTEST = $(BIN)/pytest --numprocesses $(TEST_JOBS) --dist loadscope
# Tests start hundreds of Python processes; without files of bytecode each of them compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help notice-demo notice-engine demo test test-hostile test-more live-model test-live test-integrations test-fast check lint size format types types-users engine image bench board screenshots release-check docs clean
.DEFAULT_GOAL := help

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-17s %s\n", $$1, $$2}'

demo: notice-demo $(VENV)/.installed ## a run with a recorded model and a real sandbox (Docker, else bubblewrap)
	@docker/setup.sh sandbox $(BIN)
	@$(BIN)/codeact demo
	@echo "codeact is in $(BIN), which your shell does not search yet: run \`. $(BIN)/activate\`, or type $(BIN)/codeact."

$(VENV)/mcp2: | $(VENV)/.installed
	@echo "installing version 2 of the package mcp beside version 1, for the tests" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $@ mcp==2.3.0

test: image | $(VENV)/mcp2 ## the tests before each commit, on a real Docker engine, bubblewrap and a browser: 6 minutes
	@docker/setup.sh bubblewrap
	@docker/setup.sh browser
	@$(PYTEST) $(PYTEST_ARGS)

test-hostile: image ## the abuse suite: 8 minutes
	@docker/setup.sh bubblewrap
	@$(PYTEST) -m hostile tests/abuse $(PYTEST_ARGS)

test-more: image | $(VENV)/mcp2 ## Ray, all of the browser, recipes of images, old Pythons, recorded sessions, kills, wheels, samples, programs of the docs
	@docker/setup.sh bubblewrap
	@docker/setup.sh browser
	@$(PYTEST) -m more $(PYTEST_ARGS)

live-model: $(VENV)/.installed ## install llama.cpp and fetch a small model for test-live (0.2 GB)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt xllamacpp || { \
		echo "pip could not install xllamacpp, which the tests with a live model need: see its message above" >&2; exit 1; }
	@$(BIN)/python tests/live/server.py

test-live: image live-model ## tests with a live model, without a network
	@$(BIN)/pytest --numprocesses 2 --dist loadscope -m live --timeout 180 $(PYTEST_ARGS)

test-integrations: image ## tests of the adapters, each in an environment with its framework
	@docker/setup.sh bubblewrap
	@$(BIN)/python tests/frameworks/run.py

FAST_TESTS = tests/agents tests/teams tests/sandbox/host tests/sandbox/types tests/executors/test_tool_kinds.py tests/test_exports.py

test-fast: $(VENV)/.installed ## tests of the folders that need no Docker engine: two minutes
	@REQUIRE_DOCKER= $(PYTEST) -m "not slow and not live and not more and not hostile" $(FAST_TESTS) $(PYTEST_ARGS)

check: lint types test ## the checks of a change: ruff, mypy strict, tests

lint: $(VENV)/.installed size ## ruff, and the size budgets
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

size: ## how large product, tests, docs and benchmarks are; fails above a budget
	@$(PYTHON) benchmarks/size.py

format: $(VENV)/.installed ## format the code
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

types: $(VENV)/.installed ## mypy, strict
	@$(BIN)/mypy -p autogen_codeact -p codeact_sandbox

types-users: $(VENV)/.installed ## what mypy and pyright say of samples, programs of the docs, and mistakes of users
	@$(BIN)/pytest --quiet tests/test_types.py

notice-demo notice-engine:
	@docker/setup.sh notice $(@:notice-%=%)

engine: notice-engine $(VENV)/.installed ## check for a Docker engine; as root on Debian, install and start one if there is none
	@docker/setup.sh engine $(BIN)/python

image: engine ## build the sandbox image if it is missing
	@docker/setup.sh debootstrap
	@$(BIN)/codeact image build

bench: image ## blocks and starts beside other libraries, on a quiet machine; writes docs/benchmarks.md and README's sentence
	@$(BIN)/python benchmarks/compare.py

board: image ## programs and escapes in each sandbox that is installed, half an hour; writes docs/board.md
	@$(BIN)/python benchmarks/board.py

screenshots: $(VENV)/.installed ## the screenshots of docs/ (needs Chromium, tmux and a sandbox)
	@$(BIN)/python docs/make_screenshots.py

$(VENV)/.installed: pyproject.toml sandbox/pyproject.toml constraints.txt
	@docker/setup.sh venv $(VENV) $(PYTHON)
	@echo "installing the project and its development tools" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ./sandbox --editable '.[dev]' || { \
		echo "pip could not install the project: see its message above; is a package registry reachable?" >&2; exit 1; }
	@touch $@

$(VENV)-release/.installed: .ci/release.txt
	@docker/setup.sh venv $(VENV)-release $(PYTHON)
	@$(VENV)-release/bin/python -m pip install --quiet --disable-pip-version-check --requirement .ci/release.txt
	@touch $@

release-check: $(VENV)-release/.installed ## build both distributions into dist/, check them, and run the demo from the wheels
	@.ci/release-check $(VENV)-release/bin/python

$(VENV)-docs/.installed: docs/requirements.txt
	@docker/setup.sh venv $(VENV)-docs $(PYTHON)
	@$(VENV)-docs/bin/python -m pip install --quiet --disable-pip-version-check --requirement docs/requirements.txt
	@touch $@

docs: $(VENV)-docs/.installed ## the site, in build/site, with a reference from the docstrings; fails on broken links
	@$(VENV)-docs/bin/python docs/make_site.py

clean: ## remove what make has created in this folder
	rm -rf $(VENV) $(VENV)-* .integrations build dist *.egg-info sandbox/build sandbox/*.egg-info .pytest_cache .mypy_cache .ruff_cache
