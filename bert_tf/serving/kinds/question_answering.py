"""Question answering as it is served: answers, and where they stand.

Questions and contexts are strings of any length. The graph cuts windows,
chooses among their spans and quotes the context, by the rules of run_squad.
"""

import dataclasses
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf import files
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.serving.graph import chunks
from bert_tf.serving.kinds import dev_set
from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.serving.kinds.dev_set import DevSet
from bert_tf.serving.kinds.output import IS_CUT
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.kinds.output import show_span
from bert_tf.serving.kinds.output import show_text
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.texts import Row
from bert_tf.tasks.question_answering import answers as squad_answers
from bert_tf.tasks.question_answering import files as squad_files
from bert_tf.tasks.question_answering import scores as squad_scores
from bert_tf.tasks.question_answering import task as squad
from bert_tf.tasks.question_answering import windows as squad_windows
from bert_tf.tasks.question_answering.options import MOST_ANSWERS

QUESTION = "question"
CONTEXT = "context"
_BATCH_SIZE = 16
# Extensions of tables and of files with a pair per line; others are SQuAD's.
_OF_TEXTS = (".tsv", ".csv", ".txt")
_NBEST = ("answers", "starts", "limits")
# Beside the trained answers: {(start, limit): score} of each row's spans.
_SCORES = "scores_of_spans"


_ANSWER = (
    Output(
        name="answers",
        dtype="string",
        axes="",
        meaning="the answer, exactly as in the context",
        missing=b"",
        heading="answer",
        show=lambda answers: show_text(answers["answers"]),
    ),
    # Characters are Unicode code points.
    Output(
        name="starts",
        dtype="int32",
        axes="",
        meaning="where it starts in the context",
        missing=-1,
        heading="characters",
        show=lambda answers: show_span(answers["starts"], answers["limits"]),
    ),
    Output("limits", "int32", "", "where it ends, exclusive", missing=-1),
    Output(
        name="scores",
        dtype="float32",
        axes="",
        meaning="its probability among the n best",
        missing=0.0,
        is_of_choice=True,
        heading="score",
        show=lambda answers: f"{answers['scores']:.3f}",
    ),
)


