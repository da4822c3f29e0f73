r"""Learns a vocabulary from text files: WordPiece, byte-level BPE or unigrams.

    bert_tf learn-vocabulary \
        --input_file='wiki-*.txt,books.txt' \
        --output_file=vocab.txt \
        --vocab_size=30522

Writes one entry a line and prints how well the vocabulary fits the text.
The same text gives the same vocabulary. --input_format is the same as in
create_pretraining_data.

The tokenizers of RoBERTa (--model=byte_bpe) and ALBERT (--model=unigram) have
several files in a folder. Give this folder to other programs as --vocab_file:

    bert_tf learn-vocabulary --model=byte_bpe \
        --input_file='wiki-*.txt,books.txt' \
        --output_file=tokenizer \
        --vocab_size=50265
"""

import contextlib
import itertools
import logging
import os
import tempfile
import time

from absl import flags
from tqdm import tqdm

from bert_tf import atomic
from bert_tf import files
from bert_tf import program
from bert_tf import progress_bar
from bert_tf.pretraining.sources import text_files

_INPUT_FILE = flags.DEFINE_string(
    "input_file",
    None,
    "Text files, UTF-8, plain or .gz, .xz, .bz2: globs, comma-separated.",
)
_INPUT_FORMAT = flags.DEFINE_enum(
    "input_format",
    "sentences",
    text_files.FORMATS,
    "sentences, text: lines of text. jsonl: an object a line. wikiextractor: "
    "the output of WikiExtractor.",
)
_TEXT_FIELD = flags.DEFINE_string(
    "text_field", "text", "The field that holds the text, for jsonl."
)
# The default of --vocab_size by --model: the published sizes.
_VOCAB_SIZES = {"wordpiece": 30522, "byte_bpe": 50265, "unigram": 30000}
_MODEL = flags.DEFINE_enum(
    "model",
    "wordpiece",
    [*_VOCAB_SIZES],
    "wordpiece: as in BERT. byte_bpe: as in RoBERTa and GPT-2. unigram: as in "
    "ALBERT, learned from a sample if there are more than a million lines. The "
    "last two need pip install 'bert_tf[tokenizers]'.",
)
_OUTPUT_FILE = flags.DEFINE_string(
    "output_file",
    None,
    "The vocabulary file to write; a folder unless --model=wordpiece.",
)
_VOCAB_SIZE = flags.DEFINE_integer(
    "vocab_size",
    None,
    "Number of entries, special tokens included. Default: 30522 for "
    "wordpiece, 50265 for byte_bpe, 30000 for unigram.",
    lower_bound=1,
)
_DO_LOWER_CASE = flags.DEFINE_bool(
    "do_lower_case",
    None,
    "Learn an uncased vocabulary: lower-case the text and drop its accents. "
    "Default: true for wordpiece and unigram; byte_bpe is always cased.",
)
_MAX_BAD_LINES = flags.DEFINE_integer(
    "max_bad_lines",
    0,
    "Most lines that may be left out, with a warning, because they are not "
    "UTF-8 or not in the input's format.",
    lower_bound=0,
)


def main(argv):
    del argv
    program.require(
        input_file=_INPUT_FILE.value, output_file=_OUTPUT_FILE.value
    )
    is_wordpiece = _MODEL.value == "wordpiece"
    vocab_size = _VOCAB_SIZE.value or _VOCAB_SIZES[_MODEL.value]
    if _DO_LOWER_CASE.value and _MODEL.value == "byte_bpe":
        raise ValueError(
            "--do_lower_case must be False with --model=byte_bpe. Received: "
            "--do_lower_case=True."
        )
    if _TEXT_FIELD.present and _INPUT_FORMAT.value != "jsonl":
        raise ValueError(
            "--text_field must come with --input_format=jsonl. Received: "
            f"--text_field={_TEXT_FIELD.value!r}, "
            f"--input_format={_INPUT_FORMAT.value}."
        )
    paths = text_files.without_empty(files.expand_globs(_INPUT_FILE.value))
    _check_output_file(_OUTPUT_FILE.value, paths, is_wordpiece)

    start = time.monotonic()
    num_bytes = sum(map(files.size, paths))
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(
            tqdm(desc="read text", total=num_bytes, unit="B", unit_scale=True)
        )

        def texts_told():
            # The text of compressed files is longer than the files.
            yield from _read_texts(
                paths, lambda done: bar.update(min(done, num_bytes) - bar.n)
            )
            bar.close()
            stack.enter_context(progress_bar.telling("learning"))

        learn = {
            "wordpiece": _learn_wordpiece,
            "byte_bpe": _learn_byte_bpe,
            "unigram": _learn_unigram,
        }[_MODEL.value]
        vocabulary, table = learn(texts_told(), vocab_size, paths)
    for name, value in (
        ("entries", f"{len(vocabulary):,}"),
        *table.items(),
        ("seconds", f"{time.monotonic() - start:.1f}"),
    ):
        print(f"{name:18}{value:>14}")
    if len(vocabulary) < vocab_size:
        # Unigrams are not merged from pairs, so the reason does not apply.
        is_merged = _MODEL.value != "unigram"
        reason = ": no other pair of pieces occurs twice" if is_merged else ""
        print(f"The text is too short for {vocab_size:,} entries{reason}.")


