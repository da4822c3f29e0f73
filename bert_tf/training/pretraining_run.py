"""A pre-training run, from its options to its results.

In this order: records, model, evaluation, optimizer and state, weights, loop.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import logging
import os
from collections.abc import Callable
from typing import TypeAlias

import keras
import tensorflow as tf

from bert_tf import features
from bert_tf import files
from bert_tf import manifest
from bert_tf.checkpoints import model_card
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints.starting_point import StartingPoint
from bert_tf.input import pretraining
from bert_tf.input.record_source import RecordSource
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.lamb import LambOptimizer
from bert_tf.optimizers.loss_scale import LossScaleOptimizer
from bert_tf.optimizers.schedule import WarmupDecay
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.training import checkpointing
from bert_tf.training import evaluation
from bert_tf.training import loop
from bert_tf.training import objectives
from bert_tf.training import phases
from bert_tf.training import progress
from bert_tf.training import settings
from bert_tf.training import strategy as strategies
from bert_tf.training.objectives import Pretraining
from bert_tf.training.options import Options

_OPTIMIZERS = {"bert": BertOptimizer, "lamb": LambOptimizer}

_EVAL_RESULTS = "eval_results.txt"
# If one of these settings differs, losses cannot be compared.
_LOSS_SETTINGS = {settings.EVALUATION, "discriminator_weight"}
# The loss of the best model and the settings above at that time. The file is
# beside the training's state.
_BEST = "best.json"
# A key of a manifest's settings.
_TFDS_NAME = "tfds_name"
# Most descriptions of records in a model card.
_MAX_DESCRIPTIONS = 8

_logger = logging.getLogger(__name__)

Maker: TypeAlias = Callable[[Options, StartingPoint, str], Pretraining]


def run(
    options: Options,
    start: StartingPoint,
    strategy: tf.distribute.Strategy,
    policy: str,
    make: Maker = objectives.make,
    teacher_positions: int | None = None,
) -> dict | None:
    """Trains and evaluates, as the options say.

    Args:
        options: The `Options`.
        start: The `StartingPoint` of `options.checkpoint()`.
        strategy: Any strategy.
        policy: The name of the Keras dtype policy.
        make: Makes the `Pretraining`, as `objectives.make` does; called in the
            strategy's scope.
        teacher_positions: The longest sequence that a teacher takes; None
            without a teacher.

    Returns:
        The evaluation's results, {name: float}, on the one host that writes;
        None on others, and without an evaluation.

    Raises:
        ValueError: If the records, the model and the options do not suit
            each other, or the input is damaged.
        preemption.PreemptedError: After SIGTERM or Ctrl-C, when the state has
            been saved.
    """
    keras.utils.set_random_seed(options.random_seed)
    strategies.log_devices(strategy)
    compilation = strategies.choose_compilation(options.jit_compile, strategy)

    # Data.
    if options.attention is not None:
        is_decoder = options.attention == "left_to_right"
        config = dataclasses.replace(start.config, is_decoder=is_decoder)
        start = dataclasses.replace(start, config=config)
    sources, eval_source = _find_records(options, start, teacher_positions)
    num_replicas = strategy.num_replicas_in_sync
    if options.do_eval and options.eval_batch_size % num_replicas:
        # Raised before the training, not after it.
        raise ValueError(
            f"--eval_batch_size must be a multiple of {num_replicas}, the "
            "number of replicas. Received: --eval_batch_size="
            f"{options.eval_batch_size}."
        )

    # Model.
    with strategy.scope():
        pretraining = make(options, start, policy)
    if options.rematerialize:
        pretraining.rematerialize()
    _logger.info(
        "%s parameters, %s, %d replica%s.",
        f"{pretraining.model.count_params():,}",
        policy,
        num_replicas,
        "" if num_replicas == 1 else "s",
    )

    evaluate = evaluation.make_evaluation(
        pretraining.model,
        pretraining.objective,
        eval_source,
        options.eval_batch_size,
        strategy,
        options.max_eval_steps,
    )
    if options.do_train:
        state = _make_state(
            options, start, pretraining, sources, eval_source, strategy
        )
        with state.hold(strategies.is_chief(strategy)):
            _train(
                options,
                start,
                pretraining,
                state,
                sources,
                strategy,
                evaluate,
                compilation,
            )
            card = model_folder.read_card(options.output_dir)
        step = state.step
    else:
        # `Options.checkpoint` ensures this.
        assert start.init_checkpoint is not None
        # If the model is in another folder, only the results are written here.
        is_here = start.init_checkpoint == options.output_dir.rstrip("/")
        card = model_folder.read_card(options.output_dir) if is_here else None
        new_heads = pretraining.load_weights(start.init_checkpoint)
        if new_heads:
            raise ValueError(
                f"{start.init_checkpoint}: has no head {new_heads[0]} to "
                "evaluate. It needs the trained heads of --objective."
            )
        step = checkpointing.trained_steps(start.init_checkpoint)
    if not options.do_eval:
        return None
    results = evaluate() | {"global_step": step}
    if not strategies.is_chief(strategy):
        return None
    _write_results(options, start, options.output_dir, results, card)
    return results


def _write_results(options, start, folder, results, card):
    """Writes the results of an evaluation to their file and the model card."""
    # The card first: once the results file exists, a program that was killed
    # does not write the card when it is run again.
    patterns = options.eval_input_file or options.input_files[-1]
    model_folder.write_results(
        folder,
        card,
        objectives.name_of(start.config),
        ", ".join(map(os.path.basename, patterns.split(","))),
        results,
    )
    evaluation.write_results(os.path.join(folder, _EVAL_RESULTS), results)


def _origin(options, start, state, descriptions, is_resumed):
    """Returns the training's `Origin`, for the model card."""
    since, given = state.settings.of_step(state.step)
    records = state.settings.values.get("records")
    if given.get("records", records) != records:
        # The run had nothing left to train, so it did not use these records.
        descriptions = []
    values = {
        "steps": state.step,
        "optimizer": options.optimizer,
        **given,
        # Settings that resuming changed do not hold for the whole training.
        "from_step": since or None,
        "versions": model_card.versions(),
    }
    # These are only for comparisons; `data` describes the records.
    for name in ("records", settings.EVALUATION):
        values.pop(name, None)
    data: dict[str, dict] = {}
    for number, told in enumerate(descriptions[:_MAX_DESCRIPTIONS], start=1):
        title = f"Records {number}" if data else "Records"
        data[f"{title} from step {since} on" if since else title] = told
    if len(descriptions) > _MAX_DESCRIPTIONS:
        data["Others"] = {"Sets": len(descriptions) - _MAX_DESCRIPTIONS}
    names = [told.get("TensorFlow Datasets") for told in descriptions]
    return model_card.Origin(
        name=objectives.name_of(start.config),
        method="pre-trained",
        start=start.init_checkpoint,
        # The run that began the training may have had another start.
        knows_start=not is_resumed,
        data=data,
        datasets=tuple(filter(None, names)),
        settings=values,
    )


