"""Answers batches of strings with one library: a side of benchmarks/serving.py.

    python answer_strings.py {saved_model,transformers,onnxruntime} \
        {classes,spans,entities} MODEL CALLS

MODEL is a SavedModel, a model folder, or an .onnx file with config.json and the
tokenizer's files beside it. Reads lines from standard input, each a JSON list
of rows of strings. Writes one line for each: the seconds from strings to names
and places, and the answers: probabilities of classes, the text of spans, or
[type, start, limit] of each entity. The rows are divided among CALLS concurrent
calls, which share the cores; a single call has as many threads as the library
chooses. Imports only the one library, so that each can run in its own
environment.
"""

import concurrent.futures
import itertools
import json
import os
import pathlib
import sys
import time

# Windows that transformers computes together, and how many tokens consecutive
# windows share: the values of its question-answering pipeline in release 4.
_WINDOWS = 8
_STRIDE = 128
_N_BEST = 20
_MAX_ANSWER_LENGTH = 30


def of_saved_model(kind, path, threads):
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 - registers its operations.

    if threads is not None:
        # The other pool has one thread per core by default.
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    model = tf.saved_model.load(path)
    answer = model.signatures["serving_default"]
    settings = json.loads(
        pathlib.Path(path, "assets.extra", "bert_tf.json").read_text("utf-8")
    )
    names = [name.replace(" ", "_") for name in settings["text_features"]]

    def ask(rows):
        columns = dict(zip(names, zip(*rows)))
        outputs = {
            name: value.numpy()
            for name, value in answer(
                **{
                    name: tf.constant(column)
                    for name, column in columns.items()
                }
            ).items()
        }
        if kind == "classes":
            labels = [label.decode() for label in outputs["labels"]]
            assert len(labels) == len(rows)
            return outputs["probabilities"].tolist()
        if kind == "spans":
            return [text.decode() for text in outputs["answers"]]
        return [
            [
                [label.decode(), int(start), int(limit)]
                for label, start, limit in zip(
                    outputs["labels"][row][:count],
                    outputs["starts"][row],
                    outputs["limits"][row],
                )
            ]
            for row, count in enumerate(outputs["num_entities"])
        ]

    # The model must live as long as its function.
    ask.model = model
    return ask


def of_transformers(kind, path, threads):
    import torch
    import transformers

    if threads is not None:
        torch.set_num_threads(threads)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    if kind == "entities":
        recognize = transformers.pipeline(
            "token-classification", path, aggregation_strategy="first"
        )

        def ask(rows):
            texts = [text for (text,) in rows]
            return [
                [
                    [entity["entity_group"], entity["start"], entity["end"]]
                    for entity in entities
                ]
                for entities in recognize(texts, batch_size=len(texts))
            ]

        return ask
    if kind == "spans":
        return _spans_of_transformers(tokenizer, path)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        path
    ).eval()

    @torch.inference_mode()
    def ask(rows):
        inputs = tokenizer(
            *map(list, zip(*rows)),
            padding=True,
            truncation=True,
            return_tensors="pt",
        )
        probabilities = model(**inputs).logits.softmax(-1)
        ids = probabilities.argmax(-1).tolist()
        labels = [model.config.id2label[index] for index in ids]
        assert len(labels) == len(rows)
        return probabilities.tolist()

    return ask


