"""The tasks: their files, losses, decoding and what task.json says."""

import csv
import io
import json
import random
import time

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.tasks import tsv
from bert_tf.tasks.classification import glue_files
from bert_tf.tasks.classification import report as glue_report
from bert_tf.tasks.classification import task as classification
from bert_tf.tasks.classification.task import ClassificationTask

PAIR = ClassificationTask(
    name="pair",
    text_features=("a", "b"),
    labels=("no", "yes", "perhaps"),
    metrics=("accuracy",),
)
SCORE = ClassificationTask(
    name="score", text_features=("text",), metrics=("pearson", "spearman")
)

YES_NO = ClassificationTask(
    name="t",
    text_features=("text",),
    labels=("no", "yes"),
    metrics=("accuracy",),
)
# Of every GLUE task one row of train.tsv and one of test.tsv in the layout of
# the benchmark, with the texts "A a" and "B b", and its header's column count.
LAYOUTS = {
    "cola": ("src\t1\t*\tA a", None, "0\tA a", 2),
    "sst-2": ("A a\t1", 2, "0\tA a", 2),
    "mrpc": ("1\t7\t8\tA a\tB b", 5, "0\t7\t8\tA a\tB b", 5),
    "sts-b": (
        "0\tg\tf\ty\t1\ts\ts\tA a\tB b\t3.25",
        10,
        "0\tg\tf\ty\t1\ts\ts\tA a\tB b",
        9,
    ),
    "qqp": ("0\t1\t2\tA a\tB b\t1", 6, "0\tA a\tB b", 3),
    "mnli": (
        "0\t1\t2\tg\tp\tp\tp\tp\tA a\tB b\tneutral\tentailment",
        12,
        "0\t1\t2\tg\tp\tp\tp\tp\tA a\tB b",
        10,
    ),
    "qnli": ("0\tA a\tB b\tnot_entailment", 4, "0\tA a\tB b", 3),
    "rte": ("0\tA a\tB b\tnot_entailment", 4, "0\tA a\tB b", 3),
    "wnli": ("0\tA a\tB b\t1", 4, "0\tA a\tB b", 3),
}


def header(num_columns):
    return "\t".join(f"h{index}" for index in range(num_columns))


def write(path, *lines, end="\n"):
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


@pytest.mark.parametrize("name", LAYOUTS)
def test_columns_of_every_task(tmp_path, name):
    task_files = glue_files.GLUE_TASKS[name]
    row, num_columns, test_row, num_test_columns = LAYOUTS[name]
    lines = [header(num_columns)] if num_columns else []
    for split in (glue_files.TRAIN, glue_files.DEV):
        write(tmp_path / task_files.splits[split].name, *lines, row, row)
        examples = task_files.read(tmp_path, split)
        expected = (["A a"] * 2, ["B b"] * 2)
        assert examples.texts == expected[: len(task_files.task.text_features)]
        assert examples.labels.tolist() == (
            [3.25, 3.25] if name == "sts-b" else [1, 1]
        )
    write(
        tmp_path / task_files.splits[glue_files.TEST].name,
        header(num_test_columns),
        test_row,
    )
    examples = task_files.read(tmp_path, glue_files.TEST)
    assert [column[0] for column in examples.texts] == ["A a", "B b"][
        : len(examples.texts)
    ]
    assert examples.labels is None
    assert len(examples) == 1


def test_mismatched_and_diagnostic_sets_of_mnli(tmp_path):
    mnli = glue_files.GLUE_TASKS["mnli"]
    row, num_columns, test_row, num_test_columns = LAYOUTS["mnli"]
    write(tmp_path / "dev_mismatched.tsv", header(num_columns), row)
    examples = mnli.read(tmp_path, glue_files.DEV_MISMATCHED)
    assert examples.labels.tolist() == [1]
    write(tmp_path / "test_mismatched.tsv", header(num_test_columns), test_row)
    examples = mnli.read(tmp_path, glue_files.TEST_MISMATCHED)
    assert examples.texts == (["A a"], ["B b"])
    write(tmp_path / "AX.tsv", header(3), "0\tA a\tB b")
    ax = glue_files.glue_task("AX")
    assert ax.read(tmp_path, glue_files.AX).texts == (["A a"], ["B b"])
    # As the usual download has it, in a folder of its own.
    (tmp_path / "AX.tsv").rename(tmp_path / "diagnostic.tsv")
    assert ax.read(tmp_path, glue_files.AX).texts == (["A a"], ["B b"])
    assert ax.task == mnli.task
    assert list(ax.splits) == [glue_files.AX]


