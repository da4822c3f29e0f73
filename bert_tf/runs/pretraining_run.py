"""A pre-training run, from its options to its results.

In this order: records, model, evaluation, optimizer and state, weights, loop.
"""

import dataclasses
import functools
import itertools
import logging
import os
from collections.abc import Callable
from typing import TypeAlias

import keras
import tensorflow as tf

from bert_tf import features
from bert_tf import files
from bert_tf import manifest as manifest_lib
from bert_tf import messages
from bert_tf.checkpoints import model_card
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import reader
from bert_tf.checkpoints.starting_point import StartingPoint
from bert_tf.input import pretraining
from bert_tf.input.record_source import RecordSource
from bert_tf.runs import objectives
from bert_tf.runs import optimizer
from bert_tf.runs import phases
from bert_tf.runs.best_model import BestModel
from bert_tf.runs.objectives import Pretraining
from bert_tf.runs.options import PretrainingOptions
from bert_tf.runs.options import attention_masks
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.training import checkpointing
from bert_tf.training import devices
from bert_tf.training import evaluation
from bert_tf.training import health
from bert_tf.training import loop
from bert_tf.training import progress
from bert_tf.training import settings
from bert_tf.training import strategy as strategies

_logger = logging.getLogger(__name__)

# A key of a manifest's settings.
_TFDS_NAME = "tfds_name"


Maker: TypeAlias = Callable[
    [PretrainingOptions, StartingPoint, str], Pretraining
]


def run(
    options: PretrainingOptions,
    start: StartingPoint,
    strategy: tf.distribute.Strategy,
    policy: str,
    make: Maker = objectives.make,
    teacher_positions: int | None = None,
) -> dict | None:
    """Trains and evaluates, as the options say.

    Args:
        options: The `PretrainingOptions`.
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
    options.check_places()
    # Raises at once, not at the first step.
    strategies.compiles_step(options.loop.jit_compile, strategy)
    keras.utils.set_random_seed(options.loop.random_seed)
    devices.log(strategy)
    start = _with_attention(start, options.objective.attention)
    sources, eval_source = _find_records(options, start, teacher_positions)
    _check_eval_batch_size(options, strategy)
    dataset = _name_dataset(options, start, sources, eval_source)
    pretraining = _make_model(options, start, strategy, policy, make)
    evaluate = evaluation.make_evaluation(
        pretraining.model,
        pretraining.objective,
        eval_source,
        options.input.eval_batch_size,
        strategy,
        options.input.max_eval_steps,
    )
    if options.do_train:
        state = _make_state(
            options, start, pretraining, sources, eval_source, strategy
        )
        training = _Training(
            options, start, pretraining, sources, state, strategy, dataset
        )
        with state.hold(strategies.is_chief(strategy)):
            training.run(evaluate)
            card = model_folder.read_card(options.output_dir)
        step = state.step
    else:
        card, step = _load_trained(options, start, pretraining, eval_source)
    if not options.do_eval:
        return None
    results = evaluate() | {"global_step": step}
    if not strategies.is_chief(strategy):
        return None
    _write_results(start, options.output_dir, results, card, dataset)
    return results


def _with_attention(start, attention):
    """Returns the `StartingPoint` with the wanted attention, if one is."""
    if attention is None:
        return start
    is_decoder = attention == "left_to_right"
    config = dataclasses.replace(start.config, is_decoder=is_decoder)
    return dataclasses.replace(start, config=config)


def _find_records(options, start, teacher_positions):
    """Returns the sources of the phases, and the one to evaluate on."""

    inputs = options.input

    # Phases of the same records share one source, so that the second reads on
    # where the first ended.
    @functools.cache
    def find(max_seq_length, patterns, flag="input_file") -> RecordSource:
        return pretraining.pretraining_records(
            patterns,
            start.config,
            start.tokenizer,
            max_seq_length=max_seq_length,
            max_predictions_per_seq=inputs.max_predictions_per_seq,
            seed=options.loop.random_seed,
            services=tuple(inputs.tf_data_service),
            draws_replacements=options.objective.replaces_tokens,
            teacher_positions=teacher_positions,
            flag=flag,
        )

    sources = [
        find(phase.max_seq_length, phase.input_file)
        for phase in inputs.training_phases
    ]
    if inputs.eval_file is None:
        return sources, sources[-1]
    return sources, find(
        inputs.training_phases[-1].max_seq_length,
        inputs.eval_file,
        "eval_file",
    )


def _name_dataset(options, start, sources, eval_source):
    """Returns in words what is evaluated on; warns if the model has seen it."""
    last = options.input.training_phases[-1]
    patterns = options.input.eval_file or last.input_file
    name = ", ".join(map(os.path.basename, patterns.split(",")))
    if not options.do_eval:
        return name
    if options.do_train:
        read = {path for source in sources for path in source.paths}
        is_seen = not read.isdisjoint(eval_source.paths)
    else:
        folder = f"{start.init_checkpoint}/{checkpointing.FOLDER}"
        is_seen = _identity(eval_source) in settings.records_of(folder)
    if not is_seen:
        return name
    _logger.warning(
        "The evaluation is on records of the training: its results do not "
        "hold for new text. --eval_file names other records."
    )
    return f"{name}, which the model was trained on"


def _check_eval_batch_size(options, strategy):
    """Raises `ValueError` before the training, not after it."""
    num_replicas = strategy.num_replicas_in_sync
    batch_size = options.input.eval_batch_size
    if options.do_eval and batch_size % num_replicas:
        raise ValueError(
            f"--eval_batch_size must be a multiple of {num_replicas}, the "
            f"number of replicas. Received: --eval_batch_size={batch_size}."
        )


def _make_model(options, start, strategy, policy, make):
    """Returns the `Pretraining`, made in the strategy's scope."""
    with strategy.scope():
        pretraining = make(options, start, policy)
    _logger.info(
        "%s parameters, %s, %s.",
        f"{pretraining.model.count_params():,}",
        policy,
        messages.counted(strategy.num_replicas_in_sync, "replica", "replicas"),
    )
    return pretraining


