"""Embeddings as they are served: one vector a text."""

from bert_tf import checkpoints
from bert_tf import features
from bert_tf.models.encoder import BertEncoder
from bert_tf.serving.graph import chunks
from bert_tf.serving.graph import signatures
from bert_tf.serving.graph.module import ServingModule
from bert_tf.serving.kinds.hub import INPUT_NAMES
from bert_tf.serving.kinds.servable import Servable
from bert_tf.tasks.features.extraction import CLS
from bert_tf.tasks.features.extraction import CONCATENATE
from bert_tf.tasks.features.extraction import MEAN
from bert_tf.tasks.features.extraction import Extraction

OUTPUT = "embeddings"
LAST_FOUR = "last_four"
# What the layers and the tokens are put together to: [layers, pooling].
_EXTRACTIONS = {
    CLS: ((-1,), CLS),
    MEAN: ((-1,), MEAN),
    LAST_FOUR: ((-1, -2, -3, -4), MEAN),
}
EMBEDDINGS = tuple(_EXTRACTIONS)


class Embedding(Servable):
    """A vector for a text, or for a pair.

    Args:
        embedding: "cls": the last layer's vector of [CLS]. "mean": the mean
            of the last layer's vectors of all tokens, [CLS] and [SEP] among
            them. "last_four": the same of the last four layers, one after the
            other in one vector, the last one first.
        normalize: Whether the vector is divided by its length.
    """

    KIND = "embedding"
    SETTINGS = ("embedding", "normalize")
    # The Hub's, so that its preprocessor may stand before.
    input_names = INPUT_NAMES
    outputs_of_ids = outputs_of_strings = (OUTPUT,)

    def __init__(self, embedding=MEAN, normalize=False):
        if embedding not in EMBEDDINGS:
            raise ValueError(
                f"`embedding` must be one of {', '.join(EMBEDDINGS)}. "
                f"Received: embedding={embedding!r}."
            )
        self.embedding = embedding
        self.normalize = normalize
        layers, pooling = _EXTRACTIONS[embedding]
        self._extraction = Extraction(
            layers=layers,
            combine=CONCATENATE,
            pooling=pooling,
            is_normalized=normalize,
        )

    def load(self, model_dir, dtype=None):
        model = checkpoints.load(model_dir, BertEncoder, dtype=dtype)
        self._extraction.check_layers(model.config.num_hidden_layers)
        return model

    def make_module(self, source, vocab_path, takes_text):
        return EmbeddingModule(
            source,
            vocab_path,
            self._extraction,
            takes_text=takes_text,
            max_text_bytes=self.max_text_bytes,
        )

    def make_signatures(self, module, source):
        size = source.model.config.hidden_size * len(self._extraction.layers)
        return signatures.make_signatures(
            module,
            lambda inputs: {OUTPUT: module(inputs, training=False)},
            source.text_features,
            answer_packed=lambda inputs: {
                OUTPUT: chunks.call_module(module, inputs, [size])
            },
        )

    def trained_answers(self, source, inputs, texts):
        outputs = source.model(inputs)
        vectors = self._extraction(
            outputs["encoder_outputs"], inputs[features.INPUT_MASK]
        )
        return {OUTPUT: vectors.numpy()}


class EmbeddingModule(ServingModule):
    """An encoder that answers one vector a row, float32 `[B, size]`.

    Args:
        source: A `Source` of a `BertEncoder`.
        vocab_path, takes_text, max_text_bytes: As of `ServingModule`.
        extraction: The `Extraction`.
    """

    def __init__(
        self, source, vocab_path, extraction, *, takes_text, max_text_bytes
    ):
        encoder = source.model
        super().__init__(
            encoder,
            source.preprocessor,
            vocab_path,
            takes_text=takes_text,
            is_frozen=source.is_frozen,
            max_text_bytes=max_text_bytes,
            # The pooler has no part in it.
            parts=(encoder.embeddings, *encoder.blocks),
            input_names=INPUT_NAMES,
        )

        def call_model(inputs, training):
            outputs = encoder(inputs, training=training)
            return extraction(
                outputs["encoder_outputs"], inputs[features.INPUT_MASK]
            )

        self._call_model = call_model
