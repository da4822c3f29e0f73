r"""Pre-trains BERT on masked-token and next-sentence prediction.

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

Run again with the same flags, it goes on from its last checkpoint. Told to stop
(SIGTERM), it saves and exits with code 75. The weights are, in this order: the
last checkpoint's in --output_dir, --init_checkpoint's, new ones.

Where --init_checkpoint is a model folder, or the folder of a release, its own
configuration and vocabulary are taken, and training goes on with other text:

    python -m bert_tf.run_pretraining --init_checkpoint=uncased_L-12_H-768 \
        --input_file='/data/law.tfrecord*' --output_dir=/runs/law --do_train
"""

import dataclasses
import functools
import itertools
import os
import sys

import keras
from absl import flags
from absl import logging

from bert_tf import checkpoints
from bert_tf import features
from bert_tf import files
from bert_tf import manifest
from bert_tf import program
from bert_tf import training_flags
from bert_tf.checkpoints import model_folder
from bert_tf.input import data_service
from bert_tf.input import pretraining
from bert_tf.models import objectives
from bert_tf.models import pretrainer
from bert_tf.optimizers import schedule
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.lamb import LambOptimizer
from bert_tf.optimizers.loss_scale import LossScaleOptimizer
from bert_tf.tasks import fine_tuning
from bert_tf.tasks import starting_point
from bert_tf.text.vocabulary import check_case
from bert_tf.training import checkpointing
from bert_tf.training import evaluation
from bert_tf.training import health
from bert_tf.training import loop
from bert_tf.training import phases
from bert_tf.training import preemption
from bert_tf.training import progress
from bert_tf.training import settings
from bert_tf.training import strategy as strategies

_OPTIMIZERS = {"bert": BertOptimizer, "lamb": LambOptimizer}