def _describe_records(sources):
    """Returns [{title: value}] of the records, like ones merged into one."""
    seen: set[str] = set()
    found: dict[str, tuple[dict, dict]] = {}
    for source in {id(source): source for source in sources}.values():
        if not source.manifests:
            found[str(id(source))] = {"Files": len(source.paths)}, {}
        for told in source.manifests:
            # If a set is spread over several folders, each folder has a
            # manifest of the whole set.
            identity = repr(dataclasses.replace(told, records={}))
            if identity in seen:
                continue
            seen.add(identity)
            described = _describe(told)
            _, counts = found.setdefault(repr(described), (described, {}))
            for name, count in told.counts.items():
                counts[name] = counts.get(name, 0) + count
    return [
        described
        | {
            name.capitalize(): f"{counts[name]:,}"
            for name in ("examples", "tokens", "documents")
            if name in counts
        }
        for described, counts in found.values()
    ]


def _describe(told):
    """Returns {title: value} of records, from their manifest."""
    settings = told.settings
    masking = [settings.get("masking_mode", "static")]
    if "masked_lm_prob" in settings:
        percent = 100 * settings["masked_lm_prob"]
        masking.append(f"{percent:.4g}% of the tokens")
    masking += ["whole words"] if settings.get("do_whole_word_mask") else []
    masking += ["spans"] if settings.get("do_span_mask") else []
    masking += ["n-grams"] if settings.get("do_ngram_mask") else []
    rule = settings.get(manifest.MASKING_RULE, "bert")
    masking += [f"{rule}'s rule"] if rule != "bert" else []
    return {
        "Objective": settings.get("objective"),
        "Masking": ", ".join(masking),
        "Sequence length": told.max_seq_length,
        "Masked tokens, at most": told.max_predictions_per_seq,
        "Passes over the text": settings.get("dupe_factor"),
        "TensorFlow Datasets": settings.get(_TFDS_NAME),
    }


def _find_records(options, start, teacher_positions):
    """Returns the sources of the phases, and the one to evaluate on."""

    # Phases of the same records share one source, so that the second reads on
    # where the first ended.
    @functools.cache
    def find(max_seq_length, patterns, flag="input_file") -> RecordSource:
        return pretraining.pretraining_records(
            patterns,
            start.config,
            start.tokenizer,
            max_seq_length=max_seq_length,
            max_predictions_per_seq=options.max_predictions_per_seq,
            seed=options.random_seed,
            num_shares=options.input_shares,
            services=tuple(options.tf_data_service),
            draws_replacements=options.replaces_tokens,
            teacher_positions=teacher_positions,
            flag=flag,
        )

    sources = [
        find(phase.max_seq_length, patterns)
        for phase, patterns in zip(options.phases, options.input_files)
    ]
    if options.eval_input_file is None:
        return sources, sources[-1]
    return sources, find(
        options.phases[-1].max_seq_length,
        options.eval_input_file,
        "eval_input_file",
    )


