"""Training by `keras.Model.fit`, to compare with the loop's."""

from bert_tf import features


def fit(state, task, source, config):
    """Makes the steps of `loop.train`, of a model without dropout.

    Returns:
        The loss of every step, a list of floats.
    """

    def as_inputs_and_labels(batch):
        names = (*features.MODEL_INPUTS, *features.PASSAGE_INPUTS)
        inputs = {name: batch[name] for name in names if name in batch}
        return inputs, batch[features.LABELS]

    state.model.compile(state.optimizer, task.loss(), metrics=task.fit_metrics)
    history = state.model.fit(
        source.training_batches(config.train_batch_size).map(
            as_inputs_and_labels
        ),
        # An epoch's loss is then a step's.
        epochs=config.num_train_steps,
        steps_per_epoch=1,
        shuffle=False,
        verbose=0,
    )
    return history.history["loss"]
