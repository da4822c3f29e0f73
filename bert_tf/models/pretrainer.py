"""BERT with its two pre-training heads, and what pre-training minimises."""

import keras
from keras import ops

from bert_tf import features
from bert_tf.layers.configured import Configured
from bert_tf.layers.heads import ClassificationHead
from bert_tf.layers.heads import MaskedLMHead
from bert_tf.models.encoder import BertEncoder


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPretrainer(Configured, keras.Model):
    """Masked-LM and next-sentence prediction (Devlin et al., section 3.1).

    Args:
        config: A `BertConfig`.

    Call arguments:
        inputs: `BertEncoder`'s, and `masked_lm_positions` int32 `[B, P]`.

    Returns:
        A dictionary of float32 logits: `masked_lm_logits`
        `[B, P, vocab_size]` and `next_sentence_logits` `[B, 2]`, or
        `[B, S, 2]` where `first_positions` were given.
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.encoder = BertEncoder(
            self.config, dtype=self.dtype_policy, name="encoder"
        )
        self.masked_lm_head = MaskedLMHead(
            self.config,
            dtype=self.dtype_policy,
            name="masked_lm",
        )
        self.next_sentence_head = ClassificationHead(
            self.config,
            2,
            dtype=self.dtype_policy,
            name="next_sentence",
        )
        self.build()

    def build(self, input_shape=None):
        if self.built:
            return
        self.masked_lm_head.build((None, None, self.config.hidden_size))
        self.next_sentence_head.build((None, self.config.hidden_size))

    def call(self, inputs, training=None):
        outputs = self.encoder(
            inputs, inputs[features.MASKED_LM_POSITIONS], training=training
        )
        return {
            "masked_lm_logits": self.masked_lm_head(
                outputs["sequence_output"],
                None,
                self.encoder.embeddings.word_embeddings,
            ),
            "next_sentence_logits": self.next_sentence_head(
                outputs["pooled_output"], training=training
            ),
        }


def pretraining_weights(batch):
    """Returns the denominator of each loss: {name: float32 scalar}.

    Args:
        batch: The records' features: `masked_lm_weights` float32 `[B, P]`,
            and optionally `next_sentence_labels` int32 `[B, 1]`, or `[B, S]`
            with `first_positions`, and `example_weights` float32 `[B]`, 0 for
            examples that only fill the batch. Without labels there is no
            next-sentence loss (RoBERTa, Liu et al. 2019, section 4.2).
    """
    weights = {"masked_lm_loss": ops.sum(_masked_lm_weights(batch))}
    if features.NEXT_SENTENCE_LABELS in batch:
        weights["next_sentence_loss"] = ops.sum(_next_sentence_weights(batch))
    return weights


def pretraining_losses(outputs, batch):
    """Returns the sums of the weighted cross-entropies: {name: scalar}."""
    masked_lm_BP = _cross_entropy(
        batch[features.MASKED_LM_IDS], outputs["masked_lm_logits"]
    )
    losses = {
        "masked_lm_loss": ops.sum(_masked_lm_weights(batch) * masked_lm_BP)
    }
    if features.NEXT_SENTENCE_LABELS in batch:
        next_sentence_BS = _cross_entropy(
            batch[features.NEXT_SENTENCE_LABELS], _next_sentence_logits(outputs)
        )
        losses["next_sentence_loss"] = ops.sum(
            _next_sentence_weights(batch) * next_sentence_BS
        )
    return losses


def pretraining_metrics(outputs, batch):
    """Returns the accuracies as {name: (sum, weight)}."""
    weights_BP = _masked_lm_weights(batch)
    hits_BP = _hits(batch[features.MASKED_LM_IDS], outputs["masked_lm_logits"])
    metrics = {
        "masked_lm_accuracy": (
            ops.sum(weights_BP * hits_BP),
            ops.sum(weights_BP),
        )
    }
    if features.NEXT_SENTENCE_LABELS in batch:
        weights_BS = _next_sentence_weights(batch)
        hits_BS = _hits(
            batch[features.NEXT_SENTENCE_LABELS], _next_sentence_logits(outputs)
        )
        metrics["next_sentence_accuracy"] = (
            ops.sum(weights_BS * hits_BS),
            ops.sum(weights_BS),
        )
    return metrics


def _masked_lm_weights(batch):
    return _of_examples(batch[features.MASKED_LM_WEIGHTS], batch)


def _next_sentence_weights(batch):
    """Returns float32 `[B, S]`: 1 for every sequence that there is."""
    labels_BS = batch[features.NEXT_SENTENCE_LABELS]
    weights_BS = ops.ones(ops.shape(labels_BS), "float32")
    first_positions_BS = batch.get(features.FIRST_POSITIONS)
    if first_positions_BS is not None:
        is_first_S = ops.arange(ops.shape(labels_BS)[1]) == 0
        exists_BS = ops.logical_or(first_positions_BS > 0, is_first_S)
        weights_BS = ops.cast(exists_BS, "float32")
    return _of_examples(weights_BS, batch)


def _of_examples(weights, batch):
    """Returns the weights `[B, ...]`, 0 for examples that fill the batch."""
    example_B = batch.get(features.EXAMPLE_WEIGHTS)
    return weights if example_B is None else weights * example_B[:, None]


def _next_sentence_logits(outputs):
    logits = outputs["next_sentence_logits"]
    # Rows that hold one sequence have no axis of sequences.
    return logits[:, None] if len(logits.shape) == 2 else logits


def _cross_entropy(labels, logits):
    """Returns the cross-entropies, float32 `[...]`.

    Over the vocabulary each pass costs as much as a small matrix product.
    The gradient, softmax less one at the label, is therefore made of the
    exponentials of the forward pass, and changed at the labels in place.
    """
    shape = ops.shape(labels)
    labels_N = ops.reshape(ops.cast(labels, "int32"), (-1,))

    @ops.custom_gradient
    def compute(logits_NV):
        max_N1 = ops.max(logits_NV, axis=-1, keepdims=True)
        powers_NV = ops.exp(logits_NV - max_N1)
        sum_N1 = ops.sum(powers_NV, axis=-1, keepdims=True)
        picked_N1 = ops.take_along_axis(logits_NV, labels_N[:, None], axis=-1)
        losses_N1 = ops.log(sum_N1) + max_N1 - picked_N1

        def gradient(*args, upstream=None):
            # Keras's backends give it in one or the other.
            up_N = args[0] if upstream is None else upstream
            places_N2 = ops.stack(
                [ops.arange(ops.shape(labels_N)[0]), labels_N], axis=-1
            )
            return ops.scatter_update(
                powers_NV * (up_N[:, None] / sum_N1),
                places_N2,
                (ops.exp(-losses_N1[:, 0]) - 1) * up_N,
            )

        return losses_N1[:, 0], gradient

    losses_N = compute(ops.reshape(logits, (-1, logits.shape[-1])))
    return ops.reshape(losses_N, shape)


def _hits(labels, logits):
    # Several times faster than `argmax` in TensorFlow on CPUs.
    predictions = ops.top_k(logits, 1)[1][..., 0]
    return ops.cast(ops.cast(predictions, labels.dtype) == labels, "float32")
