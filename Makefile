# The two commands of the README are `make demo` and `make test`; both work on a machine that has only Python 3.11+.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo test test-long check format clean

setup: $(VENV)/ready

# torch first and exactly: a looser requirement may fetch gigabytes of CUDA packages on a machine without a GPU.
$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check "torch==2.13.0"
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@

demo: setup
	$(BIN)/manyhands demo --out demo

test: setup
	$(BIN)/pytest -m "not long" -n 2 --dist loadfile --durations=30

test-long: setup
	$(BIN)/pytest

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/pytest -q tests/test_architecture.py tests/test_imports.py

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) demo build dist
