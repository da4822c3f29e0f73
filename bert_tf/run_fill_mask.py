r"""Fills in the [MASK]s of texts with a pre-trained model.

    python -m bert_tf.run_fill_mask --model_dir=pretrained \
        --text='The capital of France is [MASK].' --top_k=5

prints, for each mask, the likeliest tokens with their probabilities, and the
text with each of them filled in. With --input_file, the texts are its lines.
With --output_file, the answers are written as one line of JSON a text:

    {"text": ..., "masks": [[{"token", "token_id", "score", "sequence"}]]}
"""

import json

from absl import flags
from absl import logging

from bert_tf import atomic
from bert_tf import messages
from bert_tf import program
from bert_tf import progress_bar
from bert_tf.serving.kinds import texts as texts_lib

_MODEL_DIR = flags.DEFINE_string(
    "model_dir",
    None,
    "A pre-trained model: a model folder (of bert_tf or Hugging Face) or a "
    "release of Google's.",
)
_TEXT = flags.DEFINE_multi_string(
    "text", None, "A text with [MASK] in it; may be given several times."
)
_INPUT_FILE = flags.DEFINE_string("input_file", None, "Texts, one a line.")
_OUTPUT_FILE = flags.DEFINE_string(
    "output_file",
    None,
    "JSON lines to write, instead of a table on the screen.",
)
_TOP_K = flags.DEFINE_integer(
    "top_k", 5, "Tokens for each mask.", lower_bound=1
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length",
    None,
    "Longest sequence, in word pieces. Default: the model's.",
    lower_bound=3,
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 32, "Texts a step.", lower_bound=1
)


def main(_):
    program.end_at_sigterm()
    # The log of what is loaded would bury the answers.
    logging.set_verbosity(logging.WARNING)
    program.require(model_dir=_MODEL_DIR.value)
    if bool(_TEXT.value) == bool(_INPUT_FILE.value):
        raise ValueError("Either --text or --input_file must be given.")
    if _INPUT_FILE.value:
        name = _INPUT_FILE.value
        if _OUTPUT_FILE.value:
            atomic.check_is_no_input(
                "output_file", [_OUTPUT_FILE.value], [name]
            )
        rows = texts_lib.read_lines(name, num_strings=1)
    else:
        name = "--text"
        rows = texts_lib.parse_texts(_TEXT.value, 1, name)
    texts = [text for (text,) in rows]

    import tensorflow as tf

    from bert_tf.checkpoints import starting_point
    from bert_tf.tasks import fill_mask
    from bert_tf.text import packing

    start = starting_point.find(_MODEL_DIR.value)
    size = len(start.tokenizer.vocabulary)
    if _TOP_K.value > size:
        raise ValueError(
            "--top_k must be at most the size of the vocabulary, "
            f"{size}. Received: --top_k={_TOP_K.value}."
        )
    preprocessor = start.preprocessor(
        _MAX_SEQ_LENGTH.value or start.config.max_position_embeddings
    )
    fill_mask.check_texts(texts, name, preprocessor)
    model = fill_mask.load_model(_MODEL_DIR.value)

    @tf.function(autograph=False, reduce_retracing=True)
    def answer(texts):
        inputs = packing.trim_padding(fill_mask.encode(texts, preprocessor))
        answers = fill_mask.decode(
            *fill_mask.predict(inputs, model, start.tokenizer.vocabulary),
            start.tokenizer.vocabulary,
            _TOP_K.value,
        )
        filled = fill_mask.fill(texts, answers, start.tokenizer)
        return answers | {"sequences": filled}

    def answered(starts):
        # Batch by batch: all answers at once may be gigabytes.
        for first in starts:
            batch = texts[first : first + _BATCH_SIZE.value]
            yield from _to_records(batch, answer(tf.constant(batch)))

    starts = range(0, len(texts), _BATCH_SIZE.value)
    if _OUTPUT_FILE.value:
        # Without a bar, progress is logged as lines.
        logging.set_verbosity(logging.INFO)
        with (
            progress_bar.track(starts, "fill in", len(starts)) as tracked,
            atomic.whole_stream(_OUTPUT_FILE.value) as stream,
        ):
            for record in answered(tracked):
                stream.write(f"{json.dumps(record)}\n")
        count = messages.counted(len(texts), "text", "texts")
        print(f"{count} in {_OUTPUT_FILE.value}")
    else:
        for record in answered(starts):
            print("\n".join(_to_table(record, start.tokenizer.vocabulary)))


def _to_records(texts, answers):
    """Yields the records for the lines of the output file."""
    answers = {name: value.numpy().tolist() for name, value in answers.items()}
    for row, text in enumerate(texts):
        yield {
            "text": text.decode("utf-8", "replace"),
            "masks": [
                [
                    {
                        "token": token.decode("utf-8"),
                        "token_id": token_id,
                        "score": score,
                        "sequence": sequence.decode("utf-8", "replace"),
                    }
                    for token, token_id, score, sequence in zip(
                        *(
                            answers[name][row][mask]
                            for name in ("tokens", "ids", "scores", "sequences")
                        )
                    )
                ]
                for mask in range(answers["num_masks"][row])
            ],
        }


def _to_table(record, vocabulary):
    """Yields lines to print: a text, and the answers for its masks."""
    yield " ".join(record["text"].split())
    for number, mask in enumerate(record["masks"], start=1):
        yield f"  {vocabulary.special.mask} {number}"
        width = max(len(answer["token"]) for answer in mask)
        for answer in mask:
            sequence = " ".join(answer["sequence"].split())
            yield (
                f"  {answer['score']:.4f}  {answer['token']:{width}}  "
                f"{sequence}"
            )


if __name__ == "__main__":
    program.run(main)
