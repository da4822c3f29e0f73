"""Layers of the encoder that are not trained, or begin anew."""


def freeze_lower_layers(encoder, num_layers):
    """Takes layers out of the training: no gradient, no decay, no moments.

    Their dropout stays. Call it before an optimizer is built.

    Args:
        encoder: A `BertEncoder`.
        num_layers: Blocks, counted from the first, that are not trained, nor
            are the embeddings; None for none.

    Raises:
        ValueError: If there are fewer blocks.
    """
    if num_layers is None:
        return
    _check("freeze_lower_layers", num_layers, encoder)
    for layer in (encoder.embeddings, *encoder.blocks[:num_layers]):
        layer.trainable = False


def reinit_top_layers(encoder, num_layers):
    """Gives layers new values, as if they had not been pre-trained.

    The last blocks are bent towards pre-training's tasks; on few examples it
    helps to begin anew there (Zhang et al. 2020, arXiv 2006.05987, section 5).

    Args:
        encoder: A `BertEncoder`.
        num_layers: Blocks, counted from the last, and with one or more of
            them the pooler.

    Raises:
        ValueError: If there are fewer blocks.
    """
    if not num_layers:
        return
    _check("reinit_top_layers", num_layers, encoder)
    shape = (None, None, encoder.config.hidden_size)
    for layer in (*encoder.blocks[-num_layers:], encoder.pooler):
        new = type(layer).from_config(layer.get_config())
        new.build(shape)
        for variable, value in zip(
            layer.trainable_weights, new.trainable_weights
        ):
            variable.assign(value)


def _check(flag, num_layers, encoder):
    if num_layers > len(encoder.blocks):
        raise ValueError(
            f"--{flag} must be at most {len(encoder.blocks)}, the model's "
            f"layers. Received: --{flag}={num_layers}."
        )
