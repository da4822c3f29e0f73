"""Logs the progress of work that takes long."""

import time

from absl import logging

from bert_tf.training import progress

_SECONDS = 30.0


class Progress:
    """Logs the progress of work, at most a line every half minute."""

    def __init__(self) -> None:
        self._start = self._last = time.monotonic()

    def note(
        self, message: str, *values: object, now: float | None = None
    ) -> None:
        """Logs a line with the time since the start, if one is due.

        Args:
            message, values: As in `logging.info`.
            now: The time by `time.monotonic`, if the caller has it.
        """
        now = time.monotonic() if now is None else now
        if now - self._last >= _SECONDS:
            self._last = now
            elapsed = progress.duration(now - self._start)
            logging.info(f"{message} (%s)", *values, elapsed)
