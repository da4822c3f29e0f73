"""BERT: its configuration in JSON, its classes, its tensors in files.

A dense kernel is `[in, out]` in Keras and in Google's files and `[out, in]` in
Hugging Face's; the outermost heads (`output_weights`) are `[out, in]` in both.
"""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from bert_tf import files
from bert_tf.checkpoints.families.family import Family
from bert_tf.checkpoints.families.family import Stored
from bert_tf.checkpoints.families.family import Tensor
from bert_tf.checkpoints.parts import CLASSIFIER
from bert_tf.checkpoints.parts import ENCODER
from bert_tf.checkpoints.parts import MASKED_LM
from bert_tf.checkpoints.parts import MULTIPLE_CHOICE
from bert_tf.checkpoints.parts import NEXT_SENTENCE
from bert_tf.checkpoints.parts import POOLER
from bert_tf.checkpoints.parts import SPAN
from bert_tf.checkpoints.parts import TOKEN_CLASSIFIER
from bert_tf.checkpoints.transforms import IDENTITY
from bert_tf.checkpoints.transforms import TRANSPOSE
from bert_tf.config import BertConfig

# Keys of released configurations that nothing in any BERT reads.
_UNUSED_GOOGLE_KEYS = {
    *("directionality", "pooler_fc_size", "pooler_num_attention_heads"),
    *("pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"),
}
# Keys of a Hugging Face config.json that do not describe the encoder. Those
# that describe the task (labels, problem type) are read by `config_json`.
_NOT_ARCHITECTURE = _UNUSED_GOOGLE_KEYS | {
    *("_name_or_path", "_num_labels", "architectures", "bos_token_id"),
    *("classifier_dropout", "dtype", "eos_token_id", "finetuning_task"),
    *("gradient_checkpointing", "id2label", "label2id", "max_length"),
    *("num_labels", "output_attentions", "output_hidden_states"),
    *("output_past", "pad_token_id", "problem_type", "return_dict"),
    *("torch_dtype", "transformers_version", "use_cache"),
}
# Keys that change what the model computes: BERT has one value for each.
_REQUIRED_VALUES = {
    "add_cross_attention": False,
    "chunk_size_feed_forward": 0,
    "is_encoder_decoder": False,
    "position_embedding_type": "absolute",
    "pruned_heads": {},
    "tie_word_embeddings": True,
}
_HUGGING_FACE_ONLY = {
    *("architectures", "layer_norm_eps", "model_type", "transformers_version")
}
# The activations in Google's files, which call the first one "gelu".
_GOOGLE_ACTIVATIONS = ("gelu_new", "linear", "relu", "tanh")
# What google-research/bert has in its code and not in its configuration.
_GOOGLE_LAYER_NORM_EPS = 1e-12


def _read_config(values: dict[str, Any]) -> BertConfig:
    """Reads Google's `bert_config.json` or Hugging Face's `config.json`.

    A dictionary with `model_type` (or another key that only Hugging Face
    writes) is Hugging Face's, else Google's; they differ in what `gelu` means
    and in the default of `type_vocab_size`.
    """
    for key, required in _REQUIRED_VALUES.items():
        if values.get(key, required) != required:
            raise ValueError(
                f"`{key}` must be {required!r} in a BERT encoder. "
                f"Received: {key}={files.shortened(values[key])}."
            )
    names = {field.name for field in dataclasses.fields(BertConfig)}
    unknown = set(values) - names - _NOT_ARCHITECTURE - set(_REQUIRED_VALUES)
    if unknown:
        raise ValueError(
            "Unknown keys in the BERT configuration: "
            f"{files.shortened(sorted(unknown))}. Known keys: "
            f"{', '.join(sorted(names))}."
        )
    if "vocab_size" not in values:
        raise ValueError("The BERT configuration has no `vocab_size`.")
    fields = {"hidden_act": "gelu"} | {
        key: values[key] for key in names & set(values)
    }
    if not _HUGGING_FACE_ONLY & set(values):
        if fields["hidden_act"] == "gelu":
            fields["hidden_act"] = "gelu_new"
        fields.setdefault("type_vocab_size", 16)
    return BertConfig(**fields)


def _write_google_config(config: BertConfig) -> dict[str, Any]:
    if config.hidden_act not in _GOOGLE_ACTIVATIONS:
        raise ValueError(
            "`hidden_act` must be one of "
            f"{', '.join(_GOOGLE_ACTIVATIONS)} in Google's files: their gelu "
            "is the tanh form. Received: "
            f"hidden_act={config.hidden_act!r}. Give "
            "--hidden_act=gelu_new to take the model as one of the tanh form: "
            "Google's own releases, as Hugging Face has them, were trained "
            "as such."
        )
    if config.layer_norm_eps != _GOOGLE_LAYER_NORM_EPS:
        raise ValueError(
            f"`layer_norm_eps` must be {_GOOGLE_LAYER_NORM_EPS} in Google's "
            f"files. Received: layer_norm_eps={config.layer_norm_eps}."
        )
    if config.is_decoder:
        raise ValueError(
            "`is_decoder` must be False in Google's files: they have no "
            "left-to-right models. Received: is_decoder=True."
        )
    values = config.to_dict()
    if config.hidden_act == "gelu_new":
        values["hidden_act"] = "gelu"
    del values["model_type"], values["layer_norm_eps"]
    return dict(sorted(values.items()))


