"""What each pre-training objective trains and saves."""

import dataclasses
import os
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from bert_tf import checkpoints
from bert_tf import files
from bert_tf.checkpoints import config_json
from bert_tf.checkpoints import families
from bert_tf.checkpoints import hub
from bert_tf.checkpoints import model_card
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import report
from bert_tf.checkpoints.starting_point import StartingPoint
from bert_tf.models import distiller
from bert_tf.models import objectives
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.encoder_model import EncoderModel
from bert_tf.models.objectives import Objective
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.replaced_tokens import ReplacedTokensPretrainer
from bert_tf.models.replaced_tokens import generator_config
from bert_tf.models.replaced_tokens import replaced_tokens
from bert_tf.models.span_boundaries import SPAN_BOUNDARIES
from bert_tf.models.span_boundaries import SpanBoundaryPretrainer
from bert_tf.runs.options import REPLACED_TOKENS
from bert_tf.runs.options import PretrainingOptions
from bert_tf.training import health
from bert_tf.training.options import GENERATOR_FOLDER

# ELECTRA-Small's and -Large's (Clark et al. 2020, table 6).
_GENERATOR_SIZE = 0.25
_DISCRIMINATOR_WEIGHT = 50.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretraining:
    """A model to train, and the models inside it that are saved.

    Args:
        model: The model to train.
        objective: Its `Objective`.
        saved: {folder: model saved there}, in the order of writing. The folder
            is inside the output folder; "" is the output folder itself.
        description: Entries of train/model.json that distinguish its weights
            from those of other objectives.
        settings: Other settings that determine the weights.
        flops_per_example: Function of the length and the number of
            predictions; None if it is not known.
        begin: Sets the weights of a new training that has no checkpoint; None
            to leave them as they were initialised.
        of_origin: Takes the general `Origin` for the model card and returns
            that of this training.
        has_next_sentence_loss: Whether the next-sentence head is trained where
            the records have labels for it.
    """

    model: keras.Model
    objective: Objective
    saved: Mapping[str, BertEncoder | EncoderModel]
    description: Mapping[str, Any]
    settings: Mapping[str, Any]
    flops_per_example: Callable[[int, int], float] | None
    begin: Callable[[], None] | None = None
    of_origin: Callable[[model_card.Origin], model_card.Origin] = (
        lambda origin: origin
    )
    has_next_sentence_loss: bool = False

    def load_weights(self, path: str) -> list[str]:
        """Loads the weights of the models from a folder.

        A part that is not saved, SpanBERT's head, stays as it is.

        Returns:
            The heads that are trained (names from `parts`) of which the folder
            has nothing; their weights are new.

        Raises:
            ValueError: As for `checkpoints.load_weights`, or if the folder has
                different embeddings for two models that share theirs.
        """
        loaded: dict[int, np.ndarray] = {}
        entries: list[report.CoverageEntry] = []
        for folder, model in self.saved.items():
            coverage = checkpoints.load_weights(_inside(path, folder), model)
            entries += coverage.entries
            for weight in distiller.encoder_of(model).embeddings.weights:
                value = keras.ops.convert_to_numpy(weight)
                first = loaded.setdefault(id(weight), value)
                if not np.array_equal(value, first):
                    name = weight.path.rpartition("embeddings/")[2]
                    raise ValueError(
                        f"{path}: generator and discriminator must share "
                        f"their embeddings. Received: different {name} in the "
                        f"folder {GENERATOR_FOLDER}."
                    )
        new = {each.part for each in entries if each.status == report.NEW}
        new -= {each.part for each in entries if each.status != report.NEW}
        heads = {parts.MASKED_LM, parts.DISCRIMINATOR}
        if self.has_next_sentence_loss:
            heads.add(parts.NEXT_SENTENCE)
        return sorted(new & heads)

    def save(
        self,
        folder: str,
        start: StartingPoint,
        origin: model_card.Origin,
        untrained_parts: Collection[str] = (),
    ) -> None:
        """Writes the model folders, each completely or not at all.

        Args:
            folder, origin, untrained_parts: As in `checkpoints.save`.
            start: The `StartingPoint` of the run.
        """
        origin = self.of_origin(origin)
        for name, model in self.saved.items():
            checkpoints.save(
                _inside(folder, name),
                model,
                start.tokenizer,
                start.config.max_position_embeddings,
                origin=dataclasses.replace(origin, name=name_of(model.config)),
                untrained_parts=untrained_parts,
            )


def name_of(config: Any) -> str:
    """Returns the name of a model in its card, e.g. bert L-4_H-256."""
    size = f"L-{config.num_hidden_layers}_H-{config.hidden_size}"
    return f"{config.model_type} {size}"


