"""TensorFlow and Keras without what they import for others.

Both import large libraries where these are installed, for interfaces that no
program of ours uses: Keras's wrappers for scikit-learn, pandas's frames as
inputs, images of a gallery, notebooks, TensorFlow Lite's converter of JAX. On a
machine that has them they take as long as TensorFlow itself. Both libraries do
without them where they are not installed.

And TensorFlow imports all that it offers, for the names in `tf.lite`,
`tf.compat.v1` and 300 more modules that hold nothing but names. These are
loaded when something of them is looked up. What `tf.gradients` needs to know
is registered all the same, but for the operations of the debugger and of
TensorFlow Lite's microphone.
"""

import gc
import importlib.abc
import importlib.machinery
import sys
import threading
from types import ModuleType
from typing import Any

from bert_tf import import_hooks

_IMPORTERS = ("tensorflow", "keras")
_LEFT_OUT = (
    "IPython",
    "jax",
    "matplotlib",
    "pandas",
    "scipy",
    "sklearn",
)
# What the names of the modules of names begin with.
_NAMES = "tensorflow._api.v2."
# Those that TensorFlow has a package beside of the same name, tensorflow.lite
# and so on. In the one, modules import each other by its name, and so must be
# loaded before the names are there.
_LITE, _DISTRIBUTE = "lite", "distribute"
# One for all modules: they load each other.
_LOADING = threading.RLock()


def leave_out() -> None:
    """Spares a program the imports; call it before TensorFlow is imported.

    Keras's backend must be TensorFlow. Whoever imports one of the libraries
    later gets it, and whoever looks up a name of TensorFlow's finds it.
    """
    for name in _IMPORTERS:
        if name not in sys.modules:
            import_hooks.wrap(name, _import_library)


def _import_library(execute, module):
    """Imports without the others, and without looking for garbage.

    Almost all objects that an import makes stay. Python would look through
    them for cycles again and again, here and later. Frozen, they are left
    alone.
    """
    if not gc.isenabled():
        # Keras imports TensorFlow; or the program wants no collection.
        _import_without(execute, module)
        return
    gc.disable()
    try:
        _import_without(execute, module)
    finally:
        gc.freeze()
        gc.enable()


def _import_without(execute, module):
    finders = [_Absent(), _Later()]
    sys.meta_path[:0] = finders
    try:
        execute(module)
    finally:
        for finder in finders:
            sys.meta_path.remove(finder)


class _Absent(importlib.abc.MetaPathFinder):
    """Finds nothing of what is left out; for the thread that made it."""

    def __init__(self):
        self._thread = threading.get_ident()

    def find_spec(self, fullname, path=None, target=None):
        if fullname in _LEFT_OUT and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(
                f"{fullname} is left out here.", name=fullname
            )


class _Later(importlib.abc.MetaPathFinder):
    """Finds modules of names, which then are executed when they are used."""

    def find_spec(self, fullname, path=None, target=None):
        if not fullname.startswith(_NAMES):
            return None
        name = fullname.removeprefix(_NAMES)
        if name.split(".")[0] == _DISTRIBUTE:
            return None
        if name == _LITE:
            # Imported later, it would take the place of the names.
            importlib.import_module(f"tensorflow.{_LITE}")
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            spec.loader_state = loader.exec_module
            loader.exec_module = _put_off
        return spec


def _put_off(module):
    module.__class__ = _Unused


class _Unused(ModuleType):
    """A module that is executed when something of it is looked up.

    `importlib.util.LazyLoader` makes such modules too, but before Python 3.12
    a second thread sees one that is half executed.
    """

    def __getattr__(self, name):
        # Called for what is not there (yet) alone.
        _execute(self)
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(
                f"module {self.__name__!r} has no attribute {name!r}"
            ) from None

    def __dir__(self):
        _execute(self)
        return list(self.__dict__)


def _execute(module):
    with _LOADING:
        spec = module.__spec__
        execute, spec.loader_state = spec.loader_state, None
        # None while it is executed, and when it has been.
        if execute is None:
            return
        try:
            _import_without(execute, module)
        except BaseException:
            spec.loader_state = execute
            raise
        module.__class__ = ModuleType
