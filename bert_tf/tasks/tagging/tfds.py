"""Tagged words of TensorFlow Datasets, as if read from a column file."""

import operator
import re

import numpy as np
import tensorflow_datasets as tfds

from bert_tf.tasks import class_names
from bert_tf.tasks import source
from bert_tf.tasks.tagging import entity_tags
from bert_tf.tasks.tagging.files import TaggingExamples

_SPLIT_NAMES = {
    source.TRAIN: ("train",),
    source.DEV: ("validation", "dev"),
    source.TEST: ("test",),
}
_TOKENS = "tokens"
# What the feature of the entities' tags is called.
_TAGS = ("ner", "ner_tags", "tags")


def read(builder, split, token_column=None, tag_column=None, has_tags=True):
    """Reads a split of a prepared set.

    Args:
        builder: Of `prepared_sets.open_builder`.
        split: `source.TRAIN`, `DEV` or `TEST`.
        token_column: The feature of words: a sequence of strings. `tokens` if
            None.
        tag_column: The feature of tags: a sequence of classes or strings.
            `ner`, `ner_tags` or `tags` if None.
        has_tags: Whether the tags are read.

    Returns:
        `TaggingExamples` with lines of words and tags.

    Raises:
        ValueError: If there is no such split or feature, or a row has another
            number of tags than of words, or what is no tag.
    """
    name = builder.info.full_name
    features = builder.info.features
    token_column = _find(name, features, (token_column or _TOKENS,), "feature")
    tag_column = _find(
        name, features, (tag_column,) if tag_column else _TAGS, "feature"
    )
    split = _find(name, builder.info.splits, _SPLIT_NAMES[split], "split")
    names = getattr(features[tag_column].feature, "names", None)
    # Neither shuffled nor interleaved: the same order each time.
    rows = builder.as_dataset(
        split=split, read_config=tfds.ReadConfig(interleave_cycle_length=1)
    )
    words, tags, lines, line_indices, row_lengths = [], [], [], [], []
    num_stripped = 0
    for number, row in enumerate(tfds.as_numpy(rows)):
        words_of_row = [word.decode("utf-8") for word in row[token_column]]
        tags_of_row = [
            tag.decode("utf-8") if names is None else names[tag]
            for tag in row[tag_column]
        ]
        stripped = [tag.strip() for tag in tags_of_row]
        num_stripped += sum(map(operator.ne, stripped, tags_of_row))
        tags_of_row = stripped
        where = f"{name}, {split}, row {number}"
        if len(words_of_row) != len(tags_of_row):
            raise ValueError(
                f"{where}: must have as many tags as words. Received: "
                f"{len(words_of_row)} words, {len(tags_of_row)} tags."
            )
        if not words_of_row:
            continue
        row_lengths.append(len(words_of_row))
        for word, tag in zip(words_of_row, tags_of_row):
            if not entity_tags.is_tag(tag):
                raise ValueError(
                    f"{where}: a tag must be O, or B-, I-, E- or S- with a "
                    f"type. Received: {tag!r}."
                )
            line_indices.append(len(lines))
            # In a line there is room for no more than one word and tag.
            lines.append(re.sub(r"[\t\n]", " ", word) + f"\t{tag}")
        lines.append("")
        words += words_of_row
        tags += tags_of_row
    if not words:
        raise ValueError(f"{name}, {split}: there are no sentences in it.")
    class_names.log_stripped(f"{name}, {split}", num_stripped)
    return TaggingExamples(
        path=f"{name}/{split}",
        words=tuple(words),
        tags=tuple(tags) if has_tags else None,
        row_lengths=np.array(row_lengths, np.int32),
        lines=tuple(lines),
        line_indices=np.array(line_indices, np.int32),
        separator="\t",
    )


def _find(name, present, wanted, what):
    for candidate in wanted:
        if candidate in present:
            return candidate
    raise ValueError(
        f"{name} must have a {what} {' or '.join(wanted)}. "
        f"Received: {', '.join(sorted(present))}."
    )
