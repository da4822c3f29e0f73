"""Tiny architectures and vocabularies, and the files that release them."""

import json

from bert_tf.config import BertConfig


def tiny_config(vocab_size, max_position_embeddings=16):
    """Returns a `BertConfig` of one block."""
    return BertConfig(
        vocab_size=vocab_size,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=max_position_embeddings,
    )


def write(folder, tokens):
    """Writes vocab.txt and bert_config.json of a `tiny_config`.

    Returns:
        {flag of the programs: the file's path}.
    """
    vocab_file = folder / "vocab.txt"
    vocab_file.write_text("\n".join(tokens) + "\n")
    bert_config_file = folder / "bert_config.json"
    config = tiny_config(len(tokens))
    bert_config_file.write_text(json.dumps(config.to_dict()))
    return {
        "vocab_file": str(vocab_file),
        "bert_config_file": str(bert_config_file),
    }


def write_flags(folder, tokens):
    """As `write`, but returns a tuple of the programs' flags."""
    return tuple(
        f"--{flag}={path}" for flag, path in write(folder, tokens).items()
    )


def read_results(folder):
    """Returns {name: number} of a run's eval_results.txt."""
    lines = (folder / "eval_results.txt").read_text().splitlines()
    assert lines == sorted(lines)
    return {
        name: float(value)
        for name, value in (line.split(" = ") for line in lines)
    }
