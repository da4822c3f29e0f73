"""Vectors of tokens as they are served, and where the tokens stand.

They serve whatever is learned or computed from the pieces of a text: vectors of
its names, similarities of words, probes of layers.
"""

import dataclasses
import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.models.encoder import BertEncoder
from bert_tf.serving import options as options_lib
from bert_tf.serving.graph import chunks
from bert_tf.serving.kinds.hub import INPUT_NAMES
from bert_tf.serving.kinds.output import IS_CUT
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.kinds.output import show_text
from bert_tf.serving.kinds.output import show_vector
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.texts import Row
from bert_tf.serving.options import ExportOptions
from bert_tf.text import packing
from bert_tf.text.offsets import Offsets

OUTPUT = "token_embeddings"
_NOWHERE = -1


def _show_tokens(answers):
    return show_text(*answers["tokens"][: answers["num_tokens"]])


class TokenEmbeddings(Servable):
    """A vector for each token of a text, the token, and its characters.

    [CLS] and [SEP] are tokens too, without characters. A text is read up to
    `max_seq_length` tokens. Letters: L positions.

    The option `layer` is the number of the block that the vectors come from:
    0, 1, ... from the first, or -1, -2, ... from the last.
    """

    KIND = options_lib.TOKEN_EMBEDDINGS
    outputs_of_ids = (
        Output(
            name=OUTPUT,
            dtype="float32",
            axes="length size",
            meaning="the vectors of the tokens",
            missing=0.0,
            heading="vector of the first token",
            show=lambda answers: show_vector(answers[OUTPUT][0]),
        ),
        Output(
            name="tokens",
            dtype="string",
            axes="length",
            meaning="the tokens, as the vocabulary has them",
            missing=b"",
            heading="tokens",
            show=_show_tokens,
        ),
        Output(
            name="num_tokens",
            dtype="int32",
            axes="",
            meaning="how many tokens there are, [CLS] and [SEP] among them",
        ),
    )
    outputs_of_strings = (
        *outputs_of_ids,
        # Characters are Unicode code points.
        Output(
            name="starts",
            dtype="int32",
            axes="length",
            meaning="where they start in the text; -1 for [CLS] and [SEP]",
            missing=_NOWHERE,
        ),
        Output(
            name="limits",
            dtype="int32",
            axes="length",
            meaning="where they end, exclusive",
            missing=_NOWHERE,
        ),
        dataclasses.replace(
            IS_CUT, meaning="whether there is text that was not read"
        ),
    )
    MODEL = BertEncoder
    DEFAULTS = Servable.DEFAULTS | {"layer": -1}
    TAKES_PAIRS = False
    # The Hub's names, so that its preprocessor can feed the model.
    input_names = INPUT_NAMES

    @classmethod
    def load(
        cls, checkpoint: Checkpoint, task: Any, options: ExportOptions
    ) -> Any:
        model = super().load(checkpoint, task, options)
        layer = options.layer
        num_layers = model.config.num_hidden_layers
        if not -num_layers <= layer < num_layers:
            raise ValueError(
                f"--layer must be from {-num_layers} to {num_layers - 1}, as "
                f"the model has {num_layers} layers. Received: --layer={layer}."
            )
        return model

    @property
    def trained_parts(self) -> tuple[Any, ...]:
        # The pooler and the blocks above the layer are not used. Blocks that
        # layers share are all used.
        blocks = self.model.blocks
        num_layers = self.model.config.num_hidden_layers
        if len(blocks) == num_layers:
            blocks = blocks[: self.options.layer % num_layers + 1]
        return (self.model.embeddings, *blocks)

    def call_model(
        self,
        inputs: dict[str, tf.Tensor],
        training: bool,
        encoder: Callable[..., Any] | None = None,
    ) -> Any:
        outputs = (encoder or self.model)(inputs, training=training)
        vectors_BLD = outputs["encoder_outputs"][self.options.layer]
        # Clients get float32 in every precision.
        vectors_BLD = tf.cast(vectors_BLD, tf.float32)
        mask_BL = tf.cast(inputs[features.INPUT_MASK], tf.float32)
        return vectors_BLD * mask_BL[:, :, tf.newaxis]

    def decode(self, outputs: Any) -> dict[str, tf.Tensor]:
        return {OUTPUT: outputs}

    def decode_rows(
        self, inputs: dict[str, tf.Tensor], outputs: Any
    ) -> dict[str, tf.Tensor]:
        mask = inputs[features.INPUT_MASK]
        return self.decode(outputs) | {
            "tokens": self._spell(inputs[features.INPUT_IDS], mask),
            "num_tokens": tf.reduce_sum(mask, axis=1),
        }

    def answer_texts(
        self,
        texts: dict[str, tf.Tensor],
        encode: Callable[..., Any],
        model: Any,
    ) -> dict[str, tf.Tensor]:
        (strings,) = texts.values()
        strings, is_long = self.cut(strings)
        preprocessor = self.preprocessor
        pieces, offsets = preprocessor.tokenizer.tokenize_with_offsets(strings)
        packed = (
            [pieces],
            preprocessor.max_seq_length,
            preprocessor.vocabulary,
        )
        inputs = packing.trim_padding(packing.pack(*packed))
        length = tf.shape(inputs[features.INPUT_IDS])[1]

        def compute(rows):
            vectors = model(rows)
            after = length - tf.shape(vectors)[1]
            return tf.pad(vectors, [[0, 0], [0, after], [0, 0]])

        outputs = chunks.compute_in_chunks(
            inputs,
            compute,
            [None, self.model.config.hidden_size],
        )
        answers = self.decode_rows(inputs, outputs)
        answers |= self._places(offsets, length)
        return answers | {"is_cut": is_long | packing.is_cut(*packed)}

    def trained_answers(
        self, inputs: dict[str, tf.Tensor], texts: Sequence[Row]
    ) -> dict[str, np.ndarray]:
        strings, is_long = self.cut(tf.constant([text for (text,) in texts]))
        _, is_cut = self.preprocessor.encode_with_is_cut(strings)
        _, offsets = self.preprocessor.tokenizer.tokenize_with_offsets(strings)
        answers = self.decode_rows(
            inputs, self.call_model(inputs, training=False)
        )
        answers |= self._places(offsets, self.preprocessor.max_seq_length)
        answers["is_cut"] = is_cut | is_long
        return {name: value.numpy() for name, value in answers.items()}

    def _places(self, offsets: Offsets, length):
        """Returns `starts` and `limits`, int32 `[B, L]`.

        Args:
            offsets: Those of all pieces.
            length: L.
        """
        # Between [CLS] and [SEP].
        most = self.preprocessor.max_seq_length - 2
        found = {}
        for name in ("starts", "limits"):
            places = getattr(offsets, name).merge_dims(1, 2)[:, :most]
            places = places.to_tensor(_NOWHERE)
            places = tf.pad(
                places,
                # Without texts, L is 1.
                [[0, 0], [1, tf.maximum(length - 1 - tf.shape(places)[1], 0)]],
                constant_values=_NOWHERE,
            )
            found[name] = places[:, :length]
        return found

    @functools.cached_property
    def _spell(self):
        """A function from ids and mask `[B, L]` to tokens, saved once."""
        vocabulary = self.preprocessor.vocabulary

        @tf.function(
            autograph=False,
            input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2,
        )
        def spell(ids, mask):
            tokens = tf.gather(tf.constant(vocabulary.tokens), ids)
            return tf.where(mask > 0, tokens, "")

        return spell
