"""Fill-mask: "[MASK]" as one token, the likeliest words, texts filled in."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoints import reader
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.tasks import fill_mask
from bert_tf.text import packing
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers import bpe_files
from bert_tf.text.tokenizers.bpe import BpeSpec
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import ROBERTA
from bert_tf.text.vocabulary import Vocabulary
from support import serving_models

VOCABULARY = serving_models.VOCABULARY


@pytest.fixture(scope="module")
def preprocessor():
    return Preprocessor.from_folder(serving_models.model_dir("pretrainer"))


@pytest.fixture(scope="module")
def model():
    folder = serving_models.model_dir("pretrainer")
    return checkpoints.load(folder, BertPretrainer)


def tokens_of(texts, preprocessor):
    inputs = fill_mask.encode(tf.constant(texts), preprocessor)
    return [
        " ".join(VOCABULARY.tokens[index] for index in ids[: mask.sum()])
        for ids, mask in zip(
            inputs["input_ids"].numpy(), inputs["input_mask"].numpy()
        )
    ]


def test_mask_is_one_token_and_nothing_else_is_special(preprocessor):
    assert tokens_of(
        [
            "The[MASK]fox",
            "[MASK] [MASK][MASK]",
            "[mask] [CLS]",
            "",
            "[[MASK]]\u0301",
        ],
        preprocessor,
    ) == [
        "[CLS] the [MASK] f ##o ##x [SEP]",
        "[CLS] [MASK] [MASK] [MASK] [SEP]",
        "[CLS] [ m ##a ##s ##k ] [ c ##l ##s ] [SEP]",
        "[CLS] [SEP]",
        "[CLS] [ [MASK] ] [SEP]",
    ]


def test_text_without_mask_is_encoded_as_ever(preprocessor):
    texts = [text for text in texts_lib.HARD_STRINGS if b"[MASK]" not in text]
    ours = fill_mask.encode(tf.constant(texts), preprocessor)
    for name, wanted in preprocessor(tf.constant(texts)).items():
        np.testing.assert_array_equal(ours[name], wanted)


def test_words_before_and_after_a_mask_are_those_of_the_text(preprocessor):
    # The final sigma, accents and long words stop at the mask.
    longer = Preprocessor(preprocessor.tokenizer.spec, max_seq_length=400)
    for text in texts_lib.HARD_STRINGS:
        if b"[MASK]" in text or len(text) > 150:
            continue
        alone = tokens_of([text], longer)[0].split()[1:-1]
        masked = tokens_of([text + b"[MASK]" + text], longer)[0].split()
        assert masked == ["[CLS]", *alone, "[MASK]", *alone, "[SEP]"]


def test_an_empty_batch(preprocessor, model):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def fill(texts):
        inputs = fill_mask.encode(texts, preprocessor)
        found = fill_mask.predict(
            packing.trim_padding(inputs), model, VOCABULARY
        )
        return fill_mask.fill(
            texts,
            fill_mask.decode(*found, VOCABULARY, top_k=2),
            preprocessor.tokenizer.spec,
        )

    assert fill(tf.zeros([0], tf.string)).shape == (0, 1, 2)
    filled = fill(tf.constant(["no mask"])).numpy()
    np.testing.assert_array_equal(filled, [[[b"", b""]]])


def test_probabilities_are_the_pretrainers(preprocessor, model):
    texts = tf.constant(["the [MASK] [MASK]", "quick", "[MASK]"])
    inputs = fill_mask.encode(texts, preprocessor)
    found, num_masks = fill_mask.predict(
        packing.trim_padding(inputs), model, VOCABULARY
    )
    np.testing.assert_array_equal(num_masks, [2, 0, 1])
    assert found.shape == (3, 2, len(VOCABULARY))
    logits = model(
        inputs | {"masked_lm_positions": tf.constant([[2, 3], [0, 0], [1, 0]])}
    )["masked_lm_logits"].numpy()
    wanted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    wanted /= wanted.sum(axis=-1, keepdims=True)
    for row, mask in ((0, 0), (0, 1), (2, 0)):
        np.testing.assert_allclose(
            found[row, mask], wanted[row, mask], atol=1e-6
        )


def answers_of(words, num_masks):
    """Returns what `decode` gives where these words [B, M, 2] are likeliest."""
    probabilities = np.zeros([*np.shape(words)[:2], len(VOCABULARY)], "float32")
    for place in np.ndindex(np.shape(words)[:2]):
        for word, probability in zip(words[place[0]][place[1]], (0.5, 0.25)):
            probabilities[(*place, VOCABULARY.index(word))] = probability
    return fill_mask.decode(
        tf.constant(probabilities), tf.constant(num_masks), VOCABULARY, 2
    )


def test_likeliest_words_first_and_nothing_where_no_mask_is():
    answers = answers_of(
        [[["the", "##x"], ["a", "b"]], [["字", "!"], ["c", "d"]]], [2, 1]
    )
    np.testing.assert_array_equal(
        answers["tokens"].numpy(),
        [
            [[b"the", b"##x"], [b"a", b"b"]],
            [["字".encode(), b"!"], [b"", b""]],
        ],
    )
    np.testing.assert_array_equal(
        answers["scores"], [[[0.5, 0.25]] * 2, [[0.5, 0.25], [0, 0]]]
    )
    assert answers["ids"].dtype == tf.int32
    np.testing.assert_array_equal(
        answers["ids"][1],
        [[VOCABULARY.index("字"), VOCABULARY.index("!")], [0, 0]],
    )
    np.testing.assert_array_equal(answers["num_masks"], [2, 1])


def test_mark_of_continuation_alone_is_filled_in_as_it_is():
    answers = {
        "tokens": tf.constant([[["##", "##x"]]]),
        "num_masks": tf.constant([1]),
    }
    filled = fill_mask.fill(
        tf.constant([b"so [MASK]"]), answers, WordpieceSpec(VOCABULARY)
    )
    assert filled.numpy().tolist() == [[[b"so ##", b"sox"]]]


def test_byte_level_bpe(preprocessor):
    special = (ROBERTA.cls, ROBERTA.pad, ROBERTA.sep, ROBERTA.unk)
    tokens = (*special, *bpe_files.BYTES, "Ġc", ROBERTA.mask)
    vocabulary = Vocabulary(tokens=tokens, special=ROBERTA, is_wordpiece=False)
    spec = BpeSpec(vocabulary, (("Ġ", "c"),))

    # The mask takes the white space before it, and not what is behind it.
    texts = ["a \u3000<mask> c", "<mask>", "a\n"]
    inputs = fill_mask.encode(tf.constant(texts), Preprocessor(spec, 7))
    pad, end = ROBERTA.pad, ROBERTA.sep
    assert [
        [tokens[index] for index in row] for row in inputs["input_ids"].numpy()
    ] == [
        ["<s>", "a", "<mask>", "Ġc", end, pad, pad],
        ["<s>", "<mask>", end, *[pad] * 4],
        ["<s>", "a", "Ċ", end, *[pad] * 3],
    ]
    answers = {
        "tokens": tf.constant([[["Ġc", "c", "ã"]]] * 2),
        "num_masks": tf.constant([1, 1]),
    }
    filled = fill_mask.fill(tf.constant(texts[:2]), answers, spec).numpy()
    assert [[text.decode() for text in row[0]] for row in filled] == [
        ["a \u3000c c", "a \u3000c c", "a \u3000\ufffd c"],
        ["c", "c", "\ufffd"],
    ]


def test_texts_are_filled_in():
    words = [["the", "##x"], ["a", "##b"], ["c", "#"]]
    texts = [
        b"so [MASK], \xc3\xa9[MASK]",
        b"[MASK]",
        b"none",
        b"\xff \t[MASK][MASK]\xff[MASK] [MASK]",
    ]
    answers = answers_of([words] * 4, [2, 1, 0, 3])
    filled = fill_mask.fill(
        tf.constant(texts), answers, WordpieceSpec(VOCABULARY)
    ).numpy()
    nothing = [b"", b""]
    assert filled.tolist() == [
        [
            [b"so the, \xc3\xa9[MASK]", b"sox, \xc3\xa9[MASK]"],
            [b"so [MASK], \xc3\xa9a", b"so [MASK], \xc3\xa9b"],
            nothing,
        ],
        [[b"the", b"x"], nothing, nothing],
        [nothing] * 3,
        # A fourth mask that the sequence had no room for stays.
        [
            [
                b"\xff \tthe[MASK]\xff[MASK] [MASK]",
                b"\xffx[MASK]\xff[MASK] [MASK]",
            ],
            [
                b"\xff \t[MASK]a\xff[MASK] [MASK]",
                b"\xff \t[MASK]b\xff[MASK] [MASK]",
            ],
            [
                b"\xff \t[MASK][MASK]\xffc [MASK]",
                b"\xff \t[MASK][MASK]\xff# [MASK]",
            ],
        ],
    ]


def test_model_without_the_head_is_refused():
    folder = serving_models.model_dir("encoder")
    with (
        reader.open_checkpoint(folder) as checkpoint,
        pytest.raises(ValueError, match="must have a masked-LM head"),
    ):
        fill_mask.load_open(checkpoint)
