"""What a folder of sentence-transformers says about its vectors.

modules.json                        the modules, in their order
1_Pooling/config.json               how the vectors of tokens become one
2_Dense/config.json                 a layer on that vector: its activation,
2_Dense/model.safetensors           and its weights
sentence_bert_config.json           the longest sequence
config_sentence_transformers.json   prompts, which are put before texts, and how
                                    vectors are compared

Reimers and Gurevych 2019 (arXiv 1908.10084), section 3: the Transformer, then a
pooling; later models also normalise the vector to length 1.
"""

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy
from absl import logging

from bert_tf import files
from bert_tf import messages
from bert_tf.checkpoints import sentence_files
from bert_tf.checkpoints.containers import hugging_face_folder
from bert_tf.text.tokenizers import files as tokenizer_files

CLS, MEAN, MAX = "cls", "mean", "max"
POOLINGS = (CLS, MEAN, MAX)
# Names of prompts that sentence-transformers tries before the default.
QUERY_PROMPTS = ("query",)
PASSAGE_PROMPTS = ("document", "passage", "corpus")
LINEAR, TANH = "linear", "tanh"
# The similarity of vectors by default; there are also "dot", "euclidean" and
# "manhattan".
COSINE = "cosine"

# {name in files since version 5: ours}, and {name in older files: ours}.
_MODES = {"cls": CLS, "mean": MEAN, "max": MAX}
_OLD_PREFIX = "pooling_mode_"
_OLD_MODES = {
    "pooling_mode_cls_token": CLS,
    "pooling_mode_mean_tokens": MEAN,
    "pooling_mode_max_tokens": MAX,
}
# The package in which all releases find the modules, even before version 5.
_PACKAGE = "sentence_transformers.models"
# Functions by the last word of their name, after the package.
_ACTIVATIONS = {"Identity": LINEAR, "Tanh": TANH}
_ACTIVATION_PACKAGE = "torch.nn.modules"
_ACTIVATION_NAMES = {
    LINEAR: f"{_ACTIVATION_PACKAGE}.linear.Identity",
    TANH: f"{_ACTIVATION_PACKAGE}.activation.Tanh",
}
_KERNEL, _BIAS = "linear.weight", "linear.bias"
# The only input and output of a Dense module that is supported.
_VECTOR = "sentence_embedding"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DenseLayer:
    """A layer on the pooled vector: activation(vector * kernel + bias).

    Args:
        kernel: float32 `[in, out]`.
        bias: float32 `[out]`, or None.
        activation: "linear" or "tanh".
    """

    kernel: np.ndarray
    bias: np.ndarray | None
    activation: str

    @property
    def weights(self) -> list[np.ndarray]:
        """The kernel and, if there is one, the bias: as of a Keras layer."""
        return [self.kernel] if self.bias is None else [self.kernel, self.bias]

    @property
    def is_trainable(self) -> bool:
        """Whether a `BertSentenceEncoder` can have it: tanh, with a bias."""
        return self.activation == TANH and self.bias is not None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceVectors:
    """How a model makes the vector of a text.

    Args:
        pooling: "cls", "mean" or "max", over the last block's vectors.
        is_normalized: Whether the vector is divided by its length.
        max_seq_length: The longest sequence; None if unknown.
        dense: The layers between the pooling and the normalisation, often
            none.
        prompts: {name: text}; the texts may be put before other texts.
        default_prompt_name: Name of the prompt that is used by default; None
            for no prompt.
        include_prompt: Whether the prompt's tokens are pooled too.
        similarity: sentence-transformers' name for the similarity of vectors.
        truncate_dim: How many numbers of the vector are kept, from the first
            on; None for all. The cut vector is not normalised again.

    Raises:
        ValueError: If the pooling is unknown, a prompt is not a string, the
            default is not one of the prompts, the similarity is not a string,
            or `truncate_dim` is not a positive integer.
    """

    pooling: str
    is_normalized: bool
    max_seq_length: int | None = None
    dense: tuple[DenseLayer, ...] = ()
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default_prompt_name: str | None = None
    include_prompt: bool = True
    similarity: str = COSINE
    truncate_dim: int | None = None

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS:
            raise ValueError(
                f"`pooling` must be one of {', '.join(POOLINGS)}. "
                f"Received: pooling={messages.shortened(self.pooling)}."
            )
        if not isinstance(self.prompts, Mapping) or not all(
            isinstance(value, str)
            for prompt in self.prompts.items()
            for value in prompt
        ):
            raise ValueError(
                "`prompts` must map names to texts. "
                f"Received: prompts={messages.shortened(self.prompts)}."
            )
        if self.default_prompt_name is not None:
            self.prompt(self.default_prompt_name)
        if not isinstance(self.similarity, str):
            raise ValueError(
                "`similarity_fn_name` must be a name, or null. Received: "
                f"similarity_fn_name={messages.shortened(self.similarity)}."
            )
        size = self.truncate_dim
        if size is not None and (type(size) is not int or size < 1):
            raise ValueError(
                "`truncate_dim` must be a positive integer, or null. "
                f"Received: truncate_dim={messages.shortened(size)}."
            )

    @property
    def dense_size(self) -> int | None:
        """Outputs of the last dense layer; None if there are no layers."""
        return self.dense[-1].kernel.shape[1] if self.dense else None

    @property
    def is_trainable(self) -> bool:
        """Whether a `BertSentenceEncoder` can have all the dense layers."""
        return len(self.dense) < 2 and all(
            layer.is_trainable for layer in self.dense
        )

    def size(self, hidden_size: int) -> int:
        """Returns how many numbers a vector has.

        Args:
            hidden_size: The model's hidden size.
        """
        size = self.dense_size or hidden_size
        return min(size, self.truncate_dim or size)

    def check_normalized(self, is_normalized: bool | None) -> None:
        """Checks that vectors can be normalised, if this is asked for.

        Args:
            is_normalized: What is asked for; None for what the folder says.

        Raises:
            ValueError: If the folder does not normalise them but cuts them,
                after which they would have another length.
        """
        if is_normalized and not self.is_normalized and self.truncate_dim:
            raise ValueError(
                "`normalize` must be False, as in the folder, because its "
                f"`truncate_dim` cuts the vectors to {self.truncate_dim} "
                "numbers. Received: normalize=True."
            )

    def prompt(self, name: str | None = None) -> str:
        """Returns the text of a prompt.

        Args:
            name: Name of the prompt; None for the default.

        Raises:
            ValueError: If no prompt has this name.
        """
        if name is None:
            name = self.default_prompt_name
            if name is None:
                return ""
        if name not in self.prompts:
            raise ValueError(
                "The name of a prompt must be one of "
                f"{', '.join(self.prompts) or '(none)'}. "
                f"Received: {messages.shortened(name)}."
            )
        return self.prompts[name]

    @property
    def query_prompt(self) -> str:
        """The prompt of a query that searches for passages."""
        return self._first_prompt(QUERY_PROMPTS)

    @property
    def passage_prompt(self) -> str:
        """The prompt of a passage that queries search for."""
        return self._first_prompt(PASSAGE_PROMPTS)

    def _first_prompt(self, names):
        found = [name for name in names if name in self.prompts]
        return self.prompt(found[0] if found else None)


