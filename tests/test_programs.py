"""What all programs do alike: their help, and how they refuse wrong flags."""

import json
import re
import subprocess
import sys
import textwrap

import pytest

from support.paths import ROOT

PROGRAMS = sorted(
    path
    for pattern in ("bert_tf/*.py", "data/*.py", "export/**/*.py", "demo.py")
    for path in ROOT.glob(pattern)
    # bert_tf/__main__.py runs the others, and has a test of its own.
    if '__name__ == "__main__"' in path.read_text("utf-8")
    and path.stem != "__main__"
)
NAMES = [path.stem for path in PROGRAMS]
# Of a program: what it answers, and the flags, one of them out of its range.
REFUSALS = {
    "check_saved_model": (
        "--max_accuracy_loss must be from 0 to 1",
        "--export_dir=a",
        "--max_accuracy_loss=2",
    ),
    "collect_documentation": (
        "--max_examples_per_library=1",
        "--output_dir=a",
        "--max_examples_per_library=1",
    ),
    "convert_checkpoint": (
        "value should be one of <google|hugging_face|bert_tf>",
        "--init_checkpoint=a",
        "--output_dir=b",
        "--format=onnx",
    ),
    "create_pretraining_data": (
        "`masked_lm_prob` must be in (0, 1]. Received: ",
        "--input_file=a",
        "--output_file=b",
        "--vocab_file=c",
        "--masked_lm_prob=2",
    ),
    "export_saved_model": (
        "--keep_versions=0",
        "--model_dir=a",
        "--export_dir=b",
        "--keep_versions=0",
    ),
    "extract_features": (
        "--layers must be numbers",
        "--input_file=a",
        "--output_file=b",
        "--init_checkpoint=c",
        "--layers=x",
    ),
    "inspect_records": (
        "--vocab_file must be given.",
        "--input_file=no/where",
    ),
    "learn_vocabulary": (
        "no/where",
        "--input_file=no/where",
        "--output_file=b",
    ),
    "run_classifier": (
        "--learning_rate must be 0 or more. Received: ",
        "--output_dir=no/where",
        "--do_train",
        "--learning_rate=-1",
    ),
    "run_distillation": (
        "`losses` must be different names from soft_targets, masked_lm, ",
        "--teacher=no/where",
        "--input_file=a",
        "--output_dir=no/where",
        "--losses=nothing",
    ),
    "run_glue": (
        "--random_seed must be numbers with commas between. Received: ",
        "--data_dir=a",
        "--output_dir=no/where",
        "--random_seed=a",
    ),
    "run_multiple_choice": (
        "--train_file must be given.",
        "--output_dir=no/where",
        "--do_train",
    ),
    "run_playground": ("--model_dir must be given.", "--port=0"),
    "run_predict": (
        "Either --text or --input_file must be given.",
        "--model_dir=a",
    ),
    "run_pretraining": (
        "--learning_rate must be 0 or more. Received: ",
        "--input_file=a",
        "--output_dir=no/where",
        "--do_train",
        "--learning_rate=-1",
    ),
    "run_reranker": (
        "--num_negatives must be given with --loss_name=softmax.",
        "--output_dir=no/where",
        "--train_file=a.tsv",
        "--do_train",
        "--num_negatives=3",
    ),
    "run_retrieval": (
        "--matryoshka_sizes must be numbers with commas between. Received: ",
        "--output_dir=no/where",
        "--train_file=a",
        "--do_train",
        "--matryoshka_sizes=8,a",
    ),
    "run_search": (
        "--range_min must be from 0 to 99. Received: ",
        "--model_dir=a",
        "--work_dir=b",
        "--squad_files=c",
        "--do_mine",
        "--range_min=100",
    ),
    "run_squad": (
        "--predict_file must be given.",
        "--output_dir=no/where",
        "--do_eval",
    ),
    "run_tagger": (
        "--warmup_proportion must be from 0 to 1. Received: ",
        "--output_dir=a",
        "--do_train",
        "--warmup_proportion=2",
    ),
    "serve_input": (
        "--port=-1",
        "--port=-1",
    ),
}
# Of a fine-tuning program: flags that it asks for before the others.
ALSO_NEEDED = {
    "run_distillation": ("--teacher=a", "--data_dir=b"),
    "run_glue": ("--data_dir=a", "--init_checkpoint=b"),
}


