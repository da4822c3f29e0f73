"""Programs of benchmarks/, imported by tests."""

import contextlib
import importlib
import pathlib
import sys

from absl import flags

from support.paths import ROOT

FOLDER = ROOT / "benchmarks"


@contextlib.contextmanager
def imported(name):
    """Imports a program, and then forgets it, its modules and its flags.

    Two programs have flags of the same name.
    """
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))
        for module in [*sys.modules.values()]:
            path = getattr(module, "__file__", None)
            if path and pathlib.Path(path).parent == FOLDER:
                sys.modules.pop(module.__name__, None)
        defined = flags.FLAGS.flags_by_module_dict()[name]
        flags.FLAGS.remove_flag_values([flag.name for flag in defined])
