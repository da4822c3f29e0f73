"""The cores that a process may use."""

import os


def num_cores() -> int:
    """Returns how many cores this process may use."""
    # Some systems, e.g. macOS, cannot tell which cores a process may use.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
