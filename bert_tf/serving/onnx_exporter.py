"""Exports models to ONNX for programs without TensorFlow.

Ids go in; logits or vectors come out. A version's folder holds model.onnx
(float32), model_int8.onnx (matrix products with 8-bit weights, and activations
quantized at run time), the tokenizer's files, config.json and bert_tf.json. The
last two hold the label names.
"""

import copy
import dataclasses
import logging
import os
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf import atomic
from bert_tf import features
from bert_tf import files
from bert_tf import formats
from bert_tf.checkpoints import config_json
from bert_tf.checkpoints import model_folder
from bert_tf.layers.heads import Transform
from bert_tf.serving import publishing
from bert_tf.serving import saved_model
from bert_tf.serving.formats import onnx_graph
from bert_tf.serving.formats.onnx_graph import OnnxGraph
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds import opening
from bert_tf.serving.kinds import token_embeddings
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.texts import Row
from bert_tf.serving.kinds.token_embeddings import TokenEmbeddings
from bert_tf.serving.options import ExportOptions
from bert_tf.serving.proof import accuracy
from bert_tf.serving.proof import check
from bert_tf.serving.proof import report
from bert_tf.serving.proof.accuracy import Scorer
from bert_tf.tasks import calibration
from bert_tf.tasks import families
from bert_tf.tasks.features.options import CLS
from bert_tf.tasks.features.options import MAX
from bert_tf.tasks.features.options import MEAN
from bert_tf.tasks.question_answering.task import OUTPUTS
from bert_tf.text import packing
from bert_tf.text.tokenizers import files as tokenizer_files

FLOAT_FILE, INT8_FILE = saved_model.ONNX_FILE, "model_int8.onnx"
FILES = (FLOAT_FILE, INT8_FILE)
# The options that apply to ONNX.
_TAKEN = (
    "format",
    "kind",
    "pooling",
    "normalize",
    "prompt_name",
    "prompt",
    "layer",
    "max_seq_length",
    "text_features",
    "check",
    "eval_file",
    "label_column",
    "token_column",
    "max_accuracy_loss",
)
# The end of a slice along an axis of any length.
_END = 2**31 - 1
# The limit of protocol buffers is 2 GiB.
_MOST_BYTES = 2**31 - 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnnxExport:
    """What was exported.

    Args:
        path: The version's folder.
        check_table: Printable comparison of both models with the trained one;
            empty if the check was skipped.
        num_bytes: {name of a model's file: its size}.
    """

    path: str
    check_table: str
    num_bytes: dict[str, int]

    def __str__(self):
        lines = [f"Exported {self.path}"]
        lines += [
            f"  {name:16} {size / 1e6:9.2f} MB"
            for name, size in self.num_bytes.items()
        ]
        return "\n".join([*lines, *filter(None, [self.check_table])])


def export(
    model_dir: files.AnyPath, export_dir: files.AnyPath, options: ExportOptions
) -> OnnxExport:
    """Writes a model folder as an ONNX model to `export_dir/version/`.

    Args:
        model_dir: A model folder of a classifier, a regression, a multi-label
            model, a reranker, a tagger, question answering or multiple choice;
            or any with the kind "embedding" or "token_embeddings".
        export_dir: A local folder for versions in ONNX.
        options: The `ExportOptions`; those that only concern SavedModels must
            be the defaults.

    Raises:
        ValueError: If the model cannot be exported to ONNX, its float32
            answers differ from the trained model's, or onnx or onnxruntime is
            not installed. Nothing is written in that case.
    """
    _check_installed()
    export_dir = os.fspath(export_dir).rstrip("/")
    _check_options(options, export_dir)
    publishing.prepare(export_dir, saved_model.FILE)
    # Open, make, write, prove, publish: the graph's own inputs and outputs are
    # its signature.
    servable = opening.open_folder(model_dir, options)
    texts = servable.check_texts()
    dev_set = accuracy.read_dev_set(servable, signatures.IDS)
    model = make_model(servable)
    with publishing.work_folder(export_dir) as folder:
        write(folder, servable, model)
        table = ""
        if options.check:
            scorers = [Scorer(dev_set) for _ in FILES if dev_set]
            table = prove(folder, servable, texts, scorers)
        sizes = {name: os.path.getsize(f"{folder}/{name}") for name in FILES}
        version = publishing.publish(folder, export_dir)
    return OnnxExport(
        path=f"{export_dir}/{version}", check_table=table, num_bytes=sizes
    )


