"""Former names of flags, which programs still accept for one release."""

from collections.abc import Collection
from collections.abc import Sequence

from absl import logging

# {former name: name}. A former name that a program has as a flag of its own is
# that flag.
ALIASES = {
    "check_file": "eval_file",
    "corpus_prompt": "passage_prompt",
    "embedding": "pooling",
    "eval_input_file": "eval_file",
    "glue_dir": "data_dir",
    "html": "output_file",
    "input": "init_checkpoint",
    "input_file": "eval_file",
    "learning_rates": "learning_rate",
    "loss": "loss_name",
    "output": "output_dir",
    "output_format": "format",
    "score_column": "label_column",
    "seeds": "random_seed",
    "serving_precision": "precision",
    "tag_column": "label_column",
    "tasks": "task_name",
    "test_file": "predict_file",
    "triplets_file": "output_file",
}


def renamed(arguments: Sequence[str], names: Collection[str]) -> list[str]:
    """Returns a command line with today's names of flags.

    A warning says which flags were renamed.

    Args:
        arguments: The program and its arguments.
        names: The names of the program's flags.
    """
    return [_renamed(argument, names) for argument in arguments]


def _renamed(argument, names):
    flag, equals, value = argument.partition("=")
    old = flag.lstrip("-")
    new = ALIASES.get(old)
    if flag == old or new not in names or old in names:
        return argument
    logging.warning("--%s is now called --%s.", old, new)
    return f"--{new}{equals}{value}"
