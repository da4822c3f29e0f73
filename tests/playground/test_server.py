"""The port, Ctrl-C, and what the program refuses."""

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from bert_tf.playground import server
from bert_tf.playground.guard import HOST

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
