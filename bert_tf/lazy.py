"""Packages whose names are imported when they are first looked up (PEP 562)."""

import importlib
import sys
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any


def attach(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a package.

    Args:
        package: Its name.
        modules: {public name: module that defines it}. If the last part of the
            module's name is the public name, the module itself is meant.
    """

    def look_up(name: str) -> Any:
        if name not in modules:
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}"
            )
        value = importlib.import_module(modules[name])
        if not value.__name__.endswith(f".{name}"):
            value = getattr(value, name)
        setattr(sys.modules[package], name, value)
        return value

    return look_up