def _make_state(options, start, pretraining, sources, eval_source, strategy):
    if options.num_warmup_steps > options.num_train_steps:
        _logger.warning(
            "The warmup, of %d steps, is longer than the training, of %d: the "
            "learning rate never reaches --learning_rate.",
            options.num_warmup_steps,
            options.num_train_steps,
        )
    vocabulary = start.tokenizer.vocabulary.to_text()
    description = {
        **start.config.to_dict(),
        "vocab_sha256": manifest.text_sha256(vocabulary),
        **pretraining.description,
    }
    tokenizer = tokenizer_files.describe(start.tokenizer)
    if tokenizer is not None:
        description[checkpointing.TOKENIZER] = tokenizer
    if options.optimizer != "bert":
        # Only this entry tells them apart: their slots have the same names and
        # shapes.
        description["optimizer"] = options.optimizer
    model = pretraining.model
    with strategy.scope():
        return checkpointing.TrainingState(
            model,
            _make_optimizer(options, model.compute_dtype),
            options.output_dir,
            description,
            options.keep_checkpoint_max,
            _run_settings(options, pretraining, sources, eval_source, strategy),
        )


def _make_optimizer(options, compute_dtype):
    arguments = {}
    if options.bias_correction is not None:
        arguments["bias_correction"] = options.bias_correction
    optimizer = _OPTIMIZERS[options.optimizer](
        WarmupDecay(
            options.learning_rate,
            options.num_train_steps,
            options.num_warmup_steps,
            decay=options.learning_rate_decay,
            power=options.learning_rate_power,
            drop=options.learning_rate_drop,
        ),
        weight_decay=options.weight_decay,
        beta_2=options.adam_beta_2,
        epsilon=options.adam_epsilon,
        global_clipnorm=options.clip_norm or None,
        skip_nonfinite=options.skip_nonfinite_steps > 0,
        layerwise_decay=options.layerwise_learning_rate_decay,
        **arguments,
    )
    if compute_dtype == "float16":
        return LossScaleOptimizer(optimizer)
    return optimizer


def _run_settings(options, pretraining, sources, eval_source, strategy):
    """Returns the settings that determine the weights but may change.

    These do not include the number of devices, or what only saves memory. They
    include the evaluation's records if those decide which model is the best.
    """
    of_best = {}
    if options.keep_best:
        of_best[settings.EVALUATION] = (
            f"{_identity(eval_source)}, {options.max_eval_steps} batches of "
            f"{options.eval_batch_size}"
        )
    return {
        "records": [_identity(source) for source in sources],
        **of_best,
        "train_batch_size": [
            phase.train_batch_size for phase in options.phases
        ],
        "phase_ends": list(
            itertools.accumulate(
                phase.num_steps for phase in options.phases[:-1]
            )
        ),
        "num_train_steps": options.num_train_steps,
        "input_shares": options.input_shares or strategies.num_hosts(strategy),
        "mixed_precision": pretraining.model.dtype_policy.name,
        **pretraining.settings,
        **strategies.arithmetic(strategy),
        **{
            name: getattr(options, name)
            for name in (
                "learning_rate",
                "num_warmup_steps",
                "learning_rate_decay",
                "learning_rate_power",
                "learning_rate_drop",
                "weight_decay",
                "adam_beta_2",
                "adam_epsilon",
                "clip_norm",
                "bias_correction",
                "layerwise_learning_rate_decay",
                "random_seed",
            )
        },
    }


def _identity(source):
    return f"{len(source.paths)} files ({source.digest[:8]})"


def _train(
    options,
    start,
    pretraining,
    state,
    sources,
    strategy,
    evaluate,
    compilation,
):
    """Trains from the state's last checkpoint, if any."""
    is_resumed = _begin(start, pretraining, state)
    if options.keep_best:
        # Raises now if a file is damaged, not at the first checkpoint.
        _best_loss(options, state)
    if strategies.is_chief(strategy):
        progress.tell_curves(state.folder)

    descriptions = _describe_records(sources)

    def save_model(folder=options.output_dir):
        origin = _origin(options, start, state, descriptions, is_resumed)
        pretraining.save(folder, start, origin)

    def keep_best():
        _keep_best(options, start, state, evaluate(), strategy, save_model)

    phases.train(
        state,
        pretraining.objective,
        options.phases,
        [
            _config(options, pretraining, source, compilation)
            for source in sources
        ],
        sources,
        strategy,
        on_save=save_model,
        before_save=keep_best if options.keep_best else None,
    )
    _logger.info("The model is in %s.", options.output_dir)