XNLI_HEADER = (
    "language\tgold_label\tsentence1_binary_parse\tsentence2_binary_parse\t"
    "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tpromptID"
)


def xnli_row(language, label, first, second):
    return f"{language}\t{label}\t\t\t\t\t{first}\t{second}\t1"


@pytest.mark.parametrize(
    ("name", "language"), [("XNLI", "zh"), ("XNLI-de", "de"), ("xnlide", "de")]
)
def test_xnli_has_a_file_to_train_on_for_each_language(
    tmp_path, name, language
):
    xnli = glue_files.glue_task(name)
    (tmp_path / "multinli").mkdir()
    write(
        tmp_path / "multinli" / f"multinli.train.{language}.tsv",
        "premise\thypo\tlabel",
        'A "a\tB b\tcontradictory',
        "C\tD\tneutral",
        "E\tF\tentailment",
    )
    rows = [
        xnli_row("bg", "neutral", "G", "H"),
        xnli_row(language, "contradiction", "I", "J"),
        xnli_row("en", "neutral", "K", "L"),
        xnli_row(language, "entailment", "M", "N"),
    ]
    for split in ("dev", "test"):
        write(tmp_path / f"xnli.{split}.tsv", XNLI_HEADER, *rows)
    examples = xnli.read(tmp_path, "train")
    assert examples.texts == (['A "a', "C", "E"], ["B b", "D", "F"])
    assert examples.labels.tolist() == [0, 2, 1]
    examples = xnli.read(tmp_path, "dev")
    assert examples.texts == (["I", "M"], ["J", "N"])
    assert examples.labels.tolist() == [0, 1]
    examples = xnli.read(tmp_path, "test")
    assert examples.texts == (["I", "M"], ["J", "N"])
    assert examples.labels is None
    # What was tuned in one language is evaluated in another.
    assert xnli.task == glue_files.glue_task("XNLI-en").task


def test_bad_files_of_xnli_are_told(tmp_path):
    xnli = glue_files.glue_task("XNLI-sw")
    path = write(
        tmp_path / "xnli.dev.tsv",
        XNLI_HEADER,
        xnli_row("en", "-", "G", "H"),
        xnli_row("sw", "-", "I", "J"),
    )
    with pytest.raises(ValueError, match="dev.tsv, line 3: the label must be"):
        xnli.read(tmp_path, "dev")
    write(path, XNLI_HEADER, xnli_row("en", "neutral", "G", "H"))
    with pytest.raises(ValueError, match="no row has 'sw' in .* 'language'"):
        xnli.read(tmp_path, "dev")


def test_files_for_the_leaderboard(tmp_path):
    names = [
        name
        for task_files in glue_files.GLUE_TASKS.values()
        for name in task_files.submissions.values()
    ]
    # The FAQ of gluebenchmark.com.
    assert sorted(names) == sorted(
        f"{name}.tsv"
        for name in (
            *("CoLA", "SST-2", "MRPC", "STS-B", "MNLI-m", "MNLI-mm", "QNLI"),
            *("RTE", "WNLI", "QQP", "AX"),
        )
    )
    path = tmp_path / "RTE.tsv"
    rte = glue_files.GLUE_TASKS["rte"].task
    logits = np.float32([[2, 1], [0, 3]])
    glue_files.write_submission(path, rte, logits)
    assert path.read_bytes() == (
        b"index\tprediction\n0\tentailment\n1\tnot_entailment\n"
    )
    sts_b = glue_files.GLUE_TASKS["sts-b"].task
    scores = np.float32([[-0.5], [2.34567], [7]])
    glue_files.write_submission(path, sts_b, scores)
    assert path.read_text().splitlines()[1:] == [
        "0\t0.000",
        "1\t2.346",
        "2\t5.000",
    ]


