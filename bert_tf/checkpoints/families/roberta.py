"""RoBERTa, XLM-RoBERTa and CamemBERT: positions counted from the ids.

Liu et al. 2019 (arXiv 1907.11692), Conneau et al. 2020 (arXiv 1911.02116),
Martin et al. 2020 (arXiv 1911.03894). There is one segment.
"""

import dataclasses
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from bert_tf.checkpoints.families import bert
from bert_tf.checkpoints.families import configs
from bert_tf.checkpoints.families import tables
from bert_tf.checkpoints.families.family import Family
from bert_tf.checkpoints.families.family import Tensor
from bert_tf.checkpoints.parts import CLASSIFIER
from bert_tf.checkpoints.parts import ENCODER
from bert_tf.checkpoints.parts import MASKED_LM
from bert_tf.checkpoints.parts import MULTIPLE_CHOICE
from bert_tf.checkpoints.parts import POOLER
from bert_tf.checkpoints.parts import SPAN
from bert_tf.checkpoints.parts import TOKEN_CLASSIFIER
from bert_tf.config import BertConfig

FIELDS = configs.BERT_FIELDS | {"pad_token_id": "padding_idx"}
# transformers' defaults that differ from the values of the released models.
_DEFAULTS = {"type_vocab_size": 2, "layer_norm_eps": 1e-12, "padding_idx": 1}
HEAD_NAMES = {
    "masked_lm/transform": "lm_head.dense",
    "masked_lm/layer_norm": "lm_head.layer_norm",
    "masked_lm/output_bias": "lm_head.bias",
    "classifier_hidden/dense": "classifier.dense",
    "classifier/dense": "classifier.out_proj",
    "token_classifier/dense": "classifier",
    "span/dense": "qa_outputs",
    "multiple_choice/dense": "classifier",
}
_NAMES = {
    **bert.encoder_names("roberta"),
    "pooler/dense": "roberta.pooler.dense",
    **HEAD_NAMES,
}


def _read_config(values: dict[str, Any]) -> BertConfig:
    fields = _DEFAULTS | configs.read_fields(values, "RoBERTa", FIELDS)
    return from_fields(values.get("model_type", "roberta"), fields)


def from_fields(model_type: str, fields: dict[str, Any]) -> BertConfig:
    """Returns a configuration whose file counts the rows of positions.

    Args:
        model_type: The family.
        fields: The fields that the file has; `max_position_embeddings` are the
            rows.
    """
    rows, padding_idx = (
        fields.get("max_position_embeddings", 512),
        fields["padding_idx"],
    )
    if type(rows) is int and type(padding_idx) is int:
        # The rows up to `padding_idx` belong to no position.
        fields["max_position_embeddings"] = rows - padding_idx - 1
    return configs.of_family(model_type, fields)


def write_config(
    config: BertConfig, fields: Mapping[str, str] = FIELDS
) -> dict[str, Any]:
    """Returns the contents of config.json, with the rows of positions.

    Args:
        config: The `BertConfig`.
        fields: {key of the file: field}.
    """
    values = configs.write(config, fields)
    rows = config.first_position + config.max_position_embeddings
    return values | {"max_position_embeddings": rows}


def _tensors(config: BertConfig, num_labels: int) -> Iterator[Tensor]:
    return tables.make(config, num_labels, _NAMES)


FAMILY = Family(
    model_type="roberta",
    architectures={
        "RobertaModel": (ENCODER, POOLER),
        "RobertaForMaskedLM": (ENCODER, MASKED_LM),
        "RobertaForSequenceClassification": (ENCODER, CLASSIFIER),
        "RobertaForTokenClassification": (ENCODER, TOKEN_CLASSIFIER),
        "RobertaForQuestionAnswering": (ENCODER, SPAN),
        "RobertaForMultipleChoice": (ENCODER, POOLER, MULTIPLE_CHOICE),
    },
    bare_architecture="RobertaModel",
    tensors=_tensors,
    read_config=_read_config,
    write_config=write_config,
    known_keys=FIELDS.keys(),
    prefix="roberta.",
    bare_names=("embeddings.", "encoder.", "pooler."),
    buffers=("embeddings.position_ids", "embeddings.token_type_ids"),
    tied={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
)


def named_alike(model_type: str, prefix: str) -> Family:
    """Returns a family of the same models, whose classes begin otherwise."""
    return dataclasses.replace(
        FAMILY,
        model_type=model_type,
        architectures={
            name.replace("Roberta", prefix): its_parts
            for name, its_parts in FAMILY.architectures.items()
        },
        bare_architecture=f"{prefix}Model",
    )


XLM_FAMILY = named_alike("xlm-roberta", "XLMRoberta")
CAMEMBERT_FAMILY = named_alike("camembert", "Camembert")
