# A newcomer only needs `make demo` and `make test`. Both create an environment
# in .venv if there is none. They need Python 3.11 to 3.13.

PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	2>/dev/null && echo $$python && break; done)
VENV := .venv
# Two processes suit a small machine: most of a test's time goes into starting
# TensorFlow and tracing, which use one core.
TEST_PROCESSES ?= 2
# The tests start programs many times, so Python must cache its bytecode even if
# the environment turns that off.
unexport PYTHONDONTWRITEBYTECODE

# Older TensorFlow releases in TensorFlow Serving's images, with wheels for
# Python 3.11.
SERVING_RELEASES ?= 2.12.1 2.19.0 2.20.0
SERVING_VENVS := $(SERVING_RELEASES:%=.venv-serving-%)
empty :=
space := $(empty) $(empty)

.PHONY: demo test test-times test-oldest slow-check parity-check \
	backends-check serving-check serving-endurance survival-check beam-check \
	tpu-check gpu-check gpu-found docs docs-check chromium-found notebooks \
	release-check bench clean

demo: $(VENV)/installed
	$(VENV)/bin/python demo.py $(if $(QUICK),--quick)

test: $(VENV)/installed
	$(VENV)/bin/python -m ruff check .
	$(VENV)/bin/python -m ruff format --check .
	$(VENV)/bin/python -m pytest -n $(TEST_PROCESSES) --dist worksteal

# The same tests, with a table of their processor time by file and kind.
test-times: $(VENV)/installed
	$(VENV)/bin/python benchmarks/suite_times.py --num_processes=$(TEST_PROCESSES)

# The same tests with the oldest releases that setup.py allows.
test-oldest: .venv-oldest/installed
	.venv-oldest/bin/python -m pytest -n $(TEST_PROCESSES) --dist worksteal

.venv-oldest/installed: setup.py
	$(PYTHON) -m venv .venv-oldest
	grep -o '[a-z][a-z-]*>=[0-9][0-9.]*' setup.py | sed 's/>=/==/' > .venv-oldest/oldest.txt
	.venv-oldest/bin/python -m pip install --quiet --constraint .venv-oldest/oldest.txt --editable '.[test]'
	touch $@

# Tests that are too slow to run on every change: more devices, steps that XLA
# compiles, whole data sets. Takes minutes.
slow-check: $(VENV)/installed
	$(VENV)/bin/python -m pytest -m slow -n $(TEST_PROCESSES) --dist worksteal \
		--ignore=tests/serving/test_endurance.py

# Compares with transformers in .venv-peers, which the test creates. Takes
# minutes.
parity-check: $(VENV)/installed
	$(VENV)/bin/python -m pytest -m peers tests/checkpoints/test_peers.py \
		tests/checkpoints/test_pytorch_peers.py \
		tests/checkpoints/test_family_peers.py \
		tests/tuning/test_peers.py tests/tuning/test_families.py \
		tests/text/test_added_token_files.py \
		tests/text/test_added_tokens.py tests/text/test_bpe_peers.py \
		tests/text/test_modernbert_tokenizer.py \
		tests/text/test_mpnet_tokenizer.py \
		tests/text/test_unigram_peers.py \
		tests/text/test_tokenizer_mutations.py \
		tests/runs/test_objective_peers.py \
		tests/serving/test_pipelines.py \
		tests/serving/test_reranker.py \
		tests/serving/test_sentence_folders.py \
		tests/tasks/retrieval/test_peers.py \
		tests/tasks/retrieval/test_search_peers.py

# Training steps under JAX and, in .venv-peers, PyTorch beside TensorFlow's.
backends-check: $(VENV)/installed
	$(VENV)/bin/python -m pytest -m peers tests/models/test_backends.py

# Exports in older TensorFlow releases, each in its own environment.
serving-check: $(VENV)/installed $(SERVING_VENVS:%=%/installed)
	BERT_TF_SERVING_PYTHONS=$(subst $(space),:,$(SERVING_VENVS:%=$(CURDIR)/%/bin/python)) \
		$(VENV)/bin/python -m pytest -m peers tests/serving/test_releases.py \
		tests/serving/test_family_exports.py

# Memory of a servable over 100,000 requests. Takes a quarter of an hour.
serving-endurance: $(VENV)/installed
	$(VENV)/bin/python -m pytest -m slow -s tests/serving/test_endurance.py

# Runs that are killed at twenty points; the same steps on several devices and
# workers. Takes minutes.
survival-check: $(VENV)/installed
	$(VENV)/bin/python -m pytest -m survival -s -p no:xdist

