"""The port, Ctrl-C, and what the program refuses."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from bert_tf.playground import app
from bert_tf.playground import connections
from bert_tf.playground import page
from bert_tf.playground import server
from bert_tf.playground.guard import HOST
from support import playground_server

# Without TensorFlow: what answers is no model.
SERVED = """
import signal
from bert_tf import program
from bert_tf.playground import guard
from bert_tf.playground import server

async def answer(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"answered"})

def main(argv):
    with server.bound(0) as listening:
        _, port = listening.getsockname()
        app = guard.Guard(answer, "token", port)
        print(server.url(port, "token"), flush=True)
        server.run(app, listening)

# Whoever runs the tests in the background has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
program.run(main)
"""


def test_a_port_that_is_taken_is_one_line():
    with server.bound(0) as listening:
        host, port = listening.getsockname()
        # Of this machine, and no address that others reach.
        assert host == HOST == "127.0.0.1"
        with (
            pytest.raises(ValueError, match=f"--port={port} "),
            server.bound(port),
        ):
            pass
    with server.bound(port) as listening:
        assert listening.getsockname()[1] == port


def test_it_serves_until_ctrl_c_and_logs_nothing():
    process = subprocess.Popen(
        [sys.executable, "-c", SERVED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    url = process.stdout.readline().strip()
    with urllib.request.urlopen(f"{url}?text", timeout=60) as response:
        assert response.read() == b"answered"
        assert "server" not in response.headers
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url.replace("token", "another"), timeout=60)
    assert refused.value.code == 403
    refused.value.close()
    # A browser keeps its connection.
    port = int(url.split(":")[2].split("/")[0])
    with socket.create_connection((HOST, port)):
        os.kill(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stdout == ""
    assert stderr == "-c: stopped by Ctrl-C\n"


class Slow:
    """A model that keeps its answers back until it is let."""

    def __init__(self):
        self.asked = []
        self.is_let = threading.Event()

    def _answer(self, values):
        self.asked.append(values["number"])
        assert self.is_let.wait(60)
        return values

    read_tokens = fill_mask = attention = predict = _answer


@pytest.fixture
def slow():
    return Slow()


@pytest.fixture
def port(slow):
    """The port at which the slow model is asked."""
    with server.bound(0) as listening:
        _, port = listening.getsockname()
        made = app.make(slow, page.Page("<p>Hello"), "token", port)
        with playground_server.running(made, listening):
            yield port
            slow.is_let.set()


def connect(port):
    return contextlib.closing(http.client.HTTPConnection(HOST, port, 60))


def ask(connection, number):
    connection.request(
        "POST",
        "/token/api/tokens",
        json.dumps({"number": number}),
        {
            "content-type": "application/json",
            "origin": f"http://{HOST}:{connection.port}",
        },
    )


def read_all(connection):
    """Returns what comes until a connection is closed."""
    return b"".join(iter(lambda: connection.recv(1024), b""))


def test_a_question_that_nobody_waits_for_is_not_answered(slow, port):
    with connect(port) as one, connect(port) as two, connect(port) as three:
        ask(one, 1)
        playground_server.wait_for(lambda: slow.asked == [1])
        ask(two, 2)
        ask(three, 3)
        time.sleep(0.2)
        two.close()
        time.sleep(0.2)
        slow.is_let.set()
        for number, connection in ((1, one), (3, three)):
            response = connection.getresponse()
            assert json.loads(response.read()) == {"number": number}
        ask(one, 4)
        assert one.getresponse().status == 200
    assert slow.asked == [1, 3, 4]


def test_too_many_questions_are_told_so(slow, port, monkeypatch):
    monkeypatch.setattr(app, "MAX_QUESTIONS", 2)
    with connect(port) as one, connect(port) as two, connect(port) as three:
        ask(one, 1)
        ask(two, 2)
        time.sleep(0.2)
        ask(three, 3)
        response = three.getresponse()
        assert response.status == 503
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "2 other questions" in json.loads(response.read())["error"]
        # The page is no question.
        three.request("GET", "/token/")
        response = three.getresponse()
        assert (response.status, response.read()) == (200, b"<p>Hello")
        slow.is_let.set()
        assert (one.getresponse().status, two.getresponse().status) == (
            (200, 200)
        )
        ask(three, 3)
        assert three.getresponse().status == 200


def test_connections_without_a_request_keep_nobody_out(port):
    with contextlib.ExitStack() as stack:
        for number in range(64):
            idle = stack.enter_context(socket.create_connection((HOST, port)))
            if number % 2:
                idle.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        asking = stack.enter_context(connect(port))
        asking.request("GET", "/token/")
        assert asking.getresponse().status == 200


def test_connections_without_a_whole_request_are_closed(
    slow, port, monkeypatch
):
    monkeypatch.setattr(connections, "SECONDS_TO_ASK", 0.5)
    header = (
        "POST /{}/api/tokens HTTP/1.1\r\nHost: {host}\r\n"
        "Origin: http://{host}\r\nContent-Type: application/json\r\n"
        "Content-Length: 100\r\n\r\n{{"
    )
    whole, refused = (
        header.format(token, host=f"{HOST}:{port}") for token in ("token", "x")
    )
    with contextlib.ExitStack() as stack:
        asking = stack.enter_context(connect(port))
        ask(asking, 1)
        start = time.monotonic()
        unfinished = []
        for part in ("", "GET / HTTP/1.1\r\nHost", whole, refused):
            unfinished.append(
                stack.enter_context(socket.create_connection((HOST, port), 60))
            )
            unfinished[-1].sendall(part.encode())
        received = [*map(read_all, unfinished)]
        # The token is looked at before the body has come.
        assert [answer[:12] for answer in received] == (
            [b"", b"", b"", b"HTTP/1.1 403"]
        )
        # Not before their time. That it is not uvicorn which closes them
        # needs no bound: it waits for a first request for good.
        assert time.monotonic() - start > 0.4
        # Whoever has asked is answered, and may ask again.
        slow.is_let.set()
        assert asking.getresponse().read() == b'{"number":1}'
        ask(asking, 2)
        assert asking.getresponse().read() == b'{"number":2}'
        asking.sock.sendall(b"GET / HT")
        assert asking.sock.recv(1024) == b""
    assert slow.asked == [1, 2]


@pytest.mark.slow
def test_what_is_no_model_is_one_line(run_program):
    done = run_program(
        "bert_tf.run_playground", "--model_dir=no/where", check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert (
        ": error: no/where: must be a model folder"
        in (done.stderr.splitlines()[-1])
    )
    assert "Open" not in done.stdout


def test_records_that_are_missing_are_told_before_a_model_is_loaded(
    run_program, tmp_path
):
    done = run_program(
        "bert_tf.run_playground",
        "--model_dir=no/where",
        f"--input_file={tmp_path}/none-*",
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "input_file" in done.stderr.splitlines()[-1]
    assert "none-*" in done.stderr.splitlines()[-1]
    assert done.stdout == ""
