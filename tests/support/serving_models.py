"""Tiny models in model folders, and their exports, made once a test run."""

import atexit
import contextlib
import dataclasses
import fcntl
import functools
import os
import pathlib
import shutil
import string
import tempfile

import keras
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.config import BertConfig
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.multiple_choice import BertMultipleChoice
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.reranker import BertReranker
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.serving import exporter
from bert_tf.serving import options as options_lib
from bert_tf.serving import saved_model
from bert_tf.serving.kinds import opening
from bert_tf.serving.options import ExportOptions
from bert_tf.serving.proof import check
from bert_tf.serving.proof import requests
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.multi_label import MultiLabelTask
from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from bert_tf.tasks.question_answering.task import SquadTask
from bert_tf.tasks.reranking.task import RerankingTask
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary

MAX_SEQ_LENGTH = 19
VOCABULARY = Vocabulary(
    tokens=(
        *SPECIAL_TOKENS,
        *string.ascii_lowercase,
        *(f"##{letter}" for letter in string.ascii_lowercase),
        *string.punctuation,
        *("the", "quick", "lorem", "我", "字"),
    )
)
CONFIG = BertConfig(
    vocab_size=len(VOCABULARY),
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=23,
)
# Names that are no Python parameters, and a label that is not ASCII.
PAIR_TASK = ClassificationTask(
    name="pair",
    text_features=("sentence 1", "class"),
    labels=("nein", "ja", "vielleicht¿"),
    metrics=("accuracy",),
    temperature=1.75,
)
REGRESSION_TASK = ClassificationTask(
    name="regression", text_features=("sentence",), metrics=("pearson",)
)
TOPICS_TASK = MultiLabelTask(
    name="topics",
    text_features=("text",),
    labels=("a", "é", "c", "d"),
    temperature=0.625,
)
TAGGING_TASK = TaggingTask(
    scheme="bio", labels=("O", "B-é", "I-é", "B-x", "I-x")
)
CHOICE_TASK = MultipleChoiceTask(num_choices=3, temperature=1.25)
SQUAD_TASK = SquadTask(
    version_2_with_negative=True,
    doc_stride=5,
    max_query_length=6,
    n_best_size=4,
    max_answer_length=7,
)


# Exports that are not what their model folder is by itself: its kind, and
# other than the default `ExportOptions`.
EXPORTS = {
    "counted_pair": ("pair", ExportOptions(count_tokens=True)),
    "fill_mask": (
        "pretrainer",
        ExportOptions(kind="fill_mask", top_k=3),
    ),
    "embedding": (
        "encoder",
        ExportOptions(kind="embedding", normalize=True),
    ),
    "token_embeddings": (
        "encoder",
        ExportOptions(kind="token_embeddings", layer=0),
    ),
    "preprocessor": ("encoder", ExportOptions(kind="preprocessor")),
    "bfloat16": ("pair", ExportOptions(precision="bfloat16")),
}
# The same and others with frozen weights, and bounds that cut.
_BOUNDS = {
    "squad": {"max_windows": 2},
    "tagger": {"max_windows": 2},
    "fill_mask": {"max_masks": 1},
}
EXPORTS |= {
    f"frozen_{kind}": (
        EXPORTS.get(kind, (kind,))[0],
        dataclasses.replace(
            EXPORTS.get(kind, (kind, ExportOptions()))[1],
            freeze=True,
            **{"max_text_bytes": 40} | _BOUNDS.get(kind, {}),
        ),
    )
    for kind in ("pair", "choice", "squad", "tagger", "fill_mask", "embedding")
}


