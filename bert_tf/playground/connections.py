"""Connections of the playground's server: no request, no connection.

uvicorn waits for the first request of a connection, and for the rest of one,
for as long as the connection is open. Any page of a browser could keep
connections open so, without knowing the token.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# From the beginning of a connection, or of its next request, to the request's
# end. Between them uvicorn waits for 5 seconds.
SECONDS_TO_ASK = 10.0


class Connection(H11Protocol):
    """A connection that is closed if no whole request comes in time."""

    _closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # What is read of a request: nothing or a part of the header, a part
        # of the body, or all of it.
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._expect()
        else:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _expect(self):
        if self._closing is None:
            self._closing = self.loop.call_later(
                SECONDS_TO_ASK, self.transport.close
            )

    def _stop(self):
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
