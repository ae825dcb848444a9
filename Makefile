# Every target sets up what it needs in .venv; a clone, Python 3.11 or later and make are enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: run test check bench faults fuzz conformance race steady differential install clean

SEEDS ?= 1000
SCENARIOS ?= 20
FIRST_SEED ?= 1
fuzz: MINUTES ?= 10

run: $(STAMP)
	@$(BIN)/bayplan up --nodes 12 --plugin bayplan.plugins.coscheduling:Coscheduling --exit-when-idle auto \
	  -f examples/tour/1-platform.yaml -f examples/tour/2-workloads.yaml -f examples/tour/3-urgent.yaml

test: $(STAMP)
	$(BIN)/python -m pytest -n auto

check: $(STAMP)
	$(BIN)/ruff check src tests conformance
	$(BIN)/ruff format --check src tests conformance
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/bayplan bench --core --json

faults: $(STAMP)
	$(BIN)/python -m bayplan.simulator.fault_run --seeds $(SEEDS)

# Generated and mutated inputs for every door of the program; FUZZ='--targets embedded' chooses.
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(FUZZ)

# The real kube-apiserver, kube-scheduler and kubectl, built with Go and kept in ~/.cache/bayplan/conformance.
conformance: $(STAMP)
	$(BIN)/python -m conformance

# kube-scheduler and bayplan against the same API server; RACE='--nodes 1000 --sampling default' makes it shorter.
race: $(STAMP)
	$(BIN)/python -m conformance.racing $(RACE)

# CPU per pod of both at a constant rate; STEADY='--rate 50 --schedulers bayplan' changes it.
steady: $(STAMP)
	$(BIN)/python -m conformance.racing.steady $(STEADY)

# Scenarios from seeds, given to the real kube-scheduler and to bayplan.
differential: $(STAMP)
	$(BIN)/python -m conformance.differential --scenarios $(SCENARIOS) --first-seed $(FIRST_SEED)

install: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
