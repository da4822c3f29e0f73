r"""Makes TFRecords of masked, paired examples for BERT's pre-training.

    python -m bert_tf.data.create_pretraining_data \
        --input_file='wiki-*.txt,books.txt' \
        --output_file=/data/wiki.tfrecord@16 \
        --vocab_file=vocab.txt --dupe_factor=5

The input has one sentence a line and a blank line between documents. A document
continues from one file into the next. --input_format reads raw text, and
--tfds_name a set of TensorFlow Datasets. The flags, their defaults and the
records are those of google-research/bert's program of this name. The same
input, flags and seed give the same bytes, with any number of processes. Run the
command again to resume a killed run. Existing records are replaced only with
--overwrite. A manifest is written beside the records:
manifest-<first record file>.json.
"""

import time

from absl import flags
from tqdm import tqdm

from bert_tf import atomic
from bert_tf import program
from bert_tf.pretraining.settings import Settings

_SETTINGS = program.define_flags(Settings, masking_mode="masking")
_INPUT_FILE = flags.DEFINE_string(
    "input_file",
    None,
    "Text files, plain or .gz, .xz, .bz2: globs, comma-separated.",
)
_TFDS_NAME = flags.DEFINE_string(
    "tfds_name",
    None,
    "Instead of input_file: a prepared text set of TensorFlow Datasets, e.g. "
    "wikipedia/20230601.en. Each of its examples is a document of prose. It "
    "is looked for in TFDS_DATA_DIR of the environment, or in "
    "~/tensorflow_datasets.",
)
_TFDS_SPLIT = flags.DEFINE_string(
    "tfds_split", "train", "The split of the set to read, e.g. train[:10%]."
)
_OUTPUT_FILE = flags.DEFINE_string(
    "output_file",
    None,
    "Record files, comma-separated, of about equal size. name@4 stands for "
    "name-00000-of-00004 to name-00003-of-00004.",
)
_VOCAB_FILE = flags.DEFINE_string(
    "vocab_file",
    None,
    "WordPiece vocabulary with one entry a line; or a folder with the files of "
    "a tokenizer.",
)
_DO_LOWER_CASE = flags.DEFINE_bool(
    "do_lower_case",
    True,
    "Lower-case the text and drop accents: True for an uncased vocabulary, "
    "False for a cased one. With a folder, the default is its own setting.",
)
_MAX_BAD_LINES = flags.DEFINE_integer(
    "max_bad_lines",
    0,
    "Most lines that may be left out, with a warning, because they are not "
    "UTF-8 or not in the input's format. One more ends the run; it can then be "
    "resumed with a higher number.",
    lower_bound=0,
)
_NUM_WORKERS = flags.DEFINE_integer(
    "num_workers",
    0,
    "Number of processes. 0: one per core, fewer for a small input.",
    lower_bound=0,
)
_OVERWRITE = flags.DEFINE_bool(
    "overwrite", False, "Replace existing record files."
)
_WORK_DIR = flags.DEFINE_string(
    "work_dir",
    None,
    "Work folder on a local disk. It holds the records until all are complete, "
    "and two more bytes per token (four if the vocabulary has more than 65,536 "
    "entries), in all about 1.1 KB for an example of 128 tokens. It must be "
    "empty or left by an earlier run, and is removed at the end. Default: a "
    "folder beside the first record file. With beam_runner: a folder that all "
    "workers see, in which the work folder is made.",
)
_BEAM_RUNNER = flags.DEFINE_string(
    "beam_runner",
    None,
    "Run as an Apache Beam pipeline on this runner: DirectRunner, "
    "DataflowRunner, FlinkRunner, SparkRunner... Needs `bert_tf[beam]`. The "
    "records are the same.",
)
_BEAM_OPTION = flags.DEFINE_multi_string(
    "beam_option",
    [],
    "An option of the Beam pipeline, as name=value. Repeat the flag for more.",
)

# Units of the progress bar, by the builder's stage.
_UNITS = {"tokenize": "B", "cut": " blocks", "write": " examples"}


