"""The files of a sentence-transformers folder. No TensorFlow.

`sentence_folder` reads what they say.
"""

import contextlib
import posixpath

from bert_tf import files
from bert_tf import messages
from bert_tf.checkpoints.containers import hugging_face_folder

MODULES_FILE = "modules.json"
LENGTH_FILE = "sentence_bert_config.json"
# This name, and one per family from releases before 1.0.
LENGTH_FILES = (
    LENGTH_FILE,
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
)
PROMPTS_FILE = "config_sentence_transformers.json"
# The files in the folder itself.
FILES = (MODULES_FILE, *LENGTH_FILES, PROMPTS_FILE)
# Keys of a CrossEncoder's config.json: since release 4, and before.
CROSS_ENCODER_KEYS = (
    "sentence_transformers",
    "sbert_ce_default_activation_function",
)
CONFIG_FILE = "config.json"
WEIGHTS_FILE = hugging_face_folder.WEIGHTS_FILE
PICKLE_FILE = hugging_face_folder.PICKLE_FILE
# Pooling after the Transformer, any number of Dense, perhaps Normalize.
TRANSFORMER, POOLING, DENSE, NORMALIZE = MODULES = (
    "Transformer",
    "Pooling",
    "Dense",
    "Normalize",
)
_FILES_OF = {
    POOLING: (CONFIG_FILE,),
    DENSE: (CONFIG_FILE, WEIGHTS_FILE, PICKLE_FILE),
}


def read_modules(folder: str) -> list[tuple[str, str]] | None:
    """Returns (module, its folder) for each module; None for other models.

    Args:
        folder: A model folder.

    Raises:
        ValueError: If modules.json is damaged, or names a module that is not
            supported or a path outside the folder.
    """
    path = f"{folder}/{MODULES_FILE}"
    if not files.exists(path):
        return None
    modules = files.read_json(path, files.MAX_FOLDER_TEXT)
    with messages.errors_named(path):
        return _checked(modules)


def module_files(folder: str) -> list[str]:
    """Returns the files of a folder's modules, in addition to `FILES`.

    Args:
        folder: A model folder; only its modules.json must be there.

    Returns:
        Paths relative to the folder; an empty list for other models, and for
        modules that `read_modules` refuses.
    """
    modules = None
    # Whoever reads the vectors raises the error.
    with contextlib.suppress(ValueError):
        modules = read_modules(folder)
    return [
        posixpath.normpath(posixpath.join(path, file_name))
        for name, path in modules or ()
        for file_name in _FILES_OF.get(name, ())
    ]


def module_folder(number: int, module: str) -> str:
    """Returns the folder that a module is written to, e.g. 1_Pooling.

    Args:
        number: Place of the module; 0 is the model folder itself.
        module: Name of the module, of `MODULES`.
    """
    return f"{number}_{module}" if number else ""


def found_files(folder: str) -> list[str]:
    """Returns the files in `FILES` and `module_files` that exist and are read.

    Args:
        folder: A model folder.

    Returns:
        Paths relative to the folder.
    """
    names = (*FILES, *module_files(folder))
    return [
        name
        for name in names
        if files.exists(f"{folder}/{name}") and is_read(folder, name)
    ]


def is_read(folder: str, name: str) -> bool:
    """Returns whether a file is read: no pickle is, beside safetensors.

    Args:
        folder: A model folder.
        name: Path of the file relative to the folder.
    """
    module, file_name = posixpath.split(name)
    safe = f"{folder}/{module}/{WEIGHTS_FILE}"
    return file_name != PICKLE_FILE or not files.exists(safe)


def _checked(modules):
    """Returns (module, its folder) for each, or raises if not supported."""
    is_good = isinstance(modules, list) and all(
        isinstance(module, dict)
        and isinstance(module.get("type"), str)
        and isinstance(module.get("path"), str)
        for module in modules
    )
    if not is_good:
        raise ValueError(
            "must be a list of modules with `type` and `path`. "
            f"Received: {messages.shortened(modules)}."
        )
    # The packages have changed between releases, the names have not.
    names = [module["type"].rpartition(".")[2] for module in modules]
    middle = names[2:]
    if middle[-1:] == [NORMALIZE]:
        middle.pop()
    if names[:2] != [TRANSFORMER, POOLING] or {*middle} - {DENSE}:
        raise ValueError(
            f"the modules must be {', '.join(MODULES)}. There may be any "
            "number of Dense, and Normalize may be missing. "
            f"Received: {', '.join(names)}."
        )
    paths = [module["path"] for module in modules]
    if paths[0] not in ("", "."):
        raise ValueError(
            "the Transformer must be in the folder itself, where "
            "sentence-transformers saves it since version 2: open the folder "
            f"there and save it again. Received: path={paths[0]!r}."
        )
    for path in paths[1:]:
        # A file outside the folder does not belong to it.
        if path.startswith("/") or ".." in path.split("/"):
            raise ValueError(
                "the path of a module must be in the folder. "
                f"Received: path={messages.shortened(path)}."
            )
    return list(zip(names, paths))