def read(folder: files.AnyPath) -> SentenceVectors | None:
    """Reads how a folder makes vectors; None for other models.

    Args:
        folder: A model folder.

    Raises:
        ValueError: If a file is damaged, or a module or a pooling is not
            supported; the message names the file.
    """
    folder = str(folder).rstrip("/")
    paths = sentence_files.read_modules(folder)
    if paths is None:
        return None
    pooling_path = f"{folder}/{paths[1][1]}/config.json"
    pooling = files.read_object(pooling_path)
    with messages.errors_named(pooling_path):
        mode, include_prompt = _pooling(pooling), _include_prompt(pooling)
    max_seq_length = _max_seq_length(folder)
    dense = tuple(
        _read_dense(f"{folder}/{path}")
        for name, path in paths
        if name == sentence_files.DENSE
    )
    prompts_path = f"{folder}/{sentence_files.PROMPTS_FILE}"
    values = _read_object(prompts_path)
    similarity = values.get("similarity_fn_name")
    with messages.errors_named(prompts_path):
        return SentenceVectors(
            pooling=mode,
            is_normalized=paths[-1][0] == sentence_files.NORMALIZE,
            max_seq_length=max_seq_length,
            dense=dense,
            # Older files have null for none.
            prompts=values.get("prompts") or {},
            default_prompt_name=values.get("default_prompt_name"),
            include_prompt=include_prompt,
            similarity=COSINE if similarity is None else similarity,
            truncate_dim=values.get("truncate_dim"),
        )


