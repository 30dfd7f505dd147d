# make demo           set up, train the quickstart grid, print its table
# make demo-papers    train a cell of every ready grid on a few generated images, and compare it with the paper's
# make test           set up, run every test that needs no cluster and no minutes
# make test-training  run the tests that train whole runs, and stop and kill them
# make test-clusters  run the tests on a real SLURM, Ray and PostgreSQL, and in a browser
# make test-long      run the long ones, on clusters and without, and demo-papers
# make test-oldest    run the tests that matter with the oldest versions that pyproject.toml allows
# make docs           build the documents as a site, in site/
# make lint           style, types and import directions
# make constraints    write down the versions that are installed, for `deploy/setup`

PYTHON := .venv/bin/python
# Tests at a time: one more than there are cores, from three to five, since many wait for a process. Each
# takes a gigabyte, or a cluster of its own.
WORKERS ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((cores < 2 ? 3 : cores > 4 ? 5 : cores + 1)))
CLUSTER_WORKERS ?= 2
# Two more tries for a test that failed, each named at the end: processes are real, machines are shared.
PYTEST := $(PYTHON) -m pytest -p no:cacheprovider --reruns 2 --reruns-delay 2 --durations 12
export OMP_NUM_THREADS ?= 1
# A test run starts thousands of processes: without byte code on disk each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-papers docs test test-training test-clusters test-long test-long-alone test-long-clusters test-training-and-long test-all-clusters test-oldest lint bench constraints clean

demo: .venv/.ready
	.venv/bin/vtjobs submit quickstart --wait
	.venv/bin/vtjobs report quickstart

demo-papers: .venv/.ready-test
	$(PYTHON) -m tests.support.tiny_papers

test: .venv/.ready-test
	$(PYTEST) -m "not training and not clusters and not long" -n $(WORKERS) --dist worksteal

test-training: .venv/.ready-test
	$(PYTEST) -m "training and not clusters and not long" -n $(WORKERS) --dist worksteal

test-clusters: .venv/.ready-test
	$(PYTEST) -m "clusters and not long" -n $(CLUSTER_WORKERS) --dist worksteal

test-long: test-long-alone test-long-clusters demo-papers

test-long-alone: .venv/.ready-test
	$(PYTEST) -m "long and not clusters" -n $(WORKERS) --dist worksteal

test-long-clusters: .venv/.ready-test
	$(PYTEST) -m "long and clusters" -n $(CLUSTER_WORKERS) --dist worksteal

# Collecting the tests takes half a minute: CI does it once for two of these.
test-training-and-long: .venv/.ready-test
	$(PYTEST) -m "(training or long) and not clusters" -n $(WORKERS) --dist worksteal

test-all-clusters: .venv/.ready-test
	$(PYTEST) -m clusters -n $(CLUSTER_WORKERS) --dist worksteal

test-oldest:
	deploy/oldest

lint: .venv/.ready-test
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports
	$(PYTHON) deploy/typecheck.py

bench: .venv/.ready-test
	$(PYTHON) benchmarks/expand.py
	$(PYTHON) benchmarks/commands.py
	$(PYTHON) benchmarks/ledger.py
	$(PYTHON) benchmarks/pages.py
	$(PYTHON) benchmarks/warm.py
	$(PYTHON) benchmarks/recording.py
	$(PYTHON) benchmarks/step.py
	$(PYTHON) benchmarks/submit.py
	$(PYTHON) benchmarks/ray.py

constraints: .venv/.ready-test
	deploy/constraints

.venv/.ready: pyproject.toml deploy/setup deploy/constraints.txt
	deploy/setup run

.venv/.ready-test: pyproject.toml deploy/setup deploy/constraints.txt
	deploy/setup test

docs: .venv/.ready-test
	deploy/site

clean:
	rm -rf .venv build *.egg-info
