"""Which blocks of an encoder are computed again for the gradient."""

from bert_tf.models import encoder


def note(monkeypatch):
    """Returns a list that gets each such block whenever it is traced."""
    blocks = []
    recompute = encoder.recompute

    def note_block(block, *args):
        blocks.append(block)
        return recompute(block, *args)

    monkeypatch.setattr(encoder, "recompute", note_block)
    return blocks
