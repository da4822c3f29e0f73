"""Opens a model folder and computes what the tabs of the page ask for.

Every method that answers takes a request's JSON and returns the answer's. It
uses the same code as the library's programs and exports.
"""

import base64
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf import files
from bert_tf import progress_bar
from bert_tf.checkpoints import hub
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import reader
from bert_tf.models import attention
from bert_tf.playground import answers
from bert_tf.playground import requests
from bert_tf.playground import tokens
from bert_tf.serving.kinds import opening
from bert_tf.serving.kinds.embedding import Embedding
from bert_tf.serving.kinds.fill_mask import FillMask
from bert_tf.serving.kinds.hub import Encoder
from bert_tf.serving.kinds.output import COUNT_TOKENS
from bert_tf.serving.options import ExportOptions
from bert_tf.tasks import fill_mask
from bert_tf.text import packing
from bert_tf.text.tokenizers.tokenizer import Spec

# The number of likeliest tokens for a mask.
TOP_K = 10
# The most windows of a text that are read.
_MAX_WINDOWS = 32
# The most attention probabilities in an answer: 6 MB of float32.
_MAX_PROBS = 1_500_000
_MODEL_INPUTS = dict.fromkeys(
    features.MODEL_INPUTS, tf.TensorSpec([None, None], tf.int32)
)


