r"""Makes training batches for trainers elsewhere: a tf.data service.

    python -m bert_tf.data.serve_input --port=5050

on a machine with CPUs to spare, which must see the record files under the
names that the trainer gives; then

    python -m bert_tf.run_pretraining --tf_data_service=grpc://machine:5050 ...

or several of them, with commas between. Runs until it is stopped. Whoever
reaches the port is served: run it in a network of your own.
"""

import signal
import threading

from absl import flags
from absl import logging

from bert_tf import program

_PORT = flags.DEFINE_integer(
    "port", 5050, "Where trainers find the service.", lower_bound=0
)
_HOST = flags.DEFINE_string(
    "host",
    None,
    "This machine's name or address, as trainers know it. Default: its host "
    "name.",
)


def main(argv):
    del argv
    logging.set_verbosity(logging.INFO)

    from bert_tf.input import data_service

    port, servers = data_service.start(_PORT.value, _HOST.value)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stopped.set())
    logging.info("Serving at port %d.", port)
    stopped.wait()
    del servers


if __name__ == "__main__":
    program.run(main)
