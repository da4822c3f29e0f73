"""The check finds differences, and people can read its tables."""

import contextlib
import dataclasses
import functools
import itertools
import os
import pathlib
import subprocess
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from bert_tf.serving import options as options_lib
from bert_tf.serving import saved_model
from bert_tf.serving.graph import chunks
from bert_tf.serving.kinds import fill_mask as fill_mask_lib
from bert_tf.serving.kinds import opening
from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.serving.kinds.classification import Classification
from bert_tf.serving.kinds.hub import Encoder
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.kinds.question_answering import QuestionAnswering
from bert_tf.serving.kinds.tagging import Tagging
from bert_tf.serving.proof import caller
from bert_tf.serving.proof import check
from bert_tf.serving.proof import progress
from bert_tf.serving.proof import report
from bert_tf.tasks import fill_mask
from bert_tf.text.preprocessor import Preprocessor
from support import serving_models


def test_a_small_difference_is_found_and_placed(monkeypatch):
    monkeypatch.setattr(caller, "calling", serving_models.calling)
    path = serving_models.exported("encoder", "ids")
    servable = check.trained_servable(
        saved_model.read_options(path), serving_models.model_dir("encoder")
    )
    # One word, in one of the texts.
    row = serving_models.VOCABULARY.index("quick")
    table = servable.model.embeddings.word_embeddings
    values = table.value.numpy()
    values[row, 0] += 0.01
    table.assign(values)
    texts = [(b"lorem",), (b"the quick one",), (b"",)]
    _, comparisons = check.compare(path, servable, texts)
    for comparison in comparisons:
        assert not comparison.is_equal
        assert 1e-4 < comparison.max_difference < 1
        assert comparison.worst.endswith("of b'the quick one'")
    table = report.comparisons_table("2.0", comparisons)
    assert table.count("DIFFERENT") == len(comparisons) == 2


@pytest.mark.parametrize(
    "answer, difference",
    [
        ([[0.25, 0.75]], 0.0),
        ([[0.25, 0.7500001]], 1.2e-7),
        ([[0.25, np.nan]], np.inf),
        ([[0.25, 0.75, 0.0]], np.inf),
        (np.array([[b"a", b"b"]], object), np.inf),
    ],
)
def test_differences(answer, difference):
    answer = np.asarray(answer)
    if answer.dtype != object:
        answer = answer.astype("float32")
    expected = {"probabilities": np.array([[0.25, 0.75]], "float32")}
    if answer.dtype == object:
        expected = {"probabilities": np.array([[b"a", b"c"]], object)}
    dtype = "string" if answer.dtype == object else "float32"
    declared = {"probabilities": Output("probabilities", dtype, "classes", "")}
    found = check._difference(
        {"probabilities": answer}, expected, [(b"text",)], declared, True
    )
    assert found.largest == pytest.approx(difference, rel=0.1)


def test_differences_of_large_numbers_are_relative():
    expected = {"scores": np.array([400.0, 0.5], "float32")}
    answer = {"scores": np.array([400.004, 0.5], "float32")}
    declared = {"scores": Output("scores", "float32", "", "")}
    texts = [(b"a",), (b"b",)]
    found = check._difference(answer, expected, texts, declared, True)
    assert found.largest == pytest.approx(1e-5, rel=0.1)
    assert found.where == "scores of b'a'"


def test_an_answer_of_another_dtype_differs():
    # Equal numbers: a client that was compiled for int32 cannot read them.
    declared = {"starts": Output("starts", "int32", "", "")}
    answer, texts = {"starts": np.array([3, 5])}, [(b"a",), (b"b",)]
    found = check._difference(answer, answer, texts, declared, True)
    assert found[:2] == (np.inf, "starts: int64 for int32")


@functools.cache
def trained_model(kind):
    """Returns the servable of a model that no test changes."""
    return serving_models.servable(kind)


@pytest.fixture
def compare(monkeypatch):
    """Returns a function: the check of an export that answers in this process.

    `change(signature, answers)` returns what is answered instead.
    """

    def run(kind, texts, change=lambda name, answers: answers, **arguments):
        servable = arguments.get("servable") or trained_model(kind)
        signatures = serving_models.loaded(kind).signatures

        @contextlib.contextmanager
        def calling(path, requests, *arguments, **others):
            answered = []
            for name, inputs in requests:
                answers = signatures[name](
                    **{key: tf.constant(value) for key, value in inputs.items()}
                )
                answers = {key: each.numpy() for key, each in answers.items()}
                answered.append(change(name, answers))
            yield tf.__version__, iter(answered)

        monkeypatch.setattr(caller, "calling", calling)
        path = arguments.get("path", serving_models.exported(kind))
        _, comparisons = check.compare(path, servable, texts)
        return {each.signature: each for each in comparisons}

    return run


