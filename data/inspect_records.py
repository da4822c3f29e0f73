r"""Shows pre-training records: examples as tables, totals, checked rules.

    python -m bert_tf.data.inspect_records \
        --input_file='/data/wiki.tfrecord-*' --vocab_file=vocab.txt

A row that holds several sequences is shown as one, its sequences numbered.
With --html=page.html it also writes the playground: one page on which you look
through a sample of all records, move the rate of masks, see the three rows of
the input added up, and guess the label. Ends with exit code 1 if an example
breaks a rule. Reads what google-research/bert's program writes too; where our
own manifest lies beside the records, the vocabulary and the number of
predictions are also checked.
"""

import collections

from absl import flags

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
    "The vocabulary that the records were made with, a file; or a folder with "
    "the files of their tokenizer.",
)
_NUM_EXAMPLES = flags.DEFINE_integer(
    "num_examples", 2, "How many examples are shown.", lower_bound=0
)
_HTML = flags.DEFINE_string(
    "html", None, "Write a page to look through records and play with masks."
)
_HTML_RECORDS = flags.DEFINE_integer(
    "html_records",
    200,
    "Most records of the page, a sample over all files.",
    lower_bound=1,
    upper_bound=2000,
)
_HTML_SEED = flags.DEFINE_integer(
    "html_seed",
    0,
    "Seed of that sample.",
    lower_bound=0,
    upper_bound=2**32 - 1,
)


def main(argv):
    del argv
    program.require(input_file=_INPUT_FILE.value, vocab_file=_VOCAB_FILE.value)
    vocabulary = _read_vocabulary(_VOCAB_FILE.value)
    page_data = _page_data(vocabulary) if _HTML.value else None
    paths = manifests.find_records(_INPUT_FILE.value, "input_file")
    told = manifests.find(paths)

    from bert_tf.pretraining.records import inspection
    from bert_tf.pretraining.records import record_rules

    totals = collections.Counter()
    broken = collections.Counter()
    for path in paths:
        rules = None
        meanings = inspection.label_meanings(told.get(path))
        if path in told:
            inspection.check_vocabulary(path, told[path], vocabulary)
            rules = record_rules.rules_of(told[path])
        for examples in inspection.read([path]):
            shown = totals["records"]
            for row in range(len(examples["input_ids"])):
                if shown + row >= _NUM_EXAMPLES.value:
                    break
                print(f"Example {shown + row}")
                print(inspection.table(examples, row, vocabulary, meanings))
                print()
            if page_data is not None:
                page_data.add(examples)
            totals += inspection.count(examples, vocabulary)
            checks = record_rules.check(examples, vocabulary, rules)
            for rule, holds in checks.items():
                broken[rule] += int((~holds).sum())
    # Those of the last file: as of all, where they are of one set.
    rows = _totals(totals, len(paths), meanings, vocabulary.special)
    for name, value in rows:
        print(f"{name:20}{value:>12}")
    if page_data is not None:
        data = page_data.data(told.get(path), rows, list(broken.items()))
        page = build_page.build(data, title=_INPUT_FILE.value)
        files.write_text(_HTML.value, page)
    print()
    for rule, num_broken in broken.items():
        verdict = f"broken by {num_broken:,}" if num_broken else "holds"
        print(f"{rule:50}{verdict}")
    return 1 if any(broken.values()) else 0


def _read_vocabulary(path):
    if not files.is_folder(path):
        return vocabulary_lib.load_vocabulary(path)

    from bert_tf.text.tokenizers import files as tokenizer_files

    vocabulary = tokenizer_files.read_vocabulary(path.rstrip("/"))
    if vocabulary is None:
        raise ValueError(
            "`vocab_file` must be a vocabulary, or a folder with one of "
            f"{', '.join(tokenizer_files.vocabulary_files())}. "
            f"Received: vocab_file={path}."
        )
    return vocabulary


def _page_data(vocabulary):
    from bert_tf.playground.record_data import RecordData
    from bert_tf.text.tokenizers import files as tokenizer_files

    path = _VOCAB_FILE.value
    # Of a file alone: what its entries were made with. A folder tells.
    case = None if files.is_folder(path) else not vocabulary.is_cased
    tokenizer = tokenizer_files.from_vocabulary_file(path, case)
    return RecordData(tokenizer, _HTML_RECORDS.value, _HTML_SEED.value)


def _totals(totals, num_files, meanings, special):
    examples, predictions = totals["examples"], totals["predictions"]
    *_, label = "labelled", *meanings
    # Known by its segment, which not every model has.
    length_of_b = f"{totals['tokens of B'] / examples:.1f}"
    return [
        ("files", f"{num_files:,}"),
        ("records", f"{totals['records']:,}"),
        ("examples", f"{examples:,}"),
        ("padding", f"{1 - totals['tokens'] / totals['columns']:.1%}"),
        ("mean length", f"{totals['tokens'] / examples:.1f}"),
        *[("mean length of B", length_of_b)][: special.second_segment],
        (label, f"{totals['random pairs'] / examples:.1%}"),
        ("predictions/example", f"{predictions / examples:.1f}"),
        ("predicted tokens", f"{predictions / totals['tokens']:.1%}"),
        (
            f"  as {special.mask}",
            f"{totals['masked'] / max(1, predictions):.1%}",
        ),
        ("  kept", f"{totals['kept'] / max(1, predictions):.1%}"),
        ("  replaced", f"{totals['replaced'] / max(1, predictions):.1%}"),
    ]


if __name__ == "__main__":
    program.run(main)
