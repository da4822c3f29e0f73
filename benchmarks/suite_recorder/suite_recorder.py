"""A plugin of pytest: reports the times of each test of this process."""

import pytest
import sitecustomize


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    # What came before, collection included, is of no test.
    sitecustomize.RECORDER.report("")
    result = yield
    sitecustomize.RECORDER.report(item.nodeid)
    return result
