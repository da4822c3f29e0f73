r"""Makes training batches for trainers elsewhere: a tf.data service.

    python -m bert_tf.data.serve_input --port=5050

Run it on a machine with CPUs to spare, which must see the record files under
the same names as the trainer. Then start the trainer:

    python -m bert_tf.run_pretraining --tf_data_service=grpc://machine:5050 ...

Several services are separated by commas. The service runs until it is stopped.
It serves everyone who can reach the port, so run it in a private network.
"""

import signal
import threading

from absl import flags
from absl import logging

from bert_tf import program

_PORT = flags.DEFINE_integer(
    "port", 5050, "Port of the service.", lower_bound=0
)
_HOST = flags.DEFINE_string(
    "host",
    None,
    "Name or address at which trainers reach this machine. Default: its host "
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
    logging.info("Serving on port %d.", port)
    stopped.wait()
    del servers


if __name__ == "__main__":
    program.run(main)