def read_known(folder: files.AnyPath) -> SentenceVectors | None:
    """Returns what `read` does; if that raises, warns and returns None."""
    try:
        return read(folder)
    except ValueError as error:
        logging.warning("Cannot tell how the model makes vectors: %s", error)
        return None


def is_cross_encoder(folder: str, config_values: Mapping[str, Any]) -> bool:
    """Returns whether a classifier is one of sentence-transformers' rerankers.

    Args:
        folder: A model folder.
        config_values: The contents of its config.json.
    """
    # Releases before 6 use config.json, later ones a file of their own.
    if {*sentence_files.CROSS_ENCODER_KEYS} & config_values.keys():
        return True
    values = _read_object(f"{folder}/{sentence_files.PROMPTS_FILE}")
    return values.get("model_type") == "CrossEncoder"


def check_has_no_prompt(folder: files.AnyPath) -> None:
    """Raises `ValueError` if a reranker puts a prompt before its queries."""
    path = f"{str(folder).rstrip('/')}/{sentence_files.PROMPTS_FILE}"
    name = _read_object(path).get("default_prompt_name")
    if name is not None:
        raise ValueError(
            f"{path}: `default_prompt_name` must be null in a reranker. "
            f"Received: {messages.shortened(name)}."
        )


def make_texts(
    vectors: SentenceVectors, size: int, max_seq_length: int
) -> dict[str, str | bytes]:
    """Returns {name in the folder: contents} of the files for vectors.

    Args:
        vectors: What the files say.
        size: The hidden size of the model.
        max_seq_length: The longest sequence.
    """
    modules = [
        sentence_files.TRANSFORMER,
        sentence_files.POOLING,
        *[sentence_files.DENSE] * len(vectors.dense),
        *[sentence_files.NORMALIZE] * vectors.is_normalized,
    ]
    paths = [
        sentence_files.module_folder(number, name)
        for number, name in enumerate(modules)
    ]
    texts: dict[str, str | bytes] = {
        f"{paths[1]}/config.json": files.to_json(
            {"word_embedding_dimension": size}
            | {
                name: mode == vectors.pooling
                for name, mode in _OLD_MODES.items()
            }
            | {"include_prompt": vectors.include_prompt}
        ),
    }
    for path, layer in zip(paths[2:], vectors.dense):
        texts[f"{path}/config.json"] = files.to_json(
            {
                "in_features": layer.kernel.shape[0],
                "out_features": layer.kernel.shape[1],
                "bias": layer.bias is not None,
                "activation_function": _ACTIVATION_NAMES[layer.activation],
            }
        )
        tensors = {_KERNEL: np.ascontiguousarray(layer.kernel.T)}
        if layer.bias is not None:
            tensors[_BIAS] = layer.bias
        texts[f"{path}/{hugging_face_folder.WEIGHTS_FILE}"] = (
            safetensors.numpy.save(tensors, metadata={"format": "pt"})
        )
    texts[sentence_files.LENGTH_FILE] = files.to_json(
        {"max_seq_length": max_seq_length, "do_lower_case": False}
    )
    texts[sentence_files.PROMPTS_FILE] = files.to_json(
        {
            "prompts": dict(vectors.prompts),
            "default_prompt_name": vectors.default_prompt_name,
            "similarity_fn_name": vectors.similarity,
        }
        | (
            {}
            if vectors.truncate_dim is None
            else {"truncate_dim": vectors.truncate_dim}
        )
    )
    # After the files that it names.
    texts[sentence_files.MODULES_FILE] = files.to_json(
        [
            {
                "idx": n,
                "name": str(n),
                "path": path,
                "type": f"{_PACKAGE}.{name}",
            }
            for n, (name, path) in enumerate(zip(modules, paths))
        ]
    )
    return texts