@functools.cache
def folder():
    """Returns a folder that lives as long as the test run.

    The worker processes of one run have one together: what the first makes,
    the others find.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        path = tempfile.mkdtemp(prefix="bert_tf_serving_")
        atexit.register(shutil.rmtree, path, ignore_errors=True)
        return path
    path = f"{tempfile.gettempdir()}/bert_tf_serving_{run}"
    using = pathlib.Path(path, "using")
    using.mkdir(parents=True, exist_ok=True)
    (using / os.environ["PYTEST_XDIST_WORKER"]).touch()
    atexit.register(_leave, path)
    return path


def _leave(path):
    """Removes the run's folder if all other workers have left it."""
    worker = os.environ["PYTEST_XDIST_WORKER"]
    pathlib.Path(path, "using", worker).unlink()
    if not any(pathlib.Path(path, "using").iterdir()):
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _locked(name):
    """Keeps the run's other workers out while something is made."""
    with open(f"{folder()}/{name}.lock", "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@functools.cache
def model_dir(kind):
    """Returns the model folder of a "pair", "regression", ... model."""
    if kind in EXPORTS:
        return model_dir(EXPORTS[kind][0])
    path = f"{folder()}/models/{kind}"
    with _locked(f"model_{kind}"):
        if not os.path.exists(f"{path}/config.json"):
            _save_model(path, kind)
    return path


def _save_model(path, kind):
    keras.utils.set_random_seed(sum(kind.encode()))
    model, task = {
        "pair": lambda: (BertClassifier(CONFIG, num_labels=3), PAIR_TASK),
        "regression": lambda: (
            BertClassifier(
                dataclasses.replace(CONFIG, hidden_act="relu"), num_labels=1
            ),
            REGRESSION_TASK,
        ),
        "topics": lambda: (BertClassifier(CONFIG, num_labels=4), TOPICS_TASK),
        "tagger": lambda: (BertTokenClassifier(CONFIG, 5), TAGGING_TASK),
        "choice": lambda: (BertMultipleChoice(CONFIG), CHOICE_TASK),
        "reranker": lambda: (BertReranker(CONFIG), RerankingTask()),
        "squad": lambda: (BertSpanPredictor(CONFIG), SQUAD_TASK),
        # SQuAD 1.1: every question has an answer.
        "squad_1": lambda: (
            BertSpanPredictor(CONFIG),
            dataclasses.replace(SQUAD_TASK, version_2_with_negative=False),
        ),
        "pretrainer": lambda: (BertPretrainer(CONFIG), None),
        "encoder": lambda: (
            BertEncoder(dataclasses.replace(CONFIG, hidden_act="gelu")),
            None,
        ),
    }[kind]()
    # Weights far from their initial ones: answers then depend on every input.
    for variable in model.trainable_variables:
        noise = tf.random.normal(variable.shape, stddev=0.5)
        variable.assign(variable.value + noise)
    checkpoints.save(
        path,
        model,
        WordpieceSpec(VOCABULARY),
        MAX_SEQ_LENGTH,
        task=task.to_dict() if task else None,
    )


@functools.cache
def exported(kind, contents="text"):
    """Returns the path of a model's SavedModel."""
    _, options = EXPORTS.get(kind, (kind, ExportOptions()))
    options = dataclasses.replace(options, contents=contents, check=False)
    if contents == options_lib.IDS:
        # Those of text: ids have no other.
        options = dataclasses.replace(
            options, **dict.fromkeys(options_lib.OF_TEXTS)
        )
    path = f"{folder()}/{kind}_{contents}"
    with _locked(f"export_{kind}_{contents}"):
        if not saved_model.versions(path):
            exporter.export(model_dir(kind), path, options)
    return saved_model.newest(path)


@functools.cache
def loaded(kind, contents="text"):
    """Returns a model's SavedModel, loaded; not to be trained."""
    return tf.saved_model.load(exported(kind, contents))


@contextlib.contextmanager
def calling(path, requests, *arguments, **others):
    """As `caller.calling`, but the SavedModel is loaded in this process."""
    signatures = tf.saved_model.load(path).signatures
    answered = []
    for name, inputs in requests:
        inputs = {key: tf.constant(value) for key, value in inputs.items()}
        answers = signatures[name](**inputs)
        answered.append({key: each.numpy() for key, each in answers.items()})
    yield tf.__version__, iter(answered)


def servable(model, /, **options):
    """Returns the `Servable` of a model's folder."""
    return opening.open_folder(model_dir(model), ExportOptions(**options))


def make_servable(kind, model=None, preprocessor=None, task=None, **options):
    """Returns a servable of a class of kinds, of parts of its own."""
    options = kind.resolve(ExportOptions(**options), task)
    return kind(model, preprocessor, task, options)


def difference_of(answers, expected, texts, servable, signature):
    """Returns `check._difference` of a signature's answers in float32."""
    declared = {each.name: each for each in servable.outputs[signature]}
    return check._difference(answers, expected, texts, declared, True)


def differences(kind, servable, texts):
    """Compares all signatures of an export with the trained model, here.

    Args:
        kind: The model's kind.
        servable: Its `Servable`.
        texts: Rows of strings, bytes.

    Returns:
        {signature: (largest difference, where)}.
    """
    inputs = servable.encode(texts)
    trained = servable.trained_answers(inputs, texts)
    trained["input_mask"] = inputs["input_mask"].numpy()
    found = {}
    for name, signature in loaded(kind).signatures.items():
        answers = signature(
            **{
                key: tf.constant(value)
                for key, value in requests.make_inputs(
                    name, servable, texts
                ).items()
            }
        )
        answers = {key: value.numpy() for key, value in answers.items()}
        wanted = servable.settle_ties(texts, trained, answers, check.TOLERANCE)
        found[name] = difference_of(answers, wanted, texts, servable, name)[:2]
    return found
