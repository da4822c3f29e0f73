"""Prints a program's flags as JSON: python flags_of.py bert_tf.run_pretraining.

{"doc": its docstring, "groups": [[what defines them, [flag, ...]], ...]}, the
program's own flags first. A program's top imports neither TensorFlow nor Keras,
and so this does not either.
"""

import importlib
import inspect
import json
import sys

from absl import flags


def main():
    (name,) = sys.argv[1:]
    doc = inspect.getdoc(importlib.import_module(name))
    groups = flags.FLAGS.flags_by_module_dict()
    told = [("Its own flags", groups.pop(name))]
    for module, shared in groups.items():
        if module.startswith("bert_tf."):
            # The first line of the module's docstring.
            summary = inspect.getdoc(sys.modules[module]).partition("\n")[0]
            told.append((summary.rstrip("."), shared))
    answer = {
        "doc": doc,
        "groups": [
            (title, [_described(flag) for flag in group])
            for title, group in told
        ],
    }
    print(json.dumps(answer))


def _described(flag):
    return {
        "name": flag.name,
        "type": flag.flag_type(),
        "default": flag.default,
        # An enumeration's begins with its values.
        "help": flag.help.removeprefix(_values(flag)),
        "choices": getattr(flag.parser, "enum_values", None),
    }


def _values(flag):
    values = getattr(flag.parser, "enum_values", None)
    return f"<{'|'.join(values)}>: " if values else ""


if __name__ == "__main__":
    main()
