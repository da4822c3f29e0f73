"""Where an encoder looks: the attention probabilities of all layers.

Letters in tensor names: B batch, L position, Q query, K key, N attention
heads, T layers.
"""

from keras import ops

from bert_tf.features import Batch
from bert_tf.features import Tensor
from bert_tf.layers import attention
from bert_tf.layers.blocks import mask_of
from bert_tf.models.encoder import BertEncoder


def attention_probs(encoder: BertEncoder, inputs: Batch) -> Tensor:
    """Returns the attention probabilities of every layer and head.

    They are computed as in `attend`, from the queries and keys of the layers in
    this call. Layers that share weights (ALBERT) have their own probabilities.

    Args:
        encoder: A `BertEncoder` of any family.
        inputs: Its inputs, int32 `[B, L]`.

    Returns:
        float32 `[B, T, N, Q, K]`, how much each query looks at each key; 0 for
        keys that it may not look at. Queries at padding look at all tokens.
    """
    outputs = encoder(inputs, return_inside=True, training=False)
    blocks, num_layers = encoder.blocks, encoder.config.num_hidden_layers
    layout = blocks[0].layout_of(inputs, encoder.embeddings)
    return ops.stack(
        [
            attention.attention_probs(
                query_BNQH,
                key_BNKH,
                mask_of(blocks[index * len(blocks) // num_layers], layout),
            )
            for index, (query_BNQH, key_BNKH, _) in enumerate(outputs["heads"])
        ],
        axis=1,
    )
