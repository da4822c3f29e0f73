r"""Times the playground's answers, from the request to the last byte.

    python benchmarks/playground.py --model_dir=mrpc --text_file=wiki.txt

Starts `bert_tf playground`, as a user does, and asks it about different
sentences of 6 to 30 words: their tokens, their attention, and what else the
folder has, masks to fill or a task. A task that needs several texts gets the
sentence repeatedly. Prints a table in Markdown, in milliseconds: the first
answer after the start, and the median and the longest of all others.
"""

import json
import statistics
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import heading
from absl import flags

from bert_tf import program
from bert_tf import streams
from bert_tf.playground.model import PlaygroundModel

_MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "A model folder.", required=True
)
_TEXT_FILE = flags.DEFINE_string(
    "text_file", None, "One sentence per line; also .xz and .gz.", required=True
)
_SENTENCES = flags.DEFINE_integer(
    "sentences", 41, "How many to ask about.", lower_bound=2
)


def read_sentences():
    found = []
    with streams.open_bytes(_TEXT_FILE.value) as stream:
        for line in stream:
            text = line.decode("utf-8").strip()
            if 5 <= text.count(" ") < 30 and text not in found:
                found.append(text)
            if len(found) == _SENTENCES.value:
                return found
    raise ValueError(
        f"--text_file must have {_SENTENCES.value} such sentences. "
        f"Received: {len(found)}."
    )


def ask(url, name, question):
    """Returns the milliseconds of an answer."""
    parts = urllib.parse.urlsplit(url)
    request = urllib.request.Request(
        urllib.parse.urljoin(url, f"api/{name}"),
        json.dumps(question).encode(),
        {
            "content-type": "application/json",
            "origin": f"{parts.scheme}://{parts.netloc}",
        },
    )
    start = time.perf_counter()
    with urllib.request.urlopen(request) as response:
        response.read()
    return 1000 * (time.perf_counter() - start)


def questions():
    """Returns {name of a question: function from a sentence to its JSON}."""
    found = {
        "tokens": lambda text: {"texts": [text]},
        "attention": lambda text: {"texts": [text]},
    }
    told = PlaygroundModel(_MODEL_DIR.value).describe()
    if told["fills_masks"]:
        found["fill_mask"] = lambda text: {"texts": [text], "position": 2}
    if told["task"]:
        num_texts = told["task"]["least_texts"]
        found["predict"] = lambda text: {"texts": [text] * num_texts}
    return found


def main(_):
    sentences = read_sentences()
    heading.show()
    command = (sys.executable, "-m", "bert_tf.run_playground")
    with subprocess.Popen(
        [*command, f"--model_dir={_MODEL_DIR.value}"],
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            opened = (line for line in server.stdout if line[:5] == "Open ")
            line = next(opened, None)
            if line is None:
                raise RuntimeError("The playground did not start.")
            url = line.split()[1]
            print("| question | first, ms | median, ms | longest, ms |")
            print("|---|---|---|---|")
            for name, make in questions().items():
                first, *others = (
                    ask(url, name, make(text)) for text in sentences
                )
                print(
                    f"| {name} | {first:.0f} | {statistics.median(others):.1f} "
                    f"| {max(others):.1f} |",
                    flush=True,
                )
        finally:
            server.terminate()


if __name__ == "__main__":
    program.run(main)