def _load_trained(options, start, pretraining, eval_source):
    """Loads a model that is only evaluated; returns its card and its step."""
    # `PretrainingOptions.checkpoint` ensures this.
    assert start.init_checkpoint is not None
    # If the model is in another folder, only the results are written here.
    is_here = start.init_checkpoint == options.output_dir.rstrip("/")
    card = model_folder.read_card(options.output_dir) if is_here else None
    new_heads = pretraining.load_weights(start.init_checkpoint)
    # That head is evaluated on records with labels for it alone.
    if features.NEXT_SENTENCE_LABELS not in eval_source.spec:
        new_heads = [each for each in new_heads if each != parts.NEXT_SENTENCE]
    if new_heads:
        raise ValueError(
            f"{start.init_checkpoint}: has no head {new_heads[0]} to "
            "evaluate. It needs the trained heads of --objective."
        )
    return card, checkpointing.trained_steps(start.init_checkpoint)


def _make_state(options, start, pretraining, sources, eval_source, strategy):
    vocabulary = start.tokenizer.vocabulary.to_text()
    description = {
        **start.config.to_dict(),
        "vocab_sha256": manifest_lib.text_sha256(vocabulary),
        **pretraining.description,
    }
    tokenizer = tokenizer_files.describe(start.tokenizer)
    if tokenizer is not None:
        description[checkpointing.TOKENIZER] = tokenizer
    if options.optimizer.optimizer != "bert":
        # Only this entry tells them apart: their slots have the same names and
        # shapes.
        description["optimizer"] = options.optimizer.optimizer
    model = pretraining.model
    with strategy.scope():
        return checkpointing.TrainingState(
            model,
            optimizer.make(
                options.optimizer,
                options.input.num_steps,
                model.compute_dtype,
                options.loop.skip_nonfinite_steps > 0,
            ),
            options.output_dir,
            description,
            settings=_run_settings(
                options, start, pretraining, sources, eval_source, strategy
            ),
        )


