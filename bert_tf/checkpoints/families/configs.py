"""Hugging Face's config.json, whose families use different keys."""

import dataclasses
from collections.abc import Collection
from collections.abc import Mapping
from typing import Any

from bert_tf import files
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
# transformers' name for "gelu_new" computed by PyTorch's own function.
_TANH_GELU = "gelu_pytorch_tanh"
# Keys that do not describe the encoder. Those that describe the task (labels,
# problem type) are read by `config_json`.
_NOT_ARCHITECTURE = {
    *("_name_or_path", "_num_labels", "architectures", "bos_token_id"),
    *("classifier_dropout", "dtype", "eos_token_id", "finetuning_task"),
    *("gradient_checkpointing", "id2label", "label2id", "max_length"),
    *("model_type", "num_labels", "output_attentions"),
    *("language", "name", "output_hidden_states", "output_past"),
    *("pad_token_id", "problem_type", "return_dict", "tokenizer_class"),
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
# Keys that change what a model computes, with the one value that is supported.
_REQUIRED_VALUES = {
    "add_cross_attention": False,
    "chunk_size_feed_forward": 0,
    "is_encoder_decoder": False,
    "position_embedding_type": "absolute",
    "pruned_heads": {},
    "tie_word_embeddings": True,
}


def read_fields(
    values: Mapping[str, Any],
    name: str,
    fields: Mapping[str, str] = BERT_FIELDS,
    ignored: Collection[str] = (),
    required: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the fields of a `BertConfig` that a config.json has.

    Args:
        values: The contents of the file.
        name: What messages call the family.
        fields: {key of the file: field}.
        ignored: Other keys that are allowed and not read.
        required: {key: the only value that it may have}.

    Raises:
        ValueError: If there is an unknown key, a value that is not supported,
            or no `vocab_size`.
    """
    required = _REQUIRED_VALUES | dict(required or {})
    for key, value in required.items():
        if values.get(key, value) != value:
            raise ValueError(
                f"`{key}` must be {value!r} in a {name} encoder. "
                f"Received: {key}={files.shortened(values[key])}."
            )
    known = _NOT_ARCHITECTURE | GENERATION_KEYS
    unknown = {*values} - {*fields} - known - {*ignored, *required}
    if unknown:
        raise ValueError(
            f"Unknown keys in the {name} configuration: "
            f"{files.shortened(sorted(unknown))}. Known keys: "
            f"{', '.join(sorted(fields))}."
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
    if found.get("hidden_act") == _TANH_GELU:
        found["hidden_act"] = "gelu_new"
    return found


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
