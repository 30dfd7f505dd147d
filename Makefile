# make demo       set up, train the quickstart grid, print its table
# make test       set up, run every test but the long ones
# make test-long  run the long ones
# make lint       style, types and import directions

PYTHON := .venv/bin/python
# Two more tries for a test that failed, and a line that says so: machines are shared, and processes are real.
PYTEST := $(PYTHON) -m pytest -p no:cacheprovider --reruns 2 --reruns-delay 2 --durations 12
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-long lint bench clean

demo: .venv/.ready
	.venv/bin/vtjobs submit quickstart --wait
	.venv/bin/vtjobs report quickstart

test: .venv/.ready-test
	$(PYTEST) -m "not long" -n 3 --dist worksteal

test-long: .venv/.ready-test
	$(PYTEST) -m long -n 2 --dist worksteal

lint: .venv/.ready-test
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports
	$(PYTHON) deploy/typecheck.py

bench: .venv/.ready-test
	$(PYTHON) benchmarks/expand.py
	$(PYTHON) benchmarks/ledger.py
	$(PYTHON) benchmarks/warm.py
	$(PYTHON) benchmarks/submit.py
	$(PYTHON) benchmarks/ray.py

.venv/.ready: pyproject.toml deploy/setup
	deploy/setup run

.venv/.ready-test: pyproject.toml deploy/setup
	deploy/setup test

clean:
	rm -rf .venv build *.egg-info
