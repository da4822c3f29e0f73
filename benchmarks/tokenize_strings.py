"""Tokenizes texts with one library: a side of benchmarks/tokenizer.py.

    python tokenize_strings.py JOB

JOB is JSON with library, model_dir, max_seq_length, batch_size, threads (0 for
all), text_file (a JSON list) and ids_file. Turns all texts into model inputs
and writes the ids to ids_file. Then, for each line of standard input, does it
again and prints the seconds. Imports only the one library.
"""

import dataclasses
import json
import sys
import time


def of_bert_tf(job, texts, fast=False):
    import tensorflow as tf

    threads = job["threads"]
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    from bert_tf.text.preprocessor import Preprocessor
    from bert_tf.text.tokenizers import files as tokenizer_files

    tokenizer = tokenizer_files.read(job["model_dir"])
    if fast:
        tokenizer = dataclasses.replace(tokenizer, fast=True)
    if not job["max_seq_length"]:
        tokenize = tokenizer.make().tokenize

        def make_ids(batch):
            pieces = tokenize(batch).merge_dims(1, 2)
            return {"rows": (pieces.values, pieces.row_splits)}

        return _mapped(job, texts, make_ids, "rows", list)
    preprocessor = Preprocessor(tokenizer, job["max_seq_length"])
    return _mapped(job, texts, preprocessor, "input_ids")


def of_keras_hub(job, texts):
    import keras_hub

    tokenizer = keras_hub.tokenizers.BertTokenizer(
        vocabulary=f"{job['model_dir']}/vocab.txt", lowercase=True
    )
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(
        tokenizer, sequence_length=job["max_seq_length"]
    )
    return _mapped(job, texts, preprocessor, "token_ids")


def _mapped(job, texts, preprocessor, name, joined=None):
    import numpy as np
    import tensorflow as tf

    threads = job["threads"]
    dataset = (
        tf.data.Dataset.from_tensor_slices(texts)
        .batch(job["batch_size"])
        .map(preprocessor, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )
    if threads:
        # All batches are made in one pool of this many threads.
        options = tf.data.Options()
        options.threading.private_threadpool_size = threads
        options.threading.max_intra_op_parallelism = 1
        dataset = dataset.with_options(options)

    def make():
        rows = [batch[name] for batch in dataset.as_numpy_iterator()]
        return (joined or np.concatenate)(rows)

    return make


def of_transformers(job, texts):
    import numpy as np
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(job["model_dir"])
    batch_size = job["batch_size"]

    def make():
        # Calls per batch are a quarter faster than one call for all texts.
        rows = [
            tokenizer(
                texts[start : start + batch_size],
                padding="max_length",
                truncation=True,
                max_length=job["max_seq_length"],
                return_tensors="np",
            )["input_ids"]
            for start in range(0, len(texts), batch_size)
        ]
        return np.concatenate(rows)

    return make


def of_tokenizers(job, texts):
    import os

    # `tokenizers` reads this variable when it encodes the first batch.
    if job["threads"]:
        os.environ["RAYON_NUM_THREADS"] = str(job["threads"])
    import numpy as np
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(
        f"{job['model_dir']}/tokenizer.json"
    )
    # As in bert_tf, special tokens in texts are text.
    tokenizer.encode_special_tokens = True
    length, batch_size = job["max_seq_length"], job["batch_size"]
    if length:
        tokenizer.enable_truncation(length)
        tokenizer.enable_padding(
            length=length,
            pad_id=tokenizer.token_to_id("<pad>") or 0,
        )

    def make():
        rows = [
            [
                found.ids
                for found in tokenizer.encode_batch_fast(
                    texts[start : start + batch_size],
                    add_special_tokens=bool(length),
                )
            ]
            for start in range(0, len(texts), batch_size)
        ]
        if not length:
            return rows
        return np.concatenate([np.array(each, np.int32) for each in rows])

    return make


def _padded(batches):
    """Returns the ids of all texts, [N, longest], padded with -1."""
    import numpy as np

    rows = []
    for batch in batches:
        if isinstance(batch, tuple):
            values, splits = batch
            batch = np.split(values, splits[1:-1])
        rows += batch
    ids = np.full((len(rows), max(map(len, rows))), -1, np.int32)
    for row, found in zip(ids, rows):
        row[: len(found)] = found
    return ids


_LIBRARIES = {
    "bert_tf": of_bert_tf,
    "bert_tf, fast=True": lambda job, texts: of_bert_tf(job, texts, fast=True),
    "keras_hub": of_keras_hub,
    "tokenizers": of_tokenizers,
    "transformers": of_transformers,
}


def main():
    job = json.loads(sys.argv[1])
    with open(job["text_file"], encoding="utf-8") as stream:
        texts = json.load(stream)
    make = _LIBRARIES[job["library"]](job, texts)
    ids = make()

    import numpy as np

    if not job["max_seq_length"]:
        ids = _padded(ids)
    np.save(job["ids_file"], ids)
    for _ in sys.stdin:
        start = time.perf_counter()
        make()
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