TEXTS = [
    (b"lorem " * count, b"the quick"[:count])
    for count in range(chunks.CHUNK_SIZE + 1)
]


def test_all_signatures_of_an_equal_export_are_equal(compare):
    found = compare("pair", TEXTS)
    assert set(found) == {
        *("serving_default", "ids", "examples", "ids_examples", "classify")
    }
    assert all(comparison.is_equal for comparison in found.values())


def test_a_signature_that_the_model_does_not_have_differs(compare, monkeypatch):
    # That of another folder: of a regression the method is another.
    present = saved_model.read_signatures(serving_models.exported("pair"))
    present["regress"] = present.pop("classify")
    monkeypatch.setattr(saved_model, "read_signatures", lambda path: present)
    found = compare("pair", TEXTS).values()
    different = [each for each in found if not each.is_equal]
    assert {each.signature: each.worst for each in different} == {
        "classify": "the signature is missing",
        "regress": "no such signature is known",
    }


def test_a_long_comparison_says_how_far_it_is(compare, monkeypatch, caplog):
    batches = [TEXTS[:1]] * 5
    monkeypatch.setattr(check, "make_batches", lambda texts: batches)

    def notes():
        return [line for line in caplog.messages if ": text " in line]

    # Made before: TensorFlow sets the level when it saves.
    serving_models.loaded("pair")
    with caplog.at_level("INFO", "absl"):
        compare("pair", TEXTS[:5])
        assert notes() == []
        # Ten seconds from one look at the clock to the next.
        clock = itertools.count(step=10.0)
        monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
        compare("pair", TEXTS[:5])
    assert notes() == [
        "Preparing the check: text 3 of 5 (0m30s)",
        "Comparing answers: text 3 of 5 (0m30s)",
    ]


def test_a_missing_output_is_a_difference(compare):
    def change(name, answers):
        if name == "examples":
            del answers["probabilities"]
        return answers

    found = compare("pair", TEXTS[:2], change)
    different = [name for name in found if not found[name].is_equal]
    assert different == ["examples"]
    assert found["examples"].worst == "probabilities: missing"


def test_an_output_that_is_not_known_is_a_difference(compare):
    found = compare(
        "pair", TEXTS[:2], lambda _, answers: answers | {"x": np.zeros(2)}
    )
    assert not any(comparison.is_equal for comparison in found.values())
    assert found["ids"].worst == "x: no such output is known"


def test_a_missing_signature_is_a_difference(compare, tmp_path):
    path = serving_models.exported("pair")
    stored = saved_model_pb2.SavedModel()
    graph = pathlib.Path(path, saved_model.FILE).read_bytes()
    stored.ParseFromString(graph)
    del stored.meta_graphs[0].signature_def["classify"]
    (tmp_path / saved_model.FILE).write_bytes(stored.SerializeToString())
    extra = f"{saved_model.EXTRA_FOLDER}/{saved_model.SETTINGS_FILE}"
    (tmp_path / saved_model.EXTRA_FOLDER).mkdir()
    (tmp_path / extra).write_text(pathlib.Path(path, extra).read_text())
    found = compare("pair", TEXTS[:2], path=str(tmp_path))
    assert [name for name in found if not found[name].is_equal] == ["classify"]
    assert found["classify"].worst == "the signature is missing"
    table = report.comparisons_table("2.0", list(found.values()))
    assert "the signature is missing" in table


def test_a_wrong_last_row_is_a_difference(compare):
    def change(name, answers):
        scores = answers["probabilities" if name != "classify" else "scores"]
        scores[-1] = scores[0]
        return answers

    found = compare("pair", TEXTS, change)
    assert not any(comparison.is_equal for comparison in found.values())


@pytest.mark.parametrize("max_seq_length", [19, 64, 128, 512])
def test_a_batch_has_masks_of_more_than_a_chunk(max_seq_length):
    preprocessor = Preprocessor.from_folder(
        serving_models.model_dir("pretrainer"), max_seq_length
    )
    servable = serving_models.make_servable(
        fill_mask_lib.FillMask, preprocessor=preprocessor
    )
    batches = check.make_batches(servable.hard_texts())
    counts = [
        np.count_nonzero(
            fill_mask.find_masks(
                servable.encode(batch), preprocessor.vocabulary
            )
        )
        for batch in batches
    ]
    chunk_size = fill_mask_lib._MASKS_OF_CHUNK
    assert any(
        count > chunk_size and count % chunk_size != 0 for count in counts
    )