def prove(
    folder: str,
    servable: Servable,
    texts: Sequence[Row],
    scorers: Sequence[Scorer],
) -> str:
    """Compares both models with the trained one, and returns the table.

    Args:
        folder, servable, texts, scorers: As in `compare`.

    Raises:
        ValueError: If float32 answers otherwise, or either loses too much of
            its score. Differences of int8 are shown, but no error: float32 is
            there too.
    """
    comparisons = compare(folder, servable, texts, scorers)
    table = "\n".join(
        report.comparisons_table(
            _onnxruntime().__version__, [each], "ONNX Runtime"
        )
        for each in comparisons
    )
    scores = {name: scorer.accuracy() for name, scorer in zip(FILES, scorers)}
    table = "\n".join(
        [table, *(f"{name}: {found}" for name, found in scores.items())]
    )
    for name, compared in ((FLOAT_FILE, comparisons[:1]), (INT8_FILE, ())):
        report.check_is_good(
            name,
            compared,
            scores.get(name),
            servable.options.max_accuracy_loss,
            table,
        )
    return table


def make_model(servable: Servable) -> Any:
    """Returns the ModelProto of a servable.

    Raises:
        ValueError: If its kind or its model cannot be exported to ONNX, or is
            too large.
    """
    row = families.of_kind(type(servable))
    make = row.load("onnx") if row else None
    if isinstance(servable, TokenEmbeddings):
        make = make_token_embeddings
    if make is None:
        raise ValueError(
            "--format must be saved_model for this kind: onnx is for "
            "classifiers, regressions, multi-label models, rerankers, taggers, "
            "question answering, multiple choice, and embeddings of texts or "
            "tokens. "
            f"Received: --format=onnx, a model of {type(servable).__name__}."
        )
    if servable.model.config.is_decoder:
        raise ValueError(
            "--format must be saved_model for a left-to-right model. "
            "Received: --format=onnx."
        )
    model = make(servable)
    if model.ByteSize() > _MOST_BYTES:
        raise ValueError(
            f"A model in ONNX must be smaller than {_MOST_BYTES:,} bytes. "
            f"Received: {model.ByteSize():,} bytes."
        )
    return model


def compare(
    folder: str,
    servable: Servable,
    texts: Sequence[Row],
    scorers: Sequence[Scorer] = (),
) -> list[check.Comparison]:
    """Compares both models with the trained one, through ONNX Runtime.

    Args:
        folder: A version's folder.
        servable: The `Servable` that they were made from.
        texts: Rows of one or two strings, bytes.
        scorers: One for the answers of each of `FILES`, or none.

    Returns:
        A `check.Comparison` for each of `FILES`, and one for int8 with a text
        at a time, as the other texts of a batch set the range of the 8 bits
        too. int8 has the tolerance of bfloat16.
    """
    alone = f"{INT8_FILE}, a text at a time"
    models = {name: load(f"{folder}/{name}") for name in FILES}
    models[alone] = models[INT8_FILE]
    tolerances = dict.fromkeys(models, check.BFLOAT16_TOLERANCE)
    tolerances[FLOAT_FILE] = check.TOLERANCE
    scorer_of = dict(zip(FILES, scorers))
    found: dict[str, list[check.Difference]] = {name: [] for name in models}
    outputs = servable.outputs[signatures.IDS]
    # The logits of the ONNX models are calibrated already.
    uncalibrated = copy.copy(servable)
    if servable.task is not None:
        uncalibrated.task = calibration.uncalibrated(servable.task)

    def compare_batch(name, batch, inputs, trained):
        trimmed = packing.trim_padding(inputs)
        decoded = uncalibrated.decode_rows(trimmed, models[name](trimmed))
        served = {
            output.name: decoded[output.name].numpy() for output in outputs
        }
        if name in scorer_of:
            scorer_of[name].add(trained, served)
        found[name].append(
            check.compare_batch(
                servable,
                batch,
                trained,
                served,
                outputs,
                tolerances[name],
                must_be_equal=name == FLOAT_FILE,
            )
        )

    for batch, inputs, trained in check.trained_batches(
        "The model in ONNX is compared", servable, texts
    ):
        for name in FILES:
            compare_batch(name, batch, inputs, trained)
        for row in range(len(batch)):
            only = slice(row, row + 1)
            inputs_1, trained_1 = (
                {name: rows[only] for name, rows in values.items()}
                for values in (inputs, trained)
            )
            compare_batch(alone, batch[only], inputs_1, trained_1)
    return [
        check.summarize(name, each, len(texts), tolerances[name])
        for name, each in found.items()
    ]


