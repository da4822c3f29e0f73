"""ELECTRA's pre-training: a generator, and a discriminator of its samples."""

import dataclasses
from typing import Any

import keras
from keras import ops

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.layers.configured import AnyConfig
from bert_tf.layers.configured import ConfiguredModel
from bert_tf.layers.configured import from_dict
from bert_tf.layers.sampling import sample_classes
from bert_tf.models.discriminator import BertDiscriminator
from bert_tf.models.objectives import PRETRAINING
from bert_tf.models.objectives import Objective
from bert_tf.models.objectives import by_example
from bert_tf.models.pretrainer import BertPretrainer

# The size of heads in google-research/electra.
_HEAD_SIZE = 64


def generator_config(config: BertConfig, size: float) -> BertConfig:
    """Returns the configuration of a discriminator's generator.

    As in google-research/electra, the generator has as many layers but a
    smaller width, a head for every 64 of the width, and feed-forward layers of
    4 times the width. If the number of heads does not divide the width, it is
    the next lower one that does.

    Args:
        config: The discriminator's `BertConfig`.
        size: The generator's width as a share of the discriminator's, in
            (0, 1]: a quarter in ELECTRA's small and large, a third in its base.

    Raises:
        ValueError: If `size` is out of its range.
    """
    if not 0 < size <= 1:
        raise ValueError(
            "`generator_size` must be above 0, and at most 1. Received: "
            f"generator_size={size}."
        )
    width = max(1, round(config.hidden_size * size))
    num_heads = max(1, width // _HEAD_SIZE)
    while width % num_heads:
        num_heads -= 1
    is_as_wide = width == config.embedding_width
    return dataclasses.replace(
        config,
        hidden_size=width,
        num_attention_heads=num_heads,
        intermediate_size=4 * width,
        embedding_size=None if is_as_wide else config.embedding_width,
    )


@keras.saving.register_keras_serializable(package="bert_tf")
class ReplacedTokensPretrainer(ConfiguredModel):
    """Replaced-token detection (Clark et al. 2020, section 2).

    The generator predicts the masked tokens. A sample of each prediction
    replaces the mask, without a gradient, and the discriminator predicts for
    every token whether it differs from the text's. The two share the embeddings
    and their LayerNorm, but each has its own projection.

    Args:
        config: The discriminator's `BertConfig`.
        generator: The generator's `BertConfig`. Its embeddings must have the
            same width; it may differ in any other size.
        num_words: How many of the words may replace a mask: the first ones.
            None for all; a model may have more rows than its vocabulary has
            entries.

    Call arguments:
        inputs: `BertEncoder`'s; `masked_lm_positions`, `masked_lm_ids` int32
            and `masked_lm_weights` float32 `[B, P]`; and `replacement_draws`
            int32 `[B, P, 2]` in [0, 2**23), which determine the samples.

    Returns:
        A dictionary: float32 `masked_lm_logits` `[B, P, vocab_size]` and
        `discriminator_logits` `[B, L]`; int32 `replaced` `[B, L]`, 1 where the
        discriminator saw another token than the text's.

    Attributes:
        generator: A `BertPretrainer`.
        discriminator: A `BertDiscriminator`.

    Raises:
        ValueError: If the embeddings of the two do not match.
    """

    def __init__(
        self,
        config: AnyConfig,
        generator: AnyConfig,
        num_words: int | None = None,
        attention_chunk: int | None = None,
        rematerialize: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        if not isinstance(generator, BertConfig):
            generator = from_dict(generator)
        self.generator_config = generator
        self.num_words = num_words
        for name in (
            "vocab_size",
            "max_position_embeddings",
            "type_vocab_size",
            "embedding_width",
            "padding_idx",
        ):
            values = getattr(self.config, name), getattr(generator, name)
            if values[0] != values[1]:
                raise ValueError(
                    "Generator and discriminator must share their embeddings. "
                    f"Received: {name}={values[1]} of the generator, "
                    f"{name}={values[0]} of the discriminator."
                )
        computing = {
            "attention_chunk": attention_chunk,
            "rematerialize": rematerialize,
            "dtype": self.dtype_policy,
        }
        self.discriminator = BertDiscriminator(
            self.config, name="discriminator", **computing
        )
        self.generator = BertPretrainer(
            generator,
            shared_embeddings=self.discriminator.encoder.embeddings,
            name="generator",
            **computing,
        )
        self.build()

    def build(self, input_shape=None):
        # Both parts have built themselves.
        self.built = True

    def call(self, inputs, training=None):
        logits_BPV = self.generator(inputs, training=training)[
            "masked_lm_logits"
        ]
        sampled_BP = sample_classes(
            logits_BPV[..., : self.num_words],
            inputs[features.REPLACEMENT_DRAWS],
        )
        input_ids, replaced = replace_tokens(inputs, sampled_BP)
        return {
            "masked_lm_logits": logits_BPV,
            "discriminator_logits": self.discriminator(
                {**inputs, features.INPUT_IDS: input_ids}, training=training
            ),
            "replaced": replaced,
        }

    def get_config(self):
        return super().get_config() | {
            "generator": self.generator_config.to_dict(),
            "num_words": self.num_words,
            "attention_chunk": self.discriminator.encoder.attention_chunk,
            "rematerialize": self.discriminator.encoder.rematerialize,
        }


def replace_tokens(
    inputs: features.Batch, sampled: features.Tensor
) -> tuple[features.Tensor, features.Tensor]:
    """Puts sampled tokens in the places of the masked ones.

    Args:
        inputs: `input_ids` `[B, L]`, and `masked_lm_positions`,
            `masked_lm_ids` and `masked_lm_weights` `[B, P]`. Slots of weight 0
            change nothing.
        sampled: int32 `[B, P]`.

    Returns:
        Two int32 `[B, L]`: the ids; and 1 where they differ from the text's,
        otherwise 0.
    """
    input_ids = ops.cast(inputs[features.INPUT_IDS], "int32")
    is_slot_BP = inputs[features.MASKED_LM_WEIGHTS] > 0
    # In float32, which holds positions and ids exactly. On GPUs, int32 is
    # compared and added in host memory.
    positions_BP = ops.cast(inputs[features.MASKED_LM_POSITIONS], "float32")
    # No position has this number.
    places_BP = ops.where(is_slot_BP, positions_BP, -1.0)
    length = ops.shape(input_ids)[1]
    is_here_BPL = ops.equal(
        places_BP[:, :, None], ops.arange(length, dtype="float32")
    )
    is_masked_BL = ops.any(is_here_BPL, axis=1)

    def put(values_BP):
        # A position has at most one slot, so that the sum has one term.
        values_BP = ops.cast(values_BP, "float32")
        here_BPL = ops.where(is_here_BPL, values_BP[:, :, None], 0.0)
        return ops.cast(ops.sum(here_BPL, axis=1), "int32")

    is_other_BP = ops.not_equal(sampled, inputs[features.MASKED_LM_IDS])
    new_ids = ops.where(is_masked_BL, put(sampled), input_ids)
    return new_ids, put(is_other_BP)


def replaced_tokens(discriminator_weight: float = 50.0) -> Objective:
    """Returns ELECTRA's objective (Clark et al. 2020, equation 5).

    For a `ReplacedTokensPretrainer`: the masked-LM loss of the generator, plus
    the binary cross-entropy of the discriminator as a mean over all tokens,
    including [CLS] and [SEP].

    Args:
        discriminator_weight: Factor of the second loss, 50 in the paper.
    """

    def token_weights(batch):
        return by_example(
            ops.cast(batch[features.INPUT_MASK], "float32"), batch
        )

    def weights(batch):
        return PRETRAINING.weights(_without_pairs(batch)) | {
            "discriminator_loss": ops.sum(token_weights(batch))
        }

    def losses(outputs, batch):
        total = ops.sum(
            token_weights(batch)
            * _binary_cross_entropy(
                outputs["discriminator_logits"], outputs["replaced"]
            )
        )
        return PRETRAINING.losses(outputs, _without_pairs(batch)) | {
            "discriminator_loss": total
        }

    def metrics(outputs, batch):
        weights_BL = token_weights(batch)
        num_tokens = ops.sum(weights_BL)
        logits_BL = outputs["discriminator_logits"]
        is_replaced_BL = ops.cast(outputs["replaced"], "float32")
        is_predicted_BL = ops.cast(logits_BL > 0, "float32")
        num_replaced = ops.sum(weights_BL * is_replaced_BL)
        num_predicted = ops.sum(weights_BL * is_predicted_BL)
        num_hits = ops.sum(weights_BL * is_replaced_BL * is_predicted_BL)
        # Replaced and predicted to be, or neither.
        num_right = num_tokens - num_replaced - num_predicted + 2 * num_hits
        return PRETRAINING.metrics(outputs, _without_pairs(batch)) | {
            "discriminator_accuracy": (num_right, num_tokens),
            "discriminator_precision": (num_hits, num_predicted),
            "discriminator_recall": (num_hits, num_replaced),
            "replaced_share": (num_replaced, num_tokens),
        }

    return Objective(
        weights=weights,
        losses=losses,
        metrics=metrics,
        # As in google-research/electra.
        weight_epsilon=1e-6,
        loss_weights={"discriminator_loss": discriminator_weight},
    )


def _without_pairs(batch):
    """Returns a batch without labels of pairs: ELECTRA has no head for them."""
    return {
        name: value
        for name, value in batch.items()
        if name != features.NEXT_SENTENCE_LABELS
    }


def _binary_cross_entropy(logits, labels):
    """Returns float32 of the shape of the logits; labels are 0 or 1."""
    logits = ops.cast(logits, "float32")
    labels = ops.cast(labels, "float32")
    return ops.softplus(logits) - logits * labels
