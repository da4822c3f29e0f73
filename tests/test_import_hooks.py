"""Hooks of imports, beside each other."""

import importlib
import importlib.util

import pytest

from bert_tf import import_hooks


def test_several_hooks_of_one_library_all_run(tmp_path, monkeypatch):
    (tmp_path / "hooked_library.py").write_text("steps = ['itself']\n")
    monkeypatch.syspath_prepend(tmp_path)

    def hook(name):
        def run(execute, module):
            execute(module)
            module.steps.append(name)

        import_hooks.wrap("hooked_library", run)

    hook("first")
    # A look at it is no import.
    assert importlib.util.find_spec("hooked_library") is not None
    hook("second")
    module = importlib.import_module("hooked_library")
    assert module.steps == ["itself", "first", "second"]


def test_a_library_that_is_not_there_is_none():
    import_hooks.wrap("no_such_library", lambda execute, module: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_library")
