"""Data sets of TensorFlow Datasets that lie prepared on a disk."""

import tensorflow_datasets as tfds


def open_builder(name: str, data_dir: str | None) -> tfds.core.DatasetBuilder:
    """Returns the builder of a prepared data set.

    Args:
        name: E.g. "glue/mrpc".
        data_dir: Folder of prepared data sets, or None for
            ~/tensorflow_datasets.

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
            f"--tfds_name={name} is not prepared in {builder.data_dir}. Where "
            f"there is a network: tfds build {name} --data_dir=..."
        )
    return builder
