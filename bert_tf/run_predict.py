r"""Asks a model of any task about texts.

    python -m bert_tf.run_predict --model_dir=tickets \
        --text='The bill is wrong.' --text='A new offer.'

prints a line of JSON for each text: the text and its answer. A tab separates
the texts of a pair. With --input_file, they come from a table, a file of the
model's task, or a file with one text per line. With --output_file, the lines
are written there:

    {"text": "The bill is wrong.", "answer": {"label": "law", "score": 0.98}}

A model that was not tuned to a task needs --kind: embedding, fill_mask or
reranker.
"""

import json

from absl import flags
from absl import logging

from bert_tf import atomic
from bert_tf import messages
from bert_tf import program
from bert_tf.serving.options import OF_ANSWERS
from bert_tf.serving.options import ExportOptions

_MODEL_DIR = flags.DEFINE_string(
    "model_dir",
    None,
    "A model folder of bert_tf or Hugging Face, or hf:organisation/name.",
)
_TEXT = flags.DEFINE_multi_string(
    "text", None, "A text; may be given several times."
)
_INPUT_FILE = flags.DEFINE_string("input_file", None, "A file of texts.")
_OUTPUT_FILE = flags.DEFINE_string(
    "output_file", None, "JSON lines to write, instead of printing them."
)
program.define_flags(ExportOptions, OF_ANSWERS)


def main(_):
    program.end_at_sigterm()
    # The log of what is loaded would bury the answers.
    logging.set_verbosity(logging.WARNING)
    program.require(model_dir=_MODEL_DIR.value)
    name, output_file = _INPUT_FILE.value, _OUTPUT_FILE.value
    if bool(_TEXT.value) == bool(name):
        raise ValueError("Either --text or --input_file must be given.")
    if name and output_file:
        atomic.check_is_no_input("output_file", [output_file], [name])
    options = program.from_flags(ExportOptions)

    from bert_tf.serving.predictors import predictor

    predict = predictor(
        _MODEL_DIR.value,
        **{name: getattr(options, name) for name in OF_ANSWERS},
    )
    columns = (
        predict.read_file(name)
        if name
        else predict.parse_lines(_TEXT.value, "--text")
    )
    lines = (
        json.dumps(dict(zip(predict.columns, row)) | {"answer": answer})
        for answer, *row in zip(_plain(predict(*columns)), *columns)
    )
    if not output_file:
        print("\n".join(lines))
        return
    with atomic.whole_stream(output_file) as stream:
        stream.writelines(f"{line}\n" for line in lines)
    count = messages.counted(len(columns[0]), "row", "rows")
    print(f"{count} in {output_file}")


def _plain(answers):
    """Returns answers as JSON has them: vectors are lists of numbers."""
    return answers if isinstance(answers, list) else answers.tolist()


if __name__ == "__main__":
    program.run(main)
