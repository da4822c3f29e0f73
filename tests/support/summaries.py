"""What TensorBoard reads."""

import tensorflow as tf


def read_summaries(folder):
    """Returns {(name, step): value} of a folder's scalars, one file each."""
    (path,) = folder.glob("events*")
    found = {}
    for event in tf.compat.v1.train.summary_iterator(str(path)):
        for value in event.summary.value:
            assert value.metadata.plugin_data.plugin_name == "scalars"
            key = (value.tag, event.step)
            assert key not in found
            found[key] = float(tf.make_ndarray(value.tensor))
    return found
