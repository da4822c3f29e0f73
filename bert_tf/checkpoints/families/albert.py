"""ALBERT (Lan et al. 2020, arXiv 1909.11942): small embeddings, shared blocks.

As in Google's code there is dropout after its feed-forward layers;
transformers never applies it.
"""

from collections.abc import Iterator
from typing import Any

from bert_tf.checkpoints.families import configs
from bert_tf.checkpoints.families import tables
from bert_tf.checkpoints.families.family import Family
from bert_tf.checkpoints.families.family import Tensor
from bert_tf.checkpoints.parts import CLASSIFIER
from bert_tf.checkpoints.parts import ENCODER
from bert_tf.checkpoints.parts import MASKED_LM
from bert_tf.checkpoints.parts import MULTIPLE_CHOICE
from bert_tf.checkpoints.parts import NEXT_SENTENCE
from bert_tf.checkpoints.parts import POOLER
from bert_tf.checkpoints.parts import SPAN
from bert_tf.checkpoints.parts import TOKEN_CLASSIFIER
from bert_tf.config import BertConfig

_FIELDS = {
    key: field
    for key, field in configs.BERT_FIELDS.items()
    if key != "is_decoder"
} | {
    "embedding_size": "embedding_size",
    "num_hidden_groups": "num_hidden_groups",
    "classifier_dropout_prob": "classifier_dropout_prob",
}
# transformers' defaults, which are ALBERT-xxlarge's.
_DEFAULTS = {
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
}
_REQUIRED = {"inner_group_num": 1}
# Keys of released configurations that nothing reads.
_IGNORED = {
    *("down_scale_factor", "gap_size", "layers_to_keep", "net_structure_type"),
    "num_memory_blocks",
}
_LAYER = "albert.encoder.albert_layer_groups.*.albert_layers.0"
_HUGGING_FACE = {
    "embeddings/word_embeddings": "albert.embeddings.word_embeddings.weight",
    "embeddings/position_embeddings": (
        "albert.embeddings.position_embeddings.weight"
    ),
    "embeddings/segment_embeddings": (
        "albert.embeddings.token_type_embeddings.weight"
    ),
    "embeddings/layer_norm": "albert.embeddings.LayerNorm",
    "embeddings/projection": "albert.encoder.embedding_hidden_mapping_in",
    "layer_*/attention/query": f"{_LAYER}.attention.query",
    "layer_*/attention/key": f"{_LAYER}.attention.key",
    "layer_*/attention/value": f"{_LAYER}.attention.value",
    "layer_*/attention/merge_heads": f"{_LAYER}.attention.dense",
    "layer_*/attention_layer_norm": f"{_LAYER}.attention.LayerNorm",
    "layer_*/intermediate": f"{_LAYER}.ffn",
    "layer_*/output": f"{_LAYER}.ffn_output",
    "layer_*/output_layer_norm": f"{_LAYER}.full_layer_layer_norm",
    "pooler/dense": "albert.pooler",
    "masked_lm/transform": "predictions.dense",
    "masked_lm/layer_norm": "predictions.LayerNorm",
    "masked_lm/output_bias": "predictions.bias",
    "next_sentence/dense": "sop_classifier.classifier",
    "classifier/dense": "classifier",
    "token_classifier/dense": "classifier",
    "span/dense": "qa_outputs",
    "multiple_choice/dense": "classifier",
}
_GROUP = "bert/encoder/transformer/group_*/inner_group_0"
_GOOGLE = {
    "embeddings/word_embeddings": "bert/embeddings/word_embeddings",
    "embeddings/position_embeddings": "bert/embeddings/position_embeddings",
    "embeddings/segment_embeddings": "bert/embeddings/token_type_embeddings",
    "embeddings/layer_norm": "bert/embeddings/LayerNorm",
    "embeddings/projection": "bert/encoder/embedding_hidden_mapping_in",
    "layer_*/attention/query": f"{_GROUP}/attention_1/self/query",
    "layer_*/attention/key": f"{_GROUP}/attention_1/self/key",
    "layer_*/attention/value": f"{_GROUP}/attention_1/self/value",
    "layer_*/attention/merge_heads": f"{_GROUP}/attention_1/output/dense",
    "layer_*/attention_layer_norm": f"{_GROUP}/LayerNorm",
    "layer_*/intermediate": f"{_GROUP}/ffn_1/intermediate/dense",
    "layer_*/output": f"{_GROUP}/ffn_1/intermediate/output/dense",
    "layer_*/output_layer_norm": f"{_GROUP}/LayerNorm_1",
    "pooler/dense": "bert/pooler/dense",
    "masked_lm/transform": "cls/predictions/transform/dense",
    "masked_lm/layer_norm": "cls/predictions/transform/LayerNorm",
    "masked_lm/output_bias": "cls/predictions/output_bias",
    **tables.google_logits("next_sentence/dense", "cls/seq_relationship/"),
    **tables.google_logits("classifier/dense"),
}


def _read_config(values: dict[str, Any]) -> BertConfig:
    """Reads Hugging Face's config.json, or Google's albert_config.json.

    The latter does not tell its family, and calls the tanh form "gelu".
    """
    fields = _DEFAULTS | configs.read_fields(
        values, "ALBERT", _FIELDS, _REQUIRED
    )
    if "model_type" not in values and fields.get("hidden_act") == "gelu":
        fields["hidden_act"] = "gelu_new"
    return configs.of_family("albert", fields)


def _write_config(config: BertConfig) -> dict[str, Any]:
    return configs.write(config, _FIELDS)


def _tensors(config: BertConfig, num_labels: int) -> Iterator[Tensor]:
    return tables.make(config, num_labels, _HUGGING_FACE, _GOOGLE)


FAMILY = Family(
    model_type="albert",
    architectures={
        "AlbertModel": (ENCODER, POOLER),
        "AlbertForPreTraining": (ENCODER, POOLER, MASKED_LM, NEXT_SENTENCE),
        "AlbertForMaskedLM": (ENCODER, MASKED_LM),
        "AlbertForSequenceClassification": (ENCODER, POOLER, CLASSIFIER),
        "AlbertForTokenClassification": (ENCODER, TOKEN_CLASSIFIER),
        "AlbertForQuestionAnswering": (ENCODER, SPAN),
        "AlbertForMultipleChoice": (ENCODER, POOLER, MULTIPLE_CHOICE),
    },
    bare_architecture="AlbertModel",
    tensors=_tensors,
    read_config=_read_config,
    write_config=_write_config,
    known_keys={*_FIELDS, *_REQUIRED, *_IGNORED},
    google_config_file="albert_config.json",
    prefix="albert.",
    bare_names=("embeddings.", "encoder.", "pooler."),
    buffers=("embeddings.position_ids", "embeddings.token_type_ids"),
    tied={
        "predictions.decoder.weight": (
            "albert.embeddings.word_embeddings.weight"
        ),
        "predictions.decoder.bias": "predictions.bias",
    },
    own_dropouts={
        CLASSIFIER: "classifier_dropout_prob",
        TOKEN_CLASSIFIER: "classifier_dropout_prob",
        MULTIPLE_CHOICE: "classifier_dropout_prob",
    },
)