def _learn_wordpiece(texts, vocab_size, paths):
    """Returns the `Vocabulary` written, and rows for the printed table."""
    from bert_tf.text.learners import wordpiece

    do_lower_case = _DO_LOWER_CASE.value is not False
    word_counts = wordpiece.count_texts(texts, do_lower_case, paths)
    print(f"Learning from {len(word_counts):,} different words.", flush=True)
    vocabulary = wordpiece.learn_vocabulary(word_counts, vocab_size)
    atomic.write_text(_OUTPUT_FILE.value, vocabulary.to_text())
    pieces_a_word, unknown = wordpiece.measure(vocabulary, word_counts)
    return vocabulary, {
        "words": f"{sum(word_counts.values()):,}",
        "different words": f"{len(word_counts):,}",
        "pieces a word": f"{pieces_a_word:.3f}",
        "unknown words": f"{unknown:.3%}",
    }


def _learn_byte_bpe(texts, vocab_size, paths):
    """Returns the `Vocabulary` written, and rows for the printed table."""
    from bert_tf.text.learners import byte_bpe
    from bert_tf.text.tokenizers import files as tokenizer_files

    tokenizer = byte_bpe.learn(texts, vocab_size, paths)
    tokenizer_files.write(_OUTPUT_FILE.value.rstrip("/"), tokenizer)
    return tokenizer.vocabulary, {"merges": f"{len(tokenizer.merges):,}"}


def _learn_unigram(texts, vocab_size, paths):
    """Returns the `Vocabulary` written, and rows for the printed table."""
    from bert_tf.text.learners import unigram
    from bert_tf.text.tokenizers import files as tokenizer_files

    do_lower_case = _DO_LOWER_CASE.value is not False
    tokenizer = unigram.learn(texts, vocab_size, do_lower_case, paths)
    tokenizer_files.write(_OUTPUT_FILE.value.rstrip("/"), tokenizer)
    return tokenizer.vocabulary, {}


def _read_texts(paths, progress):
    """Yields lists of lines; warns at the end if lines were left out."""
    from bert_tf.pretraining.corpus import blocks
    from bert_tf.text.learners import wordpiece

    if _INPUT_FORMAT.value in ("sentences", "text"):
        # The words are the same, whether lines are sentences or paragraphs.
        yield from wordpiece.read_lines(paths, progress, _MAX_BAD_LINES.value)
        return
    source = text_files.TextFiles(
        paths=tuple(paths),
        input_format=_INPUT_FORMAT.value,
        text_field=_TEXT_FIELD.value,
    )
    reader = text_files.Reader(source, _MAX_BAD_LINES.value)
    sentences = itertools.chain.from_iterable(map(reader.read, source.parts()))
    num_characters = 0
    for _, batch in blocks.batches(sentences):
        yield batch
        num_characters += sum(map(len, batch))
        progress(num_characters)
    if reader.bad_lines.count:
        logging.warning("%s. Left out.", reader.bad_lines.summary())


def _check_output_file(output_file, paths, is_wordpiece):
    if is_wordpiece and files.is_folder(output_file):
        raise ValueError(f"--output_file is a folder: {output_file}.")
    if not is_wordpiece and files.exists(output_file):
        is_folder = files.is_folder(output_file)
        if not is_folder or files.list_folder(output_file):
            raise ValueError(
                "--output_file must be an empty folder with "
                f"--model={_MODEL.value}, or a new one. Received: "
                f"{output_file}, {'with files' if is_folder else 'a file'}."
            )
    parent = os.path.dirname(output_file.rstrip("/")) or "."
    if not files.is_remote(parent):
        # Otherwise an unwritable folder would only fail after the learning.
        files.make_folder(parent)
        with tempfile.TemporaryFile(dir=parent):
            pass
    atomic.check_is_no_input("output_file", [output_file], paths)


if __name__ == "__main__":
    program.run(main)
