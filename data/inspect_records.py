r"""Shows pre-training records: examples as tables, totals, checked rules.

    python -m bert_tf.data.inspect_records \
        --input_file='/data/wiki.tfrecord-*' --vocab_file=vocab.txt

The first two examples are shown; a packed row is one example with numbered
sequences. With --output_file=page.html it also writes the playground: a page on
which you browse a sample of all records, change the masking rate, see token,
segment and position added up, and guess the label. The exit code is 1 if an
example breaks a rule. Records of google-research/bert's program can be
inspected as well. If our manifest is beside the records, the vocabulary and the
number of predictions are also checked.
"""

from absl import flags

from bert_tf import atomic
from bert_tf import features
from bert_tf import files
from bert_tf import manifest as manifests
from bert_tf import program
from bert_tf.playground import build_page
from bert_tf.text import vocabulary as vocabulary_lib

_INPUT_FILE = flags.DEFINE_string(
    "input_file", None, "Record files: globs, comma-separated."
)
_VOCAB_FILE = flags.DEFINE_string(
    "vocab_file",
    None,
    "File of the vocabulary that the records were made with; or a folder with "
    "the files of their tokenizer.",
)
_OUTPUT_FILE = flags.DEFINE_string(
    "output_file", None, "Write a page to browse records and play with masks."
)
# How many examples are shown.
_NUM_EXAMPLES = 2


def main(argv):
    del argv
    program.require(input_file=_INPUT_FILE.value, vocab_file=_VOCAB_FILE.value)
    vocabulary = _read_vocabulary(_VOCAB_FILE.value)
    page_data = _page_data(vocabulary) if _OUTPUT_FILE.value else None
    records = manifests.find_records(_INPUT_FILE.value, "input_file")
    if page_data is not None:
        read = [*records.paths, _VOCAB_FILE.value]
        atomic.check_is_no_input("output_file", [_OUTPUT_FILE.value], read)

    from bert_tf.pretraining import record_set
    from bert_tf.pretraining.records import inspection
    from bert_tf.pretraining.records import survey

    num_shown = 0

    def look(examples, manifest):
        nonlocal num_shown
        num_left = _NUM_EXAMPLES - num_shown
        for row in range(min(num_left, len(examples[features.INPUT_IDS]))):
            meanings = inspection.label_meanings(manifest)
            print(f"Example {num_shown}")
            print(inspection.table(examples, row, vocabulary, meanings))
            print()
            num_shown += 1
        if page_data is not None:
            page_data.add(examples)

    found = survey.make(records, vocabulary, look)
    for name, value in found.rows(vocabulary.special):
        print(f"{name:20}{value:>12}")
    unknown, tokens = found.totals["unknown"], found.totals["tokens"]
    for warning in record_set.warnings_of_unknown(unknown, tokens):
        print(f"Warning: {warning}")
    if page_data is not None:
        page = build_page.build(page_data.data(found), title=_INPUT_FILE.value)
        atomic.write_text(_OUTPUT_FILE.value, page)
    print()
    for rule, num_broken in found.broken.items():
        verdict = f"broken by {num_broken:,}" if num_broken else "holds"
        print(f"{rule:50}{verdict}")
    return 1 if any(found.broken.values()) else 0


def _read_vocabulary(path):
    if not files.is_folder(path):
        return vocabulary_lib.load_vocabulary(path)

    from bert_tf.text.tokenizers import files as tokenizer_files

    vocabulary = tokenizer_files.read_vocabulary(path.rstrip("/"))
    if vocabulary is None:
        raise ValueError(
            "--vocab_file must be a vocabulary, or a folder with one of "
            f"{', '.join(tokenizer_files.vocabulary_files())}. "
            f"Received: --vocab_file={path}."
        )
    return vocabulary


def _page_data(vocabulary):
    from bert_tf.playground.record_data import RecordData
    from bert_tf.text.tokenizers import files as tokenizer_files

    path = _VOCAB_FILE.value
    # A folder has a setting for the case. With a file, its entries decide.
    case = None if files.is_folder(path) else not vocabulary.is_cased
    tokenizer = tokenizer_files.from_vocabulary_file(path, case)
    return RecordData(tokenizer, build_page.NUM_RECORDS)


if __name__ == "__main__":
    program.run(main)
