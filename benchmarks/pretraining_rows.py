"""Rows of random tokens, for bert_tf's processes of pre-training benchmarks."""

import numpy as np

from bert_tf import features


def random_rows(job, num_rows):
    """Returns full rows: {name: int32 or float32 array [num_rows, ...]}."""
    random = np.random.default_rng(1)
    length = job["length"]
    num_sequences = job["num_sequences"]
    record = features.pretraining_record(
        length,
        job["num_predictions"],
        max_sequences_per_row=num_sequences,
    )
    num_words = job["config"]["vocab_size"]
    limits = {
        features.INPUT_IDS: num_words,
        features.SEGMENT_IDS: 2,
        features.MASKED_LM_POSITIONS: length,
        features.MASKED_LM_IDS: num_words,
        features.NEXT_SENTENCE_LABELS: 2,
    }
    # All sequences of a row have the same length.
    places = np.arange(length)
    size = -(-length // num_sequences)
    packed = {
        features.POSITION_IDS: places % size,
        features.SEQUENCE_IDS: places // size + 1,
        features.FIRST_POSITIONS: np.arange(num_sequences) * size,
    }
    arrays = {}
    for name, (dtype, shape) in record.items():
        shape = (num_rows, *shape)
        if name in limits:
            arrays[name] = random.integers(limits[name], size=shape)
        else:
            arrays[name] = np.broadcast_to(packed.get(name, 1), shape)
        arrays[name] = arrays[name].astype(dtype.replace("int64", "int32"))
    return arrays
