"""A tiny encoder in a folder of sentence-transformers, with all it may have."""

import numpy as np

from bert_tf import checkpoints
from bert_tf.checkpoints.sentence_folder import DenseLayer
from bert_tf.checkpoints.sentence_folder import SentenceVectors
from bert_tf.models.encoder import BertEncoder
from bert_tf.text.preprocessor import Preprocessor
from support import serving_models

GENERATOR = np.random.default_rng(7)
PROMPTS = {"query": "query: ", "document": ""}
VECTORS = SentenceVectors(
    pooling="cls",
    is_normalized=True,
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
    prompts=PROMPTS,
    default_prompt_name="query",
    include_prompt=False,
)


def save(folder, vectors):
    """Writes the folder of the tiny encoder with these vectors."""
    source = serving_models.model_dir("encoder")
    preprocessor = Preprocessor.from_folder(source)
    checkpoints.save(
        str(folder),
        checkpoints.load(source, BertEncoder),
        preprocessor.tokenizer.spec,
        preprocessor.max_seq_length,
        vectors=vectors,
    )
