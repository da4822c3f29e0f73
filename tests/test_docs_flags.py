"""The documents' commands, those that are not run too: flags, ports, names.

`make docs-check` runs the others; here they are only parsed, by the programs'
own definitions.
"""

import json
import re
import subprocess
import sys

import pytest

from bert_tf.__main__ import COMMANDS
from support import pages
from support.paths import ROOT

STEPS = [
    step
    for page in pages.PAGES
    for step in pages.steps(page)
    if step.kind != "python"
]
# Of absl, TensorBoard, pip, TensorFlow Serving and google-research/bert.
OTHERS = {
    *("help", "logdir", "no-deps", "use_one_hot_embeddings"),
    *("tensorflow_intra_op_parallelism", "tensorflow_inter_op_parallelism"),
    "allow_version_labels_for_unavailable_models",
    *("xla_cpu_compilation_enabled", "tf_xla_cpu_global_jit"),
    # Of Python.
    "version",
}
SERVING = ROOT / "export" / "serving"


def read(path):
    return (ROOT / path).read_text("utf-8")


def lines_of(program):
    """Returns [(step, words)] of the commands of a program that is not ours."""
    return [
        (step, words)
        for step in STEPS
        for words in step.commands
        if words[0] == program
    ]


@pytest.fixture(scope="module")
def commands():
    """[(what it is of, what its flags are parsed to)], all programs at last."""
    told = [(step, command) for step in STEPS for command in step.programs]
    assert len(told) > 40
    told += [(None, (name, [])) for name in COMMANDS.values()]
    told.append((None, ("export/serving/grpc_client.py", [])))
    parsed = pages.parse_flags([command for _, command in told])
    return [(step, answer) for (step, _), answer in zip(told, parsed)]


def test_every_flag_is_one_of_its_program(commands):
    wrong = [
        f"{step}\n{answer['error']}"
        for step, answer in commands
        if step is not None and answer["error"]
    ]
    assert not wrong, "\n".join(wrong)


# The flags of google-research/bert's programs, by those of ours; most have all.
GOOGLE_SHARED = {"bert_config_file", "init_checkpoint", "max_seq_length"} | {
    *("use_tpu", "master", "num_tpu_cores")
}
GOOGLE_TRAINED = GOOGLE_SHARED | {
    *("output_dir", "do_train", "train_batch_size", "learning_rate"),
    *("save_checkpoints_steps", "iterations_per_loop"),
    *("tpu_name", "tpu_zone", "gcp_project"),
}
GOOGLE_TUNED = GOOGLE_TRAINED | {
    *("vocab_file", "do_lower_case", "do_predict", "predict_batch_size"),
    *("num_train_epochs", "warmup_proportion"),
}
GOOGLE = {
    "bert_tf.data.create_pretraining_data": {
        *("input_file", "output_file", "vocab_file", "do_lower_case"),
        *("do_whole_word_mask", "max_seq_length", "max_predictions_per_seq"),
        *("random_seed", "dupe_factor", "masked_lm_prob", "short_seq_prob"),
    },
    "bert_tf.run_pretraining": GOOGLE_TRAINED
    | {"input_file", "max_predictions_per_seq", "do_eval", "eval_batch_size"}
    | {"num_train_steps", "num_warmup_steps", "max_eval_steps"},
    "bert_tf.run_classifier": GOOGLE_TUNED
    | {"data_dir", "task_name", "do_eval", "eval_batch_size"},
    "bert_tf.run_squad": GOOGLE_TUNED
    | {"train_file", "predict_file", "doc_stride", "max_query_length"}
    | {"n_best_size", "max_answer_length", "verbose_logging"}
    | {"version_2_with_negative", "null_score_diff_threshold"},
    "bert_tf.extract_features": GOOGLE_SHARED
    | {"input_file", "output_file", "layers", "vocab_file", "do_lower_case"}
    | {"batch_size", "use_one_hot_embeddings"},
}


def test_flags_of_google_are_ours_or_its_page_names_them():
    parsed = pages.parse_flags([(name, []) for name in GOOGLE])
    missing = [
        name
        for answer, names in zip(parsed, GOOGLE.values(), strict=True)
        for name in sorted(names - answer["values"].keys())
    ]
    page = read("docs/from_google_bert.md")
    differences = page.partition("## Differences")[2]
    assert [name for name in missing if f"--{name}`" not in differences] == []
    # Of the program of new weights alone.
    assert "needs `--vocab_file`" in differences


def test_every_flag_of_the_prose_is_one_of_a_program(commands):
    known = OTHERS.union(*(answer["values"] for _, answer in commands))
    for path in (ROOT / "benchmarks").glob("*.py"):
        text = path.read_text("utf-8")
        known |= {*re.findall(r'DEFINE_\w+\(\s*"(\w+)"', text)}
    wrong = []
    for page in pages.PAGES:
        text = page.read_text("utf-8")
        prose = re.sub("```.*?```", "", text, flags=re.DOTALL)
        for code in re.findall("`([^`]+)`", prose):
            for name in re.findall(r"(?<!\S)--([\w-]+)", code):
                if not {name, name.removeprefix("no")} & known:
                    wrong.append(f"{page}: --{name}")
    assert wrong == []


