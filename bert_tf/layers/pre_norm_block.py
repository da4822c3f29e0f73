"""One block of a ModernBERT: what it reads is normalised, not what it adds up.

Letters in tensor names: B batch, Q position that is computed, D hidden size.
"""

from typing import Any

import keras

from bert_tf import features
from bert_tf.features import Tensor
from bert_tf.layers import rotary_attention
from bert_tf.layers.configured import AnyConfig
from bert_tf.layers.configured import ConfiguredLayer
from bert_tf.layers.gated import GatedFeedForward
from bert_tf.layers.rotary_attention import RotaryAttention


@keras.saving.register_keras_serializable(package="bert_tf")
class PreNormBlock(ConfiguredLayer):
    """A pre-LayerNorm block (Warner et al. 2024, arXiv 2412.13663).

    x += attention(norm(x)); x += feed_forward(norm(x)).

    Args:
        config: A `BertConfig`.
        attention_chunk, is_local: As in `RotaryAttention`.
        is_first: Whether it has no norm before the attention: the embeddings
            have one.
        is_last: Whether its outputs are normalised, as no block reads them.

    Call arguments and returns: those of `EncoderBlock`.
    """

    def __init__(
        self,
        config: AnyConfig,
        attention_chunk: int | None = None,
        is_local: bool = False,
        is_first: bool = False,
        is_last: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        self.attention_chunk = attention_chunk
        self.is_local = is_local
        self.is_first = is_first
        self.is_last = is_last

    def build(self, inputs_shape, *other_shapes):
        config = self.config
        if not self.is_first:
            self.attention_layer_norm = self.make_layer_norm(
                "attention_layer_norm"
            )
        self.attention = RotaryAttention(
            config,
            self.attention_chunk,
            self.is_local,
            dtype=self.dtype_policy,
            name="attention",
        )
        self.attention.build((None, None, config.hidden_size))
        self.attention_dropout = self.make_dropout(
            config.hidden_dropout_prob, "attention_dropout"
        )
        self.feed_forward_layer_norm = self.make_layer_norm(
            "feed_forward_layer_norm"
        )
        self.feed_forward = GatedFeedForward(
            config, dtype=self.dtype_policy, name="feed_forward"
        )
        self.feed_forward.build((None, None, config.hidden_size))
        if self.is_last:
            self.final_layer_norm = self.make_layer_norm("final_layer_norm")

    def call(
        self,
        inputs,
        layout,
        queries=None,
        seeds=None,
        return_heads=False,
        training=None,
    ):
        if queries is None:
            queries = inputs
        if training and seeds is None:
            seeds = self.draw_seeds()
        probs_seed, attention_seed, inner_seed = seeds or (None,) * 3

        x = inputs if self.is_first else self.attention_layer_norm(inputs)
        x_BQD, heads = self.attention(
            x, layout, probs_seed, return_heads=True, training=training
        )
        x_BQD = self.attention_dropout(x_BQD, attention_seed, training=training)
        attended_BQD = queries + x_BQD
        x_BQD = self.feed_forward(
            self.feed_forward_layer_norm(attended_BQD),
            inner_seed,
            training=training,
        )
        outputs_BQD = attended_BQD + x_BQD
        if self.is_last:
            outputs_BQD = self.final_layer_norm(outputs_BQD)
        return (outputs_BQD, heads) if return_heads else outputs_BQD

    def draw_seeds(self) -> tuple[Tensor | None, ...]:
        """Returns the seeds of a call in training."""
        return tuple(
            dropout.draw_seed()
            for dropout in (
                self.attention.probs_dropout,
                self.attention_dropout,
                self.feed_forward.inner_dropout,
            )
        )

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments that make a block which computes the same."""
        places = (self.is_local, self.is_first, self.is_last)
        return self.config, self.attention_chunk, *places

    def layout_of(
        self, inputs: features.Batch, embeddings: Any
    ) -> dict[str, Tensor]:
        """Returns what the attention must know of an encoder's inputs."""
        del embeddings
        return rotary_attention.make_layout(inputs)

    def layout_at(
        self, layout: dict[str, Tensor], positions: Tensor | int
    ) -> dict[str, Tensor]:
        """Returns the layout of the queries at `positions` alone."""
        return rotary_attention.layout_at(layout, positions)

    def get_config(self):
        return super().get_config() | {
            "attention_chunk": self.attention_chunk,
            "is_local": self.is_local,
            "is_first": self.is_first,
            "is_last": self.is_last,
        }
