"""Question answering as it is served: answers, and where they stand.

Question and text come as strings, of any length: the graph cuts windows,
chooses among their spans and cites the text, by the rules of run_squad.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.checkpoints import parts
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.serving.graph import chunks
from bert_tf.serving.kinds import answer_choice
from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.serving.kinds.output import IS_CUT
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.kinds.output import show_span
from bert_tf.serving.kinds.output import show_text
from bert_tf.serving.kinds.servable import Servable
from bert_tf.tasks.question_answering import answers as squad_answers
from bert_tf.tasks.question_answering import files as squad_files
from bert_tf.tasks.question_answering import windows as squad_windows
from bert_tf.tasks.question_answering.task import SquadTask
from bert_tf.text import packing

QUESTION = "question"
CONTEXT = "context"
_BATCH_SIZE = 16
_NBEST = ("answers", "starts", "limits")
# Beside the trained answers: of each row {(start, limit): score} of all spans.
_SCORES = "scores_of_spans"


_ANSWER = (
    Output(
        *("answers", "string", "", "exactly the characters of the context"),
        missing=b"",
        heading="answer",
        show=lambda answers: show_text(answers["answers"]),
    ),
    # Characters are Unicode code points.
    Output(
        *("starts", "int32", "", "the first character in the context"),
        missing=-1,
        heading="characters",
        show=lambda answers: show_span(answers["starts"], answers["limits"]),
    ),
    Output("limits", "int32", "", "that after the last", missing=-1),
    Output(
        *("scores", "float32", "", "the probability among the n best"),
        missing=0.0,
        is_of_choice=True,
        heading="score",
        show=lambda answers: f"{answers['scores']:.3f}",
    ),
)
_NULL_ODDS = Output(
    *("null_odds", "float32", ""),
    "by how much no answer scores higher than the best one",
    heading="null odds",
    show=lambda answers: f"{answers['null_odds']:.3f}",
)


class QuestionAnswering(Servable):
    """The spans of texts that answer questions; of ids those of one window.

    Bytes that are not UTF-8 are no characters. The model was tuned to a
    `SquadTask`.
    """

    outputs_of_strings = (
        *_ANSWER,
        *(
            dataclasses.replace(
                output, name=f"nbest_{output.name}", axes="n_best", heading=""
            )
            for output in _ANSWER
        ),
        _NULL_ODDS,
        # Where the context has an end that was not read, beyond
        # `max_text_bytes` or `max_windows`.
        IS_CUT,
    )
    outputs_of_ids = (
        Output("start_logits", "float32", "length", "of each token"),
        Output("end_logits", "float32", "length", "of each token"),
        Output("token_starts", "int32", "", "the best span's first token"),
        Output("token_ends", "int32", "", "its last token"),
        Output("token_scores", "float32", "", "the sum of its two logits"),
        Output("null_scores", "float32", "", "that of no answer's"),
    )
    MODEL = BertSpanPredictor
    PART = parts.SPAN
    BOUNDS = {"max_text_bytes": 2**20, "max_windows": 256}

    @classmethod
    def text_features_of(cls, task):
        return (QUESTION, CONTEXT)

    @classmethod
    def task_of(cls, checkpoint, text_features):
        """Returns run_squad's own `SquadTask`, which such folders go by."""
        return SquadTask()

    def __init__(self, model, preprocessor, task, options, weight_files=()):
        super().__init__(model, preprocessor, task, options, weight_files)
        if not task.version_2_with_negative:
            self.outputs_of_strings = tuple(
                output
                for output in self.outputs_of_strings
                if output is not _NULL_ODDS
            )

    def answer_ids(self, module, inputs):
        outputs = module(inputs, training=False)
        return answer_choice.decode_ids(self.task, inputs, outputs)

    def answer_texts(self, module, texts):
        questions, _ = self.cut(texts[QUESTION])
        contexts, is_cut = self.cut(texts[CONTEXT])
        answers = find_answers(questions, contexts, self._maker(), module)
        return answers | {"is_cut": answers["is_cut"] | is_cut}

    def hard_texts(self):
        # The question is the string before.
        hard = texts_lib.hard_uncut_texts()
        return list(zip(hard[-1:] + hard[:-1], hard))

    def read_texts(self, path):
        examples = squad_files.read_squad(
            path, self.task.version_2_with_negative, is_training=False
        )
        return [
            (question.encode(), examples.context(index).encode())
            for index, question in enumerate(examples.questions)
        ]

    def trained_answers(self, inputs, texts):
        outputs = self.model(inputs)
        of_ids = answer_choice.decode_ids(self.task, inputs, outputs)
        examples = _examples(*self.columns(texts))
        maker = self._maker()
        windows = squad_windows.WindowSource(examples=examples, maker=maker)
        predict = squad_answers.stacked_outputs(
            self.model, self.preprocessor.max_seq_length
        )
        logits = np.concatenate(
            [
                predict(batch, training=False)
                for batch in windows.evaluation_batches(_BATCH_SIZE)
            ]
        )[: windows.num_examples]
        found = squad_answers.find_answers(self.task, windows, logits)
        return {
            **{name: value.numpy() for name, value in of_ids.items()},
            **_arrays(self.task, examples, found),
            "is_cut": self._is_cut(texts, examples, maker),
            _SCORES: _scores_of_spans(self.task, windows, logits),
        }

    def _maker(self):
        return squad_windows.WindowMaker(
            self.preprocessor, self.task, self.bounds["max_windows"]
        )

    def _is_cut(self, texts, examples, maker):
        """Returns which contexts are not read to their ends."""
        _, is_long = self.cut(tf.constant([context for _, context in texts]))
        is_cut = maker.is_cut(
            maker.num_pieces(tf.constant(examples.questions)),
            maker.num_pieces(tf.constant(examples.contexts)),
        )
        return (is_long | is_cut).numpy()

    def settle_ties(self, texts, trained, answers, tolerance):
        if "nbest_answers" not in answers:
            return _settle_tokens(trained, answers, tolerance)
        settled = dict(trained)
        for name in _NBEST:
            settled[f"nbest_{name}"] = trained[f"nbest_{name}"].copy()
            settled[name] = trained[name].copy()
        examples = _examples(*self.columns(texts))
        for row, scores in enumerate(trained[_SCORES]):
            entries, wanted = (
                _entries(found, row) for found in (answers, trained)
            )
            context = examples.context(row)
            if entries == wanted or not _are_as_good(
                entries, wanted, scores, context, tolerance
            ):
                continue
            place = wanted.index(
                (trained["answers"][row], trained["starts"][row])
                + (trained["limits"][row],)
            )
            if wanted[place][1] >= 0:
                # The best one that is an answer.
                place = next(
                    index
                    for index, (_, start, _) in enumerate(entries)
                    if start >= 0
                )
            else:
                place = [start for _, start, _ in entries].index(-1)
            for column, name in enumerate(_NBEST):
                for index, entry in enumerate(entries):
                    settled[f"nbest_{name}"][row, index] = entry[column]
                settled[name][row] = entries[place][column]
        return settled


