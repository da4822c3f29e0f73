"""Learns ALBERT's unigram pieces from text, with `sentencepiece`.

Kudo 2018, "Subword regularization" (arXiv 1804.10959). Texts are folded as the
tokenizer folds them, and normalised by SentencePiece's NFKC. The special tokens
are placed as in google-research/albert: <pad>, <unk>, [CLS], [SEP], [MASK].
"""

import io
import re
from collections.abc import Iterable
from collections.abc import Iterator

import tensorflow as tf

from bert_tf.text.tokenizers import sentencepiece_model
from bert_tf.text.tokenizers import unigram
from bert_tf.text.tokenizers import unigram_files
from bert_tf.text.tokenizers.unigram import UnigramSpec
from bert_tf.text.vocabulary import ALBERT

# More sentences than this are sampled: a million in English need some 3 GB and
# minutes.
MAX_SENTENCES = 1_000_000
# SentencePiece silently skips longer ones.
_MAX_SENTENCE_BYTES = 1 << 16
# Fixed: the order of summation, and so the last digits, depend on it.
_NUM_THREADS = 4
_SEED = 12345


def learn(
    batches: Iterable[list[str] | list[bytes]],
    vocab_size: int,
    do_lower_case: bool,
    names: Iterable[str],
) -> UnigramSpec:
    """Learns a tokenizer from texts; the same texts give the same tokenizer.

    Args:
        batches: Lists of lines of text, UTF-8.
        vocab_size: Number of entries, special tokens included. There are fewer
            if the text is too short.
        do_lower_case: Whether texts lose case and accents; otherwise they keep
            both.
        names: The sources of the texts, for error messages.

    Returns:
        The spec of the tokenizer.

    Raises:
        ValueError: If `sentencepiece` is not installed, `vocab_size` has no
            room for the characters of the text, or there is no text.
    """
    try:
        import sentencepiece
    except ImportError as error:
        raise ValueError(
            "Learning unigrams needs `sentencepiece`, which is not installed: "
            "pip install 'bert_tf[tokenizers]'."
        ) from error
    lines = _folded(batches, do_lower_case)
    first = next(lines, None)
    if first is None:
        raise ValueError(f"There is no word in {', '.join(names)}.")
    sentencepiece.set_random_generator_seed(_SEED)
    written = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_chained(first, lines),
            model_writer=written,
            model_type="unigram",
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            pad_piece=ALBERT.pad,
            unk_piece=ALBERT.unk,
            control_symbols=[ALBERT.cls, ALBERT.sep, ALBERT.mask],
            input_sentence_size=MAX_SENTENCES,
            shuffle_input_sentence=True,
            max_sentence_length=_MAX_SENTENCE_BYTES,
            num_threads=_NUM_THREADS,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        needed = re.search(r"required_chars\. \d+ vs (\d+)", str(error))
        if needed is not None:
            raise ValueError(
                f"`vocab_size` must be at least {needed[1]}: the special "
                f"tokens and the characters of {', '.join(names)}. "
                f"Received: vocab_size={vocab_size}."
            ) from error
        raise ValueError(
            "`sentencepiece` cannot learn from "
            f"{', '.join(names)} with vocab_size={vocab_size}: {error}"
        ) from error
    model = sentencepiece_model.parse(written.getvalue())
    pieces = tuple(map(unigram_files.unlikely, model.pieces))
    return unigram.from_model(
        model._replace(pieces=pieces),
        unigram_files.ALBERT_CLASS,
        do_lower_case=do_lower_case,
        keep_accents=not do_lower_case,
    )


def _chained(first: str, lines: Iterator[str]) -> Iterator[str]:
    yield first
    yield from lines


def _folded(
    batches: Iterable[list[str] | list[bytes]], do_lower_case: bool
) -> Iterator[str]:
    fold = tf.function(
        unigram.make_fold(
            do_lower_case=do_lower_case, keep_accents=not do_lower_case
        ),
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )
    for batch in batches:
        for line in fold(tf.constant(batch, tf.string)).numpy():
            # A long line is split: no piece extends over white space anyway.
            yield from _parts(line.decode())


def _parts(line: str) -> Iterator[str]:
    words: list[str] = []
    size = 0
    for word in line.split():
        # A "word" as long as this is not a word.
        num_bytes = 1 + len(word.encode())
        if num_bytes > _MAX_SENTENCE_BYTES:
            continue
        if words and size + num_bytes > _MAX_SENTENCE_BYTES:
            yield " ".join(words)
            words, size = [], 0
        words.append(word)
        size += num_bytes
    if words:
        yield " ".join(words)
