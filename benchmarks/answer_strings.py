"""Answers batches of strings with one library: a side of benchmarks/serving.py.

    python answer_strings.py {bert_tf,transformers,onnxruntime} MODEL

MODEL is a SavedModel, or a model folder; for onnxruntime with the model.onnx of
export_onnx.py in it. Reads from its standard input a JSON
list of strings a line; writes a line with the seconds that the answer took,
from strings to label names, and with the probabilities. Imports no more than
the one library, so that each runs in an environment of its own.
"""

import json
import pathlib
import sys
import time


def of_bert_tf(path):
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 - registers its operations.

    answer = tf.saved_model.load(path).signatures["serving_default"]
    (name,) = answer.structured_input_signature[1]

    def ask(texts):
        outputs = answer(**{name: tf.constant(texts)})
        labels = [label.decode() for label in outputs["labels"].numpy()]
        return labels, outputs["probabilities"].numpy().tolist()

    # What was loaded has to live as long as its function.
    ask.model = answer
    return ask


def of_transformers(path):
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        path
    ).eval()

    @torch.inference_mode()
    def ask(texts):
        inputs = tokenizer(
            texts, padding=True, truncation=True, return_tensors="pt"
        )
        probabilities = model(**inputs).logits.softmax(-1)
        ids = probabilities.argmax(-1).tolist()
        labels = [model.config.id2label[index] for index in ids]
        return labels, probabilities.tolist()

    return ask


def of_onnxruntime(path):
    import numpy as np
    import onnxruntime
    import tokenizers

    def read(name):
        return json.loads(pathlib.Path(path, name).read_text("utf-8"))

    config = read("config.json")
    tokenizer = tokenizers.Tokenizer.from_file(f"{path}/tokenizer.json")
    tokenizer.enable_truncation(
        read("tokenizer_config.json")["model_max_length"]
    )
    tokenizer.enable_padding(pad_id=config["pad_token_id"])
    session = onnxruntime.InferenceSession(
        f"{path}/model.onnx", providers=["CPUExecutionProvider"]
    )

    def ask(texts):
        encoded = tokenizer.encode_batch(texts)
        inputs = {
            "input_ids": [each.ids for each in encoded],
            "attention_mask": [each.attention_mask for each in encoded],
            "token_type_ids": [each.type_ids for each in encoded],
        }
        (logits,) = session.run(
            None, {name: np.int64(rows) for name, rows in inputs.items()}
        )
        probabilities = np.exp(logits - logits.max(axis=-1, keepdims=True))
        probabilities /= probabilities.sum(axis=-1, keepdims=True)
        labels = [
            config["id2label"][str(index)] for index in logits.argmax(axis=-1)
        ]
        return labels, probabilities.tolist()

    return ask


def main():
    side, path = sys.argv[1:]
    ask = {
        "bert_tf": of_bert_tf,
        "transformers": of_transformers,
        "onnxruntime": of_onnxruntime,
    }[side](path)
    for line in sys.stdin:
        texts = json.loads(line)
        start = time.perf_counter()
        _, probabilities = ask(texts)
        seconds = time.perf_counter() - start
        print(json.dumps([seconds, probabilities]), flush=True)


if __name__ == "__main__":
    main()
