"""Families of models, one file each; the configuration tells which it is."""

import functools
from typing import Any

from absl import logging

from bert_tf import files
from bert_tf import messages
from bert_tf.checkpoints.families import albert
from bert_tf.checkpoints.families import bert
from bert_tf.checkpoints.families import configs
from bert_tf.checkpoints.families import distilbert
from bert_tf.checkpoints.families import electra
from bert_tf.checkpoints.families import modernbert
from bert_tf.checkpoints.families import mpnet
from bert_tf.checkpoints.families import roberta
from bert_tf.checkpoints.families.family import Family
from bert_tf.config import BertConfig

FAMILIES = (
    albert.FAMILY,
    bert.FAMILY,
    roberta.CAMEMBERT_FAMILY,
    distilbert.FAMILY,
    electra.FAMILY,
    modernbert.FAMILY,
    mpnet.FAMILY,
    roberta.FAMILY,
    roberta.XLM_FAMILY,
)
# The family of Google's files, which name none.
DEFAULT = bert.FAMILY


def of_type(model_type: Any) -> Family:
    """Returns the family with this `model_type` in config.json.

    Raises:
        ValueError: If there is none.
    """
    for family in FAMILIES:
        if family.model_type == model_type:
            return family
    known = ", ".join(family.model_type for family in FAMILIES)
    raise ValueError(
        f"`model_type` must be one of {known}. "
        f"Received: model_type={messages.shortened(model_type)}."
    )


def of_config(config: BertConfig | None) -> Family:
    """Returns the family of a configuration, or `DEFAULT` without one."""
    return DEFAULT if config is None else of_type(config.model_type)


def read_config(
    path: str, family: Family = DEFAULT, is_hugging_face: bool = False
) -> BertConfig:
    """Reads a configuration in Hugging Face's format or in Google's.

    Keys that change nothing, as far as is known, are named in a warning.

    Args:
        path: The JSON file.
        family: The family of a file that names none, as Google's do not.
        is_hugging_face: Whether the weights beside it are in Hugging Face's
            format: then the file is, too, even if it names no family.

    Raises:
        ValueError: If it is missing or damaged, or its family or a value is
            not supported; the message names the file.
    """
    values = files.read_json(path, files.MAX_FOLDER_TEXT)
    with messages.errors_named(path):
        if is_hugging_face and isinstance(values, dict):
            values = {"model_type": family.model_type} | values
        config = parse_config(values, family)
    unknown = configs.unknown_keys(values, of_config(config).known_keys)
    if unknown:
        _warn_of_unknown_keys(path, messages.shortened(unknown))
    return config


# Cached to warn once: a program reads its configuration several times.
@functools.cache
def _warn_of_unknown_keys(path, names):
    logging.warning("%s: keys that nothing reads here: %s.", path, names)


def config_of_google(shapes: dict[str, tuple[int, ...]]) -> BertConfig | None:
    """Returns the configuration of a release that has no file for it.

    Args:
        shapes: {name: shape} of a TF1 checkpoint.

    Returns:
        A `BertConfig`, or None if the tensors are of no such release.
    """
    for family in FAMILIES:
        config = family.config_of_google and family.config_of_google(shapes)
        if config:
            return config
    return None


def write_config(config: BertConfig) -> dict[str, Any]:
    """Returns the architecture as config.json has it.

    Raises:
        ValueError: If a field has a value that no model of the family has.
    """
    family = of_config(config)
    values = family.write_config(config)
    configs.check(config, family.read_config(values))
    return values


def parse_config(values: Any, family: Family = DEFAULT) -> BertConfig:
    """Returns the `BertConfig` of a file's contents, as `read_config`."""
    if not isinstance(values, dict):
        raise ValueError(
            "A configuration must be a JSON object. Received: "
            f"{type(values).__name__}."
        )
    if "model_type" in values:
        family = of_type(values["model_type"])
    return family.read_config(values)
