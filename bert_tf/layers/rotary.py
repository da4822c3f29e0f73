"""Rotary positions: queries and keys turned by an angle per position.

Su et al. 2021, RoFormer (arXiv 2104.09864, section 3.2). What a query and a key
have in common then depends on the distance between them alone.

Letters in tensor names: B batch, L position, N attention heads, H size of one
head.
"""

import numpy as np
from keras import ops

from bert_tf.features import Tensor


def rotate(x_BLNH: Tensor, places_BL: Tensor, theta: float) -> Tensor:
    """Turns the vectors of every head by the angles of their places.

    Number m of the first half of a vector and number m of the second are a
    point of a plane, which is turned by place * theta ** (-2m / H).

    Args:
        x_BLNH: float, H even.
        places_BL: int32, the place of each token in its text; `[1, L]` if it
            is the same in all rows.
        theta: Base of the angles.

    Returns:
        float, as `x_BLNH`. It is computed in float32 under every dtype policy:
        16 bits would merge places.
    """
    size = x_BLNH.shape[-1]
    speeds = 1 / theta ** (np.arange(0, size, 2, dtype="float32") / size)
    places_BL = ops.cast(places_BL, "float32")
    angles = places_BL[:, :, None, None] * speeds.astype("float32")
    cos, sin = ops.cos(angles), ops.sin(angles)
    x_BLNH_float = ops.cast(x_BLNH, "float32")
    first, second = (
        x_BLNH_float[..., : size // 2],
        x_BLNH_float[..., size // 2 :],
    )
    turned = (first * cos - second * sin, second * cos + first * sin)
    return ops.cast(ops.concatenate(turned, axis=-1), x_BLNH.dtype)
