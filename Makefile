# Every target creates and reuses .venv by itself; nothing else is needed than Python 3.11+, pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.base
STAMP := $(VENV)/.installed
TESTS ?= tests
WORKERS ?= 2
OPTIONS ?=
INPUTS ?= 200000

.PHONY: help install demo test test-slow coverage lint bench fuzz reliability docs package checker clean compile-pipelines compile-placements

help:
	@echo "make demo     plan zoo models, compare, verify, run one on this machine; plans and traces go to demo/"
	@echo "make test     run the tests without child processes, browser, torch or long searches: some minutes"
	@echo "              (TESTS=tests/cluster: everything in that folder or file; WORKERS=2; OPTIONS for pytest)"
	@echo "make test-slow  run all other tests: some ten minutes"
	@echo "make coverage   run both, and print the share of lines that they run"
	@echo "make lint     ruff and mypy --strict"
	@echo "make bench    measure, and write docs/benchmarks.md"
	@echo "make fuzz     damaged files into every reader (INPUTS=200000)"
	@echo "make reliability  fuzz, determinism, agreement, kills, mutants: hours; writes docs/reliability.md"
	@echo "make docs     build the docs site into build/site, and check that every command and link in it works"
	@echo "make package  build wheels (with and without machine code) and sdist into dist/, install them and try them"
	@echo "make checker  pack the checkers into dist/check.pyz, which needs Python and nothing else"
	@echo "make install  only create .venv with weftline and all extras"

install: $(STAMP)

# What plans and runs models; the rest (torch, OpenVINO, ray, the tools of tests and docs) is larger and comes with STAMP.
$(BASE): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "weftline needs Python 3.11 or newer; set PYTHON=python3.11")'
	@echo "installing weftline and what it needs into $(VENV): a minute or two"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@echo "compiling kernels, once after an installation: a minute or two"
	@$(MAKE) --no-print-directory --jobs 2 compile-pipelines compile-placements
	touch $(BASE)

compile-pipelines:
	@$(BIN)/python -m weftline.ask.compiling throughput copies

compile-placements:
	@$(BIN)/python -m weftline.ask.compiling latency policy

$(STAMP): $(BASE)
	@echo "installing all extras and the tools of tests and docs: some minutes"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[torch,openvino,ray,ui,docs,dev]'
	@echo "compiling kernels of schedules and layers, once after an installation: a minute"
	@$(BIN)/python -m weftline.ask.compiling schedule layers serving
	touch $(STAMP)

demo: $(BASE)
	$(BIN)/weftline demo --output demo

PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(OPTIONS) $(TESTS)

# Whoever names a folder or a file wants all of it.
test: $(STAMP)
	$(PYTEST) $(if $(filter tests,$(TESTS)),-m "not slow")

test-slow: $(STAMP)
	$(PYTEST) -m slow

# Lines that run in this process; those of child processes are not counted.
coverage: $(STAMP)
	$(MAKE) --no-print-directory test OPTIONS='--cov=weftline --cov-report='
	$(MAKE) --no-print-directory test-slow OPTIONS='--cov=weftline --cov-append --cov-report='
	@echo "lines covered: $$($(BIN)/python -m coverage report --format=total --precision=2) %"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python -m benchmarks

fuzz: $(STAMP)
	$(BIN)/python -m reliability --only fuzz --inputs $(INPUTS)

reliability: $(STAMP)
	$(BIN)/python -m reliability

docs: $(STAMP)
	$(BIN)/python docs/make_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python -m pytest -q tests/docs

package: $(STAMP)
	$(BIN)/python tools/make_wheel.py dist
	$(BIN)/python -m pytest -q tests/package

checker:
	$(PYTHON) tools/make_checker.py dist/check.pyz

clean:
	rm -rf $(VENV) .coverage demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
