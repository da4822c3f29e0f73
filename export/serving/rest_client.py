r"""Asks TensorFlow Serving over REST, with Python's standard library alone.

    python export/serving/rest_client.py http://localhost:8501 mrpc \
        '{"sentence1": "He ran.", "sentence2": "He was running."}'

One JSON object a text, with the inputs of the signature. The same by hand:

    curl http://localhost:8501/v1/models/mrpc:predict \
        -d '{"instances": [{"sentence1": "...", "sentence2": "..."}]}'
"""

import json
import sys
import urllib.request


def predict(server, model, instances, timeout_seconds=10.0):
    """Returns one answer for each of `instances`, dictionaries of strings."""
    request = urllib.request.Request(
        f"{server}/v1/models/{model}:predict",
        data=json.dumps({"instances": instances}).encode("utf-8"),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=timeout_seconds) as response:
        return json.load(response)["predictions"]


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    server, model, *texts = sys.argv[1:]
    instances = [json.loads(text) for text in texts]
    for instance, answer in zip(instances, predict(server, model, instances)):
        print(f"{json.dumps(instance)}\n  {json.dumps(answer)}")


if __name__ == "__main__":
    main()
