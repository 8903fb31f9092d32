# Every target sets up what it needs: a bare checkout, Python 3.11 or newer, make and a C compiler are enough.
#
#   PYTHON=python3.12       the interpreter to build .venv with
#   TORCH_INDEX=<address>   a package index to take PyTorch from, e.g. its own one for CPU or for a CUDA version
#   PYTEST_ARGS="-k name"   passed on to pytest
#   JOBS=4                  test processes; one more than there are cores if left out, since many tests wait for other processes

PYTHON ?= $(firstword $(foreach name,python3.13 python3.12 python3.11 python3 python,$(if $(shell $(name) -c "import sys; sys.exit(sys.version_info < (3, 11))" >/dev/null 2>&1 && echo yes),$(name))))
JOBS ?= $(shell $(PYTHON) -c "import os; print(os.cpu_count() + 1)")
PYTEST_ARGS ?=
TORCH = torch>=2.11,<2.14

BIN := .venv/bin
# pip compiles one module after the other; COMPILE does it on all cores, and passes over what is no Python of this version.
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --no-compile
COMPILE := @$(BIN)/python -m compileall -qq -j 0 .venv/lib/python*/site-packages || true

.PHONY: help demo chat quick test pytest browser node lint format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo     a small model answers from a long chat, then talks to you"
	@echo "make chat     the same model in the browser, with the inspector"
	@echo "make quick    ruff and a share of every folder's tests, while you work"
	@echo "make test     ruff, mypy and every test that this machine can run, except slow ones"
	@echo "make lint     only ruff and mypy"
	@echo "make format   let ruff rewrite what it can"
	@echo "make clean    remove everything made here, .venv included"

demo: .venv/installed
	@$(BIN)/python -P scripts/demo.py
	@if [ -t 0 ]; then $(BIN)/deepseek-v32 generate --temperature 0; fi

chat: .venv/installed-web
	$(BIN)/deepseek-v32 chat

# The inner loop; tests/support/quick.py says which tests.
quick: .venv/installed-test
	$(BIN)/ruff check --output-format=concise
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -q -n $(JOBS) --dist worksteal --quick -rfE --durations=5 $(PYTEST_ARGS)

# Lint and the tests run side by side, and each to its end; the last lines are pytest's summary.
test: .venv/installed-test browser node
	@$(MAKE) --no-print-directory --keep-going -j 2 lint pytest

# The many processes of the tests share compiled modules, whatever the caller's environment says.
pytest: .venv/installed-test
	@OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

# The chat is tested in a real browser. Without one, and without the right to install it, those tests are skipped and say so.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq >/dev/null && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } || \
	echo "no chromium here: the chat's browser tests will be skipped" >&2

# The same for the server's clients in Node.
node:
	@[ -d scripts/serving/node_modules ] || \
	{ command -v npm >/dev/null && \
	  npm install --prefix scripts/serving --no-package-lock --no-audit --no-fund --loglevel=error >/dev/null; } || \
	echo "no npm here, or no packages: Node's clients will not be tested" >&2

lint: .venv/installed-test
	$(BIN)/ruff check --output-format=concise
	$(BIN)/ruff format --check --output-format=concise
	$(BIN)/mypy

format: .venv/installed-test
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf scripts/serving/node_modules
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find model kernels inference scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps. An interrupted set-up leaves none, and starts over.
.venv/python: Makefile
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	@touch $@

# Without an NVIDIA GPU the CPU build will do, which is a tenth of the size; not every index has it under that name.
.venv/torch: .venv/python
	@if [ -n "$(TORCH_INDEX)" ]; then $(INSTALL) --index-url "$(TORCH_INDEX)" "$(TORCH)"; \
	elif nvidia-smi -L >/dev/null 2>&1; then $(INSTALL) "$(TORCH)"; \
	else $(INSTALL) -q "torch==2.13.0+cpu" 2>/dev/null || $(INSTALL) "$(TORCH)"; fi
	@touch $@

.venv/installed: .venv/torch pyproject.toml
	$(INSTALL) -q -e .
	$(COMPILE)
	@touch $@

.venv/installed-web: .venv/torch pyproject.toml
	$(INSTALL) -q -e ".[web]"
	$(COMPILE)
	@touch .venv/installed $@

.venv/installed-test: .venv/torch pyproject.toml
	$(INSTALL) -q -e ".[test,web]"
	$(COMPILE)
	@touch .venv/installed .venv/installed-web $@
