"""The cores that a process may use."""

import os


def num_cores() -> int:
    """Returns how many cores this process may use."""
    # Not everywhere does the system tell that; macOS does not.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
