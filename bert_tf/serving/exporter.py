"""Exports a model folder as a versioned SavedModel, whole or not at all."""

import dataclasses
import os
import tempfile
from typing import Any

import tensorflow as tf
from tensorflow.python.saved_model import save_context

from bert_tf import files
from bert_tf.serving import publishing
from bert_tf.serving import saved_model
from bert_tf.serving.formats import warmup
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds import opening
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.options import FLOAT32
from bert_tf.serving.options import ONNX
from bert_tf.serving.options import ExportOptions
from bert_tf.serving.proof import accuracy
from bert_tf.serving.proof import check
from bert_tf.serving.proof import report
from bert_tf.serving.proof.accuracy import Scorer

_DEFAULT = ExportOptions()


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
) -> Any:
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
        of its signatures and of the check.

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
    _check_arguments(model_dir, export_dir, options)
    if options.format == ONNX:
        from bert_tf.serving import onnx_exporter

        return onnx_exporter.export(model_dir, export_dir, options)
    export_dir = os.fspath(export_dir).rstrip("/")
    # Versions in ONNX are only written to a disk.
    if not files.is_remote(export_dir):
        saved_model.check_holds_no(
            export_dir,
            saved_model.ONNX_FILE,
            "version in ONNX: a server of these would take the SavedModel for "
            "one of them",
        )
    files.check_may_be_written_into(export_dir)
    present = saved_model.versions(export_dir)
    publishing.warn_of_leftovers(export_dir)
    servable = _open_folder(model_dir, options)
    texts = servable.check_texts()
    dev_set = _read_dev_set(servable)
    with publishing.work_folder(export_dir) as temporary:
        save(servable, temporary)
        if options.warmup_batch_sizes:
            warmup.write_requests(
                temporary,
                servable,
                options.warmup_batch_sizes,
                os.path.basename(export_dir),
            )
        table = ""
        if options.check:
            table = _check(temporary, servable, model_dir, texts, dev_set)
        exported = _describe(temporary, table)
        version = publishing.publish(temporary, export_dir)
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


def _open_folder(model_dir, options):
    """Returns the `Servable` of a model folder.

    Raises:
        ValueError: If the folder cannot be exported with these options.
    """
    if options.warmup_batch_sizes:
        warmup.check_installed()
    servable = opening.open_folder(model_dir, options)
    if options.warmup_batch_sizes:
        warmup.check_number(servable, options.warmup_batch_sizes)
    return servable


def _read_dev_set(servable):
    """Returns the `DevSet` of the check file; None if no score is asked for."""
    options = servable.options
    if (
        options.precision != FLOAT32
        or options.max_accuracy_loss is not None
        or options.label_column is not None
    ):
        return accuracy.read_dev_set(servable)
    return None


def _check(folder, servable, model_dir, texts, dev_set):
    """Checks a SavedModel that is not published yet, and returns the table.

    Raises:
        ValueError: If it does not answer as the trained model does.
    """
    table, problem = _compare(folder, servable, model_dir, texts, dev_set)
    if problem:
        raise ValueError(f"{problem}; nothing was exported.\n{table}")
    return table


def _compare(folder, servable, model_dir, texts, dev_set):
    """Compares a SavedModel with the trained model and records the result.

    Returns:
        The table of the comparison, and what is wrong with the SavedModel, ""
        if nothing is.
    """
    options, trained = servable.options, servable
    if options.precision != FLOAT32:
        trained = check.trained_servable(options, model_dir)
    scorer = dev_set and Scorer(dev_set)
    release, comparisons = check.compare(
        folder,
        trained,
        texts,
        scorer=scorer,
    )
    settings = saved_model.read_settings(folder)
    settings["check"] = list(map(dataclasses.asdict, comparisons))
    table, problem = report.comparisons_table(release, comparisons), ""
    if not all(comparison.is_equal for comparison in comparisons):
        problem = f"The SavedModel does not answer as {model_dir} does"
    elif scorer:
        found = scorer.accuracy()
        settings["accuracy"] = files.with_nulls(dataclasses.asdict(found))
        table = f"{table}\n{found}"
        if found.exceeds(options.max_accuracy_loss):
            problem = (
                f"The SavedModel scores too much less than {model_dir} does"
            )
    saved_model.write_settings(folder, settings)
    return table, problem


def save(servable: Servable, folder: str) -> None:
    """Writes a SavedModel into a local folder, which may exist.

    Args:
        servable: A `Servable`.
        folder: The folder.

    Raises:
        ValueError: If it holds an operation that old servers do not have.
        OSError: If writing fails, e.g. on a full disk.
    """
    with tempfile.TemporaryDirectory() as vocab_folder:
        vocab_path = f"{vocab_folder}/vocab.txt"
        files.write_text(vocab_path, servable.preprocessor.vocabulary.to_text())
        options = tf.saved_model.SaveOptions()
        # Functions traced outside this context are traced again on saving, and
        # the graph would hold both.
        with save_context.save_context(options):
            module = servable.make_module(vocab_path)
            module.trace()
            traced = signatures.make_signatures(servable, module)
        with files.clear_write_errors(folder):
            tf.saved_model.save(
                module, folder, signatures=traced, options=options
            )
    saved_model.set_method_names(folder, signatures.METHOD_NAMES)
    saved_model.check_ops(folder, has_text=servable.takes_text)
    settings = dataclasses.asdict(servable.options)
    # The results get that name.
    del settings["check"]
    settings["tensorflow"] = tf.__version__
    settings["weights_sha256"] = servable.weights_sha256
    saved_model.write_settings(folder, settings)


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
