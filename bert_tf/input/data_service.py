"""Training batches made by other machines: tf.data services.

Each of P services reads all records, but parses, checks and masks only those of
every P-th step. The trainer puts the steps together in order. Its batches are
those that it would make itself.
"""

import socket
from collections.abc import Callable
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.input.errors import BAD_RECORDS


def distribute(
    steps: tf.data.Dataset,
    make_batches: Callable[[tf.data.Dataset], tf.data.Dataset],
    addresses: Sequence[str],
    num_batches: int,
) -> tf.data.Dataset:
    """Returns the batches of all steps, made by services.

    Args:
        steps: An endless `tf.data.Dataset`, whose elements begin with their
            number, from 0.
        make_batches: `make_batches(steps)` -> the dataset of their batches.
        addresses: Addresses of the services, e.g. "grpc://10.0.0.7:5050".
        num_batches: Batches per step.
    """
    num_services = len(addresses)

    def made_by(place, address):
        own = steps.shard(num_services, place)
        # The number of each batch in the order of the steps.
        numbers = tf.data.Dataset.counter().map(
            lambda n: (
                (n // num_batches * num_services + place) * num_batches
                + n % num_batches
            )
        )
        return tf.data.Dataset.zip(numbers, make_batches(own)).apply(
            tf.data.experimental.service.distribute(
                tf.data.experimental.service.ShardingPolicy.OFF, address
            )
        )

    def check(wanted, numbered):
        number, batch = numbered
        # Two workers would each make all batches.
        message = (
            f"{BAD_RECORDS} a tf.data service did not send its batches in "
            "order; it must have one worker. Received: "
            f"tf_data_service={','.join(addresses)}."
        )
        with tf.control_dependencies(
            [tf.debugging.Assert(number == wanted, [message])]
        ):
            return tf.nest.map_structure(tf.identity, batch)

    counter = tf.data.Dataset.counter()
    batches = tf.data.Dataset.choose_from_datasets(
        [made_by(place, address) for place, address in enumerate(addresses)],
        counter.map(lambda n: n // num_batches % num_services),
    )
    return tf.data.Dataset.zip(counter, batches).map(check)


def start(
    port: int, host: str | None = None
) -> tuple[int, tuple[object, object]]:
    """Starts a service on this machine.

    Args:
        port: Where trainers find it; 0 for any free port.
        host: This machine's name or address, as trainers know it. Default:
            its host name.

    Returns:
        The port, and TensorFlow's servers, which run while these objects exist.

    Raises:
        ValueError: If the port is not available.
    """
    service = tf.data.experimental.service
    _check_is_free(port)
    dispatcher = service.DispatchServer(service.DispatcherConfig(port=port))
    port = int(dispatcher.target.rpartition(":")[2])
    worker = service.WorkerServer(
        service.WorkerConfig(
            dispatcher_address=f"localhost:{port}",
            # %port% stands for the port that the worker gets.
            worker_address=f"{host or socket.gethostname()}:%port%",
            port=0,
        )
    )
    return port, (dispatcher, worker)


def _check_is_free(port):
    """Raises `ValueError` if the port is taken; TensorFlow would share it."""
    with socket.socket() as free:
        try:
            free.bind(("", port))
        except OSError as error:
            raise ValueError(
                f"`port` must be free: {error}. Received: port={port}."
            ) from error
