"""`num_tokens` and `is_cut`: what clients see of a text that is too long."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.serving import options as options_lib
from bert_tf.text import packing
from support import serving_models

# Pieces of "the" and letters: one each; 16 fit beside [CLS] and two [SEP].
TEXTS = [
    (b"the", b"a"),
    (b"the " * 8, b"a " * 8),
    (b"the " * 9, b"a " * 8),
    (b"", b"a " * 17),
]
NUM_TOKENS = [5, 19, 19, 19]
IS_CUT = [False, False, True, True]


def test_answers_tell_what_was_read():
    servable = serving_models.servable("pair", count_tokens=True)
    inputs = servable.encode(TEXTS)
    answers = servable.trained_answers(inputs, TEXTS)
    np.testing.assert_array_equal(answers["num_tokens"], NUM_TOKENS)
    np.testing.assert_array_equal(answers["is_cut"], IS_CUT)
    # Bytes that are not read count too, where the tokens fit.
    short = serving_models.servable(
        "pair",
        count_tokens=True,
        max_text_bytes=4,
    )
    rows = [(b"the  a", b""), (b"the ", b"a")]
    answers = short.trained_answers(short.encode(rows), rows)
    np.testing.assert_array_equal(answers["num_tokens"], [4, 5])
    np.testing.assert_array_equal(answers["is_cut"], [True, False])


def test_rerankers_and_texts_with_a_prompt_tell_it_too(tmp_path):
    servable = serving_models.servable("reranker", count_tokens=True)
    answers = servable.trained_answers(servable.encode(TEXTS), TEXTS)
    np.testing.assert_array_equal(answers["num_tokens"], NUM_TOKENS)
    np.testing.assert_array_equal(answers["is_cut"], IS_CUT)
    # A prompt's tokens are read too: two here.
    servable = serving_models.servable(
        "encoder",
        kind="embedding",
        count_tokens=True,
        prompt="a: ",
    )
    rows = [(b"the",), (b"a " * 15,), (b"a " * 16,)]
    inputs = servable.encode(rows)
    answers = servable.trained_answers(inputs, rows)
    np.testing.assert_array_equal(answers["num_tokens"], [5, 19, 19])
    np.testing.assert_array_equal(answers["is_cut"], [False, False, True])
    np.testing.assert_array_equal(
        answers["num_tokens"], inputs["input_mask"].numpy().sum(axis=1)
    )


def test_an_export_answers_them_to_strings_alone():
    signatures = serving_models.loaded("counted_pair").signatures
    (first, second) = signatures["serving_default"].structured_input_signature[
        1
    ]
    columns = [np.array(column, object) for column in zip(*TEXTS)]
    answers = signatures["serving_default"](
        **dict(zip(("sentence_1", "class_"), map(tf.constant, columns)))
    )
    assert {first, second} == {"sentence_1", "class_"}
    np.testing.assert_array_equal(answers["num_tokens"], NUM_TOKENS)
    np.testing.assert_array_equal(answers["is_cut"], IS_CUT)
    names = set(signatures["serving_default"].structured_outputs)
    assert names == set(signatures["examples"].structured_outputs)
    for other in ("ids", "ids_examples", "classify"):
        assert not {"num_tokens", "is_cut"} & set(
            signatures[other].structured_outputs
        )


def test_they_are_no_outputs_unless_asked_for():
    servable = serving_models.servable("pair")
    names = {output.name for output in servable.outputs["serving_default"]}
    assert names == {"labels", "probabilities", "classes"}


@pytest.mark.parametrize(
    "kind, contents, message",
    [
        ("pair", options_lib.IDS, "--contents=ids"),
        ("squad", options_lib.TEXT, "given with --kind=task"),
    ],
)
def test_what_cannot_count(kind, contents, message):
    with pytest.raises(ValueError, match=message):
        serving_models.servable(kind, contents=contents, count_tokens=True)


@pytest.mark.parametrize("lengths", [(3,), (2, 4), (5, 0)])
def test_is_cut_is_what_packing_leaves_out(lengths):
    vocabulary = serving_models.VOCABULARY
    segments = [tf.RaggedTensor.from_tensor([[7] * size]) for size in lengths]
    needed = sum(lengths) + vocabulary.special.count(len(lengths))
    for seq_length in (needed - 1, needed):
        packed = packing.pack(segments, seq_length, vocabulary)
        num_kept = int(tf.reduce_sum(packed["input_mask"]))
        is_cut = packing.is_cut(segments, seq_length, vocabulary)
        assert bool(is_cut[0]) == (num_kept < needed)
