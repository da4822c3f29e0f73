"""The state of a training run: saved, kept, restored.

It lies in the folder `train` of the run's output directory, beside the model
that the run writes, and is never the model: weights, the optimizer's
variables, the number of the step and of the next example.
"""

import json

import tensorflow as tf

from bert_tf import files

FOLDER = "train"
_DESCRIPTION = "model.json"


class TrainingState:
    """A run's model, optimizer and place, and their checkpoints.

    A checkpoint is there whole or not at all: TensorFlow writes its index
    last, and names it as the newest only when it is complete.

    Args:
        model: A built `keras.Model`.
        optimizer: A `keras.optimizers.Optimizer`, built here on the model's
            trainable variables unless it is already. Make all three in the
            strategy's scope.
        output_dir: The run's output directory.
        description: A JSON-able dictionary of what the model is. A directory
            that holds the state of another one is refused.
        keep_checkpoint_max: Number of newest checkpoints to keep.

    Attributes:
        step: Number of steps that the run has made.
        example: Number of examples that they have consumed.

    Raises:
        ValueError: If `output_dir` belongs to another model.
    """

    def __init__(
        self, model, optimizer, output_dir, description, keep_checkpoint_max=5
    ):
        if keep_checkpoint_max < 1:
            raise ValueError(
                "`keep_checkpoint_max` must be positive. Received: "
                f"keep_checkpoint_max={keep_checkpoint_max}."
            )
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        self.model = model
        self.optimizer = optimizer
        self.folder = f"{str(output_dir).rstrip('/')}/{FOLDER}"
        self.description = json.loads(json.dumps(description))
        self._check_description()
        self._step = tf.Variable(0, trainable=False, dtype=tf.int64)
        self._example = tf.Variable(0, trainable=False, dtype=tf.int64)
        self._manager = tf.train.CheckpointManager(
            tf.train.Checkpoint(
                model=model,
                optimizer=optimizer,
                step=self._step,
                example=self._example,
            ),
            self.folder,
            max_to_keep=keep_checkpoint_max,
            checkpoint_name="state",
        )
        self.step = 0
        self.example = 0

    def restore(self):
        """Restores the newest checkpoint, if there is one.

        Returns:
            Whether there was one.
        """
        path = self._manager.latest_checkpoint
        if path is None:
            return False
        try:
            status = self._manager.checkpoint.restore(path)
            status.assert_existing_objects_matched()
        except (tf.errors.OpError, AssertionError, ValueError) as error:
            reason = str(error).strip().split("\n")[0]
            raise ValueError(
                f"{path} cannot be restored: it is damaged, or of another "
                f"model or optimizer. The reason given: {reason}"
            ) from error
        self.step = int(self._step.numpy())
        self.example = int(self._example.numpy())
        return True

    def save(self):
        """Saves a checkpoint of this step and returns its path.

        Raises:
            OSError: If the disk is full, and so on; the checkpoints before
                are as they were.
        """
        self._step.assign(self.step)
        self._example.assign(self.example)
        path = f"{self.folder}/{_DESCRIPTION}"
        if not files.exists(path):
            text = json.dumps(self.description, indent=2) + "\n"
            files.write_text(path, text)
        try:
            return self._manager.save(checkpoint_number=self.step)
        except tf.errors.OpError as error:
            raise OSError(
                f"{self.folder}: the checkpoint of step {self.step} cannot be "
                f"written: {error.message}"
            ) from error

    def _check_description(self):
        path = f"{self.folder}/{_DESCRIPTION}"
        if not files.exists(path):
            return
        found = files.read_json(path)
        if not isinstance(found, dict):
            raise ValueError(f"{path}: not the description of a model.")
        differences = [
            f"{name} is {found.get(name)!r} there and "
            f"{self.description.get(name)!r} here"
            for name in sorted(found.keys() | self.description.keys())
            if found.get(name) != self.description.get(name)
        ]
        if differences:
            raise ValueError(
                f"{self.folder} holds the training of another model: "
                f"{'; '.join(differences)}. Choose another output directory."
            )
