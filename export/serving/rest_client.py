r"""Asks TensorFlow Serving over REST, with Python's standard library alone.

    python export/serving/rest_client.py http://localhost:8501 mrpc \
        '{"sentence1": "He ran.", "sentence2": "He was running."}'

Each text is a JSON object with the inputs of the signature. The same by hand:

    curl http://localhost:8501/v1/models/mrpc:predict \
        -d '{"instances": [{"sentence1": "...", "sentence2": "..."}]}'
"""

import argparse
import http.client
import json
import sys
import urllib.error
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


def parse(text):
    """Returns the JSON object in a text from the command line."""
    try:
        # Bytes that are not UTF-8 come as lone surrogates and fail to encode.
        text.encode("utf-8")
        return json.loads(text)
    except ValueError as error:
        raise ValueError(
            f"a text must be a JSON object, in UTF-8. Received: {text!r}."
        ) from error


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("server", help="http://host:port.")
    parser.add_argument("model", help="The model's name.")
    parser.add_argument("text", nargs="+", help="A JSON object in UTF-8.")
    arguments = parser.parse_args()
    try:
        instances = [parse(text) for text in arguments.text]
        answers = predict(arguments.server, arguments.model, instances)
    except urllib.error.HTTPError as error:
        answer = " ".join(error.read().decode("utf-8", "replace").split())
        sys.exit(f"rest_client.py: error: {arguments.server}: {answer}")
    except urllib.error.URLError as error:
        sys.exit(
            "rest_client.py: error: no server answers at "
            f"{arguments.server}: {error.reason}"
        )
    except http.client.HTTPException as error:
        sys.exit(
            f"rest_client.py: error: {arguments.server} answers no HTTP "
            f"({type(error).__name__}); gRPC has another port."
        )
    except (OSError, ValueError) as error:
        sys.exit(f"rest_client.py: error: {error}")
    for instance, answer in zip(instances, answers):
        print(f"{json.dumps(instance)}\n  {json.dumps(answer)}")


if __name__ == "__main__":
    main()
