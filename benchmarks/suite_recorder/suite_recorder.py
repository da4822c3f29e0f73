"""A pytest plugin that reports the times of each test in this process."""

import pytest
import sitecustomize


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    # Time until here, including collection, belongs to no test.
    sitecustomize.RECORDER.report("")
    result = yield
    sitecustomize.RECORDER.report(item.nodeid)
    return result