class QuestionAnswering(Servable):
    """The spans of texts that answer questions; for ids, those of one window.

    Bytes that are not UTF-8 do not count as characters. The model was tuned to
    a `SquadTask`.
    """

    outputs_of_strings = (
        *_ANSWER,
        *(
            dataclasses.replace(
                output, name=f"nbest_{output.name}", axes="n_best", heading=""
            )
            for output in _ANSWER
        ),
        Output(
            name="null_odds",
            dtype="float32",
            axes="",
            meaning="the empty answer's score minus the best span's",
            of_task=lambda task: task.version_2_with_negative,
            heading="null odds",
            show=lambda answers: f"{answers['null_odds']:.3f}",
        ),
        # True if the end of the context was not read, beyond `max_text_bytes`
        # or `max_windows`.
        IS_CUT,
    )
    outputs_of_ids = (
        Output("start_logits", "float32", "length", "logits of span starts"),
        Output("end_logits", "float32", "length", "logits of span ends"),
        Output("token_starts", "int32", "", "the best span's first token"),
        Output("token_ends", "int32", "", "its last token"),
        Output("token_scores", "float32", "", "the sum of its two logits"),
        Output("null_scores", "float32", "", "the same for no answer"),
    )
    MODEL = BertSpanPredictor
    DEFAULTS = Servable.DEFAULTS | {"max_windows": 256}

    @classmethod
    def text_features_of(cls, task: Any) -> tuple[str, ...] | None:
        return (QUESTION, CONTEXT)

    def answer_texts(
        self,
        texts: dict[str, tf.Tensor],
        encode: Callable[..., Any],
        model: Any,
    ) -> dict[str, tf.Tensor]:
        questions, _ = self.cut(texts[QUESTION])
        contexts, is_cut = self.cut(texts[CONTEXT])
        answers = _answer_strings(questions, contexts, self._maker(), model)
        return answers | {"is_cut": answers["is_cut"] | is_cut}

    def hard_texts(self) -> list[Row]:
        # Each question is the hard string before the context.
        hard = texts_lib.hard_uncut_texts()
        return list(zip(hard[-1:] + hard[:-1], hard))

    def read_texts(self, path: files.AnyPath) -> list[Row]:
        if str(path).lower().endswith(_OF_TEXTS):
            return super().read_texts(path)
        examples = squad_files.read_squad(
            path, self.task.version_2_with_negative, is_training=False
        )
        return [
            (question.encode(), examples.context(index).encode())
            for index, question in enumerate(examples.questions)
        ]

    def read_dev_set(
        self, path: files.AnyPath, label_column: str | None = None
    ) -> DevSet | None:
        dev_set.check_no_column(label_column)
        if str(path).lower().endswith(_OF_TEXTS):
            return None
        examples = squad_files.read_squad(
            path, self.task.version_2_with_negative, is_training=False
        )
        if examples.answers is None:
            return None
        examples.check_scorable(str(path), self.task.version_2_with_negative)
        wanted = examples.answers
        official = (
            squad_scores.scores_2_0
            if self.task.version_2_with_negative
            else squad_scores.scores_1_1
        )

        def score(answers):
            texts = [text.decode() for text in answers["answers"]]
            # The official scores are in percent.
            return official(texts, wanted)["f1"] / 100

        return DevSet(
            metric="f1",
            num_texts=len(examples),
            outputs=("answers",),
            score=score,
        )

    def trained_answers(
        self, inputs: dict[str, tf.Tensor], texts: Sequence[Row]
    ) -> dict[str, np.ndarray]:
        questions, contexts = map(_valid, self.columns(texts))
        windows = squad_answers.cut_windows(self._maker(), questions, contexts)
        # As in training, every window has the full length.
        length = self.preprocessor.max_seq_length
        predict = squad_answers.stacked_outputs(self.model, length)
        rows = {name: windows.packed[name] for name in features.MODEL_INPUTS}
        batches = tf.data.Dataset.from_tensor_slices(rows).batch(_BATCH_SIZE)
        logits = np.concatenate(
            [predict(batch, training=False) for batch in batches]
        )
        answers = self.decode_rows(inputs, self.model(inputs))
        answers |= _answers(self.task, windows, logits)
        _, is_cut = self.cut(tf.constant([context for _, context in texts]))
        answers["is_cut"] |= is_cut
        return {
            **{name: value.numpy() for name, value in answers.items()},
            _SCORES: _scores_of_spans(self.task, windows, logits),
        }

    def _maker(self):
        return squad_windows.WindowMaker(
            self.preprocessor, self.task, self.options.max_windows
        )

    def decode_rows(
        self, inputs: dict[str, tf.Tensor], outputs: Any
    ) -> dict[str, tf.Tensor]:
        # Each row is one window.
        length_B1 = tf.reduce_sum(
            inputs[features.INPUT_MASK], axis=1, keepdims=True
        )
        place_L = tf.range(tf.shape(inputs[features.INPUT_MASK])[1])
        found = self.task.find_spans(
            outputs,
            tf.equal(inputs[features.SEGMENT_IDS], 1)
            & (place_L < length_B1 - 1),
        )
        return {name: outputs[name] for name in squad.OUTPUTS} | {
            "token_starts": found["starts"],
            "token_ends": found["ends"],
            # -inf without a candidate, which JSON cannot hold.
            "token_scores": tf.maximum(found["scores"], tf.float32.min),
            "null_scores": found["null_scores"],
        }

    def settle_ties(
        self,
        texts: Sequence[Row],
        trained: dict[str, np.ndarray],
        answers: dict[str, np.ndarray],
        tolerance: float,
    ) -> dict[str, np.ndarray]:
        if "nbest_answers" not in answers:
            return _settle_tokens(trained, answers, tolerance)
        if answers["nbest_starts"].shape != trained["nbest_starts"].shape:
            return trained
        _, contexts = map(_valid, self.columns(texts))
        is_as_good = np.array(
            [
                _is_as_good(answers, trained, row, context.decode(), tolerance)
                for row, context in enumerate(contexts.numpy())
            ]
        )
        is_entry = is_as_good[:, np.newaxis] & (trained["nbest_scores"] > 0)
        settled = dict(trained)
        for name in _NBEST:
            for key, choose in (
                (name, is_as_good),
                (f"nbest_{name}", is_entry),
            ):
                settled[key] = np.where(choose, answers[key], trained[key])
        return settled


def _answer_strings(questions, contexts, maker, model):
    """Returns the answers to strings, with TensorFlow operations.

    Args:
        questions: string `[B]`.
        contexts: string `[B]`.
        maker: The task's `WindowMaker`.
        model: The `TracedModel`.

    Returns:
        {output: tensor}.
    """
    contexts = _valid(contexts)
    windows = squad_answers.cut_windows(maker, questions, contexts)
    logits = chunks.compute_windows(
        windows.packed,
        model,
        squad_answers.stacked_outputs,
        [None, 2],
    )
    return _answers(maker.task, windows, logits)


