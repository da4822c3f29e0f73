import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import Vocabulary
from references import text as reference_text

TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##able", ",")
TOKENS += ("cafe", "b", "##b")
VOCABULARY = Vocabulary(tokens=TOKENS)
TEXTS = ["Café, unable", "", "b b b b bbb", "unable 中 b"]
SECOND = ["b", "bb unable", "", "zz b, b, b"]
NAMES = ["input_ids", "input_mask", "segment_ids"]


def expected(*segments, seq_length):
    """The inputs of one example, by the oracle and a loop."""
    pieces = [
        [
            TOKENS.index(piece)
            for word in reference_text.tokenize(text, set(TOKENS), True)
            for piece in word
        ]
        for text in segments
    ]
    a, b = pieces if len(pieces) == 2 else (pieces[0], [])
    a, b = reference_text.truncate_pair(a, b, seq_length - len(pieces) - 1)
    ids = [2, *a, 3]
    segment_ids = [0] * len(ids)
    if len(pieces) == 2:
        ids += [*b, 3]
        segment_ids += [1] * (len(b) + 1)
    padding = [0] * (seq_length - len(ids))
    return {
        "input_ids": ids + padding,
        "input_mask": [1] * len(ids) + padding,
        "segment_ids": segment_ids + padding,
    }


def rows(inputs):
    """Batched inputs as a list of the inputs of every example."""
    assert sorted(inputs) == NAMES
    values = {name: np.asarray(inputs[name]) for name in NAMES}
    assert {value.dtype for value in values.values()} == {np.dtype("int32")}
    return [
        {name: values[name][row].tolist() for name in NAMES}
        for row in range(len(values["input_ids"]))
    ]


SINGLE_7 = [expected(text, seq_length=7) for text in TEXTS]
PAIRS_7 = [expected(*pair, seq_length=7) for pair in zip(TEXTS, SECOND)]


@pytest.mark.parametrize(
    "texts",
    [
        TEXTS,
        np.array(TEXTS),
        tf.constant(TEXTS),
        (TEXTS,),
        [tf.constant(TEXTS)],
        [np.array(TEXTS, object)],
    ],
)
def test_one_text_eagerly(texts):
    assert (
        rows(Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=7)(texts))
        == SINGLE_7
    )


@pytest.mark.parametrize(
    "texts",
    [(TEXTS, SECOND), [TEXTS, SECOND], [tf.constant(TEXTS), np.array(SECOND)]],
)
def test_two_texts_eagerly(texts):
    assert (
        rows(Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=7)(texts))
        == PAIRS_7
    )


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", None, "b"], "row 2: must be a string.* Received: None"),
        ((["a", "b"], ["a", float("nan")]), "row 2: .* Received: nan"),
        (np.array(["a", "b", None], object), "row 3: .* Received: None"),
        ([np.float64("nan"), "a"], "row 1: .* Received: .*nan"),
        (["a", np.float32("nan")], "row 2: .* Received: .*nan"),
        ([np.array("a"), np.array(None)], "row 2: .* Received: None"),
        ([tf.constant("a"), None], "row 2: .* Received: None"),
        ([["a", "b"], [3, 4]], "row 1: .* Received: 3"),
        (["a", "b \ud800"], r"row 2: must be what UTF-8 .*'b \\ud800'"),
    ],
)
def test_what_is_no_text_is_named_by_its_row(texts, message):
    preprocessor = Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=7)

    with pytest.raises(ValueError, match=f"`texts`, {message}"):
        preprocessor(texts)


@pytest.mark.parametrize("num_rows", [1, 2, 3])
def test_rows_of_pairs_are_no_columns(num_rows):
    preprocessor = Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=7)
    pairs = list(zip(TEXTS, SECOND))[:num_rows]

    with pytest.raises(ValueError, match="must be columns.*a list of tuples"):
        preprocessor(pairs)

    assert rows(preprocessor(tuple(zip(*pairs)))) == PAIRS_7[:num_rows]


def test_scalars():
    preprocessor = Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=7)

    one = preprocessor(TEXTS[0])
    two = preprocessor((TEXTS[3], SECOND[3]))

    assert {name: one[name].numpy().tolist() for name in NAMES} == SINGLE_7[0]
    assert {name: two[name].numpy().tolist() for name in NAMES} == PAIRS_7[3]


