"""One program at a time: on a local disk, and in an object store."""

import subprocess
import sys
import threading
import time
import uuid

import pytest

from bert_tf import atomic
from bert_tf import files
from bert_tf.training import lock

HOLDER = """
import sys, time
from bert_tf.training import lock
with lock.hold(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


class Clock:
    """Time that goes by only where it is waited for."""

    def __init__(self, meanwhile=lambda: None):
        self.seconds = 0.0
        self._meanwhile = meanwhile

    def monotonic(self):
        return self.seconds

    def sleep(self, seconds):
        self.seconds += seconds
        self._meanwhile()


def wait_until(is_so):
    """Waits as long as it takes on a machine that is busy."""
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def remote():
    """A folder of TensorFlow's file system in memory."""
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


def test_a_remote_folder_whose_holder_is_alive_is_refused(remote, monkeypatch):
    path = f"{remote}/{lock.NAME}"
    monkeypatch.setattr(lock, "_BEAT_SECONDS", 0.01)

    def wait_for_a_beat():
        before = lock._read(path)
        wait_until(lambda: lock._read(path) != before)

    clock = Clock(wait_for_a_beat)
    with lock.hold(remote, Clock()) as check:
        with (
            pytest.raises(lock.HeldError, match="run is in use"),
            lock.hold(remote, clock),
        ):
            pass
        # Refused at the first sign of life.
        assert clock.seconds == 0.001
        check()
    assert files.list_folder(remote) == []
    with lock.hold(remote, Clock()) as check:
        check()


def test_a_dead_holders_remote_folder_is_taken_over(remote, caplog):
    path = f"{remote}/{lock.NAME}"
    atomic.write_text(path, lock._describe("killed"))
    clock = Clock()
    with lock.hold(remote, clock) as check:
        # Watched for three beats, then settled.
        assert clock.seconds == 62
        check()
    assert "watching it for 60 seconds" in caplog.text
    assert "its writer is dead; taking over" in caplog.text
    # One that was slow, but is alive before they are over.
    atomic.write_text(path, lock._describe("slow"))

    def beat_late():
        if clock.seconds == 58:
            atomic.write_text(path, lock._describe("slow"))

    clock = Clock(beat_late)
    with (
        pytest.raises(lock.HeldError, match="run is in use"),
        lock.hold(remote, clock),
    ):
        pass
    assert clock.seconds == 58


def test_who_lost_the_remote_folder_learns_it_before_it_writes(
    remote, monkeypatch
):
    path = f"{remote}/{lock.NAME}"
    monkeypatch.setattr(lock, "_BEAT_SECONDS", 0.01)
    is_own = lock._is_own
    beat_found_another = threading.Event()

    def watched_is_own(path, own):
        found = is_own(path, own)
        if not found and threading.current_thread() is not main:
            beat_found_another.set()
        return found

    main = threading.current_thread()
    monkeypatch.setattr(lock, "_is_own", watched_is_own)
    with lock.hold(remote, Clock()) as check:
        check()
        # A beat that has looked before may still write over it.
        wait_until(lambda: take(path) or beat_found_another.wait(0.1))
        with pytest.raises(lock.HeldError, match="run is in use"):
            check()
    # And did not write over it, then or at its end.
    assert "another" in files.read_text(path)


def take(path):
    atomic.write_text(path, lock._describe("another"))


def test_of_two_at_once_one_gets_the_remote_folder(remote, monkeypatch):
    # Both find nothing there, and both have written before either looks.
    both = threading.Barrier(2, timeout=60)
    read = lock._read
    have_read = set()
    results = []

    def read_together(path):
        found = read(path)
        if threading.get_ident() not in have_read:
            have_read.add(threading.get_ident())
            both.wait()
        return found

    monkeypatch.setattr(lock, "_read", read_together)

    def hold():
        try:
            with lock.hold(remote, Clock(both.wait)):
                results.append("held")
                both.wait()
        except lock.HeldError:
            results.append("refused")
            both.wait()

    threads = [threading.Thread(target=hold) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["held", "refused"]
