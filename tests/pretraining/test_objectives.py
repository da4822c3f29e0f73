"""Sentence order and full sentences: rules, labels, records."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import manifest as manifests
from bert_tf.pretraining import run_local
from bert_tf.pretraining.objectives import full_sentences
from bert_tf.pretraining.objectives import sentence_pairs
from bert_tf.pretraining.objectives.table import OBJECTIVES
from bert_tf.pretraining.records import inspection
from bert_tf.pretraining.records import record_rules
from bert_tf.pretraining.settings import Settings
from bert_tf.text import dynamic_masking
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import ROBERTA
from bert_tf.text.vocabulary import Vocabulary
from support.pretraining_data import make_corpus

VOCABULARY = Vocabulary(
    tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg", "##a")
)
SEP = -7
# The same entries, but for the special ones.
WITH_TWO_BETWEEN = Vocabulary(
    tokens=("<s>", "<pad>", "</s>", "<unk>", "<mask>", *"abcdefg", "##a"),
    special=ROBERTA,
)


def test_ordered_pairs_are_neighbours_and_half_are_swapped(monkeypatch):
    monkeypatch.setattr(
        sentence_pairs, "_truncated", lambda pairs, keys, settings, room: {}
    )
    corpus = make_corpus(60, seed=1)
    settings = Settings(
        max_seq_length=33,
        short_seq_prob=0.3,
        dupe_factor=4,
        objective="sentence_order",
    )
    _, pairs = OBJECTIVES["sentence_order"].cut(corpus, settings, VOCABULARY)
    a, b = pairs.a_start, pairs.b_start
    first = np.where(pairs.label, b, a)
    middle = np.where(pairs.label, a, b)
    length_of_first = np.where(pairs.label, pairs.b_length, pairs.a_length)
    np.testing.assert_array_equal(first + length_of_first, middle)
    last = first + pairs.a_length + pairs.b_length
    assert np.isin([first, middle, last], corpus.sentence_starts).all()
    assert 0.4 < pairs.label.mean() < 0.6
    # Each pass goes through every document with two sentences, once.
    edges = corpus.sentence_starts[corpus.document_starts]
    has_order = np.diff(corpus.document_starts) > 1
    assert not has_order.all()
    for number in range(4):
        chosen = pairs.pass_number == number
        covered = np.zeros(len(corpus.tokens), int)
        for begin, end in zip(first[chosen], last[chosen]):
            covered[begin:end] += 1
        expected = np.repeat(has_order, np.diff(edges)).astype(int)
        np.testing.assert_array_equal(covered, expected)


def test_full_sentences_follow_the_rules():
    corpus = make_corpus(23, seed=2, max_tokens=30)
    length = 22
    arranged = full_sentences.arrange(corpus, SEP, length, random_seed=3)
    is_token = arranged.tokens != SEP
    assert sorted(arranged.tokens[is_token]) == corpus.tokens.tolist()
    assert (~is_token).sum() == 22
    assert arranged.document_keys.tolist() != corpus.document_keys.tolist()
    settings = Settings(
        max_seq_length=length, short_seq_prob=0.0, dupe_factor=3
    )
    pairs = full_sentences.make_sequences(arranged, settings)
    assert not pairs.b_length.any()
    assert pairs.a_length.min() >= 1
    assert pairs.a_length.max() == length - 2
    starts = set(arranged.sentence_starts.tolist())
    boundaries = []
    for number in range(3):
        chosen = np.flatnonzero(pairs.pass_number == number)
        chosen = chosen[np.argsort(pairs.a_start[chosen])]
        begin = pairs.a_start[chosen]
        end = begin + pairs.a_length[chosen]
        boundaries.append(begin.tolist())
        assert begin[0] == 0
        assert end[-1] == len(arranged.tokens)
        for index, (this, following) in enumerate(zip(end, begin[1:])):
            # Only a [SEP] is left out between sequences.
            assert (arranged.tokens[this:following] == SEP).all()
            assert following - this <= 1
            assert {int(this), int(following)} <= starts
            # The next sentence did not fit.
            after = min(s for s in starts if s > following)
            assert after - begin[index] > length - 2
        for row in chosen:
            text = arranged.tokens[pairs.a_start[row] :][: pairs.a_length[row]]
            assert SEP not in (text[0], text[-1])
    assert boundaries[0] == boundaries[1]
    shorter = full_sentences.make_sequences(
        arranged, Settings(max_seq_length=length, short_seq_prob=0.3)
    )
    starts_of = [
        set(shorter.a_start[shorter.pass_number == number].tolist())
        for number in (0, 1)
    ]
    assert min(map(len, starts_of)) > len(boundaries[0])
    assert len(starts_of[0] ^ starts_of[1]) > 5


@pytest.fixture
def text(tmp_path):
    rng = np.random.default_rng(4)
    documents = [
        "\n".join(
            " ".join(rng.choice(list("abcdefg"), rng.integers(1, 9)))
            for _ in range(rng.integers(1, 8))
        )
        for _ in range(20)
    ]
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(documents))
    return path


def test_records_of_robertas_masks(text, tmp_path):
    settings = Settings(
        max_seq_length=27,
        max_predictions_per_seq=6,
        dupe_factor=4,
        objective="full_sentences",
        masking_rule="roberta",
    )
    out = str(tmp_path / "x")
    run_local.build(str(text), out, WordpieceSpec(VOCABULARY), settings)
    told = manifests.find([out])[out]
    assert record_rules.rules_of(told) == settings.masking
    (found,) = inspection.read([out])
    checks = record_rules.check(found, VOCABULARY, settings.masking)
    for rule, holds in checks.items():
        assert holds.all(), rule
    # [CLS] and [SEP] are masked: not so by the rule of BERT.
    checks = record_rules.check(found, VOCABULARY)
    broken = {rule for rule, holds in checks.items() if not holds.all()}
    assert broken == {"[CLS] and [SEP] are never masked"}


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("masking_mode", ["static", "dynamic"])
@pytest.mark.parametrize("rule", ["do_span_mask", "do_ngram_mask"])
def test_records_of_every_objective(
    text, tmp_path, objective, masking_mode, rule
):
    settings = Settings(
        max_seq_length=27,
        max_predictions_per_seq=6,
        dupe_factor=2,
        objective=objective,
        masking_mode=masking_mode,
        **{rule: True},
    )
    out = str(tmp_path / "x")
    counts = run_local.build(
        str(text), out, WordpieceSpec(VOCABULARY), settings
    )
    (found,) = inspection.read([out])
    checks = record_rules.check(found, VOCABULARY, settings.masking)
    for rule, holds in checks.items():
        assert holds.all(), rule
    meanings = OBJECTIVES[objective].label_meanings
    assert bool(meanings) == (objective != "full_sentences")
    assert ("next_sentence_labels" in found) == bool(meanings)
    if meanings:
        values = np.unique(found["next_sentence_labels"])
        assert values.tolist() == list(range(len(meanings)))
    assert ("masked_lm_ids" in found) == (masking_mode == "static")
    assert counts.example_tokens == found["input_mask"].sum()
    assert (counts.predictions > 0) == (masking_mode == "static")
    assert (counts.skipped_documents > 0) == (objective == "sentence_order")
    totals = inspection.count(found, VOCABULARY)
    assert totals["random pairs"] == counts.random_pairs
    assert inspection.table(found, 0, VOCABULARY).count("\n") > 3

    if masking_mode == "dynamic":
        # What the input pipeline then does.
        batch = {
            name: tf.cast(value, tf.int32) for name, value in found.items()
        }
        seeds = dynamic_masking.example_seeds(5, tf.range(counts.examples))
        masked = dynamic_masking.mask_examples(
            batch, seeds, WordpieceSpec(VOCABULARY), settings.masking
        )
        masked = {name: value.numpy() for name, value in masked.items()}
        checks = record_rules.check(masked, VOCABULARY, settings.masking)
        assert all(holds.all() for holds in checks.values())
        np.testing.assert_array_equal(
            inspection.restored(masked), found["input_ids"]
        )


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("per_row", [1, 3])
def test_pairs_are_framed_as_the_vocabulary_says(
    text, tmp_path, objective, per_row
):
    settings = Settings(
        max_seq_length=27,
        max_predictions_per_seq=6,
        dupe_factor=2,
        objective=objective,
        max_sequences_per_row=per_row,
    )
    out = str(tmp_path / "x")
    spec = WordpieceSpec(WITH_TWO_BETWEEN)
    counts = run_local.build(str(text), out, spec, settings)
    (found,) = inspection.read([out])
    checks = record_rules.check(found, WITH_TWO_BETWEEN, settings.masking)
    for rule, holds in checks.items():
        assert holds.all(), rule
    rule = "<s> A </s></s> B </s>, no segment empty"
    assert (rule in checks) == (objective != "full_sentences")
    assert counts.example_tokens == found["input_mask"].sum()
    assert not found["segment_ids"].any()
    # The longest fill the sequence: the room is neither more nor less.
    assert found["input_mask"].all(axis=1).any()
    # BERT's rules do not hold of these.
    special = dataclasses.replace(ROBERTA, num_between=1)
    other = dataclasses.replace(WITH_TWO_BETWEEN, special=special)
    checks = record_rules.check(found, other, settings.masking)
    assert all(holds.all() for holds in checks.values()) == (
        objective == "full_sentences"
    )


def test_sequences_must_have_room_for_the_frame(text, tmp_path):
    with pytest.raises(ValueError, match="`max_seq_length` must be at least 6"):
        run_local.build(
            str(text),
            f"{tmp_path}/x",
            WordpieceSpec(WITH_TWO_BETWEEN),
            Settings(max_seq_length=5),
        )


def test_sentence_order_needs_two_sentences(tmp_path):
    (tmp_path / "a.txt").write_text("a b\n\nc d\n")
    with pytest.raises(ValueError, match="has two sentences"):
        run_local.build(
            f"{tmp_path}/a.txt",
            f"{tmp_path}/x",
            WordpieceSpec(VOCABULARY),
            Settings(objective="sentence_order"),
        )


@pytest.mark.parametrize(
    "fields",
    [
        {"objective": "none"},
        {"masking_mode": "none"},
        {"input_format": "pdf"},
        {"do_whole_word_mask": True, "do_span_mask": True},
        {"do_ngram_mask": True, "do_span_mask": True},
    ],
)
def test_bad_settings(fields):
    with pytest.raises(ValueError, match="Received: "):
        Settings(**fields)