def test_report_of_classes_and_worst_errors():
    task = glue_files.GLUE_TASKS["rte"].task
    examples = tsv.Examples(
        texts=(["a|b", "c", "d", "e"], ["<f>", "g", "h", "i\nj" * 300]),
        labels=np.int32([0, 0, 1, 1]),
    )
    logits = np.float32([[0, 4], [3, 0], [0, 1], [1, 0]])
    sections = dict(glue_report.sections(task, examples, logits))
    assert sections["Confusion"].splitlines()[2:] == [
        "| is entailment | 1 | 1 |",
        r"| is not\_entailment | 1 | 1 |",
    ]
    assert "| entailment | 2 | 0.5 | 0.5 | 0.5 |" in sections["Classes"]
    rows = sections["Worst errors"].splitlines()[2:]
    # -log softmax of a difference of 4, and of 1.
    assert rows[0] == (
        r"| 1 | a\|b | \<f\> | entailment | not\_entailment | 4.018 |"
    )
    assert rows[1].startswith("| 4 | e | i ji ji")
    assert rows[1].endswith(r"… | not\_entailment | entailment | 1.313 |")
    assert len(rows) == 2
    perfect = dict(
        glue_report.sections(task, examples, logits * [[-1], [1], [1], [-1]])
    )
    assert perfect["Worst errors"] == "None: every answer is right."


def test_all_nine_tasks_are_there_with_their_official_scores():
    scores = {
        name: task_files.task.metrics
        for name, task_files in glue_files.GLUE_TASKS.items()
        if name != "ax" and not name.startswith("xnli")
    }
    # Wang et al. 2018, table 1.
    assert scores == {
        "cola": ("matthews_correlation",),
        "sst-2": ("accuracy",),
        "mrpc": ("accuracy", "f1"),
        "sts-b": ("pearson", "spearman"),
        "qqp": ("accuracy", "f1"),
        "mnli": ("accuracy",),
        "qnli": ("accuracy",),
        "rte": ("accuracy",),
        "wnli": ("accuracy",),
    }


def test_tasks_are_found_by_name_in_any_spelling():
    for name in ("SST-2", "sst2", "sst-2"):
        assert glue_files.glue_task(name).task.name == "sst-2"
    with pytest.raises(ValueError, match="must be one of cola, .* or tsv"):
        glue_files.glue_task("snli")


def test_quotes_line_ends_and_byte_order_mark(tmp_path):
    path = write(
        tmp_path / "dev.tsv",
        "\ufefftext\tclass",
        'He said "no\tno',
        "\"\u2028\x0c '\tyes",
        end="\r\n",
    )
    tsv_file = tsv.TsvFile(
        name="dev.tsv", text_columns=("text",), label_column="class"
    )
    task = ClassificationTask(
        name="t",
        text_features=("text",),
        labels=("no", "yes"),
        metrics=("accuracy",),
    )
    examples = tsv.read_tsv(path, tsv_file, task.labels)
    assert examples.texts == (['He said "no', "\"\u2028\x0c '"],)
    assert examples.labels.dtype == np.int32
    assert examples.labels.tolist() == [0, 1]


def test_a_csv_is_read_by_its_own_rules(tmp_path):
    path = tmp_path / "dev.csv"
    path.write_bytes(
        '\ufefftext,class\r\n"He said ""no"", twice:\r\nno",no\r\n'
        'a\t"b,"yes "\r\n'.encode()
    )
    tsv_file = tsv.TsvFile(
        name="dev.csv", text_columns=("text",), label_column="class"
    )
    examples = tsv.read_tsv(path, tsv_file, YES_NO.labels)
    assert examples.texts == (['He said "no", twice:\r\nno', 'a\t"b'],)
    assert examples.labels.tolist() == [0, 1]
    for rows, message in (
        ('"a\nb",no\nc\n', "line 4: a row must have 2 columns. Received: 1"),
        ('a,no\n"b,no\n', "line 3: a field that begins with a quotation"),
        ("", "no examples"),
    ):
        path.write_text("text,class\n" + rows)
        with pytest.raises(ValueError, match=f"dev.csv.*{message}"):
            tsv.read_tsv(path, tsv_file, YES_NO.labels)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_blank_lines_at_the_end_of_a_csv_are_no_rows(tmp_path, end):
    tsv_file = glue_files.named_columns(["t"], "c")["train"]
    path = write(tmp_path / "train.csv", "t,c", "a,no", "", "", end=end)
    assert tsv.read_tsv(path, tsv_file, YES_NO.labels).texts == (["a"],)
    write(path, "t,c", "a,no", "", "b,no", end=end)
    with pytest.raises(ValueError, match="line 3: a row must have 2 col.*: 0"):
        tsv.read_tsv(path, tsv_file, YES_NO.labels)