def make(
    options: PretrainingOptions, start: StartingPoint, policy: str
) -> Pretraining:
    """Makes the model of an objective; call it in the strategy's scope.

    Args:
        options: The `PretrainingOptions`.
        start: The `StartingPoint`.
        policy: The name of the Keras dtype policy.

    Raises:
        ValueError: If the objective does not suit the configuration or the
            checkpoint.
    """
    config, wanted = start.config, options.objective
    for objective, is_chosen in (
        (f"--objective={REPLACED_TOKENS}", wanted.replaces_tokens),
        ("--span_boundary_objective", wanted.span_boundary_objective),
    ):
        if is_chosen and config.is_decoder:
            raise ValueError(
                f"{objective} needs attention in both directions. Received: "
                "a configuration with is_decoder=True."
            )
    if wanted.replaces_tokens:
        return _replaced_tokens(options, start, policy)
    computing = model_options(options, policy)

    def flops_per_example(length, num_predictions):
        return health.flops_per_example(config, length, num_predictions)

    if wanted.span_boundary_objective:
        model = SpanBoundaryPretrainer(config, **computing)
        return Pretraining(
            model=model,
            objective=SPAN_BOUNDARIES,
            saved={"": model.pretrainer},
            description={"span_boundary_objective": True},
            settings={},
            # The second prediction of a token costs as much as the first.
            flops_per_example=lambda length, num_predictions: flops_per_example(
                length, 2 * num_predictions
            ),
            has_next_sentence_loss=True,
        )
    pretrainer = BertPretrainer(config, **computing)
    return Pretraining(
        model=pretrainer,
        objective=objectives.PRETRAINING,
        saved={"": pretrainer},
        description={},
        settings={},
        flops_per_example=flops_per_example,
        has_next_sentence_loss=True,
    )


def model_options(options: PretrainingOptions, policy: str) -> dict[str, Any]:
    """Returns the arguments of models that do not change what they are.

    Args:
        options: The `PretrainingOptions`.
        policy: The name of the Keras dtype policy.
    """
    return {
        "dtype": policy,
        "attention_chunk": options.attention_chunk,
        "rematerialize": options.rematerialize,
    }


def _replaced_tokens(options, start, policy):
    config = start.config
    classes = families.of_config(config).architectures.values()
    if not any(parts.DISCRIMINATOR in each for each in classes):
        raise ValueError(
            f"--objective={REPLACED_TOKENS} needs a model of the family "
            "electra, e.g. --bert_config_file=electra-small. Received: "
            f"model_type={config.model_type}."
        )
    generator = _generator_config(options, start)
    model = ReplacedTokensPretrainer(
        config,
        generator,
        num_words=len(start.tokenizer.vocabulary),
        **model_options(options, policy),
    )
    return Pretraining(
        model=model,
        objective=replaced_tokens(_DISCRIMINATOR_WEIGHT),
        # The discriminator is written last: readers look for it.
        saved={GENERATOR_FOLDER: model.generator, "": model.discriminator},
        description={
            "objective": REPLACED_TOKENS,
            "generator": generator.to_dict(),
        },
        settings={
            "objective": REPLACED_TOKENS,
            "generator_size": generator.hidden_size / config.hidden_size,
            "discriminator_weight": _DISCRIMINATOR_WEIGHT,
        },
        flops_per_example=lambda length, num_predictions: (
            health.flops_per_example(generator, length, num_predictions)
            + health.flops_per_example(config, length, 0)
        ),
    )


def _generator_config(options, start):
    """Returns the checkpoint's generator config, or one of the wanted size."""
    size = options.objective.generator_size or _GENERATOR_SIZE
    if start.init_checkpoint is None:
        return generator_config(start.config, size)
    folder = _inside(start.init_checkpoint, GENERATOR_FOLDER)
    path = os.path.join(folder, config_json.CONFIG_FILE)
    if not files.exists(path):
        raise ValueError(
            f"--objective={REPLACED_TOKENS} needs a checkpoint that has a "
            f"generator in its folder {GENERATOR_FOLDER}, as it writes them. "
            f"Received: --init_checkpoint={start.init_checkpoint}."
        )
    found = families.read_config(path)
    if options.objective.generator_size is not None:
        wanted = generator_config(start.config, size)
        if wanted.hidden_size != found.hidden_size:
            raise ValueError(
                "--generator_size must be that of the checkpoint's generator, "
                f"{found.hidden_size / start.config.hidden_size:.4g}. "
                f"Received: --generator_size={size}."
            )
    return found


def _inside(path, folder):
    """Returns the path of a folder in a checkpoint; "" gives `path` itself.

    Then a Hub name, or the prefix of Google's files, stays as it is.
    """
    return os.path.join(hub.local_path(path), folder) if folder else path