@pytest.mark.parametrize("num_texts", [1, 2, 3])
def test_a_list_of_scalars_is_a_batch(num_texts):
    """Two of them were one pair."""
    preprocessor = Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=7)
    texts, wanted = TEXTS[:num_texts], SINGLE_7[:num_texts]

    for scalars in (
        [np.array(text) for text in texts],
        [np.array(text, object) for text in texts],
        list(tf.constant(texts)),
        [texts[0], *map(np.array, texts[1:])],
    ):
        assert rows(preprocessor(scalars)) == wanted
    found = tf.function(lambda *scalars: preprocessor([*scalars]))(
        *map(tf.constant, texts)
    )
    assert rows(found) == wanted
    pair = preprocessor((np.array(TEXTS[3]), tf.constant(SECOND[3])))
    assert {name: pair[name].numpy().tolist() for name in NAMES} == PAIRS_7[3]


def test_data_sets():
    preprocessor = Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=7)
    one = tf.data.Dataset.from_tensor_slices(TEXTS)
    two = tf.data.Dataset.from_tensor_slices((TEXTS, SECOND))

    def pair(a, b):
        return preprocessor((a, b))

    batched = one.batch(2, drop_remainder=True).map(preprocessor)

    assert batched.element_spec["input_ids"].shape.as_list() == [2, 7]
    assert sum((rows(batch) for batch in batched), []) == SINGLE_7
    assert rows(next(iter(one.map(preprocessor).batch(4)))) == SINGLE_7
    assert rows(next(iter(two.batch(4).map(pair)))) == PAIRS_7
    scalars = two.map(pair)
    assert scalars.element_spec["input_ids"].shape.as_list() == [7]
    assert rows(next(iter(scalars.batch(4)))) == PAIRS_7


# TensorFlow Serving 2.13 to 2.19 has these of tensorflow_text, with others.
TEXT_OPERATIONS = {"FastWordpieceTokenizeWithOffsets", "NormalizeUTF8"}


def test_saved_model(tmp_path):
    module = tf.Module()
    module.preprocessor = Preprocessor(
        WordpieceSpec(VOCABULARY), max_seq_length=7
    )
    texts = tf.TensorSpec([None], tf.string)
    module.one = tf.function(module.preprocessor, input_signature=[texts])
    module.two = tf.function(
        lambda a, b: module.preprocessor((a, b)), input_signature=[texts, texts]
    )
    tf.saved_model.save(module, str(tmp_path))

    reloaded = tf.saved_model.load(str(tmp_path))

    assert rows(reloaded.one(tf.constant(TEXTS))) == SINGLE_7
    got = reloaded.two(tf.constant(TEXTS), tf.constant(SECOND))
    assert rows(got) == PAIRS_7
    definition = module.two.get_concrete_function().graph.as_graph_def()
    functions = [function.node_def for function in definition.library.function]
    operations = {
        node.op for nodes in (definition.node, *functions) for node in nodes
    }
    not_core = {name for name in operations if not hasattr(tf.raw_ops, name)}
    calls = {
        function.signature.name for function in definition.library.function
    }
    assert not_core - calls == TEXT_OPERATIONS


@pytest.mark.parametrize("fast", [False, True])
def test_settings_are_kept(fast):
    preprocessor = Preprocessor(
        WordpieceSpec(VOCABULARY, do_lower_case=False, fast=fast),
        max_seq_length=9,
    )

    assert preprocessor.vocabulary is VOCABULARY
    assert preprocessor.do_lower_case is False
    assert preprocessor.max_seq_length == 9
    assert preprocessor.tokenizer.spec.fast is fast
    assert preprocessor("b Café").pop("input_ids").numpy().tolist() == [
        2, 9, 1, 3, 0, 0, 0, 0, 0,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (tf.constant([["a", "b"]]), r"shapes \(1, 2\)"),
        ((["a"], "b"), r"shapes \(1,\), \(\)"),
        ((["a"], ["b", "c"]), r"shapes \(1,\), \(2,\)"),
        ((["a"], ["b"], ["c"]), "one or two texts .* Received: 3"),
        ((), "one or two texts .* Received: 0"),
        (tf.ragged.constant([["a", "b"], ["c"]]), "RaggedTensor of string"),
        (tf.constant([1, 2]), "Received: EagerTensor of int32"),
        (tf.data.Dataset.from_tensors("a"), "Received: .*Dataset"),
    ],
)
def test_texts_that_are_no_batch_are_refused(texts, message):
    with pytest.raises(ValueError, match=f"`texts` must be .*{message}"):
        Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=7)(texts)


