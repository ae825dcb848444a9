# Every target sets up what it needs in .venv; a clone, Python 3.11 or later and make are enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUNS   := $(VENV)/.runs
STAMP  := $(VENV)/.installed
TOOLS  := $(VENV)/tools/.installed
PIP    := $(BIN)/python -m pip --disable-pip-version-check
COMPILE = $(VENV)/tools/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-strip-extras --no-header --no-annotate $(UPGRADE)

.PHONY: run test test-long test-all test-browser check bench faults fuzz soak conformance e2e race race-deschedule steady differential changelog release man sbom install lock audit clean

SEEDS ?= 1000
SCENARIOS ?= 20
FIRST_SEED ?= 1
# The Kubernetes release of `make conformance` and `make differential`: 1.36 or 1.37.
RELEASE ?= 1.36
fuzz: MINUTES ?= 10
soak: MINUTES ?= 30
VERSIONS ?= 3.11 3.12 3.13
# COVERAGE=1 measures coverage too, and fails below the figure in pyproject.toml.
COVERAGE ?=

run: $(RUNS)
	@$(BIN)/bayplan up --nodes 12 --plugin bayplan.plugins.library.coscheduling:Coscheduling --exit-when-idle auto \
	  --devices examples/gpus.yaml -f examples/tour/1-platform.yaml -f examples/tour/2-workloads.yaml -f examples/tour/3-urgent.yaml

# Everything that is not marked `long`. Bytecode is written: assertions of the tests would be compiled by every worker.
test test-long: export PYTHONDONTWRITEBYTECODE =
test: $(STAMP)
	$(BIN)/python -m pytest -n auto -m "not long" $(if $(COVERAGE),--cov --cov-report=term:skip-covered) $(TEST)

# What is marked `long`, and the property tests with all their examples.
test-long: $(STAMP)
	BAYPLAN_LONG=1 $(BIN)/python -m pytest -n auto -m long $(TEST)

# Every supported Python on this machine, each in a virtual environment of its own; the others are named as skipped.
test-all:
	@for version in $(VERSIONS); do \
	  if python$$version -c '' 2>/dev/null; then \
	    echo "== Python $$version"; \
	    $(MAKE) --no-print-directory test VENV=.venv-$$version PYTHON=python$$version || exit 1; \
	  else \
	    echo "== Python $$version: SKIPPED, there is no python$$version on the PATH"; \
	  fi; \
	done

# The page and the HTML report in a real Chromium; skipped with a message where there is none.
test-browser: $(STAMP)
	BAYPLAN_BROWSER=1 $(BIN)/python -m pytest -rs tests/browser

check: $(STAMP)
	$(BIN)/ruff check src tests conformance tools benchmarks
	$(BIN)/ruff format --check src tests conformance tools benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/page_types.py

bench: $(STAMP)
	$(BIN)/bayplan bench --core --json

faults: $(STAMP)
	$(BIN)/python -m tests.faults --seeds $(SEEDS)

# Generated and mutated inputs for every door of the program; FUZZ='--targets embedded' chooses.
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(FUZZ)

# A large embedded cluster under churn, killed and restarted; fails on errors and on growing memory.
soak: $(STAMP)
	$(BIN)/python -m tests.soak --minutes $(MINUTES) $(SOAK)

# The real kube-apiserver, kube-scheduler and kubectl, built with Go and kept in ~/.cache/bayplan/conformance.
# RELEASE=1.37 runs the tests with that release; CONFORMANCE='-k bind' chooses some.
conformance: $(STAMP)
	$(BIN)/python -m conformance --release $(RELEASE) $(CONFORMANCE)

# Kubernetes' own end-to-end tests of scheduling on `bayplan up`; E2E='--focus Preemption' for some of them.
e2e: $(STAMP)
	$(BIN)/python -m conformance.e2e $(E2E)

# kube-scheduler and bayplan against the same API server; RACE='--nodes 1000 --sampling default' makes it shorter.
race: $(STAMP)
	$(BIN)/python -m conformance.racing $(RACE)

