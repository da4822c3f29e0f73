"""A tokenizer of another kind goes through data, tuning and export.

It is of this file alone, and its ids do not tell where words start. The first
word of a text is marked, and so has another id than the same word later. A
hyphen joins: what follows it goes on with the word, by an id that elsewhere
starts one.
"""

import dataclasses
import json
import pickle
import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf import manifest
from bert_tf.checkpoints import starting_point
from bert_tf.config import BertConfig
from bert_tf.input import pretraining
from bert_tf.models.encoder import BertEncoder
from bert_tf.pretraining import run_local
from bert_tf.pretraining.records import inspection
from bert_tf.pretraining.records import record_rules
from bert_tf.pretraining.settings import Settings
from bert_tf.runs import pretraining_run
from bert_tf.serving import exporter
from bert_tf.serving.proof import caller
from bert_tf.tasks import fill_mask
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.tsv import Examples
from bert_tf.text import dynamic_masking
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.vocabulary import load_vocabulary
from bert_tf.tuning import tuning_run
from bert_tf.tuning.config import FineTuningConfig
from support import pretraining_options
from support import serving_models

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
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=7,
    max_position_embeddings=13,
)


@dataclasses.dataclass(frozen=True)
class ToySpec:
    vocabulary: Vocabulary
    do_lower_case: bool = True
    added_tokens: tuple = ()
    tokens_in_text: str = "added"

    tokenizer_class = "ToyTokenizer"

    @property
    def settings(self):
        return {"mark": FIRST}

    @property
    def folder_settings(self):
        return {}

    tokenizer_json = None

    @property
    def vocabulary_files(self):
        return {"vocab.txt": self.vocabulary.to_text()}

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
WORDPIECE = WordpieceSpec(VOCABULARY)


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


SENTENCES = make_texts(40, 5, seed=3)
SETTINGS = Settings(max_seq_length=13, max_predictions_per_seq=3, dupe_factor=1)


def build_records(folder, spec, sentences=SENTENCES, settings=SETTINGS):
    """Returns the path of records of documents of four sentences each."""
    documents = [
        "\n".join(sentences[n : n + 4]) for n in range(0, len(sentences), 4)
    ]
    (folder / "a.txt").write_text("\n\n".join(documents))
    path = f"{folder}/x"
    run_local.build(f"{folder}/a.txt", path, spec, settings)
    return path


@pytest.mark.parametrize("masking_mode", ["static", "dynamic"])
@pytest.mark.parametrize("rule", ["do_whole_word_mask", "do_span_mask"])
def test_records_are_masked_by_its_words(tmp_path, masking_mode, rule):
    settings = Settings(
        max_seq_length=27,
        max_predictions_per_seq=7,
        masked_lm_prob=0.3,
        dupe_factor=2,
        masking_mode=masking_mode,
        **{rule: True},
    )
    path = build_records(tmp_path, SPEC, make_texts(80, 5, seed=3), settings)
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


@pytest.mark.parametrize("masking_mode", ["static", "dynamic"])
@pytest.mark.parametrize(
    ("spec", "other"), [(SPEC, WORDPIECE), (WORDPIECE, SPEC)]
)
def test_records_are_of_one_tokenizer(tmp_path, masking_mode, spec, other):
    settings = dataclasses.replace(SETTINGS, masking_mode=masking_mode)
    path = build_records(tmp_path, spec, settings=settings)
    told = manifest.find([path])[path]
    assert told.tokenizer == tokenizer_files.describe(spec)
    assert pretraining.pretraining_records(path, CONFIG, spec).num_examples
    with pytest.raises(ValueError, match="made with tokenizer=.*ToyTokenizer"):
        pretraining.pretraining_records(path, CONFIG, other)


