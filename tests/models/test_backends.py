"""Training steps under JAX and PyTorch beside TensorFlow's.

    make backends-check

JAX is that of this environment. PyTorch is in the environment of
`support.peers`. Neither process can import TensorFlow.
"""

import os
import subprocess
import sys

import numpy as np
import pytest

from bert_tf import features
from references import training as reference
from support import backend_fit
from support import backend_step
from support import paths
from support import peers

pytestmark = pytest.mark.peers

PYTHONS = {"jax": lambda: sys.executable, "torch": peers.python}


def packed_rows():
    """Returns three rows of two sequences and some padding."""
    random = np.random.default_rng(3)
    record = features.pretraining_record(
        backend_step.LENGTH, 6, max_sequences_per_row=2
    )
    rows = {
        name: np.ones((3, *shape), dtype.replace("int64", "int32"))
        for name, (dtype, shape) in record.items()
    }
    for name, limit in (
        (features.INPUT_IDS, backend_step.CONFIG.vocab_size),
        (features.SEGMENT_IDS, 2),
        (features.MASKED_LM_POSITIONS, 90),
        (features.MASKED_LM_IDS, backend_step.CONFIG.vocab_size),
        (features.NEXT_SENTENCE_LABELS, 2),
    ):
        rows[name][:] = random.integers(limit, size=rows[name].shape)
    places = np.arange(backend_step.LENGTH)
    rows[features.INPUT_MASK][:] = places < np.array([[160], [140], [90]])
    rows[features.POSITION_IDS][:] = places % 70
    rows[features.SEQUENCE_IDS][:] = 1 + (places >= 70)
    rows[features.FIRST_POSITIONS][:] = [0, 70]
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns a folder with the first weights and TensorFlow's steps."""
    folder = tmp_path_factory.mktemp("steps")
    model = backend_step.make_model()
    reference.set_weights(model)
    model.save_weights(folder / "start.weights.h5")
    np.savez(folder / "batch.npz", **packed_rows())
    backend_step.main(folder)
    return folder


def run_under(backend, *arguments):
    """Runs a backend's Python; returns what it prints."""
    process = subprocess.run(
        [PYTHONS[backend](), *arguments],
        capture_output=True,
        text=True,
        env=os.environ
        | {
            "KERAS_BACKEND": backend,
            "JAX_PLATFORMS": "cpu",
            # XLA takes longer to compile the steps than to run them.
            "XLA_FLAGS": "--xla_backend_optimization_level=0 "
            "--xla_llvm_disable_expensive_passes=true",
            "PYTHONPATH": str(paths.ROOT),
        },
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.fixture(scope="module", params=PYTHONS)
def backend(request, folder):
    """Returns the name of a backend that has taken its steps."""
    run_under(request.param, backend_step.__file__, folder)
    return request.param


def check_equal(found, expected):
    assert {*found} == {*expected}
    for name, value in expected.items():
        np.testing.assert_allclose(
            found[name], value, rtol=1e-5, atol=1e-6, err_msg=name
        )


@pytest.mark.parametrize("way", backend_step.WAYS)
def test_a_step_is_tensorflow_s(folder, backend, way):
    expected = dict(np.load(folder / "tensorflow-whole-0.0.npz"))
    assert expected["loss"] > 1
    check_equal(dict(np.load(folder / f"{backend}-{way}-0.0.npz")), expected)


@pytest.mark.parametrize("way", ["chunks", "rematerialized"])
def test_what_is_computed_again_has_the_same_masks(folder, backend, way):
    """PyTorch and JAX differentiate the whole computation themselves."""
    whole = dict(np.load(folder / f"{backend}-whole-0.1.npz"))
    without = np.load(folder / f"{backend}-whole-0.0.npz")
    assert 1e-3 < abs(whole["loss"] - without["loss"]) < 1
    check_equal(dict(np.load(folder / f"{backend}-{way}-0.1.npz")), whole)


@pytest.fixture(scope="module")
def fits(tmp_path_factory):
    """Returns a folder with what `fit` made of a classifier on each backend."""
    folder = tmp_path_factory.mktemp("fits")
    backend_fit.main(folder)
    for backend in PYTHONS:
        run_under(backend, backend_fit.__file__, folder)
    return folder


@pytest.mark.parametrize("backend", PYTHONS)
@pytest.mark.parametrize("name", backend_fit.OPTIMIZERS)
def test_fit_makes_tensorflow_s_weights(fits, backend, name):
    expected = dict(np.load(fits / f"tensorflow-{name}-fit.npz"))
    losses = expected["losses"]
    assert losses[-1] < 0.8 * losses[0]
    found = dict(np.load(fits / f"{backend}-{name}-fit.npz"))
    assert {*found} == {*expected}
    for weight, value in expected.items():
        np.testing.assert_allclose(
            found[weight], value, rtol=0, atol=1e-5, err_msg=weight
        )
