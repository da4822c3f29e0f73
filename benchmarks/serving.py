r"""Times strings to answers, compared with transformers and ONNX Runtime.

    python benchmarks/serving.py --model_dir=sst2 \
        --text_file=glue/SST-2/dev.tsv --peer_python=/env/peers/bin/python \
        --onnxruntime_python=/env/onnxruntime/bin/python

--model_dir is a folder that `bert_tf classify`, `squad` or `tag` tuned, and
--text_file its development set, in the form that the program reads: sentences
with classes (TSV), SQuAD's questions with their whole contexts (JSON), or
sentences with entities (columns). A folder without a task gets a new head of
two classes, and no accuracy is measured. All sides use the same folder:

    float32           our SavedModel, run by TensorFlow
    float32_frozen    the same with --freeze
    bfloat16_frozen   the same with --precision=bfloat16 --freeze
    onnx, onnx_int8   our ONNX, by ONNX Runtime and `tokenizers`; only classes
    transformers      eager, float32: its pipeline for entities; for spans, what
                      its pipeline did before release 5 removed it
    onnxruntime, onnxruntime_int8
                      transformers' model exported by torch.onnx, in 8 bits
                      quantized as ours; only classes

A batch holds 1, 8 or 32 strings, as a server that batches the requests in
flight would make it. With --calls=1, one call answers it, with the library's
default threads. With --calls=2, it is divided between two concurrent calls from
threads of one Python process, each with half of the cores per operation, as in
a server with two threads for batches. A single string is always one call, then
with half of the cores. Each side and number of calls has its own process.

The processes take turns of 96 strings; while one answers, the others wait. (If
they changed after every batch, each would find the caches full of the others'
weights and its own threads asleep, which happens in no server.) Prints tables
in Markdown: times with the score of the answers, and our p50 and rate relative
to the others'. For classes, the probabilities of the float32 sides are also
compared.
"""

import dataclasses
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import heading
import numpy as np
import sides as sides_lib
from absl import flags

from bert_tf import checkpoints
from bert_tf import program
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import starting_point
from bert_tf.models.classifier import BertClassifier
from bert_tf.serving import exporter
from bert_tf.serving import onnx_exporter
from bert_tf.serving.kinds import opening
from bert_tf.serving.options import BFLOAT16
from bert_tf.serving.options import ExportOptions
from bert_tf.tasks import source
from bert_tf.tasks import tsv
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.question_answering import scores as squad_scores
from bert_tf.tasks.question_answering.task import SquadTask
from bert_tf.tasks.tagging import entity_scores
from bert_tf.tasks.tagging import entity_tags
from bert_tf.tasks.tagging.task import TaggingTask

_MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "A model folder.", required=True
)
_TEXT_FILE = flags.DEFINE_string(
    "text_file",
    None,
    "The development set. For a folder without a task, a TSV with a header "
    "whose first column is the text.",
    required=True,
)
_PEER_PYTHON = flags.DEFINE_string(
    "peer_python", None, "A Python with transformers and torch.", required=True
)
_ONNXRUNTIME_PYTHON = flags.DEFINE_string(
    "onnxruntime_python",
    None,
    "A Python with onnxruntime and tokenizers; this Python must then have onnx "
    "and onnxruntime. Default: skip these sides.",
)
_EXPORT_PYTHON = flags.DEFINE_string(
    "export_python",
    None,
    "A Python with transformers, torch, onnx and onnxscript. It makes the "
    "model for the onnxruntime sides. Default: --peer_python.",
)
_SIDES = flags.DEFINE_list(
    "sides", None, "Names of the sides to time. Default: all."
)
_STRINGS = flags.DEFINE_integer(
    "strings", 960, "Strings to answer for each number in flight."
)
_IN_FLIGHT = flags.DEFINE_list("in_flight", ["1", "8", "32"], "Batch sizes.")
_CALLS = flags.DEFINE_list(
    "calls",
    ["1"],
    "Numbers of concurrent calls that share a batch; each is timed.",
)