def find_answers(questions, contexts, maker, model):
    """Finds the answers to questions, in TensorFlow's operations.

    Args:
        questions: string `[B]`.
        contexts: string `[B]`.
        maker: The task's `WindowMaker`.
        model: A `BertSpanPredictor`, or what is called as one.

    Returns:
        The answers to strings; see `QuestionAnswering`.
    """
    contexts = _valid(contexts)
    question, context, offsets = maker.tokenize(questions, contexts)
    counts = [
        tf.cast(pieces.row_lengths(), tf.int32)
        for pieces in (question, context)
    ]
    num_windows = maker.num_windows(*counts)
    row_of_window = tf.repeat(tf.range(tf.size(num_windows)), num_windows)
    window = tf.range(tf.size(row_of_window)) - tf.gather(
        tf.cumsum(num_windows, exclusive=True), row_of_window
    )
    windows = maker.pack(question, context, row_of_window, window)
    trimmed = packing.trim_padding(windows)
    length = tf.shape(trimmed[features.INPUT_IDS])[1]

    predict = squad_answers.stacked_outputs(model, length)
    logits = chunks.compute_in_chunks(
        trimmed,
        lambda inputs: predict(inputs, training=False),
        chunks.CHUNK_SIZE,
        [None, 2],
    )
    answers = answer_choice.choose(
        maker.task, contexts, context, offsets, windows, row_of_window, logits
    )
    return answers | {"is_cut": maker.is_cut(*counts)}


