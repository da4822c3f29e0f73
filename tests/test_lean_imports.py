"""What TensorFlow and Keras import for others, and programs leave out."""

import importlib
import subprocess
import sys

from bert_tf import lean_imports

IMPORTS = """
import sys
from bert_tf import lean_imports
lean_imports.leave_out()
import tensorflow, keras
left_out = set(lean_imports._LEFT_OUT)
assert not left_out & sys.modules.keys(), left_out & sys.modules.keys()
import pandas
assert pandas.DataFrame({"a": [1, 2]}).a.sum() == 3
"""
LIBRARY = """
import optional.part
try:
    import spared
except ImportError as error:
    spared = error
"""


def test_others_are_left_out_while_a_library_is_imported(tmp_path, monkeypatch):
    (tmp_path / "importer.py").write_text(LIBRARY)
    (tmp_path / "spared.py").write_text("NUMBER = 7\n")
    (tmp_path / "optional").mkdir()
    # One that is not a library itself, and so is found.
    (tmp_path / "optional" / "part.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(lean_imports, "_IMPORTERS", ("importer",))
    monkeypatch.setattr(lean_imports, "_LEFT_OUT", ("part", "spared"))
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    before = len(sys.meta_path)
    lean_imports.leave_out()
    importer = importlib.import_module("importer")
    assert importer.spared.name == "spared"
    assert len(sys.meta_path) == before + 1  # The hook alone.
    assert importlib.import_module("spared").NUMBER == 7
    # Who has it already keeps it.
    del sys.modules["importer"]
    assert importlib.import_module("importer").spared.NUMBER == 7


def test_tensorflow_and_keras_do_without_them():
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)