def load(path: str) -> Callable[[Any], Any]:
    """Returns a function from model inputs to a model's output.

    The output is a tensor, or {name: tensor} if there are several.
    """
    import tensorflow as tf

    session = _onnxruntime().InferenceSession(
        path, providers=["CPUExecutionProvider"]
    )

    names = [output.name for output in session.get_outputs()]

    def answer(inputs):
        outputs = session.run(
            None,
            {
                outside: inputs[name].numpy().astype(np.int64)
                for name, outside in zip(
                    features.MODEL_INPUTS, _names_of_model_inputs()
                )
            },
        )
        tensors = dict(zip(names, map(tf.constant, outputs), strict=True))
        return tensors if len(names) > 1 else tensors[names[0]]

    return answer


def _names_of_model_inputs():
    outside = {
        features.INPUT_IDS: onnx_graph.INPUTS[0],
        features.INPUT_MASK: onnx_graph.INPUTS[1],
        features.SEGMENT_IDS: onnx_graph.INPUTS[2],
    }
    return [outside[name] for name in features.MODEL_INPUTS]


def make_classifier(servable: Any) -> Any:
    """Returns the ModelProto of a classifier, regression or reranker."""
    graph, head = OnnxGraph(), servable.model.classification_head
    logits = _add_logits(graph, servable, head, onnx_graph.INPUTS)
    return graph.to_model({"logits": (logits, [servable.model.num_labels])})


def make_multiple_choice(servable: Any) -> Any:
    """Returns the ModelProto of a model for multiple choice."""
    graph, head = OnnxGraph(), servable.model.choice_head
    flat, shape = onnx_graph.add_flat_choices(graph)
    logits = _add_logits(graph, servable, head, flat)
    choices = onnx_graph.CHOICES
    return graph.to_model(
        {"logits": (graph.apply("Reshape", logits, shape), [choices])},
        input_axes=[choices, onnx_graph.LENGTH],
    )


def _add_logits(graph, servable, head, inputs):
    """Adds a head on the pooled outputs: logits `[B, labels]`."""
    model = servable.model
    *_, sequence = onnx_graph.add_encoder(graph, model.encoder, inputs)
    if model.config.classifier_pooling == MEAN:
        x = _add_pooling(graph, sequence, inputs[1], MEAN)
    else:
        x = onnx_graph.add_pooled(graph, model.encoder, sequence)
    x = _add_hidden_layer(graph, model.hidden_layer, x)
    # The softmax or sigmoids of these logits are calibrated probabilities. A
    # reranker that was tuned elsewhere has no task.
    temperature = calibration.temperature_of(servable.task)
    return graph.dense(head.dense, x, 1 / temperature)


def _add_hidden_layer(graph, layer, x):
    """Adds what a head begins with; nothing if `layer` is None."""
    if isinstance(layer, Transform):
        x = graph.dense(layer.transform, x)
        x = graph.activation(layer.config.masked_lm_act, x)
        return graph.layer_norm(layer.layer_norm, x)
    if layer is None:
        return x
    return graph.activation(layer.activation, graph.dense(layer.dense, x))


def make_tagger(servable: Any) -> Any:
    """Returns the ModelProto of a tagger."""
    graph, model = OnnxGraph(), servable.model
    *_, sequence = onnx_graph.add_encoder(graph, model.encoder)
    x = _add_hidden_layer(graph, model.hidden_layer, sequence)
    logits = graph.dense(model.classification_head.dense, x)
    axes = [onnx_graph.LENGTH, model.num_labels]
    return graph.to_model({"logits": (logits, axes)})


