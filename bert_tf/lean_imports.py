"""TensorFlow and Keras without what they import for others.

Both import large libraries where these are installed, for interfaces that no
program of ours uses: Keras's wrappers for scikit-learn, pandas's frames as
inputs, images of a gallery, TensorFlow Lite's converter of JAX. On a machine
that has them they take as long as TensorFlow itself. Both libraries do without
them where they are not installed.
"""

import importlib.abc
import sys

from bert_tf import import_hooks

_IMPORTERS = ("tensorflow", "keras")
_LEFT_OUT = ("jax", "matplotlib", "pandas", "scipy", "sklearn")


def leave_out() -> None:
    """Spares a program the imports; call it before TensorFlow is imported.

    Keras's backend must be TensorFlow. Whoever imports one of the libraries
    later gets it.
    """
    for name in _IMPORTERS:
        if name not in sys.modules:
            import_hooks.wrap(name, _import_without)


def _import_without(execute, module):
    finder = _Absent()
    sys.meta_path.insert(0, finder)
    try:
        execute(module)
    finally:
        sys.meta_path.remove(finder)


class _Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname in _LEFT_OUT:
            raise ModuleNotFoundError(
                f"{fullname} is left out here.", name=fullname
            )
