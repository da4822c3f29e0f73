"""A tokenizer of another kind goes through data, tuning and export.

It is of this file alone, and its ids do not tell where words start. The first
word of a text is marked, and so has another id than the same word later. A
hyphen joins: what follows it goes on with the word, by an id that elsewhere
starts one.
"""

import dataclasses
import pickle
import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoints import starting_point
from bert_tf.config import BertConfig
from bert_tf.input import pretraining
from bert_tf.models.encoder import BertEncoder
from bert_tf.pretraining import run_local
from bert_tf.pretraining.records import inspection
from bert_tf.pretraining.records import record_rules
from bert_tf.pretraining.settings import Settings
from bert_tf.serving import exporter
from bert_tf.tasks import fill_mask
from bert_tf.tasks import task_folder
from bert_tf.tasks.classification.task import GlueTask
from bert_tf.tasks.text_source import TextSource
from bert_tf.tasks.tsv import Examples
from bert_tf.text import dynamic_masking
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.tuning import run as tuning
from bert_tf.tuning.config import FineTuningConfig

FIRST, HYPHEN = "^", "-"
WORDS = ("cat", "dog", "cow", "hen", "red", "blue")
VOCABULARY = Vocabulary(
    tokens=(
        *SPECIAL_TOKENS,
        HYPHEN,
        *WORDS,
        *(f"{FIRST}{word}" for word in WORDS),
    )
)
CONFIG = BertConfig(
    vocab_size=len(VOCABULARY),
    hidden_size=6,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=7,
    max_position_embeddings=13,
)


@dataclasses.dataclass(frozen=True)
class ToySpec:
    vocabulary: Vocabulary
    do_lower_case: bool = True

    tokenizer_class = "ToyTokenizer"

    @property
    def settings(self):
        return {"mark": FIRST}

    @property
    def folder_settings(self):
        return {}

    def make(self):
        return ToyTokenizer(self)

    def starts_word(self, ids):
        is_hyphen = tf.equal(ids, self.vocabulary.index(HYPHEN))
        follows_hyphen = tf.pad(is_hyphen[:, :-1], [[0, 0], [1, 0]])
        return ~(is_hyphen | follows_hyphen)

    def spell(self, tokens):
        apart = tf.strings.regex_replace(tokens, r"^\^?", " ")
        return tf.strings.regex_replace(apart, "^ -$", "-")


class ToyTokenizer(tf.Module):
    def __init__(self, spec):
        super().__init__(name="toy_tokenizer")
        self.spec = spec

    def tokenize(self, texts):
        words = tf.strings.split(tf.strings.lower(texts))
        numbers = tf.ragged.range(words.row_lengths()).flat_values
        marked = tf.where(
            tf.equal(numbers, 0),
            tf.strings.join([FIRST, words.flat_values]),
            words.flat_values,
        )
        pieces = tf.strings.split(
            tf.strings.regex_replace(marked, HYPHEN, f" {HYPHEN} ")
        )
        is_entry = tf.cast(
            tf.equal(
                pieces.flat_values[:, tf.newaxis],
                tf.constant(self.spec.vocabulary.tokens),
            ),
            tf.int32,
        )
        ids = tf.where(
            tf.reduce_max(is_entry, axis=1) > 0,
            tf.argmax(is_entry, axis=1, output_type=tf.int32),
            self.spec.vocabulary.unk_id,
        )
        return words.with_values(pieces.with_values(ids))


SPEC = ToySpec(VOCABULARY)


def ids_of(text):
    """Returns what the tokenizer makes of a text, by loops."""
    ids = []
    for number, word in enumerate(text.lower().split()):
        marked = word if number else FIRST + word
        pieces = re.findall(f"{HYPHEN}|[^{HYPHEN}]+", marked)
        ids += [VOCABULARY.index(piece) for piece in pieces]
    return ids


def make_texts(num_texts, num_words, seed):
    """Returns texts of words, of which some have a hyphen."""
    generator = np.random.default_rng(seed)
    joints = generator.choice([" ", " ", HYPHEN], (num_texts, num_words))
    words = generator.choice(WORDS, (num_texts, num_words))
    return [
        "".join(map("".join, zip(row, joints_of_row))).rstrip(" -")
        for row, joints_of_row in zip(words.tolist(), joints.tolist())
    ]


def words_of(ids):
    """Yields the positions of each word of a sequence, by loops."""
    special = {VOCABULARY.index(token) for token in SPECIAL_TOKENS}
    hyphen = VOCABULARY.index(HYPHEN)
    word = []
    for position, index in enumerate(ids):
        is_joined = hyphen in (index, ids[position - 1])
        if word and (index in special or not is_joined):
            yield word
            word = []
        if index not in special:
            word.append(position)


def test_the_toy_is_what_it_says():
    texts = ["Cat cat", "red-cat cat", " ", "hen"]
    found = SPEC.make().tokenize(tf.constant(texts))
    assert found.merge_dims(1, 2).to_list() == [ids_of(text) for text in texts]
    assert found.row_lengths().numpy().tolist() == [2, 2, 0, 1]
    first, later = ids_of("cat cat")
    assert first != later
    assert pickle.loads(pickle.dumps(SPEC)) == SPEC


