"""What transformers' pipelines and sentence-transformers answer.

    python pipelines.py REQUESTS ANSWERS

REQUESTS is JSON: {name: {"task", "model", "inputs", "options"}}, where the task
is that of a pipeline, or "sentence-transformers". ANSWERS gets JSON, {name:
answers}.

Runs with torch, transformers and sentence-transformers; no module of bert_tf is
used.
"""

import json
import sys

import sentence_transformers
import transformers


def _answer(task, model, inputs, options):
    if task == "sentence-transformers":
        opened = sentence_transformers.SentenceTransformer(model, device="cpu")
        return opened.encode(inputs, **options)
    ask = transformers.pipeline(task, model=model, device="cpu")
    # One at a time: no padding. As a list, a pair's answer is as a text's.
    if task == "text-classification":
        return [ask([each], **options)[0] for each in inputs]
    return [ask(each, **options) for each in inputs]


def _plain(value):
    return value.tolist()


def main():
    requests_path, answers_path = sys.argv[1:]
    with open(requests_path, encoding="utf-8") as stream:
        requests = json.load(stream)
    answers = {name: _answer(**each) for name, each in requests.items()}
    with open(answers_path, "w", encoding="utf-8") as stream:
        json.dump(answers, stream, default=_plain)


if __name__ == "__main__":
    main()
