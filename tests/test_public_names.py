"""The public names: lazy, whole, and with examples that run."""

import ast
import dataclasses
import doctest
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
import types

import pytest

import bert_tf
from bert_tf.config import BertConfig
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.serving import exporter
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from support.paths import ROOT

# Of a module the functions in it are what has arguments and an example.
PUBLIC = {name: getattr(bert_tf, name) for name in bert_tf.__all__}
PUBLIC["tuning.run"] = PUBLIC.pop("tuning").run

WORDS = "the a bill refund is due wrong offer price court film good bad one"
TICKETS = """subject,body,label
the bill,is wrong,law
a refund,is due,law
the offer,is good,sales
a price,is bad,sales
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with what the examples begin with.

    pretrained   a pre-trained model
    tickets      a classifier of ("law", "sales")
    train.csv, dev.csv
    """
    folder = tmp_path_factory.mktemp("examples")
    tokens = (*SPECIAL_TOKENS, *WORDS.split())
    config = BertConfig(
        vocab_size=len(tokens),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=64,
    )
    preprocessor = Preprocessor(WordpieceSpec(Vocabulary(tokens=tokens)), 64)
    task = ClassificationTask(
        name="tickets",
        text_features=("text",),
        labels=("law", "sales"),
        metrics=("accuracy",),
    )
    pretrained = str(folder / "pretrained")
    bert_tf.save(pretrained, BertPretrainer(config), preprocessor)
    tickets = task.make_model(config)
    bert_tf.save(folder / "tickets", tickets, preprocessor, task)
    for name in ("train.csv", "dev.csv"):
        (folder / name).write_text(TICKETS)
    return folder


@pytest.fixture
def in_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    # The check has tests of its own: it would start a process here.
    monkeypatch.setattr(exporter, "_check", lambda *_: "")


@pytest.mark.parametrize("name", PUBLIC)
def test_example_runs(in_folder, name):
    docstring = inspect.getdoc(PUBLIC[name])
    assert "\nExample:\n" in docstring
    (example,) = doctest.DocTestFinder(recurse=False).find(
        PUBLIC[name], name, globs={}
    )
    assert example.examples
    output = []
    doctest.DocTestRunner().run(example, out=output.append)
    assert not output, "".join(output)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_argument_is_described(name):
    public = PUBLIC[name]
    docstring = inspect.getdoc(public)
    parameters = inspect.signature(public).parameters
    described = re.findall(r"^    (?:\*\*)?(\w+): ", docstring, re.MULTILINE)
    # Keras's own.
    own = {"kwargs"} if inspect.isclass(public) else set()
    if dataclasses.is_dataclass(public):
        # Options are described where they are defined, by their help.
        fields = dataclasses.fields(public)
        own |= {field.name for field in fields if field.metadata.get("help")}
    assert {*parameters} - own <= {*described}
    assert "\nRaises:\n" in docstring
    if inspect.isfunction(public) and name != "save":
        assert "\nReturns:\n" in docstring


def test_python_of_the_page_runs(in_folder, monkeypatch):
    text = (ROOT / "docs/python_api.md").read_text("utf-8")
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    # What takes long runs in the examples of these two.
    calls = []
    monkeypatch.setattr(bert_tf, "export", lambda *args: calls.append(args))

    def run(task, **arguments):
        inspect.signature(PUBLIC["tuning.run"]).bind(task, **arguments)
        calls.append(task.name)
        return types.SimpleNamespace(results={"eval_macro_f1": 1.0})

    monkeypatch.setattr(bert_tf.tuning, "run", run)
    for program in programs:
        exec(compile(program, "python_api.md", "exec"), {})
    assert calls == [("reviews", "servables/reviews"), "tickets"]
    assert bert_tf.load("reviews").task.labels == ("bad", "good")


def test_names_for_python_and_for_type_checkers_are_the_same():
    assert bert_tf.__all__ == sorted(bert_tf.__all__)
    tree = ast.parse((ROOT / "bert_tf/__init__.py").read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    found = {
        alias.name: f"{node.module}.{alias.name}"
        for node in block.body
        for alias in node.names
    }
    assert [*sorted(found)] == bert_tf.__all__
    for name, place in found.items():
        module, _, attribute = place.rpartition(".")
        expected = getattr(importlib.import_module(module), attribute)
        assert getattr(bert_tf, name) is expected


def test_names_are_in_dir_and_others_are_not_there():
    assert {*bert_tf.__all__, "__version__"} <= {*dir(bert_tf)}
    with pytest.raises(AttributeError, match="no attribute 'BertModel'"):
        bert_tf.BertModel  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'BertModel'"):
        exec("from bert_tf import BertModel")


def test_import_loads_neither_tensorflow_nor_keras():
    code = """
        import sys
        import bert_tf
        assert "BertEncoder" in dir(bert_tf)
        heavy = {"tensorflow", "keras", "numpy", "absl"} & {*sys.modules}
        assert not heavy, heavy
        loaded = {name[8:] for name in sys.modules if "bert_tf." in name}
        assert loaded == {"keras_files", "lazy"}, loaded
        bert_tf.BertConfig
        assert "keras" not in sys.modules
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    subprocess.run(command, check=True)


def test_the_package_of_programs_is_called_like_the_function(monkeypatch):
    monkeypatch.setattr(exporter, "export", lambda *args: args)
    monkeypatch.setattr(bert_tf, "export", None)
    importlib.reload(importlib.import_module("bert_tf.export"))
    assert inspect.ismodule(sys.modules["bert_tf.export"])
    package = sys.modules["bert_tf.export"]
    assert package("model", "servable") == ("model", "servable")


def test_type_checkers_find_the_hints():
    assert (ROOT / "bert_tf/py.typed").read_text() == ""
    assert '"bert_tf": ["py.typed"]' in (ROOT / "setup.py").read_text()
