"""A student learns a task: weights, resuming, other tokenizers, refusals."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoints import starting_point
from bert_tf.config import BertConfig
from bert_tf.models import distiller
from bert_tf.models import lesson as lesson_lib
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.distillation import encoder_objective
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.lesson import Lesson
from bert_tf.runs import distillation
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.multi_label import MultiLabelTask
from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from bert_tf.tasks.question_answering.task import OUTPUTS
from bert_tf.tasks.question_answering.task import SquadTask
from bert_tf.tasks.reranking.task import RerankingTask
from bert_tf.tasks.retrieval.task import RetrievalTask
from bert_tf.tasks.source import DEV
from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.tasks.task import with_weights
from bert_tf.tasks.tsv import Examples
from bert_tf.text import vocabulary
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.tuning.config import FineTuningConfig
from bert_tf.tuning.distillation_run import DistillationRun
from bert_tf.tuning.distillation_run import objective_of
from references import distillation as oracle
from support import block_calls

WORDS = ("cat", "dog", "cow", "hen", "red", "blue", "green", "grey")
TOKENIZER = WordpieceSpec(Vocabulary(tokens=(*SPECIAL_TOKENS, *WORDS)))
OTHER = WordpieceSpec(Vocabulary(tokens=(*SPECIAL_TOKENS, "x", *WORDS[::-1])))
CONFIG = BertConfig(
    vocab_size=len(TOKENIZER.vocabulary),
    hidden_size=6,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=7,
    max_position_embeddings=9,
)
TASK = ClassificationTask(
    name="colour",
    text_features=("text",),
    labels=("no", "yes", "perhaps"),
    metrics=("accuracy",),
)
STRATEGY = tf.distribute.OneDeviceStrategy("/cpu:0")


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("taught") / "teacher")
    model = BertClassifier(CONFIG, 3)
    for number, variable in enumerate(model.weights):
        random = np.random.default_rng(number)
        value = random.normal(0, 0.5, variable.shape)
        variable.assign(value + variable.path.endswith("gamma"))
    checkpoints.save(
        folder,
        model,
        TOKENIZER,
        9,
        task=TASK.to_dict(),
        label_names=TASK.labels,
    )
    return folder


def make_examples():
    generator = np.random.default_rng(7)
    texts = [" ".join(generator.choice(WORDS, size=4)) for _ in range(8)]
    return Examples(texts=(texts,), labels=np.int32([0, 1, 2, 0, 1, 2, 0, 0]))


def make_teaching(folder, losses, tokenizer=None, layers=(1,)):
    found = starting_point.find(folder)
    if tokenizer is None:
        student = distillation.find_student(found, student_layers=layers)
    else:
        layers = None
        config = dataclasses.replace(
            CONFIG,
            vocab_size=len(tokenizer.vocabulary),
            num_hidden_layers=1,
        )
        student = dataclasses.replace(
            found, init_checkpoint=None, config=config, tokenizer=tokenizer
        )
    return distillation.Teaching(
        teacher=found,
        student=student,
        lesson=Lesson(losses=losses),
        student_layers=layers,
    )


def make_run(folder, teaching, task=TASK, **options):
    options = {"num_train_epochs": 1.0} | options
    config = FineTuningConfig(
        output_dir=str(folder),
        train_batch_size=4,
        learning_rate=1e-2,
        max_seq_length=9,
        warmup_proportion=0.0,
        do_train=True,
        do_eval=True,
        **options,
    )
    examples = {TRAIN: make_examples(), DEV: make_examples()}
    return DistillationRun(config, task, examples, STRATEGY, teaching=teaching)


def test_a_student_learns_what_its_teacher_answers(teacher, tmp_path, caplog):
    caplog.set_level("INFO")
    caplog.set_level("INFO", logger="absl")
    losses = {"soft_targets": 2.0, "labels": 0.5, "hidden": 1.0}
    teaching = make_teaching(teacher, losses)
    run = make_run(tmp_path / "a", teaching)
    before = {v.path: np.array(v) for v in run.model.weights}
    taught = [np.array(v) for v in run._teacher.weights]
    results = run.tune()
    assert results["global_step"] == 2
    for variable, value in zip(run._teacher.weights, taught):
        np.testing.assert_array_equal(variable, value)
    changed = {
        v.path
        for v in run.model.weights
        if not np.array_equal(v, before[v.path])
    }
    assert changed == {v.path for v in run.model.trainable_variables}

    kept = checkpoints.load(str(tmp_path / "a"), BertClassifier)
    assert kept.config.num_hidden_layers == 1
    for ours, theirs in zip(kept.get_weights(), run.model.get_weights()):
        np.testing.assert_array_equal(ours, theirs)
    card = (tmp_path / "a" / "README.md").read_text()
    assert "Teacher: teacher." in card
    assert "soft_targets:2, labels:0.5, hidden:1" in card
    assert "sha256" not in card
    # Another's is that of a calibration.
    assert "- `soft_targets_temperature`: 2" in card
    assert "- `temperature`" not in card
    run.report()
    report = (tmp_path / "a" / "report.md").read_text()
    assert "| soft\\_targets\\_temperature | 2 |" in report
    assert "| temperature |" not in report
    assert "random weights" not in caplog.text
    assert f"2 steps of 4, from layers of {teacher}" in caplog.text

    begins = "begins with the teacher's layers 1."
    assert begins in caplog.text
    caplog.clear()
    make_run(tmp_path / "a", teaching).tune()
    assert "Resumed at step 2 of 2." in caplog.text
    assert begins not in caplog.text


def test_every_loss_trains_where_lengths_are_of_the_batch(teacher, tmp_path):
    losses = dict.fromkeys(lesson_lib.ON_TASKS, 1.0)
    run = make_run(tmp_path / "a", make_teaching(teacher, losses))
    assert run.tune()["global_step"] == 2
    batches = run.sources[TRAIN].training_batches(4)
    objective = run._objective

    def terms(batch):
        return objective.losses(run._trained(batch), batch)

    # The graph that training makes, of lengths that it does not know.
    assert batches.element_spec["input_ids"].shape[1] is None
    batch = next(iter(batches))
    found = tf.function(terms, input_signature=[batches.element_spec])(batch)
    wanted = terms(batch)
    assert set(found) == {f"{name}_loss" for name in lesson_lib.ON_TASKS}
    for name, value in wanted.items():
        assert float(value) > 0
        assert float(found[name]) == pytest.approx(float(value), rel=1e-4)


@pytest.mark.slow
def test_a_stopped_training_resumes_to_the_bit(teacher, tmp_path, monkeypatch):
    teaching = make_teaching(teacher, {"soft_targets": 1.0, "hidden": 1.0})
    whole = make_run(tmp_path / "a", teaching, num_train_epochs=2.0)
    whole.tune()
    half = make_run(tmp_path / "b", teaching, num_train_epochs=2.0)
    # After the first epoch, whose steps are saved.
    monkeypatch.setattr(half, "evaluate", _stop)
    with pytest.raises(KeyboardInterrupt):
        half.tune()
    again = make_run(tmp_path / "b", teaching, num_train_epochs=2.0)
    again.tune()
    assert again._resumed_at == 2
    for ours, theirs in zip(
        again.model.get_weights(), whole.model.get_weights()
    ):
        np.testing.assert_array_equal(ours, theirs)

    other = make_teaching(teacher, {"soft_targets": 2.0, "hidden": 1.0})
    with pytest.raises(ValueError, match="losses: soft_targets was 1.0 and is"):
        make_run(tmp_path / "b", other, num_train_epochs=2.0).tune()


def _stop():
    raise KeyboardInterrupt


def test_soft_targets_are_of_each_models_own_tokenizer(teacher, tmp_path):
    teaching = make_teaching(teacher, {"soft_targets": 1.0}, OTHER)
    run = make_run(tmp_path / "a", teaching)
    batch = next(iter(run.sources[TRAIN].training_batches(4)))
    assert not np.array_equal(batch["input_ids"], batch["teacher_input_ids"])
    outputs = run._trained(batch)
    # Both have the same texts, in the same order.
    names = ("input_ids", "input_mask", "segment_ids")
    np.testing.assert_allclose(
        outputs["teacher_logits"],
        run._teacher({name: batch[f"teacher_{name}"] for name in names}),
        atol=1e-6,
    )
    own, taught = (
        [spec.vocabulary.tokens[i] for i in row if i]
        for spec, row in (
            (OTHER, np.array(batch["input_ids"])[0]),
            (TOKENIZER, np.array(batch["teacher_input_ids"])[0]),
        )
    )
    assert own == taught
    objective = run._objective
    total = objective.losses(outputs, batch)["soft_targets_loss"]
    wanted = sum(
        oracle.soft_target(a, b, 2.0)
        for a, b in zip(
            np.array(outputs["logits"]), np.array(outputs["teacher_logits"])
        )
    )
    assert float(total) == pytest.approx(wanted, rel=1e-4)
    assert float(objective.weights(batch)["soft_targets_loss"]) == 4

    with pytest.raises(ValueError, match="do not|must not be given") as error:
        make_run(tmp_path / "b", teaching, bucket_window_batches=4)
    assert "\n" not in str(error.value)
    teaching = make_teaching(teacher, {"labels": 1.0, "hidden": 1.0}, OTHER)
    with pytest.raises(ValueError) as error:
        make_run(tmp_path / "b", teaching)
    assert str(error.value).startswith(
        "Teacher and student must have one tokenizer for the loss hidden; "
        "soft_targets and labels can do without."
    )
    assert not (tmp_path / "b").exists()


def test_a_teacher_with_another_tokenizer_is_another(teacher, tmp_path):
    teaching = make_teaching(teacher, {"soft_targets": 1.0}, OTHER)
    make_run(tmp_path, teaching)._begin(2).save()
    make_run(tmp_path, teaching)._begin(2)
    spec = WordpieceSpec(Vocabulary(tokens=(*SPECIAL_TOKENS, *WORDS[::-1])))
    for tokenizer in (
        spec,
        dataclasses.replace(TOKENIZER, do_lower_case=False),
    ):
        other = dataclasses.replace(teaching.teacher, tokenizer=tokenizer)
        run = make_run(tmp_path, dataclasses.replace(teaching, teacher=other))
        with pytest.raises(ValueError, match="teacher_tokenizer_sha256 was"):
            run._begin(2)


def test_a_teacher_with_longer_frames_needs_longer_sequences(teacher, tmp_path):
    """RoBERTa has one more special token in a pair than BERT."""
    task = dataclasses.replace(TASK, text_features=("text", "other"))
    special = dataclasses.replace(vocabulary.BERT, num_between=2)
    found = starting_point.find(teacher)
    teaching = dataclasses.replace(
        make_teaching(teacher, {"soft_targets": 1.0}, OTHER),
        teacher=dataclasses.replace(
            found,
            tokenizer=WordpieceSpec(
                dataclasses.replace(TOKENIZER.vocabulary, special=special)
            ),
        ),
    )
    texts = make_examples().texts[0]
    examples = Examples(texts=(texts, texts), labels=make_examples().labels)

    def make(length):
        config = FineTuningConfig(
            output_dir=str(tmp_path / "a"),
            train_batch_size=4,
            max_seq_length=length,
            do_train=True,
        )
        return DistillationRun(
            config, task, {TRAIN: examples}, STRATEGY, teaching=teaching
        )

    with pytest.raises(ValueError, match="at least 6 .* Received: .*=5"):
        make(5)
    make(6)


def save_tagger(folder, config):
    """Saves a teacher that tags; returns its task, and examples of it."""
    task = TaggingTask(scheme="bio", labels=("O", "B-X", "I-X"))
    checkpoints.save(
        folder,
        task.make_model(config),
        TOKENIZER,
        9,
        task=task.to_dict(),
        label_names=task.labels,
    )
    examples = task.read(
        {"words": [["cat", "dog", "cow"]], "tags": [["O", "B-X", "O"]]}, TRAIN
    )
    return task, examples


def test_labels_alone_need_no_common_tokenizer(tmp_path):
    task, examples = save_tagger(tmp_path / "teacher", CONFIG)
    config = FineTuningConfig(
        output_dir=str(tmp_path / "a"),
        train_batch_size=1,
        max_seq_length=9,
        num_train_epochs=1,
        do_train=True,
    )

    def run(losses):
        teaching = make_teaching(str(tmp_path / "teacher"), losses, OTHER)
        return DistillationRun(
            config, task, {TRAIN: examples}, STRATEGY, teaching=teaching
        )

    with pytest.raises(ValueError, match="tokenizer for the loss soft_targets"):
        run({"labels": 1.0, "soft_targets": 1.0})
    distilled = run({"labels": 1.0})
    batch = next(iter(distilled.sources[TRAIN].training_batches(1)))
    assert not any(name.startswith("teacher_") for name in batch)
    distilled.tune()
    assert distilled._step == 1


def test_another_seed_is_not_called_another_teacher(tmp_path):
    """A tagger's folder has no pooler: it is made anew, from the seed."""
    task, examples = save_tagger(tmp_path / "teacher", CONFIG)

    def fact(seed):
        config = FineTuningConfig(
            output_dir=str(tmp_path / "a"),
            train_batch_size=1,
            max_seq_length=9,
            do_train=True,
            random_seed=seed,
        )
        teaching = make_teaching(
            str(tmp_path / "teacher"), {"soft_targets": 1.0}
        )
        run = DistillationRun(
            config, task, {TRAIN: examples}, STRATEGY, teaching=teaching
        )
        return run._facts["teacher_sha256"]

    assert fact(1) == fact(2)


