"""Hugging Face's config.json, whose families use different keys."""

import dataclasses
from collections.abc import Collection
from collections.abc import Mapping
from typing import Any

from bert_tf import messages
from bert_tf import sizes
from bert_tf.checkpoints import sentence_files
from bert_tf.config import BertConfig

# {key of the file: field} of BERT, which uses the fields' own names.
BERT_FIELDS = {
    name: name
    for name in (
        *("vocab_size", "hidden_size", "num_hidden_layers"),
        *("num_attention_heads", "intermediate_size", "hidden_act"),
        *("hidden_dropout_prob", "attention_probs_dropout_prob"),
        *("max_position_embeddings", "type_vocab_size", "initializer_range"),
        *("layer_norm_eps", "is_decoder"),
    )
}
# transformers' other names of activations.
_SAME_ACTIVATIONS = {"gelu_pytorch_tanh": "gelu_new", "swish": "silu"}
# Keys that do not describe the encoder. Those that describe the task (labels,
# problem type) are read by `config_json`.
_NOT_ARCHITECTURE = {
    *("_name_or_path", "_num_labels", "architectures", "bos_token_id"),
    # How transformers computes the feed-forward layers, not what.
    "chunk_size_feed_forward",
    *("classifier_dropout", "dtype", "eos_token_id", "finetuning_task"),
    *("gradient_checkpointing", "id2label", "label2id", "max_length"),
    *("model_type", "num_labels", "output_attentions"),
    *("language", "name", "output_hidden_states", "output_past"),
    *("pad_token_id", "problem_type", "return_dict", "tokenizer_class"),
    # The masked-LM head's weights tell whether they are tied.
    "tie_word_embeddings",
    *("torch_dtype", "transformers_version", "use_cache"),
    # From transformers 4.46 to 4.5x: how it computed the attention.
    "_attn_implementation_autoset",
    *sentence_files.CROSS_ENCODER_KEYS,
}
# Keys about generating text and running PyTorch, which transformers before 5
# had in every configuration. Early releases wrote them into files of BERT, too.
GENERATION_KEYS = {
    "bad_words_ids",
    "begin_suppress_tokens",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_ids",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_scores",
    "prefix",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "top_k",
    "top_p",
    "torchscript",
    "typical_p",
    "use_bfloat16",
    "xla_device",
}
# Keys that change what a model computes, in transformers or in code that its
# author wrote, with the one value that is supported. null is as good.
_REQUIRED_VALUES: dict[str, Any] = {
    "add_cross_attention": False,
    "feed_forward_type": "original",
    "is_decoder": False,
    "is_encoder_decoder": False,
    "per_layer_config": {},
    "position_embedding_type": "absolute",
    "prenorm": False,
    "pruned_heads": {},
    "quantization_config": {},
    "rotary_emb_fraction": 0.0,
    "scale_embedding": False,
}


def read_fields(
    values: Mapping[str, Any],
    name: str,
    fields: Mapping[str, str] = BERT_FIELDS,
    required: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the fields of a `BertConfig` that a config.json has.

    Args:
        values: The contents of the file.
        name: What messages call the family.
        fields: {key of the file: field}.
        required: {key: the only value that it may have}.

    Raises:
        ValueError: If a value is not supported, or there is no `vocab_size`.
    """
    general = {
        key: value
        for key, value in _REQUIRED_VALUES.items()
        if key not in fields and values.get(key) is not None
    }
    for key, value in (general | dict(required or {})).items():
        if values.get(key, value) != value:
            raise ValueError(
                f"`{key}` must be {value!r} in a {name} encoder. "
                f"Received: {key}={messages.shortened(values[key])}."
            )
    if "vocab_size" not in values:
        raise ValueError(f"The {name} configuration has no `vocab_size`.")
    for key in fields:
        if values.get(key, key) is None:
            raise ValueError(
                f"`{key}` must have a value. Received: {key}=null."
            )
    found = {
        field: values[key] for key, field in fields.items() if key in values
    }
    name = found.get("hidden_act")
    if isinstance(name, str):
        found["hidden_act"] = _SAME_ACTIVATIONS.get(name, name)
    return found


def unknown_keys(
    values: Mapping[str, Any], family_keys: Collection[str]
) -> list[str]:
    """Returns the keys of a config.json that nothing is known about, sorted.

    Args:
        values: The contents of the file.
        family_keys: Keys that the family reads, or is known not to need.
    """
    known = _NOT_ARCHITECTURE | GENERATION_KEYS | {*_REQUIRED_VALUES}
    return sorted({*values} - known - {*family_keys})


def of_family(model_type: str, fields: Mapping[str, Any]) -> BertConfig:
    """Returns a configuration that starts from its family's common values."""
    alike = sizes.FAMILIES[model_type]
    return BertConfig(**({"model_type": model_type} | alike | dict(fields)))


def write(
    config: BertConfig, fields: Mapping[str, str] = BERT_FIELDS
) -> dict[str, Any]:
    """Returns the contents of a config.json, without the task's keys.

    Args:
        config: The `BertConfig`.
        fields: {key of the file: field}.
    """
    values = {"model_type": config.model_type}
    for key, field in fields.items():
        value = getattr(config, field)
        # As in Hugging Face's own files, only if it is true.
        if field != "is_decoder" or value:
            values[key] = value
    return values


def check(config: BertConfig, read: BertConfig) -> None:
    """Checks that config.json can express a configuration.

    Args:
        config: The configuration that was written.
        read: The configuration that was read from it.

    Raises:
        ValueError: If they differ in a field.
    """
    for field in dataclasses.fields(config):
        value, found = (getattr(each, field.name) for each in (config, read))
        if value != found:
            raise ValueError(
                f"`{field.name}` must be {found!r} in a model of the family "
                f"{config.model_type}. Received: {field.name}={value!r}."
            )
