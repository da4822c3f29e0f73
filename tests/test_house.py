"""The order of the house: floors, packaging, files that programs name."""

import ast
import re

import pytest

from support.paths import ROOT

PACKAGE = ROOT / "bert_tf"

# A line of the table in docs/architecture.md: a floor, if it is another than
# the line's before, and a folder, or "programs", or on the lowest floor
# modules.
_LINE = re.compile(r"(\d| )  ((?:\w+/|programs)(?= )|(?<=0  )\w+  .*)")


def read_floors():
    """Returns {folder, module of the package, or "programs": its floor}."""
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    table = text.split("```")[1]
    floors, floor = {}, None
    for digit, names in _LINE.findall(table):
        floor = int(digit) if digit.strip() else floor
        for name in names.split():
            floors[name.rstrip("/")] = floor
    return floors


FLOORS = read_floors()
# What the top floor has beside programs: flags that they share, public names.
NO_PROGRAMS = ("training_flags.py", "fine_tuning_flags.py", "saving.py")
SOURCES = sorted(
    path.relative_to(ROOT)
    for folder in ("bert_tf", "data", "export")
    for path in (ROOT / folder).rglob("*.py")
)


def room_of(path):
    """Returns the name in that table of what a file belongs to."""
    package, *folders, _ = path.parts
    if package != "bert_tf":
        return "programs"
    if folders:
        return folders[0]
    # The public names stand above all that they name.
    return path.stem if path.stem in FLOORS else "programs"


def floor_of(path):
    return FLOORS[room_of(path)]


def imports_of(path):
    """Returns the full names that a file imports, inside functions too."""
    return imports_in(ast.parse((ROOT / path).read_text("utf-8")))


def imports_in(tree):
    """Yields the full names that are imported in a tree of syntax."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{ast.unparse(node)} is relative."
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
        if target is not None and target.name not in NO_PROGRAMS:
            assert room_of(target) != "programs", (
                f"{path} imports the program {name}"
            )


def test_no_two_folders_of_a_floor_import_each_other():
    pairs = {
        (room_of(path), room_of(module_file(name)))
        for path in SOURCES
        for name in imports_of(path)
        if name.startswith("bert_tf.")
    }
    for room, other in pairs:
        assert room == other or (other, room) not in pairs, (
            f"{room} and {other} import each other."
        )


def test_the_table_of_floors_is_of_what_there_is():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.stem for path in PACKAGE.glob("*.py")}
    assert folders == {name for name in FLOORS if name in folders}
    assert {*FLOORS} <= folders | modules | {"programs"}
    assert sorted({*FLOORS.values()}) == list(range(8))


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


# Where it may be known of what kind a tokenizer is.
KNOWS_WORDPIECE = re.compile(
    r"bert_tf/text/(tokenizers/|learners/|vocabulary\.py)"
)


@pytest.mark.parametrize(
    "path",
    [path for path in SOURCES if not KNOWS_WORDPIECE.match(str(path))],
    ids=str,
)
def test_only_tokenizers_know_of_what_kind_they_are(path):
    for name in imports_of(path):
        # A program learns a vocabulary of one kind.
        assert "wordpiece" not in name or name.startswith(
            "bert_tf.text.learners."
        ), f"{path} imports {name}"
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    for node in ast.walk(tree):
        name = getattr(node, "attr", getattr(node, "id", ""))
        assert not re.search("Wordpiece|CONTINUATION", name), f"{path}: {name}"
        value = str(getattr(node, "value", ""))
        # The mark alone or in a regular expression; in a text it is text, and
        # with a space behind it a heading.
        assert not re.fullmatch(r"(b')?\W*##(?! )\W*", value), (
            f"{path}: {value}"
        )


def test_tensorflow_datasets_is_imported_only_by_what_reads_its_sets():
    at_the_top = {}
    for path in SOURCES:
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        at_the_top[path] = {
            name
            for node in tree.body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in imports_in(node)
        }
    found = set()
    while True:
        also = {
            path
            for path, names in at_the_top.items()
            if "tensorflow_datasets" in names
            or found & {module_file(name) for name in names}
        }
        if also == found:
            break
        found = also
    assert sorted(map(str, found)) == [
        "bert_tf/input/prepared_sets.py",
        "bert_tf/tasks/classification/tfds_examples.py",
        "bert_tf/tasks/tagging/tfds.py",
    ]


def test_public_names_are_imported_for_type_checkers_alone():
    tree = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Import)
        if isinstance(node, ast.ImportFrom) and node not in block.body:
            assert ast.unparse(node) in (
                "from typing import TYPE_CHECKING",
                "from bert_tf import keras_files",
                "from bert_tf import lazy",
            )


def test_modules_say_what_they_are():
    for path in SOURCES:
        text = (ROOT / path).read_text("utf-8")
        if text.strip():
            assert ast.get_docstring(ast.parse(text)), f"{path}: no docstring"


def test_no_module_is_a_drawer():
    for path in SOURCES:
        assert path.stem not in ("utils", "helpers", "common", "misc")


def test_the_root_holds_what_it_should():
    """What a run has left there would else be committed beside it."""
    listed = (ROOT / "MANIFEST.in").read_text("utf-8").split()
    allowed = {
        *listed,
        *("CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "setup.py"),
        *("Makefile", "mkdocs.yml", "pyproject.toml", "requirements-tpu.txt"),
        *("CONTRIBUTING.md", "demo.py"),
    }
    files = {path.name for path in ROOT.iterdir() if path.is_file()}
    strays = {name for name in files - allowed if not name.startswith(".")}
    assert not strays


def test_make_runs_every_file_with_peers():
    """No target runs the mark in all files: each needs an environment."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    marked = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"mark\.peers\b", path.read_text("utf-8"))
        and path.name != "test_house.py"
    }
    assert marked
    named = {*re.findall(r"tests/[\w/]+\.py", makefile)}
    assert not marked - named
    assert all((ROOT / path).exists() for path in named)


