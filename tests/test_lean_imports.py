"""What TensorFlow and Keras import for others, and programs leave out."""

import gc
import importlib
import subprocess
import sys
from concurrent import futures

import pytest

from bert_tf import lean_imports

IMPORTS = """
import gc, sys
from bert_tf import lean_imports
lean_imports.leave_out()
gc.collect()
collections = sum(each["collections"] for each in gc.get_stats())
import tensorflow, keras
# Python looked for no garbage among what stays, and goes on to look.
assert sum(each["collections"] for each in gc.get_stats()) == collections
assert gc.isenabled() and gc.get_freeze_count() > 100_000
left_out = set(lean_imports._LEFT_OUT)
assert not left_out & sys.modules.keys(), left_out & sys.modules.keys()
import pandas
assert pandas.DataFrame({"a": [1, 2]}).a.sum() == 3

# Names are there when they are used, and stay what they are.
late = lean_imports._Unused
from tensorflow.python.framework import ops
gradients = set(ops.gradient_registry.list())
for name in ("tensorflow.lite.python.lite", "tensorflow.python.pywrap_mlir"):
    assert name not in sys.modules, name
names = dict(vars(tensorflow))
assert type(tensorflow.lite) is late
assert tensorflow.lite.Interpreter.__name__ == "Interpreter"
assert type(tensorflow.lite) is not late
assert tensorflow.distribute.experimental.CommunicationOptions()
assert "Dataset" in dir(tensorflow.data)
assert tensorflow.compat.v1.Session.__name__ == "Session"
while unused := [m for m in list(sys.modules.values()) if type(m) is late]:
    for module in unused:
        dir(module)
assert {name: vars(tensorflow)[name] for name in names} == names
# No operation of ours has lost its gradient.
assert set(ops.gradient_registry.list()) - gradients <= {
    "AudioMicrofrontend",
    "DebugGradientIdentity",
    "DebugGradientRefIdentity",
    "DebugIdentityV2",
}
assert not left_out & sys.modules.keys() - {"pandas"}
"""
LIBRARY = """
import optional.part
try:
    import spared
except ImportError as error:
    spared = error
"""


def test_who_collects_no_garbage_does_not_begin_to(tmp_path, monkeypatch):
    (tmp_path / "collector.py").write_text(
        "import gc\nis_on = gc.isenabled()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(lean_imports, "_IMPORTERS", ("collector",))
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    lean_imports.leave_out()
    frozen = gc.get_freeze_count()
    gc.disable()
    try:
        assert not importlib.import_module("collector").is_on
        assert not gc.isenabled()
        assert gc.get_freeze_count() <= frozen
    finally:
        gc.enable()


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


def test_modules_of_names_are_executed_once_when_they_are_used(
    tmp_path, monkeypatch
):
    for path, text in {
        "spare/__init__.py": "from spare._names import slow",
        "spare/_names/__init__.py": "",
        "spare/_names/slow/__init__.py": (
            "import time\nimport spare\nspare.runs.append(__name__)\n"
            "early = 1\ntime.sleep(0.2)\nfrom spare._names.slow import part\n"
            "if len(spare.runs) < 2:\n    raise ImportError('not yet')\n"
            "late = 2\n"
        ),
        "spare/_names/slow/part.py": "number = 3",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(lean_imports, "_IMPORTERS", ("spare",))
    monkeypatch.setattr(lean_imports, "_NAMES", "spare._names.")
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    lean_imports.leave_out()
    spare = importlib.import_module("spare")
    spare.runs = []
    assert "part" not in vars(spare.slow)
    # What fails is tried again.
    with pytest.raises(ImportError, match="not yet"):
        spare.slow.late  # noqa: B018
    del spare.slow.early
    # Another thread waits until all is there.
    with futures.ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(lambda _: (spare.slow.late, spare.slow.early), range(4))
        )
    assert found == [(2, 1)] * 4
    assert spare.runs == ["spare._names.slow"] * 2
    assert spare.slow.part.number == 3
    assert {"early", "late", "part"} <= set(dir(spare.slow))
    with pytest.raises(AttributeError, match="has no attribute 'none'"):
        spare.slow.none  # noqa: B018


def test_tensorflow_and_keras_do_without_them():
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)