def test_what_is_not_run_passes_its_programs_own_checks():
    commands = [
        (step, command)
        for step in STEPS
        if step.kind == "bash" and not step.is_run
        for command in step.programs
    ]
    assert len(commands) > 5
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "support" / "without_tensorflow.py"],
        input=json.dumps([[name, *told] for _, (name, told) in commands]),
        capture_output=True,
        text=True,
        check=True,
    )
    for (step, _), answer in zip(commands, json.loads(done.stdout)):
        # What has no TensorFlow here, and imports it, has checked its flags.
        last_line = answer["stderr"].strip().rpartition("\n")[2]
        assert last_line.startswith("ImportError: "), f"{step}\n{last_line}"


def test_a_wrong_flag_is_found():
    wrong = [
        ("bert_tf.run_pretraining", ["--input_files=a"]),
        ("bert_tf.run_pretraining", ["--train_batch_size=many"]),
        ("bert_tf.run_pretraining", ["--max_position_embeddings=0"]),
        ("bert_tf.run_pretraining", ["a"]),
    ]
    right = ["--input_file=a", "--output_dir=b", "--train_batch_size=3"]
    *refused, taken = pages.parse_flags(
        [*wrong, ("bert_tf.run_pretraining", right)]
    )
    for answer, (_, (argument,)) in zip(refused, wrong, strict=True):
        assert argument.strip("-").partition("=")[0] in answer["error"]
    assert taken["error"] is None
    assert taken["values"]["train_batch_size"] == 3
    assert taken["values"]["num_train_steps"] == 100_000


def test_make_knows_its_targets():
    targets = re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE)
    told = [target for _, words in lines_of("make") for target in words[1:2]]
    for page in pages.PAGES:
        told += re.findall(r"`make ([\w-]+)", page.read_text("utf-8"))
    assert {"demo", "docs-check", "release-check"} <= {*told}
    assert {*told} <= {*targets}


def test_folders_are_there():
    for step, words in lines_of("cd"):
        assert (ROOT / words[1]).is_dir(), step


def test_pip_finds_extras_and_files():
    extras = re.findall(r'^        "(\w+)": \[', read("setup.py"), re.MULTILINE)
    told = lines_of("pip")
    for step, words in told:
        assert words[1] == "install", step
        for option, name in zip(words, words[1:]):
            assert option != "-r" or (ROOT / name).exists(), step
    assert told
    for page in pages.PAGES:
        text = page.read_text("utf-8")
        for listed in re.findall(r"'(?:\.|bert_tf)\[([\w,]+)\]'", text):
            assert {*listed.split(",")} <= {*extras}, page


def test_servers_have_the_ports_and_the_image_of_the_configuration():
    compose = (SERVING / "docker-compose.yml").read_text("utf-8")
    (image,) = re.findall(r"image: (\S+)", compose)
    ports = re.findall(r'"(\d+):\d+"', compose)
    runs = [each for each in lines_of("docker") if each[1][1] == "run"]
    assert runs
    for step, words in runs:
        assert words[-1] == image, step
        given = [
            each for option, each in zip(words, words[1:]) if option == "-p"
        ]
        assert given == [f"{port}:{port}" for port in ports], step
        name = re.search(r"MODEL_NAME=(\w+)", step.text)[1]
        folder, target = re.search(r"\$PWD/(\S+):(/\S+):ro", step.text).groups()
        assert target == f"/models/{name}", step
        assert f"--export_dir={folder}" in read(step.page), step


@pytest.mark.parametrize(
    "step, words",
    lines_of("curl"),
    ids=lambda value: getattr(value, "page", ""),
)
def test_requests_are_of_the_server_of_their_page(step, words):
    compose = (SERVING / "docker-compose.yml").read_text("utf-8")
    (port,) = re.findall(r'"(\d+):\d+" # REST', compose)
    if words[1].endswith("/metrics"):
        (path,) = re.findall(
            'path: "(.+)"', read(SERVING / "monitoring.config")
        )
        assert words[1] == f"http://localhost:{port}{path}"
        return
    path = rf"http://localhost:{port}/v1/models/(\w+)(/labels/\w+)?(:predict)?"
    name, label, is_request = re.fullmatch(path, words[1]).groups()
    if label:
        labels = read(SERVING / "models_two_versions.config")
        assert f'key: "{label.removeprefix("/labels/")}"' in labels
    configured = (SERVING / "models.config").read_text("utf-8")
    assert f"MODEL_NAME={name}" in read(step.page) or (
        f'name: "{name}"' in configured
        and re.search(r"compose\b.*?\bup\n", read(step.page), re.DOTALL)
    )
    if is_request:
        (instance,) = json.loads(words[words.index("-d") + 1])["instances"]
        assert all(isinstance(text, str) for text in instance.values())


SHELL = """# A comment
cd a

for x in a b; do
    bert_tf convert --init_checkpoint=$x,y \\
        --output_dir=b > c
done
X=1 bert_tf predict --text='a
b' | head
"""


def test_lines_go_on_and_loops_are_whole():
    commands = pages._commands(1, SHELL)
    found = [
        pages.Step(page="page.md", line=line, kind="bash", text=text)
        for line, text in commands
    ]
    assert [step.line for step in found] == [2, 4, 8]
    assert [step.is_run for step in found] == [False, True, True]
    assert [step.is_for_a_shell for step in found] == [False, True, True]
    assert [step.programs for step in found] == [
        [],
        [
            (
                "bert_tf.export.convert_checkpoint",
                ["--init_checkpoint=$x,y", "--output_dir=b"],
            )
        ],
        [("bert_tf.run_predict", ["--text=a\nb"])],
    ]