# What a step and its loop are made of, beside modules of the lowest floor.
_OF_TRAINING = ("training", "optimizers", "input")
_NOT_OF_TRAINING = ("program",)


def loaded_by(path):
    """Returns the files that importing one loads, by its import statements."""
    found, todo = set(), [path]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found.add(path)
        body = ast.parse((ROOT / path).read_text("utf-8")).body
        for name in imports_in(ast.Module(body=_top(body), type_ignores=[])):
            if imported := module_file(name):
                todo.append(imported)
    return found


def _top(body):
    return [
        node for node in body if isinstance(node, ast.Import | ast.ImportFrom)
    ]


def test_the_loop_loads_few_files_and_no_family():
    loaded = loaded_by(PACKAGE.relative_to(ROOT) / "training/loop.py")
    assert len(loaded) <= 30
    for path in loaded:
        if path.parts[1] == "models":
            assert path.name == "objectives.py"
        elif len(path.parts) > 2:
            assert path.parts[1] in _OF_TRAINING, path
        else:
            assert path.stem not in _NOT_OF_TRAINING, path


@pytest.mark.parametrize(
    "path", [str(p) for p in SOURCES if p.parts[:2] == ("bert_tf", "training")]
)
def test_training_knows_no_family_tokenizer_or_program(path):
    for name in imports_of(path):
        room = name.split(".")[1] if name.startswith("bert_tf.") else ""
        assert room not in ("checkpoints", "text", "program"), name


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in SOURCES
        if re.match(r"bert_tf/(layers|models|optimizers|training)/", str(path))
    ],
    ids=str,
)
def test_what_trains_knows_no_absl(path):
    for name in imports_of(path):
        assert not name.startswith("absl"), f"{path} imports {name}"


def test_the_loop_loads_no_absl():
    loaded = loaded_by(PACKAGE.relative_to(ROOT) / "training/loop.py")
    for path in loaded:
        assert not any(name.startswith("absl") for name in imports_of(path))
