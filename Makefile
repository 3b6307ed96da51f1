# Every target creates and reuses .venv by itself; nothing else is needed than Python 3.11+, pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.base
STAMP := $(VENV)/.installed
TESTS ?= tests
WORKERS ?= 2
INPUTS ?= 200000

.PHONY: help install demo test lint bench fuzz reliability docs package clean compile-pipelines compile-placements

help:
	@echo "make demo     plan zoo models, compare, verify, run one on this machine; plans and traces go to demo/"
	@echo "make test     run all tests"
	@echo "make lint     ruff and mypy --strict"
	@echo "make bench    measure, and write docs/benchmarks.md"
	@echo "make fuzz     damaged files into every reader (INPUTS=200000)"
	@echo "make reliability  fuzz, determinism, agreement, kills, mutants: hours; writes docs/reliability.md"
	@echo "make docs     build the docs site into build/site, and check that every command and link in it works"
	@echo "make package  build wheel and sdist, install them where nothing else is, and try them"
	@echo "make install  only create .venv with weftline and all extras"

install: $(STAMP)

# What plans and runs models; the rest (torch, OpenVINO, ray, the tools of tests and docs) is larger and comes with STAMP.
$(BASE): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "weftline needs Python 3.11 or newer; set PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@echo "compiling kernels, once after an installation: some minutes"
	@$(MAKE) --no-print-directory --jobs 2 compile-pipelines compile-placements
	touch $(BASE)

compile-pipelines:
	@$(BIN)/python -c 'from weftline.pipeline.prepare import prepare; prepare()'

compile-placements:
	@$(BIN)/python -c 'from weftline.latency.prepare import prepare; from weftline.latency.policy.policy import prepare as policy; prepare(); policy()'

$(STAMP): $(BASE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[torch,openvino,ray,ui,docs,dev]'
	@echo "compiling kernels of schedules, once after an installation: a minute or two"
	@$(BIN)/python -c 'from weftline.schedule.prepare import prepare as schedules; schedules()'
	touch $(STAMP)

demo: $(BASE)
	$(BIN)/weftline demo --output demo

test: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(TESTS)

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
	$(BIN)/python -m pytest -q tests/package

clean:
	rm -rf $(VENV) demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
