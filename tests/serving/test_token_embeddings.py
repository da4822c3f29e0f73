"""Vectors of tokens as they are served, with the tokens' places."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.models.encoder import BertEncoder
from bert_tf.serving import saved_model
from bert_tf.serving.kinds import opening
from bert_tf.serving.kinds.token_embeddings import TokenEmbeddings
from bert_tf.serving.proof import report
from bert_tf.text.preprocessor import Preprocessor
from support import serving_models
from support import tokenizer_families

KIND = "token_embeddings"
# Bytes and letters differ; a letter is of several pieces; the last is cut.
TEXTS = ["Ïé  the.\u200b 我quick", "", "lorem x", "the 我 " * 30]


@pytest.fixture(scope="module")
def servable():
    model, options = serving_models.EXPORTS[KIND]
    return opening.open_folder(serving_models.model_dir(model), options)


@pytest.fixture(scope="module")
def answers():
    answer = serving_models.loaded(KIND).signatures["serving_default"]
    found = answer(text=tf.constant(TEXTS))
    return {name: value.numpy() for name, value in found.items()}


def test_all_signatures_answer_as_the_trained_model(servable):
    texts = servable.hard_texts()
    found = serving_models.differences(KIND, servable, texts)
    assert {*found} == {
        *("serving_default", "ids", "examples", "ids_examples"),
    }
    for difference, where in found.values():
        assert difference < 1e-5, where


def test_the_graph_holds_the_normalisation_once():
    graphs = saved_model._read(serving_models.exported(KIND)).meta_graphs
    functions = graphs[0].graph_def.library.function
    ops = [node.op for each in functions for node in each.node_def]
    assert ops.count("NormalizeUTF8") == 1


def test_every_token_has_its_vector_and_its_place(servable, answers):
    encoder = checkpoints.load(serving_models.model_dir("encoder"), BertEncoder)
    inputs = Preprocessor.from_folder(serving_models.model_dir("encoder"))(
        TEXTS
    )
    # The export is of the first block.
    layer = np.asarray(encoder(inputs)["encoder_outputs"][0])
    counts = inputs["input_mask"].numpy().sum(axis=1)
    assert answers["num_tokens"].tolist() == counts.tolist()
    length = serving_models.MAX_SEQ_LENGTH
    assert answers["tokens"].shape == (len(TEXTS), length)
    assert answers["is_cut"].tolist() == [False, False, False, True]
    names = np.array(serving_models.VOCABULARY.tokens)
    for row, count in enumerate(counts):
        np.testing.assert_allclose(
            answers["token_embeddings"][row, :count],
            layer[row, :count],
            atol=1e-5,
        )
        tokens = [token.decode() for token in answers["tokens"][row]]
        assert tokens[:count] == [*names[inputs["input_ids"][row, :count]]]
        # What is padding says so, in every output.
        assert set(tokens[count:]) <= {""}
        assert not answers["token_embeddings"][row, count:].any()
        places = np.stack([answers["starts"][row], answers["limits"][row]])
        assert (places[:, 0] == -1).all()
        assert (places[:, count - 1 :] == -1).all()
        starts, limits = places[:, 1 : count - 1]
        assert (starts < limits).all() and (starts[1:] >= starts[:-1]).all()
    spans = [
        TEXTS[0][start:limit]
        for start, limit in zip(answers["starts"][0], answers["limits"][0])
        if start >= 0
    ]
    # As they stand in the text: accents and capitals too.
    assert spans == ["Ï", "é", "the", ".", "我", "quick"]


def test_neighbours_and_empty_batches_change_nothing(answers):
    answer = serving_models.loaded(KIND).signatures["serving_default"]
    for row, text in enumerate(TEXTS):
        alone = answer(text=tf.constant([text]))
        for name, value in alone.items():
            value = value.numpy()[0]
            together = answers[name][row][tuple(map(slice, value.shape))]
            if value.dtype.kind == "f":
                np.testing.assert_allclose(together, value, atol=1e-6)
            else:
                np.testing.assert_array_equal(together, value)
    nothing = answer(text=tf.zeros([0], tf.string))
    assert nothing["token_embeddings"].shape[0] == 0
    assert nothing["num_tokens"].shape == (0,)


class Model:
    """An encoder whose vectors are the ids, called as a module too."""

    config = tokenizer_families.small("roberta-base", tokenizer_families.BPE)

    def __call__(self, inputs, training=False):
        ids = tf.cast(inputs["input_ids"] * inputs["input_mask"], tf.float32)
        size = self.config.hidden_size
        return {"encoder_outputs": [tf.repeat(ids[..., tf.newaxis], size, -1)]}

    def compute(self, inputs):
        return self(inputs)["encoder_outputs"][0]


@pytest.mark.parametrize("family", tokenizer_families.FAMILIES)
def test_every_tokenizer_tells_its_pieces_places(family):
    _, spec, _ = tokenizer_families.FAMILIES[family]
    preprocessor = Preprocessor(spec, tokenizer_families.MAX_SEQ_LENGTH)
    model = Model()
    servable = serving_models.make_servable(
        TokenEmbeddings, model, preprocessor, layer=0
    )
    texts = ["the fox, é", "", "quick quick " * 30]
    found = servable.answer_texts(
        {"text": tf.constant(texts)}, servable.preprocess, model.compute
    )
    found = {name: value.numpy() for name, value in found.items()}
    inputs = preprocessor(texts)
    counts = inputs["input_mask"].numpy().sum(axis=1)
    ids = inputs["input_ids"].numpy() * inputs["input_mask"].numpy()
    np.testing.assert_array_equal(found["num_tokens"], counts)
    np.testing.assert_array_equal(
        found["token_embeddings"][..., 0], ids[:, : counts.max()]
    )
    assert found["is_cut"].tolist() == [False, False, True]
    vocabulary = preprocessor.vocabulary
    for row, (text, count) in enumerate(zip(texts, counts)):
        assert [
            vocabulary.tokens.index(token.decode())
            for token in found["tokens"][row, :count]
        ] == ids[row, :count].tolist()
        places = zip(
            found["starts"][row, 1 : count - 1],
            found["limits"][row, 1 : count - 1],
        )
        covered = {place for span in places for place in range(*span)}
        wanted = {i for i, letter in enumerate(text) if letter != " "}
        if not found["is_cut"][row]:
            assert wanted <= covered


def test_the_table_says_what_is_there():
    found = {
        "token_embeddings": np.ones((1, 4, 4), np.float32),
        "tokens": np.array([[b"[CLS]", b"the", b"[SEP]", b""]]),
        "num_tokens": np.array([3]),
        "starts": np.array([[-1, 0, -1, -1]]),
        "limits": np.array([[-1, 3, -1, -1]]),
        "is_cut": np.array([True]),
    }
    line = report.answers_table(
        [(b"the",)], found, TokenEmbeddings
    ).splitlines()[1]
    assert "[1.000, 1.000, 1.000, ...] of 4, norm 2.000" in line
    assert "[CLS] | the | [SEP]" in line
    assert line.endswith("cut")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 2}, "--layer must be from -2 to 1, as the"),
        ({"layer": -3}, "--layer must be from -2 to 1, as the"),
        ({"layer": 0.5}, "--layer must be an integer"),
        ({"top_k": 1}, "--top_k must not be given with --kind"),
        ({"prompt_name": "q"}, "--prompt_name must not be given with --kind"),
        ({"text_features": ("a", "b")}, "--text_features must be one name"),
    ],
)
def test_what_it_does_not_take(options, message):
    with pytest.raises(ValueError, match=message):
        serving_models.servable("encoder", kind=KIND, **options)
