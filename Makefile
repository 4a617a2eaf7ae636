# make run   set up once and open the dashboard on http://localhost:8501 (PORT=... to change)
# make test  linter, type checker, tests with the browser ones (they skip, with the reason, without Chromium)
# make lint  the first two of these
# make bench speed and memory, as ratios within one run

PYTHON ?= python3
PORT ?= 8501
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: run test lint bench

run: $(VENV)/.run
	$(BIN)/python -m streamlit run dashboard/app.py --server.port $(PORT)

test: lint
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev
	$(BIN)/python -m tests.bench

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Headroom needs Python 3.11 or newer, $(PYTHON) is older. Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The stamps say what is installed: the next start installs nothing.
$(VENV)/.run: requirements.txt | $(BIN)/python
	@echo "Setting up $(VENV): the first time takes some minutes."
	$(PIP) -r requirements.txt
	@touch $@

$(VENV)/.dev: requirements.txt requirements-dev.txt requirements-onnx.txt | $(BIN)/python
	$(PIP) -r requirements-dev.txt
	@touch $@ $(VENV)/.run
