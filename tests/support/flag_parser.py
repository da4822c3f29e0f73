"""Parses programs' flags where TensorFlow and Keras cannot be imported.

    python flag_parser.py < commands.json

Of the commands, [[module or path, [argument, ...]], ...], prints a list of
{"error": None or what is wrong with the flags, "values": {flag: value}}: what
the program's own definitions and validators make of them. Nothing is run.
"""

import collections
import json
import os
import runpy
import sys

import numpy as np  # noqa: F401
import without_tensorflow
from absl import flags
from absl.testing import flagsaver


def parse(program, commands):
    """Returns what a fork of this process, for one program, finds."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        # Under another name than `__main__`, it only defines its flags.
        if program.endswith(".py"):
            runpy.run_path(program)
        else:
            runpy.run_module(program)
        answers = [answer([program, *arguments]) for arguments in commands]
        with open(writer, "w") as stream:
            json.dump(answers, stream, default=str)
        os._exit(0)
    os.close(writer)
    with open(reader) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    if not text:
        # The traceback is on stderr.
        sys.exit(f"{program} cannot be imported.")
    return json.loads(text)


def answer(argv):
    """Returns what the flags that are defined here make of a command."""
    saved = flagsaver.save_flag_values()
    try:
        rest = flags.FLAGS(argv)
        error = f"Unexpected arguments: {rest[1:]}." if rest[1:] else None
    except flags.Error as problem:
        error = str(problem)
    values = flags.FLAGS.flag_values_dict()
    flagsaver.restore_flag_values(saved)
    return {"error": error, "values": values}


def main():
    sys.meta_path.insert(0, without_tensorflow.Refused())
    places = collections.defaultdict(list)
    commands = json.load(sys.stdin)
    for place, (program, _) in enumerate(commands):
        places[program].append(place)
    found = {}
    for program, own in places.items():
        answers = parse(program, [commands[place][1] for place in own])
        found |= zip(own, answers)
    print(json.dumps([found[place] for place in range(len(commands))]))


if __name__ == "__main__":
    main()
