"""Learns the merges of byte-level BPE from text, with `tokenizers`.

As for GPT-2 and RoBERTa: starting from the 256 bytes, the pair of neighbours in
a word that occurs most often is merged, again and again (Sennrich et al. 2016;
Radford et al. 2019, section 2.2). The special tokens are placed as in RoBERTa:
four first, the mask last.
"""

import json
from collections.abc import Iterable
from collections.abc import Iterator

from bert_tf.text.tokenizers import bpe_files
from bert_tf.text.tokenizers import tokenizer_json
from bert_tf.text.tokenizers.bpe import BpeSpec
from bert_tf.text.vocabulary import ROBERTA
from bert_tf.text.vocabulary import Vocabulary

_FIRST = (ROBERTA.cls, ROBERTA.pad, ROBERTA.sep, ROBERTA.unk)
# A pair that occurs once is only the spelling of one word.
_MIN_PAIR_COUNT = 2
_MIN_VOCAB_SIZE = len(ROBERTA.names) + len(bpe_files.BYTES) + 1


def learn(
    batches: Iterable[list[str] | list[bytes]],
    vocab_size: int,
    names: Iterable[str],
) -> BpeSpec:
    """Learns a tokenizer from texts; the same texts give the same tokenizer.

    Args:
        batches: Lists of lines of text, UTF-8. As in records, white space
            around a line is replaced by one space before it; the first line and
            lines after a blank one have none.
        vocab_size: Number of entries, special tokens included. There are fewer
            if the text is too short.
        names: The sources of the texts, for error messages.

    Returns:
        The spec of the tokenizer.

    Raises:
        ValueError: If `tokenizers` is not installed, `vocab_size` has no room
            for a merge, or no pair of bytes occurs twice.
    """
    try:
        import tokenizers
    except ImportError as error:
        raise ValueError(
            "Learning byte-level BPE needs `tokenizers`, which is not "
            "installed: pip install 'bert_tf[tokenizers]'."
        ) from error
    if vocab_size < _MIN_VOCAB_SIZE:
        raise ValueError(
            f"`vocab_size` must be at least {_MIN_VOCAB_SIZE} for byte-level "
            "BPE: special tokens, 256 bytes and a merge. "
            f"Received: vocab_size={vocab_size}."
        )
    splits = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = splits
    learner.train_from_iterator(
        _lines(batches),
        tokenizers.trainers.BpeTrainer(
            vocab_size=vocab_size - len(ROBERTA.names),
            min_frequency=_MIN_PAIR_COUNT,
            initial_alphabet=splits.alphabet(),
            show_progress=False,
        ),
    )
    learned = json.loads(learner.to_str())
    merges = bpe_files.parse_merges(learned["model"]["merges"])
    if not merges:
        raise ValueError(
            f"The words in {', '.join(names)} must have a pair of bytes that "
            "occurs twice. Received: none."
        )
    tokens = (*_FIRST, *tokenizer_json.tokens_of(learned), ROBERTA.mask)
    vocabulary = Vocabulary(tokens=tokens, special=ROBERTA, is_wordpiece=False)
    return BpeSpec(vocabulary, merges)


def _lines(batches: Iterable[list[str] | list[bytes]]) -> Iterator[str]:
    space = ""
    for batch in batches:
        for line in batch:
            text = line if isinstance(line, str) else line.decode("utf-8")
            if text := text.strip():
                yield space + text
            space = " " if text else ""
