"""From text to records: contents, determinism, statistics, failures."""

import random

import numpy as np
import pytest
import reference_pretraining as reference
import tensorflow as tf

from bert_tf import manifest as manifests
from bert_tf.pretraining import builder
from bert_tf.pretraining import documents
from bert_tf.pretraining import inspection
from bert_tf.pretraining import records
from bert_tf.pretraining import sentence_pairs
from bert_tf.text.tokenizer import WordpieceTokenizer
from bert_tf.text.vocabulary import Vocabulary

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = "abcdefghijklm"
VOCABULARY = Vocabulary(
    tokens=(*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS))
)


@pytest.fixture(scope="module")
def tokenizer():
    return WordpieceTokenizer(VOCABULARY)


def make_documents(num_documents, seed):
    """Returns documents as lists of sentences: lists of words of letters."""
    rng = random.Random(seed)
    return [
        [
            [
                "".join(rng.choices(LETTERS, k=rng.choice((1, 1, 1, 2, 3))))
                for _ in range(rng.randint(1, 11))
            ]
            for _ in range(rng.randint(1, 14))
        ]
        for _ in range(num_documents)
    ]


def write_text(path, texts):
    path.write_text(
        "\n\n".join(
            "\n".join(" ".join(sentence) for sentence in document)
            for document in texts
        )
    )
    return str(path)


def tokens_of(texts):
    """The documents' tokens: each word is its letters."""
    return [
        [
            [
                letter if index == 0 else f"##{letter}"
                for word in sentence
                for index, letter in enumerate(word)
            ]
            for sentence in document
        ]
        for document in texts
    ]


def read_all(*paths):
    batches = list(inspection.read([str(path) for path in paths]))
    return {
        name: np.concatenate([batch[name] for batch in batches])
        for name in batches[0]
    }


SETTINGS = builder.Settings(
    max_seq_length=37, max_predictions_per_seq=5, dupe_factor=3
)


@pytest.mark.parametrize("whole_words", [False, True])
def test_every_rule_holds_and_the_text_is_recovered(
    tmp_path, tokenizer, whole_words
):
    texts = make_documents(40, seed=1)
    text = write_text(tmp_path / "a.txt", texts)
    settings = builder.Settings(
        max_seq_length=37,
        max_predictions_per_seq=5,
        dupe_factor=3,
        do_whole_word_mask=whole_words,
    )
    counts = builder.build(text, str(tmp_path / "x"), tokenizer, settings)
    examples = read_all(tmp_path / "x")
    rules = settings.masking
    for rule, holds in inspection.check(examples, VOCABULARY, rules).items():
        assert holds.all(), rule

    # Every segment, unmasked, is a stretch of one document's tokens.
    stretches = [
        " " + " ".join(sum(document, [])) + " " for document in tokens_of(texts)
    ]
    original = inspection.restored(examples)
    for row, ids in enumerate(original):
        tokens = [VOCABULARY.tokens[index] for index in ids]
        end = tokens.index("[SEP]")
        a, b = tokens[1:end], tokens[end + 1 :]
        b = b[: b.index("[SEP]")]
        of_a, of_b = (
            {
                number
                for number, stretch in enumerate(stretches)
                if f" {' '.join(segment)} " in stretch
            }
            for segment in (a, b)
        )
        assert of_a
        assert of_b
        if not examples["next_sentence_labels"][row, 0]:
            assert of_a & of_b

    assert counts == builder.Counts(
        documents=40,
        sentences=sum(map(len, texts)),
        tokens=sum(len(sum(document, [])) for document in tokens_of(texts)),
        examples=len(original),
        example_tokens=examples["input_mask"].sum(),
        random_pairs=examples["next_sentence_labels"].sum(),
        predictions=examples["masked_lm_weights"].sum(),
    )


def test_same_seed_same_bytes_other_seed_other_bytes(tmp_path, tokenizer):
    text = write_text(tmp_path / "a.txt", make_documents(20, seed=2))

    def build(name, seed):
        settings = builder.Settings(
            max_seq_length=29, dupe_factor=2, random_seed=seed
        )
        folder = tmp_path / name
        builder.build(text, str(folder / "x"), tokenizer, settings)
        return [
            (folder / file).read_bytes() for file in ("x", "manifest-x.json")
        ]

    first = build("one", 5)
    assert build("two", 5) == first
    other = build("three", 6)
    assert other[0] != first[0]

    # Not one example is the same.
    def examples(name):
        return set(
            tf.data.TFRecordDataset(
                str(tmp_path / name / "x")
            ).as_numpy_iterator()
        )

    shared = examples("one") & examples("three")
    assert len(shared) < 0.05 * len(examples("one"))


