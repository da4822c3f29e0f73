"""Data sets of TensorFlow Datasets that are prepared on disk."""

from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import tensorflow_datasets as tfds


def open_builder(
    name: str, data_dir: str | None = None
) -> tfds.core.DatasetBuilder:
    """Returns the builder of a prepared data set.

    Args:
        name: E.g. "glue/mrpc".
        data_dir: Folder of prepared data sets; None for the variable
            TFDS_DATA_DIR, or ~/tensorflow_datasets.

    Raises:
        ValueError: If there is no such data set, or it is not prepared there.
    """
    try:
        builder = tfds.builder(name, data_dir=data_dir, try_gcs=False)
        is_prepared = bool(builder.info.splits)
    except (tfds.core.registered.DatasetNotFoundError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"--tfds_name={name}: {reason}") from error
    if not is_prepared:
        raise ValueError(
            f"--tfds_name={name} is not prepared in {builder.data_dir}. With "
            f"network access, run: tfds build {name} --data_dir=..."
        )
    return builder


def find_split(builder: tfds.core.DatasetBuilder, names: Iterable[str]) -> str:
    """Returns the first of these splits that a set has.

    Raises:
        ValueError: If it has none of them.
    """
    return _find(builder, "split", builder.info.splits, names)


def find_feature(
    builder: tfds.core.DatasetBuilder, names: Iterable[str]
) -> str:
    """Returns the first of these features that a set has.

    Raises:
        ValueError: If it has none of them.
    """
    return _find(builder, "feature", builder.info.features, names)


def rows(
    builder: tfds.core.DatasetBuilder, split: str
) -> Iterator[dict[str, Any]]:
    """Yields the examples of a split in the order in which they are stored.

    Args:
        builder: What `open_builder` returned.
        split: The split's name.

    Yields:
        {feature: NumPy value}.
    """
    # Neither shuffled nor interleaved: the same order each time.
    config = tfds.ReadConfig(interleave_cycle_length=1)
    yield from tfds.as_numpy(
        builder.as_dataset(split=split, read_config=config)
    )


def _find(builder, kind, present, names):
    names = list(names)
    for name in names:
        if name in present:
            return name
    raise ValueError(
        f"{builder.info.full_name}: there must be a {kind} "
        f"{' or '.join(map(repr, names))}. Received: {', '.join(present)}."
    )
