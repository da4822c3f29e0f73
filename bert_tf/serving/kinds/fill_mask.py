"""Fill-mask as it is served: the likeliest tokens for each [MASK]."""

import numpy as np
import tensorflow as tf

from bert_tf.serving.graph import chunks
from bert_tf.serving.graph import inputs as inputs_lib
from bert_tf.serving.graph import signatures
from bert_tf.serving.graph.module import ServingModule
from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.serving.kinds.servable import Servable
from bert_tf.tasks import fill_mask
from bert_tf.text import packing

# Masks whose probabilities of all words are computed together.
_MASKS_OF_CHUNK = 64

# The largest difference between equal probabilities.
_TIE = 1e-5


class FillMask(Servable):
    """Of each mask the likeliest tokens, and the text with each in its place.

    The outputs are those of `fill_mask.decode`, and to strings `sequences` as
    of `fill_mask.fill` and `is_cut` bool `[B]`: whether there are masks without
    an answer, beyond `max_masks` or the longest sequence, or the text has an
    end beyond `max_text_bytes`. M is the batch's largest number of masks.

    Args:
        top_k: K, tokens for each mask.
    """

    KIND = "fill_mask"
    SETTINGS = ("top_k",)
    outputs_of_ids = ("tokens", "ids", "scores", "num_masks")
    outputs_of_strings = (*outputs_of_ids, "sequences", "is_cut")
    BOUNDS = ("max_text_bytes", "max_masks")
    BOUNDS_OF_IDS = ("max_masks",)
    # `sequences` has the text once for each of K tokens of each mask.
    max_text_bytes = 2**14
    max_masks = 128

    def __init__(self, top_k=5):
        if top_k < 1:
            raise ValueError(
                f"`top_k` must be at least 1. Received: top_k={top_k}."
            )
        self.top_k = top_k

    def load(self, model_dir, dtype=None):
        model = fill_mask.load_model(model_dir, dtype)
        if self.top_k > model.config.vocab_size:
            raise ValueError(
                "`top_k` must be at most the size of the vocabulary, "
                f"{model.config.vocab_size}. Received: top_k={self.top_k}."
            )
        return model

    def check_text_features(self, text_features):
        if len(text_features) != 1:
            raise ValueError(
                "`text_features` must be one name with the kind fill_mask. "
                f"Received: text_features={','.join(text_features)}."
            )

    def encode(self, preprocessor, texts):
        return fill_mask.encode(*self.columns(texts), preprocessor)

    def hard_texts(self, num_strings):
        texts = [
            text
            for (hard,) in texts_lib.hard_texts(num_strings)
            for text in (b"[MASK]" + hard, hard + b" [MASK].[MASK]")
        ]
        # With the last ones above a batch of the check: more masks than a chunk
        # has, so that chunks are put together.
        texts += [
            letter + b"[MASK]" * 33 for letter in (b"a", b"b", b"c", b"d")
        ]
        return [(text,) for text in texts]

    def make_module(self, source, vocab_path, takes_text):
        return FillMaskModule(source, vocab_path, self, takes_text=takes_text)

    def make_signatures(self, module, source):
        (name,) = source.text_features
        tokenizer = source.preprocessor.tokenizer.spec

        def answer(inputs):
            return module(inputs, training=False)

        def answer_texts(texts):
            strings, is_cut = inputs_lib.cut_texts(
                texts[name], self.max_text_bytes
            )
            inputs = packing.trim_padding(module.preprocessor(strings))
            answers = answer(module.from_model_inputs(inputs))
            is_cut |= fill_mask.count_masks(strings) > answers["num_masks"]
            return answers | {
                "sequences": fill_mask.fill(strings, answers, tokenizer),
                "is_cut": is_cut,
            }

        of_ids = signatures.of_ids(module, answer)
        if module.preprocessor is None:
            return of_ids
        return of_ids | signatures.of_strings(
            answer_texts, source.text_features
        )

    def trained_answers(self, source, inputs, texts):
        tokenizer = source.preprocessor.tokenizer.spec
        vocabulary = tokenizer.vocabulary
        probabilities, num_masks = fill_mask.predict(
            inputs, source.model, vocabulary
        )
        probabilities = probabilities[:, : self.max_masks]
        num_masks = tf.minimum(num_masks, self.max_masks)
        answers = fill_mask.decode(
            probabilities, num_masks, vocabulary, self.top_k
        )
        (strings,) = self.columns(texts)
        is_long = [len(text) > self.max_text_bytes for (text,) in texts]
        answers["sequences"] = fill_mask.fill(strings, answers, tokenizer)
        answers["is_cut"] = is_long | (
            fill_mask.count_masks(strings) > num_masks
        )
        answers["probabilities"] = probabilities
        return {name: value.numpy() for name, value in answers.items()}

    def settle_ties(self, source, texts, trained, answers, tolerance):
        ids = answers["ids"]
        if ids.shape != trained["ids"].shape:
            return trained
        # The answered tokens are as good if they are as likely in truth.
        scores = np.take_along_axis(trained["probabilities"], ids, axis=2)
        place = np.arange(ids.shape[1])[:, np.newaxis]
        is_mask = place < trained["num_masks"][:, np.newaxis, np.newaxis]
        # Of many tokens all are unlikely: a coarse tolerance is a share.
        tolerance = np.minimum(
            tolerance, np.maximum(_TIE, tolerance * trained["scores"])
        )
        is_as_good = np.abs(scores - trained["scores"]) <= tolerance
        is_row = np.all(is_as_good | ~is_mask, axis=(1, 2), keepdims=True)
        is_mask = is_mask & is_row
        tokenizer = source.preprocessor.tokenizer.spec
        tokens = tokenizer.vocabulary.tokens
        tokens = np.array([token.encode() for token in tokens])
        settled = trained | {
            "ids": np.where(is_mask, ids, trained["ids"]),
            "tokens": np.where(
                is_mask, tokens[ids].astype(object), trained["tokens"]
            ),
        }
        filled = fill_mask.fill(*self.columns(texts), settled, tokenizer)
        return settled | {"sequences": filled.numpy()}


