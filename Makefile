# Two commands matter: `make demo` (a first report) and `make test` (the suite). Each makes .venv when there is none.
# Works with GNU make 3.81 and the BSD tools of macOS.
#
#   PYTHON=python3.12    choose the interpreter for a new .venv (3.11 or newer)
#   PIP_ARGS=...         more arguments for every pip install, for example an index with CPU-only torch
#   PYTEST_ARGS=...      more arguments for pytest, for example PYTEST_ARGS="tests/scenes -x"

VENV := .venv
BIN := $(VENV)/bin
PIP_ARGS ?=
PYTEST_ARGS ?=
PIP_INSTALL = $(BIN)/python -m pip install --disable-pip-version-check $(PIP_ARGS)

# Threads that wait for each other must not spin: on a machine that does other work too, spinning costs tenfold.
OMP_WAIT_POLICY ?= PASSIVE
export OMP_WAIT_POLICY

.PHONY: help demo test test-long bench lint lint-style lint-format lint-imports lint-types format
.DEFAULT_GOAL := help

help:
	@echo "make demo       study a real text embedder and write report.html"
	@echo "make test       the test suite, with the README's commands and the report in a browser"
	@echo "make test-long  the tests that take longer as well"
	@echo "make lint       style, types and import layers"
	@echo "make format     reformat the code"
	@echo "make bench      the paper's recipes beside ours, timed"

demo: $(VENV)/.demo
	$(BIN)/colligate paper --out report.html
	@echo "Open the report: $(CURDIR)/report.html"

# A file of tests stays in one process, so that what its tests share is made once; each process works in one thread.
PARALLEL := -n auto --maxprocesses 4 --dist loadfile

test: $(VENV)/.dev
	$(BIN)/python -m pytest $(PARALLEL) $(PYTEST_ARGS)

test-long: $(VENV)/.dev
	$(BIN)/python -m pytest $(PARALLEL) -m "not gpu" $(PYTEST_ARGS)

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/run.py

# `make -k lint` goes on after the first that fails.
lint: lint-style lint-format lint-imports lint-types

lint-style: $(VENV)/.dev
	$(BIN)/ruff check .

lint-format: $(VENV)/.dev
	$(BIN)/ruff format --check .

lint-imports: $(VENV)/.dev
	$(BIN)/lint-imports

lint-types: $(VENV)/.dev
	$(BIN)/pyright

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# One stamp for each set of packages; a changed pyproject.toml installs again. Everything in one pip call, so that
# torch and torchvision are chosen together.
$(VENV)/.demo: pyproject.toml $(BIN)/python
	$(PIP_INSTALL) -e '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(BIN)/python
	$(PIP_INSTALL) -e '.[dev,demo,hf,open-clip,render3d,sbert]'
	@touch $@

$(BIN)/python:
	@set -e; \
	for python in $(PYTHON) python3.13 python3.12 python3.11 python3.14 python3; do \
	    if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "Making $(VENV) with $$python"; \
	        "$$python" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; \
	        exit 0; \
	    fi; \
	done; \
	echo "No Python 3.11 or newer with venv was found. On Debian: apt-get install python3-venv;" \
	     "on macOS: brew install python; or name one: make PYTHON=/path/to/python3" >&2; \
	exit 1
