"""Type hints: public functions have them, and mypy agrees with them."""

import ast
import subprocess
import sys
import tomllib

import pytest

from support.paths import ROOT

# The one list of what is typed.
TYPED = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"][
    "mypy"
]["files"]
SOURCES = sorted(
    path
    for name in TYPED
    for path in (
        (ROOT / name).rglob("*.py") if (ROOT / name).is_dir() else [ROOT / name]
    )
)
# Methods of Keras's classes: what they take and return is Keras's, and shapes,
# which matter there, stand in docstrings and in the names of tensors.
KERAS_OVERRIDES = {
    "add_variable",
    "apply",
    "build",
    "call",
    "compute_output_shape",
    "compute_output_spec",
    "export",
    "get_config",
    "update_step",
}
# Public although their names begin with "_".
DUNDERS = {"__init__", "__call__"}


def is_checked(name, owner, is_of_keras):
    """Returns whether a function or class is public and not Keras's.

    `__call__` is Keras's in a direct subclass of a Keras class.
    """
    if name == "__call__" and is_of_keras:
        return False
    if owner and name in KERAS_OVERRIDES:
        return False
    return name in DUNDERS or not name.startswith("_")


def public_functions(body, owner="", is_of_keras=False):
    """Yields (qualified name, node, whether it is a method)."""
    for node in body:
        name = getattr(node, "name", "_")
        if not is_checked(name, owner, is_of_keras):
            continue
        if isinstance(node, ast.ClassDef):
            bases = map(ast.unparse, node.bases)
            is_keras = any(base.startswith("keras.") for base in bases)
            yield from public_functions(node.body, f"{owner}{name}.", is_keras)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{owner}{name}", node, bool(owner)


def missing_hints(text):
    """Yields "function: parameter" of what has no hint in a module."""
    for name, node, is_method in public_functions(ast.parse(text).body):
        parameters = node.args
        decorators = {getattr(d, "id", None) for d in node.decorator_list}
        named = [*parameters.posonlyargs, *parameters.args]
        if is_method and "staticmethod" not in decorators:
            del named[0]
        named += parameters.kwonlyargs
        named += filter(None, (parameters.vararg, parameters.kwarg))
        for parameter in named:
            if parameter.annotation is None:
                yield f"{name}: {parameter.arg}"
        if node.returns is None:
            yield f"{name}: return"


@pytest.mark.parametrize(
    "path", [str(path.relative_to(ROOT)) for path in SOURCES]
)
def test_public_functions_have_hints(path):
    assert list(missing_hints((ROOT / path).read_text("utf-8"))) == []


def test_what_has_no_hint_is_found():
    text = """
def function(a: int, /, b, *c: int, d, **e) -> int: ...
def good(a: int, *b: int, c: int = 1, **d: int) -> None: ...
def _private(a): ...
class Layer:
    def __init__(self, a): ...
    def __repr__(self): ...
    def __call__(self, a): ...
    def call(self, a): ...
    def method(self): ...
    @staticmethod
    def static(a) -> None: ...
    @property
    def value(self) -> int: ...
    @classmethod
    def named(cls, a: int) -> None: ...
class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, a): ...
    def __call__(self, step): ...
class _Private:
    def method(self, a): ...
def call(a: int): ...
"""
    assert list(missing_hints(text)) == [
        "function: b",
        "function: d",
        "function: e",
        "Layer.__init__: a",
        "Layer.__init__: return",
        "Layer.__call__: a",
        "Layer.__call__: return",
        "Layer.method: return",
        "Layer.static: a",
        "Schedule.__init__: a",
        "Schedule.__init__: return",
        "call: return",
    ]


def test_mypy_finds_nothing():
    run = subprocess.run(
        [sys.executable, "-m", "mypy"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