@pytest.mark.parametrize(
    "options", [{"keep_best": True}, {"early_stopping_epochs": 1}]
)
def test_epochs_are_not_compared_by_a_head_that_is_not_trained(
    options, teacher, tmp_path, caplog
):
    caplog.set_level("WARNING", logger="absl")
    teaching = make_teaching(teacher, {"hidden": 1.0, "relations": 1.0})
    (name,) = options
    with pytest.raises(ValueError) as error:
        make_run(tmp_path / "a", teaching, **options)
    assert str(error.value) == (
        f"--{name} must be given with one of the losses soft_targets, labels: "
        "the others do not train the head, so no score tells which epoch is "
        "better. Received: losses=hidden, relations."
    )
    assert not (tmp_path / "a").exists()
    make_run(tmp_path / "a", teaching)
    assert caplog.text.count("The head is not trained: none of the") == 1
    caplog.clear()
    teaching = make_teaching(teacher, {"hidden": 1.0, "labels": 1.0})
    make_run(tmp_path / "a", teaching, **options)
    assert "not trained" not in caplog.text


def test_blocks_are_not_forgotten_that_a_loss_looks_into(
    teacher, tmp_path, monkeypatch
):
    teaching = make_teaching(teacher, {"soft_targets": 1.0, "attention": 1.0})
    with pytest.raises(ValueError, match="--rematerialize must not be given"):
        make_run(tmp_path / "a", teaching, rematerialize=True)
    assert not (tmp_path / "a").exists()
    # Of states at the ends of blocks they may be: the student's alone.
    run = make_run(
        tmp_path / "a",
        make_teaching(teacher, {"soft_targets": 1.0, "hidden": 1.0}),
        rematerialize=True,
        attention_chunk=128,
    )
    calls = block_calls.note(monkeypatch)
    run.tune()
    (block,) = run.model.encoder.blocks
    assert calls == [block]
    assert block.attention.attention_chunk == 128


