"""tf.data services: the batches of a source, made by others."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.input import addresses
from bert_tf.input import data_service
from bert_tf.input import errors
from bert_tf.input import pretraining
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from references import training as reference


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Records whose masks, here the seeds themselves, go by their numbers."""
    folder = tmp_path_factory.mktemp("records")
    for name, size in (("a", 20), ("b", 13)):
        reference.write_records(
            folder / f"{name}.tfrecord",
            reference.pretraining_arrays(size, seed=size),
        )
    records = pretraining.pretraining_records(
        f"{folder}/*.tfrecord",
        reference.tiny_config(),
        WordpieceSpec(reference.vocabulary()),
        max_seq_length=reference.LENGTH,
        max_predictions_per_seq=reference.PREDICTIONS,
    )
    return dataclasses.replace(
        records, mask=lambda batch, seeds: batch | {"seeds": seeds}
    )


def test_services_make_the_batches_of_the_source(source):
    started = [data_service.start(0, "localhost") for _ in range(2)]
    places = tuple(f"grpc://localhost:{port}" for port, _ in started)
    addresses.check(places)
    served = dataclasses.replace(source, services=places)
    # The second of two hosts, of three replicas each.
    context = tf.distribute.InputContext(2, 1, 6)
    expected, got = (
        some.training_batches(12, 24, context) for some in (source, served)
    )
    assert got.element_spec == expected.element_spec
    got, expected = (
        list(batches.take(10).as_numpy_iterator())
        for batches in (got, expected)
    )
    for batch, wanted in zip(got, expected, strict=True):
        for name in wanted:
            np.testing.assert_array_equal(batch[name], wanted[name])


def test_a_service_of_two_workers_is_refused(source):
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer(service.DispatcherConfig(port=0))
    workers = [
        service.WorkerServer(
            service.WorkerConfig(dispatcher.target.split("://")[1])
        )
        for _ in range(2)
    ]
    served = dataclasses.replace(source, services=(dispatcher.target,))
    with (
        pytest.raises(ValueError, match="must have one worker. Received: tf_"),
        errors.clear_errors(),
    ):
        # The second worker may come in late: many more than are needed.
        for _ in served.training_batches(6).take(100_000):
            pass
    del workers


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("localhost:5050", "must be grpc://host:port"),
        ("grpc://localhost:1", "does not answer at .*serve_input --port=1"),
    ],
)
def test_addresses_without_a_service_are_named(address, message):
    with pytest.raises(ValueError, match=message):
        addresses.check([address])


def test_a_port_in_use_is_refused():
    port, servers = data_service.start(0)
    with pytest.raises(ValueError, match=f"Received: port={port}"):
        data_service.start(port)
    del servers
