"""Fill-mask as it is served: the likeliest tokens for each [MASK]."""

import numpy as np
import tensorflow as tf

from bert_tf.serving import signatures
from bert_tf.serving import texts as texts_lib
from bert_tf.serving.module import ServingModule
from bert_tf.serving.servable import Servable
from bert_tf.tasks import fill_mask

# The largest difference between equal probabilities.
_TIE = 1e-5


class FillMask(Servable):
    """Of each mask the likeliest tokens, and the text with each in its place.

    The outputs are those of `fill_mask.decode`, and to strings `sequences` as
    of `fill_mask.fill`; M is the batch's largest number of masks.

    Args:
        top_k: K, tokens for each mask.
    """

    KIND = "fill_mask"
    SETTINGS = ("top_k",)
    outputs_of_ids = ("tokens", "ids", "scores", "num_masks")
    outputs_of_strings = (*outputs_of_ids, "sequences")

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
        return fill_mask.encode(_column(texts), preprocessor)

    def hard_texts(self, num_strings):
        return [
            (text,)
            for (hard,) in texts_lib.hard_texts(num_strings)
            for text in (b"[MASK]" + hard, hard + b" [MASK].[MASK]")
        ]

    def make_module(self, source, vocab_path, takes_text):
        return FillMaskModule(
            source, vocab_path, takes_text=takes_text, top_k=self.top_k
        )

    def make_signatures(self, module, source):
        (name,) = source.text_features

        def add_sequences(texts, answers):
            return answers | {"sequences": fill_mask.fill(texts[name], answers)}

        return signatures.make_signatures(
            module,
            lambda inputs: module(inputs, training=False),
            source.text_features,
            add_sequences,
        )

    def trained_answers(self, source, inputs, texts):
        vocabulary = source.preprocessor.vocabulary
        probabilities, num_masks = fill_mask.predict(
            inputs, source.model, vocabulary
        )
        answers = fill_mask.decode(
            probabilities, num_masks, vocabulary, self.top_k
        )
        answers["sequences"] = fill_mask.fill(_column(texts), answers)
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
        spelled = np.array(
            [token.encode() for token in source.preprocessor.vocabulary.tokens]
        )
        settled = trained | {
            "ids": np.where(is_mask, ids, trained["ids"]),
            "tokens": np.where(
                is_mask, spelled[ids].astype(object), trained["tokens"]
            ),
        }
        filled = fill_mask.fill(_column(texts), settled).numpy()
        return settled | {"sequences": filled}


class FillMaskModule(ServingModule):
    """A pre-trained model that answers what its masked-LM head says.

    `__call__` returns `fill_mask.decode`'s dictionary.

    Args:
        source: A `Source` of a `BertPretrainer`.
        vocab_path, takes_text: As of `ServingModule`.
        top_k: K, tokens for each mask.
    """

    def __init__(self, source, vocab_path, *, takes_text, top_k):
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
        )
        self._call_model = lambda inputs, training: fill_mask.decode(
            *fill_mask.predict(
                inputs, model, preprocessor.vocabulary, training
            ),
            preprocessor.vocabulary,
            top_k,
        )


def _column(texts):
    return tf.constant([text for (text,) in texts])
