"""ModernBERT and Ettin: pre-norm blocks, rotary positions, gates, windows.

Warner et al. 2024 (arXiv 2412.13663), Weller et al. 2025 (arXiv 2507.11412).
"""

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
from bert_tf.checkpoints.parts import TRANSFORM
from bert_tf.config import BertConfig

_FIELDS = {
    **{
        name: name
        for name in (
            *("vocab_size", "hidden_size", "num_hidden_layers"),
            *("num_attention_heads", "intermediate_size"),
            *("max_position_embeddings", "initializer_range"),
            "classifier_pooling",
        )
    },
    "hidden_activation": "hidden_act",
    "norm_eps": "layer_norm_eps",
    "embedding_dropout": "embedding_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    # transformers has one dropout for both; pre-training had only this.
    "attn_out_dropout_prob": "hidden_dropout_prob",
    "mlp_dropout": "inner_dropout_prob",
    "classifier_activation": "classifier_hidden_act",
    "classifier_dropout": "classifier_dropout_prob",
    "global_attn_every_n_layers": "full_attention_every",
    "global_rope_theta": "rotary_theta",
    "local_rope_theta": "local_rotary_theta",
    # Tokens on both sides together.
    "local_attention": "attention_window",
}
_DEFAULTS = {"num_hidden_layers": 22, "intermediate_size": 1152}
_REQUIRED = {
    "norm_bias": False,
    "attention_bias": False,
    "mlp_bias": False,
    "classifier_bias": False,
    "decoder_bias": True,
}
_FULL, _SLIDING = "full_attention", "sliding_attention"
# Keys of released configurations that change no output.
_IGNORED = {
    *("cls_token_id", "sep_token_id", "deterministic_flash_attn"),
    *("initializer_cutoff_factor", "layer_norm_eps", "reference_compile"),
    *("repad_logits_with_grad", "sparse_pred_ignore_index"),
    *("sparse_prediction", "layer_types", "rope_parameters"),
}
_LAYER = "model.layers.*"
_NAMES = {
    "embeddings/word_embeddings": "model.embeddings.tok_embeddings.weight",
    "embeddings/layer_norm": "model.embeddings.norm",
    "layer_*/attention_layer_norm": f"{_LAYER}.attn_norm",
    "layer_*/attention/query_key_value": f"{_LAYER}.attn.Wqkv",
    "layer_*/attention/merge_heads": f"{_LAYER}.attn.Wo",
    "layer_*/feed_forward_layer_norm": f"{_LAYER}.mlp_norm",
    "layer_*/feed_forward/intermediate": f"{_LAYER}.mlp.Wi",
    "layer_*/feed_forward/output": f"{_LAYER}.mlp.Wo",
    "layer_*/final_layer_norm": "model.final_norm",
    "masked_lm/transform": "head.dense",
    "masked_lm/layer_norm": "head.norm",
    "masked_lm/output_bias": "decoder.bias",
    "classifier/dense": "classifier",
    "token_classifier/dense": "classifier",
    "span/dense": "classifier",
    "multiple_choice/dense": "classifier",
}


def _read_config(values: dict[str, Any]) -> BertConfig:
    values = values | _of_newer_keys(values)
    # Without a base of their own, windows have the other one.
    has_one_base = values.get("local_rope_theta", _SLIDING) is None
    if has_one_base:
        del values["local_rope_theta"]
    fields = configs.read_fields(values, "ModernBERT", _FIELDS, _REQUIRED)
    if has_one_base:
        fields["local_rotary_theta"] = None
    both = fields.get("attention_window", 128)
    if type(both) is int and both >= 0:
        fields["attention_window"] = both // 2
    if "attention_probs_dropout_prob" in fields:
        fields.setdefault(
            "hidden_dropout_prob", fields["attention_probs_dropout_prob"]
        )
    if "classifier_dropout_prob" in fields:
        fields["span_dropout_prob"] = fields["classifier_dropout_prob"]
    return configs.of_family("modernbert", _DEFAULTS | fields)


def _of_newer_keys(values):
    """Returns what transformers 5 writes under the names of its releases."""
    found = {}
    if values.get("layer_types") is not None:
        found["global_attn_every_n_layers"] = _period(values["layer_types"])
    bases = values.get("rope_parameters") or {}
    for name, key in (
        (_FULL, "global_rope_theta"),
        (_SLIDING, "local_rope_theta"),
    ):
        base = bases.get(name) or {}
        if base.get("rope_type", "default") != "default":
            raise ValueError(
                "`rope_parameters` must have the rope_type 'default'. "
                f"Received: {messages.shortened(base)}."
            )
        if "rope_theta" in base:
            found[key] = base["rope_theta"]
    return found


def _period(layer_types):
    """Returns after how many layers there is another without a window."""
    number = len(layer_types)
    later = [i for i in range(1, number) if layer_types[i] == _FULL]
    period = later[0] if later else number
    if layer_types != [
        _SLIDING if index % period else _FULL for index in range(number)
    ]:
        raise ValueError(
            f"`layer_types` must be {_FULL!r} in every so many layers, the "
            f"first one included, and {_SLIDING!r} in all others. "
            f"Received: {messages.shortened(layer_types)}."
        )
    return period


def _write_config(config: BertConfig) -> dict[str, Any]:
    values = configs.write(config, _FIELDS)
    values["local_attention"] = 2 * (config.attention_window or 0)
    if values["attn_out_dropout_prob"] == values["attention_dropout"]:
        del values["attn_out_dropout_prob"]
    return values | _REQUIRED


def _tensors(config: BertConfig, num_labels: int) -> Iterator[Tensor]:
    return tables.make(config, num_labels, _NAMES)


FAMILY = Family(
    model_type="modernbert",
    architectures={
        "ModernBertModel": (ENCODER,),
        "ModernBertForMaskedLM": (ENCODER, TRANSFORM, MASKED_LM),
        "ModernBertForSequenceClassification": (ENCODER, TRANSFORM, CLASSIFIER),
        "ModernBertForTokenClassification": (
            *(ENCODER, TRANSFORM),
            TOKEN_CLASSIFIER,
        ),
        "ModernBertForQuestionAnswering": (ENCODER, TRANSFORM, SPAN),
        "ModernBertForMultipleChoice": (ENCODER, TRANSFORM, MULTIPLE_CHOICE),
    },
    bare_architecture="ModernBertModel",
    tensors=_tensors,
    read_config=_read_config,
    write_config=_write_config,
    known_keys={*_FIELDS, *_REQUIRED, *_IGNORED},
    prefix="model.",
    bare_names=("embeddings.", "layers.", "final_norm."),
    tied={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    own_dropouts=dict.fromkeys(
        (CLASSIFIER, TOKEN_CLASSIFIER, MULTIPLE_CHOICE), "classifier_dropout"
    ),
)