def _run_settings(options, start, pretraining, sources, eval_source, strategy):
    """Returns the settings that determine the weights but may change.

    These do not include the number of devices, or what only saves memory. They
    include the evaluation's records if those decide which model is the best.
    """
    inputs, planned = options.input, options.input.training_phases
    of_best = {}
    if options.keep_best:
        of_best[settings.EVALUATION] = (
            f"{_identity(eval_source)}, {inputs.max_eval_steps} batches of "
            f"{inputs.eval_batch_size}"
        )
    ends = list(itertools.accumulate(phase.num_steps for phase in planned))
    dropout = start.config.attention_probs_dropout_prob
    return {
        "records": [_identity(source) for source in sources],
        **of_best,
        "train_batch_size": [phase.train_batch_size for phase in planned],
        "phase_ends": ends[:-1],
        "num_train_steps": ends[-1],
        "input_shares": strategies.num_hosts(strategy),
        "mixed_precision": pretraining.model.dtype_policy.name,
        settings.ATTENTION_MASKS: [
            attention_masks(source.shapes[features.INPUT_IDS][0], dropout)
            for source in sources
        ],
        **pretraining.settings,
        **devices.arithmetic(strategy),
        **dataclasses.asdict(options.optimizer),
        "random_seed": options.loop.random_seed,
    }


def _identity(source):
    return f"{len(source.paths)} files ({source.digest[:8]})"


def _untrained_parts(start, pretraining, sources):
    """Returns the heads that the run neither trains nor loads."""
    if pretraining.has_next_sentence_loss and any(
        features.NEXT_SENTENCE_LABELS in source.spec for source in sources
    ):
        return ()
    if pretraining.begin is not None:
        # A student that began with its teacher's layers has its head, too.
        return ()
    if start.init_checkpoint is not None:
        with reader.open_checkpoint(
            start.init_checkpoint, start.allow_partial
        ) as checkpoint:
            if checkpoint.config is None or (
                parts.NEXT_SENTENCE in checkpoint.found_parts
            ):
                return ()
    return (parts.NEXT_SENTENCE,)


class _Training:
    """The training of a run, and the model folders that it writes.

    Args:
        options, start, strategy: As for `run`.
        pretraining: The `Pretraining`.
        sources: The source of each phase.
        state: The new `TrainingState`.
        dataset: What it is evaluated on, in words.
    """

    def __init__(
        self, options, start, pretraining, sources, state, strategy, dataset
    ):
        self._options, self._start = options, start
        self._dataset = dataset
        self._pretraining, self._sources = pretraining, sources
        self._state, self._strategy = state, strategy
        self._descriptions = _describe_records(sources)
        self._untrained_parts = _untrained_parts(start, pretraining, sources)
        self._is_resumed = False
        self._history: list[dict[str, float]] = []

    def run(self, evaluate):
        """Trains from the state's last checkpoint, if any.

        Args:
            evaluate: Function that returns an evaluation's {name: float}.
        """
        options, state = self._options, self._state
        pretraining = self._pretraining
        self._is_resumed = _begin(self._start, pretraining, state)
        summary = f"{options.output_dir}/{loop.SUMMARY_FILE}"
        if self._is_resumed and files.exists(summary):
            # The last report of the program before.
            self._history.append(files.read_json(summary))
        keep_best = None
        if options.keep_best:
            best = BestModel(options.output_dir, state.settings)
            # Raises now if a file is damaged, not at the first checkpoint.
            best.restore()
            keep_best = functools.partial(self._keep_best, best, evaluate)
        if strategies.is_chief(self._strategy):
            progress.log_curves(state.folder)
        phases.train(
            state,
            pretraining.objective,
            options.input.training_phases,
            options.loop,
            self._sources,
            self._strategy,
            on_save=functools.partial(self._save_model, options.output_dir),
            before_save=keep_best,
            history=self._history,
            flops_of=self._flops_of,
        )
        diverged = self._divergence()
        if diverged is None:
            _logger.info("The model is in %s.", options.output_dir)
        else:
            _logger.warning(
                "The model is in %s, but its training has diverged: %s.",
                options.output_dir,
                diverged,
            )

    def _flops_of(self, source):
        """Returns the operations of a step for an example, None if unknown."""
        flops_per_example = self._pretraining.flops_per_example
        if flops_per_example is None:
            return None
        shapes = source.shapes
        return flops_per_example(
            shapes[features.INPUT_IDS][0],
            shapes[features.MASKED_LM_POSITIONS][0],
        )

    def _divergence(self):
        config = self._start.config
        return health.divergence(self._history, config.vocab_size)

    def _save_model(self, folder):
        diverged = self._divergence()
        if diverged is not None:
            _logger.warning(
                "Step %d: the training has diverged: %s. A lower learning "
                "rate, more warmup or clipping may help.",
                self._state.step,
                diverged,
            )
        origin = _origin(
            self._options,
            self._start,
            self._state,
            self._descriptions,
            self._is_resumed,
            diverged,
        )
        self._pretraining.save(
            folder, self._start, origin, self._untrained_parts
        )

    def _keep_best(self, best, evaluate):
        """Evaluates, and keeps the model if its loss is the best so far."""
        results = evaluate()
        step = self._state.step
        text = (f"{name} {value:.4g}" for name, value in results.items())
        _logger.info("Evaluated: step %d  %s", step, "  ".join(text))
        report = {f"eval/{name}": value for name, value in results.items()}
        progress.write_summaries(report | {"step": step})
        if not strategies.is_chief(self._strategy):
            return

        def write(folder):
            self._save_model(folder)
            _write_results(
                self._start,
                folder,
                results | {"global_step": step},
                model_folder.read_card(folder),
                self._dataset,
            )

        if best.keep(results["loss"], write):
            _logger.info("The best so far; kept in %s.", best.folder)


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
        state.log_changes()
        return True
    if start.init_checkpoint is not None:
        pretraining.load_weights(start.init_checkpoint)
    elif pretraining.begin is not None:
        pretraining.begin()
    else:
        _logger.info("Beginning with new weights.")
    return False