class PlaygroundModel:
    """A model folder of any kind.

    Args:
        model_dir: A model folder of bert_tf or Hugging Face, or a name of the
            Hub.
        max_seq_length: The longest sequence; None for the folder's.

    Raises:
        ValueError: If it is no such folder.
    """

    def __init__(
        self, model_dir: files.AnyPath, max_seq_length: int | None = None
    ) -> None:
        self.name = _name(str(model_dir))
        model_dir = hub.local_path(model_dir)
        servable = _open(model_dir, max_seq_length)
        self._servable = servable
        self._preprocessor = servable.preprocessor
        self._encoder = getattr(servable.model, "encoder", servable.model)
        self._config = servable.model.config
        self._reader = tokens.Reader(
            servable.preprocessor.tokenizer,
            servable.preprocessor.max_seq_length,
        )
        self._shown = answers.find(servable)
        self.fills_masks = isinstance(servable, FillMask)
        num_heads = self._config.num_attention_heads
        heads = self._config.num_hidden_layers * num_heads
        self._attention_length = min(
            self._reader.max_seq_length,
            max(8, math.isqrt(_MAX_PROBS // heads)),
        )

        @tf.function(autograph=False, input_signature=[_MODEL_INPUTS])
        def compute_attention(inputs):
            return attention.attention_probs(self._encoder, inputs)

        @tf.function(
            autograph=False, input_signature=[tf.TensorSpec([None], tf.string)]
        )
        def encode_masked(texts):
            inputs, is_cut = fill_mask.encode_with_is_cut(
                texts, self._preprocessor
            )
            return packing.trim_padding(inputs), is_cut

        @tf.function(autograph=False, input_signature=[_MODEL_INPUTS])
        def compute_masks(inputs):
            return fill_mask.predict(
                inputs, servable.model, self._preprocessor.vocabulary
            )

        self._compute_attention = compute_attention
        self._encode_masked = encode_masked
        self._compute_masks = compute_masks

    @property
    def tokenizer(self) -> Spec:
        """The `Spec` of the model's tokenizer."""
        return self._preprocessor.tokenizer.spec

    @property
    def mask_token(self) -> str:
        """The vocabulary's name for a masked token."""
        return self._preprocessor.vocabulary.special.mask

    def warm_up(self) -> None:
        """Computes everything, so that TensorFlow traces and plans it now."""
        text = "The first sentence takes longest."
        steps = [
            lambda: self.read_tokens({"texts": [text]}),
            lambda: self.attention({"texts": [text]}),
        ]
        if self.fills_masks:
            # The mask comes first, so that short sequences contain it.
            masked = f"{self.mask_token} {text}"
            steps.append(lambda: self.fill_mask({"texts": [masked]}))
        if self._shown is not None:
            least, _ = self._shown.bounds
            steps.append(lambda: self.predict({"texts": [text] * least}))
        # Twice: TensorFlow's first runs of a graph are slow too.
        with progress_bar.track(2 * steps, "warm up", 2 * len(steps)) as run:
            for step in run:
                step()

    def describe(self) -> dict[str, Any]:
        """Returns what the model is and what it can answer, ready for JSON."""
        spec = self._preprocessor.tokenizer.spec
        return {
            "name": self.name,
            "family": self._config.model_type,
            "num_parameters": self._servable.model.count_params(),
            "num_layers": self._config.num_hidden_layers,
            "num_heads": self._config.num_attention_heads,
            "vocab_size": len(self._preprocessor.vocabulary),
            "tokenizer": spec.tokenizer_class,
            "mask_token": self.mask_token,
            "max_seq_length": self._reader.max_seq_length,
            "fills_masks": self.fills_masks,
            "task": self._shown.describe() if self._shown else None,
        }

    def read_tokens(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the pieces of one or two texts, and what they become.

        Args:
            values: `texts`.

        Raises:
            ValueError: If the request is invalid, as in all methods.
        """
        requests.check_names(values, ("texts",))
        read = self._reader.read(requests.texts_of(values, 1, 2))
        return {
            "texts": read.texts,
            "sequence": read.sequence,
            "is_cut": read.is_cut,
            "max_seq_length": self._reader.max_seq_length,
        }

    def attention(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the attention probabilities of one or two texts.

        Args:
            values: `texts`.

        Returns:
            `probabilities`: base64 of little-endian float32, `[layers, heads,
            L, L]`, over the keys for each query; `shape`; `sequence`;
            `is_cut`.
        """
        requests.check_names(values, ("texts",))
        texts = requests.texts_of(values, 1, 2)
        read = self._reader.read(texts, self._attention_length)
        found = self._compute_attention(read.inputs).numpy()[0]
        _check_finite(found)
        encoded = base64.b64encode(found.astype("<f4").tobytes())
        return {
            "sequence": read.sequence,
            "shape": list(found.shape),
            "probabilities": encoded.decode(),
            "is_cut": read.is_cut,
        }

    def fill_mask(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the likeliest tokens in the place of masks.

        Args:
            values: `texts`, with one text, which may contain the mask token;
                and `position`, of another token to mask, or None.

        Returns:
            `sequence`, the token at each position; `masks`, for each mask its
            position, the `TOP_K` likeliest tokens, and the text's own token
            with its rank among all; `is_cut`.
        """
        requests.check_names(values, ("texts", "position"))
        if not self.fills_masks:
            raise ValueError("The model must have a masked-LM head.")
        (text,) = requests.texts_of(values, 1, 1)
        position = requests.position_of(values)
        if text.count(self.mask_token) > requests.MAX_MASKS:
            raise ValueError(
                f"A text must have at most {requests.MAX_MASKS} "
                f"{self.mask_token}."
            )
        inputs, is_cut = self._encode_masked(tf.constant([text]))
        ids = inputs[features.INPUT_IDS].numpy()
        spelling = self._reader.spelling
        sequence = [spelling.describe(index) for index in ids[0].tolist()]
        if position is not None:
            # Not [CLS], nor the last [SEP].
            if not 0 < position < len(sequence) - 1:
                raise ValueError(
                    "`position` must be the position of a token of the text, "
                    f"1 to {len(sequence) - 2}. Received: position={position}."
                )
            masked = ids.copy()
            masked[0, position] = self._preprocessor.vocabulary.mask_id
            inputs = inputs | {features.INPUT_IDS: tf.constant(masked)}
        is_mask = fill_mask.find_masks(inputs, self._preprocessor.vocabulary)
        positions = np.flatnonzero(is_mask.numpy()[0]).tolist()
        masks = []
        if positions:
            probabilities = self._compute_masks(inputs)[0].numpy()[0]
            _check_finite(probabilities)
            masks = [
                self._mask(place, int(ids[0, place]), shares)
                for place, shares in zip(positions, probabilities)
            ]
        return {
            "sequence": sequence,
            "masks": masks,
            "is_cut": bool(is_cut[0]),
        }

    def _mask(self, position, given, probabilities):
        """Returns the description of a mask, ready for JSON."""
        top_k = min(TOP_K, len(probabilities))
        order = np.argsort(-probabilities, kind="stable")[:top_k]
        spelling = self._reader.spelling
        answer = {
            "position": position,
            "answers": [
                spelling.describe(index)
                | {"probability": float(probabilities[index])}
                for index in order.tolist()
            ],
            "given": None,
        }
        if given != self._preprocessor.vocabulary.mask_id:
            share = probabilities[given]
            answer["given"] = spelling.describe(given) | {
                "probability": float(share),
                "rank": int(np.sum(probabilities > share)) + 1,
            }
        return answer

    def predict(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer of the model's task to texts.

        Args:
            values: `texts`, in the order of the task's names.

        Returns:
            What the task's `answers.Shown` returns.
        """
        requests.check_names(values, ("texts",))
        if self._shown is None:
            raise ValueError("The model must be tuned to a task.")
        texts = requests.texts_of(values, *self._shown.bounds)
        return self._shown.answer(texts)


def _check_finite(numbers):
    """Raises `ArithmeticError` for numbers that JSON cannot hold."""
    if not np.isfinite(numbers).all():
        raise ArithmeticError("The model's numbers are not finite.")


def _name(model_dir):
    """Returns the name to show for a folder, even `.`, or a Hub model."""
    name = os.path.basename(model_dir.rstrip("/"))
    if name in ("", ".", ".."):
        name = os.path.basename(os.path.abspath(model_dir))
    return name


def _open(model_dir, max_seq_length):
    """Returns the `Servable` for the task of a model folder.

    A model without a task fills masks, or, if it has no masked-LM head, makes
    vectors of sentences.
    """
    with reader.open_checkpoint(model_dir) as checkpoint:
        kind, task = opening.find_kind(checkpoint)
        if kind is Encoder:
            has_masks = parts.MASKED_LM in checkpoint.found_parts
            kind = FillMask if has_masks else Embedding
        has_windows = "max_windows" in kind.DEFAULTS
        options = ExportOptions(
            max_seq_length=max_seq_length,
            count_tokens=COUNT_TOKENS in kind.DEFAULTS,
            max_windows=_MAX_WINDOWS if has_windows else None,
        )
        return opening.open_as(kind, checkpoint, task, options)
