"""Model folders of the Hugging Face Hub, by name.

"hf:organisation/name" or "hf:organisation/name@revision" stands for the local
copy of that folder. Only these files are fetched: configuration, weights, as
safetensors if there are any, tokenizer, task, and the modules of a sentence
model.
`huggingface_hub` keeps them in its cache, and obeys HF_HUB_OFFLINE,
HF_ENDPOINT, HF_HOME and HF_TOKEN.
"""

import functools
import os
import re

from absl import logging

from bert_tf import files
from bert_tf.checkpoints import config_json
from bert_tf.checkpoints import sentence_files
from bert_tf.checkpoints.containers import hugging_face_folder
from bert_tf.text.tokenizers import bpe_files
from bert_tf.text.tokenizers import unigram_files

PREFIX = "hf:"
_SHARD = re.compile(r"[\w-][\w.-]*\.(safetensors|bin)")
# Some names are repeated here: `tokenizers.files` needs TensorFlow.
_OTHERS = (
    *("vocab.txt", "tokenizer_config.json", "tokenizer.json", "task.json"),
    *(bpe_files.VOCABULARY_FILE, bpe_files.MERGES_FILE),
    *unigram_files.ALL_MODEL_FILES,
    *sentence_files.FILES,
)


def local_path(path: files.AnyPath) -> str:
    """Returns the local folder of a model on the Hub.

    Args:
        path: "hf:organisation/name[@revision]"; any other path is returned
            unchanged.

    Raises:
        ValueError: If `huggingface_hub` is not installed, the name is invalid,
            the model or revision does not exist or cannot be reached, or it
            has no configuration or no weights.
    """
    path = os.fspath(path)
    return _download(path) if path.startswith(PREFIX) else path


# Cached, so that a process sees one commit of each folder.
@functools.cache
def _download(path):
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError as error:
        raise ValueError(
            f"{path}: needs huggingface_hub: pip install 'bert_tf[hub]'."
        ) from error
    name, _, revision = path.removeprefix(PREFIX).partition("@")

    def fetch(file_name):
        try:
            return huggingface_hub.hf_hub_download(
                name, file_name, revision=revision or None
            )
        except errors.LocalEntryNotFoundError as error:
            known = huggingface_hub.try_to_load_from_cache(
                name, file_name, revision=revision or None
            )
            # Offline, a file that was never asked for may or may not exist.
            is_offline = huggingface_hub.constants.HF_HUB_OFFLINE
            if known is huggingface_hub._CACHED_NO_EXIST or (
                is_offline and file_name != config_json.CONFIG_FILE
            ):
                return None
            raise ValueError(
                f"{path}: {file_name} is not in the cache, and the Hub cannot "
                f"be reached ({_first_line(error)})"
            ) from error
        except errors.EntryNotFoundError:
            return None
        except errors.GatedRepoError as error:
            raise ValueError(
                f"{path}: is gated: ask for access on the Hub, and log in with "
                "`hf auth login` or HF_TOKEN."
            ) from error
        except errors.RepositoryNotFoundError as error:
            raise ValueError(
                f"{path}: the Hub has no such model, or it is private: log in "
                "with `hf auth login` or HF_TOKEN."
            ) from error
        except errors.RevisionNotFoundError as error:
            raise ValueError(
                f"{path}: the model has no revision {revision!r}."
            ) from error
        except (errors.HfHubHTTPError, errors.HFValidationError) as error:
            raise ValueError(f"{path}: {_first_line(error)}") from error

    found = fetch(config_json.CONFIG_FILE)
    if found is None:
        raise ValueError(f"{path}: has no {config_json.CONFIG_FILE}.")
    folder = os.path.dirname(found)
    # The cache's folder is .../snapshots/<commit>. All further files are from
    # that commit, whatever is pushed meanwhile.
    revision = os.path.basename(folder)
    logging.info("%s is commit %s.", path, revision)
    for file_name in hugging_face_folder.WEIGHTS_FILES:
        weights = fetch(file_name)
        if weights is not None:
            break
    else:
        raise ValueError(
            f"{path}: has none of "
            f"{', '.join(hugging_face_folder.WEIGHTS_FILES)} (offline: not in "
            "the cache). Other forms of weights are not read from the Hub."
        )
    for shard in _shards(weights):
        if fetch(shard) is None:
            raise ValueError(f"{path}: has no {shard}.")
    for file_name in _OTHERS:
        fetch(file_name)
    for file_name in sentence_files.module_files(folder):
        if sentence_files.is_read(folder, file_name):
            fetch(file_name)
    return folder


def _shards(weights):
    """Returns the names in a local index; none for a file of weights."""
    if not weights.endswith(".json"):
        return []
    shards = files.read_object(weights).get("weight_map")
    if not isinstance(shards, dict):
        raise ValueError(f"{weights}: `weight_map` must be an object.")
    for shard in shards.values():
        if not _SHARD.fullmatch(str(shard)):
            raise ValueError(f"{weights}: {shard!r} is not a shard's name.")
    return sorted({*map(str, shards.values())})


def _first_line(error):
    return str(error).strip().partition("\n")[0]
