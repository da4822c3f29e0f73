r"""A family of tasks of one's own: a number for every word.

    pip install -e examples/word_scores
    python -m word_scores --train_file=train.jsonl --eval_file=dev.jsonl \
        --init_checkpoint=minilm --output_dir=scored --do_train --do_eval

reads rows of `words` and `scores`, two lists of one length. A word whose score
is null does not count. `bert_tf export` and `bert_tf check` know the family by
the entry point in pyproject.toml.
"""

import dataclasses
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf import atomic
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.serving.kinds.output import IS_CUT
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.kinds.words import Words
from bert_tf.tasks import columns
from bert_tf.tasks import metrics
from bert_tf.tasks import tables
from bert_tf.tasks.families import Family
from bert_tf.tasks.source import TEST
from bert_tf.tasks.tagging import windows
from bert_tf.tasks.task import Task
from bert_tf.tasks.task import with_weights


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sentences:
    """Words with scores, float32 `[W, 2]` with their weights, or None."""

    words: tuple[str, ...]
    row_lengths: np.ndarray
    scores: np.ndarray | None

    def __len__(self):
        return len(self.row_lengths)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreSource(windows.WordSource):
    """Sentences as windows."""

    @property
    def word_labels(self) -> np.ndarray | None:
        return self.examples.scores


@keras.saving.register_keras_serializable(package="word_scores")
@dataclasses.dataclass(frozen=True, kw_only=True)
class WordScoresTask(Task):
    """A regression of every word, by the squared error."""

    family = "word_scores"
    model_class = BertTokenClassifier
    source_class = ScoreSource
    main_metric = "eval_pearson"
    accuracy = None
    label_rank = 2
    has_label_weights = True

    def make_model(self, config, **options):
        return BertTokenClassifier(config, **self.model_arguments(), **options)

    def model_arguments(self):
        return {"num_labels": 1}

    def losses(self, logits, labels):
        return ops.square(logits[..., 0] - labels)

    def read(self, data, split, label_column="scores"):
        names = ["words"] + [label_column] * (split != TEST)
        words, lengths, scores = [], [], []
        for where, (own, *labels) in columns.read(data, names):
            columns.check_texts(where, "words", own)
            if labels and len(labels[0]) != len(own):
                raise ValueError(f"{where}: every word must have a score.")
            words += own
            lengths.append(len(own))
            scores += labels[0] if labels else []
        has_score = [score is not None for score in scores]
        return Sentences(
            words=tuple(words),
            row_lengths=np.array(lengths, np.int32),
            scores=None
            if split == TEST
            else with_weights([score or 0 for score in scores], has_score),
        )

    def source_arguments(self, preprocessor):
        return {"maker": windows.WindowMaker(preprocessor)}

    def prediction_model(self, model, max_seq_length):
        return windows.padded_outputs(model, max_seq_length)

    def answers(self, source, kept):
        # The outputs of the words, `[W, 1]`.
        return kept[:, 0]

    def evaluate(self, source, kept, answers):
        scores, weights = source.examples.scores.T
        counts = weights > 0
        return {
            "eval_loss": float(np.mean((answers - scores)[counts] ** 2)),
            "eval_pearson": metrics.pearson(answers[counts], scores[counts]),
        }

    def report_sections(self, examples, answers, results):
        scores, weights = examples.scores.T
        errors = np.abs(answers - scores) * weights
        rows = [
            (examples.words[i], float(scores[i]), float(answers[i]))
            for i in tables.worst(errors, errors > 0)
        ]
        header = ("word", "score", "answer")
        return [("Worst words", tables.errors_table(header, rows))]

    def write_predictions(self, output_dir, split, examples, answers):
        path = f"{output_dir}/{split}_results.tsv"
        rows = zip(examples.words, answers)
        atomic.write_text(path, "".join(f"{w}\t{x}\n" for w, x in rows))
        return f"{len(answers)} scores in {path}"


class WordScores(Words):
    """The words of strings with their scores; for ids, every token's."""

    COUNT = "num_words"
    outputs_of_strings = (
        Output("num_words", "int32", "", "how many words there are"),
        Output("scores", "float32", "words", "their scores", missing=0.0),
        Output("starts", "int32", "words", "where they start", missing=-1),
        Output("limits", "int32", "words", "where they end", missing=-1),
        IS_CUT,
    )
    outputs_of_ids = (
        Output("token_scores", "float32", "length", "the tokens' scores"),
    )

    def decode(self, outputs: Any) -> dict[str, tf.Tensor]:
        return {"token_scores": outputs[..., 0]}

    def answer_words(self, words):
        def rows(values, missing):
            return words.outputs.with_flat_values(values).to_tensor(missing)

        scores = words.outputs.flat_values[:, 0]
        return {
            "num_words": tf.cast(words.outputs.row_lengths(), tf.int32),
            "scores": rows(tf.where(words.is_read, scores, 0.0), 0.0),
            "starts": rows(words.starts, -1),
            "limits": rows(words.limits, -1),
        }


FAMILY = Family(task=WordScoresTask, servable="word_scores:WordScores")


def main(argv):
    del argv
    config = fine_tuning_flags.make_config()
    paths = fine_tuning_flags.wanted_files(config)
    fine_tuning_flags.tune(config, WordScoresTask, paths)


if __name__ == "__main__":
    from bert_tf import fine_tuning_flags
    from bert_tf import program

    fine_tuning_flags.define_files()
    program.run(main)