def test_files_are_filled_in_turn(tmp_path, tokenizer):
    text = write_text(tmp_path / "a.txt", make_documents(20, seed=3))
    builder.build(text, str(tmp_path / "one"), tokenizer, SETTINGS)
    names = f"{tmp_path}/x@2,{tmp_path}/y"
    builder.build(text, names, tokenizer, SETTINGS)

    def read(name):
        path = str(tmp_path / name)
        return list(tf.data.TFRecordDataset(path).as_numpy_iterator())

    one = read("one")
    assert read("x-00000-of-00002") == one[0::3]
    assert read("x-00001-of-00002") == one[1::3]
    assert read("y") == one[2::3]


def test_batches_change_nothing(tmp_path, tokenizer, monkeypatch):
    text = write_text(tmp_path / "a.txt", make_documents(10, seed=4))
    builder.build(text, str(tmp_path / "x"), tokenizer, SETTINGS)
    monkeypatch.setattr(builder, "_BATCH_SIZE", 17)
    seen = []
    builder.build(
        text,
        str(tmp_path / "y"),
        tokenizer,
        SETTINGS,
        lambda *report: seen.append(report),
    )
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()
    size = (tmp_path / "a.txt").stat().st_size
    assert seen[0] == ("read", size, size)
    assert seen[1][:2] == ("write", 17)
    assert seen[-1][1] == seen[-1][2]


def test_blocks_share_no_pairs(tmp_path, tokenizer, monkeypatch):
    texts = make_documents(60, seed=5)
    path = write_text(tmp_path / "a.txt", texts)
    corpus = documents.read([path], tokenizer)
    original = sentence_pairs.blocks_of

    def small_blocks(document_keys, num_bytes):
        return original(document_keys, num_bytes, num_bytes // 3)

    monkeypatch.setattr(sentence_pairs, "blocks_of", small_blocks)
    blocks = small_blocks(corpus.document_keys, 3000)
    assert sorted(set(blocks.tolist())) == [0, 1, 2]
    pairs = builder.pairs_of(corpus, 3000, SETTINGS.pairs)
    edges = corpus.sentence_starts[corpus.document_starts]
    of_b = np.searchsorted(edges, pairs.b_start, side="right") - 1
    np.testing.assert_array_equal(blocks[of_b], blocks[pairs.document])
    assert pairs.is_random.any()
    assert set(pairs.document.tolist()) == set(range(60))


def test_manifest_tells_what_the_records_are(tmp_path, tokenizer):
    text = write_text(tmp_path / "a.txt", make_documents(10, seed=6))
    names = f"{tmp_path}/p/x@2,{tmp_path}/q/y"
    counts = builder.build(text, names, tokenizer, SETTINGS)
    paths = records.output_paths(names)
    found = manifests.find(paths)
    assert sorted(found) == sorted(paths)
    manifest = found[paths[0]]
    assert manifest.max_seq_length == 37
    assert manifest.max_predictions_per_seq == 5
    assert manifest.vocab_size == len(VOCABULARY)
    assert manifest.vocab_sha256 == manifests.text_sha256(VOCABULARY.to_text())
    assert manifest.do_lower_case
    assert manifest.settings == {
        "random_seed": 12345,
        "dupe_factor": 3,
        "masked_lm_prob": 0.15,
        "short_seq_prob": 0.1,
        "do_whole_word_mask": False,
    }
    assert manifest.counts["examples"] == counts.examples
    assert list(manifest.records) == ["x-00000-of-00002", "x-00001-of-00002"]
    assert list(found[paths[2]].records) == ["y"]
    assert counts.examples == sum(
        found[path].records[path.rpartition("/")[2]]["examples"]
        for path in paths
    )


def test_failure_leaves_nothing_and_what_was_there(
    tmp_path, tokenizer, monkeypatch
):
    text = write_text(tmp_path / "a.txt", make_documents(10, seed=7))
    old = tmp_path / "x-00001-of-00003"
    old.write_text("old")
    write = records.write

    def fail_on_the_third(path, batches):
        if "-00002-of" in path:
            write(path, [])
            raise OSError("No space left on device")
        return write(path, batches)

    monkeypatch.setattr(records, "write", fail_on_the_third)
    with pytest.raises(OSError, match="No space left"):
        builder.build(text, f"{tmp_path}/x@3", tokenizer, SETTINGS)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.txt",
        "x-00001-of-00003",
    ]
    assert old.read_text() == "old"


