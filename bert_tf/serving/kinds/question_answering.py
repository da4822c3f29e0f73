"""Question answering as it is served: answers, and where they stand.

Question and text come as strings, of any length: the graph cuts windows,
chooses among their spans and cites the text, by the rules of run_squad.
"""

import numpy as np
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf import features
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.serving.graph import chunks
from bert_tf.serving.graph import inputs as inputs_lib
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds import answer_choice
from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.serving.kinds.servable import Servable
from bert_tf.tasks.question_answering import answers as squad_answers
from bert_tf.tasks.question_answering import files as squad_files
from bert_tf.tasks.question_answering import windows as squad_windows
from bert_tf.text import packing

QUESTION = "question"
CONTEXT = "context"
_BATCH_SIZE = 16
_NBEST = ("answers", "starts", "limits")
# Beside the trained answers: of each row {(start, limit): score} of all spans.
_SCORES = "scores_of_spans"


class QuestionAnswering(Servable):
    """The spans of texts that answer questions; of ids those of one window.

    To strings `question` and `context`, `[B]`: `answers` string, exactly the
    characters of the context; `starts` and `limits` int32, places in the
    context in characters, which are Unicode code points: the first one and
    that after the last; `scores` float32, the answer's probability among the
    n best. Of those `nbest_answers`, `nbest_starts`, `nbest_limits` and
    `nbest_scores` `[B, K]`. Where there is no answer, and beyond the last
    entry, stand "", -1, -1 and, beyond, 0. Bytes that are not UTF-8 are no
    characters. Of a task whose questions may have no answer also `null_odds`
    float32 `[B]`: by how much no answer scores higher than the best one. And
    `is_cut` bool `[B]`: whether the context has an end that was not read,
    beyond `max_text_bytes` or `max_windows`.

    To ids `start_logits` and `end_logits` `[B, L]`, and of the best span
    `token_starts`, `token_ends` int32 `[B]`, its first and last token, and
    `token_scores`, beside `null_scores`, those of no answer.

    Args:
        task: The `SquadTask` that the model was tuned to.
    """

    KIND = "task"
    BOUNDS = ("max_text_bytes", "max_windows")
    max_windows = 256
    text_features = (QUESTION, CONTEXT)
    outputs_of_ids = (
        *("start_logits", "end_logits", "token_starts", "token_ends"),
        *("token_scores", "null_scores"),
    )
    SCORES_OF_CHOICES = ("scores", "nbest_scores")

    def __init__(self, task):
        self.task = task
        names = (*_NBEST, "scores")
        self.outputs_of_strings = (
            *names,
            *(f"nbest_{name}" for name in names),
            *(("null_odds",) if task.version_2_with_negative else ()),
            "is_cut",
        )

    def load(self, model_dir, dtype=None):
        return checkpoints.load(model_dir, BertSpanPredictor, dtype=dtype)

    def make_signatures(self, module, source):
        def answer_ids(inputs):
            outputs = module(inputs, training=False)
            return answer_choice.decode_ids(self.task, inputs, outputs)

        of_ids = signatures.of_ids(module, answer_ids)
        if module.preprocessor is None:
            return of_ids
        maker = self._maker(source)

        def answer_texts(texts):
            questions, _ = inputs_lib.cut_texts(
                texts[QUESTION], self.max_text_bytes
            )
            contexts, is_cut = inputs_lib.cut_texts(
                texts[CONTEXT], self.max_text_bytes
            )
            answers = find_answers(questions, contexts, maker, module)
            return answers | {"is_cut": answers["is_cut"] | is_cut}

        return of_ids | signatures.of_strings(answer_texts, self.text_features)

    def hard_texts(self, num_strings):
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

    def trained_answers(self, source, inputs, texts):
        outputs = source.model(inputs)
        of_ids = answer_choice.decode_ids(self.task, inputs, outputs)
        examples = _examples(*self.columns(texts))
        maker = self._maker(source)
        windows = squad_windows.WindowSource(examples=examples, maker=maker)
        predict = squad_answers.stacked_outputs(
            source.model, source.preprocessor.max_seq_length
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

    def _maker(self, source):
        return squad_windows.WindowMaker(
            source.preprocessor, self.task, self.max_windows
        )

    def _is_cut(self, texts, examples, maker):
        """Returns which contexts are not read to their ends."""
        is_long = [len(text) > self.max_text_bytes for _, text in texts]
        is_cut = maker.is_cut(
            maker.num_pieces(tf.constant(examples.questions)),
            maker.num_pieces(tf.constant(examples.contexts)),
        )
        return np.array(is_long) | is_cut.numpy()

    def settle_ties(self, source, texts, trained, answers, tolerance):
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
