# `make demo` and `make test` set up everything they need in .venv.
PYTHON ?= python3
BIN := .venv/bin

DEMO := demo
JOB := all-reduce-swing --gpus 64 --ports 2 --message 16MiB --link 800Gbps --alpha 500ns --delta 500ns --reconfig-delay 10us

.PHONY: demo test lint format install benchmarks lock

demo: install
	mkdir -p $(DEMO)
	$(BIN)/lumenfarm synth $(JOB) -o $(DEMO)/schedule.json --force
	$(BIN)/lumenfarm plot envelope $(DEMO)/schedule.json -o $(DEMO)/envelope.png --force
	$(BIN)/lumenfarm plot timeline $(DEMO)/schedule.json -o $(DEMO)/timeline.png --force
	$(BIN)/lumenfarm verify $(DEMO)/schedule.json

test: install
	$(BIN)/python -m pytest
	$(BIN)/python -m pytest --doctest-modules --pyargs lumenfarm

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p lumenfarm
	$(BIN)/mypy tests benchmarks
	$(BIN)/lint-imports

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

benchmarks: install
	for benchmark in benchmarks/*_*.py; do $(BIN)/python $$benchmark || exit 1; done

# The package is linked file by file, so it is linked anew every time: files come and go.
install: .venv/locked
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .

.venv/locked: requirements.lock
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	touch .venv/locked

# Needs uv.
lock:
	uv pip compile pyproject.toml --extra dev --universal --generate-hashes --no-emit-index-url --no-annotate \
		--custom-compile-command "make lock" --output-file requirements.lock