def command_of(path, *arguments):
    # The clients are copied out of the repository, and so run as files.
    if path.parent == ROOT / "bert_tf":
        return [f"bert_tf.{path.stem}", *arguments]
    return [str(path), *arguments]


@pytest.fixture(scope="module")
def answers():
    """{(program, "help", "unknown" or "refused"): what it answers}."""
    commands = {}
    for path in PROGRAMS:
        commands[path.stem, "help"] = command_of(path, "--help")
        commands[path.stem, "unknown"] = command_of(path, "--no_such_flag=1")
        if path.stem in REFUSALS:
            _, *flags = REFUSALS[path.stem]
            commands[path.stem, "refused"] = command_of(path, *flags)
        source = path.read_text("utf-8")
        if "make_config" in source or "check_may_be_written_into" in source:
            commands[path.stem, "in the way"] = command_of(
                path,
                f"--output_dir={__file__}",
                "--do_predict" if path.stem == "run_glue" else "--do_eval",
                *ALSO_NEEDED.get(path.stem, ()),
            )
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "support" / "without_tensorflow.py"],
        input=json.dumps(list(commands.values())),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(zip(commands, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("path", PROGRAMS, ids=NAMES)
def test_help_shows_all_flags_and_the_commands_as_written(answers, path):
    answer = answers[path.stem, "help"]
    assert answer["stderr"] == ""
    source = path.read_text("utf-8")
    if "program.run(main)" in source:
        assert answer["status"] == 0
    for line in source.split('"""')[1].splitlines():
        assert line in answer["stdout"]
    shared = [path]
    for name in ("training_flags", "fine_tuning_flags"):
        if f"import {name}" in source:
            shared.append(ROOT / "bert_tf" / f"{name}.py")
    if "fine_tuning_flags" in source:
        shared.append(ROOT / "bert_tf" / "tuning" / "config.py")
    if "define_files()" in source:
        shared.append(ROOT / "bert_tf" / "tuning" / "data_files.py")
    for dataclass, name in (
        ("Settings", "pretraining/settings"),
        ("PretrainingOptions)", "runs/options"),
        ("PretrainingOptions)", "training/options"),
        ("SearchOptions", "tasks/retrieval/search_options"),
        ("options.RetrievalOptions", "tasks/retrieval/options"),
        ("RerankingOptions", "tasks/reranking/options"),
        ("SquadOptions", "tasks/question_answering/options"),
    ):
        if f"define_flags({dataclass}" in source:
            shared.append(ROOT / "bert_tf" / f"{name}.py")
    text = "".join(path.read_text("utf-8") for path in shared)
    defined = {
        *re.findall(r'DEFINE_\w+\(\s*"(\w+)"', text),
        *re.findall(r'add_argument\(\s*"--(\w+)"', text),
        *re.findall(
            r"^    (\w+): .*= (?:_flag|_rule|_option|described\.option)\(",
            text,
            re.MULTILINE,
        ),
    }
    shown = set(re.findall(r"--(?:\[no\])?(\w+)", answer["stdout"]))
    assert defined - {"masking_mode"} <= shown


# The REST client has none, and asks for its arguments first.
@pytest.mark.parametrize("name", sorted({*NAMES} - {"rest_client"}))
def test_unknown_flags_are_refused_at_once(answers, name):
    answer = answers[name, "unknown"]
    assert answer["status"] in (1, 2)
    assert "no_such_flag" in answer["stderr"]
    assert "Traceback" not in answer["stderr"]


@pytest.mark.parametrize("name", REFUSALS)
def test_values_out_of_range_are_refused_at_once(answers, name):
    answer = answers[name, "refused"]
    assert answer["status"] == 1
    assert answer["stdout"] == ""
    (line,) = answer["stderr"].splitlines()
    assert REFUSALS[name][0] in line


def test_folders_that_cannot_be_written_are_refused_at_once(answers):
    told = {
        name: answer["stderr"].strip()
        for (name, kind), answer in answers.items()
        if kind == "in the way"
    }
    assert len(told) == 8
    for name, line in told.items():
        assert line.endswith(
            f"{name}.py: error: {__file__} must be a folder, but a file is in "
            "the way."
        )


_INTERRUPTED = """
import os
import signal
from bert_tf import program

# Whoever runs the tests in the background has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
program.run(lambda argv: os.kill(os.getpid(), signal.SIGINT))
"""


@pytest.mark.parametrize("module", ["bert_tf", "bert_tf.run_pretraining"])
def test_help_may_be_read_in_part(module):
    """As by `| head -1`."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 1


def test_ctrl_c_is_one_line():
    process = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True
    )
    assert process.returncode == 130
    assert process.stderr == "-c: stopped by Ctrl-C\n"


def run_main(body):
    """Runs a program whose `main` is this, in a process of its own."""
    code = (
        "import json, os, signal, time\n"
        "from bert_tf import program\n"
        f"def main(_):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
        # Started in the background it may be ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "program.run(main)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("statement", "answer"),
    [
        ("raise ValueError('Too long.')", "Too long."),
        # It may be a mistake of ours, and no bad input.
        (
            "json.loads('{')",
            r"Expecting .* BERT_TF_TRACEBACK=1 shows the trace.",
        ),
        (
            r"import shutil; shutil.make_archive('a', 'b\n\nc')",
            r"unknown .* 'b c'. BERT_TF_TRACEBACK=1 shows the trace.",
        ),
    ],
)
def test_a_refusal_tells_where_the_trace_of_others_is(statement, answer):
    done = run_main(statement)
    assert done.returncode == 1
    assert re.fullmatch(f"-c: error: {answer}\n", done.stderr)


def test_an_object_store_that_cannot_be_reached_is_one_line():
    done = run_main(
        """
        from bert_tf import files
        files.exists("nostore://bucket/vocab.txt")
        """
    )
    assert done.returncode == 1
    # After what TensorFlow says when it is loaded.
    assert re.fullmatch(
        r"-c: error: .*'nostore' not implemented .*nostore://bucket/vocab.txt.*"
        r" BERT_TF_TRACEBACK=1 shows the trace\.",
        done.stderr.splitlines()[-1],
    )


def test_sigterm_ends_a_program_that_cleans_up():
    process = run_main(
        """
        program.end_at_sigterm()
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(20)
        finally:
            print('cleaned up')
        """
    )
    assert process.returncode == 143
    assert process.stdout == "cleaned up\n"
    assert process.stderr.endswith(": stopped by SIGTERM\n")


@pytest.mark.parametrize(
    "module",
    [
        "bert_tf.data.create_pretraining_data",
        "bert_tf.export.check_saved_model",
        "bert_tf.export.convert_checkpoint",
        "bert_tf.export.export_saved_model",
        "bert_tf.extract_features",
        "bert_tf.run_predict",
        "bert_tf.run_search",
    ],
)
def test_sigterm_ends_what_writes_for_long_as_an_error_does(module):
    # Before it looks at its flags, of which it is given none.
    process = subprocess.run(
        [
            *(sys.executable, "-c"),
            "import os, signal\n"
            f"from {module} import main, program\n"
            "def require(**_):\n"
            "    os.kill(os.getpid(), signal.SIGTERM)\n"
            "program.require = require\n"
            "program.run(main)\n",
        ],
        capture_output=True,
        text=True,
    )
    assert process.returncode == 143
    assert process.stderr.endswith(": stopped by SIGTERM\n")