@pytest.mark.parametrize(
    "kind, contents",
    [
        *((kind, "text") for kind in ("pair", "squad", "tagger", "choice")),
        *((kind, "text") for kind in ("encoder", "regression")),
        *((kind, "ids") for kind in ("pair", "encoder", "regression")),
    ],
)
def test_what_exports_have_is_what_the_check_wants(kind, contents):
    assert_declared(
        serving_models.exported(kind, contents),
        serving_models.servable(kind, contents=contents),
    )


@pytest.mark.parametrize(
    "kind", ["fill_mask", "embedding", "token_embeddings", "preprocessor"]
)
def test_what_other_kinds_have_is_what_the_check_wants(kind):
    model, options = serving_models.EXPORTS[kind]
    assert_declared(
        serving_models.exported(kind),
        opening.open_folder(serving_models.model_dir(model), options),
    )


def assert_declared(path, servable):
    """Names, dtypes and numbers of axes are those that the kind declares."""
    described = saved_model.read_signatures(path)
    assert {
        name: {
            key: (tf.as_dtype(value.dtype).name, len(value.tensor_shape.dim))
            for key, value in signature.outputs.items()
        }
        for name, signature in described.items()
    } == {
        name: {
            output.name: (output.dtype, 1 + len(output.axes.split()))
            for output in outputs
        }
        for name, outputs in servable.outputs.items()
    }


def in_bfloat16(monkeypatch):
    settings = saved_model.read_settings
    monkeypatch.setattr(
        saved_model,
        "read_settings",
        lambda path: settings(path) | {"precision": options_lib.BFLOAT16},
    )


def test_other_labels_in_bfloat16_are_bounded(compare, monkeypatch):
    in_bfloat16(monkeypatch)
    # Of these the model, calibrated, is sure.
    texts = TEXTS[1:7] * 4
    others = dict(zip(serving_models.PAIR_TASK.labels, ("ja", "nein", "ja")))
    others = {old.encode(): new.encode() for old, new in others.items()}

    def change_rows(num_rows):
        def change(name, answers):
            if name == "serving_default":
                labels = answers["labels"]
                wrong = [others[label] for label in labels[:num_rows]]
                answers["labels"][:num_rows] = wrong
            return answers

        return change

    # One of each batch, two of 24 texts; then all.
    found = compare("pair", texts, change_rows(1))
    assert found["serving_default"].is_equal
    assert found["serving_default"].num_wrong == 2
    table = report.comparisons_table("2.0", list(found.values()))
    assert "2 changed (8.3%)" in table
    found = compare("pair", texts, change_rows(24))
    assert [name for name in found if not found[name].is_equal] == [
        "serving_default"
    ]
    assert found["serving_default"].num_changed == 24
    assert found["serving_default"].worst.startswith("24 texts")
    assert found["ids"].num_changed == 0


def test_labels_that_the_model_cannot_tell_are_counted_only():
    trained = {
        "labels": np.array([b"nein", b"ja", b"ja"], object),
        "probabilities": np.array(
            [[0.36, 0.3, 0.34], [0.2, 0.7, 0.1], [0.0, 1.0, 0.0]], "float32"
        ),
    }
    servable = trained_model("pair")
    answer = trained | {
        "labels": np.array(["vielleicht¿".encode(), b"nein", b"?"], object)
    }
    settled = servable.settle_ties([], trained, answer, 0.1)
    assert settled["labels"].tolist() == [
        "vielleicht¿".encode(),
        b"ja",
        b"ja",
    ]
    outputs = servable.outputs["ids"][:2]
    assert [output.name for output in outputs] == ["labels", "probabilities"]
    arguments = (servable, [(b"",)] * 3, trained, answer, outputs)
    found = check.compare_batch(
        *arguments, check.BFLOAT16_TOLERANCE, must_be_equal=False
    )
    assert found == (0.0, "labels of b''", 2, 3)
    # Where strings must be equal, no tolerance excuses another one.
    found = check.compare_batch(
        *arguments, check.BFLOAT16_TOLERANCE, must_be_equal=True
    )
    assert found == (np.inf, "labels of b''", 0, 0)


def test_the_first_of_the_largest_differences_is_named():
    found = [
        check.Difference(0.0, "scores of b'a'"),
        check.Difference(np.inf, "scores of b'b'", num_changed=1),
        check.Difference(np.inf, "scores of b'c'", num_wrong=2, num_changed=3),
    ]
    whole = check.summarize("ids", found, 9, check.TOLERANCE)
    assert (whole.max_difference, whole.worst) == (np.inf, "scores of b'b'")
    assert (whole.num_wrong, whole.num_changed) == (2, 4)


