"""The order of the house: floors, packaging, files that programs name."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "bert_tf"

# The table of the README's "How it is built": a module may import modules of
# its own floor's packages below, never above. First match wins.
FLOORS = [
    (
        0,
        r"bert_tf/(__init__|config|features|files|manifest|philox|program)\.py",
    ),
    (1, r"bert_tf/layers/"),
    (
        1,
        r"bert_tf/training/"
        r"(optimizer|schedule|strategy|checkpointing|objective|randomness"
        r"|progress|accumulation|lamb|lock|health|loss_scale|preemption"
        r"|settings|__init__)\.py",
    ),
    (2, r"bert_tf/(models|text)/"),
    (3, r"bert_tf/checkpoints/"),
    (
        3,
        r"bert_tf/training/"
        r"(batching|input_\w+|record_source|pretraining_input)\.py",
    ),
    (4, r"bert_tf/training/(loop|step|evaluation|phases)\.py"),
    (4, r"bert_tf/(tasks|pretraining)/"),
    (5, r"bert_tf/serving/"),
    (6, r"bert_tf/(run_\w+|extract_features|(fine_tuning|training)_flags)\.py"),
    (6, r"(data|export)/"),
]
# What programs import beside the library: flags that they share.
FLAG_MODULES = ("training_flags.py", "fine_tuning_flags.py")
SOURCES = sorted(
    path.relative_to(ROOT)
    for folder in ("bert_tf", "data", "export")
    for path in (ROOT / folder).rglob("*.py")
)


def floor_of(path):
    for floor, pattern in FLOORS:
        if re.match(pattern, path.as_posix()):
            return floor
    raise AssertionError(f"{path} stands on no floor.")


def imports_of(path):
    """Yields the full names that a file imports, inside functions too."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import."
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


def module_file(name):
    """Returns the file of a dotted name of ours, or of its parent."""
    name = re.sub(r"^bert_tf\.(data|export)\b", r"\1", name)
    while name:
        base = ROOT / name.replace(".", "/")
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.exists():
                return path.relative_to(ROOT)
        name = name.rpartition(".")[0]
    return None


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_imports_go_down_only(path):
    floor = floor_of(path)
    for name in imports_of(path):
        if not re.match(r"(bert_tf|data|export)\b", name):
            continue
        target = module_file(name)
        assert floor_of(target) <= floor, (
            f"{path} (floor {floor}) imports {name} (floor {floor_of(target)})"
        )


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_nothing_imports_a_program(path):
    for name in imports_of(path):
        target = module_file(name) if name.startswith("bert_tf") else None
        if target is not None and target.name not in FLAG_MODULES:
            assert floor_of(target) < 6, f"{path} imports the program {name}"


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in SOURCES
        if re.match(r"bert_tf/(layers|models)/", str(path))
    ],
    ids=str,
)
def test_layers_and_models_know_no_tensorflow(path):
    for name in imports_of(path):
        assert not name.startswith("tensorflow"), f"{path} imports {name}"


def test_nothing_is_imported_eagerly():
    assert list(imports_of(pathlib.Path("bert_tf/__init__.py"))) == []


def test_modules_say_what_they_are():
    for path in SOURCES:
        text = (ROOT / path).read_text("utf-8")
        if text.strip():
            assert ast.get_docstring(ast.parse(text)), f"{path}: no docstring"


def test_no_module_is_a_drawer():
    for path in SOURCES:
        assert path.stem not in ("utils", "helpers", "common", "misc")