def _valid(texts):
    """Drops bytes that are not UTF-8, which no answer could hold."""
    return tf.strings.unicode_transcode(
        texts, "UTF-8", "UTF-8", errors="ignore"
    )


def _examples(questions, contexts):
    """Returns strings `[B]` as `SquadExamples`."""
    questions, contexts = (
        tuple(text.decode() for text in _valid(column).numpy())
        for column in (questions, contexts)
    )
    nowhere = np.full(len(questions), -1, np.int32)
    return squad_files.SquadExamples(
        ids=tuple(str(row) for row in range(len(questions))),
        questions=questions,
        contexts=contexts,
        context_indices=np.arange(len(questions), dtype=np.int32),
        answer_starts=nowhere,
        answer_limits=nowhere,
        answers=None,
    )


def _arrays(task, examples, found):
    """Returns `SquadAnswers` as the answers to strings."""
    shape = len(examples), answer_choice.num_entries(task)
    nbest = {
        "answers": np.full(shape, b"", object),
        "starts": np.full(shape, -1, np.int32),
        "limits": np.full(shape, -1, np.int32),
        "scores": np.zeros(shape, np.float32),
    }
    places = np.zeros(len(examples), np.int32)
    predictions = found.predictions(task)
    for row, name in enumerate(examples.ids):
        texts = [entry["text"] for entry in found.nbest[name]]
        places[row] = texts.index(predictions[name])
        for place, entry in enumerate(found.nbest[name]):
            nbest["answers"][row, place] = entry["text"].encode()
            nbest["scores"][row, place] = entry["probability"]
            start, limit = found.spans[name][place]
            nbest["starts"][row, place] = start
            nbest["limits"][row, place] = limit
    rows = np.arange(len(examples))
    answers = {name: value[rows, places] for name, value in nbest.items()}
    if task.version_2_with_negative:
        answers["null_odds"] = np.array(
            [found.null_odds[name] for name in examples.ids], np.float32
        )
    return answers | {f"nbest_{name}": nbest[name] for name in nbest}


def _scores_of_spans(task, windows, logits):
    """Returns of each question {(start, limit): score}, for every span.

    No answer is the span (-1, -1).

    Args:
        task: The `SquadTask`.
        windows: A `WindowSource`.
        logits: float32 `[N, L, 2]`, of its windows.
    """
    places = windows.places()
    logits = iter(logits.astype(np.float64))
    found = []
    for count in windows.num_windows:
        scores = {}
        nulls = []
        for _ in range(count):
            window, (starts, ends) = next(places), next(logits).T
            nulls.append(starts[0] + ends[0])
            may_start = np.flatnonzero(window[squad_windows.IS_MAX_CONTEXT])
            is_context = window[squad_windows.LIMITS] >= 0
            for first in may_start:
                for last in range(first, first + task.max_answer_length):
                    if last >= len(ends) or not is_context[last]:
                        break
                    span = (
                        int(window[squad_windows.STARTS][first]),
                        int(window[squad_windows.LIMITS][last]),
                    )
                    scores[span] = max(
                        starts[first] + ends[last],
                        scores.get(span, -np.inf),
                    )
        if task.version_2_with_negative:
            scores[-1, -1] = min(nulls)
        found.append(scores)
    return found


def _entries(answers, row):
    """Returns a row's n-best list of (text, start, limit)."""
    columns = [answers[f"nbest_{name}"][row] for name in _NBEST]
    count = np.count_nonzero(answers["nbest_scores"][row])
    return [
        (text, int(start), int(limit))
        for text, start, limit in list(zip(*columns))[:count]
    ]


def _are_as_good(entries, wanted, scores, context, tolerance):
    """Returns whether other entries have the scores of those wanted."""
    if len(entries) != len(wanted) or len({*entries}) != len(entries):
        return False
    for (text, *span), (_, *best) in zip(entries, wanted):
        score, best = scores.get(tuple(span)), scores.get(tuple(best))
        cited = context[span[0] : span[1]].encode() if span[0] >= 0 else b""
        if score is None or best is None or text != cited:
            return False
        if abs(score - best) > tolerance * max(1.0, abs(best)):
            return False
    return True


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