def test_tokens_on_the_right_tell_nothing_from_left_to_right(tmp_path):
    task, examples = save_tagger(
        tmp_path / "teacher", dataclasses.replace(CONFIG, is_decoder=True)
    )
    teaching = make_teaching(
        str(tmp_path / "teacher"), {"attention": 1.0, "relations": 1.0}
    )
    config = FineTuningConfig(
        output_dir=str(tmp_path / "a"),
        train_batch_size=1,
        max_seq_length=9,
        do_train=True,
    )
    run = DistillationRun(
        config, task, {TRAIN: examples}, STRATEGY, teaching=teaching
    )
    batch = next(iter(run.sources[TRAIN].training_batches(1)))
    num_tokens = int(np.sum(batch["input_mask"]))
    objective = run._objective
    # Pairs of a token and itself or one before it.
    num_pairs = num_tokens * (num_tokens + 1) // 2
    assert float(objective.weights(batch)["attention_loss"]) == num_pairs
    found, wanted, other = (
        each.losses(run._trained(batch), batch)["relations_loss"]
        for each in (
            objective,
            encoder_objective(run._trained.lesson, left_to_right=True),
            encoder_objective(run._trained.lesson, left_to_right=False),
        )
    )
    assert float(found) == pytest.approx(float(wanted), rel=1e-6)
    assert float(found) != pytest.approx(float(other), rel=1e-2)