def _answers(task, windows, logits):
    """Returns the answers to strings.

    Args:
        task: The `SquadTask`.
        windows: The questions' `Windows`.
        logits: float32 `[N, L, 2]`, of the windows.
    """
    found = squad_answers.choose(task, windows, logits)
    entries = {
        "answers": found["texts"],
        "starts": found["starts"],
        "limits": found["limits"],
        "scores": tf.cast(tf.nn.softmax(found["scores"]), tf.float32),
    }
    answers = {f"nbest_{name}": value for name, value in entries.items()}
    place = found["best"]
    if task.version_2_with_negative:
        odds = found["null_odds"]
        null_place = tf.argmax(
            tf.equal(found["starts"], -1), axis=1, output_type=tf.int32
        )
        is_answered = odds <= task.null_score_diff_threshold
        place = tf.where(is_answered, place, null_place)
        answers["null_odds"] = tf.cast(odds, tf.float32)
    for name, value in entries.items():
        answers[name] = tf.gather(value, place, batch_dims=1)
    return answers | {"is_cut": windows.is_cut}


def _valid(texts):
    """Drops bytes that are not UTF-8, which no answer could hold."""
    return tf.strings.unicode_transcode(
        texts, "UTF-8", "UTF-8", errors="ignore"
    )


def _scores_of_spans(task, windows, logits):
    """Returns {(start, limit): score} of every span, for each question.

    No answer is the span (-1, -1).

    Args:
        task, windows, logits: As in `_answers`.
    """
    # As many candidates as there are positions, up to a task's limit.
    task = dataclasses.replace(
        task, n_best_size=min(logits.shape[1], MOST_ANSWERS)
    )
    spans = squad_answers.find_spans(task, windows, logits)
    offsets = windows.offsets
    columns = (
        spans.row,
        tf.gather(offsets.starts.flat_values, spans.first),
        tf.gather(offsets.limits.flat_values, spans.last),
        tf.reduce_sum(spans.logits, axis=1),
    )
    found: list[dict[tuple[int, ...], float]] = [{} for _ in windows.contexts]
    for row, *span, score in zip(
        *(values.numpy().tolist() for values in columns)
    ):
        score = max(score, found[row].get(tuple(span), -np.inf))
        found[row][tuple(span)] = score
    if task.version_2_with_negative:
        nulls = logits[:, 0].astype(np.float64).sum(axis=1)
        for row, null in zip(windows.rows.numpy().tolist(), nulls):
            found[row][-1, -1] = min(null, found[row].get((-1, -1), np.inf))
    return found


def _entries(answers, row):
    """Returns a row's n-best list of (text, start, limit)."""
    columns = [answers[f"nbest_{name}"][row] for name in _NBEST]
    count = np.count_nonzero(answers["nbest_scores"][row])
    return [
        (text, int(start), int(limit))
        for text, start, limit in list(zip(*columns))[:count]
    ]


def _is_as_good(answers, trained, row, context, tolerance):
    """Returns whether other answers of a row have the scores of those wanted.

    Args:
        answers, trained, tolerance: As in `Servable.settle_ties`.
        row: The row's number.
        context: Its text.
    """
    entries, wanted = (_entries(found, row) for found in (answers, trained))
    if len(entries) != len(wanted) or len({*entries}) != len(entries):
        return False
    scores = trained[_SCORES][row]
    for (text, *span), (_, *best) in zip(entries, wanted):
        score, best = scores.get(tuple(span)), scores.get(tuple(best))
        cited = context[span[0] : span[1]].encode() if span[0] >= 0 else b""
        if score is None or best is None or text != cited:
            return False
        if abs(score - best) > tolerance * max(1.0, abs(best)):
            return False
    # The answer is the first entry with a span, or the entry without one.
    is_answered = trained["starts"][row] >= 0
    chosen = (entry for entry in entries if (entry[1] >= 0) == is_answered)
    return next(chosen, None) == tuple(answers[name][row] for name in _NBEST)


def _settle_tokens(trained, answers, tolerance):
    """Returns trained answers with other tokens of the same score."""
    logits = [
        np.take_along_axis(trained[name], answers[places][:, np.newaxis], 1)
        for name, places in (
            ("start_logits", "token_starts"),
            ("end_logits", "token_ends"),
        )
    ]
    difference = (logits[0] + logits[1])[:, 0] - trained["token_scores"]
    is_as_good = np.abs(difference) <= tolerance * np.maximum(
        1.0, np.abs(trained["token_scores"])
    )
    return trained | {
        name: np.where(is_as_good, answers[name], trained[name])
        for name in ("token_starts", "token_ends")
    }