def main(argv):
    del argv
    program.end_at_sigterm()
    program.require(
        output_file=_OUTPUT_FILE.value, vocab_file=_VOCAB_FILE.value
    )
    values = {name: flag.value for name, flag in _SETTINGS.items()}
    if _TFDS_NAME.value:
        values["input_format"] = "tfds"
    settings = Settings(**values)
    source = _source()

    from bert_tf.pretraining import run_local
    from bert_tf.pretraining.records import tfrecord
    from bert_tf.text.tokenizers import files as tokenizer_files

    atomic.check_is_no_input(
        "output_file",
        tfrecord.output_paths(_OUTPUT_FILE.value),
        [_VOCAB_FILE.value],
    )
    tokenizer = tokenizer_files.from_vocabulary_file(
        _VOCAB_FILE.value,
        _DO_LOWER_CASE.value if _DO_LOWER_CASE.present else None,
    )
    if _BEAM_RUNNER.value:
        _run_pipeline(source, tokenizer, settings)
        return
    if _BEAM_OPTION.value:
        raise ValueError("--beam_option must come with --beam_runner.")
    bars = {}

    def progress(stage, done, total):
        if stage not in bars:
            for bar in bars.values():
                bar.close()
            bars[stage] = tqdm(
                desc=stage, total=total, unit=_UNITS[stage], unit_scale=True
            )
        bars[stage].update(done - bars[stage].n)

    start = time.monotonic()
    try:
        counts = run_local.build(
            source,
            _OUTPUT_FILE.value,
            tokenizer,
            settings,
            progress,
            _NUM_WORKERS.value,
            _WORK_DIR.value,
            _MAX_BAD_LINES.value,
            _OVERWRITE.value,
        )
    finally:
        for bar in bars.values():
            bar.close()
    if bars:
        # Something was done.
        _print_table(counts, settings, time.monotonic() - start)
    _print_warnings(counts, settings)


def _run_pipeline(source, tokenizer, settings):
    if _NUM_WORKERS.present:
        raise ValueError(
            "--num_workers must not come with --beam_runner, which has its own "
            f"options. Received: --num_workers={_NUM_WORKERS.value}."
        )
    try:
        # Beam is only needed for this flag.
        from bert_tf.pretraining import run_beam
    except ImportError as error:
        raise ValueError(
            "--beam_runner needs Apache Beam: pip install 'bert_tf[beam]' "
            f"({error})."
        ) from error
    options = [f"--{option}" for option in _BEAM_OPTION.value]
    start = time.monotonic()
    counts = run_beam.build(
        source,
        _OUTPUT_FILE.value,
        tokenizer,
        settings,
        [f"--runner={_BEAM_RUNNER.value}", *options],
        _WORK_DIR.value,
        _MAX_BAD_LINES.value,
        _OVERWRITE.value,
    )
    if counts is None:
        print("See the manifest beside the records.")
        return
    _print_table(counts, settings, time.monotonic() - start)
    _print_warnings(counts, settings)


def _source():
    if not _TFDS_NAME.value:
        if _TFDS_SPLIT.present:
            raise ValueError(
                "--tfds_split must come with --tfds_name. "
                f"Received: --tfds_split={_TFDS_SPLIT.value!r}."
            )
        field, form = _SETTINGS["text_field"], _SETTINGS["input_format"].value
        if field.present and form != "jsonl":
            raise ValueError(
                "--text_field must come with --input_format=jsonl or "
                f"--tfds_name. Received: --text_field={field.value!r}, "
                f"--input_format={form}."
            )
        name = "tfds_name" if form == "tfds" else "input_file"
        program.require(**{name: flags.FLAGS[name].value})
        return _INPUT_FILE.value
    if _INPUT_FILE.value or _SETTINGS["input_format"].present:
        raise ValueError(
            "--tfds_name must not come with --input_file or --input_format. "
            f"Received: --tfds_name={_TFDS_NAME.value!r}."
        )

    from bert_tf.pretraining.sources import tfds_text

    return tfds_text.TfdsText(
        name=_TFDS_NAME.value,
        split=_TFDS_SPLIT.value,
        text_field=_SETTINGS["text_field"].value,
    )


def _print_table(counts, settings, seconds):
    from bert_tf.pretraining.objectives.table import OBJECTIVES

    mean_length = counts.example_tokens / counts.examples
    *_, label = "labelled", *OBJECTIVES[settings.objective].label_meanings
    for name, value in (
        ("documents", f"{counts.documents:,}"),
        ("one sentence", f"{counts.one_sentence_documents:,}"),
        ("sentences", f"{counts.sentences:,}"),
        ("tokens", f"{counts.tokens:,}"),
        ("unknown", f"{counts.unknown_tokens / counts.tokens:.1%}"),
        ("examples", f"{counts.examples:,}"),
        ("records", f"{counts.records:,}"),
        ("mean length", f"{mean_length:.1f}"),
        ("padding", f"{counts.padding:.1%}"),
        ("  unpacked", f"{counts.unpacked_padding:.1%}"),
        (label, f"{counts.random_pairs / counts.examples:.1%}"),
        ("masked", f"{counts.predictions / counts.example_tokens:.1%}"),
        ("seconds", f"{seconds:.1f}"),
        ("examples/s", f"{counts.examples / seconds:,.0f}"),
    ):
        print(f"{name:12}{value:>14}")


def _print_warnings(counts, settings):
    from bert_tf.pretraining import record_set

    for warning in record_set.warnings(counts, settings):
        print(f"Warning: {warning}")


if __name__ == "__main__":
    program.run(main)