@pytest.mark.parametrize(
    "task", [RetrievalTask(), RerankingTask(loss_name="softmax")]
)
def test_a_task_that_no_student_learns_is_refused(task, teacher, tmp_path):
    with pytest.raises(ValueError, match="must be of another task") as error:
        make_run(
            tmp_path / "a", make_teaching(teacher, {"cosine": 1.0}), task=task
        )
    assert "\n" not in str(error.value)
    assert not (tmp_path / "a").exists()


def test_a_teacher_without_the_tasks_head_is_refused(teacher, tmp_path):
    folder = str(tmp_path / "encoder")
    checkpoints.save(folder, BertEncoder(CONFIG), TOKENIZER, 9)
    with pytest.raises(ValueError, match="is not tuned to a task") as error:
        make_run(tmp_path / "a", make_teaching(folder, {"soft_targets": 1.0}))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "a").exists()


def test_soft_losses_of_every_family():
    random = np.random.default_rng(1)
    own, taught = np.float32(random.normal(0, 2, (2, 3, 4)))
    softmax = [oracle.soft_target(a, b, 2.0) for a, b in zip(own, taught)]

    def check(task, wanted, own=own, taught=taught):
        found = task.soft_losses(own, taught, 2.0)
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-6)

    check(TASK, softmax)
    check(SquadTask(), [value / 2 for value in softmax])
    check(
        TaggingTask(scheme="bio", labels=("O", "B-X", "I-X", "B-Y")),
        [softmax],
        own[None],
        taught[None],
    )
    regression = dataclasses.replace(TASK, labels=(), metrics=("pearson",))
    check(
        regression,
        (own[:, 0] - taught[:, 0]) ** 2,
        own[:, :1],
        taught[:, :1],
    )
    labels = MultiLabelTask(
        name="a",
        text_features=("text",),
        labels=("a", "b", "c", "d"),
        metrics=("micro_f1",),
    )
    yes_or_no = [
        [oracle.soft_target([x, 0], [y, 0], 2.0) for x, y in zip(a, b)]
        for a, b in zip(own, taught)
    ]
    check(labels, yes_or_no)
    check(RerankingTask(), yes_or_no)


