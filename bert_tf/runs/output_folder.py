"""What a training's folder holds before training begins; no TensorFlow."""

import os

from bert_tf import atomic
from bert_tf import files
from bert_tf.checkpoints import config_json
from bert_tf.checkpoints import hub
from bert_tf.training.options import FOLDER

# Exists once a user has replaced the training's model.
_SAVED_FILE = f"{FOLDER}/model_saved.txt"


def check(output_dir: str) -> None:
    """Raises `ValueError` if training there would replace another model."""
    path = os.path.join(output_dir, _SAVED_FILE)
    if files.exists(path):
        raise ValueError(
            f"--output_dir={output_dir} holds a model that was saved there "
            "after the training. Resuming would replace it. Choose another "
            "output folder, and give the model as --init_checkpoint to "
            f"begin with it; or remove {path} to resume the training."
        )
    if _holds_model(output_dir) and not holds_training(output_dir):
        raise ValueError(
            f"--output_dir={output_dir} holds a model that was not trained "
            "there. Choose another output folder, and give the model as "
            "--init_checkpoint to begin with it."
        )


def holds_training(output_dir: str) -> bool:
    """Returns whether a training has begun there."""
    return files.exists(os.path.join(output_dir, FOLDER))


def note_saved(output_dir: str) -> None:
    """Notes, if a training began there, that a user has replaced its model.

    `check` then refuses to resume it, which would replace the user's model.
    """
    if holds_training(output_dir):
        atomic.write_text(
            os.path.join(output_dir, _SAVED_FILE),
            "The model of this training was replaced by bert_tf.save.\n",
        )


def trained_model(output_dir: str, init_checkpoint: str | None) -> str:
    """Returns the folder of the model to evaluate or to predict with.

    Raises:
        ValueError: If there is neither a model in the output folder nor a
            checkpoint. Also if a training there has not written its first
            model yet: the checkpoint's answers would be taken for that model's.
    """
    if _holds_model(output_dir):
        return output_dir
    if holds_training(output_dir):
        raise ValueError(
            f"--output_dir={output_dir} holds a training that has not written "
            "a model yet. Give --do_train to resume it, or another output "
            "directory."
        )
    if init_checkpoint is None:
        raise ValueError(
            "Without --do_train there must be a model in --output_dir or "
            f"--init_checkpoint. Received: --output_dir={output_dir}."
        )
    return hub.local_path(init_checkpoint)


def _holds_model(output_dir):
    return files.exists(os.path.join(output_dir, config_json.CONFIG_FILE))
