"""The steps at which the epochs of a fine-tuning end."""

import math

from bert_tf import messages


def epoch_ends(
    num_examples: int,
    batch_size: int,
    num_epochs: float,
    unit: str = "examples",
    *,
    whole_epochs: bool = False,
) -> list[int]:
    """Returns the steps at which an epoch is over, and the last step.

    They are counted as in google-research/bert: batches run on from one epoch
    into the next, so the whole run leaves out less than one batch.

    Args:
        num_examples: Number of rows of an epoch.
        batch_size: Number of rows of a step.
        num_epochs: Number of epochs; it need not be whole.
        unit: What errors call the rows.
        whole_epochs: Whether each epoch has its own last batch, which may be
            smaller, instead.

    Raises:
        ValueError: If there is less than one step.
    """

    def num_steps(num_epochs):
        if whole_epochs:
            each = math.ceil(num_examples / batch_size)
            return max(1, round(each * num_epochs))
        return int(num_examples / batch_size * num_epochs)

    last = num_steps(num_epochs)
    if last < 1:
        count = messages.counted(num_examples, unit.removesuffix("s"), unit)
        raise ValueError(
            f"The training {unit} must make one batch or more. Received: "
            f"{count}, train_batch_size={batch_size}, "
            f"num_train_epochs={num_epochs}."
        )
    ends = {num_steps(epoch) for epoch in range(1, math.ceil(num_epochs))}
    return sorted({step for step in ends if 0 < step < last} | {last})
