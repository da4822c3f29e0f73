"""DistilBERT (Sanh et al. 2019, arXiv 1910.01108): no segments, no pooler."""

from collections.abc import Iterator
from typing import Any

from bert_tf import messages
from bert_tf.checkpoints.families import configs
from bert_tf.checkpoints.families import tables
from bert_tf.checkpoints.families.family import Family
from bert_tf.checkpoints.families.family import Tensor
from bert_tf.checkpoints.parts import CLASSIFIER
from bert_tf.checkpoints.parts import ENCODER
from bert_tf.checkpoints.parts import MASKED_LM
from bert_tf.checkpoints.parts import MULTIPLE_CHOICE
from bert_tf.checkpoints.parts import SPAN
from bert_tf.checkpoints.parts import TOKEN_CLASSIFIER
from bert_tf.config import BertConfig

_FIELDS = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": "max_position_embeddings",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "dim": "hidden_size",
    "hidden_dim": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "activation": "hidden_act",
    "initializer_range": "initializer_range",
    "qa_dropout": "span_dropout_prob",
    "seq_classif_dropout": "classifier_dropout_prob",
}
# transformers reads these names, too.
_ALIASES = {
    "hidden_size": "dim",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
}
# Unused: however they were initialised, position embeddings are weights.
_IGNORED = ("sinusoidal_pos_embds", "tie_weights_")
_LAYER = "distilbert.transformer.layer.*"
_NAMES = {
    "embeddings/word_embeddings": (
        "distilbert.embeddings.word_embeddings.weight"
    ),
    "embeddings/position_embeddings": (
        "distilbert.embeddings.position_embeddings.weight"
    ),
    "embeddings/layer_norm": "distilbert.embeddings.LayerNorm",
    "layer_*/attention/query": f"{_LAYER}.attention.q_lin",
    "layer_*/attention/key": f"{_LAYER}.attention.k_lin",
    "layer_*/attention/value": f"{_LAYER}.attention.v_lin",
    "layer_*/attention/merge_heads": f"{_LAYER}.attention.out_lin",
    "layer_*/attention_layer_norm": f"{_LAYER}.sa_layer_norm",
    "layer_*/intermediate": f"{_LAYER}.ffn.lin1",
    "layer_*/output": f"{_LAYER}.ffn.lin2",
    "layer_*/output_layer_norm": f"{_LAYER}.output_layer_norm",
    "masked_lm/transform": "vocab_transform",
    "masked_lm/layer_norm": "vocab_layer_norm",
    "masked_lm/output_bias": "vocab_projector.bias",
    "classifier_hidden/dense": "pre_classifier",
    "classifier/dense": "classifier",
    "token_classifier/dense": "classifier",
    "span/dense": "qa_outputs",
    "multiple_choice_hidden/dense": "pre_classifier",
    "multiple_choice/dense": "classifier",
}


def _read_config(values: dict[str, Any]) -> BertConfig:
    values = dict(values)
    for alias, key in _ALIASES.items():
        if alias in values:
            value = values.pop(alias)
            if values.setdefault(key, value) != value:
                raise ValueError(
                    f"`{alias}` must be the same as `{key}`. Received: "
                    f"{alias}={messages.shortened(value)}, "
                    f"{key}={messages.shortened(values[key])}."
                )
    fields = configs.read_fields(values, "DistilBERT", _FIELDS)
    return configs.of_family("distilbert", {"num_hidden_layers": 6} | fields)


def _write_config(config: BertConfig) -> dict[str, Any]:
    return configs.write(config, _FIELDS)


def _tensors(config: BertConfig, num_labels: int) -> Iterator[Tensor]:
    return tables.make(config, num_labels, _NAMES)


FAMILY = Family(
    model_type="distilbert",
    architectures={
        "DistilBertModel": (ENCODER,),
        "DistilBertForMaskedLM": (ENCODER, MASKED_LM),
        "DistilBertForSequenceClassification": (ENCODER, CLASSIFIER),
        "DistilBertForTokenClassification": (ENCODER, TOKEN_CLASSIFIER),
        "DistilBertForQuestionAnswering": (ENCODER, SPAN),
        "DistilBertForMultipleChoice": (ENCODER, MULTIPLE_CHOICE),
    },
    bare_architecture="DistilBertModel",
    tensors=_tensors,
    read_config=_read_config,
    write_config=_write_config,
    known_keys={*_FIELDS, *_ALIASES, *_IGNORED},
    prefix="distilbert.",
    bare_names=("embeddings.", "transformer."),
    buffers=("embeddings.position_ids",),
    tied={
        "vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"
    },
    own_dropouts={
        CLASSIFIER: "seq_classif_dropout",
        MULTIPLE_CHOICE: "seq_classif_dropout",
    },
)
