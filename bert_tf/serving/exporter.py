"""Exports a model folder as a versioned SavedModel, whole or not at all."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.saved_model import save_context

from bert_tf import atomic
from bert_tf import backend
from bert_tf import files
from bert_tf.serving import onnx_exporter
from bert_tf.serving import publishing
from bert_tf.serving import saved_model
from bert_tf.serving.formats import warmup
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds import opening
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.texts import Row
from bert_tf.serving.onnx_exporter import OnnxExport
from bert_tf.serving.options import FLOAT32
from bert_tf.serving.options import ONNX
from bert_tf.serving.options import ExportOptions
from bert_tf.serving.proof import accuracy
from bert_tf.serving.proof import check
from bert_tf.serving.proof import report
from bert_tf.serving.proof.accuracy import Scorer

_DEFAULT = ExportOptions()
_SAVING = tf.saved_model.SaveOptions()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Export:
    """What was exported.

    Args:
        path: The version's folder.
        signatures: {name: its SignatureDef}.
        text_ops: Kinds of tensorflow_text operations in the graph, sorted.
        num_core_ops: Number of kinds of TensorFlow operations in the graph.
        graph_bytes: Size of saved_model.pb.
        variable_bytes: Size of the variables' files.
        check_table: Printable comparison with the trained model; empty if the
            check was skipped.
        pruned: The old versions that were removed.
    """

    path: str
    signatures: dict
    text_ops: tuple[str, ...]
    num_core_ops: int
    graph_bytes: int
    variable_bytes: int
    check_table: str
    pruned: tuple[int, ...] = ()

    def __str__(self):
        lines = [
            f"Exported {self.path}",
            f"  graph      {self.graph_bytes / 1e6:9.2f} MB",
            f"  variables  {self.variable_bytes / 1e6:9.2f} MB",
            f"  operations {self.num_core_ops:6d} kinds from TensorFlow, "
            f"{len(self.text_ops)} from tensorflow_text"
            + "".join(f"\n    {name}" for name in self.text_ops),
            "  signatures",
        ]
        for name, signature in sorted(self.signatures.items()):
            lines.append(f"    {name} ({signature.method_name})")
            lines += [
                f"      {arrow} {key}: {saved_model.describe(tensors[key])}"
                for arrow, tensors in (
                    ("<-", signature.inputs),
                    ("->", signature.outputs),
                )
                for key in sorted(tensors)
            ]
        if self.check_table:
            lines.append(self.check_table)
        if self.pruned:
            lines.append(
                f"Removed versions: {', '.join(map(str, self.pruned))}"
            )
        return "\n".join(lines)


def export(
    model_dir: files.AnyPath,
    export_dir: files.AnyPath,
    options: ExportOptions = _DEFAULT,
) -> Export | OnnxExport:
    """Writes a model folder as a SavedModel to `export_dir/version/`.

    Several exporters may write to the same folder at once; each gets a version
    of its own.

    Args:
        model_dir: A model folder of bert_tf or Hugging Face. A fine-tuned
            model is served for its task, any other as an encoder.
        export_dir: The servable's folder, `.../<name>`, local or remote.
        options: The `ExportOptions`.

    Returns:
        An `Export`: `path` is the version's folder, and `str()` gives a table
        of its signatures and of the check. With `format="onnx"`, an
        `OnnxExport`.

    Raises:
        ValueError: If the folder cannot be exported, or answers differ. Nothing
            is written in that case.

    Example:

        >>> import tensorflow as tf
        >>> from bert_tf import export
        >>> export("tickets", "servables/tickets").path
        'servables/tickets/1'
        >>> model = tf.saved_model.load("servables/tickets/1")
        >>> answer = model.signatures["serving_default"]
        >>> answers = answer(text=tf.constant(["the bill is wrong"]))
        >>> answers["classes"].numpy().tolist()
        [[b'law', b'sales']]
    """
    backend.check_is_tensorflow("An export")
    _check_arguments(model_dir, export_dir, options)
    export_dir = os.fspath(export_dir).rstrip("/")
    if options.format == ONNX:
        return onnx_exporter.export(model_dir, export_dir, options)
    if options.warmup_batch_sizes:
        warmup.check_installed()
    present = publishing.prepare(export_dir, saved_model.ONNX_FILE)
    # Open, make, sign, write, prove, publish.
    servable = opening.open_folder(model_dir, options)
    warmup.check_number(servable)
    texts = servable.check_texts()
    dev_set = accuracy.read_dev_set(servable)
    with publishing.work_folder(export_dir) as folder:
        module = make(servable, folder)
        traced = sign(servable, module)
        write(folder, servable, module, traced)
        if options.warmup_batch_sizes:
            name = os.path.basename(export_dir)
            warmup.write_requests(folder, servable, name)
        table = ""
        if options.check:
            scorer = Scorer(dev_set) if dev_set else None
            table = prove(folder, servable, model_dir, texts, scorer)
        exported = _describe(folder, table)
        version = publishing.publish(folder, export_dir)
    pruned = ()
    if options.keep_versions is not None:
        pruned = tuple(
            saved_model.prune(
                export_dir, options.keep_versions, keep=version, among=present
            )
        )
    return dataclasses.replace(
        exported, path=f"{export_dir}/{version}", pruned=pruned
    )


def _check_arguments(model_dir, export_dir, options):
    """Raises `ValueError` for arguments of `export` of other types."""
    for name, path in (("model_dir", model_dir), ("export_dir", export_dir)):
        files.check_path(name, path)
    if not isinstance(options, ExportOptions):
        raise ValueError(
            "`options` must be an ExportOptions. "
            f"Received: {type(options).__name__}."
        )


def make(servable: Servable, folder: str) -> Any:
    """Returns the root object of a SavedModel, its callables traced.

    Args:
        servable: A `Servable`.
        folder: The local folder that the SavedModel will be written into. The
            vocabulary is there afterwards.
    """
    # Where the SavedModel has its files.
    vocab_path = f"{folder}/assets/vocab.txt"
    files.make_folder(f"{folder}/assets")
    atomic.write_text(vocab_path, servable.preprocessor.vocabulary.to_text())
    # Functions traced outside this context are traced again on saving, and the
    # graph would hold both.
    with save_context.save_context(_SAVING):
        return servable.MODULE(servable, vocab_path)


def sign(servable: Servable, module: Any) -> dict[str, Any]:
    """Returns the signatures of what `make` returned: {name: function}."""
    with save_context.save_context(_SAVING):
        return signatures.make_signatures(servable, module)


def write(
    folder: str, servable: Servable, module: Any, traced: dict[str, Any]
) -> None:
    """Writes a SavedModel.

    Args:
        folder: As in `make`.
        servable: The `Servable`.
        module: What `make` returned.
        traced: What `sign` returned.

    Raises:
        ValueError: If it holds an operation that old servers do not have.
        OSError: If writing fails, e.g. on a full disk.
    """
    with atomic.clear_write_errors(folder):
        tf.saved_model.save(module, folder, signatures=traced, options=_SAVING)
    saved_model.set_method_names(folder, signatures.METHOD_NAMES)
    saved_model.check_ops(folder, has_text=servable.takes_text)
    settings = dataclasses.asdict(servable.options)
    # The results get that name.
    del settings["check"]
    settings["family"] = servable.family
    settings["tensorflow"] = tf.__version__
    settings["weights_sha256"] = servable.source.weights_sha256
    saved_model.write_settings(folder, settings)


def prove(
    folder: str,
    servable: Servable,
    model_dir: files.AnyPath,
    texts: Sequence[Row],
    scorer: Scorer | None,
) -> str:
    """Compares a SavedModel with the trained model, and records the result.

    Args:
        folder: The SavedModel.
        servable: The `Servable` that it was made from.
        model_dir: The model folder.
        texts: Rows of one or two strings, bytes.
        scorer: A `Scorer`, or None.

    Returns:
        The table of the comparison.

    Raises:
        ValueError: If it does not answer as the trained model does.
    """
    options, trained = servable.options, servable
    if options.precision != FLOAT32:
        trained = check.trained_servable(options, model_dir)
    release, comparisons = check.compare(folder, trained, texts, scorer=scorer)
    found = scorer.accuracy() if scorer else None
    table = report.comparisons_table(release, comparisons)
    settings = saved_model.read_settings(folder)
    settings["check"] = list(map(dataclasses.asdict, comparisons))
    if found:
        settings["accuracy"] = files.with_nulls(dataclasses.asdict(found))
        table = f"{table}\n{found}"
    saved_model.write_settings(folder, settings)
    report.check_is_good(
        f"The SavedModel of {model_dir}",
        comparisons,
        found,
        options.max_accuracy_loss,
        table,
    )
    return table


def _describe(folder, check_table):
    text_ops, core_ops = saved_model.read_ops(folder)
    variables = f"{folder}/variables"
    return Export(
        path=folder,
        signatures=saved_model.read_signatures(folder),
        text_ops=text_ops,
        num_core_ops=len(core_ops),
        graph_bytes=os.path.getsize(f"{folder}/{saved_model.FILE}"),
        variable_bytes=sum(
            os.path.getsize(f"{variables}/{name}")
            for name in files.list_folder(variables)
        ),
        check_table=check_table,
    )
