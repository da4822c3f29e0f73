"""Addresses of tf.data services."""

import re
import socket
from collections.abc import Iterable

_SECONDS_TO_ANSWER = 10.0


def check(addresses: Iterable[str]) -> None:
    """Raises `ValueError` if one is malformed, or no service answers there.

    TensorFlow would wait for the service without a message.

    Args:
        addresses: Strings, "grpc://host:port".
    """
    for address in addresses:
        match = re.fullmatch(r"grpc://([^/:]+|\[[^]]+\]):(\d+)", address)
        if not match:
            raise ValueError(
                "`tf_data_service` must be grpc://host:port, or several of "
                f"these separated by commas. Received: {address!r}."
            )
        place = (match[1].strip("[]"), int(match[2]))
        try:
            socket.create_connection(place, _SECONDS_TO_ANSWER).close()
        except OSError as error:
            raise ValueError(
                f"`tf_data_service` does not answer at {address}: {error}. "
                "Start it there: python -m bert_tf.data.serve_input "
                f"--port={place[1]}."
            ) from error
