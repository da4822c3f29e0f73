"""Self-attention with rotary positions, to all tokens or in windows.

Letters in tensor names: B batch, L position, Q query, D hidden size, N
attention heads, H size of one head.
"""

from typing import Any

import keras
from keras import ops

from bert_tf import features
from bert_tf.features import Tensor
from bert_tf.layers.attention import SelfAttention
from bert_tf.layers.attention import attend
from bert_tf.layers.attention import gather_queries
from bert_tf.layers.attention import make_attention_mask
from bert_tf.layers.basic import gather_positions
from bert_tf.layers.configured import AnyConfig
from bert_tf.layers.rotary import rotate
from bert_tf.layers.windows import attend_in_windows

# What a layout has besides the encoder's inputs. Of queries at some positions:
# the positions, int32 `[1 or B, Q]`.
_MASK, _PLACES, _ROWS = "attention_mask", "places", "rows"


@keras.saving.register_keras_serializable(package="bert_tf")
class RotaryAttention(SelfAttention):
    """Self-attention whose queries and keys are turned by their places.

    One product makes queries, keys and values.

    Args:
        config: A `BertConfig` with a `rotary_theta`.
        attention_chunk: As in `SelfAttention`; not for windows.
        is_local: Whether tokens see only the configuration's
            `attention_window`.

    Call arguments:
        inputs: float `[batch, length, hidden]`.
        layout: What `make_layout` returned, or `layout_at`.
        seed, return_heads: As in `SelfAttention`. Heads are turned.

    Returns:
        float `[batch, queries, hidden]`; with `return_heads` a pair of it and
        the heads.
    """

    adapted = ("query_key_value",)

    def __init__(
        self,
        config: AnyConfig,
        attention_chunk: int | None = None,
        is_local: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, attention_chunk, **kwargs)
        self.is_local = is_local
        theta = self.config.local_rotary_theta if is_local else None
        theta = theta or self.config.rotary_theta
        if theta is None:
            raise ValueError(
                "`rotary_theta` must be given in a configuration with "
                "`norm_first`. Received: rotary_theta=None."
            )
        self.theta = theta
        if self.config.is_decoder:
            raise ValueError(
                "`is_decoder` must be False in a configuration with "
                "`norm_first`, which looks to both sides. Received: "
                "is_decoder=True."
            )

    def build(self, inputs_shape, *other_shapes):
        config = self.config
        self.query_key_value = self.make_dense(
            3 * config.hidden_size, "query_key_value"
        )
        self.merge_heads = self.make_dense(
            config.hidden_size, "merge_heads", stddev=config.output_range
        )
        self.probs_dropout = self.make_dropout(
            config.attention_probs_dropout_prob, "probs_dropout"
        )

    def call(  # type: ignore[override]
        self, inputs, layout, seed=None, return_heads=False, training=None
    ):
        heads = self._heads(
            self.query_key_value(inputs, training=training), layout
        )
        if training and seed is None:
            seed = self.probs_dropout.draw_seed()
        context_BQNH = self._attend(heads, layout, seed if training else None)
        batch_size, num_queries, *_ = ops.shape(context_BQNH)
        outputs_BQD = self.merge_heads(
            ops.reshape(
                context_BQNH,
                (batch_size, num_queries, self.config.hidden_size),
            ),
            training=training,
        )
        if return_heads:
            return outputs_BQD, tuple(map(_swap, heads))
        return outputs_BQD

    def mask_of(self, layout: dict[str, Tensor]) -> Tensor:
        """Returns the mask of the whole rows, with the window."""
        mask, rows = layout[_MASK], layout.get(_ROWS)
        if rows is not None:
            mask = gather_queries(mask, rows)
        if not self.is_local:
            return mask
        length = ops.shape(layout[_PLACES])[1]
        keys_L = ops.cast(ops.arange(length), "float32")
        own = keys_L[None] if rows is None else ops.cast(rows, "float32")
        distance = ops.square(own[:, :, None] - keys_L)
        near = distance <= (self.config.attention_window or 0) ** 2
        return ops.logical_and(mask, near)

    def _heads(self, x_BLT, layout):
        """Returns queries, keys and values, float `[B, Q or L, N, H]`."""
        batch_size, length, _ = ops.shape(x_BLT)
        hidden_size = self.config.hidden_size
        num_heads = self.config.num_attention_heads
        shape = (num_heads, hidden_size // num_heads)
        query, key, value = (
            ops.reshape(
                x_BLT[..., start : start + hidden_size],
                (batch_size, length, *shape),
            )
            for start in range(0, 3 * hidden_size, hidden_size)
        )
        query, key = (
            rotate(x, layout[_PLACES], self.theta) for x in (query, key)
        )
        rows = layout.get(_ROWS)
        if rows is None:
            return query, key, value
        flat = ops.reshape(query, (batch_size, length, hidden_size))
        flat = gather_positions(flat, rows)
        num_queries = ops.shape(flat)[1]
        query = ops.reshape(flat, (batch_size, num_queries, *shape))
        return query, key, value

    def _attend(self, heads, layout, seed):
        """Returns the context, float `[B, Q, N, H]`."""
        query, key, value = heads
        length, window = key.shape[1], self.config.attention_window
        rate = self.probs_dropout.rate
        has_all_rows = self.is_local and _ROWS not in layout
        if (
            window is not None
            and has_all_rows
            # In fewer tokens, all see each other.
            and not (isinstance(length, int) and length <= window + 1)
        ):
            return attend_in_windows(
                query,
                key,
                value,
                window,
                layout[features.INPUT_MASK],
                layout.get(features.SEQUENCE_IDS),
                rate,
                seed,
            )
        context_BNQH = attend(
            _swap(query),
            _swap(key),
            _swap(value),
            self.mask_of(layout),
            rate,
            seed,
            self._chunk(query.shape[1]),
        )
        return _swap(context_BNQH)

    def get_config(self):
        return super().get_config() | {"is_local": self.is_local}


def make_layout(inputs: features.Batch) -> dict[str, Tensor]:
    """Returns what `RotaryAttention` must know of an encoder's inputs."""
    input_mask = inputs[features.INPUT_MASK]
    sequence_ids = inputs.get(features.SEQUENCE_IDS)
    places = inputs.get(features.POSITION_IDS)
    if places is None:
        places = ops.arange(ops.shape(input_mask)[1])[None]
    layout = {
        features.INPUT_MASK: input_mask,
        features.SEQUENCE_IDS: sequence_ids,
        _MASK: make_attention_mask(input_mask, sequence_ids),
        # Not floats, of which Keras would make 16 bits.
        _PLACES: ops.cast(places, "int32"),
    }
    return {name: each for name, each in layout.items() if each is not None}


def layout_at(
    layout: dict[str, Tensor], positions: Tensor | int
) -> dict[str, Tensor]:
    """Returns the layout of the queries at `positions` alone.

    Args:
        layout: What `make_layout` returned.
        positions: As in `gather_positions`.
    """
    if isinstance(positions, int):
        batch_size = ops.shape(layout[features.INPUT_MASK])[0]
        positions = ops.broadcast_to(
            ops.arange(positions)[None], (batch_size, positions)
        )
    return layout | {_ROWS: ops.cast(positions, "int32")}


def _swap(x):
    """Swaps positions and heads."""
    return ops.transpose(x, (0, 2, 1, 3))