def test_a_field_of_a_csv_may_be_long(tmp_path, monkeypatch):
    # The module's limit is one for the whole process.
    monkeypatch.setattr(csv, "field_size_limit", None)
    tsv_file = glue_files.named_columns(["t"], "c")["train"]
    text = "long, " * 40_000
    path = write(tmp_path / "train.csv", "t,c", "a,no", f'"{text}",yes')
    examples = tsv.read_tsv(path, tsv_file, YES_NO.labels)
    assert examples.texts == (["a", text],)


def test_rows_of_a_csv_are_those_of_python(tmp_path):
    generator = random.Random(3)
    parts = ["a", '"', '""', ",", "\n", "\r\n", "\r", " "]
    path, num_bad = tmp_path / "a.csv", 0
    for _ in range(2000):
        text = "a" + "".join(generator.choices(parts, k=9))
        path.write_bytes(text.encode())
        try:
            wanted = list(
                csv.reader(io.StringIO(text, newline=""), strict=True)
            )
        except csv.Error:
            num_bad += 1
            with pytest.raises(ValueError, match="a.csv, line .* quotation"):
                list(tsv.csv_rows(path))
            continue
        while not wanted[-1]:
            wanted.pop()
        assert [fields for _, fields in tsv.csv_rows(path)] == wanted, text
    assert 200 < num_bad < 1800


def test_many_classes_are_read_in_little_time(tmp_path):
    names = [f"class {index}" for index in range(20_000)]
    path = write(
        tmp_path / "train.tsv", "t\tc", *(f"a\t {name}" for name in names)
    )
    tsv_file = glue_files.named_columns(["t"], "c")["train"]
    task = glue_files.tsv_task(["t"], "c", names).task
    start = time.process_time()
    examples = tsv.read_tsv(path, tsv_file, task.labels)
    assert time.process_time() - start < 2
    assert examples.labels.tolist() == list(range(20_000))
    write(path, "t\tc", "a\tnone")
    with pytest.raises(ValueError, match=r"class 0, .*20,000 in all") as error:
        tsv.read_tsv(path, tsv_file, task.labels)
    assert len(str(error.value)) < 1000


def test_a_tsv_that_looks_like_a_csv_is_told(tmp_path, caplog):
    path = write(
        tmp_path / "dev.tsv", "text\tclass", '"a ""b"""\tno', '"a" b "c"\tyes'
    )
    tsv_file = tsv.TsvFile(
        name="dev.tsv", text_columns=("text",), label_column="class"
    )
    with caplog.at_level("INFO", logger="absl"):
        classification.find_labels(path, "class")
        # Once a file.
        assert "in quotation marks" not in caplog.text
        examples = tsv.read_tsv(path, tsv_file, YES_NO.labels)
    assert examples.texts == (['"a ""b"""', '"a" b "c"'],)
    assert "dev.tsv: 1 of the rows has fields in" in caplog.text


def test_blanks_round_labels_are_left_out_and_counted(tmp_path, caplog):
    path = write(
        tmp_path / "train.tsv", "t\tc", "a\tno", "b\t no", "c\tyes\u00a0"
    )
    tsv_file = glue_files.named_columns(["t"], "c")["train"]
    with caplog.at_level("WARNING", logger="absl"):
        assert classification.find_labels(path, "c") == ("no", "yes")
        examples = tsv.read_tsv(path, tsv_file, YES_NO.labels)
        assert examples.labels.tolist() == [0, 0, 1]
    # Once a file.
    assert caplog.text.count("stripped the blanks around 2 of the labels") == 1
    # A model that was tuned to classes with blanks keeps them.
    examples = tsv.read_tsv(path, tsv_file, (" no", "no", "yes"))
    assert examples.labels.tolist() == [1, 0, 2]
    write(path, "t\tc", "a\tno", "b\t ")
    with pytest.raises(ValueError, match="line 3: the label is empty"):
        classification.find_labels(path, "c")