def make_span_predictor(servable: Any) -> Any:
    """Returns the ModelProto of a model for question answering."""
    graph, model = OnnxGraph(), servable.model
    *_, sequence = onnx_graph.add_encoder(graph, model.encoder)
    x = _add_hidden_layer(graph, model.hidden_layer, sequence)
    logits = graph.dense(model.span_head.dense, x)
    return graph.to_model(
        {
            name: (
                graph.apply(
                    "Gather",
                    logits,
                    graph.constant(f"index_{index}", index, np.int64),
                    axis=2,
                ),
                [onnx_graph.LENGTH],
            )
            for index, name in enumerate(OUTPUTS)
        }
    )


def make_token_embeddings(servable: Any) -> Any:
    """Returns the ModelProto of embeddings of tokens."""
    graph = OnnxGraph()
    outputs = onnx_graph.add_encoder(graph, servable.model)
    x = outputs[servable.options.layer]
    mask = _add_float_mask(graph, onnx_graph.INPUTS[1])
    axes = [onnx_graph.LENGTH, servable.model.config.hidden_size]
    return graph.to_model(
        {token_embeddings.OUTPUT: (graph.apply("Mul", x, mask), axes)}
    )


def make_embedding(servable: Any) -> Any:
    """Returns the ModelProto of embeddings of texts."""
    graph = OnnxGraph()
    outputs = onnx_graph.add_encoder(graph, servable.model)
    layers = [outputs[layer] for layer in servable.layers]
    x, mask = layers[0], onnx_graph.INPUTS[1]
    if len(layers) > 1:
        x = graph.apply("Concat", *layers, axis=-1)
    if servable.num_left_out:
        x, mask = _cut_prompt(graph, x, mask, servable.num_left_out)
    vectors = servable.made_vectors
    x = _add_pooling(graph, x, mask, vectors.pooling)
    x = _add_dense(graph, x, vectors.dense)
    if servable.options.normalize:
        x = _add_normalization(graph, x)
    if len(layers) == 1 and vectors.truncate_dim is not None:
        start, end = graph.integers(0), graph.integers(vectors.truncate_dim)
        x = graph.apply("Slice", x, start, end, graph.integers(1))
    return graph.to_model({"embeddings": (x, servable.row_shape)})


def _cut_prompt(graph, x, mask, num_tokens):
    """Cuts the first tokens off: `[B, L - tokens, D]`, `[B, L - tokens]`.

    The first token is then the one after the prompt. One position stays, as an
    empty batch may have no more.
    """
    last = graph.apply("Shape", mask, start=1, end=2)
    last = graph.apply("Sub", last, graph.integers(1))
    start = graph.apply("Min", graph.integers(num_tokens), last)
    x, mask = (
        graph.apply(
            "Slice", each, start, graph.integers(_END), graph.integers(1)
        )
        for each in (x, mask)
    )
    return x, mask


def _add_pooling(graph, x, mask, pooling):
    """Adds the pooling of tokens, "cls", "mean" or "max": `[B, D]`."""
    if pooling == CLS:
        first = graph.constant("first", 0, np.int64)
        return graph.apply("Gather", x, first, axis=1)
    mask = _add_float_mask(graph, mask)
    if pooling == MAX:
        least = graph.constant("least", np.finfo(np.float32).min)
        x = graph.apply("Where", graph.cast(mask, "BOOL"), x, least)
        return graph.apply("ReduceMax", x, axes=[1], keepdims=0)
    one = graph.constant("one", 1.0)
    axis = graph.integers(1)
    total = graph.apply("ReduceSum", mask, axis, keepdims=1)
    weights = graph.apply("Div", mask, graph.apply("Max", total, one))
    x = graph.apply("Mul", x, weights)
    return graph.apply("ReduceSum", x, axis, keepdims=0)


def _add_float_mask(graph, mask):
    """Adds the mask as factors of vectors, `[B, L, 1]`."""
    mask = graph.cast(mask, "FLOAT")
    return graph.apply("Unsqueeze", mask, graph.integers(2))


def _add_dense(graph, x, layers):
    """Adds the Dense layers of a folder of sentence-transformers."""
    for index, layer in enumerate(layers):
        kernel = graph.constant(f"dense_{index}_kernel", layer.kernel)
        x = graph.apply("MatMul", x, kernel)
        if layer.bias is not None:
            bias = graph.constant(f"dense_{index}_bias", layer.bias)
            x = graph.apply("Add", x, bias)
        x = graph.activation(layer.activation, x)
    return x


