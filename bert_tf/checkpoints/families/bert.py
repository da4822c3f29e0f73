"""One table of every tensor: its name and layout in each file format.

Shapes are those of the Keras variables. A dense kernel is `[in, out]` in Keras
and in Google's files and `[out, in]` in Hugging Face's; the outermost heads
(`output_weights`) are `[out, in]` in both.
"""

import dataclasses

GOOGLE = "google"
HUGGING_FACE = "hugging_face"

ENCODER = "encoder"
POOLER = "pooler"
MASKED_LM = "masked_lm"
NEXT_SENTENCE = "next_sentence"
CLASSIFIER = "classifier"
TOKEN_CLASSIFIER = "token_classifier"
SPAN = "span"
MULTIPLE_CHOICE = "multiple_choice"

PARTS = (
    ENCODER,
    POOLER,
    MASKED_LM,
    NEXT_SENTENCE,
    CLASSIFIER,
    TOKEN_CLASSIFIER,
    SPAN,
    MULTIPLE_CHOICE,
)

# The parts that each class of transformers has. Several heads are stored
# under one name ("classifier"): the class tells which one it is.
ARCHITECTURES = {
    "BertModel": (ENCODER, POOLER),
    "BertForPreTraining": (ENCODER, POOLER, MASKED_LM, NEXT_SENTENCE),
    "BertForMaskedLM": (ENCODER, MASKED_LM),
    "BertForNextSentencePrediction": (ENCODER, POOLER, NEXT_SENTENCE),
    "BertForSequenceClassification": (ENCODER, POOLER, CLASSIFIER),
    "BertForTokenClassification": (ENCODER, TOKEN_CLASSIFIER),
    "BertForQuestionAnswering": (ENCODER, SPAN),
    "BertForMultipleChoice": (ENCODER, POOLER, MULTIPLE_CHOICE),
}

# Adam's moments lie under the weight's name with one of these.
SLOTS = ("/adam_m", "/adam_v")

POSITION_EMBEDDINGS = "embeddings/position_embeddings"
# Hugging Face's names carry this prefix but in a bare BertModel.
HUGGING_FACE_PREFIX = "bert."


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorName:
    """A tensor of the model and what it is called where.

    Args:
        part: One of `PARTS`.
        keras: The end of the Keras variable's path.
        google: Name in a TF1 checkpoint of google-research/bert.
        hugging_face: Name in a model.safetensors, with the "bert." prefix.
        shape: Shape of the Keras variable.
        google_is_transposed: Whether Google's files hold the transpose.
        hugging_face_is_transposed: Whether Hugging Face's do.
    """

    part: str
    keras: str
    google: str
    hugging_face: str
    shape: tuple[int, ...]
    google_is_transposed: bool = False
    hugging_face_is_transposed: bool = False

    def stored_name(self, file_format):
        """Returns the name in `GOOGLE` or `HUGGING_FACE` files."""
        return self.google if file_format == GOOGLE else self.hugging_face

    def is_transposed(self, file_format):
        """Returns whether files of that format hold the transpose."""
        if file_format == GOOGLE:
            return self.google_is_transposed
        return self.hugging_face_is_transposed

    def stored_shape(self, file_format):
        """Returns the shape in files of that format."""
        return self.shape[:: -1 if self.is_transposed(file_format) else 1]


def tensor_names(config, parts=PARTS, num_labels=2):
    """Returns the `TensorName` of every tensor of these parts.

    Args:
        config: The `BertConfig` that gives the shapes.
        parts: Some of `PARTS`.
        num_labels: Outputs of the (token) classifier.
    """
    table = [*_encoder(config), *_heads(config, num_labels)]
    return tuple(name for name in table if name.part in parts)


def architecture_of(parts):
    """Returns the class of transformers for a model with these parts.

    Models for tokens and spans also have a pooler, which they do not use and
    their class does not have.
    """
    for architecture, its_parts in ARCHITECTURES.items():
        if set(its_parts) == set(parts) or (
            POOLER not in its_parts and {*its_parts, POOLER} == set(parts)
        ):
            return architecture
    raise ValueError(
        f"No model of Hugging Face has exactly these parts: {', '.join(parts)}."
    )


def match_variables(model):
    """Pairs the variables of a model with the table.

    Args:
        model: A model of `bert_tf.models`, or one that holds its layers under
            their names; it has a `config`.

    Returns:
        {TensorName: variable}, in the table's order.

    Raises:
        ValueError: If a variable is not in the table.
    """
    if not hasattr(model, "config"):
        raise ValueError(
            "`model` must be one of bert_tf.models. Received: a "
            f"{type(model).__name__}, which has no `config`."
        )
    table = {
        name.keras: name
        for name in tensor_names(
            model.config, num_labels=getattr(model, "num_labels", 2)
        )
    }
    matched = {}
    for variable in model.weights:
        keras_name = variable.path
        # The names of the models around the encoder come first in the path.
        while keras_name not in table and "/" in keras_name:
            keras_name = keras_name.split("/", 1)[1]
        if keras_name not in table:
            raise ValueError(
                f"The variable {variable.path} is none of a BERT's: only the "
                "models of bert_tf.models can be loaded and saved. Load the "
                "BertEncoder inside it."
            )
        matched[table[keras_name]] = variable
    return {name: matched[name] for name in table.values() if name in matched}