def test_last_line_needs_no_end(tmp_path):
    path = write(tmp_path / "test.tsv", "h", "one", "two")
    path.write_bytes(path.read_bytes().rstrip())
    tsv_file = tsv.TsvFile(name="test.tsv", text_columns=(0,))
    assert len(tsv.read_tsv(path, tsv_file, SCORE.labels)) == 2


@pytest.mark.parametrize("end", ["\n", "\n\n\n", "\r\n\r\n", ""])
def test_empty_lines_at_the_end_are_no_rows(tmp_path, end):
    path = tmp_path / "train.tsv"
    path.write_bytes(f"a\tlabel\nx\tno\ny\tyes{end}".encode())
    tsv_file = tsv.TsvFile(
        name="train.tsv", text_columns=("a",), label_column="label"
    )
    examples = tsv.read_tsv(path, tsv_file, ("no", "yes"))
    assert examples.texts == (["x", "y"],)
    assert examples.labels.tolist() == [0, 1]
    assert classification.find_labels(path, "label") == ("no", "yes")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "no examples"),
        (["a\tlabel"], "no examples"),
        (["a\tlabel", "x\tno", "y"], "line 3: a row must have 2 columns"),
        (["a\tlabel", "", "x\tno"], "line 2: a row must have 2 columns"),
        (["", "", ""], "no examples"),
        (["a\tlabel", "x\tno\tz"], "line 2: a row must have 2 columns"),
        (["a\tlabel", "x\tNO"], "line 2: the label must be one of no, yes"),
        (["b\tlabel", "x\tno"], "line 1: the header must have a column 'a'"),
        (["a\ta\tlabel", "x\ty\tno"], "line 1: the header must have"),
    ],
)
def test_bad_rows_name_file_and_line(tmp_path, lines, message):
    path = write(tmp_path / "train.tsv", *lines)
    tsv_file = tsv.TsvFile(
        name="train.tsv", text_columns=("a",), label_column="label"
    )
    task = ClassificationTask(
        name="t",
        text_features=("a",),
        labels=("no", "yes"),
        metrics=("accuracy",),
    )
    with pytest.raises(ValueError, match=message) as error:
        tsv.read_tsv(path, tsv_file, task.labels)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("score", ["", "high", "nan", "inf"])
def test_scores_must_be_numbers(tmp_path, score):
    path = write(tmp_path / "train.tsv", "t\ts", "x\t1.5", f"y\t{score}")
    tsv_file = tsv.TsvFile(
        name="train.tsv", text_columns=("t",), label_column="s"
    )
    with pytest.raises(ValueError, match="train.tsv, line 3: the score"):
        tsv.read_tsv(path, tsv_file, SCORE.labels)


@pytest.mark.parametrize("score", ["null", "true", "[3]", '"3 m"', "1e39"])
def test_scores_that_are_no_numbers_are_shown_as_they_are(tmp_path, score):
    value = json.loads(score)
    rows = [{"text": "x", "label": label} for label in (" 2.5 ", value)]
    path = write(tmp_path / "train.jsonl", *map(json.dumps, rows))
    with pytest.raises(ValueError, match="line 2: the score must") as error:
        SCORE.read(path, "train")
    assert str(error.value).endswith(f" Received: {value!r}.")


def test_file_of_another_task_and_missing_and_not_utf8(tmp_path):
    cola = glue_files.GLUE_TASKS["cola"]
    with pytest.raises(ValueError, match="no file .*train.tsv"):
        cola.read(tmp_path, glue_files.TRAIN)
    write(tmp_path / "train.tsv", "sentence\tlabel", "x\t1")
    with pytest.raises(ValueError, match="train.tsv, line 1: .* column 4"):
        cola.read(tmp_path, glue_files.TRAIN)
    (tmp_path / "train.tsv").write_bytes(b"s\t1\t\tok\ns\t1\t\t\xff\n")
    with pytest.raises(ValueError, match="train.tsv, line 2: not UTF-8"):
        cola.read(tmp_path, glue_files.TRAIN)


def test_broken_rows_of_qqp_are_counted(tmp_path, caplog):
    qqp = glue_files.GLUE_TASKS["qqp"]
    row = LAYOUTS["qqp"][0]
    write(tmp_path / "train.tsv", header(6), row, "0\t1\t2\tA", row)
    with caplog.at_level("WARNING", logger="absl"):
        assert len(qqp.read(tmp_path, glue_files.TRAIN)) == 2
    assert "left out 1 of 3 rows" in caplog.text
    write(tmp_path / "train.tsv", header(6), "0\t1\t2\tA")
    with pytest.raises(ValueError, match="no row has 6 columns"):
        qqp.read(tmp_path, glue_files.TRAIN)