def test_padding_tells_nothing_of_an_answers_place():
    task = SquadTask()
    random = np.random.default_rng(5)
    own, taught = np.float32(random.normal(0, 2, (2, 2, 2, 6)))
    lengths = (6, 4)

    def loss(width):
        padding = [(0, 0), (0, width - 6)]
        batch = {
            "input_mask": np.int32(
                np.arange(width) < np.array(lengths)[:, None]
            ),
            "labels": {name: np.int32([1, 0]) for name in OUTPUTS},
        }
        outputs = {
            name: {
                output: np.pad(each, padding, constant_values=3.0)
                for output, each in zip(OUTPUTS, logits)
            }
            for name, logits in (("logits", own), ("teacher_logits", taught))
        }
        objective = objective_of(task, Lesson(losses={"soft_targets": 1.0}))
        return float(objective.losses(outputs, batch)["soft_targets_loss"])

    wanted = sum(
        oracle.soft_target(a[:length], b[:length], 2.0) / 2
        for one, other in zip(own, taught)
        for a, b, length in zip(one, other, lengths)
    )
    assert loss(6) == pytest.approx(wanted, rel=1e-5)
    assert loss(46) == pytest.approx(wanted, rel=1e-5)


def test_a_teachers_null_threshold_is_not_the_students(tmp_path):
    task = SquadTask(
        version_2_with_negative=True,
        null_score_diff_threshold=-7.25,
        doc_stride=2,
        max_query_length=2,
    )
    folder = str(tmp_path / "teacher")
    checkpoints.save(
        folder, task.make_model(CONFIG), TOKENIZER, 9, task=task.to_dict()
    )
    answers = {"text": ["red"], "answer_start": [8]}
    data = {
        "id": ["a"],
        "question": ["cat"],
        "context": ["dog cow red"],
        "answers": [answers],
    }
    teaching = make_teaching(folder, {"soft_targets": 1.0})
    config = FineTuningConfig(
        output_dir=str(tmp_path / "a"),
        train_batch_size=1,
        max_seq_length=9,
        do_train=True,
    )
    run = DistillationRun(
        config,
        task,
        {TRAIN: task.read(data, TRAIN)},
        STRATEGY,
        teaching=teaching,
    )
    assert run.task == dataclasses.replace(task, null_score_diff_threshold=0.0)


