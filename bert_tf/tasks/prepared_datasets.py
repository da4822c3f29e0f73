"""Sets of TensorFlow Datasets that have been prepared: nothing is downloaded.

The library is imported on first use, which takes seconds.
"""


def open_dataset(name, data_dir=None):
    """Returns the `tfds.core.DatasetBuilder` of a prepared set.

    Args:
        name: E.g. "conll2003" or "glue/mrpc".
        data_dir: Where sets were prepared; the library's own place if None.

    Raises:
        ValueError: If there is no such set.
    """
    import tensorflow_datasets as tfds

    try:
        return tfds.builder(name, data_dir=data_dir)
    except tfds.core.DatasetNotFoundError as error:
        # It goes on with all sets that there are.
        reason = str(error).split("\n")[0]
        raise ValueError(
            "`tfds_name` must be a set of TensorFlow Datasets. Received: "
            f"tfds_name={name!r}, data_dir={data_dir}: {reason}"
        ) from error


def read_split(builder, names):
    """Yields the rows of a split, nested dictionaries of NumPy's values.

    Args:
        builder: Of `open_dataset`.
        names: What the split may be called; the first one there is read.

    Raises:
        ValueError: If the set has not been prepared, or has no such split.
    """
    splits = list(builder.info.splits)
    found = [name for name in names if name in splits]
    if splits and not found:
        raise ValueError(
            f"{builder.info.full_name} must have a split {' or '.join(names)}. "
            f"Received: {', '.join(splits)}."
        )
    try:
        # In the order in which the rows were written.
        dataset = builder.as_dataset(split=(found or names)[0])
    except AssertionError as error:
        raise ValueError(
            f"{builder.info.full_name} has not been prepared in "
            f"{builder.data_dir}. Prepare it where there is a network: "
            'python -c "import tensorflow_datasets as tfds; '
            f"tfds.builder('{builder.info.full_name}')"
            '.download_and_prepare()"'
        ) from error
    yield from dataset.as_numpy_iterator()
