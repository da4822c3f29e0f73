r"""Converts a checkpoint between Google's, Hugging Face's and our format.

    bert_tf convert \
        --init_checkpoint=uncased_L-12_H-768_A-12 --output_dir=/models/base

The input is a Google release (a folder, or the prefix of a checkpoint), a
Hugging Face folder, or one of ours; its contents tell which. Every value is
kept bit for bit. The coverage report is printed: what went where, and what was
left over.

    google          bert_model.ckpt.*, bert_config.json, vocab.txt: what
                    google-research/bert loads, with the optimizer's moments
    hugging_face    config.json, model.safetensors, vocab.txt, ...: what
                    transformers loads
    bert_tf         the same folder, with our task.json
"""

from absl import flags
from absl import logging

from bert_tf import config
from bert_tf import program
from bert_tf.checkpoints import containers

_INIT_CHECKPOINT = flags.DEFINE_string(
    "init_checkpoint", None, "The checkpoint to convert."
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "The folder to write; it must be empty or not exist."
)
_FORMAT = flags.DEFINE_enum(
    "format", containers.BERT_TF, containers.FORMATS, "The format to write."
)
_ALLOW_PARTIAL = flags.DEFINE_bool(
    "allow_partial",
    False,
    "Whether tensors may be missing, left over or of another shape.",
)
_MAX_POSITION_EMBEDDINGS = flags.DEFINE_integer(
    "max_position_embeddings",
    None,
    "Longest sequence, if longer than the checkpoint's, e.g. 4096: its "
    "position embeddings are repeated from the first. RoBERTa's config.json "
    "then has two more, as ever.",
    lower_bound=1,
)
_DO_LOWER_CASE = flags.DEFINE_bool(
    "do_lower_case",
    None,
    "Whether the model's texts were lower-cased. If not given, as the input "
    "says; if it says nothing, true for a vocabulary without capitals.",
)
_HIDDEN_ACT = flags.DEFINE_enum(
    "hidden_act",
    None,
    config.ACTIVATIONS,
    "The model's activation, in place of the one in its configuration: gelu is "
    "the erf form, gelu_new the tanh form that Google's files call gelu.",
)


def main(_):
    program.end_at_sigterm()
    # The coverage report would be logged too; it is printed.
    logging.set_verbosity(logging.WARNING)
    program.require(
        init_checkpoint=_INIT_CHECKPOINT.value, output_dir=_OUTPUT_DIR.value
    )

    from bert_tf import checkpoints

    print(
        checkpoints.convert(
            _INIT_CHECKPOINT.value,
            _OUTPUT_DIR.value,
            _FORMAT.value,
            allow_partial=_ALLOW_PARTIAL.value,
            max_position_embeddings=_MAX_POSITION_EMBEDDINGS.value,
            do_lower_case=_DO_LOWER_CASE.value,
            hidden_act=_HIDDEN_ACT.value,
        )
    )


if __name__ == "__main__":
    program.run(main)
