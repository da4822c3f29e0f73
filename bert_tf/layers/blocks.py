"""Which kind of block each layer of an encoder is."""

from typing import Any
from typing import TypeAlias

from bert_tf.config import BertConfig
from bert_tf.layers.encoder_block import EncoderBlock
from bert_tf.layers.pre_norm_block import PreNormBlock
from bert_tf.layers.relative_block import RelativeBlock

Block: TypeAlias = EncoderBlock | PreNormBlock


def make_block(
    config: BertConfig,
    layer: int,
    attention_chunk: int | None = None,
    **kwargs: Any,
) -> Block:
    """Returns the block of a layer.

    Args:
        config: A `BertConfig`.
        layer: Number of the layer, from 0.
        attention_chunk: As in `SelfAttention`.
        **kwargs: Keras's.
    """
    if not config.norm_first:
        block_class = (
            RelativeBlock if config.has_relative_bias else EncoderBlock
        )
        return block_class(config, attention_chunk, **kwargs)
    return PreNormBlock(
        config,
        attention_chunk,
        is_local=config.is_local(layer),
        is_first=layer == 0,
        is_last=layer == config.num_hidden_layers - 1,
        **kwargs,
    )


def mask_of(block: Block, layout: Any) -> Any:
    """Returns who looks at whom in a block, as `attend` takes it.

    Args:
        block: The block.
        layout: What its `layout_of` returned.
    """
    if isinstance(block, PreNormBlock):
        return block.attention.mask_of(layout)
    return layout
