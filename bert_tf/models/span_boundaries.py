"""SpanBERT's pre-training: spans are predicted from what is around them.

Letters in tensor names: B batch, L position, P predictions per sequence.
"""

from typing import Any

import keras
from keras import ops

from bert_tf import features
from bert_tf.layers.basic import gather_positions
from bert_tf.layers.configured import AnyConfig
from bert_tf.layers.configured import ConfiguredModel
from bert_tf.layers.span_boundary_head import SpanBoundaryHead
from bert_tf.models.objectives import PRETRAINING
from bert_tf.models.objectives import Objective
from bert_tf.models.objectives import by_example
from bert_tf.models.objectives import cross_entropy
from bert_tf.models.objectives import hits
from bert_tf.models.pretrainer import BertPretrainer


@keras.saving.register_keras_serializable(package="bert_tf")
class SpanBoundaryPretrainer(ConfiguredModel):
    """A `BertPretrainer`, and the span-boundary objective (SpanBERT).

    Joshi et al. 2020 (arXiv 1907.10529), section 3.2: every token of a masked
    span is also predicted from the outputs at the two tokens around the span
    and from its place in it.

    Args:
        config: A `BertConfig`.
        attention_chunk, rematerialize: As in `BertEncoder`.

    Call arguments:
        inputs: `BertPretrainer`'s, and `masked_lm_weights` `[B, P]`. The spans
            are found by `span_boundaries`.

    Returns:
        What the `BertPretrainer` returns, and `span_boundary_logits`, float32
        `[B, P, vocab_size]`. These are meaningless where `span_boundaries` has
        weight 0.

    Attributes:
        pretrainer: The `BertPretrainer`, the only part that is saved.
    """

    def __init__(
        self,
        config: AnyConfig,
        attention_chunk: int | None = None,
        rematerialize: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        self.pretrainer = BertPretrainer(
            self.config,
            attention_chunk=attention_chunk,
            rematerialize=rematerialize,
            dtype=self.dtype_policy,
            name="pretrainer",
        )
        self.span_boundary_head = SpanBoundaryHead(
            self.config, dtype=self.dtype_policy, name="span_boundary"
        )
        self.build()

    def build(self, input_shape=None):
        if self.built:
            return
        self.span_boundary_head.build()

    def call(self, inputs, training=None):
        spans = span_boundaries(inputs)
        positions = inputs[features.MASKED_LM_POSITIONS]
        num_predictions = ops.shape(positions)[1]
        encoder = self.pretrainer.encoder
        outputs = encoder(
            inputs,
            ops.concatenate(
                [positions, spans["before"], spans["after"]], axis=1
            ),
            training=training,
        )
        sequence = outputs["sequence_output"]
        logits = self.pretrainer.score(
            sequence[:, :num_predictions], outputs["pooled_output"], training
        )
        logits["span_boundary_logits"] = self.span_boundary_head(
            sequence[:, num_predictions : 2 * num_predictions],
            sequence[:, 2 * num_predictions :],
            spans["place"],
            encoder.embeddings.word_embeddings,
        )
        return logits

    def get_config(self):
        return super().get_config() | {
            "attention_chunk": self.pretrainer.encoder.attention_chunk,
            "rematerialize": self.pretrainer.encoder.rematerialize,
        }


def span_boundaries(inputs: features.Batch) -> dict[str, features.Tensor]:
    """Finds the spans of masked tokens, and the positions around them.

    A span is a run of masked tokens, as in SpanBERT's code: two that touch are
    one. So the records need not say which tokens were chosen together. Records
    that were not masked by spans have spans too, but short ones.

    Args:
        inputs: `input_mask` `[B, L]`; `masked_lm_positions` and
            `masked_lm_weights` `[B, P]`, positions ascending and weights 0
            after the predictions; for packed rows also `sequence_ids` `[B, L]`.

    Returns:
        A dictionary, `[B, P]` each: int32 `before` and `after`, the positions
        around the span of each prediction; int32 `place`, the prediction's
        number in its span, from 0; float32 `weights`, 1 on the predictions that
        the objective is for. These are the first `SpanBoundaryHead.NUM_PLACES`
        of a span that has tokens of its own sequence on both sides.
    """
    # In float32, which holds positions exactly. On GPUs, TensorFlow computes
    # with int32 in host memory.
    positions_BP = ops.cast(inputs[features.MASKED_LM_POSITIONS], "float32")
    is_slot_BP = inputs[features.MASKED_LM_WEIGHTS] > 0
    # Without sequence ids, the mask tells text from padding just as well.
    sequence_BL = inputs.get(features.SEQUENCE_IDS)
    if sequence_BL is None:
        sequence_BL = inputs[features.INPUT_MASK]
    sequence_BL1 = ops.cast(sequence_BL, "float32")[:, :, None]
    last_place = ops.cast(ops.shape(sequence_BL)[1] - 1, "float32")

    # Slots i and j are in the same span if positions rise by one between them.
    steps_BP = positions_BP - ops.arange(
        ops.shape(positions_BP)[1], dtype="float32"
    )
    is_same_BPP = ops.logical_and(
        ops.equal(steps_BP[:, :, None], steps_BP[:, None, :]),
        is_slot_BP[:, None, :],
    )
    here_B1P = positions_BP[:, None, :]
    first_BP = ops.min(ops.where(is_same_BPP, here_B1P, last_place + 1), axis=2)
    last_BP = ops.max(ops.where(is_same_BPP, here_B1P, -1.0), axis=2)
    place_BP = positions_BP - first_BP

    def clipped(at_BP, most=last_place):
        return ops.cast(ops.clip(at_BP, 0.0, most), "int32")

    def sequence_at(at_BP):
        return gather_positions(sequence_BL1, at_BP)[..., 0]

    before_BP, after_BP = clipped(first_BP - 1), clipped(last_BP + 1)
    own_BP = sequence_at(clipped(positions_BP))
    is_told = (
        is_slot_BP,
        place_BP < SpanBoundaryHead.NUM_PLACES,
        first_BP > 0,
        last_BP < last_place,
        ops.equal(sequence_at(before_BP), own_BP),
        ops.equal(sequence_at(after_BP), own_BP),
    )
    weights_BP = 1.0
    for each_BP in is_told:
        weights_BP = weights_BP * ops.cast(each_BP, "float32")
    return {
        "before": before_BP,
        "after": after_BP,
        "place": clipped(place_BP, SpanBoundaryHead.NUM_PLACES - 1.0),
        "weights": weights_BP,
    }


def _targets(batch):
    """Returns (labels, float32 weights) of the span-boundary objective."""
    weights_BP = by_example(span_boundaries(batch)["weights"], batch)
    return batch[features.MASKED_LM_IDS], weights_BP


def _losses_of_spans(outputs, batch):
    labels, weights = _targets(batch)
    losses = cross_entropy(outputs["span_boundary_logits"], labels)
    return PRETRAINING.losses(outputs, batch) | {
        "span_boundary_loss": ops.sum(weights * losses)
    }


def _metrics_of_spans(outputs, batch):
    return PRETRAINING.metrics(outputs, batch) | {
        "span_boundary_accuracy": hits(
            outputs["span_boundary_logits"], *_targets(batch)
        )
    }


SPAN_BOUNDARIES = Objective(
    weights=lambda batch: (
        PRETRAINING.weights(batch)
        | {"span_boundary_loss": ops.sum(_targets(batch)[1])}
    ),
    losses=_losses_of_spans,
    metrics=_metrics_of_spans,
    weight_epsilon={
        "masked_lm_loss": 1e-5,
        "next_sentence_loss": 1e-5,
        # As in SpanBERT's code.
        "span_boundary_loss": 1.0,
    },
)
