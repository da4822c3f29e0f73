# `make demo` and `make test` are all that a newcomer needs: each makes its
# own environment in .venv when there is none. Python 3.11 or 3.12.

PYTHON ?= $(shell for python in python3.11 python3.12 python3; do \
	$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' \
	2>/dev/null && echo $$python && break; done)
VENV := .venv
# Two processes share the cores of a small machine well: most of a test's
# time is TensorFlow's start and tracing, which use one.
TEST_PROCESSES ?= 2

.PHONY: demo test clean

demo: $(VENV)/installed
	$(VENV)/bin/python demo.py $(if $(QUICK),--quick)

test: $(VENV)/installed
	$(VENV)/bin/python -m ruff check .
	$(VENV)/bin/python -m ruff format --check .
	$(VENV)/bin/python -m pytest -n $(TEST_PROCESSES)

$(VENV)/installed: setup.py
	@test -n "$(PYTHON)" || { echo "bert_tf needs Python 3.11 or 3.12 (make PYTHON=/path/to/python3.11)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip
	$(VENV)/bin/python -m pip install --quiet --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info demo_output