def parts_of(tensor_names):
    """Returns the parts that these tensors make up, in order."""
    return tuple(dict.fromkeys(name.part for name in tensor_names))


def _encoder(config):
    hidden = config.hidden_size
    inner = config.intermediate_size
    for keras, google, rows in (
        ("word_embeddings", "word_embeddings", config.vocab_size),
        (
            "position_embeddings",
            "position_embeddings",
            config.max_position_embeddings,
        ),
        ("segment_embeddings", "token_type_embeddings", config.type_vocab_size),
    ):
        yield TensorName(
            part=ENCODER,
            keras=f"embeddings/{keras}",
            google=f"bert/embeddings/{google}",
            hugging_face=f"bert.embeddings.{google}.weight",
            shape=(rows, hidden),
        )
    yield from _layer_norm(
        ENCODER,
        "embeddings/layer_norm",
        "bert/embeddings/LayerNorm",
        "bert.embeddings.LayerNorm",
        hidden,
    )
    for index in range(config.num_hidden_layers):
        keras = f"layer_{index}"
        google = f"bert/encoder/layer_{index}"
        hugging_face = f"bert.encoder.layer.{index}"
        for name in ("query", "key", "value"):
            yield from _dense(
                ENCODER,
                f"{keras}/attention/{name}",
                f"{google}/attention/self/{name}",
                f"{hugging_face}.attention.self.{name}",
                (hidden, hidden),
            )
        yield from _dense(
            ENCODER,
            f"{keras}/attention/merge_heads",
            f"{google}/attention/output/dense",
            f"{hugging_face}.attention.output.dense",
            (hidden, hidden),
        )
        yield from _layer_norm(
            ENCODER,
            f"{keras}/attention_layer_norm",
            f"{google}/attention/output/LayerNorm",
            f"{hugging_face}.attention.output.LayerNorm",
            hidden,
        )
        yield from _dense(
            ENCODER,
            f"{keras}/intermediate",
            f"{google}/intermediate/dense",
            f"{hugging_face}.intermediate.dense",
            (hidden, inner),
        )
        yield from _dense(
            ENCODER,
            f"{keras}/output",
            f"{google}/output/dense",
            f"{hugging_face}.output.dense",
            (inner, hidden),
        )
        yield from _layer_norm(
            ENCODER,
            f"{keras}/output_layer_norm",
            f"{google}/output/LayerNorm",
            f"{hugging_face}.output.LayerNorm",
            hidden,
        )
    yield from _dense(
        POOLER,
        "pooler/dense",
        "bert/pooler/dense",
        "bert.pooler.dense",
        (hidden, hidden),
    )


def _heads(config, num_labels):
    hidden = config.hidden_size
    yield from _dense(
        MASKED_LM,
        "masked_lm/transform",
        "cls/predictions/transform/dense",
        "cls.predictions.transform.dense",
        (hidden, hidden),
    )
    yield from _layer_norm(
        MASKED_LM,
        "masked_lm/layer_norm",
        "cls/predictions/transform/LayerNorm",
        "cls.predictions.transform.LayerNorm",
        hidden,
    )
    yield TensorName(
        part=MASKED_LM,
        keras="masked_lm/output_bias",
        google="cls/predictions/output_bias",
        hugging_face="cls.predictions.bias",
        shape=(config.vocab_size,),
    )
    for part, google, hugging_face, units in (
        (NEXT_SENTENCE, "cls/seq_relationship/", "cls.seq_relationship", 2),
        (CLASSIFIER, "", "classifier", num_labels),
        (TOKEN_CLASSIFIER, "", "classifier", num_labels),
        (SPAN, "cls/squad/", "qa_outputs", 2),
        # google-research/bert has no such head; in its files it is what a
        # classifier of one output would be.
        (MULTIPLE_CHOICE, "", "classifier", 1),
    ):
        yield TensorName(
            part=part,
            keras=f"{part}/dense/kernel",
            google=f"{google}output_weights",
            hugging_face=f"{hugging_face}.weight",
            shape=(hidden, units),
            google_is_transposed=True,
            hugging_face_is_transposed=True,
        )
        yield TensorName(
            part=part,
            keras=f"{part}/dense/bias",
            google=f"{google}output_bias",
            hugging_face=f"{hugging_face}.bias",
            shape=(units,),
        )


def _dense(part, keras, google, hugging_face, shape):
    yield TensorName(
        part=part,
        keras=f"{keras}/kernel",
        google=f"{google}/kernel",
        hugging_face=f"{hugging_face}.weight",
        shape=shape,
        hugging_face_is_transposed=True,
    )
    yield TensorName(
        part=part,
        keras=f"{keras}/bias",
        google=f"{google}/bias",
        hugging_face=f"{hugging_face}.bias",
        shape=shape[1:],
    )


def _layer_norm(part, keras, google, hugging_face, size):
    for leaf, hugging_face_leaf in (("gamma", "weight"), ("beta", "bias")):
        yield TensorName(
            part=part,
            keras=f"{keras}/{leaf}",
            google=f"{google}/{leaf}",
            hugging_face=f"{hugging_face}.{hugging_face_leaf}",
            shape=(size,),
        )