# Compares the records of the Apache Beam pipeline and the local builder.
beam-check: .venv-beam/installed
	.venv-beam/bin/python -m pytest -m peers tests/pretraining/test_beam.py

.venv-beam/installed: setup.py
	$(PYTHON) -m venv .venv-beam
	.venv-beam/bin/python -m pip install --quiet --editable '.[beam,test]'
	touch $@

# Training steps compiled for TPU chips, without a TPU, and whole runs on remote
# paths. Takes hours. Run it again to resume.
tpu-check: $(VENV)/installed .venv-tpu/installed
	$(VENV)/bin/python -m pytest -m slow tests/test_remote_paths.py \
		tests/training/test_tpu_tracing.py
	.venv-tpu/bin/python benchmarks/tpu.py --results_dir=build/tpu

.venv-tpu/installed: setup.py
	$(PYTHON) -m venv .venv-tpu
	.venv-tpu/bin/python -m pip install --quiet --editable . jax==0.10.2 jaxlib==0.10.2 libtpu==0.0.51
	touch $@

# The training step on a GPU: its tests, then its speed, compared with
# transformers if --peer_python has it. Takes an hour or more. The last output
# is a page for benchmarks/results/.
# make gpu-check GPU='--peer_python=/env/bin/python --peak_tflops=bfloat16=989'
gpu-check: .venv-gpu/installed
	.venv-gpu/bin/python -m pytest -m gpu -p no:xdist tests/training/test_gpu.py
	TF_CPP_MIN_LOG_LEVEL=3 .venv-gpu/bin/python benchmarks/gpu.py $(GPU)

gpu-found:
	@nvidia-smi -L 2>/dev/null | grep -q GPU || { echo "make gpu-check: no GPU was found: nvidia-smi lists none."; exit 1; }

.venv-gpu/installed: setup.py | gpu-found
	$(PYTHON) -m venv .venv-gpu
	.venv-gpu/bin/python -m pip install --quiet --editable '.[gpu,test]'
	touch $@

# The documentation as a site in build/site, which can be read offline.
docs: .venv-docs/installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --strict

.venv-docs/installed: setup.py
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --editable '.[docs]'
	touch $@

# Runs the notebooks again and stores their outputs in them. Takes minutes.
notebooks: $(VENV)/installed
	$(VENV)/bin/python tests/support/notebooks.py examples/*.ipynb

# All commands and snippets of README.md and docs/ at small sizes, the notebooks,
# and the playground in a browser. Takes minutes.
docs-check: $(VENV)/browser | chromium-found
	$(VENV)/bin/python -m pytest -m docs -p no:xdist tests/test_docs_commands.py \
		tests/test_notebooks.py
	$(VENV)/bin/python -m pytest -m browser -p no:xdist tests/playground

$(VENV)/browser: $(VENV)/installed
	$(VENV)/bin/python -m pip install --quiet --editable '.[browser]'
	touch $@

chromium-found:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { echo "make docs-check: no browser was found: apt-get install chromium chromium-driver."; exit 1; }

# The sdist and the wheel, and the README's quickstarts with just the wheel.
# Takes minutes.
release-check: $(VENV)/installed .venv-release/installed
	BERT_TF_RELEASE_PYTHON=.venv-release/bin/python \
		$(VENV)/bin/python -m pytest -m release -p no:xdist tests/test_release.py

.venv-release/installed:
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet 'build>=1.2' 'twine>=6.1'
	touch $@

# Every table of benchmarks/, compared with other libraries, on your own model
# folder and data. Takes hours, and needs the machine for itself. Fine-tuning,
# the longest part, can be resumed.
# make bench BENCH='--model_dir=minilm --data_dir=/path/to/sets'
bench: $(VENV)/installed
	$(VENV)/bin/python benchmarks/run_all.py --output_dir=build/bench $(BENCH)

.venv-serving-%/installed:
	$(PYTHON) -m venv .venv-serving-$*
	.venv-serving-$*/bin/python -m pip install --quiet tensorflow==$* tensorflow-text==$*
	touch $@

$(VENV)/installed: setup.py
	@test -n "$(PYTHON)" || { echo "bert_tf needs Python 3.11 to 3.13 (make PYTHON=/path/to/python3.11)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip
	$(VENV)/bin/python -m pip install --quiet --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) .venv-* build dist *.egg-info demo_output .hypothesis