_TASK = ClassificationTask(
    name="sst-2",
    text_features=("sentence",),
    labels=("negative", "positive"),
    metrics=("accuracy",),
)
_MAX_SEQ_LENGTH = 128
_STRINGS_A_TURN = 96
_TOLERANCE = 1e-4
# {class of the task: kind of answer}; see answer_strings.py.
_KINDS = {
    ClassificationTask: "classes",
    SquadTask: "spans",
    TaggingTask: "entities",
}
_PLAIN = ExportOptions()
_OPTIONS = {
    "float32": _PLAIN,
    "float32_frozen": ExportOptions(freeze=True, check=False),
    # The table shows in the score what it costs.
    "bfloat16_frozen": ExportOptions(
        precision=BFLOAT16, freeze=True, check=False
    ),
}
_OURS = (*_OPTIONS, "onnx", "onnx_int8")
_OF_ONNX = {
    "onnx": onnx_exporter.FLOAT_FILE,
    "onnx_int8": onnx_exporter.INT8_FILE,
}
_OF_PEERS_ONNX = {
    "onnxruntime": onnx_exporter.FLOAT_FILE,
    "onnxruntime_int8": onnx_exporter.INT8_FILE,
}
_IN_FLOAT32 = (
    "float32",
    "float32_frozen",
    "onnx",
    "transformers",
    "onnxruntime",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examples:
    """Inputs and their right answers.

    Args:
        rows: Lists of one or two strings.
        wanted: The right answer of each; None if they are not known.
    """

    rows: list
    wanted: list | None


def read_examples(task, path):
    if isinstance(task, SquadTask):
        examples = task.read(path, source.DEV)
        return Examples(
            rows=[
                [question, examples.context(index)]
                for index, question in enumerate(examples.questions)
            ],
            wanted=list(examples.answers),
        )
    if isinstance(task, TaggingTask):
        examples = task.read(path, source.DEV)
        sentences = examples.by_sentence(examples.words)
        tags = examples.by_sentence(examples.tags)
        return Examples(
            rows=[[" ".join(words)] for words in sentences],
            wanted=[
                entity_tags.in_characters(words, entities)
                for words, entities in zip(
                    sentences, entity_tags.find_entities(tags)
                )
            ],
        )
    header = tsv.header(path)
    names = [name for name in task.text_features if name in header]
    names = names or header[:1]
    has_labels = "label" in header and task is not _TASK
    examples = tsv.read_tsv(
        path,
        tsv.TsvFile(
            name=path,
            text_columns=tuple(names),
            label_column="label" if has_labels else None,
        ),
        *([task.labels] if has_labels else []),
    )
    return Examples(
        rows=[list(texts) for texts in zip(*examples.texts)],
        wanted=examples.labels.tolist() if has_labels else None,
    )


def score(kind, answers, wanted):
    """Returns the score of answers, for a cell of the table."""
    if wanted is None:
        return ""
    if kind == "classes":
        hits = np.argmax(answers, axis=1) == wanted
        return f"accuracy {hits.mean():.4f}"
    if kind == "spans":
        # Of SQuAD 2.0, only questions that have an answer.
        pairs = [pair for pair in zip(answers, wanted) if pair[1]]
        found = squad_scores.scores_1_1(*zip(*pairs))
        return f"F1 {found['f1']:.2f}"
    found, right = (
        [{tuple(entity) for entity in each} for each in values]
        for values in (answers, wanted)
    )
    return f"F1 {100 * entity_scores.entity_f1(found, right):.2f}"


def make_folder(folder):
    """Makes the model folder that all sides use; returns path and task."""
    path = f"{folder}/model"
    if model_folder.read_task(_MODEL_DIR.value) is not None:
        shutil.copytree(
            _MODEL_DIR.value, path, ignore=shutil.ignore_patterns("train")
        )
        # transformers has no temperature.
        task = opening.open_folder(path).task.with_temperature(1.0)
        model_folder.write_task(path, task.to_dict())
        return path, task
    start = starting_point.find(_MODEL_DIR.value)
    model = BertClassifier(start.config, num_labels=2)
    checkpoints.load_weights(_MODEL_DIR.value, model.encoder)
    checkpoints.save(
        path,
        model,
        start.tokenizer,
        _MAX_SEQ_LENGTH,
        task=_TASK.to_dict(),
        label_names=_TASK.labels,
    )
    return path, _TASK


@dataclasses.dataclass(frozen=True)
class Setting:
    """A side, and the number of calls in which it answers a batch."""

    side: str
    num_calls: int

    def __str__(self):
        if self.num_calls == 1:
            return self.side
        return f"{self.side}, {self.num_calls} calls"


def start_sides(folder, model_dir, kind, names):
    """Starts and yields the sides of these names."""

    def start(name, python, side, path):
        script = pathlib.Path(__file__).with_name("answer_strings.py")
        for num_calls in map(int, _CALLS.value):
            command = [python, str(script), side, kind, str(path)]
            command.append(str(num_calls))
            yield sides_lib.Side(Setting(name, num_calls), command)

    for name, options in _OPTIONS.items():
        if name in names:
            exported = exporter.export(model_dir, f"{folder}/{name}", options)
            yield from start(name, sys.executable, "saved_model", exported.path)
    if names & _OF_ONNX.keys():
        exported = onnx_exporter.export(model_dir, f"{folder}/onnx", _PLAIN)
        print(exported, file=sys.stderr)
    for name, file in _OF_ONNX.items():
        if name in names:
            path = f"{exported.path}/{file}"
            yield from start(
                name, _ONNXRUNTIME_PYTHON.value, "onnxruntime", path
            )
    if "transformers" in names:
        yield from start(
            "transformers", _PEER_PYTHON.value, "transformers", model_dir
        )
    if names & _OF_PEERS_ONNX.keys():
        script = pathlib.Path(__file__).with_name("export_onnx.py")
        subprocess.run(
            [
                _EXPORT_PYTHON.value or _PEER_PYTHON.value,
                str(script),
                model_dir,
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        onnx_exporter.quantize(model_dir)
    for name, file in _OF_PEERS_ONNX.items():
        if name in names:
            path = f"{model_dir}/{file}"
            yield from start(
                name, _ONNXRUNTIME_PYTHON.value, "onnxruntime", path
            )


def measure(sides, rows, batch_size):
    """Asks the sides in turns.

    Returns:
        {setting: seconds of each batch}, {setting: the answers to the rows}.
    """
    seconds = {side.name: [] for side in sides}
    answers = {side.name: [] for side in sides}
    batches = [
        rows[start : start + batch_size]
        for start in range(0, len(rows) - batch_size + 1, batch_size)
    ]
    for side in sides:  # The first call of a size is not counted.
        for batch in batches[:3]:
            side.ask(json.dumps(batch))
    batches_a_turn = max(1, _STRINGS_A_TURN // batch_size)
    for start in range(0, len(batches), batches_a_turn):
        for side in sides:
            for batch in batches[start : start + batches_a_turn]:
                time, answered = json.loads(side.ask(json.dumps(batch)))
                seconds[side.name].append(time)
                answers[side.name] += answered
    return seconds, answers


def check_equal(answers):
    """Raises `RuntimeError` unless the float32 probabilities are equal."""
    in_float32 = [
        values
        for setting, values in answers.items()
        if setting.side in _IN_FLOAT32
    ]
    for other in in_float32[1:]:
        difference = np.abs(np.subtract(in_float32[0], other)).max()
        if difference > _TOLERANCE:
            raise RuntimeError(f"The answers differ by {difference}.")


def print_times(kind, batch_size, seconds, answers, wanted):
    """Prints one row per setting; returns {setting: (p50 ms, answers/s)}."""
    found = {}
    for setting, values in seconds.items():
        p50, p95, p99 = np.percentile(values, (50, 95, 99)) * 1000
        rate = batch_size * len(values) / sum(values)
        found[setting] = p50, rate
        told = wanted and wanted[: len(answers[setting])]
        print(
            f"| {batch_size} | {setting} | {p50:.1f} | {p95:.1f} | {p99:.1f} "
            f"| {rate:.1f} | {score(kind, answers[setting], told)} |",
            flush=True,
        )
    return found


def print_ratios(found):
    """Prints our ratios, from {in flight: what `print_times` returned}.

    Each side counts with the best of its settings, for p50 and for the rate.
    """
    print("\nFor each side and number in flight, the best of --calls:\n")
    print("| in flight | | beside | p50 | answers/s |\n|---|---|---|---|---|")
    for batch_size, by_setting in found.items():
        times = {}
        for setting, (p50, rate) in by_setting.items():
            least, most = times.get(setting.side, (p50, rate))
            times[setting.side] = min(p50, least), max(rate, most)
        for ours in [name for name in times if name in _OURS]:
            for peer in [name for name in times if name not in _OURS]:
                p50, rate = np.divide(times[ours], times[peer])
                print(
                    f"| {batch_size} | {ours} | {peer} | {p50:.2f} "
                    f"| {rate:.2f} |"
                )


def wanted_sides(kind):
    """Returns the names of the sides, a set."""
    has_classes = kind == "classes"
    names = {"transformers", *_OPTIONS}
    if has_classes and _ONNXRUNTIME_PYTHON.value is not None:
        names |= _OF_ONNX.keys() | _OF_PEERS_ONNX.keys()
    chosen = {*(_SIDES.value or names)}
    if chosen - names:
        raise ValueError(
            f"--sides must be from {', '.join(sorted(names))}. Received: "
            f"--sides={','.join(_SIDES.value)}."
        )
    return chosen


def main(_):
    if not all(calls.isdigit() and int(calls) for calls in _CALLS.value):
        raise ValueError(
            "--calls must be positive numbers. Received: "
            f"--calls={','.join(_CALLS.value)}."
        )
    pythons = {"transformers": _PEER_PYTHON.value}
    if _ONNXRUNTIME_PYTHON.value is not None:
        pythons["onnxruntime"] = _ONNXRUNTIME_PYTHON.value
    heading.show(**pythons)
    with tempfile.TemporaryDirectory() as folder:
        model_dir, task = make_folder(folder)
        kind = _KINDS[type(task)]
        examples = read_examples(task, _TEXT_FILE.value)
        order = list(range(len(examples.rows)))
        random.Random(0).shuffle(order)
        order = order * (_STRINGS.value // len(order) + 1)
        order = order[: _STRINGS.value]
        rows = [examples.rows[index] for index in order]
        wanted = examples.wanted and [examples.wanted[index] for index in order]
        sides = list(start_sides(folder, model_dir, kind, wanted_sides(kind)))
        print("| in flight | | p50 ms | p95 ms | p99 ms | answers/s | score |")
        print("|---|---|---|---|---|---|---|", flush=True)
        found = {}
        for batch_size in map(int, _IN_FLIGHT.value):
            seconds, answers = measure(sides, rows, batch_size)
            if kind == "classes":
                check_equal(answers)
            found[batch_size] = print_times(
                kind, batch_size, seconds, answers, wanted
            )
        print_ratios(found)
        for side in sides:
            side.close()


if __name__ == "__main__":
    program.run(main)
