"""Every task tuned from a model of each family, with its own tokenizer."""

import itertools
import os

import keras
import numpy as np
import pytest

from bert_tf import checkpoints
from bert_tf import tuning
from bert_tf.checkpoints import starting_point
from bert_tf.models.encoder import BertEncoder
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.multi_label import MultiLabelTask
from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from bert_tf.tasks.question_answering.task import SquadTask
from bert_tf.tasks.reranking.task import RerankingTask
from bert_tf.tasks.retrieval.task import RetrievalTask
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from support.tokenizer_families import FAMILIES
from support.tokenizer_families import MAX_SEQ_LENGTH
from support.tokenizer_families import small

PLACES = ("here", "there", "home")
TEXTS = [f"The fox, {place}: naïve {n}" for n in range(4) for place in PLACES]
# {task: (what it is, a table, the score of dev)}
TASKS = {
    "pair": (
        ClassificationTask(
            name="pair",
            text_features=("a", "b"),
            labels=PLACES,
            metrics=("accuracy",),
        ),
        {"a": TEXTS, "b": TEXTS[::-1], "label": [*PLACES] * 4},
        "eval_accuracy",
    ),
    "tagger": (
        TaggingTask(scheme="bio", labels=("O", "B-x")),
        {
            "words": [text.split() for text in TEXTS],
            "tags": [["O", "O", "B-x", "O", "O"]] * len(TEXTS),
        },
        "eval_f1",
    ),
    "choice": (
        MultipleChoiceTask(num_choices=3),
        {
            "context": TEXTS,
            "choices": [[*PLACES]] * len(TEXTS),
            "label": [0, 1, 2] * 4,
        },
        "eval_accuracy",
    ),
    "reranker": (
        RerankingTask(loss_name="softmax", num_negatives=2),
        {
            "query": TEXTS,
            "positive": [*PLACES] * 4,
            "negatives": [[*PLACES[1:], "x"], ["x"], ["y", "z"]] * 4,
        },
        "eval_MRR@10",
    ),
    "squad": (
        SquadTask(doc_stride=4, max_query_length=6),
        {
            "id": [str(n) for n in range(len(TEXTS))],
            "question": ["Where?"] * len(TEXTS),
            "context": TEXTS,
            "answers": [
                {"text": [place], "answer_start": [9]} for place in PLACES
            ]
            * 4,
        },
        "f1",
    ),
}


# The family of most other tests.
BERT_SPEC = WordpieceSpec(
    Vocabulary(tokens=(*SPECIAL_TOKENS, "the", *PLACES)), do_lower_case=True
)
BERT = (small("base", BERT_SPEC), BERT_SPEC, ())


@pytest.mark.parametrize(
    "task",
    [
        *(task for task, _, _ in TASKS.values()),
        MultiLabelTask(name="marks", text_features=("a",), labels=PLACES),
        RerankingTask(),
        RetrievalTask(),
    ],
    ids=lambda task: type(task).__name__,
)
def test_how_to_compute_arrives_in_the_model_of_every_task(task):
    config, _, _ = BERT
    model = task.make_model(config, attention_chunk=128, rematerialize=True)
    encoder = model.encoder
    assert encoder.rematerialize
    for block in encoder.blocks:
        assert block.attention.attention_chunk == 128


# All of them with `make parity-check`.
ALWAYS = {("roberta", "tagger")}


@pytest.mark.parametrize(
    "family, name",
    [
        pytest.param(*pair, marks=[] if pair in ALWAYS else [pytest.mark.peers])
        for pair in itertools.product(FAMILIES, TASKS)
    ],
)
def test_a_task_is_tuned_saved_and_predicted(tmp_path, family, name):
    config, spec, _ = FAMILIES[family]
    keras.utils.set_random_seed(1)
    folder = str(tmp_path / "start")
    checkpoints.save(folder, BertEncoder(config), spec, MAX_SEQ_LENGTH)
    task, table, score = TASKS[name]
    out = str(tmp_path / "out")
    run = tuning.run(
        task,
        output_dir=out,
        train=table,
        dev=table,
        test=table,
        start=folder,
        max_seq_length=MAX_SEQ_LENGTH,
        train_batch_size=4,
        learning_rate=3e-3,
        num_train_epochs=1.0,
    )
    assert np.isfinite(run.results[score]), run.results
    # What was saved has the tokenizer that it began with.
    assert starting_point.find(out).tokenizer == spec
    again = tuning.run(
        task, output_dir=out, test=table, max_seq_length=MAX_SEQ_LENGTH
    )
    assert again.answers["test"] == run.answers["test"]


@pytest.mark.parametrize(
    "family, num_special",
    [("bert", 3), ("albert", 3), ("roberta", 4), ("xlm-roberta", 4)],
)
def test_each_text_of_a_pair_needs_a_token(tmp_path, family, num_special):
    config, spec, _ = FAMILIES.get(family, BERT)
    folder = str(tmp_path / "start")
    checkpoints.save(folder, BertEncoder(config), spec, MAX_SEQ_LENGTH)
    out = str(tmp_path / "out")

    def tune(name, length):
        task, table, _ = TASKS[name]
        return tuning.run(
            task,
            output_dir=out,
            train=table,
            start=folder,
            max_seq_length=length,
            train_batch_size=12,
            num_train_epochs=1.0,
        )

    least = num_special + 2
    for name in ("pair", "choice", "reranker"):
        with pytest.raises(ValueError) as error:
            tune(name, least - 1)
        assert str(error.value) == (
            f"`max_seq_length` must be at least {least} for a pair of texts: "
            f"{num_special} special tokens, and a token of each text. "
            f"Received: max_seq_length={least - 1}."
        )
    assert not os.path.exists(out)
    tune("pair", least)
    ids = Preprocessor(spec, least)(("here there", "home"))["input_ids"]
    framing = [spec.vocabulary.cls_id, spec.vocabulary.sep_id]
    assert np.isin(ids, framing).sum() == num_special
