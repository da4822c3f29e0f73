"""Tiny models of every family, in folders as transformers writes them."""

import dataclasses
import inspect
import json

import safetensors.numpy

from bert_tf import checkpoints
from bert_tf import sizes
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.discriminator import BertDiscriminator
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.multiple_choice import BertMultipleChoice
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.models.token_classifier import BertTokenClassifier
from references import families as peer

# Families whose layers differ from BERT's, and from each other's.
OWN_LAYERS = (
    "albert",
    "distilbert",
    "electra",
    "modernbert",
    "mpnet",
    "roberta",
)
# {end of the class of transformers: ours}
MODELS = {
    "ElectraForPreTraining": BertDiscriminator,
    "ForPreTraining": BertPretrainer,
    "ForMaskedLM": BertPretrainer,
    "ForSequenceClassification": BertClassifier,
    "ForTokenClassification": BertTokenClassifier,
    "ForQuestionAnswering": BertSpanPredictor,
    "ForMultipleChoice": BertMultipleChoice,
    "Model": BertEncoder,
}


def write_folder(folder, case, architecture, shapes):
    """Writes a model folder; returns its path.

    Args:
        folder: Path to make.
        case: One of `peer.CASES`.
        architecture: A class of the case.
        shapes: {name: shape} as transformers stores them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    values = peer.config_values(case, architecture)
    (folder / "config.json").write_text(json.dumps(values))
    (folder / "vocab.txt").write_text("\n".join(peer.TOKENS) + "\n")
    safetensors.numpy.save_file(
        peer.tensors(shapes), folder / "model.safetensors"
    )
    return str(folder)


def load(folder, architecture, without_dropout=False):
    """Returns our model of a folder."""
    model_class = next(
        MODELS[ending] for ending in MODELS if architecture.endswith(ending)
    )
    kwargs = {}
    if (
        without_dropout
        and "dropout" in inspect.signature(model_class).parameters
    ):
        kwargs["dropout"] = 0.0
    return checkpoints.load(folder, model_class, **kwargs)


def our_outputs(model, architecture, training=False):
    """Returns what a model computes, under transformers' names."""
    inputs = peer.inputs_of(architecture)
    if isinstance(model, BertPretrainer):
        encoded = model.encoder(inputs, training=training)
        logits = {
            "logits": model.masked_lm_head(
                encoded["sequence_output"],
                None,
                model.encoder.embeddings.word_embeddings,
            )
        }
        if not architecture.endswith("ForPreTraining"):
            return logits
        pair = model.next_sentence_head(encoded["pooled_output"])
        name = "sop_logits" if "Albert" in architecture else ""
        return {
            "prediction_logits": logits["logits"],
            name or "seq_relationship_logits": pair,
        }
    outputs = model(inputs, training=training)
    if isinstance(model, BertEncoder):
        states = {"last_hidden_state": outputs["sequence_output"]}
        if model.config.has_pooler:
            states["pooler_output"] = outputs["pooled_output"]
        return states
    return outputs if isinstance(outputs, dict) else {"logits": outputs}


def of_family(config, model_type):
    """Returns BERT's configuration as that of a family, with its padding."""
    fields = dict(
        sizes.FAMILIES.get(model_type, {}), vocab_size=config.vocab_size
    )
    if "padding_idx" in fields:
        fields["padding_idx"] = 0
    if model_type in ("albert", "electra"):
        fields["embedding_size"] = config.hidden_size - 2
    if model_type == "modernbert":
        # Windows that matter in short rows.
        fields["attention_window"] = 1
        fields["max_position_embeddings"] = config.max_position_embeddings
    return dataclasses.replace(config, model_type=model_type, **fields)