def _origin(options, start, state, descriptions, is_resumed, diverged=None):
    """Returns the training's `Origin`, for the model card."""
    since, given = state.settings.of_step(state.step)
    records = state.settings.values.get("records")
    if given.get("records", records) != records:
        # The run had nothing left to train, so it did not use these records.
        descriptions = []
    values = {
        "steps": state.step,
        "optimizer": options.optimizer.optimizer,
        **given,
        # Settings that resuming changed do not hold for the whole training.
        "from_step": since or None,
        "diverged": diverged,
        "versions": model_card.versions(),
    }
    # These are only for comparisons; `data` describes the records.
    for name in ("records", settings.EVALUATION, settings.ATTENTION_MASKS):
        values.pop(name, None)
    data: dict[str, dict] = {}
    for number, described in enumerate(descriptions, start=1):
        title = f"Records {number}" if data else "Records"
        data[f"{title} from step {since} on" if since else title] = described
    names = [each.get("TensorFlow Datasets") for each in descriptions]
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
        for manifest in source.manifests:
            # If a set is spread over several folders, each folder has a
            # manifest of the whole set.
            identity = repr(dataclasses.replace(manifest, records={}))
            if identity in seen:
                continue
            seen.add(identity)
            described = _describe(manifest)
            _, counts = found.setdefault(repr(described), (described, {}))
            for name, count in manifest.counts.items():
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


def _describe(manifest):
    """Returns {title: value} of records, from their manifest."""
    settings = manifest.settings
    masking = [settings.get("masking_mode", "static")]
    if "masked_lm_prob" in settings:
        percent = 100 * settings["masked_lm_prob"]
        masking.append(f"{percent:.4g}% of the tokens")
    masking += ["whole words"] if settings.get("do_whole_word_mask") else []
    masking += ["spans"] if settings.get("do_span_mask") else []
    masking += ["n-grams"] if settings.get("do_ngram_mask") else []
    rule = settings.get(manifest_lib.MASKING_RULE, "bert")
    masking += [f"{rule}'s rule"] if rule != "bert" else []
    return {
        "Objective": settings.get("objective"),
        "Masking": ", ".join(masking),
        "Sequence length": manifest.max_seq_length,
        "Masked tokens, at most": manifest.max_predictions_per_seq,
        "Passes over the text": settings.get("dupe_factor"),
        "TensorFlow Datasets": settings.get(_TFDS_NAME),
    }


def _write_results(start, folder, results, card, dataset):
    """Writes the results of an evaluation to their file and the model card."""
    # The card first: once the results file exists, a program that was killed
    # does not write the card when it is run again.
    model_folder.write_results(
        folder,
        card,
        objectives.name_of(start.config),
        dataset,
        results,
    )
    path = os.path.join(folder, evaluation.RESULTS_FILE)
    evaluation.write_results(path, results)
