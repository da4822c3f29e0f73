"""Vectors of texts: against NumPy over one text at a time, and the servable."""

import dataclasses

import numpy as np
import pytest

from bert_tf import checkpoints
from bert_tf.checkpoints.sentence_folder import DenseLayer
from bert_tf.checkpoints.sentence_folder import SentenceVectors
from bert_tf.models.encoder import BertEncoder
from bert_tf.tasks.features import sentences
from bert_tf.text.preprocessor import Preprocessor
from support import serving_models

TEXTS = ["the fox", "", "quick lorem the é 我", "we are too many letters", "a"]
GENERATOR = np.random.default_rng(3)
VECTORS = SentenceVectors(
    pooling="max",
    is_normalized=True,
    max_seq_length=11,
    dense=(
        DenseLayer(
            kernel=GENERATOR.normal(size=(8, 5)).astype("float32"),
            bias=GENERATOR.normal(size=5).astype("float32"),
            activation="tanh",
        ),
        DenseLayer(
            kernel=GENERATOR.normal(size=(5, 3)).astype("float32"),
            bias=None,
            activation="linear",
        ),
    ),
    prompts={"query": "lorem fox: "},
    default_prompt_name="query",
    include_prompt=False,
)


@pytest.fixture(scope="module")
def encoder():
    return checkpoints.load(serving_models.model_dir("encoder"), BertEncoder)


def embedder_of(encoder, vectors, prompt=""):
    preprocessor = Preprocessor.from_folder(
        serving_models.model_dir("encoder"), 11
    )
    return sentences.Embedder(encoder, preprocessor, vectors, {}, prompt)


def wanted_of(encoder, text, vectors, num_left_out=0):
    """Returns the vector of one text, without padding."""
    preprocessor = Preprocessor.from_folder(
        serving_models.model_dir("encoder"), 11
    )
    inputs = preprocessor([text])
    length = int(np.sum(inputs["input_mask"]))
    inputs = {name: value[:, :length] for name, value in inputs.items()}
    rows = np.asarray(encoder(inputs)["encoder_outputs"][-1])[0]
    pooled = {
        "cls": rows[num_left_out],
        "mean": rows[num_left_out:].mean(axis=0),
        "max": rows[num_left_out:].max(axis=0),
    }[vectors.pooling]
    for layer in vectors.dense:
        pooled = pooled @ layer.kernel
        if layer.bias is not None:
            pooled = pooled + layer.bias
        if layer.activation == "tanh":
            pooled = np.tanh(pooled)
    return pooled / np.linalg.norm(pooled) if vectors.is_normalized else pooled


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_vectors_are_those_of_each_text_alone(encoder, pooling):
    vectors = SentenceVectors(pooling=pooling, is_normalized=pooling == "cls")
    embedder = embedder_of(encoder, vectors)
    # Of about one length, the longest first; of equals the first.
    rows = [rows.tolist() for rows, _ in embedder.batches(TEXTS, 2)]
    assert rows == [[3, 2], [0, 4], [1]]
    found = embedder(TEXTS, batch_size=2)
    assert found.dtype == np.float32 and embedder.dimension == 8
    assert embedder([]).shape == (0, 8)
    for text, vector in zip(TEXTS, found):
        wanted = wanted_of(encoder, text, vectors)
        np.testing.assert_allclose(vector, wanted, atol=1e-5)


def test_a_book_is_not_tokenized_to_its_end(encoder):
    vectors = SentenceVectors(pooling="mean", is_normalized=False)
    found = embedder_of(encoder, vectors)(["a", "a" + " " * 2**20 + "b"])
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)


def test_layers_and_prompts_of_a_folder_hold(encoder, tmp_path):
    source = serving_models.model_dir("encoder")
    preprocessor = Preprocessor.from_folder(source)
    spec = preprocessor.tokenizer.spec
    checkpoints.save(
        str(tmp_path / "model"), encoder, spec, 11, vectors=VECTORS
    )
    embedder = sentences.open_embedder(tmp_path / "model")
    assert embedder.prompt == "lorem fox: "
    assert embedder.dimension == 3 and embedder.max_seq_length == 11
    texts = ["a b", "the"]
    found = embedder(texts)
    for text, vector in zip(texts, found):
        # [CLS], lorem, f, ##o, ##x and the colon are not pooled.
        wanted = wanted_of(encoder, f"lorem fox: {text}", VECTORS, 6)
        np.testing.assert_allclose(vector, wanted, atol=1e-5)
    # The first token is then the first that is left.
    of_first = dataclasses.replace(VECTORS, pooling="cls")
    (vector,) = embedder_of(encoder, of_first, "lorem fox: ")(["a b"])
    wanted = wanted_of(encoder, "lorem fox: a b", of_first, 6)
    np.testing.assert_allclose(vector, wanted, atol=1e-5)
    plain = embedder.with_prompt("")(texts)
    for text, vector in zip(texts, plain):
        wanted = wanted_of(encoder, text, VECTORS)
        np.testing.assert_allclose(vector, wanted, atol=1e-5)
    # Another model is one of other weights or layers, not of another prompt.
    one_layer = dataclasses.replace(VECTORS, dense=VECTORS.dense[:1])
    first, second, other = (
        embedder_of(encoder, vectors, prompt).model_sha256
        for vectors, prompt in ((VECTORS, ""), (VECTORS, "a"), (one_layer, ""))
    )
    assert first == second != other
    # And those weights have a name here.
    assert embedder.model_sha256 != first


def test_other_folders_have_the_mean(encoder):
    folder = serving_models.model_dir("encoder")
    embedder = sentences.open_embedder(folder)
    assert embedder.vectors == SentenceVectors(
        pooling="mean", is_normalized=False
    )
    assert embedder.max_seq_length == serving_models.MAX_SEQ_LENGTH
    servable = serving_models.servable("encoder", kind="embedding")
    rows = [(text.encode(),) for text in TEXTS]
    inputs = servable.encode(rows)
    wanted = servable.trained_answers(inputs, rows)["embeddings"]
    np.testing.assert_allclose(embedder(TEXTS), wanted, atol=1e-5)
    with pytest.raises(ValueError, match="embeddings=23.*max_seq_length=99"):
        sentences.open_embedder(folder, max_seq_length=99)
    # As sentence_bert_config.json may say, too: all vectors would be equal.
    with pytest.raises(ValueError, match="at least 3 for a text: .*length=2"):
        sentences.open_embedder(folder, max_seq_length=2)


def test_numbers_that_are_not_finite_name_their_text(encoder):
    kernel = np.full((8, 2), np.inf, "float32")
    layer = DenseLayer(kernel=kernel, bias=None, activation="linear")
    vectors = SentenceVectors(
        pooling="cls", is_normalized=False, dense=(layer,)
    )
    with pytest.raises(ValueError, match="finite.*'the fox'"):
        embedder_of(encoder, vectors)(TEXTS[:1])
