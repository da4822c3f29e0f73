r"""Writes BERT's hidden layers as vectors of a text's tokens or lines.

    python -m bert_tf.extract_features --input_file=input.txt \
        --output_file=output.jsonl --init_checkpoint=uncased_L-12_H-768_A-12

writes the same as google-research/bert's program: a line of JSON for each line
of the input, with the last four layers of each token. "sentence ||| sentence"
is a pair. For large inputs

    --format=npz --pooling=mean --layers=-1 --normalize

writes one vector a line, which takes far less space. Input and output are
streamed: neither is held in memory. A run that is stopped leaves no output
file.
"""

from absl import flags
from absl import logging

from bert_tf import atomic
from bert_tf import messages
from bert_tf import program
from bert_tf import progress_bar
from bert_tf import sizes
from bert_tf import training_flags
from bert_tf.tasks.features import options

_INPUT_FILE = flags.DEFINE_string(
    "input_file", None, "Text, one example a line; .gz, .xz and .bz2 too."
)
_OUTPUT_FILE = flags.DEFINE_string("output_file", None, "The file to write.")
_LAYERS = flags.DEFINE_list(
    "layers",
    ["-1", "-2", "-3", "-4"],
    "Numbers of the layers, comma-separated: -1 is the last, 0 the first.",
)
_INIT_CHECKPOINT = flags.DEFINE_string(
    "init_checkpoint",
    None,
    "A model folder (of bert_tf or Hugging Face) or a release of Google's.",
)
_BERT_CONFIG_FILE = flags.DEFINE_string("bert_config_file", None, sizes.HELP)
_VOCAB_FILE = flags.DEFINE_string(
    "vocab_file", None, "Vocabulary. Default: the checkpoint's own."
)
_DO_LOWER_CASE = flags.DEFINE_bool(
    "do_lower_case",
    None,
    "Whether to lower-case the text. Default: as the model folder says, "
    "otherwise true.",
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length",
    128,
    "Longest sequence, in word pieces; longer lines are cut at the end.",
    lower_bound=3,
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 32, "Lines a step, over all devices.", lower_bound=1
)
_FORMAT = flags.DEFINE_enum(
    "format",
    options.JSONL,
    options.FORMATS,
    "jsonl: google-research/bert's. npz: NumPy arrays `vectors`, `layers` and, "
    "with a vector a token, `token_ids` and `row_splits`. parquet: rows of "
    "`linex_index`, `vectors` as lists and `token_ids`.",
)
_POOLING = flags.DEFINE_enum(
    "pooling",
    options.NONE,
    options.POOLING,
    "none: one vector a token. The others write one vector a line. cls: that "
    "of [CLS]. mean: the mean over the line's tokens, including [CLS] and "
    "[SEP]. max: the maximum over them of each number.",
)
_NORMALIZE = flags.DEFINE_bool(
    "normalize", False, "Whether to divide every vector by its length."
)


def main(_):
    program.end_at_sigterm()
    logging.set_verbosity(logging.INFO)
    program.require(
        input_file=_INPUT_FILE.value,
        output_file=_OUTPUT_FILE.value,
        init_checkpoint=_INIT_CHECKPOINT.value,
    )
    atomic.check_is_no_input(
        "output_file", [_OUTPUT_FILE.value], [_INPUT_FILE.value]
    )
    layers = _parse_layers(_LAYERS.value)

    import tensorflow as tf

    from bert_tf import checkpoints
    from bert_tf.checkpoints import starting_point
    from bert_tf.models.encoder import BertEncoder
    from bert_tf.tasks.features import extraction as feature_extraction
    from bert_tf.tasks.features import files as feature_files

    extraction = feature_extraction.Extraction(
        layers=layers,
        pooling=_POOLING.value,
        normalize=_NORMALIZE.value,
    )
    # Reads all lines, so that a bad one is found before anything is computed.
    num_lines = feature_files.count_lines(_INPUT_FILE.value)
    strategy = training_flags.make_strategy()
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        raise ValueError(
            "--strategy must be one of a single host. Received: multi_worker."
        )
    start = starting_point.find(
        _INIT_CHECKPOINT.value,
        _BERT_CONFIG_FILE.value,
        _VOCAB_FILE.value,
        _DO_LOWER_CASE.value,
    )
    preprocessor = start.preprocessor(_MAX_SEQ_LENGTH.value)
    extraction.check_layers(start.config.num_hidden_layers)
    with feature_files.open_writer(
        _OUTPUT_FILE.value,
        _FORMAT.value,
        extraction,
        start.tokenizer.vocabulary,
    ) as write:
        with strategy.scope():
            encoder = BertEncoder(
                start.config, dtype=training_flags.dtype_policy(strategy)
            )
        checkpoints.load_weights(start.init_checkpoint, encoder)
        extractor = feature_extraction.Extractor(
            encoder, preprocessor, extraction, strategy
        )
        num_cut = _write_all(extractor, write, num_lines)
    if num_cut:
        logging.warning(
            "Lines cut to --max_seq_length=%d: %d of %d.",
            _MAX_SEQ_LENGTH.value,
            num_cut,
            num_lines,
        )
    count = messages.counted(num_lines, "line", "lines")
    print(f"{count} in {_OUTPUT_FILE.value}")


def _parse_layers(values):
    try:
        return tuple(int(value) for value in values)
    except ValueError as error:
        raise ValueError(
            "--layers must be numbers, comma-separated. Received: "
            f"--layers={','.join(values)}."
        ) from error


def _write_all(extractor, write, num_lines):
    """Writes every line's features; returns how many lines were cut."""
    from bert_tf.tasks.features import files as feature_files

    num_cut = 0
    lines = feature_files.read_lines(_INPUT_FILE.value)
    found = extractor(lines, _BATCH_SIZE.value)
    with progress_bar.track(found, "extract", num_lines, "line") as tracked:
        for line in tracked:
            write(line)
            num_cut += line.is_cut
    return num_cut


if __name__ == "__main__":
    program.run(main)
