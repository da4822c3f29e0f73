"""Log lines of work that takes long, and none of short work."""

import time

from absl import logging

from bert_tf.training import progress

_SECONDS = 30.0


class Progress:
    """Logs how work goes on, a line each half minute."""

    def __init__(self) -> None:
        self._start = self._last = time.monotonic()

    def note(
        self, message: str, *values: object, now: float | None = None
    ) -> None:
        """Logs a line with the time since the start, if one is due.

        Args:
            message, values: As of `logging.info`.
            now: The time, of `time.monotonic`, where it is known.
        """
        now = time.monotonic() if now is None else now
        if now - self._last >= _SECONDS:
            self._last = now
            elapsed = progress.duration(now - self._start)
            logging.info(f"{message} (%s)", *values, elapsed)
