# make demo              set up and fit a private model on a synthetic table
# make test              lint, types and all tests: what CI runs
# make fast              lint, types and the quick tests, for daily work
# make lint              ruff and mypy
# make format            let ruff fix and format
# make docs              build the site in build/docs
# make bench NAME=...    run a measurement; without a name, list them
# make dist              build sdist and wheel, and check them in a clean environment
# make versions          run the tests with other dependencies: WITH=oldest or newest
# make clean             remove the environment and caches
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
JOBS   ?= 2
WITH   ?= oldest

.PHONY: demo test fast lint format docs bench dist versions clean

demo: $(VENV)/.demo
	$(BIN)/skdp demo

test: $(VENV)/.dev
	$(MAKE) --no-print-directory -j2 lint $(VENV)/.kernels
	$(BIN)/pytest -n $(JOBS) --dist worksteal -q

fast: $(VENV)/.dev
	$(MAKE) --no-print-directory -j2 lint $(VENV)/.kernels
	$(BIN)/pytest -n $(JOBS) --dist worksteal -q --fast

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev
	$(BIN)/sphinx-build -q -n -W --keep-going docs build/docs
	@echo "Open build/docs/index.html"

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/run.py $(NAME)

dist: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dist]'
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python tools/check_dist.py dist

versions:
	$(PYTHON) -m venv --clear $(VENV)-$(WITH)
	$(VENV)-$(WITH)/bin/python -m pip install --quiet --disable-pip-version-check \
	  $(if $(filter oldest,$(WITH)),-c tests/oldest.txt,--upgrade --upgrade-strategy eager) \
	  -e '.[dev]'
	$(VENV)-$(WITH)/bin/pytest -n $(JOBS) --dist worksteal -q

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "skdp needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cli]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.demo

# Compiled code is kept on disk. Without this, each process of pytest would compile it.
$(VENV)/.kernels: $(wildcard src/skdp/engines/*.py) | $(VENV)/.dev
	@$(BIN)/python -c 'import skdp; from skdp.engines import kernels, matrix_kernels; \
	  kernels.compile_columns(kernels.COLUMNS); \
	  matrix_kernels.compile_readers(matrix_kernels.READERS); \
	  data = skdp.make_hospital(200_000); model = skdp.LogisticRegression; \
	  model(schema=data.schema, engine="compiled").fit(data.columns)'
	@touch $@