def _pooling(values: dict[str, Any]) -> str:
    mode = values.get("pooling_mode")
    if mode is not None:
        chosen = mode if isinstance(mode, list) else [mode]
        known = _MODES
    else:
        chosen = [
            name
            for name, value in values.items()
            if name.startswith(_OLD_PREFIX) and value is True
        ]
        known = _OLD_MODES
    if len(chosen) != 1 or chosen[0] not in known:
        raise ValueError(
            f"the pooling must be one of {', '.join(known)}, and not several. "
            f"Received: {messages.shortened(chosen)}."
        )
    return known[chosen[0]]


def _include_prompt(values):
    include_prompt = values.get("include_prompt", True)
    if type(include_prompt) is not bool:
        raise ValueError(
            "`include_prompt` must be true or false. "
            f"Received: include_prompt={messages.shortened(include_prompt)}."
        )
    return include_prompt


def _max_seq_length(folder):
    path = _length_path(folder)
    values = _read_object(path)
    length = values.get("max_seq_length")
    if length is not None and (type(length) is not int or length < 1):
        raise ValueError(
            f"{path}: `max_seq_length` must be a positive "
            f"integer. Received: {messages.shortened(length)}."
        )
    # For other kinds than WordPiece the settings do not tell the case.
    if values.get("do_lower_case") and not (
        tokenizer_files.read(folder).do_lower_case
    ):
        raise ValueError(
            f"{path}: `do_lower_case` must be the tokenizer's, false. "
            "Received: do_lower_case=true."
        )
    return length


def _length_path(folder):
    paths = [f"{folder}/{name}" for name in sentence_files.LENGTH_FILES]
    return next(filter(files.exists, paths), paths[0])


def _read_dense(folder):
    path = f"{folder}/config.json"
    values = files.read_object(path)
    for key, wanted in (
        ("module_input_name", _VECTOR),
        ("module_output_name", _VECTOR),
        ("use_residual", False),
    ):
        if values.get(key, wanted) != wanted:
            raise ValueError(
                f"{path}: `{key}` must be {wanted!r}. "
                f"Received: {messages.shortened(values[key])}."
            )
    # tanh is sentence-transformers' default.
    name = values.get("activation_function", _ACTIVATION_NAMES[TANH])
    activation = _ACTIVATIONS.get(str(name).rpartition(".")[2])
    if activation is None:
        raise ValueError(
            f"{path}: `activation_function` must be one of "
            f"{', '.join(_ACTIVATION_NAMES.values())}. "
            f"Received: {messages.shortened(name)}."
        )
    shape = [values.get("out_features"), values.get("in_features")]
    shapes = {_KERNEL: tuple(shape), _BIAS: tuple(shape[:1])}
    if not values.get("bias", True):
        del shapes[_BIAS]
    with contextlib.ExitStack() as stack:
        container = hugging_face_folder.HuggingFaceFolder(folder, stack)
        if container.shapes != shapes:
            raise ValueError(
                f"{container.weights_path}: the tensors must be {shapes}. "
                f"Received: {messages.shortened(container.shapes)}."
            )
        # Copies, not views of a file that is about to be closed.
        tensors = {name: np.array(container.read(name)) for name in shapes}
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise ValueError(
                f"{container.weights_path}: the tensor {name} holds "
                "values that are not finite."
            )
    return DenseLayer(
        kernel=np.ascontiguousarray(tensors[_KERNEL].T),
        bias=tensors.get(_BIAS),
        activation=activation,
    )


def _read_object(path):
    return files.read_object(path) if files.exists(path) else {}
