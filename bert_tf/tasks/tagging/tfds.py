"""Tagged words from TensorFlow Datasets, as if read from a column file."""

from typing import Any

from bert_tf.input import prepared_sets
from bert_tf.tasks import source
from bert_tf.tasks.tagging import files

_SPLIT_NAMES = {
    source.TRAIN: ("train",),
    source.DEV: ("validation", "dev"),
    source.TEST: ("test",),
}
_TOKENS = "tokens"
# Names that the feature of the entities' tags may have.
_TAGS = ("ner", "ner_tags", "tags")


def read(
    builder: Any,
    split: str,
    token_column: str | None = None,
    tag_column: str | None = None,
    has_tags: bool = True,
) -> files.TaggingExamples:
    """Reads a split of a prepared set.

    Args:
        builder: From `prepared_sets.open_builder`.
        split: `source.TRAIN`, `DEV` or `TEST`.
        token_column: The feature of words: a sequence of strings. `tokens` if
            None.
        tag_column: The feature of tags: a sequence of classes or strings.
            `ner`, `ner_tags` or `tags` if None.
        has_tags: Whether there must be tags. If not, any tags that there are
            go into the lines of the predictions.

    Returns:
        `TaggingExamples` with lines of words and tags.

    Raises:
        ValueError: If there is no such split or feature, a word is empty, or
            the tags of a row are not one valid tag for each word.
    """
    find_feature = prepared_sets.find_feature
    token_column = find_feature(builder, [token_column or _TOKENS])
    split = prepared_sets.find_split(builder, _SPLIT_NAMES[split])
    name = f"{builder.info.full_name}, {split}"
    features, names = builder.info.features, None
    wanted = [tag_column] if tag_column else _TAGS
    if has_tags or tag_column or any(name in features for name in wanted):
        tag_column = find_feature(builder, wanted)
        names = getattr(features[tag_column].feature, "names", None)

    def tag_of(tag):
        if names is None:
            return tag.decode("utf-8")
        # TensorFlow Datasets has -1 for a missing label.
        return names[tag] if 0 <= tag < len(names) else ""

    rows = []
    examples = prepared_sets.rows(builder, split)
    for number, example in enumerate(examples, start=1):
        tags = None
        if tag_column is not None:
            tags = list(map(tag_of, example[tag_column]))
        words = [word.decode("utf-8") for word in example[token_column]]
        rows.append((f"{name}, row {number}", words, tags))
    if not has_tags and not all(all(tags or ()) for _, _, tags in rows):
        # All lines of the predictions must have the same number of columns.
        rows = [(where, words, None) for where, words, _ in rows]
    return files.from_rows(name, rows, has_tags)