def test_a_tagger_that_finds_nothing_is_equal(compare):
    module = serving_models.loaded("tagger")
    servable = serving_models.servable("tagger")
    here = servable.model.classification_head.dense.bias
    (there,) = (
        variable
        for variable in module.variables
        if variable.shape == here.shape and np.array_equal(variable, here.value)
    )
    before = there.numpy()
    outside = before + np.float32([99.0, 0, 0, 0, 0])
    try:
        here.assign(outside)
        there.assign(outside)
        texts = [(text,) for text, _ in TEXTS]
        found = compare("tagger", texts, servable=servable)
    finally:
        there.assign(before)
    assert all(comparison.is_equal for comparison in found.values())


def test_other_entities_in_bfloat16_are_counted(compare, monkeypatch):
    in_bfloat16(monkeypatch)
    texts = [(b"the quick lorem, the.",)] + [(b"",)] * 10

    def change(name, answers):
        # The first entity is lost, and the place that it had.
        if name == "serving_default":
            assert answers["num_entities"][0] > 0
            answers["num_entities"][0] -= 1
            for key in ("labels", "starts", "limits", "scores"):
                answers[key] = answers[key][:, 1:]
        return answers

    found = compare("tagger", texts, change)["serving_default"]
    assert found.is_equal
    assert (found.num_changed, found.num_wrong) == (1, 1)


def call(path, requests, python=None, **arguments):
    """Returns all answers to some requests."""
    with caller.calling(path, requests, python, **arguments) as (_, answers):
        return list(answers)


def test_a_process_that_hangs_is_an_error_of_one_line(tmp_path):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid; exec sleep 300")
    python.chmod(0o755)
    with pytest.raises(
        ValueError, match="within 0.5 seconds. .*no answer"
    ) as error:
        call("/servable", [], str(python), timeout_seconds=0.5)
    assert str(error.value).startswith("/servable must be loaded")
    assert "\n" not in str(error.value)
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("then", ["wait", "exit 0"])
def test_what_a_wrapper_started_ends_with_it(tmp_path, then):
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\nsleep 300 & echo $! > {tmp_path}/pid; {then}"
    )
    python.chmod(0o755)
    with pytest.raises(ValueError, match="/servable"):
        call("/servable", [], str(python), timeout_seconds=0.5)
    assert is_over(int((tmp_path / "pid").read_text()))


