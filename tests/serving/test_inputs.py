"""What a request brings: shapes checked, texts, windows and masks bounded."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.serving.graph import inputs
from bert_tf.serving.kinds import fill_mask as fill_mask_lib
from bert_tf.serving.kinds import question_answering
from bert_tf.serving.kinds import words as words_lib
from bert_tf.serving.kinds.question_answering import QuestionAnswering
from bert_tf.tasks import fill_mask
from bert_tf.tasks.question_answering import windows as squad_windows
from bert_tf.tasks.tagging import windows as tagging_windows
from bert_tf.text.tokenizers import utf_8
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from support import serving_models

TEXTS = [
    "",
    "abc",
    "aé字\U0001f600",
    "\U0001f600" * 3,
    "é" * 5,
    "a" * 9,
    "a\u0301\u0302b",
]


@pytest.mark.parametrize("max_bytes", [1, 2, 3, 4, 5, 8, 20])
def test_texts_are_cut_between_characters(max_bytes):
    texts = [text.encode() for text in TEXTS]
    kept, is_cut = utf_8.cut_texts(tf.constant(texts), max_bytes)
    assert kept.numpy().tolist() == [
        text[:max_bytes].decode(errors="ignore").encode() for text in texts
    ]
    assert is_cut.numpy().tolist() == [len(text) > max_bytes for text in texts]


@pytest.mark.parametrize(
    "text", [b"\x80" * 9, b"\xff" * 9, b"\x80\x80abc\xe5\xad", b"\xe5" * 9]
)
def test_what_is_no_text_is_cut_too(text):
    kept, is_cut = utf_8.cut_texts(tf.constant([[text], [b"a"]]), 5)
    assert is_cut.numpy().tolist() == [[True], [False]]
    assert text.startswith(kept.numpy()[0, 0])
    assert len(kept.numpy()[0, 0]) <= 5
    assert kept.numpy()[1, 0] == b"a"


@pytest.mark.parametrize(
    "strings, message",
    [
        (
            ("a", "b"),
            r"tensor (class_|sentence_1) \[\] is not .* expected shape \[\?\]",
        ),
        ((["a"], [["b"]]), r"tensor sentence_1 \[1,1\] is not .* \[\?\]"),
        (
            (["a"], ["b", "c"]),
            r"`class_`, `sentence_1` must have one shape.*\[1\] \[2\]",
        ),
    ],
)
def test_strings_of_wrong_shapes_are_named(strings, message):
    answer = serving_models.loaded("pair").signatures["serving_default"]
    second, first = map(tf.constant, strings)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        answer(sentence_1=first, class_=second)


def test_ids_of_wrong_shapes_are_named():
    module = serving_models.loaded("pair")
    ids = dict.fromkeys(
        ("input_ids", "input_mask", "segment_ids"), tf.ones([2, 5], tf.int32)
    )
    # One mask would be broadcast to both rows.
    wrong = ids | {"input_mask": tf.ones([1, 5], tf.int32)}
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"must have one shape.*\[2 5\] \[1 5\] \[2 5\]",
    ):
        module.signatures["ids"](**wrong)
    with pytest.raises(
        ValueError, match=r"must be equal.*\n.*input_ids_input_mask_segment_ids"
    ):
        module(wrong)
    wrong = ids | {"input_mask": tf.ones([5], tf.int32)}
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"input_mask \[5\] is not"
    ):
        module.signatures["ids"](**wrong)
    with pytest.raises(ValueError, match="must be equal.*\n.*texts_texts"):
        module.preprocessor([tf.constant(["a", "b"]), tf.constant(["a"])])


def test_choices_of_another_batch_are_named():
    answer = serving_models.loaded("choice").signatures["serving_default"]
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`choices`, `context` must have one batch.*\[2 3\] \[1\]",
    ):
        answer(context=tf.constant(["a"]), choices=tf.constant([["b"] * 3] * 2))


@pytest.mark.parametrize("max_windows", [1, 2, 4])
def test_windows_beyond_the_bound_are_as_if_not_there(max_windows):
    servable = serving_models.servable("squad")
    words = [b"quick", b"lorem", b"the", "我".encode(), b"x"] * 12
    task = dataclasses.replace(serving_models.SQUAD_TASK, n_best_size=9)
    # Room for 15 pieces beside a question of one, a window each 5.
    kept = b" ".join(words[: 15 + 5 * (max_windows - 1)])

    def answer(contexts, bound):
        maker = squad_windows.WindowMaker(servable.preprocessor, task, bound)
        answers = question_answering._answer_strings(
            tf.constant([b"the"] * len(contexts)),
            tf.constant(contexts),
            maker,
            servable.model,
        )
        return {name: value.numpy() for name, value in answers.items()}

    answers = answer([b" ".join(words), kept], max_windows)
    assert answers.pop("is_cut").tolist() == [True, False]
    wanted = answer([kept, kept], None)
    assert not wanted.pop("is_cut").any()
    for name, value in wanted.items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(answers[name], value, atol=1e-5)
        else:
            np.testing.assert_array_equal(answers[name], value)


@pytest.mark.parametrize("max_windows", [1, 3])
def test_words_beyond_the_last_window_are_no_entities(max_windows):
    servable = serving_models.servable("tagger")
    maker = tagging_windows.WindowMaker(servable.preprocessor, max_windows)
    # 17 pieces, a window each 9. The last word has pieces beyond.
    words = [b"quick", b"lorem", b"the", b"x", b"b"] * 10
    words = words[: 16 + 9 * (max_windows - 1)] + [b"abc"]
    kept, whole = b" ".join(words), b" ".join(words + [b"quick", b"x"] * 20)

    def answer(text):
        model = servable.model
        found, is_cut = words_lib.compute_words(
            tf.constant([text]), maker, model, model.num_labels
        )
        answers = servable.answer_words(found) | {"is_cut": is_cut}
        return {name: value.numpy() for name, value in answers.items()}

    answers, wanted = answer(whole), answer(kept)
    assert wanted["num_entities"][0] > 3
    assert answers["limits"].max() <= len(kept)
    assert answers["is_cut"].tolist() == [True]
    for name, value in wanted.items():
        np.testing.assert_allclose(
            answers[name], value, atol=1e-5
        ) if value.dtype.kind == "f" else np.testing.assert_array_equal(
            answers[name], value
        )


def test_probabilities_of_the_vocabulary_are_there_for_some_masks_at_a_time(
    monkeypatch,
):
    servable = serving_models.servable("fill_mask", kind="fill_mask")
    model, vocabulary = servable.model, servable.preprocessor.vocabulary
    texts = tf.constant(["[MASK] the [MASK] [MASK]", "x", "[MASK]" * 7])
    ids = fill_mask.encode(texts, servable.preprocessor)
    wanted = fill_mask.decode(
        *fill_mask.predict(ids, model, vocabulary), vocabulary, 2
    )
    seen = []
    call = model.masked_lm_head.call

    def spy(*args):
        logits = call(*args)
        seen.append(tuple(logits.shape))
        return logits

    monkeypatch.setattr(model.masked_lm_head, "call", spy)
    monkeypatch.setattr(fill_mask_lib, "_MASKS_OF_CHUNK", 4)
    answers = fill_mask_lib._answer_masks(
        ids, model, vocabulary, 2, 99, False, None
    )
    assert seen == [(1, count, len(vocabulary)) for count in (4, 4, 2)]
    for name, value in wanted.items():
        if name == "scores":
            np.testing.assert_allclose(answers[name], value, atol=1e-6)
        else:
            np.testing.assert_array_equal(answers[name], value)


def test_a_text_is_repeated_for_its_own_masks_only(monkeypatch):
    join, sizes = tf.strings.join, []

    def spy(parts):
        sizes.append(int(tf.size(parts[0])))
        return join(parts)

    monkeypatch.setattr(tf.strings, "join", spy)
    num_masks = tf.constant([0, 9, 1])
    texts = tf.constant([b"long " * 99, b"[MASK]" * 9, b"a [MASK]"])
    answers = {"tokens": tf.fill([3, 9, 2], "b"), "num_masks": num_masks}
    filled = fill_mask.fill(
        texts, answers, WordpieceSpec(serving_models.VOCABULARY)
    ).numpy()
    assert sizes == [2 * (9 + 1)]
    assert filled.shape == (3, 9, 2)
    assert filled[2, 0, 1] == b"a b" and filled[1, 8, 0] == b"[MASK]" * 8 + b"b"
    assert not any(filled[0].flat) and not any(filled[2, 1:].flat)


@pytest.mark.parametrize(
    "ids, message",
    [
        ([[1, 30]], "`ids` must be from 0 to 29 and .*greatest. .1 0. .30 0"),
        ([[1, -1]], "`ids` must be from 0 to 29"),
        ([[]], "at least one and at most 4 in a row. Received:. .0"),
        ([[1] * 5], "at least one and at most 4 in a row. Received:. .5"),
    ],
)
def test_ids_that_are_in_no_table_are_refused(ids, message):
    @tf.function(autograph=False)
    def check(ids):
        names = ("ids", "segments", "mask")
        given = dict.fromkeys(names, tf.zeros_like(ids)) | {"ids": ids}
        return inputs.check_ids(given, {"ids": 30, "segments": 2}, 4)

    # Whoever takes one of them waits for the check of all.
    mask = tf.function(lambda ids: check(ids)["mask"])
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        mask(tf.constant(ids, tf.int32))
    right = tf.constant([[0, 29]])
    for ids in (right, right[:0]):
        tf.debugging.assert_equal(check(ids)["ids"], ids)


@pytest.mark.parametrize("kind", ["pair", "squad", "fill_mask", "choice"])
@pytest.mark.parametrize("name", ["input_ids", "segment_ids"])
def test_negative_ids_are_refused(kind, name):
    inputs = ids_of(kind)
    loaded = serving_models.loaded(kind)
    loaded.signatures["ids"](**inputs)
    # Keras would count them from the table's end.
    inputs[name] = -inputs[name]
    message = f"`{name}` must be from 0 to"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        loaded.signatures["ids"](**inputs)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        loaded(inputs, training=False)


def ids_of(kind, length=4):
    """Returns the model inputs of a row, of choices of three."""
    shape = [1, 3, length] if kind == "choice" else [1, length]
    names = ("input_ids", "input_mask", "segment_ids")
    return {name: tf.ones(shape, tf.int32) for name in names}


@pytest.mark.parametrize(
    "kind",
    ["pair", "squad", "tagger", "choice", "fill_mask"],
)
@pytest.mark.parametrize("length", [0, 24])
def test_no_ids_and_too_many_are_refused(kind, length):
    signature = serving_models.loaded(kind).signatures["ids"]
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=f"at least one and at most 23 in a row. Received:. .{length}",
    ):
        signature(**ids_of(kind, length))


@pytest.mark.parametrize("kind", ["encoder", "embedding", "token_embeddings"])
def test_wrong_ids_have_the_names_that_clients_know(kind):
    signature = serving_models.loaded(kind).signatures["ids"]
    ids = {
        name: tf.ones([1, 2], tf.int32)
        for name in ("input_word_ids", "input_mask", "input_type_ids")
    }
    message = "`input_word_ids` must be from 0 to .*`input_type_ids` must be"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        signature(**ids | {"input_type_ids": ids["input_mask"] * 2})
    message = "at least one and at most 23 in a row. Received:. .0"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        signature(**{name: value[:, :0] for name, value in ids.items()})


@pytest.mark.parametrize(
    "bounds, message",
    [
        ({"max_masks": 3}, "--max_masks must not be given with --kind=task"),
        ({"max_windows": 0}, "--max_windows must be positive"),
        ({"max_text_bytes": 1.5}, "--max_text_bytes .*max_text_bytes=1.5"),
        ({"max_text_bytes": 2**31 - 1}, "must be .* less than 2.31 - 1"),
    ],
)
def test_wrong_bounds(bounds, message):
    with pytest.raises(ValueError, match=message):
        serving_models.make_servable(
            QuestionAnswering, task=serving_models.SQUAD_TASK, **bounds
        )
