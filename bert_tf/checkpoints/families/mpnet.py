"""MPNet (Song et al. 2020, arXiv 2004.09297): a bias by relative positions.

RoBERTa's embeddings, without segments, and heads; BERT's blocks.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

from bert_tf.checkpoints.families import bert
from bert_tf.checkpoints.families import configs
from bert_tf.checkpoints.families import roberta
from bert_tf.checkpoints.families import tables
from bert_tf.checkpoints.families.family import Tensor
from bert_tf.config import BertConfig

_FIELDS = {
    key: field
    for key, field in roberta.FIELDS.items()
    if key not in ("is_decoder", "type_vocab_size")
}
# transformers' defaults that differ from the values of the released models, and
# what its code has whatever the file says.
_DEFAULTS = {"layer_norm_eps": 1e-12}
_REQUIRED = {"pad_token_id": 1}
_LAYER = "mpnet.encoder.layer.*.attention"
_NAMES = {
    **bert.encoder_names("mpnet"),
    "embeddings/relative_bias": "mpnet.encoder.relative_attention_bias.weight",
    "layer_*/attention/query": f"{_LAYER}.attn.q",
    "layer_*/attention/key": f"{_LAYER}.attn.k",
    "layer_*/attention/value": f"{_LAYER}.attn.v",
    "layer_*/attention/merge_heads": f"{_LAYER}.attn.o",
    "layer_*/attention_layer_norm": f"{_LAYER}.LayerNorm",
    "pooler/dense": "mpnet.pooler.dense",
    **roberta.HEAD_NAMES,
}


def _read_config(values: dict[str, Any]) -> BertConfig:
    fields = configs.read_fields(values, "MPNet", _FIELDS, _REQUIRED)
    return roberta.from_fields("mpnet", _DEFAULTS | {"padding_idx": 1} | fields)


def _write_config(config: BertConfig) -> dict[str, Any]:
    return roberta.write_config(config, _FIELDS)


def _tensors(config: BertConfig, num_labels: int) -> Iterator[Tensor]:
    return tables.make(config, num_labels, _NAMES)


FAMILY = dataclasses.replace(
    roberta.named_alike("mpnet", "MPNet"),
    tensors=_tensors,
    read_config=_read_config,
    write_config=_write_config,
    # transformers has 32 buckets, whatever the file says.
    known_keys={*_FIELDS, "relative_attention_num_buckets"},
    prefix="mpnet.",
    buffers=("embeddings.position_ids",),
    tied={
        "lm_head.decoder.weight": "mpnet.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
)
