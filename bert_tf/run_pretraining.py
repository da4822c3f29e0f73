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
checkpoint; --keep_best keeps that of the lowest loss on --eval_input_file too.
`tensorboard --logdir=/runs/wiki/train` shows the curves (pip install
'bert_tf[tensorboard]').

Rerun the command to resume from the last checkpoint. On SIGTERM or Ctrl-C the
program saves a checkpoint and exits with code 75; a second Ctrl-C stops it at
once. The weights are, in this order: the last checkpoint's in --output_dir,
--init_checkpoint's, new ones.

Where --init_checkpoint is a model folder, or the folder of a release, its own
configuration and vocabulary are taken, and training goes on with other text:

    python -m bert_tf.run_pretraining --init_checkpoint=uncased_L-12_H-768 \
        --input_file='/data/law.tfrecord*' --output_dir=/runs/law --do_train
"""

from absl import flags
from absl import logging

from bert_tf import program
from bert_tf import training_flags
from bert_tf.optimizers import decays
from bert_tf.training import options as options_lib
from bert_tf.training import preemption

# Those without a name here go into the options as they are.
_DEFAULTS = options_lib.Options
_INPUT_FILE = flags.DEFINE_string(
    "input_file",
    None,
    "Record files: globs, comma-separated. With --phases those of each phase, "
    "with a semicolon between two phases.",
)
flags.DEFINE_string(
    "eval_input_file",
    _DEFAULTS.eval_input_file,
    "Record files to evaluate on, as --input_file. Default: the same, with "
    "--phases the last one's.",
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder of the model, its training and its results."
)
_BERT_CONFIG_FILE = flags.DEFINE_string(
    "bert_config_file",
    None,
    "JSON of the architecture, or a size's name: tiny, mini, small, medium, "
    "base, large, L-4_H-256, roberta-base and so on. Default: the "
    "checkpoint's own.",
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
    "Default: as the checkpoint's folder says, or else true.",
)
flags.DEFINE_string(
    "init_checkpoint",
    _DEFAULTS.init_checkpoint,
    "Where to begin: a model folder (of bert_tf or Hugging Face), a release of "
    "Google's, or hf:organisation/name@revision of the Hugging Face Hub. "
    "Default: new weights.",
)
flags.DEFINE_enum(
    "attention",
    _DEFAULTS.attention,
    options_lib.ATTENTION,
    "left_to_right: a token sees only itself and those before it, and every "
    "next token is predicted in place of the masked ones and the next sentence "
    "(the paper's LTR ablation, section 5.1), from records of any kind; so "
    "many predictions take more memory. The log's masked_lm_loss is then of "
    "the next tokens, and the model folder says is_decoder. Default: as the "
    "configuration says, or bidirectional.",
)
flags.DEFINE_enum(
    "objective",
    _DEFAULTS.objective,
    options_lib.OBJECTIVES,
    "masked_tokens: masked tokens, and the pairs that the records have labels "
    "of. replaced_tokens: ELECTRA, from records of any kind. A small generator "
    "predicts the masked tokens, and a discriminator, which is the model, "
    "tells which tokens of its samples are replaced. The generator's folder is "
    "generator in --output_dir.",
)
flags.DEFINE_float(
    "generator_size",
    _DEFAULTS.generator_size,
    "Width of ELECTRA's generator as a share of the discriminator's; it has as "
    "many layers. Default: the checkpoint's, or 0.25.",
)
flags.DEFINE_float(
    "discriminator_weight",
    _DEFAULTS.discriminator_weight,
    "Weight of the loss of ELECTRA's discriminator beside the generator's. "
    "Default: 50.",
)
flags.DEFINE_bool(
    "span_boundary_objective",
    _DEFAULTS.span_boundary_objective,
    "Predict tokens of masked spans also from the two tokens around the span "
    "(SpanBERT), from records of any kind; those of create_pretraining_data "
    "--do_span_mask have SpanBERT's spans. The head for it is in train/ alone.",
)
flags.DEFINE_integer(
    "input_shares",
    _DEFAULTS.input_shares,
    "Parts of a batch, each with its own share of the records, so that a host "
    "reads its own alone. The same number gives the same batches on one host "
    "and on several. 1: each host reads all. Default: the number of hosts.",
    lower_bound=1,
)
flags.DEFINE_list(
    "tf_data_service",
    _DEFAULTS.tf_data_service,
    "grpc://host:port of machines where data/serve_input.py runs, "
    "comma-separated: they make the training batches, the same ones. Default: "
    "made here.",
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length",
    None,
    "Tokens of a record. Default: what the records' manifest tells, or 128.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "max_predictions_per_seq",
    _DEFAULTS.max_predictions_per_seq,
    "Most masked tokens of a record. Default: what the records' manifest "
    "tells, or 20.",
    lower_bound=1,
)
flags.DEFINE_bool("do_train", _DEFAULTS.do_train, "Whether to train.")
flags.DEFINE_bool(
    "do_eval", _DEFAULTS.do_eval, "Whether to evaluate, after any training."
)
_TRAIN_BATCH_SIZE = flags.DEFINE_integer(
    "train_batch_size", 32, "Examples a step, over all devices.", lower_bound=1
)
flags.DEFINE_integer(
    "gradient_accumulation_steps",
    _DEFAULTS.gradient_accumulation_steps,
    "Parts in which a device goes through its share of the batch: the memory "
    "of one part, and one step of the optimizer.",
    lower_bound=1,
)
flags.DEFINE_bool(
    "rematerialize",
    _DEFAULTS.rematerialize,
    "Compute the blocks a second time for the gradient instead of keeping "
    "their activations: long sequences in less memory, in more time.",
)
flags.DEFINE_enum(
    "jit_compile",
    _DEFAULTS.jit_compile,
    options_lib.JIT_COMPILE,
    "true: compile the step with XLA, which takes seconds to minutes before "
    "the first one. auto: parts of it, on a CPU; none of it on a GPU, since "
    "none has shown yet what it gives. A TPU compiles every step.",
)
flags.DEFINE_integer(
    "eval_batch_size",
    _DEFAULTS.eval_batch_size,
    "Examples per evaluation batch, over all devices.",
    lower_bound=1,
)
flags.DEFINE_float(
    "learning_rate",
    _DEFAULTS.learning_rate,
    "Learning rate at the end of the warmup.",
    lower_bound=0.0,
)
_NUM_TRAIN_STEPS = flags.DEFINE_integer(
    "num_train_steps", 100_000, "Number of the last step.", lower_bound=1
)
_PHASES = flags.DEFINE_string(
    "phases",
    None,
    "length:steps:batch of each phase, comma-separated, e.g. "
    "128:900000:256,512:100000:256; instead of --max_seq_length, "
    "--num_train_steps and --train_batch_size. The learning rate goes over "
    "all of them, and phases of one length and the same records read on.",
)
flags.DEFINE_integer(
    "num_warmup_steps",
    _DEFAULTS.num_warmup_steps,
    "Steps in which the learning rate rises, fewer than there are in all.",
    lower_bound=0,
)
flags.DEFINE_enum(
    "learning_rate_decay",
    _DEFAULTS.learning_rate_decay,
    decays.DECAYS,
    "Form of the learning rate after the warmup.",
)
flags.DEFINE_float(
    "learning_rate_power",
    _DEFAULTS.learning_rate_power,
    "Power of the polynomial decay, e.g. 0.5; 1 is linear.",
)
flags.DEFINE_bool(
    "learning_rate_drop",
    _DEFAULTS.learning_rate_drop,
    "Count the decay from step 0, as google-research/bert does: the rate drops "
    "where the warmup ends. --nolearning_rate_drop counts it from there.",
)
flags.DEFINE_enum(
    "optimizer",
    _DEFAULTS.optimizer,
    options_lib.OPTIMIZERS,
    "bert: Adam with weight decay, as google-research/bert's; lamb: for "
    "batches of thousands.",
)
flags.DEFINE_float(
    "weight_decay", _DEFAULTS.weight_decay, "Weight decay; 0 for none."
)
flags.DEFINE_float(
    "adam_beta_2",
    _DEFAULTS.adam_beta_2,
    "Decay rate of Adam's second moments; 0.98 of RoBERTa's.",
)
flags.DEFINE_float(
    "adam_epsilon",
    _DEFAULTS.adam_epsilon,
    "What Adam adds to the roots of its second moments; 1e-8 of SpanBERT's.",
)
flags.DEFINE_float(
    "clip_norm",
    _DEFAULTS.clip_norm,
    "Largest norm of all gradients together; 0 for no clipping, as RoBERTa.",
)
flags.DEFINE_bool(
    "bias_correction",
    _DEFAULTS.bias_correction,
    "Correct the bias of Adam's moments, as fairseq does for RoBERTa and "
    "SpanBERT. Default: of lamb alone.",
)
flags.DEFINE_float(
    "layerwise_learning_rate_decay",
    _DEFAULTS.layerwise_learning_rate_decay,
    "Share of its learning rate that a layer hands down to the one below: of K "
    "blocks number k, from 0, has it to the power of K - k, the embeddings to "
    "the power of K + 1. For training that goes on from --init_checkpoint.",
)
flags.DEFINE_integer(
    "save_checkpoints_steps",
    _DEFAULTS.save_checkpoints_steps,
    "Steps from one checkpoint to the next; the first comes within a minute.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "keep_checkpoint_max",
    _DEFAULTS.keep_checkpoint_max,
    "Newest checkpoints to keep.",
    lower_bound=1,
)
flags.DEFINE_bool(
    "keep_best",
    _DEFAULTS.keep_best,
    "With --do_train --do_eval: evaluate before each checkpoint too, and keep "
    "the model of the lowest loss in the folder best of --output_dir.",
)
flags.DEFINE_integer(
    "iterations_per_loop",
    _DEFAULTS.iterations_per_loop,
    "Most steps from one line of the log to the next; there is one at least "
    "every 30 seconds.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "max_eval_steps",
    _DEFAULTS.max_eval_steps,
    "Most batches to evaluate.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "skip_nonfinite_steps",
    _DEFAULTS.skip_nonfinite_steps,
    "Pass over a step whose gradient is not finite, so many in a row at most. "
    "Default: stop at the first.",
    lower_bound=0,
)
_PROFILE_STEPS = flags.DEFINE_string(
    "profile_steps",
    None,
    "first:last, e.g. 100:105: profile the steps 100 to 104, for TensorBoard.",
)
flags.DEFINE_float(
    "peak_tflops",
    _DEFAULTS.peak_tflops,
    "What a device can do at most, in 10**12 operations a second, for the "
    "model FLOPs utilisation; of the chips' documentation, in bfloat16: TPU "
    "v2 core 22.5, v3 core 61.5, v4 275, v5e 197, v5p 459, v6e 918.",
    lower_bound=0.0,
)
flags.DEFINE_integer(
    "random_seed",
    _DEFAULTS.random_seed,
    "Seed of the new weights, the order of the examples and the dropout.",
)


def main(argv):
    del argv
    logging.set_verbosity(logging.INFO)
    program.require(input_file=_INPUT_FILE.value, output_dir=_OUTPUT_DIR.value)
    parsed, input_files = _phases()
    options = program.from_flags(
        options_lib.Options,
        phases=parsed,
        input_files=input_files,
        profile_steps=_profile_steps(),
    )
    from bert_tf.checkpoints import starting_point
    from bert_tf.training import pretraining_run

    strategy = training_flags.make_strategy()
    with preemption.exits_when_told():
        start = starting_point.find(
            options.checkpoint(),
            _BERT_CONFIG_FILE.value,
            _VOCAB_FILE.value,
            _DO_LOWER_CASE.value,
            is_trained=options.do_train,
        )
        results = pretraining_run.run(
            options, start, strategy, training_flags.dtype_policy(strategy)
        )
    for name in sorted(results or ()):
        print(f"{name} = {results[name]}")


def _phases():
    """Returns the `Phase`s, and the globs of their records."""
    if _PHASES.value is None:
        phase = options_lib.Phase(
            max_seq_length=_MAX_SEQ_LENGTH.value,
            num_steps=_NUM_TRAIN_STEPS.value,
            train_batch_size=_TRAIN_BATCH_SIZE.value,
        )
        return (phase,), (_INPUT_FILE.value,)
    for holder in (_MAX_SEQ_LENGTH, _NUM_TRAIN_STEPS, _TRAIN_BATCH_SIZE):
        if holder.present:
            raise ValueError(
                f"--{holder.name} must not be given with --phases. Received: "
                f"--{holder.name}={holder.value} --phases={_PHASES.value}."
            )
    parsed = options_lib.parse_phases(_PHASES.value)
    patterns = tuple(_INPUT_FILE.value.split(";"))
    if len(patterns) != len(parsed):
        raise ValueError(
            f"--input_file must name the records of {len(parsed)} phases, "
            "with a semicolon between two phases. Received: "
            f"--input_file={_INPUT_FILE.value}."
        )
    return parsed, patterns


def _profile_steps():
    if _PROFILE_STEPS.value is None:
        return None
    parts = _PROFILE_STEPS.value.split(":")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise ValueError(
            "--profile_steps must be two numbers, first:last. Received: "
            f"--profile_steps={_PROFILE_STEPS.value}."
        )
    return tuple(int(part) for part in parts)


if __name__ == "__main__":
    program.run(main)
