"""Parses programs' flags where TensorFlow and Keras cannot be imported.

    python flag_parser.py < commands.json

Of the commands, [[module or path, [argument, ...]], ...], prints a list of
{"error": None or what is wrong with the flags, "values": {flag: value}}: what
the program's own definitions and validators make of them. Nothing is run.
"""

import json
import os
import runpy
import sys

import numpy as np  # noqa: F401
import without_tensorflow
from absl import flags


def parse(program, arguments):
    """Returns what a fork of this process, for one program, finds."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        # Under another name than `__main__`, it only defines its flags.
        if program.endswith(".py"):
            runpy.run_path(program)
        else:
            runpy.run_module(program)
        answer = {"error": None, "values": {}}
        try:
            rest = flags.FLAGS([program, *arguments])
        except flags.Error as error:
            answer["error"] = str(error)
        else:
            if rest[1:]:
                answer["error"] = f"Unexpected arguments: {rest[1:]}."
            answer["values"] = flags.FLAGS.flag_values_dict()
        with open(writer, "w") as stream:
            json.dump(answer, stream, default=str)
        os._exit(0)
    os.close(writer)
    with open(reader) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    if not text:
        # The traceback is on stderr.
        return {"error": f"{program} cannot be imported.", "values": {}}
    return json.loads(text)


if __name__ == "__main__":
    sys.meta_path.insert(0, without_tensorflow.Refused())
    print(json.dumps([parse(*command) for command in json.load(sys.stdin)]))
