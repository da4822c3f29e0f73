"""Connections of the playground's server, closed if no request comes.

uvicorn waits without limit for a connection's first request, and for the rest
of a request. Any page in a browser could keep connections open in this way,
without knowing the token.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# From the start of a connection, or of its next request, to the request's end.
# Between two requests, uvicorn waits for 5 seconds.
SECONDS_TO_ASK = 10.0


class Connection(H11Protocol):
    """A connection that is closed if no complete request comes in time."""

    _closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # IDLE: nothing or a part of the header was read. SEND_BODY: a part of
        # the body. Otherwise the request is complete.
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