def _add_normalization(graph, x):
    """Adds the division of vectors by their length."""
    norm = graph.apply("ReduceL2", x, axes=[-1], keepdims=1)
    least = graph.constant("least_norm", 1e-12)
    return graph.apply("Div", x, graph.apply("Max", norm, least))


def quantize(folder: files.AnyPath) -> None:
    """Writes a folder's 8-bit model beside the float32 one.

    Raises:
        OSError: If writing fails, e.g. on a full disk.
    """
    from google.protobuf.message import DecodeError
    from onnxruntime import quantization

    # quantize_dynamic logs each tensor that it leaves as it is, and asks to
    # preprocess the model, which users of the exporter cannot do.
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        # Embedding tables are looked up, not multiplied: they stay float32.
        quantization.quantize_dynamic(
            f"{folder}/{FLOAT_FILE}",
            f"{folder}/{INT8_FILE}",
            op_types_to_quantize=["MatMul"],
            weight_type=quantization.QuantType.QInt8,
            per_channel=True,
        )
    # It first writes a temporary model and reads it, complete or not.
    except (OSError, DecodeError) as error:
        raise OSError(
            f"{INT8_FILE} cannot be written; is the disk full? {error}"
        ) from error
    finally:
        root.setLevel(level)


def write(folder: str, servable: Servable, model: Any) -> None:
    """Writes the files of a version into an existing folder.

    Args:
        folder: The folder.
        servable: The `Servable`.
        model: What `make_model` returned.
    """
    atomic.write_bytes(f"{folder}/{FLOAT_FILE}", model.SerializeToString())
    quantize(folder)
    tokenizer = servable.preprocessor.tokenizer.spec
    texts = {
        tokenizer_files.SETTINGS_FILE: files.to_json(
            tokenizer_files.settings_of(tokenizer)
            | {"model_max_length": servable.options.max_seq_length}
        ),
        **tokenizer.vocabulary_files,
    }
    if tokenizer.tokenizer_json is not None:
        texts[tokenizer_files.TOKENIZER_FILE] = files.to_json(
            tokenizer.tokenizer_json
        )
    labels = list(getattr(servable.task, "labels", ()))
    if servable.source.config:
        # The labels of task.json, which the outputs follow.
        texts[model_folder.CONFIG_FILE] = files.to_json(
            servable.source.config
            | (config_json.name_fields(labels) if labels else {})
        )
    texts[saved_model.SETTINGS_FILE] = files.to_json(
        formats.stamped(_describe(servable, labels), formats.EXPORT)
    )
    for name, text in texts.items():
        data = text if isinstance(text, bytes) else text.encode()
        atomic.write_bytes(f"{folder}/{name}", data)


def _describe(servable, labels):
    """Returns what a version's clients need to know, for its bert_tf.json.

    docs/serving.md explains the keys. Options that only say how the version was
    made, or that concern SavedModels, are left out.
    """
    options = servable.options
    described = {
        "format": "onnx",
        "kind": options.kind,
        "family": servable.family,
        "text_features": options.text_features,
        "max_seq_length": options.max_seq_length,
        "weights_sha256": servable.source.weights_sha256,
    }
    for name in ("pooling", "normalize", "prompt", "layer"):
        if name in servable.DEFAULTS:
            described[name] = getattr(options, name)
    if labels:
        described["labels"] = labels
    return described


def _check_options(options, export_dir):
    for field in dataclasses.fields(ExportOptions):
        value = getattr(options, field.name)
        default = getattr(ExportOptions(), field.name)
        if field.name not in _TAKEN and value != default:
            raise ValueError(
                f"--{field.name} must not be given with --format=onnx. "
                f"Received: --{field.name}={value}."
            )
    if files.is_remote(export_dir):
        raise ValueError(
            "--export_dir must be a local folder with --format=onnx. "
            f"Received: --export_dir={export_dir}."
        )


def _check_installed():
    try:
        import onnx  # noqa: F401

        _onnxruntime()
    except ImportError as error:
        raise ValueError(
            "--format=onnx needs onnx and onnxruntime: pip install "
            f"'bert_tf[onnx]'. ({error})"
        ) from error


def _onnxruntime():
    import onnxruntime

    return onnxruntime
