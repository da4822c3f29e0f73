"""Learning rates that become smaller from each layer to the one below."""

import re
from collections.abc import Sequence


def rate_factors(paths: Sequence[str], layerwise_decay: float) -> list[float]:
    """Returns the factor of each variable's learning rate."""
    places = [_encoder_and_depth(path) for path in paths]
    # Each of several encoders is counted separately.
    num_blocks: dict[str, int] = {}
    for place in filter(None, places):
        encoder, depth = place
        num_blocks[encoder] = max(num_blocks.get(encoder, 0), depth)
    return [
        layerwise_decay ** (num_blocks[place[0]] + 1 - place[1])
        if place
        else 1.0
        for place in places
    ]


def _encoder_and_depth(path):
    """Returns the path of a variable's encoder, and its depth in it.

    The depth is 0 for the embeddings and k + 1 for block k. Returns None above
    the blocks, even for a layer whose name is like a block's.
    """
    found = re.search(
        r"(?:^|/)(?:layer_(\d+)/(?:attention|intermediate|output|feed_forward|"
        r"final_layer_norm)|embeddings/)",
        path,
    )
    if not found:
        return None
    depth = 0 if found[1] is None else int(found[1]) + 1
    return path[: found.start()], depth