def test_a_setting_tells_a_tokenizer_from_another(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class OtherSpec(ToySpec):
        settings = {"mark": "*"}

    path = build_records(tmp_path, SPEC)
    with pytest.raises(ValueError, match=r"\{'mark': '\^'\}.*\{'mark': '\*'\}"):
        pretraining.pretraining_records(path, CONFIG, OtherSpec(VOCABULARY))


def test_a_work_folder_is_of_one_tokenizer(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(run_local, "_publish", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build_records(tmp_path, SPEC)
    (work,) = tmp_path.glob(".*/work.json")
    told = json.loads(work.read_text())
    assert told["tokenizer"] == {
        "tokenizer_class": "ToyTokenizer",
        "settings": {"mark": FIRST},
    }


@pytest.mark.parametrize(
    ("spec", "other", "version"), [(SPEC, WORDPIECE, 2), (WORDPIECE, SPEC, 1)]
)
def test_a_training_is_of_one_tokenizer(tmp_path, spec, other, version):
    records = build_records(tmp_path, SPEC)
    # As google-research/bert writes them: nothing tells their tokenizer.
    for path in tmp_path.glob("manifest-*"):
        path.unlink()

    def train(tokenizer, num_steps):
        options = pretraining_options.make_options(
            input_file=records,
            max_seq_length=13,
            num_train_steps=num_steps,
            train_batch_size=2,
            output_dir=f"{tmp_path}/out",
            do_train=True,
            max_predictions_per_seq=3,
            num_warmup_steps=0,
        )
        start = starting_point.StartingPoint(
            init_checkpoint=None, config=CONFIG, tokenizer=tokenizer
        )
        strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
        pretraining_run.run(options, start, strategy, "float32")

    train(spec, 1)
    written = json.loads((tmp_path / "out/train/model.json").read_text())
    assert written["format_version"] == version
    with pytest.raises(ValueError, match="another model: tokenizer was "):
        train(other, 1)
    train(spec, 1)


@pytest.mark.parametrize(
    ("spec", "other"), [(SPEC, WORDPIECE), (WORDPIECE, SPEC)]
)
def test_a_model_folder_is_of_one_tokenizer(tmp_path, spec, other):
    encoder = BertEncoder(CONFIG)
    path = tmp_path / "tokenizer_config.json"
    checkpoints.save(tmp_path, encoder, spec, 13)
    written = path.read_text()
    with pytest.raises(ValueError, match="another model: its `tokenizer_class"):
        checkpoints.save(tmp_path, encoder, other, 13)
    assert path.read_text() == written
    checkpoints.save(tmp_path, encoder, spec, 11)
    # An older folder, or one of transformers.
    for name in ("BertTokenizerFast", None) if spec == WORDPIECE else ():
        values = json.loads(written) | {"tokenizer_class": name}
        path.write_text(
            json.dumps(values | {"pad_token": {"content": "[PAD]"}})
        )
        checkpoints.save(tmp_path, encoder, spec, 13)
        assert path.read_text() == written


def test_a_mask_is_filled_as_it_joins_words():
    answers = {
        "tokens": tf.constant([[["cat", "^cat", HYPHEN]]]),
        "num_masks": tf.constant([1]),
    }
    filled = fill_mask.fill(tf.constant(["red [MASK]"]), answers, SPEC)
    assert filled.numpy().tolist() == [[[b"red cat", b"red cat", b"red-"]]]


def test_a_tuned_model_is_served(tmp_path, monkeypatch):
    kind = tokenizer_files.Kind(
        classes=(ToySpec.tokenizer_class,),
        vocabulary_files=(),
        read=lambda folder, settings: ToySpec(
            load_vocabulary(f"{folder}/vocab.txt")
        ),
    )
    monkeypatch.setitem(tokenizer_files.OTHER_KINDS, "Toy", kind)
    checkpoints.save(tmp_path / "encoder", BertEncoder(CONFIG), SPEC, 13)
    start = starting_point.find(tmp_path / "encoder")
    assert start.tokenizer == SPEC
    task = ClassificationTask(
        name="colour",
        text_features=("text",),
        labels=("no", "yes"),
        metrics=("accuracy",),
    )
    texts = make_texts(8, 4, seed=7)
    examples = Examples(texts=(texts,), labels=np.int32([0, 1] * 4))
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    config = FineTuningConfig(
        output_dir=str(tmp_path / "tuned"),
        init_checkpoint=str(tmp_path / "encoder"),
        do_train=True,
        train_batch_size=4,
        learning_rate=1e-2,
        max_seq_length=13,
    )
    run = tuning_run.Run(config, task, {TRAIN: examples}, strategy)
    run.tune()
    assert starting_point.find(tmp_path / "tuned").tokenizer == SPEC

    # The export itself is checked with strings that are hard to read.
    monkeypatch.setattr(caller, "calling", serving_models.calling)
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
        task.decode_tensors(run.model(inputs))["probabilities"],
        atol=1e-5,
    )