# A cycle of descheduler and of bayplan on the same cluster; RACE='--nodes 1000 --strategies PodLifeTime' makes it shorter.
race-deschedule: $(STAMP)
	$(BIN)/python -m conformance.racing.deschedule $(RACE)

# CPU per pod of both at a constant rate; STEADY='--rate 50 --schedulers bayplan' changes it.
steady: $(STAMP)
	$(BIN)/python -m conformance.racing.steady $(STEADY)

# Scenarios from seeds, given to the real kube-scheduler and to bayplan; DIFFERENTIAL=--groups for those with pod groups.
differential: $(STAMP)
	$(BIN)/python -m conformance.differential --release $(RELEASE) --scenarios $(SCENARIOS) --first-seed $(FIRST_SEED) $(DIFFERENTIAL)

# The notes of changelog.d/ as they will appear in CHANGELOG.md.
changelog: $(STAMP)
	@$(BIN)/towncrier build --draft --version next

# Builds wheel and sdist into dist/ and tries both in fresh virtual environments. CONTRIBUTING.md has the steps around it.
# BASE_URL is the address under which the files will be published, for the krew manifest.
release: $(STAMP)
	BASE_URL="$(BASE_URL)" $(BIN)/python tools/release.py

# The manual page of all commands.
man: $(STAMP)
	@mkdir -p dist
	@PYTHONPATH=. $(BIN)/python tools/man.py dist/bayplan.1
	@echo "man ./dist/bayplan.1 shows it"

# What the image contains as CycloneDX, and its licences; from the pins and the installed packages, without network.
sbom: $(STAMP)
	@mkdir -p dist
	@PYTHONPATH=. $(BIN)/python tools/sbom.py > dist/bayplan.cdx.json
	@PYTHONPATH=. $(BIN)/python tools/sbom.py --licences | tee dist/bayplan.licences.txt

install: $(RUNS)

# Exactly what is pinned, whoever runs it and when; `tools/locked.py` says so where pyproject.toml asks for more.
# Running needs a third of the packages that the tests need, so `make run` installs only those.
# Bytecode is compiled here because Python does not write it with PYTHONDONTWRITEBYTECODE, as is usual in containers;
# compiling everything at each start takes as long as the imports themselves.
$(RUNS): pyproject.toml requirements/run.txt requirements/build.txt
	@echo "Installing bayplan and the packages it needs into $(VENV); this happens once"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --require-hashes -r requirements/run.txt -r requirements/build.txt
	@$(BIN)/python tools/locked.py
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q -j 0 src
	@touch $(RUNS)

$(STAMP): $(RUNS) requirements/dev.txt
	@echo "Installing the packages of the tests and checks into $(VENV)"
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $(STAMP)

# Pins what pyproject.toml asks for; see requirements/README.md. UPGRADE=--upgrade takes the newest versions.
lock: $(TOOLS)
	$(COMPILE) pyproject.toml -o requirements/run.txt
	$(COMPILE) requirements/build.in -c requirements/run.txt -o requirements/build.txt
	$(COMPILE) pyproject.toml requirements/build.in --extra dev -c requirements/run.txt -c requirements/build.txt \
	  -o requirements/dev.txt
	$(COMPILE) pyproject.toml --extra fleet -c requirements/dev.txt -o requirements/fleet.txt
	$(COMPILE) pyproject.toml --extra tracing -c requirements/dev.txt -o requirements/tracing.txt
	$(COMPILE) requirements/tools.in -o requirements/tools.txt

# Known vulnerabilities of what is pinned; says so where the data cannot be reached.
audit: $(TOOLS)
	$(VENV)/tools/bin/python tools/audit.py requirements/run.txt requirements/dev.txt

$(TOOLS): requirements/tools.txt
	$(PYTHON) -m venv $(VENV)/tools
	$(VENV)/tools/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	  -r requirements/tools.txt
	touch $(TOOLS)

clean:
	rm -rf $(VENV) .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