def test_tsv_task_finds_its_labels(tmp_path):
    write(tmp_path / "train.tsv", "id\tclass\tt", "1\tb\tx", "2\ta\ty")
    labels = classification.find_labels(tmp_path / "train.tsv", "class")
    assert labels == ("a", "b")
    task_files = glue_files.tsv_task(["t"], "class", labels)
    assert task_files.task.kind == "classification"
    assert task_files.read(tmp_path, "train").labels.tolist() == [1, 0]


def test_a_csv_is_taken_where_there_is_no_tsv(tmp_path, caplog):
    task_files = glue_files.tsv_task(["t"], "c", ("no", "yes"))
    write(tmp_path / "train.csv", "t,c", '"a, b",yes')
    write(tmp_path / "dev.tsv", "t\tc", "a, b\tno")
    task_files.check(tmp_path, ("train", "dev"))
    assert task_files.read(tmp_path, "train").texts == (["a, b"],)
    assert task_files.read(tmp_path, "dev").labels.tolist() == [0]
    with pytest.raises(ValueError, match=r"no file .*test\.tsv"):
        task_files.read(tmp_path, "test")
    # What it was made of may stand beside it.
    write(tmp_path / "dev.csv", "t,c", "a,yes")
    with caplog.at_level("INFO", "absl"):
        assert task_files.read(tmp_path, "dev").labels.tolist() == [0]
    assert "dev.tsv, not " in caplog.text
    # GLUE's files are of one form.
    cola = glue_files.glue_task("CoLA")
    assert cola.path(tmp_path, "train") == str(tmp_path / "train.tsv")


@pytest.mark.parametrize(
    "name, there, told",
    [
        (
            "tsv",
            ["train.jsonl"],
            r"a \.tsv or \.csv. Received: train.jsonl. In P",
        ),
        (
            "tsv",
            ["train-00000-of-00001.parquet", "train.csv.gz", "trainer.txt"],
            r"Received: train-00000-of-00001.parquet, train.csv.gz. In Python, "
            r"bert_tf.tuning.run reads \.jsonl and \.parquet\.$",
        ),
        ("cola", ["train.csv"], r"must be a \.tsv. Received: train.csv\.$"),
        ("cola", ["dev.tsv"], r"There is no file [^ ]*/train.tsv\.$"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path, name, there, told):
    for file_name in there:
        write(tmp_path / file_name, "")
    if name == "tsv":
        task_files = glue_files.tsv_task(["t"], "c", YES_NO.labels)
    else:
        task_files = glue_files.glue_task(name)
    with pytest.raises(ValueError, match=told):
        task_files.read(tmp_path, "train")
    with pytest.raises(ValueError, match=told):
        task_files.check(tmp_path, ["train"])


def test_tsv_task_of_numbers(tmp_path):
    write(tmp_path / "dev.tsv", "a\tb\ts", "x\ty\t-1.5")
    task_files = glue_files.tsv_task(["a", "b"], "s")
    examples = task_files.read(tmp_path, "dev")
    assert task_files.task.num_outputs == 1
    assert examples.texts == (["x"], ["y"])
    assert examples.labels.dtype == np.float32
    assert examples.labels.tolist() == [-1.5]


def test_labels_of_a_tsv_task_must_make_classes(tmp_path):
    path = write(tmp_path / "train.tsv", "class\tt", "a\tx", "a\ty")
    with pytest.raises(ValueError, match="two labels or more. Received: a"):
        classification.find_labels(path, "class")
    write(path, "class\tt", "a\tx", "\ty")
    with pytest.raises(ValueError, match="line 3: the label is empty"):
        classification.find_labels(path, "class")


@pytest.mark.parametrize(
    "task",
    [
        *(PAIR, SCORE),
        *(glue_files.glue_task(name).task for name in (*LAYOUTS, "xnli")),
    ],
    ids=lambda task: task.name,
)
def test_task_json_round_trip(task):
    assert (
        ClassificationTask.from_dict(json.loads(json.dumps(task.to_dict())))
        == task
    )


def test_task_json_of_mrpc():
    assert glue_files.GLUE_TASKS["mrpc"].task.to_dict() == {
        "family": "glue",
        "name": "mrpc",
        "kind": "classification",
        "text_features": ["sentence1", "sentence2"],
        "labels": ["0", "1"],
        "metrics": ["accuracy", "f1"],
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"family": "squad"}, "`family` must be 'glue'"),
        ({"kind": "regression"}, "`kind` must be 'classification'"),
        ({"text_features": []}, "`text_features` must be one or two"),
        ({"text_features": "ab"}, "`text_features` must be a list"),
        ({"labels": ["yes"]}, "`labels` must be two names or more"),
        ({"labels": ["yes", "yes"]}, "`labels` must have each name once"),
        ({"labels": [0, 1]}, "`labels` must be a list of names"),
        ({"labels": ["a", "\ud800"]}, "`labels` must be a list of names"),
        ({"metrics": ["pearson"]}, "`metrics` of a classification"),
        ({"name": ""}, "`name` must be a non-empty string"),
        ({"extra": 1}, "must have the keys"),
    ],
)
def test_bad_task_json(change, message):
    with pytest.raises(ValueError, match=message):
        ClassificationTask.from_dict(PAIR.to_dict() | change)


