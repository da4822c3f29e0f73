"""NumPy oracles and generated records for the tests of training."""

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.models import objectives
from bert_tf.text import vocabulary as vocabulary_lib

LENGTH = 11
PREDICTIONS = 3
VOCAB_SIZE = 37


def tiny_config(dropout=0.0):
    return BertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=20,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        max_position_embeddings=16,
    )


def vocabulary():
    words = [f"w{n}" for n in range(VOCAB_SIZE - 5)]
    return vocabulary_lib.Vocabulary(
        tokens=(*vocabulary_lib.SPECIAL_TOKENS, *words)
    )


def pretraining_objective():
    return objectives.PRETRAINING


def pretraining_arrays(num_examples, seed=7):
    """Makes random examples, each with 1 to PREDICTIONS masked tokens."""
    random = np.random.default_rng(seed)
    arrays = {
        name: np.zeros((num_examples, *shape), dtype)
        for name, (dtype, shape) in features.pretraining_record(
            LENGTH, PREDICTIONS
        ).items()
    }
    for row in range(num_examples):
        length = random.integers(5, LENGTH + 1)
        split = random.integers(2, length)
        arrays[features.INPUT_IDS][row, :length] = random.integers(
            1, VOCAB_SIZE, length
        )
        arrays[features.INPUT_MASK][row, :length] = 1
        arrays[features.SEGMENT_IDS][row, split:length] = 1
        masked = random.integers(1, PREDICTIONS + 1)
        arrays[features.MASKED_LM_POSITIONS][row, :masked] = np.sort(
            random.choice(length, masked, replace=False)
        )
        arrays[features.MASKED_LM_IDS][row, :masked] = random.integers(
            1, VOCAB_SIZE, masked
        )
        arrays[features.MASKED_LM_WEIGHTS][row, :masked] = 1
    arrays[features.NEXT_SENTENCE_LABELS][:, 0] = random.integers(
        0, 2, num_examples
    )
    return arrays


def pack_rows(arrays, groups, length, num_predictions, num_sequences):
    """Puts examples of one sequence into rows, in loops.

    Args:
        arrays: {name: [N, ...]} of unpacked records, with or without masks
            and labels.
        groups: The numbers of the examples of each row, in order.
        length: L of the rows.
        num_predictions: P of the rows.
        num_sequences: S.
    """
    rows = {
        name: np.zeros((len(groups), *shape), dtype)
        for name, (dtype, shape) in features.pretraining_record(
            length,
            num_predictions,
            has_labels=features.NEXT_SENTENCE_LABELS in arrays,
            is_masked=features.MASKED_LM_IDS in arrays,
            max_sequences_per_row=num_sequences,
        ).items()
    }
    for row, group in enumerate(groups):
        start, slot = 0, 0
        for number, example in enumerate(group):
            size = arrays[features.INPUT_MASK][example].sum()
            own = slice(start, start + size)
            for name in features.MODEL_INPUTS:
                rows[name][row, own] = arrays[name][example, :size]
            rows[features.POSITION_IDS][row, own] = range(size)
            rows[features.SEQUENCE_IDS][row, own] = number + 1
            rows[features.FIRST_POSITIONS][row, number] = start
            if features.NEXT_SENTENCE_LABELS in arrays:
                rows[features.NEXT_SENTENCE_LABELS][row, number] = arrays[
                    features.NEXT_SENTENCE_LABELS
                ][example, 0]
            if features.MASKED_LM_IDS in arrays:
                weights = arrays[features.MASKED_LM_WEIGHTS][example]
                for index in np.flatnonzero(weights):
                    position = arrays[features.MASKED_LM_POSITIONS][
                        example, index
                    ]
                    rows[features.MASKED_LM_POSITIONS][row, slot] = (
                        start + position
                    )
                    rows[features.MASKED_LM_IDS][row, slot] = arrays[
                        features.MASKED_LM_IDS
                    ][example, index]
                    rows[features.MASKED_LM_WEIGHTS][row, slot] = weights[index]
                    slot += 1
            start += size
    return rows


def as_batch(arrays):
    """Returns what the input pipeline makes of these records."""
    return {
        name: tf.constant(
            array.astype("int32") if array.dtype == np.int64 else array
        )
        for name, array in arrays.items()
    }


