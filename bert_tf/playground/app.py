"""The playground as a web application: its page and its API.

    GET  /               the page
    POST /api/tokens     the pieces of texts
    POST /api/fill_mask  the likeliest tokens in the place of masks
    POST /api/attention  the attention probabilities
    POST /api/predict    the answer of the model's task

Questions and answers are JSON objects, as the methods of `PlaygroundModel` take
and return them. The answer to a bad question is {"error": ...}. No files are
served.
"""

import asyncio
import dataclasses
import json
from collections.abc import Callable
from typing import Any

from absl import logging
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.responses import Response
from starlette.routing import Route

from bert_tf.playground import guard
from bert_tf.playground import requests
from bert_tf.playground.model import PlaygroundModel
from bert_tf.playground.page import Page

# Including those that wait; further ones are answered with 503.
MAX_QUESTIONS = 32


@dataclasses.dataclass
class _Turns:
    """Lets one question at a time ask the model.

    Attributes:
        lock: Held by the question that is asking the model.
        number: The number of questions, including those that wait.
    """

    lock: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    number: int = 0


def make(model: PlaygroundModel, page: Page, token: str, port: int) -> Any:
    """Returns the ASGI application.

    Args:
        model: The model, which is asked one question at a time.
        page: The page to show.
        token: As in `guard.Guard`.
        port: The server's port.
    """
    turns = _Turns()
    headers = {"content-security-policy": page.policy}

    async def show(request):
        return Response(page.text, media_type="text/html", headers=headers)

    def question(name, function):
        async def answer(request):
            return await _in_turn(request, name, function, turns)

        return Route(f"/api/{name}", answer, methods=["POST"])

    app = Starlette(
        routes=[
            Route("/", show, methods=["GET"]),
            question("tokens", model.read_tokens),
            question("fill_mask", model.fill_mask),
            question("attention", model.attention),
            question("predict", model.predict),
        ]
    )
    return guard.Guard(app, token, port)


async def _in_turn(
    request: Request,
    name: str,
    function: Callable[[Any], dict[str, Any]],
    turns: _Turns,
) -> Response:
    """Returns the response to a question, if there are not too many."""
    if turns.number >= MAX_QUESTIONS:
        return _error(
            503,
            f"The server has {MAX_QUESTIONS} other questions to answer. Ask "
            "again later.",
        )
    turns.number += 1
    try:
        return await _answer(request, name, function, turns.lock)
    finally:
        turns.number -= 1


async def _answer(
    request: Request,
    name: str,
    function: Callable[[Any], dict[str, Any]],
    lock: asyncio.Lock,
) -> Response:
    """Returns the response to a question."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    # Media types are case-insensitive.
    if kind.lower() != "application/json":
        return _error(415, "A request must be application/json.")
    try:
        body = await _read(request)
    except ClientDisconnect:
        return _error(400, "The request is incomplete.")
    if body is None:
        return _error(
            413, f"A request must have at most {requests.MAX_BODY_BYTES} bytes."
        )
    try:
        values = json.loads(body)
    # RecursionError: the JSON is nested too deeply.
    except (ValueError, RecursionError):
        return _error(400, "A request must be JSON.")

    try:
        try:
            async with lock:
                # A user who types on asks again, and drops this question.
                if await request.is_disconnected():
                    return _error(400, "The client has disconnected.")
                result = await run_in_threadpool(function, values)
        except ValueError as error:
            return _error(400, str(error))
        # Outside the inner block: numbers that are not finite are no valid
        # JSON, but not the question's fault.
        return JSONResponse(result)
    # Only the type is logged: the message may contain words of a text.
    except Exception as error:
        kind = type(error).__name__
        logging.error("/api/%s failed: %s", name, kind)
        return _error(500, f"The model could not answer: {kind}.")


async def _read(request):
    """Returns a request's body, None if it is too large."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > requests.MAX_BODY_BYTES:
            return None
    return bytes(body)


def _error(status, message):
    return JSONResponse({"error": message}, status_code=status)
