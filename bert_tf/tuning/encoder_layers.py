"""Freezes layers of the encoder, or initialises them anew."""

from bert_tf.models.encoder import BertEncoder


def freeze_lower_layers(encoder: BertEncoder, num_layers: int | None) -> None:
    """Takes layers out of the training: no gradient, no decay, no moments.

    Their dropout stays. Call it before an optimizer is built.

    Args:
        encoder: A `BertEncoder`.
        num_layers: Number of first blocks that are not trained. The embeddings
            are not trained either. None to train everything.

    Raises:
        ValueError: If there are fewer blocks.
    """
    check(len(encoder.blocks), num_layers)
    if num_layers is None:
        return
    for layer in (encoder.embeddings, *encoder.blocks[:num_layers]):
        layer.trainable = False


def reinit_top_layers(encoder: BertEncoder, num_layers: int) -> None:
    """Gives layers new values, as if they had not been pre-trained.

    The last blocks specialise in the pre-training tasks. With few examples it
    helps to initialise them anew (Zhang et al. 2020, arXiv 2006.05987,
    section 5).

    Args:
        encoder: A `BertEncoder`.
        num_layers: Number of last blocks. If it is not 0, the pooler gets new
            values, too.

    Raises:
        ValueError: If there are fewer blocks, or one of them is not trained.
    """
    if not num_layers:
        return
    frozen = [
        i for i, block in enumerate(encoder.blocks) if not block.trainable
    ]
    check(len(encoder.blocks), max(frozen, default=-1) + 1, num_layers)
    shape = (None, None, encoder.config.hidden_size)
    for layer in (*encoder.blocks[-num_layers:], encoder.pooler):
        new = type(layer).from_config(layer.get_config())
        new.build(shape)
        for variable, value in zip(
            layer.trainable_weights, new.trainable_weights
        ):
            variable.assign(value)


def check(
    num_blocks: int, freeze_lower_layers: int | None, reinit_top_layers: int = 0
) -> None:
    """Raises `ValueError`, naming the flags, if a model has no such layers.

    Args:
        num_blocks: Number of the model's blocks.
        freeze_lower_layers: `num_layers` of `freeze_lower_layers`.
        reinit_top_layers: `num_layers` of `reinit_top_layers`. No block may be
            both: its new values would never be trained.
    """
    for flag, num_layers in (
        ("freeze_lower_layers", freeze_lower_layers or 0),
        ("reinit_top_layers", reinit_top_layers),
    ):
        if num_layers > num_blocks:
            raise ValueError(
                f"--{flag} must be at most {num_blocks}, the model's layers. "
                f"Received: --{flag}={num_layers}."
            )
    if (freeze_lower_layers or 0) + reinit_top_layers > num_blocks:
        raise ValueError(
            "--freeze_lower_layers and --reinit_top_layers must together be "
            f"at most {num_blocks}, the model's layers: a layer with new "
            "values must be trained. Received: "
            f"--freeze_lower_layers={freeze_lower_layers}, "
            f"--reinit_top_layers={reinit_top_layers}."
        )
