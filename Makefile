# make demo   set up and fit a private model on the embedded table
# make test   set up and run lint, types and tests
# make docs   build the site in build/docs
# make bench-speed    measure speed and memory (docs/speed.md)
# make bench-utility  measure what the defaults reach (docs/utility)
# make bench-forecasts compare the plan's forecasts with fits (docs/utility/forecasts.md)
# make bench-peers    run diffprivlib, Opacus and scikit-learn beside ours (docs/peers)
# make picture        draw what the readme shows, from both
# make bench-rule     measure what other constants would give (docs/utility/rule.md)
# make bench-csv      fit a CSV of 2 GB within 1 GB of memory
# make coverage       measure how often intervals cover (docs/uncertainty.md)
# make audit          attack our own mechanisms and fits (docs/audit.md)
# make attack         tell random neighbouring tables apart, 20,000 pairs (docs/attack.md)
# make mutants        plant privacy mistakes and see the tests catch them (docs/mutants.md)
# make ledger-stress  spend from one ledger while being killed
# make kill-fits      kill fits at random; no half model, no spending that is not counted
# make fuzz           hostile files and arguments, for long
# make dist           build sdist and wheel, and check them as a stranger gets them
# make oldest         run the tests with the oldest versions of the dependencies
# make newest         run them with the newest: make newest PYTHON=python3.13
# make experiments    run the paper's experiments (docs/experiments)
# make theory print the paper's special cases, measured (docs/theory.md)
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
JOBS   ?= 2

.PHONY: demo test lint types unit docs theory bench-speed bench-utility bench-rule bench-csv
.PHONY: bench-peers bench-forecasts picture
.PHONY: experiments coverage audit attack mutants ledger-stress kill-fits fuzz oldest newest dist format clean

demo: $(VENV)/.demo
	$(BIN)/skdp demo

test: lint types unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

unit: $(VENV)/.dev
	$(BIN)/pytest -n $(JOBS) -q

docs: $(VENV)/.dev
	$(BIN)/sphinx-build -q -n -W --keep-going docs build/docs
	@echo "Open build/docs/index.html"

theory: $(VENV)/.dev
	$(BIN)/python experiments/theory_table.py

experiments: $(VENV)/.dev
	$(BIN)/python experiments/run.py --jobs $(JOBS)

bench-speed: $(VENV)/.dev
	$(BIN)/python benchmarks/speed.py

bench-utility: $(VENV)/.dev
	$(BIN)/python benchmarks/utility.py

bench-forecasts: $(VENV)/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/forecasts.py --measure

bench-peers: $(VENV)/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/peers.py

picture: $(VENV)/.dev
	$(BIN)/python benchmarks/picture.py

bench-rule: $(VENV)/.dev
	$(BIN)/python benchmarks/rule_check.py

bench-csv: $(VENV)/.dev
	$(BIN)/python benchmarks/big_csv.py

coverage: $(VENV)/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/intervals.py

audit: $(VENV)/.dev
	$(BIN)/python benchmarks/audit.py

attack: $(VENV)/.dev
	$(BIN)/python benchmarks/attack.py --jobs $(JOBS)

mutants: $(VENV)/.dev
	$(BIN)/python benchmarks/mutants.py

ledger-stress: $(VENV)/.dev
	$(BIN)/python benchmarks/ledger_stress.py

kill-fits: $(VENV)/.dev
	$(BIN)/python benchmarks/kill_fits.py

fuzz: $(VENV)/.dev
	SKDP_FUZZ=2000 $(BIN)/pytest -n $(JOBS) -q tests/hostile

oldest:
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet --disable-pip-version-check \
	  -c tests/oldest.txt -e '.[dev]'
	$(VENV)-oldest/bin/pytest -n $(JOBS) -q

newest:
	$(PYTHON) -m venv --clear $(VENV)-newest
	$(VENV)-newest/bin/python -m pip install --quiet --disable-pip-version-check \
	  --upgrade --upgrade-strategy eager -e '.[dev]'
	$(VENV)-newest/bin/pytest -n $(JOBS) -q

dist: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dist]'
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python tools/check_dist.py dist

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

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
