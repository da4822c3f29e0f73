"""One block of the encoder: self-attention and feed-forward.

Letters in tensor names: B batch, Q position that is computed, D hidden size, F
width of the feed-forward layer.
"""

from typing import Any

import keras

from bert_tf import features
from bert_tf.features import Tensor
from bert_tf.layers.attention import SelfAttention
from bert_tf.layers.attention import gather_queries
from bert_tf.layers.attention import make_attention_mask
from bert_tf.layers.basic import apply_activation
from bert_tf.layers.configured import AnyConfig
from bert_tf.layers.configured import ConfiguredLayer


@keras.saving.register_keras_serializable(package="bert_tf")
class EncoderBlock(ConfiguredLayer):
    """A post-LayerNorm Transformer block (Vaswani et al. 2017, section 3.1).

    Args:
        config: A `BertConfig`.
        attention_chunk: As in `SelfAttention`.

    Call arguments:
        inputs: float `[batch, length, hidden]`.
        attention_mask: What `layout_of` returned, or `layout_at`: bool
            `[batch, 1 or queries, length]`, True where a query may look at a
            key.
        queries: float `[batch, queries, hidden]`, rows of `inputs` that the
            block is computed for; None for all.
        seeds: Seeds of the three dropouts, from `draw_seeds`; None for new
            ones.
        return_heads: As in `SelfAttention`.

    Returns:
        float, of the shape of the queries; with `return_heads` a pair of it
        and the heads.
    """

    def __init__(
        self,
        config: AnyConfig,
        attention_chunk: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        self.attention_chunk = attention_chunk

    def build(
        self, inputs_shape, attention_mask_shape=None, queries_shape=None
    ):
        config = self.config
        self.attention = SelfAttention(
            config,
            self.attention_chunk,
            dtype=self.dtype_policy,
            name="attention",
        )
        self.attention.build((None, None, config.hidden_size))
        self.attention_dropout = self.make_dropout(
            config.hidden_dropout_prob, "attention_dropout"
        )
        self.attention_layer_norm = self.make_layer_norm("attention_layer_norm")
        self.intermediate = self.make_dense(
            config.intermediate_size, "intermediate"
        )
        self.output_dense = self.make_dense(
            config.hidden_size, "output", num_inputs=config.intermediate_size
        )
        self.output_dropout = self.make_dropout(
            config.hidden_dropout_prob, "output_dropout"
        )
        self.output_layer_norm = self.make_layer_norm("output_layer_norm")

    def call(
        self,
        inputs,
        attention_mask,
        queries=None,
        seeds=None,
        return_heads=False,
        training=None,
    ):
        if queries is None:
            queries = inputs
        if training and seeds is None:
            seeds = self.draw_seeds()
        probs_seed, attention_seed, output_seed = seeds or (None,) * 3

        # Self-attention.
        x_BQD, heads = self.attention(
            inputs,
            attention_mask,
            queries,
            probs_seed,
            return_heads=True,
            training=training,
        )
        x_BQD = self.attention_dropout(x_BQD, attention_seed, training=training)
        attended_BQD = self.attention_layer_norm(queries + x_BQD)

        # Feed-forward.
        x_BQF = self.intermediate(attended_BQD)
        x_BQF = apply_activation(self.config.hidden_act, x_BQF)
        x_BQD = self.output_dense(x_BQF)
        x_BQD = self.output_dropout(x_BQD, output_seed, training=training)
        outputs_BQD = self.output_layer_norm(attended_BQD + x_BQD)
        return (outputs_BQD, heads) if return_heads else outputs_BQD

    def draw_seeds(self) -> tuple[Tensor | None, ...]:
        """Returns the seeds of a call in training."""
        return tuple(
            dropout.draw_seed()
            for dropout in (
                self.attention.probs_dropout,
                self.attention_dropout,
                self.output_dropout,
            )
        )

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments that make a block which computes the same."""
        return self.config, self.attention_chunk

    # What a block must know of a batch beside the vectors. The encoder asks a
    # block for it, because kinds of blocks differ in it.

    def layout_of(self, inputs: features.Batch, embeddings: Any) -> Any:
        """Returns the mask of an encoder's inputs.

        Args:
            inputs: The encoder's.
            embeddings: The encoder's `BertEmbeddings`.
        """
        del embeddings
        return make_attention_mask(
            inputs[features.INPUT_MASK],
            inputs.get(features.SEQUENCE_IDS),
            left_to_right=self.config.is_decoder,
        )

    def layout_at(self, layout: Any, positions: Tensor | int) -> Any:
        """Returns the mask of the queries at `positions` alone."""
        return gather_queries(layout, positions)

    def get_config(self):
        return super().get_config() | {"attention_chunk": self.attention_chunk}
