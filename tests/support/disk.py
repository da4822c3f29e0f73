"""A disk that is full."""

import contextlib
import resource


@contextlib.contextmanager
def full_disk(num_bytes):
    """What is started inside, too, cannot write longer files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