def _tensors(config: BertConfig, num_labels: int) -> Iterator[Tensor]:
    hidden, inner = config.hidden_size, config.intermediate_size
    square = (hidden, hidden)
    for keras, name, rows in (
        ("word", "word", config.vocab_size),
        ("position", "position", config.max_position_embeddings),
        ("segment", "token_type", config.type_vocab_size),
    ):
        yield Tensor(
            part=ENCODER,
            keras=f"embeddings/{keras}_embeddings",
            shape=(rows, hidden),
            google=Stored(f"bert/embeddings/{name}_embeddings"),
            hugging_face=Stored(f"bert.embeddings.{name}_embeddings.weight"),
        )
    yield from _module(
        ENCODER, "embeddings/layer_norm", "bert.embeddings.LayerNorm", (hidden,)
    )
    for index in range(config.num_hidden_layers):
        for keras, name, shape in (
            ("attention/query", "attention.self.query", square),
            ("attention/key", "attention.self.key", square),
            ("attention/value", "attention.self.value", square),
            ("attention/merge_heads", "attention.output.dense", square),
            ("attention_layer_norm", "attention.output.LayerNorm", (hidden,)),
            ("intermediate", "intermediate.dense", (hidden, inner)),
            ("output", "output.dense", (inner, hidden)),
            ("output_layer_norm", "output.LayerNorm", (hidden,)),
        ):
            keras, name = f"layer_{index}/{keras}", f"layer.{index}.{name}"
            yield from _module(ENCODER, keras, f"bert.encoder.{name}", shape)
    head = "cls.predictions.transform"
    for part, keras, name, shape in (
        (POOLER, "pooler/dense", "bert.pooler.dense", square),
        (MASKED_LM, "masked_lm/transform", f"{head}.dense", square),
        (MASKED_LM, "masked_lm/layer_norm", f"{head}.LayerNorm", (hidden,)),
    ):
        yield from _module(part, keras, name, shape)
    yield Tensor(
        part=MASKED_LM,
        keras="masked_lm/output_bias",
        shape=(config.vocab_size,),
        google=Stored("cls/predictions/output_bias"),
        hugging_face=Stored("cls.predictions.bias"),
    )
    for part, google, name, units in (
        (NEXT_SENTENCE, "cls/seq_relationship/", "cls.seq_relationship", 2),
        (CLASSIFIER, "", "classifier", num_labels),
        (TOKEN_CLASSIFIER, "", "classifier", num_labels),
        (SPAN, "cls/squad/", "qa_outputs", 2),
        # google-research/bert has no such head; in its files it is what a
        # classifier of one output would be.
        (MULTIPLE_CHOICE, "", "classifier", 1),
    ):
        for leaf, google_leaf, its_name, shape, transform in (
            ("kernel", "output_weights", "weight", (hidden, units), TRANSPOSE),
            ("bias", "output_bias", "bias", (units,), IDENTITY),
        ):
            yield Tensor(
                part=part,
                keras=f"{part}/dense/{leaf}",
                shape=shape,
                google=Stored(f"{google}{google_leaf}", transform),
                hugging_face=Stored(f"{name}.{its_name}", transform),
            )


def _module(part, keras, name, shape):
    """Yields the two tensors of a dense layer, or of a LayerNorm."""
    # Hugging Face's names were made of Google's so.
    google = re.sub(r"\.layer\.(\d)", r".layer_\1", name).replace(".", "/")
    leaves = ("gamma", "beta") if len(shape) == 1 else ("kernel", "bias")
    names, shapes = ("weight", "bias"), (shape, shape[-1:])
    for leaf, its_name, its_shape in zip(leaves, names, shapes):
        transform = TRANSPOSE if leaf == "kernel" else IDENTITY
        yield Tensor(
            part=part,
            keras=f"{keras}/{leaf}",
            shape=its_shape,
            google=Stored(f"{google}/{leaf}"),
            hugging_face=Stored(f"{name}.{its_name}", transform),
        )


FAMILY = Family(
    model_type="bert",
    architectures={
        "BertModel": (ENCODER, POOLER),
        "BertForPreTraining": (ENCODER, POOLER, MASKED_LM, NEXT_SENTENCE),
        "BertForMaskedLM": (ENCODER, MASKED_LM),
        "BertForNextSentencePrediction": (ENCODER, POOLER, NEXT_SENTENCE),
        "BertForSequenceClassification": (ENCODER, POOLER, CLASSIFIER),
        "BertForTokenClassification": (ENCODER, TOKEN_CLASSIFIER),
        "BertForQuestionAnswering": (ENCODER, SPAN),
        "BertForMultipleChoice": (ENCODER, POOLER, MULTIPLE_CHOICE),
    },
    bare_architecture="BertModel",
    tensors=_tensors,
    read_config=_read_config,
    write_config=BertConfig.to_dict,
    google_config_file="bert_config.json",
    write_google_config=_write_google_config,
    prefix="bert.",
    bare_names=("embeddings.", "encoder.", "pooler."),
    # As Google calls the weights of LayerNorm.
    old_names={r"\.gamma$": ".weight", r"\.beta$": ".bias"},
    buffers=("embeddings.position_ids", "embeddings.token_type_ids"),
    tied={
        "cls.predictions.decoder.weight": (
            "bert.embeddings.word_embeddings.weight"
        ),
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
)