class FillMaskModule(ServingModule):
    """A pre-trained model that answers what its masked-LM head says.

    `__call__` returns `fill_mask.decode`'s dictionary, of the first `max_masks`
    of each row.

    Args:
        source: A `Source` of a `BertPretrainer`.
        vocab_path, takes_text: As of `ServingModule`.
        servable: The `FillMask`.
    """

    def __init__(self, source, vocab_path, servable, *, takes_text):
        model, preprocessor = source.model, source.preprocessor
        encoder = model.encoder
        super().__init__(
            model,
            preprocessor,
            vocab_path,
            takes_text=takes_text,
            is_frozen=source.is_frozen,
            # The pooler and the next-sentence head have no part in it.
            parts=(encoder.embeddings, *encoder.blocks, model.masked_lm_head),
            encode=lambda texts: fill_mask.encode(texts, preprocessor),
            max_text_bytes=servable.max_text_bytes,
        )
        self._call_model = lambda inputs, training: _answer_masks(
            inputs,
            model,
            preprocessor.vocabulary,
            servable.top_k,
            servable.max_masks,
            training,
        )


def _answer_masks(inputs, model, vocabulary, top_k, max_masks, training):
    """Returns `fill_mask.decode`'s answers to model inputs.

    The vocabulary's probabilities are there for some masks at a time only.
    Letters: T masks of all rows.
    """
    is_mask_BL = fill_mask.find_masks(inputs, vocabulary)
    rank_BL = tf.cumsum(tf.cast(is_mask_BL, tf.int32), axis=1)
    num_masks_B = tf.minimum(rank_BL[:, -1], max_masks)
    hidden_TD = tf.boolean_mask(
        model.encoder(inputs, training=training)["sequence_output"],
        is_mask_BL & (rank_BL <= max_masks),
    )

    def answer_chunk(start):
        logits_1TV = model.masked_lm_head(
            hidden_TD[tf.newaxis, start : start + _MASKS_OF_CHUNK],
            None,
            model.encoder.embeddings.word_embeddings,
        )
        return tf.math.top_k(tf.nn.softmax(logits_1TV[0]), top_k)

    shape = [None, top_k]
    scores_TK, ids_TK = chunks.concat_chunks(
        answer_chunk,
        tf.shape(hidden_TD)[0],
        _MASKS_OF_CHUNK,
        [tf.TensorSpec(shape, tf.float32), tf.TensorSpec(shape, tf.int32)],
    )
    # Not none, nor the least of all integers, as an empty batch has it.
    most = tf.maximum(tf.reduce_max(num_masks_B), 1)
    scores_BMK, ids_BMK = (
        tf.RaggedTensor.from_row_lengths(
            values_TK, num_masks_B, validate=False
        ).to_tensor(shape=tf.stack([-1, most, top_k]))
        for values_TK in (scores_TK, ids_TK)
    )
    return fill_mask.spell(scores_BMK, ids_BMK, num_masks_B, vocabulary)
