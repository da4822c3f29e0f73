"""Runs code when another library is imported, without importing it."""

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_Execute = Callable[[ModuleType], Any]


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the other finders find a library, and wraps its import."""

    def __init__(self, name: str, run: Callable[[_Execute, ModuleType], None]):
        self._name = name
        self._run = run
        self._is_asking = False

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self._name or self._is_asking:
            return None
        self._is_asking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_asking = False
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module
            loader.exec_module = lambda module: self._run(execute, module)
        return spec


def wrap(name: str, run: Callable[[_Execute, ModuleType], None]) -> None:
    """Makes a function run the import of a library not imported yet.

    Args:
        name: Name of the library, without a dot.
        run: `run(execute, module)`, which calls `execute(module)` and does
            something before or after it.
    """
    sys.meta_path.insert(0, _Finder(name, run))
