"""Exports: a model folder as a versioned SavedModel, whole or not at all."""

import dataclasses
import json
import os
import tempfile

import tensorflow as tf

from bert_tf import files
from bert_tf import formats
from bert_tf.serving import publishing
from bert_tf.serving import saved_model
from bert_tf.serving.formats import warmup
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds import source as source_lib
from bert_tf.serving.proof import caller
from bert_tf.serving.proof import check
from bert_tf.serving.proof import report


@dataclasses.dataclass(frozen=True, kw_only=True)
class Export:
    """What was exported.

    Args:
        path: The version's folder.
        signatures: {name: its SignatureDef}.
        text_ops: Operations of tensorflow_text in it, sorted.
        num_core_ops: How many kinds of TensorFlow's own are in it.
        graph_bytes: Size of saved_model.pb.
        variable_bytes: Size of the variables' files.
        check_table: The comparison with the trained model, to be read; empty
            where it was not made.
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
            f"  operations {self.num_core_ops:6d} kinds of TensorFlow's, "
            f"{len(self.text_ops)} of tensorflow_text's"
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
    model_dir,
    export_dir,
    *,
    contents=saved_model.TEXT,
    version=None,
    max_seq_length=None,
    text_features=None,
    servable=None,
    precision=source_lib.FLOAT32,
    is_frozen=False,
    bounds=None,
    is_checked=True,
    check_file=None,
    timeout_seconds=None,
    warmup_batch_sizes=(),
    keep_versions=None,
):
    """Writes `export_dir/version/` from a model folder.

    Others may export into the same folder meanwhile: each gets a version.

    Args:
        model_dir: A model folder: a fine-tuned one becomes what its task
            answers, any other an encoder.
        export_dir: The servable's folder, `.../<name>`.
        contents: One of `saved_model.CONTENTS`: signatures of strings, ids
            and Examples, or of ids only, which loads where tensorflow_text
            is not linked.
        version: A number from 0; the one after the highest there if None.
        max_seq_length: Longest sequence; the folder's if None.
        text_features, servable, precision, is_frozen, bounds: As of
            `source.read`.
        is_checked: Whether the SavedModel is loaded in a process of its own
            before it gets its place, and its answers to the hard texts are
            compared with the trained model's.
        check_file: None, or a file of texts to compare on as well; see
            `check.read_texts`.
        timeout_seconds: Of the check, as of `caller.calling`;
            `caller.TIMEOUT_SECONDS` if None.
        warmup_batch_sizes: Batch sizes that the server warms up with, one
            request a signature; needs tensorflow-serving-api.
        keep_versions: How many versions stay, the newest ones by number and
            the one written; None for all.

    Returns:
        An `Export`.

    Raises:
        ValueError: If the folder cannot be exported, the version is there, or
            answers differ; nothing has been written then.
    """
    if contents not in saved_model.CONTENTS:
        raise ValueError(
            f"`contents` must be one of {', '.join(saved_model.CONTENTS)}. "
            f"Received: contents={contents!r}."
        )
    export_dir = os.fspath(export_dir).rstrip("/")
    present = saved_model.versions(export_dir)
    # Where it is not given its number is found when it is whole.
    number = publishing.next_version(export_dir) if version is None else version
    if not 0 <= number <= saved_model.MAX_VERSION or number in present:
        raise ValueError(
            "`version` must be a number from 0, of 63 bits, that is not there "
            "yet. "
            f"Received: version={number}; in {export_dir}: "
            f"{', '.join(map(str, present)) or 'none'}."
        )
    if version is not None:
        publishing.check_unclaimed(export_dir, version)
    if keep_versions is not None and keep_versions < 1:
        raise ValueError(
            "`keep_versions` must be at least 1. "
            f"Received: keep_versions={keep_versions}."
        )
    if check_file is not None and not is_checked:
        raise ValueError(
            "`check_file` must not be given without the check. "
            f"Received: check_file={check_file}."
        )
    if timeout_seconds is not None and not is_checked:
        raise ValueError(
            "`timeout_seconds` must not be given without the check. "
            f"Received: timeout_seconds={timeout_seconds}."
        )
    publishing.warn_of_leftovers(export_dir)
    source = source_lib.read(
        model_dir,
        max_seq_length,
        text_features,
        servable,
        precision,
        is_frozen,
        bounds,
    )
    if contents == saved_model.IDS:
        _check_bounds_of_ids(bounds or {}, source.servable)
    texts = source.servable.hard_texts(len(source.text_features))
    if check_file is not None:
        texts = texts + check.read_texts(check_file, source)
    with publishing.work_folder(export_dir) as temporary:
        save(source, temporary, contents)
        if warmup_batch_sizes:
            warmup.write_requests(
                temporary,
                source,
                warmup_batch_sizes,
                os.path.basename(export_dir),
            )
        table = ""
        if is_checked:
            trained = source
            if precision != source_lib.FLOAT32:
                trained = check.source_of(temporary, model_dir)
            release, comparisons = check.compare(
                temporary,
                trained,
                texts,
                timeout_seconds=timeout_seconds or caller.TIMEOUT_SECONDS,
            )
            table = report.comparisons_table(release, comparisons)
            if not all(comparison.is_equal for comparison in comparisons):
                raise ValueError(
                    f"The SavedModel does not answer as {model_dir} does; "
                    f"nothing was exported.\n{table}"
                )
        exported = _describe(temporary, table)
        version = publishing.publish(temporary, export_dir, version)
    pruned = ()
    if keep_versions is not None:
        pruned = tuple(
            saved_model.prune(
                export_dir, keep_versions, keep=version, among=present
            )
        )
    return dataclasses.replace(
        exported, path=f"{export_dir}/{version}", pruned=pruned
    )


def _check_bounds_of_ids(bounds, servable):
    """Raises `ValueError` if one of them bounds nothing in requests of ids."""
    unused = [name for name in bounds if name not in servable.BOUNDS_OF_IDS]
    if unused:
        names = " and ".join(f"`{name}`" for name in unused)
        values = ", ".join(f"{name}={bounds[name]!r}" for name in unused)
        raise ValueError(
            f"{names} must not be given with contents={saved_model.IDS}, which "
            f"takes no text. Received: {values}."
        )


def save(source, folder, contents=saved_model.TEXT):
    """Writes a SavedModel into a local folder, which may be there already.

    Args:
        source: A `Source`.
        folder: The folder.
        contents: As of `export`.

    Raises:
        ValueError: If it holds an operation that old servers do not have.
    """
    with tempfile.TemporaryDirectory() as vocab_folder:
        vocab_path = f"{vocab_folder}/vocab.txt"
        files.write_text(vocab_path, source.preprocessor.vocabulary.to_text())
        module = source.servable.make_module(
            source, vocab_path, takes_text=contents == saved_model.TEXT
        )
        module.trace()
        tf.saved_model.save(
            module,
            folder,
            signatures=source.servable.make_signatures(module, source),
        )
    saved_model.set_method_names(folder, signatures.METHOD_NAMES)
    saved_model.check_ops(folder, has_text=contents == saved_model.TEXT)
    extra = f"{folder}/{saved_model.EXTRA_FOLDER}"
    files.write_text(
        f"{extra}/{saved_model.SETTINGS_FILE}",
        json.dumps(
            formats.stamped(
                {
                    "contents": contents,
                    "kind": source.servable.KIND,
                    "settings": source.servable.settings,
                    "bounds": source.servable.bounds,
                    "precision": source.precision,
                    "is_frozen": source.is_frozen,
                    "max_seq_length": source.preprocessor.max_seq_length,
                    "text_features": list(source.text_features),
                    "tensorflow": tf.__version__,
                },
                formats.EXPORT,
            ),
            indent=2,
        )
        + "\n",
    )


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
