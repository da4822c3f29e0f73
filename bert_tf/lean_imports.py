"""Imports TensorFlow and Keras without the parts that no program here uses.

Both import large libraries if they are installed, for interfaces that our
programs do not use: Keras's wrappers for scikit-learn, pandas frames as inputs,
images of a gallery, notebooks, TensorFlow Lite's converter for JAX. These take
as long to import as TensorFlow itself. Both libraries work without them.

Also, TensorFlow imports everything that it offers for the names in `tf.lite`,
`tf.compat.v1` and 300 more modules that hold only names. Here these are loaded
when one of their names is looked up. What `tf.gradients` needs is registered
nevertheless, except for the operations of the debugger and of TensorFlow Lite's
microphone.
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
# Prefix of the modules that hold only names.
_NAMES = "tensorflow._api.v2."
# For these there is also a package of the same name, e.g. tensorflow.lite. The
# modules in tensorflow.lite import each other by that name, so the package must
# be loaded before the names.
_LITE, _DISTRIBUTE = "lite", "distribute"
# One lock for all modules, because they load each other.
_LOADING = threading.RLock()


def leave_out() -> None:
    """Spares a program the imports; call it before TensorFlow is imported.

    Keras's backend must be TensorFlow. Importing one of these libraries later
    still works, and so does looking up any name of TensorFlow.
    """
    for name in _IMPORTERS:
        if name not in sys.modules:
            import_hooks.wrap(name, _import_library)


def _import_library(execute, module):
    """Imports a library without the others, and without garbage collection.

    Almost all objects that an import creates stay alive. Python's collector
    would search them for cycles again and again, now and later. `gc.freeze`
    makes it ignore them.
    """
    if not gc.isenabled():
        # Either Keras imports TensorFlow, or the program has turned it off.
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
    """Hides the libraries left out, only for the thread that made it."""

    def __init__(self):
        self._thread = threading.get_ident()

    def find_spec(self, fullname, path=None, target=None):
        if fullname in _LEFT_OUT and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(
                f"{fullname} is left out here.", name=fullname
            )


class _Later(importlib.abc.MetaPathFinder):
    """Finds modules that hold only names, and delays executing them."""

    def find_spec(self, fullname, path=None, target=None):
        if not fullname.startswith(_NAMES):
            return None
        name = fullname.removeprefix(_NAMES)
        if name.split(".")[0] == _DISTRIBUTE:
            return None
        if name == _LITE:
            # Imported later, the package would replace the module of names.
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
    """A module that is executed when one of its names is looked up.

    `importlib.util.LazyLoader` makes such modules too, but before Python 3.12
    a second thread may see one that is only half executed.
    """

    def __getattr__(self, name):
        # Python calls this only for names that are not there (yet).
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
        # None while the module is being executed, and afterwards.
        if execute is None:
            return
        try:
            _import_without(execute, module)
        except BaseException:
            spec.loader_state = execute
            raise
        module.__class__ = ModuleType
