"""ELECTRA's discriminator: which tokens were replaced."""

from typing import Any

import keras

from bert_tf.layers.configured import AnyConfig
from bert_tf.layers.discriminator_head import DiscriminatorHead
from bert_tf.models.encoder_model import EncoderModel


@keras.saving.register_keras_serializable(package="bert_tf")
class BertDiscriminator(EncoderModel):
    """Whether each token was replaced (Clark et al. 2020, section 2).

    Args:
        config: A `BertConfig`.

    Call arguments:
        inputs: `BertEncoder`'s.

    Returns:
        float32 logits `[B, L]`, also for padding; above 0 where a token looks
        replaced.

    Raises:
        ValueError: If `config` is a dictionary not made by a `BertConfig`.

    Example:

        >>> import numpy as np
        >>> from bert_tf import BertConfig, BertDiscriminator
        >>> model = BertDiscriminator(
        ...     BertConfig.named("electra-small", vocab_size=50)
        ... )
        >>> names = ("input_ids", "input_mask", "segment_ids")
        >>> inputs = {name: np.ones((2, 5), "int32") for name in names}
        >>> tuple(model(inputs).shape)
        (2, 5)
    """

    replaces_pooler = True

    def __init__(self, config: AnyConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.discriminator_head = DiscriminatorHead(
            self.config, dtype=self.dtype_policy, name="discriminator"
        )
        self.build()

    def build(self, input_shape=None):
        if self.built:
            return
        self.discriminator_head.build((None, None, self.config.hidden_size))

    def call(self, inputs, encoder=None, training=None):
        outputs = (encoder or self.encoder)(inputs, training=training)
        return self.discriminator_head(
            outputs["sequence_output"], training=training
        )
