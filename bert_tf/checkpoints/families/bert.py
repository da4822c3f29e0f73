"""BERT: its configuration in JSON, its classes, its tensors in files.

TinyBERT and SpanBERT are BERTs of other sizes: their folders say "bert".
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

# Keys of released configurations that nothing in any BERT reads.
_UNUSED_GOOGLE_KEYS = {
    *("directionality", "pooler_fc_size", "pooler_num_attention_heads"),
    *("pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"),
}
_UNUSED_TINYBERT_KEYS = {
    *("cell", "emb_size", "pre_trained", "structure", "training"),
}
_HUGGING_FACE_ONLY = {
    *("architectures", "layer_norm_eps", "model_type", "transformers_version"),
    *configs.GENERATION_KEYS,
    *_UNUSED_TINYBERT_KEYS,
}
# The activations in Google's files, which call the first one "gelu".
_GOOGLE_ACTIVATIONS = ("gelu_new", "linear", "relu", "tanh")
# google-research/bert has this in its code, not in its configuration.
_GOOGLE_LAYER_NORM_EPS = 1e-12


def _read_config(values: dict[str, Any]) -> BertConfig:
    """Reads Google's `bert_config.json` or Hugging Face's `config.json`.

    A dictionary with `model_type` (or another key that only Hugging Face
    writes) is Hugging Face's, otherwise Google's. They differ in what `gelu`
    means and in the default of `type_vocab_size`.
    """
    fields = {"hidden_act": "gelu"} | configs.read_fields(values, "BERT")
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
            f"hidden_act={config.hidden_act!r}. "
            "--hidden_act=gelu_new converts a model of gelu as one of the tanh "
            "form, with which Google's own releases were trained, whatever "
            "their copies at Hugging Face say."
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
    values = configs.write(config)
    if config.hidden_act == "gelu_new":
        values["hidden_act"] = "gelu"
    del values["model_type"], values["layer_norm_eps"]
    return dict(sorted(values.items()))


def encoder_names(prefix: str) -> dict[str, str]:
    """Returns the names of BERT's encoder in Hugging Face's files.

    Args:
        prefix: The common first part of the names, e.g. "bert".
    """
    embeddings, layer = f"{prefix}.embeddings", f"{prefix}.encoder.layer.*"
    return {
        "embeddings/word_embeddings": f"{embeddings}.word_embeddings.weight",
        "embeddings/position_embeddings": (
            f"{embeddings}.position_embeddings.weight"
        ),
        "embeddings/segment_embeddings": (
            f"{embeddings}.token_type_embeddings.weight"
        ),
        "embeddings/layer_norm": f"{embeddings}.LayerNorm",
        "layer_*/attention/query": f"{layer}.attention.self.query",
        "layer_*/attention/key": f"{layer}.attention.self.key",
        "layer_*/attention/value": f"{layer}.attention.self.value",
        "layer_*/attention/merge_heads": f"{layer}.attention.output.dense",
        "layer_*/attention_layer_norm": f"{layer}.attention.output.LayerNorm",
        "layer_*/intermediate": f"{layer}.intermediate.dense",
        "layer_*/output": f"{layer}.output.dense",
        "layer_*/output_layer_norm": f"{layer}.output.LayerNorm",
    }


def google_names(names: dict[str, str]) -> dict[str, str]:
    """Returns Google's names, which Hugging Face's were made from."""
    return {
        keras: name.removesuffix(".weight")
        .replace(".layer.", ".layer_")
        .replace(".", "/")
        for keras, name in names.items()
    }


_SHARED = encoder_names("bert") | {
    "pooler/dense": "bert.pooler.dense",
    "masked_lm/transform": "cls.predictions.transform.dense",
    "masked_lm/layer_norm": "cls.predictions.transform.LayerNorm",
}
_HUGGING_FACE = _SHARED | {
    "masked_lm/output_bias": "cls.predictions.bias",
    "next_sentence/dense": "cls.seq_relationship",
    "classifier/dense": "classifier",
    "token_classifier/dense": "classifier",
    "span/dense": "qa_outputs",
    "multiple_choice/dense": "classifier",
}
_GOOGLE = {
    **google_names(_SHARED),
    "masked_lm/output_bias": "cls/predictions/output_bias",
    **tables.google_logits("next_sentence/dense", "cls/seq_relationship/"),
    **tables.google_logits("classifier/dense"),
    **tables.google_logits("token_classifier/dense"),
    **tables.google_logits("span/dense", "cls/squad/"),
    # google-research/bert has no such head. In its files it looks like a
    # classifier with one output.
    **tables.google_logits("multiple_choice/dense"),
}


def _tensors(config: BertConfig, num_labels: int) -> Iterator[Tensor]:
    return tables.make(config, num_labels, _HUGGING_FACE, _GOOGLE)


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
    write_config=configs.write,
    known_keys={
        *configs.BERT_FIELDS,
        *_UNUSED_GOOGLE_KEYS,
        *_UNUSED_TINYBERT_KEYS,
    },
    google_config_file="bert_config.json",
    write_google_config=_write_google_config,
    prefix="bert.",
    bare_names=("embeddings.", "encoder.", "pooler."),
    buffers=("embeddings.position_ids", "embeddings.token_type_ids"),
    tied={
        "cls.predictions.decoder.weight": (
            "bert.embeddings.word_embeddings.weight"
        ),
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
)