@pytest.mark.parametrize("masking_mode", ["static", "dynamic"])
@pytest.mark.parametrize("rule", ["do_whole_word_mask", "do_span_mask"])
def test_records_are_masked_by_its_words(tmp_path, masking_mode, rule):
    sentences = make_texts(80, 5, seed=3)
    documents = ["\n".join(sentences[n : n + 4]) for n in range(0, 80, 4)]
    (tmp_path / "a.txt").write_text("\n\n".join(documents))
    settings = Settings(
        max_seq_length=27,
        max_predictions_per_seq=7,
        masked_lm_prob=0.3,
        dupe_factor=2,
        masking_mode=masking_mode,
        **{rule: True},
    )
    path = f"{tmp_path}/x"
    run_local.build(f"{tmp_path}/a.txt", path, SPEC, settings)
    (found,) = inspection.read([path])
    if masking_mode == "dynamic":
        config = dataclasses.replace(CONFIG, max_position_embeddings=27)
        records = pretraining.pretraining_records(path, config, SPEC)
        batch = {
            name: tf.cast(value, tf.int32) for name, value in found.items()
        }
        numbers = tf.range(len(found["input_ids"]))
        seeds = dynamic_masking.example_seeds(5, numbers)
        found = {
            name: value.numpy()
            for name, value in records.mask(batch, seeds).items()
        }
    checks = record_rules.check(found, VOCABULARY, settings.masking)
    for name, holds in checks.items():
        assert holds.all(), name

    num_joined = num_cut = 0
    places = {}
    for row, ids in enumerate(inspection.restored(found).tolist()):
        positions = found["masked_lm_positions"][row]
        is_chosen = np.zeros(len(ids), bool)
        is_chosen[positions[found["masked_lm_weights"][row] > 0]] = True
        for word in words_of(ids):
            for number, position in enumerate(word):
                places.setdefault(ids[position], set()).add(number > 0)
            chosen = is_chosen[word]
            num_joined += len(word) > 1 and chosen.all()
            num_cut += chosen.any() and not chosen.all()
    # A span's last word is cut at the limit, at most one in an example.
    assert num_cut <= (len(found["input_ids"]) if rule == "do_span_mask" else 0)
    assert num_joined > 9
    # One id starts a word here and goes on with it there.
    assert places[VOCABULARY.index("cat")] == {False, True}
    assert places[VOCABULARY.index("^cat")] == {False}


def test_a_mask_is_filled_as_it_joins_words():
    answers = {
        "tokens": tf.constant([[["cat", "^cat", HYPHEN]]]),
        "num_masks": tf.constant([1]),
    }
    filled = fill_mask.fill(tf.constant(["red [MASK]"]), answers, SPEC)
    assert filled.numpy().tolist() == [[[b"red cat", b"red cat", b"red-"]]]


def test_a_tuned_model_is_served(tmp_path, monkeypatch):
    monkeypatch.setitem(tokenizer_files.KINDS, ToySpec.tokenizer_class, ToySpec)
    checkpoints.save(tmp_path / "encoder", BertEncoder(CONFIG), SPEC, 13)
    start = starting_point.find(tmp_path / "encoder")
    assert start.tokenizer == SPEC
    task = GlueTask(
        name="colour",
        text_features=("text",),
        labels=("no", "yes"),
        metrics=("accuracy",),
    )
    texts = make_texts(8, 4, seed=7)
    source = TextSource(
        examples=Examples(texts=(texts,), labels=np.int32([0, 1] * 4)),
        preprocessor=start.preprocessor(13),
    )
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        model = task_folder.new_model(start, task)
    config = FineTuningConfig(
        output_dir=str(tmp_path / "tuned"),
        do_train=True,
        train_batch_size=4,
        learning_rate=1e-2,
        max_seq_length=13,
    )
    tuning.tune(model, task, source, config, start, strategy)
    assert starting_point.find(tmp_path / "tuned").tokenizer == SPEC

    # The export itself is checked with strings that are hard to read.
    exported = exporter.export(f"{tmp_path}/tuned", f"{tmp_path}/served")
    assert exported.text_ops == ()
    answer = tf.saved_model.load(exported.path).signatures["serving_default"]
    rows = [
        [VOCABULARY.cls_id, *ids_of(text), VOCABULARY.sep_id] for text in texts
    ]
    ids = tf.ragged.constant(rows, tf.int32).to_tensor(
        VOCABULARY.pad_id, shape=[None, 13]
    )
    mask = tf.sequence_mask([len(row) for row in rows], 13, tf.int32)
    inputs = {
        "input_ids": ids,
        "input_mask": mask,
        "segment_ids": tf.zeros_like(ids),
    }
    np.testing.assert_allclose(
        answer(text=tf.constant(texts))["probabilities"],
        task.decode(model(inputs))["probabilities"],
        atol=1e-5,
    )
