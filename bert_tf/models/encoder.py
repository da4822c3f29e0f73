"""The BERT encoder."""

from typing import Any

import keras
from keras import ops

from bert_tf import features
from bert_tf.arguments import whole_number
from bert_tf.layers.basic import gather_positions
from bert_tf.layers.blocks import make_block
from bert_tf.layers.configured import AnyConfig
from bert_tf.layers.configured import ConfiguredModel
from bert_tf.layers.embeddings import BertEmbeddings
from bert_tf.layers.heads import Pooler
from bert_tf.layers.rematerialization import recompute
from bert_tf.models.inputs import check_alike
from bert_tf.models.inputs import check_axes
from bert_tf.models.inputs import check_names
from bert_tf.models.inputs import check_positions


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEncoder(ConfiguredModel):
    """Embeddings, a stack of encoder blocks, and a pooler.

    The model of Devlin et al. 2018, section 3, without heads. Its weights
    exist as soon as it is constructed: their shapes depend on the
    configuration alone.

    Args:
        config: A `BertConfig`.
        shared_embeddings: None, or the `BertEmbeddings` of another encoder, to
            share its tables and LayerNorm.
        attention_chunk: How many queries attention computes at once, a multiple
            of `ATTENTION_TILE`; 0 for all. None computes all of short sequences
            at once, and chunks of long ones. The outputs are the same.
        rematerialize: Whether training recomputes the blocks for the gradient
            instead of keeping their activations.
        trains_padding: Whether the word embedding of padding is trained. This
            matters only if a loss reads outputs at padding.

    Call arguments:
        inputs: A dictionary of int32 tensors, named in `bert_tf.features`:
            `input_ids`, `input_mask`, `segment_ids` `[B, L]`; for rows that
            hold several sequences also `position_ids`, `sequence_ids`
            `[B, L]` and `first_positions` `[B, S]`.
        positions: Where `sequence_output` is wanted: int32 `[B, P]` in
            `[0, L)`; None for everywhere; 0 for nowhere; or, without
            `first_positions`, a number P for the first P. Apart from keys and
            values, the last block is then computed only there and where the
            pooler reads. In a model of few blocks this saves a large part of
            the work.
        return_inside: Whether to return what is computed inside, too. The last
            block is then computed everywhere.

    Returns:
        A dictionary of float tensors:
            sequence_output: `[B, L, hidden_size]`, the last block's output;
                `[B, P, hidden_size]` with `positions`.
            pooled_output: `[B, hidden_size]`, or `[B, S, hidden_size]` if
                `first_positions` were given.
            encoder_outputs: the outputs of all blocks, a list of
                `[B, L, hidden_size]`. It excludes the embeddings and, with
                `positions`, the last block.
        With `return_inside`, `encoder_outputs` has the last block, and there
        are two more:
            embedding_output: `[B, L, hidden_size]`.
            heads: for every layer the queries, keys and values, a tuple of
                three float `[B, heads, L, head size]`. None for a layer whose
                activations training recomputes.

    Raises:
        ValueError: If `config` is a dictionary not made by a `BertConfig`, or
            `attention_chunk` is no multiple of `ATTENTION_TILE`.

    Example:

        >>> import numpy as np
        >>> from bert_tf import BertConfig, BertEncoder
        >>> model = BertEncoder(BertConfig.named("tiny", vocab_size=50))
        >>> names = ("input_ids", "input_mask", "segment_ids")
        >>> inputs = {name: np.ones((2, 5), "int32") for name in names}
        >>> outputs = model(inputs)
        >>> tuple(outputs["sequence_output"].shape)
        (2, 5, 128)
        >>> tuple(outputs["pooled_output"].shape)
        (2, 128)
    """

    def __init__(
        self,
        config: AnyConfig,
        shared_embeddings: BertEmbeddings | None = None,
        attention_chunk: int | None = None,
        rematerialize: bool = False,
        trains_padding: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        self.attention_chunk = attention_chunk
        self.rematerialize = rematerialize
        self.trains_padding = trains_padding
        self.embeddings = BertEmbeddings(
            self.config,
            shared_embeddings,
            dtype=self.dtype_policy,
            name="embeddings",
        )
        self.blocks = [
            make_block(
                self.config,
                index,
                attention_chunk,
                dtype=self.dtype_policy,
                name=f"layer_{index}",
            )
            for index in range(self.config.num_blocks)
        ]
        self.pooler = Pooler(
            self.config, dtype=self.dtype_policy, name="pooler"
        )
        self.build()

    def build(self, input_shape=None):
        if self.built:
            return
        sequence_shape = (None, None, self.config.hidden_size)
        self.embeddings.build()
        for block in self.blocks:
            block.build(sequence_shape)
        self.pooler.build(sequence_shape)

    def call(self, inputs, positions=None, return_inside=False, training=None):
        check_names(inputs, features.MODEL_INPUTS)
        check_axes(inputs, "[B, L], a batch of sequences")
        check_alike(inputs, features.MODEL_INPUTS)
        first_positions = inputs.get(features.FIRST_POSITIONS)
        check_positions(positions, first_positions)
        layout = self.blocks[0].layout_of(inputs, self.embeddings)
        leaves_padding = training and not self.trains_padding
        x = self.embeddings(
            inputs[features.INPUT_IDS],
            inputs[features.SEGMENT_IDS],
            inputs.get(features.POSITION_IDS),
            trained=inputs[features.INPUT_MASK] if leaves_padding else None,
            training=training,
        )
        # Each block is called once, unless layers share it (ALBERT).
        num_layers = self.config.num_hidden_layers
        blocks = [
            self.blocks[index * len(self.blocks) // num_layers]
            for index in range(num_layers)
        ]
        embedded, encoder_outputs, heads = x, [], []
        is_partial = positions is not None and not return_inside
        for block in blocks[:-1] if is_partial else blocks:
            x, its_heads = self._call_block(
                block, x, layout, None, return_inside, training
            )
            encoder_outputs.append(x)
            heads.append(its_heads)
        if is_partial:
            x, pooled_output = self._call_last_at(
                positions, blocks[-1], x, layout, first_positions, training
            )
        else:
            pooled_output = self.pooler(x, first_positions)
            if positions is not None:
                x = gather_positions(x, positions)
        outputs = {
            "sequence_output": x,
            "pooled_output": pooled_output,
            "encoder_outputs": encoder_outputs,
        }
        if return_inside:
            outputs |= {"embedding_output": embedded, "heads": heads}
        return outputs

    def pool(
        self, inputs: features.Batch, training: bool | None = None
    ) -> features.Tensor:
        """Returns `pooled_output`; the last block computes nothing else."""
        return self(inputs, positions=0, training=training)["pooled_output"]

    def enable_lora(self, rank: int, alpha: float | None = None) -> None:
        """Freezes the encoder, but for low-rank updates of queries and values.

        LoRA (Hu et al. 2021, arXiv 2106.09685, section 4). The kernels W of the
        query and value layers become W + alpha / rank * A B, and only A and B
        are trained. B begins as 0, so the outputs do not change at first. Heads
        outside the encoder are trained as before. `bert_tf.save` and Keras's
        own files hold the sums, as an ordinary model has them.

        Call it before `compile`. Do not set `trainable` of the model or of the
        encoder to True afterwards: that would unfreeze all of it.

        Args:
            rank: Number of columns of A and rows of B, 1 or more.
            alpha: Factor of the updates, times `rank`; None for `rank`.

        Raises:
            ValueError: If `rank` is no integer, or below 1; if it was called
                before.
        """
        rank = whole_number("rank", rank)
        if rank < 1:
            raise ValueError(
                f"`rank` must be 1 or more. Received: rank={rank}."
            )
        adapted = [
            getattr(block.attention, name)
            for block in self.blocks
            for name in block.attention.adapted
        ]
        if any(dense.lora_enabled for dense in adapted):
            raise ValueError(
                "`enable_lora` can be called once. Received: a second call."
            )
        # Not `self.trainable`, which would freeze A and B too.
        for variable in self.trainable_variables:
            variable.trainable = False
        for dense in adapted:
            dense.enable_lora(rank, lora_alpha=alpha)

    def get_config(self):
        return super().get_config() | {
            "attention_chunk": self.attention_chunk,
            "rematerialize": self.rematerialize,
            "trains_padding": self.trains_padding,
        }

    def _call_last_at(
        self, positions, block, x, layout, first_positions, training
    ):
        """Calls the last block only at `positions` and where the pooler reads.

        Returns:
            `sequence_output` and `pooled_output`.
        """
        if isinstance(positions, int) and first_positions is None:
            x = self._call_block_at(
                max(positions, 1), block, x, layout, training
            )
            return x[:, :positions], self.pooler(x)
        pooled = first_positions
        if pooled is None:
            pooled = ops.zeros((ops.shape(x)[0], 1), "int32")
        # The positions to be pooled come before the others.
        computed = ops.cast(pooled, "int32")
        if not isinstance(positions, int):
            computed = ops.concatenate(
                [computed, ops.cast(positions, "int32")], axis=1
            )
        x = self._call_block_at(computed, block, x, layout, training)
        num_pooled = ops.shape(pooled)[1]
        if first_positions is None:
            return x[:, num_pooled:], self.pooler(x)
        # The first tokens of the packed sequences are now in front.
        places = ops.broadcast_to(ops.arange(num_pooled), ops.shape(pooled))
        return x[:, num_pooled:], self.pooler(x, places)

    def _call_block_at(self, positions, block, x, layout, training):
        x, _ = self._call_block(
            block,
            x,
            block.layout_at(layout, positions),
            gather_positions(x, positions),
            False,
            training,
        )
        return x

    def _call_block(self, block, x, layout, queries, return_heads, training):
        """Returns the block's output and, if they are wanted, its heads."""
        if self.rematerialize and training:
            return recompute(block, x, layout, queries), None
        outputs = block(
            x,
            layout,
            queries,
            return_heads=return_heads,
            training=training,
        )
        return outputs if return_heads else (outputs, None)
