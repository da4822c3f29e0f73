"""Fill-mask as it is served: the likeliest tokens for each [MASK]."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.serving.graph import chunks
from bert_tf.serving.kinds.output import IS_CUT
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.texts import Row
from bert_tf.serving.options import ExportOptions
from bert_tf.tasks import fill_mask
from bert_tf.text import packing

# How many masks have their probabilities of all tokens computed together.
_MASKS_OF_CHUNK = 64

# The largest difference of probabilities that count as equal.
_TIE = 1e-5


def _show_masks(answers):
    return "; ".join(
        ", ".join(
            f"{token.decode()} {score:.3f}"
            for token, score in zip(tokens, scores)
        )
        for tokens, scores in zip(
            answers["tokens"][: answers["num_masks"]], answers["scores"]
        )
    )


class FillMask(Servable):
    """The likeliest tokens for each mask, and the text with each filled in.

    The answers are those of `fill_mask.decode` and `fill_mask.fill`. The
    option `top_k` is the number of tokens for each mask.
    """

    KIND = "fill_mask"
    outputs_of_ids = (
        Output(
            name="tokens",
            dtype="string",
            axes="masks top_k",
            meaning="the likeliest for each mask",
            missing=b"",
            heading="masks",
            show=_show_masks,
        ),
        Output("ids", "int32", "masks top_k", "their ids", missing="[PAD]'s"),
        Output(
            name="scores",
            dtype="float32",
            axes="masks top_k",
            meaning="their probabilities",
            missing=0.0,
        ),
        Output("num_masks", "int32", "", "how many masks are answered"),
    )
    outputs_of_strings = (
        *outputs_of_ids,
        Output(
            name="sequences",
            dtype="string",
            axes="masks top_k",
            meaning="the text with the token in the place of the mask",
            missing=b"",
        ),
        # True if masks have no answer, beyond `max_masks` or the longest
        # sequence, or if the text goes on beyond `max_text_bytes`.
        IS_CUT,
    )
    MODEL = BertPretrainer
    # `sequences` repeats the text for each of K tokens of each mask.
    DEFAULTS = {"max_text_bytes": 2**14, "max_masks": 128, "top_k": 5}
    TAKES_PAIRS = False
    is_ranked = True

    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        size, top_k = len(self.preprocessor.vocabulary), self.options.top_k
        if top_k > size:
            raise ValueError(
                "--top_k must be at most the size of the vocabulary, "
                f"{size}. Received: --top_k={top_k}."
            )

    @classmethod
    def load(
        cls, checkpoint: Checkpoint, task: Any, options: ExportOptions
    ) -> Any:
        return fill_mask.load_open(checkpoint, options.dtype)

    @property
    def trained_parts(self) -> tuple[Any, ...]:
        encoder = self.model.encoder
        # The pooler and the next-sentence head are not used.
        return (
            encoder.embeddings,
            *encoder.blocks,
            self.model.masked_lm_head,
        )

    def preprocess(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        return fill_mask.encode(texts, self.preprocessor)

    def hard_texts(self) -> list[Row]:
        # "[MASK]", or what the vocabulary has in its place.
        mask = self.preprocessor.vocabulary.special.mask.encode()
        texts = [
            text
            for (hard,) in super().hard_texts()
            for text in (mask + hard, hard + b" %b.%b" % (mask, mask))
        ]
        # With the last texts above, these make a batch of the check with more
        # masks than a chunk has, so that chunks are concatenated.
        texts += [letter + mask * 33 for letter in (b"a", b"b", b"c", b"d")]
        return [(text,) for text in texts]

    def row_of_words(self, num_words: int) -> Row:
        (text,) = super().row_of_words(num_words)
        # Without a mask, no token is computed.
        mask = self.preprocessor.vocabulary.special.mask.encode()
        return (text.replace(b"the", mask, 1),)

    def call_model(
        self,
        inputs: dict[str, tf.Tensor],
        training: bool,
        encoder: Callable[..., Any] | None = None,
    ) -> Any:
        return _answer_masks(
            inputs,
            self.model,
            self.preprocessor.vocabulary,
            self.options.top_k,
            self.options.max_masks,
            training,
            encoder,
        )

    def answer_ids(
        self, inputs: dict[str, tf.Tensor], model: Any
    ) -> dict[str, tf.Tensor]:
        # It computes chunks itself: the answers are as wide as the most masks.
        return model(inputs)

    def answer_texts(
        self,
        texts: dict[str, tf.Tensor],
        encode: Callable[..., Any],
        model: Any,
    ) -> dict[str, tf.Tensor]:
        (strings,) = texts.values()
        strings, is_cut = self.cut(strings)
        inputs = packing.trim_padding(encode(strings))
        answers = self.answer_ids(inputs, model)
        return self._with_sequences(strings, is_cut, answers)

    def read_outputs(
        self,
        found: dict[str, np.ndarray],
        rows: Sequence[Any],
        top_k: int | None,
    ) -> list[Any]:
        # A list for each mask.
        return [
            [
                [
                    {"token": token.decode(), "score": score}
                    for token, score in list(zip(*mask))[:top_k]
                ]
                for mask in list(zip(tokens, scores))[:count]
            ]
            for tokens, scores, count in zip(
                found["tokens"].tolist(),
                found["scores"].tolist(),
                found["num_masks"],
            )
        ]

    def trained_answers(
        self, inputs: dict[str, tf.Tensor], texts: Sequence[Row]
    ) -> dict[str, np.ndarray]:
        vocabulary = self.preprocessor.vocabulary
        probabilities, num_masks = fill_mask.predict(
            inputs, self.model, vocabulary
        )
        most = self.options.max_masks
        probabilities = probabilities[:, :most]
        num_masks = tf.minimum(num_masks, most)
        answers = fill_mask.decode(
            probabilities, num_masks, vocabulary, self.options.top_k
        )
        strings, is_cut = self.cut(tf.constant([text for (text,) in texts]))
        answers = self._with_sequences(strings, is_cut, answers)
        answers["probabilities"] = probabilities
        return {name: value.numpy() for name, value in answers.items()}

    def _with_sequences(self, strings, is_cut, answers):
        is_cut |= (
            fill_mask.count_masks(
                strings, self.preprocessor.vocabulary.special.mask
            )
            > answers["num_masks"]
        )
        spec = self.preprocessor.tokenizer.spec
        sequences = fill_mask.fill(strings, answers, spec)
        return answers | {"sequences": sequences, "is_cut": is_cut}

    def settle_ties(
        self,
        texts: Sequence[Row],
        trained: dict[str, np.ndarray],
        answers: dict[str, np.ndarray],
        tolerance: float,
    ) -> dict[str, np.ndarray]:
        ids = answers["ids"]
        if ids.shape != trained["ids"].shape:
            return trained
        # Other tokens are as good if the trained model finds them as likely.
        scores = np.take_along_axis(trained["probabilities"], ids, axis=2)
        place = np.arange(ids.shape[1])[:, np.newaxis]
        is_mask = place < trained["num_masks"][:, np.newaxis, np.newaxis]
        # Every one of many tokens is unlikely: a coarse tolerance is relative.
        tolerance = np.minimum(
            tolerance, np.maximum(_TIE, tolerance * trained["scores"])
        )
        is_as_good = np.abs(scores - trained["scores"]) <= tolerance
        is_row = np.all(is_as_good | ~is_mask, axis=(1, 2), keepdims=True)
        is_mask = is_mask & is_row
        tokenizer = self.preprocessor.tokenizer.spec
        tokens = tokenizer.vocabulary.tokens
        tokens = np.array([token.encode() for token in tokens])
        settled = trained | {
            "ids": np.where(is_mask, ids, trained["ids"]),
            "tokens": np.where(
                is_mask, tokens[ids].astype(object), trained["tokens"]
            ),
        }
        (strings,) = self.columns(texts)
        filled = fill_mask.fill(strings, settled, tokenizer)
        return settled | {"sequences": filled.numpy()}


def _answer_masks(
    inputs, model, vocabulary, top_k, max_masks, training, encoder
):
    """Returns `fill_mask.decode`'s answers to model inputs.

    Only some rows at a time are encoded, and only some masks at a time have the
    probabilities of all tokens in memory.
    Letters: T masks of all rows.
    """
    is_mask_BL = fill_mask.find_masks(inputs, vocabulary)
    rank_BL = tf.cumsum(tf.cast(is_mask_BL, tf.int32), axis=1)
    num_masks_B = tf.minimum(rank_BL[:, -1], max_masks)
    is_answered_BL = is_mask_BL & (rank_BL <= max_masks)
    rows_together = chunks.rows_of_chunk(tf.size(num_masks_B))

    def encode_chunk(start):
        rows = slice(start, start + rows_together)
        outputs = (encoder or model.encoder)(
            {name: inputs[name][rows] for name in features.MODEL_INPUTS},
            training=training,
        )
        return [
            tf.boolean_mask(outputs["sequence_output"], is_answered_BL[rows])
        ]

    (hidden_TD,) = chunks.concat_chunks(
        encode_chunk,
        tf.size(num_masks_B),
        rows_together,
        [
            tf.TensorSpec(
                [None, model.config.hidden_size], model.encoder.compute_dtype
            )
        ],
    )

    def answer_chunk(start):
        logits_1TV = model.masked_lm_head(
            hidden_TD[tf.newaxis, start : start + _MASKS_OF_CHUNK],
            None,
            model.encoder.embeddings.word_embeddings,
        )
        return tf.math.top_k(
            fill_mask.probabilities_of(logits_1TV[0], vocabulary), top_k
        )

    shape = [None, top_k]
    scores_TK, ids_TK = chunks.concat_chunks(
        answer_chunk,
        tf.shape(hidden_TD)[0],
        _MASKS_OF_CHUNK,
        [tf.TensorSpec(shape, tf.float32), tf.TensorSpec(shape, tf.int32)],
        num_at_once=1,
    )
    # At least 1; an empty batch would give the least of all integers.
    most = tf.maximum(tf.reduce_max(num_masks_B), 1)
    scores_BMK, ids_BMK = (
        tf.RaggedTensor.from_row_lengths(
            values_TK, num_masks_B, validate=False
        ).to_tensor(shape=tf.stack([-1, most, top_k]))
        for values_TK in (scores_TK, ids_TK)
    )
    return fill_mask.spell(scores_BMK, ids_BMK, num_masks_B, vocabulary)
