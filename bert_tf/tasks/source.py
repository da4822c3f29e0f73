"""Batches of a task's examples: strings, turned into model inputs in tf.data.

Only strings are kept and, for texts that are cut into windows, their pieces.
The inputs of a batch are made when it is needed, in parallel threads.
"""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import ClassVar

import numpy as np
import tensorflow as tf

from bert_tf import progress_bar
from bert_tf.features import Batch
from bert_tf.input import array_source
from bert_tf.input.batch_source import Context
from bert_tf.text import packing
from bert_tf.text.tokenizers.tokenizer import Tokenizer

# Names of the sets of examples. There may be more development sets, whose names
# begin with that of the first, e.g. "dev_mismatched".
TRAIN = "train"
DEV = "dev"
TEST = "test"


def is_dev(split: str) -> bool:
    """Returns whether a set is one of the development sets, by its name."""
    return split.startswith(DEV)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source(abc.ABC):
    """A task's examples as a `BatchSource`; see `input.batch_source`.

    Training batches are all full: they run on from one epoch into the next, as
    in google-research/bert, unless there are `whole_epochs`. Their order is a
    function of (seed, epoch) and, with `window_batches`, of the batch size.
    The last batch of an evaluation is filled up with rows whose
    `example_weights` are 0.

    Args:
        examples: What the task reads from its files.
        seed: Seed of the order of the training examples.
        is_trimmed: Whether L is the length of the batch's longest sequence.
            If not, L is the maximum sequence length, as TPUs need it. Without
            dropout both give the same steps.
        trim_multiple: If trimmed, L is rounded up to a multiple of this, but
            not beyond the maximum sequence length.
        window_batches: 0, or how many batches are sorted by length together;
            see `array_source.ArraySource`.
        whole_epochs: Whether the last training batch of an epoch is filled up
            likewise, so that every epoch trains every example once.

    Attributes:
        unit: What logs and model cards call the rows.
        num_texts: How many texts a sequence holds: 1, or 2 if they are pairs.
    """

    unit: ClassVar[str] = "examples"

    examples: Any
    seed: int = 12345
    is_trimmed: bool = False
    trim_multiple: int = 1
    window_batches: int = 0
    whole_epochs: bool = False

    @property
    def num_texts(self) -> int:
        return 1

    @property
    @abc.abstractmethod
    def arrays(self) -> Mapping[str, Any]:
        """The source's rows: {name: array or list of `[N, ...]`}."""

    @abc.abstractmethod
    def input_maker(self) -> Callable[[Batch], Batch]:
        """Returns a function from a batch of `arrays` to {name: [B, ...]}.

        Make constants here, outside the function: inside they would become
        part of its graph, which is limited to 2 GB.
        """

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """int `[N]`: the number of tokens of each row's longest sequence."""
        return array_source.example_lengths(self)

    @property
    def num_examples(self) -> int:
        return len(next(iter(self.arrays.values())))

    @property
    def num_kept(self) -> int:
        """The number of all rows that `kept` returns."""
        return self.num_examples

    def kept(self, logits: np.ndarray, start: int) -> np.ndarray:
        """Returns what answers and scores need of the logits of some rows.

        Args:
            logits: `[B, ...]`: of the rows from number `start` on. Each row is
                there once, and they are in order.
            start: The number of the first of them.
        """
        del start
        return logits

    def training_batches(
        self, batch_size: int, start_example: int = 0, context: Context = None
    ) -> tf.data.Dataset:
        """Returns the training batches; see `BatchSource`."""
        rows = self._rows(self.lengths if self.window_batches else None)
        return self._map_to_inputs(
            rows.training_batches(batch_size, start_example, context)
        )

    def evaluation_batches(
        self, batch_size: int, context: Context = None
    ) -> tf.data.Dataset:
        """Returns the evaluation batches; see `BatchSource`."""
        return self._map_to_inputs(
            self._rows().evaluation_batches(batch_size, context)
        )

    def _trim(self, inputs):
        """Cuts model inputs `[B, max_seq_length]` to `[B, L]`."""
        if not self.is_trimmed:
            return inputs
        return packing.trim_padding(inputs, self.trim_multiple)

    def _rows(self, lengths=None):
        return array_source.ArraySource(
            arrays={
                name: tf.constant(values)
                for name, values in self.arrays.items()
            },
            seed=self.seed,
            lengths=lengths,
            window_batches=self.window_batches,
            whole_epochs=self.whole_epochs,
        )

    @functools.cached_property
    def _make_inputs(self):
        names, make = tuple(self.arrays), self.input_maker()

        # Traced once, not again for every epoch and every evaluation.
        @tf.function(autograph=False)
        def make_inputs(batch):
            rest = dict(batch)
            own = {name: rest.pop(name) for name in names}
            return {**make(own), **rest}

        return make_inputs

    def _map_to_inputs(self, batches):
        # TensorFlow autotunes a pipeline in a thread that sleeps for up to a
        # minute, and the end of a distributed iterator waits for that thread.
        # Without it there are as many parallel calls as cores.
        options = tf.data.Options()
        options.autotune.enabled = False
        return (
            batches.map(self._make_inputs, num_parallel_calls=tf.data.AUTOTUNE)
            .prefetch(tf.data.AUTOTUNE)
            .with_options(options)
        )


def window_rows(num_windows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the example of each window, and the window's number in it.

    Args:
        num_windows: int `[N]`: how many windows every example has.

    Returns:
        Two int32 arrays: for every window, the number of its example, and its
        own number within that example.
    """
    examples = np.repeat(np.arange(len(num_windows)), num_windows)
    first = np.cumsum(num_windows) - num_windows
    windows = np.arange(len(examples)) - first[examples]
    return examples.astype(np.int32), windows.astype(np.int32)


def count_pieces(
    texts: Sequence[str], tokenizer: Tokenizer, batch_size: int
) -> np.ndarray:
    """Returns the number of pieces of every text, int32 `[N]`.

    Args:
        texts: N strings.
        tokenizer: The tokenizer.
        batch_size: How many texts are tokenized at a time.
    """
    num_batches = math.ceil(len(texts) / batch_size)
    batches = tf.data.Dataset.from_tensor_slices(tf.constant(texts))
    counts = batches.batch(batch_size).map(
        _piece_counter(tokenizer), num_parallel_calls=tf.data.AUTOTUNE
    )
    with progress_bar.track(
        counts.as_numpy_iterator(), "tokenize", num_batches
    ) as tracked:
        return np.concatenate(list(tracked)).astype(np.int32)


@functools.lru_cache(maxsize=4)
def _piece_counter(tokenizer):
    """Returns a counter of the pieces of texts, traced once for all sets."""
    return tf.function(
        lambda texts: tokenizer.tokenize(texts).merge_dims(1, 2).row_lengths(),
        autograph=False,
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