def test_decode_of_a_classification():
    logits = np.log([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]).astype("float32") + 4
    answers = tf.function(PAIR.decode_tensors)(logits)
    assert sorted(answers) == ["labels", "probabilities"]
    assert answers["labels"].numpy().tolist() == [b"no", b"perhaps"]
    np.testing.assert_allclose(
        answers["probabilities"],
        [[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]],
        rtol=1e-5,
    )


def test_decode_of_a_regression():
    answers = tf.function(SCORE.decode_tensors)(np.float32([[2.5], [-1.0]]))
    assert sorted(answers) == ["scores"]
    assert answers["scores"].numpy().tolist() == [2.5, -1.0]


@pytest.mark.parametrize("task", [PAIR, SCORE], ids=lambda task: task.name)
def test_objective_is_the_keras_loss_of_the_weighted_examples(task):
    generator = np.random.default_rng(3)
    logits = generator.normal(size=(5, task.num_outputs)).astype("float32")
    labels = (
        np.int32([2, 0, 1, 1, 0])
        if task.labels
        else generator.normal(size=5).astype("float32")
    )
    weights = np.float32([1, 0, 1, 1, 0])
    objective = task.objective()
    batch = {"labels": tf.constant(labels)}
    losses = objective.losses(logits, batch)["loss"]
    assert objective.weights(batch)["loss"] == 5
    np.testing.assert_allclose(
        losses / 5, task.loss()(labels, logits), rtol=1e-6
    )

    batch["example_weights"] = tf.constant(weights)
    kept = weights == 1
    assert objective.weights(batch)["loss"] == 3
    np.testing.assert_allclose(
        objective.losses(logits, batch)["loss"] / 3,
        task.loss()(labels[kept], logits[kept]),
        rtol=1e-6,
    )
    metrics = objective.metrics(logits, batch)
    if task.labels:
        hits = (np.argmax(logits, axis=-1) == labels)[kept]
        total, weight = metrics["accuracy"]
        assert (float(total), float(weight)) == (hits.sum(), 3)
    else:
        assert metrics == {}


def test_losses_of_examples_by_hand():
    logits = np.log([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]).astype("float32")
    np.testing.assert_allclose(
        PAIR.example_losses(logits, np.int32([1, 2])),
        -np.log([0.3, 0.8]),
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        SCORE.example_losses(np.float32([[2.0]]), np.float32([3.5])), [2.25]
    )


def test_scores_of_a_set():
    mrpc = glue_files.GLUE_TASKS["mrpc"].task
    logits = np.float32([[0, 1], [0, 1], [1, 0], [1, 0]])
    scores = mrpc.scores(logits, np.int32([1, 0, 1, 0]))
    assert scores == {"accuracy": 0.5, "f1": 0.5}
    scores = SCORE.scores(np.float32([[1], [2], [4]]), np.float32([1, 2, 3]))
    assert scores["spearman"] == pytest.approx(1.0)
    assert scores["pearson"] == pytest.approx(
        np.corrcoef([1, 2, 4], [1, 2, 3])[0, 1]
    )
