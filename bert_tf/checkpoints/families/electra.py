"""ELECTRA (Clark et al. 2020, arXiv 2003.10555): two nets, no pooler.

The discriminator is the encoder that is tuned; the generator is an encoder
with a masked-LM head. In Hugging Face's format each has its own folder.
"""

from collections.abc import Iterator
from typing import Any

from bert_tf.checkpoints.families import bert
from bert_tf.checkpoints.families import configs
from bert_tf.checkpoints.families import tables
from bert_tf.checkpoints.families.family import Family
from bert_tf.checkpoints.families.family import Tensor
from bert_tf.checkpoints.parts import CLASSIFIER
from bert_tf.checkpoints.parts import DISCRIMINATOR
from bert_tf.checkpoints.parts import ENCODER
from bert_tf.checkpoints.parts import MASKED_LM
from bert_tf.checkpoints.parts import MULTIPLE_CHOICE
from bert_tf.checkpoints.parts import SPAN
from bert_tf.checkpoints.parts import TOKEN_CLASSIFIER
from bert_tf.config import BertConfig

_FIELDS = configs.BERT_FIELDS | {"embedding_size": "embedding_size"}
# transformers' defaults that differ from BERT's.
_DEFAULTS = {
    "embedding_size": 128,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}
# The hidden layer of the multiple-choice head.
_SUMMARY = {
    "summary_type": "first",
    "summary_use_proj": True,
    "summary_activation": "gelu",
    "summary_proj_to_labels": False,
}
# Dropouts of that head.
_IGNORED = ("summary_first_dropout", "summary_last_dropout")
_NAMES = bert.encoder_names("electra") | {
    "embeddings/projection": "electra.embeddings_project",
    "masked_lm/transform": "generator_predictions.dense",
    "masked_lm/layer_norm": "generator_predictions.LayerNorm",
    "masked_lm/output_bias": "generator_lm_head.bias",
    "discriminator/transform": "discriminator_predictions.dense",
    "discriminator/dense": "discriminator_predictions.dense_prediction",
    "classifier_hidden/dense": "classifier.dense",
    "classifier/dense": "classifier.out_proj",
    "token_classifier/dense": "classifier",
    "span/dense": "qa_outputs",
    "multiple_choice_hidden/dense": "sequence_summary.summary",
    "multiple_choice/dense": "classifier",
}


# Google's releases have both nets, which share their embeddings.
_GOOGLE = {
    **bert.google_names(bert.encoder_names("electra")),
    "embeddings/projection": "electra/embeddings_project",
    "discriminator/transform": "discriminator_predictions/dense",
    "discriminator/dense": "discriminator_predictions/dense_1",
}
_OTHER_NETS = dict.fromkeys(
    ("generator/", "generator_predictions/"), "the generator"
)


def _config_of_google(
    shapes: dict[str, tuple[int, ...]],
) -> BertConfig | None:
    """Derives the sizes from the discriminator: a release has no config file.

    Google's code uses one attention head for every 64 hidden units.
    """
    layer = f"{_GOOGLE['layer_*/intermediate']}/kernel"
    words, positions, segments, inner = (
        shapes.get(name, ())
        for name in (
            _GOOGLE["embeddings/word_embeddings"],
            _GOOGLE["embeddings/position_embeddings"],
            _GOOGLE["embeddings/segment_embeddings"],
            layer.replace("*", "0"),
        )
    )
    if {len(words), len(positions), len(segments), len(inner)} != {2}:
        return None
    hidden_size, width = inner[0], words[1]
    num_layers = 1
    while layer.replace("*", str(num_layers)) in shapes:
        num_layers += 1
    return configs.of_family(
        "electra",
        {
            "vocab_size": words[0],
            "embedding_size": None if width == hidden_size else width,
            "hidden_size": hidden_size,
            "num_hidden_layers": num_layers,
            "num_attention_heads": max(1, hidden_size // 64),
            "intermediate_size": inner[1],
            "max_position_embeddings": positions[0],
            "type_vocab_size": segments[0],
        },
    )


def _read_config(values: dict[str, Any]) -> BertConfig:
    fields = _DEFAULTS | configs.read_fields(
        values, "ELECTRA", _FIELDS, _SUMMARY
    )
    if fields["embedding_size"] == fields["hidden_size"]:
        # Embeddings of that width are not projected.
        fields["embedding_size"] = None
    return configs.of_family("electra", fields)


def _write_config(config: BertConfig) -> dict[str, Any]:
    values = configs.write(config, _FIELDS)
    return values | {"embedding_size": config.embedding_width}


def _tensors(config: BertConfig, num_labels: int) -> Iterator[Tensor]:
    return tables.make(config, num_labels, _NAMES, _GOOGLE)


FAMILY = Family(
    model_type="electra",
    architectures={
        "ElectraModel": (ENCODER,),
        "ElectraForPreTraining": (ENCODER, DISCRIMINATOR),
        "ElectraForMaskedLM": (ENCODER, MASKED_LM),
        "ElectraForSequenceClassification": (ENCODER, CLASSIFIER),
        "ElectraForTokenClassification": (ENCODER, TOKEN_CLASSIFIER),
        "ElectraForQuestionAnswering": (ENCODER, SPAN),
        "ElectraForMultipleChoice": (ENCODER, MULTIPLE_CHOICE),
    },
    bare_architecture="ElectraModel",
    tensors=_tensors,
    read_config=_read_config,
    write_config=_write_config,
    known_keys={*_FIELDS, *_SUMMARY, *_IGNORED},
    config_of_google=_config_of_google,
    other_nets=_OTHER_NETS,
    prefix="electra.",
    bare_names=("embeddings.", "embeddings_project.", "encoder."),
    buffers=("embeddings.position_ids", "embeddings.token_type_ids"),
    tied={
        "generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"
    },
)