def _begin(start, pretraining, state):
    """Gives the model its first weights; returns whether the run is resumed."""
    # The order matters: a run that began with --init_checkpoint resumes from
    # its own last checkpoint.
    if state.restore():
        _logger.info("Resuming from step %d.", state.step)
        if start.init_checkpoint is not None:
            # It may not be the one that the run began with.
            _logger.info(
                "The weights of --init_checkpoint=%s are not read: the run "
                "has its own.",
                start.init_checkpoint,
            )
        state.tell_changes()
        return True
    if start.init_checkpoint is not None:
        pretraining.load_weights(start.init_checkpoint)
    elif pretraining.begin is not None:
        pretraining.begin()
    else:
        _logger.info("Beginning with new weights.")
    return False


def _keep_best(options, start, state, results, strategy, save_model: Callable):
    """Keeps the model if its loss is below the best so far."""
    text = (f"{name} {value:.4g}" for name, value in results.items())
    _logger.info("Evaluated: step %d  %s", state.step, "  ".join(text))
    report = {f"eval/{name}": value for name, value in results.items()}
    progress.write_summaries(report | {"step": state.step})
    if not strategies.is_chief(strategy):
        return
    best = _best_folder(options)
    loss = _best_loss(options, state)
    if loss is not None and not results["loss"] < loss:
        return
    if loss is None:
        # If the program is killed below, the next run will not take the new
        # model for that of the old loss.
        _tell_best(options, None, state)
    save_model(best)
    results = results | {"global_step": state.step}
    card = model_folder.read_card(best)
    _write_results(options, start, best, results, card)
    kept = evaluation.read_results(f"{best}/{_EVAL_RESULTS}")
    _tell_best(options, kept["loss"], state)
    _logger.info("The best so far; kept in %s.", best)


def _tell_best(options, loss, state):
    """Writes the best loss (None while there is none) and its settings."""
    told = {"loss": loss, "settings": _loss_settings(state)}
    files.write_text(_best_path(options), json.dumps(told, indent=2) + "\n")


def _best_loss(options, state):
    """Returns the best loss so far, if it can be compared with new ones.

    The run may have been resumed and stopped with other settings since.

    Raises:
        ValueError: If a file that describes the best model is damaged.
    """
    results = f"{_best_folder(options)}/{_EVAL_RESULTS}"
    if not files.exists(results):
        return None
    path = _best_path(options)
    if files.exists(path):
        now = _loss_settings(state)
        # The loss is not taken from the results: a later evaluation of the
        # model may have replaced them, with other records. A setting that only
        # one side has comes from another release and is ignored.
        with _damage_named(path):
            told = files.read_json(path)
            loss = told["loss"]
            if loss is not None:
                loss = float(loss)
            is_comparable = all(
                told["settings"][name] == now[name]
                for name in told["settings"].keys() & now.keys()
            )
    else:
        with _damage_named(results):
            loss = evaluation.read_results(results)["loss"]
        # From an older release. Until the first checkpoint of a resumed run,
        # `changes` gives the changes since then.
        is_comparable = not _LOSS_SETTINGS & state.settings.changes().keys()
    return loss if is_comparable else None


@contextlib.contextmanager
def _damage_named(path):
    """Turns errors about the contents of a file into a `ValueError`."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: not the description of a training's best model. Remove "
            "it to resume without."
        ) from error


def _loss_settings(state):
    values = state.settings.values
    return {
        name: values[name] for name in sorted(_LOSS_SETTINGS & values.keys())
    }


def _best_folder(options):
    return os.path.join(options.output_dir, checkpointing.BEST_FOLDER)


def _best_path(options):
    return os.path.join(options.output_dir, checkpointing.FOLDER, _BEST)


def _config(options, pretraining, source, compilation):
    flops_per_example = None
    if pretraining.flops_per_example is not None:
        shapes = source.shapes
        flops_per_example = pretraining.flops_per_example(
            shapes[features.INPUT_IDS][0],
            shapes[features.MASKED_LM_POSITIONS][0],
        )
    return loop.TrainingConfig(
        num_train_steps=options.num_train_steps,
        save_checkpoints_steps=options.save_checkpoints_steps,
        iterations_per_loop=options.iterations_per_loop,
        gradient_accumulation_steps=options.gradient_accumulation_steps,
        skip_nonfinite_steps=options.skip_nonfinite_steps,
        profile_steps=options.profile_steps,
        flops_per_example=flops_per_example,
        peak_flops=options.peak_tflops and options.peak_tflops * 1e12,
        seed=options.random_seed,
        compilation=compilation,
    )