def statistics(examples):
    """Returns {name: value} of a set of examples, as records have them."""
    ids = examples["input_ids"]
    mask = examples["input_mask"]
    length = mask.sum(axis=1)
    b_length = (examples["segment_ids"] * mask).sum(axis=1) - 1
    a_length = length - 3 - b_length
    is_random = examples["next_sentence_labels"][:, 0] == 1
    totals = inspection.count(examples, VOCABULARY)
    predictions = examples["masked_lm_weights"].sum(axis=1)
    return {
        "examples": len(ids),
        "length": length.mean(),
        "squared length": (length**2).mean(),
        "full": (length == ids.shape[1]).mean(),
        "random pairs": is_random.mean(),
        "length of A": a_length.mean(),
        "length of B": b_length.mean(),
        "length of random B": b_length[is_random].mean(),
        "length of true B": b_length[~is_random].mean(),
        "squared length of A": (a_length**2).mean(),
        "predictions": predictions.mean(),
        "masked": totals["masked"] / totals["predictions"],
        "kept": totals["kept"] / totals["predictions"],
        "replaced": totals["replaced"] / totals["predictions"],
        "mean position": (
            examples["masked_lm_positions"].sum() / predictions.sum()
        ),
        "pieces masked": (
            (examples["masked_lm_ids"] >= len(SPECIAL) + len(LETTERS)).sum()
            / predictions.sum()
        ),
        "opens with a piece": (
            inspection.restored(examples)[:, 1] >= len(SPECIAL) + len(LETTERS)
        ).mean(),
    }


def as_arrays(examples, settings):
    """Returns the oracle's examples as records have them."""
    length, most = settings.max_seq_length, settings.max_predictions_per_seq

    def padded(values, width):
        return list(values) + [0] * (width - len(values))

    def ids(tokens):
        return [VOCABULARY.index(token) for token in tokens]

    columns = {
        "input_ids": [padded(ids(e.masked_tokens), length) for e in examples],
        "input_mask": [padded([1] * len(e.tokens), length) for e in examples],
        "segment_ids": [padded(e.segment_ids, length) for e in examples],
        "masked_lm_positions": [padded(e.positions, most) for e in examples],
        "masked_lm_ids": [padded(ids(e.labels), most) for e in examples],
        "masked_lm_weights": [
            padded([1.0] * len(e.positions), most) for e in examples
        ],
        "next_sentence_labels": [[int(e.is_random)] for e in examples],
    }
    return {name: np.array(values) for name, values in columns.items()}


@pytest.mark.parametrize(
    "max_seq_length, short_seq_prob, whole_words",
    [(37, 0.1, False), (24, 0.5, True)],
)
def test_statistics_are_those_of_the_originals_rules(
    tmp_path, tokenizer, max_seq_length, short_seq_prob, whole_words
):
    """Against the oracle: the same means within 4.5 standard errors.

    The errors are those of the mean over builds with other seeds, because
    examples of one build are not independent of each other.
    """
    texts = make_documents(110, seed=8)
    path = write_text(tmp_path / "a.txt", texts)
    corpus = documents.read([path], tokenizer)
    num_builds = 12

    def settings(seed):
        return builder.Settings(
            max_seq_length=max_seq_length,
            max_predictions_per_seq=5,
            dupe_factor=1,
            short_seq_prob=short_seq_prob,
            do_whole_word_mask=whole_words,
            random_seed=seed,
        )

    # The seed is in the pairs: one writer serves all.
    writer = builder._Writer(corpus, None, VOCABULARY, settings(0))
    ours, originals = [], []
    for seed in range(num_builds):
        pairs = builder.pairs_of(corpus, 1, settings(seed).pairs)
        ours.append(statistics(writer._examples(pairs)))
        examples = reference.make_examples(
            tokens_of(texts),
            VOCABULARY.tokens,
            random.Random(seed),
            max_seq_length=max_seq_length,
            dupe_factor=1,
            short_seq_prob=short_seq_prob,
            masked_lm_prob=0.15,
            max_predictions_per_seq=5,
            do_whole_word_mask=whole_words,
        )
        originals.append(statistics(as_arrays(examples, settings(seed))))

    for name in ours[0]:
        values = np.array(
            [[each[name] for each in builds] for builds in (ours, originals)]
        )
        mean = values.mean(axis=1)
        error = (values.var(axis=1, ddof=1).sum() / num_builds) ** 0.5
        assert abs(mean[0] - mean[1]) < 4.5 * error, (name, mean, error)


@pytest.mark.parametrize(
    "field, value",
    [
        ("max_seq_length", 4),
        ("max_predictions_per_seq", 0),
        ("masked_lm_prob", 0.0),
        ("dupe_factor", 0),
    ],
)
def test_bad_settings_name_the_field(field, value):
    with pytest.raises(ValueError, match=f"`{field}`.*{field}={value}"):
        builder.Settings(**{field: value})
