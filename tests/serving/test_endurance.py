"""Requests of all kinds, again and again: answers, and memory that stays.

The long form, `pytest -m slow tests/serving/test_endurance.py -s`, sends
100,000 requests and prints the resident memory on the way.
"""

import gc
import pathlib
import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.serving.proof import requests
from support import serving_models

KINDS = ("pair", "tagger", "squad")
# Text with all that is no text, and words of every length.
HARD = b"".join(texts_lib.HARD_STRINGS[:13]) + b"\x00\xff"


def resident_mb():
    status = pathlib.Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if "VmRSS" in line)
    return int(line.split()[1]) / 1024


class Client:
    """Sends random requests to the signatures of several models.

    Args:
        num_requests: How many different ones there are.
    """

    def __init__(self, seed, num_requests):
        self._generator = random.Random(seed)
        self._sources = {kind: serving_models.servable(kind) for kind in KINDS}
        self._requests = [self._make_request() for _ in range(num_requests)]

    def send(self):
        signature, inputs, count = self._generator.choice(self._requests)
        for value in signature(**inputs).values():
            assert value.shape[0] == count
            if value.dtype == tf.float32:
                assert np.all(np.isfinite(value))

    def _make_request(self):
        kind = self._generator.choice(KINDS)
        servable = self._sources[kind]
        signatures = serving_models.loaded(kind).signatures
        name = self._generator.choice(sorted(signatures))
        count = self._generator.choice((1, 1, 2, 5))
        rows = [
            tuple(self._string() for _ in servable.text_features)
            for _ in range(count)
        ]
        inputs = requests.make_inputs(name, servable, rows)
        inputs = {key: tf.constant(value) for key, value in inputs.items()}
        return signatures[name], inputs, count

    def _string(self):
        start = self._generator.randrange(len(HARD))
        return HARD[start : start + self._generator.choice((0, 3, 20, 80))]


def test_memory_stays_over_some_hundred_requests():
    client = Client(1, 30)
    for _ in range(90):
        client.send()
    gc.collect()
    before = resident_mb()
    for _ in range(180):
        client.send()
    gc.collect()
    # What is kept of a request, were it 150 kB, would be 27 MB.
    assert resident_mb() - before < 20


@pytest.mark.slow
def test_memory_stays_over_a_hundred_thousand_requests():
    client = Client(2, 1000)
    measured = []
    for number in range(1, 100_001):
        client.send()
        if number % 5000 == 0:
            gc.collect()
            measured.append(resident_mb())
            print(f"{number} requests: {measured[-1]:.1f} MB", flush=True)
    # After a tenth everything has been seen: from there on a kilobyte kept of
    # a request would be 90 MB.
    assert max(measured[2:]) - measured[1] < 30


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "size, count",
    [
        (50_000, 40),
        pytest.param(1_000_000, 1000, marks=pytest.mark.slow),
    ],
)
def test_long_strings_and_large_batches_are_answered(kind, size, count):
    answer = serving_models.loaded(kind).signatures["serving_default"]
    servable = serving_models.servable(kind)

    def ask(rows):
        strings = requests.strings(servable.text_features, rows)
        return answer(**{key: tf.constant(v) for key, v in strings.items()})

    for part in (b"lorem, the ", b"x" * 900 + b" ", b"\xff\x00", b"y"):
        long = part * (size // len(part))
        row = tuple(
            b"the" if name == "question" else long
            for name in servable.text_features
        )
        for value in ask([row]).values():
            assert value.shape[0] == 1
    rows = [
        tuple(HARD[index % 50 :][:90] for _ in servable.text_features)
        for index in range(count)
    ]
    together = ask(rows)
    last = ask(rows[-1:])
    for name, value in last.items():
        if value.dtype == tf.float32:
            width = value.shape[1:]
            np.testing.assert_allclose(
                together[name][-1][tuple(map(slice, width))],
                value[0],
                atol=1e-5,
            )
        assert together[name].shape[0] == count
