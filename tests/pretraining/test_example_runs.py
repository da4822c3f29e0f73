"""Runs of examples on disk, merged by range."""

import tracemalloc

import numpy as np

from bert_tf.pretraining.records import example_runs


def test_memory_does_not_grow_with_the_number_of_runs(tmp_path):
    """Every process would keep an index of 65 KB for each of its blocks."""
    index = np.zeros((2, 4097), np.int64)
    # One example of two tokens a run, in bucket 7.
    index[0, 8:], index[1, 8:] = 1, 2
    header = np.zeros(1, example_runs._HEADER)
    header["a_length"] = 2
    paths = []
    for number in range(200):
        path = str(tmp_path / f"run{number}")
        header["order"] = 7 << 52 | 200 - number
        header.tofile(f"{path}.rows")
        np.array([number, 0], np.uint16).tofile(f"{path}.tokens")
        index.tofile(f"{path}.index")
        paths.append(path)
    tracemalloc.start()
    runs = example_runs.Runs(paths, np.dtype(np.uint16))
    found = runs.read(50, 53)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # All indices have 13 MB.
    assert peak < 1e6
    assert found.own_tokens().tolist() == [149, 0, 148, 0, 147, 0]
