"""What a folder of sentence-transformers says of its vectors.

modules.json                        the modules, in their order
1_Pooling/config.json               how the vectors of tokens become one
sentence_bert_config.json           the longest sequence
config_sentence_transformers.json   texts that are put before others

Reimers and Gurevych 2019 (arXiv 1908.10084), section 3: the Transformer, then a
pooling; models since then divide the vector by its length.
"""

import dataclasses
from typing import Any

from bert_tf import files

MODULES_FILE = "modules.json"
CLS, MEAN, MAX = "cls", "mean", "max"

_LENGTH_FILE = "sentence_bert_config.json"
_PROMPTS_FILE = "config_sentence_transformers.json"
# {in files since version 5: ours}, and {in older files: ours}.
_MODES = {"cls": CLS, "mean": MEAN, "max": MAX}
_OLD_PREFIX = "pooling_mode_"
_OLD_MODES = {
    "pooling_mode_cls_token": CLS,
    "pooling_mode_mean_tokens": MEAN,
    "pooling_mode_max_tokens": MAX,
}
# Once each, in this order; the last may be missing.
_MODULES = ("Transformer", "Pooling", "Normalize")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceVectors:
    """How a model's owner makes the vector of a text.

    Args:
        pooling: "cls", "mean" or "max", over the last block's vectors.
        is_normalized: Whether the vector is divided by its length.
        max_seq_length: The longest sequence; None where nothing tells it.
    """

    pooling: str
    is_normalized: bool
    max_seq_length: int | None = None


def read(folder: files.AnyPath) -> SentenceVectors | None:
    """Reads what the files say; None in a folder of other models.

    Args:
        folder: A model folder.

    Raises:
        ValueError: If a file is damaged, or a module, a pooling or a prompt
            makes of the vector what we do not; the message names the file.
    """
    folder = str(folder).rstrip("/")
    path = f"{folder}/{MODULES_FILE}"
    if not files.exists(path):
        return None
    modules = files.read_json(path, files.MAX_FOLDER_TEXT)
    with files.errors_named(path):
        paths = _modules(modules)
    length = _read_object(f"{folder}/{_LENGTH_FILE}").get("max_seq_length")
    if length is not None and (type(length) is not int or length < 1):
        raise ValueError(
            f"{folder}/{_LENGTH_FILE}: `max_seq_length` must be a positive "
            f"integer. Received: {files.shortened(length)}."
        )
    _check_prompt(f"{folder}/{_PROMPTS_FILE}")
    pooling_path = f"{folder}/{paths['Pooling']}/config.json"
    values = files.read_object(pooling_path)
    with files.errors_named(pooling_path):
        pooling = _pooling(values)
    return SentenceVectors(
        pooling=pooling,
        is_normalized="Normalize" in paths,
        max_seq_length=length,
    )


def _modules(modules):
    """Returns {module: its folder}, of those that we have."""
    is_good = isinstance(modules, list) and all(
        isinstance(module, dict)
        and isinstance(module.get("type"), str)
        and isinstance(module.get("path"), str)
        for module in modules
    )
    if not is_good:
        raise ValueError(
            "must be a list of modules with `type` and `path`. "
            f"Received: {files.shortened(modules)}."
        )
    # Their packages have changed, their names have not.
    names = [module["type"].rpartition(".")[2] for module in modules]
    if tuple(names) not in (_MODULES, _MODULES[:-1]):
        raise ValueError(
            f"the modules must be {', '.join(_MODULES)}; the last may be "
            f"missing. Received: {', '.join(names)}."
        )
    if modules[0]["path"] not in ("", "."):
        raise ValueError(
            "the Transformer must be in the folder itself: give that folder. "
            f"Received: path={modules[0]['path']!r}."
        )
    return {
        name: module["path"]
        for name, module in zip(names, modules, strict=True)
    }


def _pooling(values: dict[str, Any]) -> str:
    mode = values.get("pooling_mode")
    if mode is not None:
        chosen = mode if isinstance(mode, list) else [mode]
        known = _MODES
    else:
        chosen = [
            name
            for name, value in values.items()
            if name.startswith(_OLD_PREFIX) and value is True
        ]
        known = _OLD_MODES
    if len(chosen) != 1 or chosen[0] not in known:
        raise ValueError(
            f"the pooling must be one of {', '.join(known)}. Received: "
            f"{files.shortened(chosen)}."
        )
    return known[chosen[0]]


def _check_prompt(path):
    values = _read_object(path)
    name = values.get("default_prompt_name")
    prompts = values.get("prompts")
    text = prompts.get(name) if isinstance(prompts, dict) and name else ""
    if text:
        raise ValueError(
            f"{path}: `default_prompt_name` must be null: no text is put "
            "before others here. "
            f"Received: {name!r}, {files.shortened(text)}."
        )


def _read_object(path):
    return files.read_object(path) if files.exists(path) else {}
