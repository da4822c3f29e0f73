"""Embeds strings with one library: a side of benchmarks/embedding.py.

    python embed_strings.py {bert_tf,sentence_transformers,onnxruntime} \
        {float32,bfloat16} BATCH_SIZE MODEL

MODEL is a folder of sentence-transformers with mean pooling and normalisation;
for onnxruntime it must hold the model.onnx of export_onnx.py. Reads lines from
standard input, each a JSON list of strings. Writes one line for each: the
seconds from strings to vectors, and the vectors, float32 in base64. Each
library sorts the strings by length. Imports only the one library, so that each
can run in its own environment.
"""

import base64
import json
import pathlib
import sys
import time

import numpy as np


def of_bert_tf(path, precision, batch_size):
    from bert_tf.tasks.features import sentences

    dtype = "float32" if precision == "float32" else f"mixed_{precision}"
    embedder = sentences.open_embedder(path, dtype=dtype)
    return lambda texts: embedder(texts, batch_size)


def of_sentence_transformers(path, precision, batch_size):
    import sentence_transformers
    import torch

    model = sentence_transformers.SentenceTransformer(
        path,
        device="cpu",
        model_kwargs={"dtype": getattr(torch, precision)},
    )
    # `encode` sorts the texts itself.
    return lambda texts: model.encode(
        texts, batch_size=batch_size, show_progress_bar=False
    )


def of_onnxruntime(path, precision, batch_size):
    import onnxruntime
    import tokenizers

    if precision != "float32":
        raise ValueError("The model of ONNX Runtime is of float32.")

    def read(name):
        return json.loads(pathlib.Path(path, name).read_text("utf-8"))

    tokenizer = tokenizers.Tokenizer.from_file(f"{path}/tokenizer.json")
    tokenizer.enable_truncation(
        read("sentence_bert_config.json")["max_seq_length"]
    )
    tokenizer.no_padding()
    pad_id = read("config.json")["pad_token_id"]
    session = onnxruntime.InferenceSession(
        f"{path}/model.onnx", providers=["CPUExecutionProvider"]
    )

    def embed(texts):
        encoded = tokenizer.encode_batch(texts)
        order = np.argsort([-len(each.ids) for each in encoded], kind="stable")
        vectors = [None] * len(texts)
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            longest = len(encoded[rows[0]].ids)
            ids = np.full((len(rows), longest), pad_id, np.int64)
            mask = np.zeros((len(rows), longest), np.int64)
            for place, row in enumerate(rows):
                length = len(encoded[row].ids)
                ids[place, :length] = encoded[row].ids
                mask[place, :length] = 1
            (hidden,) = session.run(
                None,
                {
                    "input_ids": ids,
                    "attention_mask": mask,
                    "token_type_ids": np.zeros_like(ids),
                },
            )
            weights = mask[..., np.newaxis].astype(np.float32)
            pooled = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
            pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
            for row, vector in zip(rows, pooled):
                vectors[row] = vector
        return np.stack(vectors)

    return embed


def main():
    side, precision, batch_size, path = sys.argv[1:]
    embed = {
        "bert_tf": of_bert_tf,
        "sentence_transformers": of_sentence_transformers,
        "onnxruntime": of_onnxruntime,
    }[side](path, precision, int(batch_size))
    for line in sys.stdin:
        texts = json.loads(line)
        start = time.perf_counter()
        vectors = np.asarray(embed(texts), np.float32)
        seconds = time.perf_counter() - start
        data = base64.b64encode(vectors.tobytes()).decode("ascii")
        print(json.dumps([seconds, data]), flush=True)


if __name__ == "__main__":
    main()
