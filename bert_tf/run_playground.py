r"""Shows a model in a browser: its tokens, masks, attention and answers.

    python -m bert_tf.run_playground --model_dir=tickets

loads the folder and prints a URL of this machine, to be opened in a browser.
The page shows the pieces into which texts are split, the tokens that a
pre-trained model predicts for a mask, where each head looks, and the answers of
a fine-tuned model. Press Ctrl-C to stop it.

With --input_file=records.tfrecord, pre-training records of the model's
vocabulary, it also has the tabs of `bert_tf inspect-data --output_file`: masks,
the input, the next sentence, a sample of the records.

It is not for serving: it answers only browsers on this machine, one question at
a time. To serve a model, use TensorFlow Serving: see `bert_tf export`.
"""

from absl import flags
from absl import logging

from bert_tf import manifest as manifests
from bert_tf import program

_MODEL_DIR = flags.DEFINE_string(
    "model_dir",
    None,
    "A model folder (of bert_tf or Hugging Face), pre-trained or fine-tuned, "
    "or a model of the Hub as hf:organisation/name@revision.",
)
_INPUT_FILE = flags.DEFINE_string(
    "input_file",
    None,
    "Pre-training records to show, too: globs, comma-separated.",
)
_PORT = flags.DEFINE_integer(
    "port",
    0,
    "Port at 127.0.0.1; 0 for any free one.",
    lower_bound=0,
    upper_bound=65535,
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length",
    None,
    "Longest sequence, in word pieces. Default: the folder's.",
    lower_bound=3,
)


def main(_):
    logging.set_verbosity(logging.WARNING)
    program.require(model_dir=_MODEL_DIR.value)
    found = None
    if _INPUT_FILE.value is not None:
        found = manifests.find_records(_INPUT_FILE.value, "input_file")

    from bert_tf.playground import server

    server.check_installed()
    with server.bound(_PORT.value) as listening:
        _serve(listening, found)


def _serve(listening, found):
    print(f"Loading {_MODEL_DIR.value}", flush=True)

    from bert_tf.playground import app
    from bert_tf.playground import page
    from bert_tf.playground import record_data
    from bert_tf.playground import server
    from bert_tf.playground.model import PlaygroundModel

    model = PlaygroundModel(_MODEL_DIR.value, _MAX_SEQ_LENGTH.value)
    records = None
    if found is not None:
        print(f"Reading {_INPUT_FILE.value}", flush=True)
        records = record_data.read(found, model.tokenizer)
    print("Warming up", flush=True)
    model.warm_up()
    _, port = listening.getsockname()
    token = server.new_token()
    made = page.make(model.describe(), records)
    shown = app.make(model, made, token, port)
    print(
        f"Open {server.url(port, token)} in a browser of this machine.\n"
        "Whoever has this URL can ask the model. Ctrl-C ends it.",
        flush=True,
    )
    server.run(shown, listening)


if __name__ == "__main__":
    program.run(main)