@pytest.mark.parametrize(
    "task, rows, labels",
    [
        (MultipleChoiceTask(num_choices=3), (2, 3), np.int32([2, 0])),
        (RerankingTask(), (2, 1), np.int32([[1], [0]])),
        (
            SquadTask(),
            (2,),
            {name: np.int32([3, 0]) for name in OUTPUTS},
        ),
        (
            TaggingTask(scheme="bio", labels=("O", "B-X", "I-X")),
            (2,),
            with_weights(
                [[0, 0, 2, 0, 0], [0, 1, 2, 0, 0]],
                [[0, 1, 1, 0, 0], [0, 1, 1, 1, 0]],
            ),
        ),
    ],
    ids=lambda value: getattr(value, "family", ""),
)
def test_a_student_that_is_its_teacher_loses_on_labels_alone(
    task, rows, labels
):
    config = dataclasses.replace(
        CONFIG, num_hidden_layers=1, hidden_dropout_prob=0.0
    )
    models = [task.make_model(config) for _ in range(2)]
    assert distiller.copy_layers(*models, (0,)) == []
    lesson = Lesson(losses=dict.fromkeys(lesson_lib.ON_TASKS, 1.0))
    model = distiller.Distiller(*models, lesson)
    random = np.random.default_rng(2)
    lengths = random.integers(2, 6, (*rows, 1))
    batch = {
        "input_ids": random.integers(5, 13, (*rows, 5)).astype(np.int32),
        "input_mask": np.int32(np.arange(5) < lengths),
        "segment_ids": np.zeros((*rows, 5), np.int32),
        "labels": labels,
    }
    objective = objective_of(task, model.lesson)
    weights = objective.weights(batch)

    def terms():
        totals = objective.losses(model(batch), batch)
        return {
            name: float(value)
            for name, value in objective.loss_terms(totals, weights).items()
        }

    found = terms()
    own = task.objective()
    totals = own.losses(models[0](batch), batch)
    (alone,) = own.loss_terms(totals, own.weights(batch)).values()
    assert found.pop("labels_loss") == pytest.approx(float(alone), rel=1e-5)
    assert found == pytest.approx(dict.fromkeys(found, 0.0), abs=1e-6)
    num_tokens = batch["input_mask"].sum()
    assert float(weights["hidden_loss"]) == num_tokens
    assert float(weights["attention_loss"]) == (lengths**2).sum()
    # Padding tells nothing.
    models[0].encoder.embeddings.word_embeddings.assign(
        random.normal(0, 1, (13, 6))
    )
    changed = terms()
    assert min(changed.values()) > 0
    batch["input_ids"] = np.where(
        batch["input_mask"], batch["input_ids"], 7
    ).astype(np.int32)
    again = terms()
    for name in lesson_lib.OF_ENCODERS:
        name = f"{name}_loss"
        assert again[name] == pytest.approx(changed[name], rel=1e-5)