def test_empty_batch():
    assert (
        rows(Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=7)([]))
        == []
    )


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="max_seq_length=1"):
        Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=1)
    with pytest.raises(ValueError, match="from_folder.*Received: 'vocab.txt'"):
        Preprocessor("vocab.txt")


@pytest.mark.parametrize("length", [7.0, "7", True])
def test_a_length_that_is_no_integer_is_refused(length):
    """7.0 failed at the first text."""
    with pytest.raises(ValueError, match=f"an integer.*length={length!r}"):
        Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=length)


def test_a_length_of_numpy_is_one_of_python():
    """A model folder could not be saved with it."""
    length = np.array([5, 7]).max()
    preprocessor = Preprocessor(WordpieceSpec(VOCABULARY), length)
    assert type(preprocessor.max_seq_length) is int


@pytest.fixture
def folder(tmp_path):
    """Returns a function that makes a model folder's text files."""

    def make(settings=None, config=None, tokens=TOKENS):
        (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n", "utf-8")
        for name, value in (
            ("tokenizer_config.json", settings),
            ("config.json", config),
        ):
            if value is not None:
                (tmp_path / name).write_text(json.dumps(value), "utf-8")
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("settings", "config", "do_lower_case", "max_seq_length"),
    [
        ({"do_lower_case": True, "model_max_length": 64}, None, True, 64),
        ({"do_lower_case": False, "model_max_length": 64}, None, False, 64),
        # Hugging Face's number for "not known".
        (
            {"model_max_length": int(1e30)},
            {"max_position_embeddings": 96},
            True,
            96,
        ),
        (
            {"model_max_length": 512, "strip_accents": None},
            {"max_position_embeddings": 40},
            True,
            40,
        ),
        (None, {"max_position_embeddings": 1024}, True, 512),
        (None, None, True, 512),
    ],
)
def test_model_folder(folder, settings, config, do_lower_case, max_seq_length):
    preprocessor = Preprocessor.from_folder(folder(settings, config))

    assert preprocessor.vocabulary == VOCABULARY
    assert preprocessor.do_lower_case is do_lower_case
    assert preprocessor.max_seq_length == max_seq_length


def test_model_folder_with_another_length(folder):
    made = folder({"do_lower_case": True, "model_max_length": 64})

    preprocessor = Preprocessor.from_folder(f"{made}/", max_seq_length=7)

    assert rows(preprocessor(TEXTS)) == SINGLE_7


def test_folder_without_settings_is_cased_by_its_vocabulary(folder):
    made = folder(tokens=(*TOKENS, "Cafe"))

    assert Preprocessor.from_folder(made).do_lower_case is False


@pytest.mark.parametrize(
    ("settings", "tokens", "message"),
    [
        ({"do_lower_case": True}, (*TOKENS, "B"), "must be False with a cased"),
        ({"strip_accents": False}, TOKENS, "`strip_accents` must be"),
        ({"tokenize_chinese_chars": False}, TOKENS, "`tokenize_chinese_chars`"),
        ({"do_basic_tokenize": False}, TOKENS, "`do_basic_tokenize` must be"),
        ({}, TOKENS[1:], r"special tokens \[PAD\] are missing"),
    ],
)
def test_model_folder_of_another_tokenizer_is_refused(
    folder, settings, tokens, message
):
    made = folder(settings, tokens=tokens)

    with pytest.raises(ValueError, match=message) as error:
        Preprocessor.from_folder(made)

    assert str(made) in str(error.value)


def test_model_folder_without_a_vocabulary_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must hold the vocab.*vocab.txt, "):
        Preprocessor.from_folder(tmp_path)


@pytest.mark.parametrize("do_lower_case", [True, False])
@pytest.mark.parametrize("has_settings", [True, False])
def test_folder_with_tokenizer_json_alone(
    tmp_path, do_lower_case, has_settings
):
    # What transformers 5 writes. The vocabulary alone would not tell "False".
    tokenizer = WordpieceSpec(VOCABULARY).tokenizer_json
    tokenizer["normalizer"]["lowercase"] = do_lower_case
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    if has_settings:
        (tmp_path / "tokenizer_config.json").write_text(
            json.dumps({"model_max_length": 7}), "utf-8"
        )

    preprocessor = Preprocessor.from_folder(tmp_path)

    assert preprocessor.vocabulary == VOCABULARY
    assert preprocessor.do_lower_case is do_lower_case
    assert preprocessor.max_seq_length == (7 if has_settings else 512)
    if do_lower_case and has_settings:
        assert rows(preprocessor(TEXTS)) == SINGLE_7
