"""Runs programs one after the other in this process, for test_remote_paths.py.

    python tests/remote_programs.py commands.json

The file holds a list of [module, argument, ...]. TensorFlow's ram:// is a file
system of one process: it stands in for an object store, and programs that hand
files to each other through it must share the process. `copy` in the place of a
module copies a file or a folder, `serve` calls a servable.
"""

import json
import os
import runpy
import sys

import tensorflow as tf
from absl import flags

import bert_tf


def run_program(module, *arguments):
    # A program's flags are there once: those of the one before go.
    for name in set(flags.FLAGS) - run_program.first_flags:
        delattr(flags.FLAGS, name)
    flags.FLAGS.unparse_flags()
    for name in ("training_flags", "fine_tuning_flags"):
        sys.modules.pop(f"bert_tf.{name}", None)
        flags.FLAGS.flags_by_module_dict().pop(f"bert_tf.{name}", None)
        vars(bert_tf).pop(name, None)
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as stop:
        if stop.code:
            sys.exit(f"{module} exited with {stop.code}")


run_program.first_flags = set(flags.FLAGS)


def copy(source, target):
    if not tf.io.gfile.isdir(source):
        tf.io.gfile.makedirs(os.path.dirname(target))
        tf.io.gfile.copy(source, target)
        return
    for name in tf.io.gfile.listdir(source):
        name = name.rstrip("/")
        copy(f"{source}/{name}", f"{target}/{name}")


def serve(folder, text, target):
    import tensorflow_text  # noqa: F401

    model = tf.saved_model.load(folder)
    answers = model.signatures["serving_default"](sentence=tf.constant([text]))
    with open(target, "w", encoding="utf-8") as stream:
        json.dump(answers["probabilities"].numpy().tolist(), stream)


def main(path):
    with open(path, encoding="utf-8") as stream:
        commands = json.load(stream)
    for name, *arguments in commands:
        print(name, *arguments, flush=True)
        run = {"copy": copy, "serve": serve}.get(name)
        if run is not None:
            run(*arguments)
        else:
            run_program(name, *arguments)


if __name__ == "__main__":
    main(sys.argv[1])
