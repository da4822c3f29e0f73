"""One program at a time: on a local disk, and in an object store."""

import subprocess
import sys
import threading
import time
import uuid

import pytest

from bert_tf import files
from bert_tf.training import lock

HOLDER = """
import sys, time
from bert_tf.training import lock
with lock.hold(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def remote(monkeypatch):
    """A folder of TensorFlow's file system in memory; beats of 0.1 s."""
    monkeypatch.setattr(lock, "_BEAT_SECONDS", 0.1)
    monkeypatch.setattr(lock, "_DEAD_SECONDS", 0.6)
    monkeypatch.setattr(lock, "_SETTLE_SECONDS", 0.05)
    return f"ram://{uuid.uuid4().hex}/run/train"


def test_a_local_folder_is_refused_until_its_process_is_killed(tmp_path):
    folder = tmp_path / "run" / "train"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout.readline() == b"held\n"
        message = rf"run is in use: process {process.pid} on .* trains there"
        with pytest.raises(lock.HeldError, match=message), lock.hold(folder):
            pass
    finally:
        process.kill()
        process.communicate()
    # The file is still there, and harmless.
    assert (folder / lock.NAME).exists()
    with lock.hold(folder) as check:
        check()
        with pytest.raises(lock.HeldError), lock.hold(folder):
            pass
    assert list(folder.iterdir()) == []


def test_all_goes_with_an_error_but_what_was_there_or_written(tmp_path):
    folder = tmp_path / "run" / "train"
    for _ in range(2):
        with pytest.raises(RuntimeError), lock.hold(folder):
            raise RuntimeError
        assert list(tmp_path.iterdir()) == []
    with lock.hold(folder):
        (folder / "written").touch()
    assert list(folder.iterdir()) == [folder / "written"]


def test_a_remote_folder_whose_holder_is_alive_is_refused(remote):
    with lock.hold(remote) as check:
        start = time.monotonic()
        with (
            pytest.raises(lock.HeldError, match="run is in use"),
            lock.hold(remote),
        ):
            pass
        # Refused at the first sign of life.
        assert time.monotonic() - start < 0.5
        check()
    assert files.list_folder(remote) == []
    with lock.hold(remote) as check:
        check()


def test_a_dead_holders_remote_folder_is_taken_over(remote, caplog):
    files.write_text(f"{remote}/{lock.NAME}", lock._describe("killed"))
    start = time.monotonic()
    with lock.hold(remote) as check:
        assert time.monotonic() - start >= 0.6
        check()
    assert "watched for 1 seconds" in caplog.text
    assert "its writer is dead; taken over" in caplog.text


def test_who_lost_the_remote_folder_learns_it_before_it_writes(remote):
    path = f"{remote}/{lock.NAME}"
    with lock.hold(remote) as check:
        check()
        files.write_text(path, lock._describe("another"))
        with pytest.raises(lock.HeldError, match="run is in use"):
            check()
        # And does not write over it, then or later.
        time.sleep(0.3)
        assert "another" in files.read_text(path)
    assert "another" in files.read_text(path)


def test_of_two_at_once_one_gets_the_remote_folder(remote):
    barrier = threading.Barrier(2)
    results = []

    def take():
        barrier.wait()
        try:
            with lock.hold(remote):
                results.append("held")
                done.wait(5)
        except lock.HeldError:
            results.append("refused")
            done.set()

    done = threading.Event()
    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["held", "refused"]
