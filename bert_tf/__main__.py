"""All programs under one name.

    bert_tf pretrain --input_file=wiki.tfrecord --output_dir=wiki --do_train

is `python -m bert_tf.run_pretraining` with the same flags, and so on.
`bert_tf --help` lists the commands; `bert_tf pretrain --help` shows the flags
of one.
"""

import ast
import importlib
import importlib.util
import pathlib
import sys
from typing import NoReturn

from bert_tf import program

# In the order of use: text, records, models, answers.
COMMANDS = {
    "collect-documentation": "bert_tf.data.collect_documentation",
    "learn-vocabulary": "bert_tf.data.learn_vocabulary",
    "create-data": "bert_tf.data.create_pretraining_data",
    "inspect-data": "bert_tf.data.inspect_records",
    "serve-data": "bert_tf.data.serve_input",
    "pretrain": "bert_tf.run_pretraining",
    "distill": "bert_tf.run_distillation",
    "classify": "bert_tf.run_classifier",
    "glue": "bert_tf.run_glue",
    "squad": "bert_tf.run_squad",
    "tag": "bert_tf.run_tagger",
    "choose": "bert_tf.run_multiple_choice",
    "rerank": "bert_tf.run_reranker",
    "retrieval": "bert_tf.run_retrieval",
    "predict": "bert_tf.run_predict",
    "playground": "bert_tf.run_playground",
    "search": "bert_tf.run_search",
    "extract-features": "bert_tf.extract_features",
    "convert": "bert_tf.export.convert_checkpoint",
    "export": "bert_tf.export.export_saved_model",
    "check": "bert_tf.export.check_saved_model",
}


def main() -> None:
    """Runs the command named by the first argument with the other arguments."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h", "help"):
        with program.help_printed():
            print(_help())
        return
    if name not in COMMANDS:
        _refuse(f"unknown command {name!r}. bert_tf --help lists them.")
    sys.argv = [f"bert_tf {name}", *arguments]
    with program.interrupt_reported():
        module = importlib.import_module(COMMANDS[name])
        # absl's help shows the docstring of `__main__`.
        sys.modules["__main__"].__doc__ = module.__doc__
        program.run(module.main)


def _refuse(reason) -> NoReturn:
    print(f"bert_tf: error: {reason}", file=sys.stderr)
    sys.exit(program.BAD_INPUT_EXIT_CODE)


def _help():
    width = max(map(len, COMMANDS))
    lines = [
        f"  {name:{width}}  {_summary(module)}"
        for name, module in COMMANDS.items()
    ]
    return "\n".join(
        (
            "BERT from raw text to a served SavedModel.",
            "",
            "    bert_tf COMMAND [--flag=value ...]",
            "",
            *lines,
            "",
            "bert_tf COMMAND --help shows what a command does, and its flags.",
        )
    )


def _summary(module):
    """Returns the first line of a program's docstring without running it."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(pathlib.Path(spec.origin).read_text("utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n")[0]


if __name__ == "__main__":
    main()