def write_records(path, arrays):
    """Writes {name: [N, ...]} as a TFRecord file of N examples."""
    num_examples = len(next(iter(arrays.values())))
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in range(num_examples):
            example = tf.train.Example()
            for name, array in arrays.items():
                feature = example.features.feature[name]
                if array.dtype == np.float32:
                    feature.float_list.value.extend(array[row].tolist())
                else:
                    feature.int64_list.value.extend(array[row].tolist())
            writer.write(example.SerializeToString())


def warmup_linear_decay(step, peak, num_train_steps, num_warmup_steps):
    """The original's rate, drop and all."""
    if step < num_warmup_steps:
        return peak * step / num_warmup_steps
    if step < num_train_steps:
        return peak * (1 - step / num_train_steps)
    return 0.0


class ReferenceOptimizer:
    """google-research/bert's AdamWeightDecayOptimizer on NumPy arrays."""

    def __init__(self, weights, is_decayed, bias_correction=False):
        self.weights = [weight.astype("float64") for weight in weights]
        self.is_decayed = is_decayed
        self.bias_correction = bias_correction
        self.m = [np.zeros_like(weight) for weight in self.weights]
        self.v = [np.zeros_like(weight) for weight in self.weights]
        self.step = 0

    def apply(self, gradients, learning_rate):
        """Makes a step and returns the norm of all gradients."""
        self.step += 1
        norm = np.sqrt(sum(np.sum(np.square(g)) for g in gradients))
        clipped = [g / max(norm, 1.0) for g in gradients]
        for i, gradient in enumerate(clipped):
            self.m[i] = 0.9 * self.m[i] + 0.1 * gradient
            self.v[i] = 0.999 * self.v[i] + 0.001 * gradient**2
            m, v = self.m[i], self.v[i]
            if self.bias_correction:
                m = m / (1 - 0.9**self.step)
                v = v / (1 - 0.999**self.step)
            update = m / (np.sqrt(v) + 1e-6)
            if self.is_decayed[i]:
                update = update + 0.01 * self.weights[i]
            self.weights[i] = self.weights[i] - learning_rate * update
        return norm


def set_weights(model):
    """Sets weights that do not depend on TensorFlow's random numbers."""
    for index, variable in enumerate(model.weights):
        random = np.random.default_rng(index)
        values = random.normal(0, 0.1, variable.shape)
        if variable.path.endswith("gamma"):
            values = values + 1
        variable.assign(values)


def pretraining_loss(
    masked_lm_logits, next_sentence_logits, batch, epsilon=1e-5
):
    """The original's losses of one batch, in loops: {name: value}."""
    ids = np.array(batch[features.MASKED_LM_IDS])
    weights = np.array(batch[features.MASKED_LM_WEIGHTS], "float64")
    labels = np.array(batch[features.NEXT_SENTENCE_LABELS])
    total = 0.0
    for row in range(ids.shape[0]):
        for column in range(ids.shape[1]):
            logits = masked_lm_logits[row, column].astype("float64")
            probabilities = np.exp(logits) / np.sum(np.exp(logits))
            loss = -np.log(probabilities[ids[row, column]])
            total += weights[row, column] * loss
    masked_lm_loss = total / (np.sum(weights) + epsilon)
    losses = []
    for row, logits in enumerate(next_sentence_logits.astype("float64")):
        probabilities = np.exp(logits) / np.sum(np.exp(logits))
        losses.append(-np.log(probabilities[labels[row, 0]]))
    next_sentence_loss = np.mean(losses)
    return {
        "loss": masked_lm_loss + next_sentence_loss,
        "masked_lm_loss": masked_lm_loss,
        "next_sentence_loss": next_sentence_loss,
    }


def pretraining_loss_tf(outputs, batch):
    """The same in TensorFlow, for its gradients."""
    weights = batch[features.MASKED_LM_WEIGHTS]
    masked_lm = tf.nn.sparse_softmax_cross_entropy_with_logits(
        batch[features.MASKED_LM_IDS], outputs["masked_lm_logits"]
    )
    next_sentence = tf.nn.sparse_softmax_cross_entropy_with_logits(
        batch[features.NEXT_SENTENCE_LABELS][:, 0],
        outputs["next_sentence_logits"],
    )
    return tf.reduce_sum(weights * masked_lm) / (
        tf.reduce_sum(weights) + 1e-5
    ) + tf.reduce_mean(next_sentence)