_INPUT_FILE = flags.DEFINE_string(
    "input_file",
    None,
    "Record files: globs, comma-separated. With --phases those of each phase, "
    "with a semicolon between two phases.",
)
_EVAL_INPUT_FILE = flags.DEFINE_string(
    "eval_input_file",
    None,
    "Record files to evaluate on, as --input_file. Default: the same, with "
    "--phases the last one's.",
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder of the model, its training and its results."
)
_BERT_CONFIG_FILE = flags.DEFINE_string(
    "bert_config_file",
    None,
    "JSON of the architecture. Default: the checkpoint's own.",
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
_INIT_CHECKPOINT = flags.DEFINE_string(
    "init_checkpoint",
    None,
    "Where to begin: a model folder (of bert_tf or Hugging Face) or a release "
    "of Google's. Default: new weights.",
)
_ATTENTION = flags.DEFINE_enum(
    "attention",
    None,
    ["bidirectional", "left_to_right"],
    "left_to_right: a token sees only itself and those before it, and every "
    "next token is predicted in place of the masked ones and the next sentence "
    "(the paper's LTR ablation, section 5.1), from records of any kind; so "
    "many predictions take more memory. The log's masked_lm_loss is then of "
    "the next tokens, and the model folder says is_decoder. Default: as the "
    "configuration says, or bidirectional.",
)
_INPUT_SHARES = flags.DEFINE_integer(
    "input_shares",
    None,
    "Parts of a batch, each with its own share of the records, so that a host "
    "reads its own alone. The same number gives the same batches on one host "
    "and on several. 1: each host reads all. Default: the number of hosts.",
    lower_bound=1,
)
_TF_DATA_SERVICE = flags.DEFINE_list(
    "tf_data_service",
    [],
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
_MAX_PREDICTIONS_PER_SEQ = flags.DEFINE_integer(
    "max_predictions_per_seq",
    None,
    "Most masked tokens of a record. Default: what the records' manifest "
    "tells, or 20.",
    lower_bound=1,
)
_DO_TRAIN = flags.DEFINE_bool("do_train", False, "Whether to train.")
_DO_EVAL = flags.DEFINE_bool(
    "do_eval", False, "Whether to evaluate, after any training."
)
_TRAIN_BATCH_SIZE = flags.DEFINE_integer(
    "train_batch_size", 32, "Examples a step, over all devices.", lower_bound=1
)
_GRADIENT_ACCUMULATION_STEPS = flags.DEFINE_integer(
    "gradient_accumulation_steps",
    1,
    "Parts in which a device goes through its share of the batch: the memory "
    "of one part, and one step of the optimizer.",
    lower_bound=1,
)
_REMATERIALIZE = flags.DEFINE_bool(
    "rematerialize",
    False,
    "Compute the blocks a second time for the gradient instead of keeping "
    "their activations: long sequences in less memory, in more time.",
)
_EVAL_BATCH_SIZE = flags.DEFINE_integer(
    "eval_batch_size", 8, "The same for --do_eval.", lower_bound=1
)
_LEARNING_RATE = flags.DEFINE_float(
    "learning_rate", 5e-5, "Learning rate at the end of the warmup."
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
_NUM_WARMUP_STEPS = flags.DEFINE_integer(
    "num_warmup_steps",
    10_000,
    "Steps in which the learning rate rises.",
    lower_bound=0,
)
_LEARNING_RATE_DECAY = flags.DEFINE_enum(
    "learning_rate_decay",
    "linear",
    schedule.DECAYS,
    "Form of the learning rate after the warmup.",
)
_LEARNING_RATE_POWER = flags.DEFINE_float(
    "learning_rate_power",
    None,
    "Power of the polynomial decay, e.g. 0.5; 1 is linear.",
)
_LEARNING_RATE_DROP = flags.DEFINE_bool(
    "learning_rate_drop",
    True,
    "Count the decay from step 0, as google-research/bert does: the rate drops "
    "where the warmup ends. --nolearning_rate_drop counts it from there.",
)
_OPTIMIZER = flags.DEFINE_enum(
    "optimizer",
    "bert",
    sorted(_OPTIMIZERS),
    "bert: Adam with weight decay, as google-research/bert's; lamb: for "
    "batches of thousands.",
)
_LAYERWISE_LEARNING_RATE_DECAY = flags.DEFINE_float(
    "layerwise_learning_rate_decay",
    1.0,
    "Share of its learning rate that a layer hands down to the one below: of K "
    "blocks number k, from 0, has it to the power of K - k, the embeddings to "
    "the power of K + 1. For training that goes on from --init_checkpoint.",
)
_SAVE_CHECKPOINTS_STEPS = flags.DEFINE_integer(
    "save_checkpoints_steps",
    1000,
    "Steps from one checkpoint to the next.",
    lower_bound=1,
)
_KEEP_CHECKPOINT_MAX = flags.DEFINE_integer(
    "keep_checkpoint_max", 5, "Newest checkpoints to keep.", lower_bound=1
)
_KEEP_BEST = flags.DEFINE_bool(
    "keep_best",
    False,
    "With --do_train --do_eval: evaluate before each checkpoint too, and keep "
    "the model of the lowest loss in the folder best of --output_dir.",
)
_ITERATIONS_PER_LOOP = flags.DEFINE_integer(
    "iterations_per_loop",
    1000,
    "Steps from one line of the log to the next.",
    lower_bound=1,
)
_MAX_EVAL_STEPS = flags.DEFINE_integer(
    "max_eval_steps", 100, "Most batches to evaluate.", lower_bound=1
)
_SKIP_NONFINITE_STEPS = flags.DEFINE_integer(
    "skip_nonfinite_steps",
    0,
    "Pass over a step whose gradient is not finite, so many in a row at most. "
    "Default: stop at the first.",
    lower_bound=0,
)
_PROFILE_STEPS = flags.DEFINE_string(
    "profile_steps",
    None,
    "first:last, e.g. 100:105: profile the steps 100 to 104, for TensorBoard.",
)
_PEAK_TFLOPS = flags.DEFINE_float(
    "peak_tflops",
    None,
    "What a device can do at most, in 10**12 operations a second, for the "
    "model FLOPs utilisation; of the chips' documentation, in bfloat16: TPU "
    "v2 core 22.5, v3 core 61.5, v4 275, v5e 197, v5p 459, v6e 918.",
    lower_bound=0.0,
)
_RANDOM_SEED = flags.DEFINE_integer(
    "random_seed",
    12345,
    "Seed of the new weights, the order of the examples and the dropout.",
)

_EVAL_RESULTS = "eval_results.txt"


def main(argv):
    del argv
    logging.set_verbosity(logging.INFO)
    _check_flags()

    # Devices.
    strategy = training_flags.make_strategy()
    policy = training_flags.dtype_policy(strategy)
    keras.utils.set_random_seed(_RANDOM_SEED.value)

    # Data.
    start = starting_point.find(
        _INIT_CHECKPOINT.value if _DO_TRAIN.value else _trained_model(),
        _BERT_CONFIG_FILE.value,
        _VOCAB_FILE.value,
        _DO_LOWER_CASE.value,
    )
    check_case(start.vocabulary, start.do_lower_case)
    if _ATTENTION.value is not None:
        is_decoder = _ATTENTION.value == "left_to_right"
        config = dataclasses.replace(start.config, is_decoder=is_decoder)
        start = dataclasses.replace(start, config=config)
    # Phases of the same records are of one source, and so read on.
    find_records = functools.cache(functools.partial(_records, start))
    sources = [
        find_records(phase.max_seq_length, patterns)
        for phase, patterns in _phases()
    ]
    eval_source = sources[-1]
    if _EVAL_INPUT_FILE.value is not None:
        eval_source = _records(
            start,
            _phases()[-1][0].max_seq_length,
            _EVAL_INPUT_FILE.value,
            "eval_input_file",
        )

    # Model.
    with strategy.scope():
        model = pretrainer.BertPretrainer(start.config, dtype=policy)
    model.encoder.rematerialize = _REMATERIALIZE.value
    logging.info(
        "%s parameters, %s, %d replicas.",
        f"{model.count_params():,}",
        policy,
        strategy.num_replicas_in_sync,
    )

    evaluate = evaluation.make_evaluation(
        model,
        objectives.PRETRAINING,
        eval_source,
        _EVAL_BATCH_SIZE.value,
        strategy,
        _MAX_EVAL_STEPS.value,
    )
    if _DO_TRAIN.value:
        step = _train(model, start, sources, strategy, evaluate)
    else:
        checkpoints.load_weights(start.init_checkpoint, model)
        step = fine_tuning.trained_steps(start.init_checkpoint)
    if _DO_EVAL.value:
        results = evaluate() | {"global_step": step}
        if strategies.is_chief(strategy):
            fine_tuning.write_results(_output(_EVAL_RESULTS), results)
            for name in sorted(results):
                print(f"{name} = {results[name]}")


def _check_flags():
    program.require(input_file=_INPUT_FILE.value, output_dir=_OUTPUT_DIR.value)
    if not _DO_TRAIN.value and not _DO_EVAL.value:
        raise ValueError(
            "At least one of --do_train and --do_eval must be given."
        )
    if _KEEP_BEST.value and not (_DO_TRAIN.value and _DO_EVAL.value):
        raise ValueError("--keep_best needs --do_train and --do_eval.")
    if _DO_TRAIN.value and _holds_model() and not _holds_training():
        raise ValueError(
            f"--output_dir={_OUTPUT_DIR.value} holds a model that was not "
            "trained there. Choose another output directory, and give the "
            "model as --init_checkpoint to begin with it."
        )
    data_service.check_addresses(_TF_DATA_SERVICE.value)
    _phases()
    _schedule()
    _profile_steps()


def _records(start, max_seq_length, patterns, flag="input_file"):
    return pretraining.pretraining_records(
        patterns,
        start.config,
        start.vocabulary,
        do_lower_case=start.do_lower_case,
        max_seq_length=max_seq_length,
        max_predictions_per_seq=_MAX_PREDICTIONS_PER_SEQ.value,
        seed=_RANDOM_SEED.value,
        num_shares=_INPUT_SHARES.value,
        services=tuple(_TF_DATA_SERVICE.value),
        flag=flag,
    )


def _train(model, start, sources, strategy, evaluate):
    """Trains from the last checkpoint, if any; returns the step."""
    num_train_steps = _num_train_steps()
    if _NUM_WARMUP_STEPS.value > num_train_steps:
        logging.warning(
            "The warmup, of %d steps, is longer than the training, of %d: the "
            "learning rate never reaches --learning_rate.",
            _NUM_WARMUP_STEPS.value,
            num_train_steps,
        )
    description = {
        **start.config.to_dict(),
        "vocab_sha256": manifest.text_sha256(start.vocabulary.to_text()),
    }
    if _OPTIMIZER.value != "bert":
        # Its slots have the same names and shapes.
        description["optimizer"] = _OPTIMIZER.value
    with strategy.scope():
        optimizer = _OPTIMIZERS[_OPTIMIZER.value](
            _schedule(), layerwise_decay=_LAYERWISE_LEARNING_RATE_DECAY.value
        )
        if model.compute_dtype == "float16":
            optimizer = LossScaleOptimizer(optimizer)
        state = checkpointing.TrainingState(
            model,
            optimizer,
            _OUTPUT_DIR.value,
            description,
            _KEEP_CHECKPOINT_MAX.value,
            _run_settings(sources, model.dtype_policy.name, strategy),
        )
    with state.hold(strategies.is_chief(strategy)):
        return _go_on(state, start, sources, strategy, evaluate)


def _run_settings(sources, policy, strategy):
    """Returns what the weights are a function of, and may change on resuming.

    Not the number of devices, nor what only saves memory.
    """
    parts = [phase for phase, _ in _phases()]
    flag_holders = (
        _LEARNING_RATE,
        _NUM_WARMUP_STEPS,
        _LEARNING_RATE_DECAY,
        _LEARNING_RATE_POWER,
        _LEARNING_RATE_DROP,
        _LAYERWISE_LEARNING_RATE_DECAY,
        _RANDOM_SEED,
    )
    return {
        "records": [
            f"{len(source.paths)} files ({source.digest[:8]})"
            for source in sources
        ],
        "train_batch_size": [part.train_batch_size for part in parts],
        "phase_ends": list(
            itertools.accumulate(part.num_steps for part in parts[:-1])
        ),
        "num_train_steps": _num_train_steps(),
        "input_shares": _INPUT_SHARES.value or strategies.num_hosts(strategy),
        "mixed_precision": policy,
        **{holder.name: holder.value for holder in flag_holders},
    }


def _phases():
    """Returns a list of (`Phase`, globs of its records)."""
    if _PHASES.value is None:
        phase = phases.Phase(
            max_seq_length=_MAX_SEQ_LENGTH.value,
            num_steps=_NUM_TRAIN_STEPS.value,
            train_batch_size=_TRAIN_BATCH_SIZE.value,
        )
        return [(phase, _INPUT_FILE.value)]
    for holder in (_MAX_SEQ_LENGTH, _NUM_TRAIN_STEPS, _TRAIN_BATCH_SIZE):
        if holder.present:
            raise ValueError(
                f"--{holder.name} must not be given with --phases. Received: "
                f"--{holder.name}={holder.value} --phases={_PHASES.value}."
            )
    parsed = phases.parse_phases(_PHASES.value)
    patterns = _INPUT_FILE.value.split(";")
    if len(patterns) != len(parsed):
        raise ValueError(
            f"--input_file must name the records of {len(parsed)} phases, "
            "with a semicolon between two phases. Received: "
            f"--input_file={_INPUT_FILE.value}."
        )
    return list(zip(parsed, patterns))


def _num_train_steps():
    return sum(phase.num_steps for phase, _ in _phases())


def _schedule():
    return schedule.make_schedule(
        _LEARNING_RATE_DECAY.value,
        _LEARNING_RATE.value,
        _num_train_steps(),
        _NUM_WARMUP_STEPS.value,
        power=_LEARNING_RATE_POWER.value,
        drop=_LEARNING_RATE_DROP.value,
    )


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


def _go_on(state, start, sources, strategy, evaluate):
    """Trains from the state's last checkpoint, if any; returns the step."""
    model = state.model
    # The order matters: a run that began from --init_checkpoint goes on from
    # its own last checkpoint.
    if state.restore():
        logging.info("Going on from step %d.", state.step)
        changes = state.settings.changes()
        if changes:
            is_meant = settings.is_longer_only(changes)
            (logging.info if is_meant else logging.warning)(
                "%s", settings.describe(changes, state.step, state.example)
            )
    elif start.init_checkpoint is not None:
        checkpoints.load_weights(start.init_checkpoint, model)
    else:
        logging.info("Beginning with new weights.")

    def save_model(folder=_OUTPUT_DIR.value):
        checkpoints.save(
            folder,
            model,
            start.vocabulary,
            start.do_lower_case,
            start.config.max_position_embeddings,
        )

    def keep_best():
        results = evaluate()
        text = (f"{name} {value:.4g}" for name, value in results.items())
        logging.info("Evaluated: step %d  %s", state.step, "  ".join(text))
        report = {f"eval/{name}": value for name, value in results.items()}
        progress.write_summaries(report | {"step": state.step})
        if strategies.is_chief(strategy) and _is_best(results):
            best = _output(checkpointing.BEST_FOLDER)
            save_model(best)
            fine_tuning.write_results(
                f"{best}/{_EVAL_RESULTS}",
                results | {"global_step": state.step},
            )
            logging.info("The best so far; kept in %s.", best)

    try:
        phases.train(
            state,
            objectives.PRETRAINING,
            [phase for phase, _ in _phases()],
            [_config(start.config, records) for records in sources],
            sources,
            strategy,
            on_save=save_model,
            before_save=keep_best if _KEEP_BEST.value else None,
        )
    except preemption.PreemptedError as stop:
        logging.info("%s", stop)
        sys.exit(preemption.PREEMPTED_EXIT_CODE)
    logging.info("The model is in %s.", _OUTPUT_DIR.value)
    return state.step


def _config(bert_config, records):
    shapes = records.evaluation_batches(1).element_spec
    return loop.TrainingConfig(
        num_train_steps=_num_train_steps(),
        save_checkpoints_steps=_SAVE_CHECKPOINTS_STEPS.value,
        iterations_per_loop=_ITERATIONS_PER_LOOP.value,
        gradient_accumulation_steps=_GRADIENT_ACCUMULATION_STEPS.value,
        skip_nonfinite_steps=_SKIP_NONFINITE_STEPS.value,
        profile_steps=_profile_steps(),
        flops_per_example=health.flops_per_example(
            bert_config,
            shapes[features.INPUT_IDS].shape[1],
            shapes[features.MASKED_LM_POSITIONS].shape[1],
        ),
        peak_flops=_PEAK_TFLOPS.value and _PEAK_TFLOPS.value * 1e12,
        seed=_RANDOM_SEED.value,
    )


def _is_best(results):
    """Returns whether the loss is below that of the best model so far."""
    path = _output(f"{checkpointing.BEST_FOLDER}/{_EVAL_RESULTS}")
    if not files.exists(path):
        return True
    lines = files.read_text(path).splitlines()
    best = dict(line.split(" = ") for line in lines)
    return results["loss"] < float(best["loss"])


def _trained_model():
    """Returns the folder of the model to evaluate."""
    if _holds_model():
        return _OUTPUT_DIR.value
    if _INIT_CHECKPOINT.value is None:
        raise ValueError(
            "Without --do_train there must be a model in --output_dir or "
            f"--init_checkpoint. Received: --output_dir={_OUTPUT_DIR.value}."
        )
    return _INIT_CHECKPOINT.value


def _holds_model():
    return files.exists(_output(model_folder.CONFIG_FILE))


def _holds_training():
    return files.exists(_output(checkpointing.FOLDER))


def _output(name):
    return os.path.join(_OUTPUT_DIR.value, name)


if __name__ == "__main__":
    program.run(main)