def _spans_of_transformers(tokenizer, path):
    """Answers as transformers' pipeline did, which release 5 removed.

    Windows are as long as the tokenizer allows; their best span is the answer.
    """
    import numpy as np
    import torch
    import transformers

    model = transformers.AutoModelForQuestionAnswering.from_pretrained(
        path
    ).eval()

    @torch.inference_mode()
    def ask(rows):
        questions, contexts = map(list, zip(*rows))
        encoded = tokenizer(
            questions,
            contexts,
            truncation="only_second",
            stride=min(_STRIDE, tokenizer.model_max_length // 2),
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        best = [(-np.inf, "")] * len(rows)
        num_windows = len(encoded["input_ids"])
        for start in range(0, num_windows, _WINDOWS):
            windows = range(start, min(start + _WINDOWS, num_windows))
            inputs = tokenizer.pad(
                {
                    name: [encoded[name][window] for window in windows]
                    for name in tokenizer.model_input_names
                },
                return_tensors="pt",
            )
            outputs = model(**inputs)
            logits = zip(
                windows,
                outputs.start_logits.numpy(),
                outputs.end_logits.numpy(),
            )
            for window, starts, ends in logits:
                row = encoded["overflow_to_sample_mapping"][window]
                found = _best_span(
                    starts,
                    ends,
                    encoded.sequence_ids(window),
                    encoded["offset_mapping"][window],
                    contexts[row],
                )
                best[row] = max(best[row], found)
        return [text for _, text in best]

    def _best_span(starts, ends, sequences, offsets, context):
        """Returns (score, text) of the best span of a window."""
        outside = np.array([sequence != 1 for sequence in sequences])
        starts, ends = starts[: len(outside)], ends[: len(outside)]
        starts, ends = (
            np.where(outside, -np.inf, each) for each in (starts, ends)
        )
        first = np.argsort(-starts)[:_N_BEST]
        last = np.argsort(-ends)[:_N_BEST]
        scores = starts[first][:, None] + ends[last][None]
        lengths = last[None] - first[:, None]
        is_span = (lengths >= 0) & (lengths < _MAX_ANSWER_LENGTH)
        scores = np.where(is_span, scores, -np.inf)
        i, j = np.unravel_index(scores.argmax(), scores.shape)
        text = context[offsets[first[i]][0] : offsets[last[j]][1]]
        return float(scores[i, j]), text

    return ask


def of_onnxruntime(kind, path, threads):
    import numpy as np
    import onnxruntime
    import tokenizers

    assert kind == "classes"
    folder = pathlib.Path(path).parent

    def read(name):
        return json.loads((folder / name).read_text("utf-8"))

    config = read("config.json")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(
        read("tokenizer_config.json")["model_max_length"]
    )
    tokenizer.enable_padding(pad_id=config["pad_token_id"])
    options = onnxruntime.SessionOptions()
    if threads is not None:
        options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )

    def ask(rows):
        encoded = tokenizer.encode_batch(
            [row[0] if len(row) == 1 else tuple(row) for row in rows]
        )
        inputs = {
            "input_ids": [each.ids for each in encoded],
            "attention_mask": [each.attention_mask for each in encoded],
            "token_type_ids": [each.type_ids for each in encoded],
        }
        (logits,) = session.run(
            None, {name: np.int64(ids) for name, ids in inputs.items()}
        )
        probabilities = np.exp(logits - logits.max(axis=-1, keepdims=True))
        probabilities /= probabilities.sum(axis=-1, keepdims=True)
        labels = [
            config["id2label"][str(index)] for index in logits.argmax(axis=-1)
        ]
        assert len(labels) == len(rows)
        return probabilities.tolist()

    return ask


def main():
    side, kind, path, num_calls = sys.argv[1:]
    num_calls = int(num_calls)
    threads = None
    if num_calls > 1:
        threads = max(1, len(os.sched_getaffinity(0)) // num_calls)
    ask = {
        "saved_model": of_saved_model,
        "transformers": of_transformers,
        "onnxruntime": of_onnxruntime,
    }[side](kind, path, threads)
    callers = concurrent.futures.ThreadPoolExecutor(num_calls)
    for line in sys.stdin:
        rows = json.loads(line)
        start = time.perf_counter()
        size = -(-len(rows) // num_calls)
        parts = [rows[i : i + size] for i in range(0, len(rows), size)]
        if len(parts) == 1:  # No need to wake another thread.
            answers = ask(rows)
        else:
            answers = list(itertools.chain(*callers.map(ask, parts)))
        seconds = time.perf_counter() - start
        print(json.dumps([seconds, answers]), flush=True)


if __name__ == "__main__":
    main()
