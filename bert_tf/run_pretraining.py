r"""Pre-trains BERT or one of its family: masked tokens, next sentence, ELECTRA.

    python -m bert_tf.run_pretraining \
        --input_file='/data/wiki.tfrecord*' \
        --bert_config_file=bert_config.json --vocab_file=vocab.txt \
        --output_dir=/runs/wiki --do_train --do_eval \
        --train_batch_size=256 --learning_rate=1e-4 --num_train_steps=1000000

reads records of bert_tf.data.create_pretraining_data, or of
google-research/bert's program of that name, and writes into --output_dir the
model as a model folder (config.json, model.safetensors, vocab.txt,
tokenizer_config.json), the state of the training and TensorBoard summaries in
train/, and the evaluation in eval_results.txt. The model is written with every
checkpoint; --keep_best also keeps the one with the lowest loss on
--eval_file.
`tensorboard --logdir=/runs/wiki/train` shows the curves (pip install
'bert_tf[tensorboard]').

Rerun the command to resume from the last checkpoint. On SIGTERM or Ctrl-C the
program saves a checkpoint and exits with code 75; a second Ctrl-C stops it at
once. The run begins with the weights of the last checkpoint in --output_dir,
otherwise those of --init_checkpoint, otherwise new ones.

If --init_checkpoint is a model folder or the folder of a release, its own
configuration and vocabulary are used. To continue its training on other text:

    python -m bert_tf.run_pretraining --init_checkpoint=uncased_L-12_H-768 \
        --input_file='/data/law.tfrecord*' --output_dir=/runs/law --do_train
"""

from absl import flags
from absl import logging

from bert_tf import program
from bert_tf import sizes
from bert_tf import training_flags
from bert_tf.runs import stopping
from bert_tf.runs.options import PretrainingOptions

program.define_flags(PretrainingOptions)
_BERT_CONFIG_FILE = flags.DEFINE_string("bert_config_file", None, sizes.HELP)
_MAX_POSITION_EMBEDDINGS = flags.DEFINE_integer(
    "max_position_embeddings",
    None,
    "With a size's name in --bert_config_file: the longest sequence of the new "
    "model, e.g. 4096. Default: 512. A checkpoint has its own; bert_tf convert "
    "gives it more.",
    lower_bound=1,
)
_VOCAB_FILE = flags.DEFINE_string(
    "vocab_file",
    None,
    "Vocabulary of the records, for the model folder. Default: the "
    "checkpoint's own.",
)
_DO_LOWER_CASE = flags.DEFINE_bool(
    "do_lower_case",
    None,
    "Whether the records' text was lower-cased, for the model folder. "
    "Default: as the checkpoint's folder says, otherwise true.",
)


def main(argv):
    del argv
    logging.set_verbosity(logging.INFO)
    options = program.from_flags(PretrainingOptions)
    options.check_places()
    from bert_tf.checkpoints import starting_point
    from bert_tf.runs import pretraining_run

    strategy = training_flags.make_strategy()
    with stopping.exits_when_told():
        start = starting_point.find(
            options.checkpoint(),
            _BERT_CONFIG_FILE.value,
            _VOCAB_FILE.value,
            _DO_LOWER_CASE.value,
            max_position_embeddings=_MAX_POSITION_EMBEDDINGS.value,
            extend_positions=False,
            is_trained=options.do_train,
        )
        results = pretraining_run.run(
            options, start, strategy, training_flags.dtype_policy(strategy)
        )
    for name in sorted(results or ()):
        print(f"{name} = {results[name]}")


if __name__ == "__main__":
    program.run(main)