def test_an_interrupt_ends_the_process(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nsleep 300 & echo $! > {tmp_path}/pid; wait")
    python.chmod(0o755)

    def interrupt(*_):
        while not (tmp_path / "pid").exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(caller, "_wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        call("/servable", [], str(python))
    assert is_over(int((tmp_path / "pid").read_text()))


def is_over(pid):
    """Returns whether a process ends within some seconds."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        # Who was left by its parent may stay as a zombie, without a parent that
        # asks.
        status = pathlib.Path(f"/proc/{pid}/stat")
        if not status.exists() or status.read_text().split()[2] == "Z":
            return True
        time.sleep(0.01)
    return False


def test_a_process_that_says_nothing_is_an_error():
    with pytest.raises(ValueError, match="could not be loaded and called"):
        call("/servable", [], python="true")


def test_the_time_limit_is_that_of_one_answer(tmp_path, monkeypatch, caplog):
    answers = tmp_path / "answers"
    clock = iter(range(100))
    monkeypatch.setattr(caller.time, "monotonic", lambda: next(clock))
    waits = []

    class Process:
        def wait(self, timeout):
            waits.append(timeout)
            if len(waits) <= 20:
                answers.write_bytes(b"x" * len(waits))
            raise subprocess.TimeoutExpired("python", timeout)

    with caplog.at_level("INFO", "absl"):
        caller._wait(Process(), "/servable", str(answers), 15)
    assert len(waits) == 35
    assert caplog.messages == [
        "Calling /servable: 0.0 MB of answers (0m30s)",
    ]


def test_another_process_that_fails_is_an_error_with_its_last_words(tmp_path):
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n"
        "echo 2.0; seq 9 >&2; echo \"KeyError: 'no_such'\" >&2; exit 1"
    )
    python.chmod(0o755)
    with pytest.raises(ValueError, match="could not be loaded and") as error:
        call("/servable", [], str(python))
    words = str(error.value).splitlines()[1:]
    assert words == [*"3456789", "KeyError: 'no_such'"]


def test_a_python_that_is_none_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="no_python"):
        call(tmp_path, [], python=f"{tmp_path}/no_python")


def test_lines_are_texts_or_pairs(tmp_path):
    # The last one as Python has the byte FF of a command line.
    assert texts_lib.parse_texts(["a\tb", "ü", "\udcff"], 1, "x") == [
        (b"a\tb",),
        ("ü".encode(),),
        (b"\xff",),
    ]
    path = tmp_path / "pairs"
    path.write_bytes(b"a\tb\r\n\xff\t\n")
    assert texts_lib.read_lines(path, 2) == [(b"a", b"b"), (b"\xff", b"")]
    path.write_bytes(b"a\tb\nc\n")
    with pytest.raises(ValueError, match="pairs, line 2: must be 2 strings"):
        texts_lib.read_lines(path, 2)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="at least one text"):
        texts_lib.read_lines(path, 1)


def test_answers_are_shown_likeliest_first():
    answers = {
        "labels": np.array([b"ja", b"nein"], object),
        "classes": np.array([[b"nein", b"ja"]] * 2, object),
        "probabilities": np.array([[0.25, 0.75], [0.9, 0.1]]),
    }
    texts = [(b"a  b", b"c"), ("ü\n".encode() * 99, b"")]
    lines = report.answers_table(texts, answers, Classification).splitlines()
    assert lines[0].split() == ["text", "label", "probabilities"]
    assert lines[1].split() == [
        *("a", "b", "|", "c"),
        *("ja", "0.750", "ja,", "0.250", "nein"),
    ]
    assert lines[2].endswith("nein   0.900 nein, 0.100 ja")
    assert "ü ü" in lines[2] and "..." in lines[2]


def test_scores_and_vectors_are_shown():
    scores = {"scores": np.array([1.23456])}
    table = report.answers_table([(b"a",)], scores, Classification)
    assert table.splitlines()[1].split() == ["a", "1.2346"]
    table = report.answers_table(
        [(b"a",)],
        {
            "pooled_output": np.array([[3.0, 4.0, 0.0, 0.0]]),
            "sequence_output": np.zeros([1, 5, 4]),
        },
        Encoder,
    )
    assert "[3.000, 4.000, 0.000, ...] of 4, norm 5.000" in table


def test_spans_are_shown_with_their_characters():
    found = {
        "nbest_answers": np.array([[b"b", b""]], object),
        "answers": np.array([b"b"], object),
        "starts": np.array([2]),
        "limits": np.array([3]),
        "scores": np.array([0.75]),
        "null_odds": np.array([-4.0]),
    }
    table = report.answers_table(
        [(b"q", b"a b")], found, QuestionAnswering
    ).splitlines()
    assert table[0].split() == [
        *("text", "answer", "characters", "score", "null", "odds")
    ]
    assert table[1].split() == ["q", "|", "a", "b", "b", "2-3", "0.750"] + [
        "-4.000"
    ]
    found = {
        "num_entities": np.array([1, 0]),
        "labels": np.array([[b"per"], [b""]], object),
        "starts": np.array([[0], [-1]]),
        "limits": np.array([[4], [-1]]),
        "scores": np.array([[0.5], [0.0]]),
    }
    table = report.answers_table(
        [(b"Anna",), (b"x",)], found, Tagging
    ).splitlines()
    assert table[1].split() == ["Anna", "per", "0-4", "0.500"]
    assert table[2].split() == ["x"]


@pytest.mark.parametrize("is_cut", [[False, True], [False, False]])
def test_texts_that_were_cut_are_shown(is_cut):
    found = {
        "num_entities": np.array([0, 0]),
        **dict.fromkeys(("labels", "starts", "limits", "scores"), [[], []]),
        "is_cut": np.array(is_cut),
    }
    table = report.answers_table(
        [(b"Anna",), (b"x",)], found, Tagging
    ).splitlines()
    assert [line.split() for line in table] == [
        ["text", "entities"] + ["cut"] * any(is_cut),
        ["Anna"],
        ["x"] + ["cut"] * any(is_cut),
    ]


def test_answers_need_a_saved_model_that_takes_text():
    path = serving_models.exported("encoder", "ids")
    with pytest.raises(ValueError, match="takes ids only"):
        check.answer_texts(path, saved_model.read_options(path), [(b"a",)])


def test_where_no_saved_model_is(tmp_path):
    with pytest.raises(ValueError, match="holds neither saved_model.pb"):
        saved_model.newest(tmp_path)


def test_comparison_within_tolerance_is_equal():
    comparison = check.Comparison(
        signature="ids", num_texts=1, max_difference=1e-5, worst=""
    )
    assert comparison.is_equal
    worse = dataclasses.replace(comparison, max_difference=1.1e-5)
    assert not worse.is_equal
