"""Vocabulary and settings of the tokenizer in a folder.

vocab.txt                one WordPiece entry a line
tokenizer_config.json    case, longest sequence
tokenizer.json           all of it, for `tokenizers`; the one file that
                         transformers has written since version 5
"""

import math
from typing import Any

from bert_tf import files
from bert_tf.text import vocabulary as vocabulary_lib
from bert_tf.text.tokenizers import tokenizer_json
from bert_tf.text.tokenizers.tokenizer import Spec
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import Vocabulary

VOCABULARY_FILE = "vocab.txt"
SETTINGS_FILE = "tokenizer_config.json"
TOKENIZER_FILE = "tokenizer.json"

# {tokenizer_class in tokenizer_config.json, without "Fast" at its end: the
# class of its spec}. Most of these are transformers' other names of BERT's
# tokenizer; the last two are any tokenizer's, of which tokenizer.json tells
# that it is WordPiece.
KINDS = dict.fromkeys(
    (
        WordpieceSpec.tokenizer_class,
        "ConvBertTokenizer",
        "DistilBertTokenizer",
        "DPRContextEncoderTokenizer",
        "DPRQuestionEncoderTokenizer",
        "ElectraTokenizer",
        "LayoutLMTokenizer",
        "LxmertTokenizer",
        "MobileBertTokenizer",
        "RealmTokenizer",
        "RetriBertTokenizer",
        "SqueezeBertTokenizer",
        "PreTrainedTokenizer",
        "TokenizersBackend",
    ),
    WordpieceSpec,
)

# {setting in tokenizer_config.json: its name in a tokenizer.json}
_NORMALIZER_SETTINGS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
# {setting: whether a value is good, and what a good one is}
_CHECKS = {
    "do_lower_case": (
        lambda value: type(value) is bool,
        "true or false",
    ),
    "tokenizer_class": (
        lambda value: value is None or type(value) is str,
        "the name of a class",
    ),
    # transformers writes 10^30 for a length that it does not know.
    "model_max_length": (
        lambda value: type(value) in (int, float) and 0 < value < math.inf,
        "a positive number",
    ),
}


def vocabulary_path(folder: str) -> str | None:
    """Returns the file that holds the vocabulary, or None without one."""
    for name in (VOCABULARY_FILE, TOKENIZER_FILE):
        if files.exists(f"{folder}/{name}"):
            return f"{folder}/{name}"
    return None


def read_vocabulary(folder: str) -> Vocabulary | None:
    """Returns the `Vocabulary` of a folder, or None where there is none.

    Raises:
        ValueError: If the file makes no vocabulary; the message names it.
    """
    path = vocabulary_path(folder)
    if path is None:
        return None
    if path.endswith(VOCABULARY_FILE):
        return vocabulary_lib.load_vocabulary(path)
    tokenizer = files.read_object(path)
    with files.errors_named(path):
        tokens = tokenizer_json.wordpiece_tokens(tokenizer)
        return Vocabulary(tokens=tokens, path=path)


def read_settings(folder: str) -> dict[str, Any]:
    """Returns what tokenizer_config.json says, a dictionary.

    Where it, or all of it, is missing, tokenizer.json tells whether texts are
    lower-cased. {} without either.

    Raises:
        ValueError: If a file is damaged or of a tokenizer that is not BERT's;
            the message names it.
    """
    settings = {}
    path = f"{folder}/{SETTINGS_FILE}"
    if files.exists(path):
        settings = files.checked(path, files.read_object(path), _CHECKS)
    path = f"{folder}/{TOKENIZER_FILE}"
    if "do_lower_case" in settings or not files.exists(path):
        return settings
    normalizer = files.read_object(path).get("normalizer")
    if (
        not isinstance(normalizer, dict)
        or normalizer.get("type") != "BertNormalizer"
    ):
        raise ValueError(
            f"{path}: `normalizer` must be a BertNormalizer, or "
            f"{SETTINGS_FILE} must tell `do_lower_case`. Received: "
            f"normalizer={files.shortened(normalizer)}."
        )
    found = {
        name: normalizer[its_name]
        for name, its_name in _NORMALIZER_SETTINGS.items()
        if its_name in normalizer
    }
    return files.checked(path, found, _CHECKS) | settings


def read(
    folder: str,
    vocabulary: Vocabulary | None = None,
    do_lower_case: bool | None = None,
) -> Spec:
    """Reads what makes the tokenizer of a folder.

    Args:
        folder: The folder.
        vocabulary: The `Vocabulary`; None for the folder's own.
        do_lower_case: Whether texts are lower-cased; None for what the
            settings say or, without them (Google's releases), the contents of
            the vocabulary.

    Returns:
        The spec of the tokenizer.

    Raises:
        ValueError: If the vocabulary is missing or bad, the settings ask for
            a tokenizer that is not BERT's, the case contradicts the vocabulary
            or nothing tells it; the message names the folder.
    """
    if vocabulary is None:
        vocabulary = read_vocabulary(folder)
    if vocabulary is None:
        raise ValueError(
            f"{folder}: must hold a {VOCABULARY_FILE} or {TOKENIZER_FILE}."
        )
    settings = read_settings(folder)
    if do_lower_case is None:
        do_lower_case = settings.get("do_lower_case")
    if do_lower_case is None:
        do_lower_case = not vocabulary.is_cased
        if do_lower_case and vocabulary.capitalized:
            raise ValueError(
                f"{folder}: nothing tells whether texts are lower-cased. "
                f"{len(vocabulary.capitalized):,} of {len(vocabulary):,} "
                "entries of the vocabulary have capitals: more than an uncased "
                "one has, fewer than a cased one. Write a "
                f'{SETTINGS_FILE} with {{"do_lower_case": true}} or false '
                "there."
            )
    path = f"{folder}/{SETTINGS_FILE}"
    with files.errors_named(path if files.exists(path) else folder):
        tokenizer_class = class_name(settings)
        if tokenizer_class not in KINDS:
            raise ValueError(
                f"`tokenizer_class` must be {WordpieceSpec.tokenizer_class} or "
                "another name of BERT's tokenizer. Received: "
                f"tokenizer_class={files.shortened(tokenizer_class)}."
            )
        for name, values in (
            ("do_basic_tokenize", (True,)),
            ("strip_accents", (None, do_lower_case)),
            ("tokenize_chinese_chars", (True,)),
        ):
            if settings.get(name, values[0]) not in values:
                raise ValueError(
                    f"the tokenizer's `{name}` must be {values[0]!r}, as in "
                    "BERT's tokenizer. "
                    f"Received: {name}={files.shortened(settings[name])}."
                )
        return KINDS[tokenizer_class](vocabulary, do_lower_case)


def from_vocabulary_file(path: str, do_lower_case: bool) -> Spec:
    """Returns the spec of the tokenizer that a vocabulary alone makes.

    Args:
        path: The file, an entry a line.
        do_lower_case: Whether texts are lower-cased.

    Raises:
        ValueError: If the file makes no vocabulary, or `do_lower_case`
            contradicts it.
    """
    return WordpieceSpec(vocabulary_lib.load_vocabulary(path), do_lower_case)


def class_name(settings: dict[str, Any]) -> str:
    """Returns the `tokenizer_class` that settings tell: one name a kind."""
    name = settings.get("tokenizer_class")
    if name is None:
        return WordpieceSpec.tokenizer_class
    kind = KINDS.get(name.removesuffix("Fast"))
    return name if kind is None else kind.tokenizer_class


def describe(tokenizer: Spec) -> dict[str, Any] | None:
    """Returns what is told of a tokenizer beside vocabulary and case.

    It stands in manifests and in states of trainings, and must be equal where
    they belong together.

    Returns:
        None of WordPiece, as files tell that are older than other kinds. That
        a tokenizer was `fast` is not told: its ids mean the same to a model,
        and no model folder or program knows of it.
    """
    if isinstance(tokenizer, WordpieceSpec):
        return None
    return {
        "tokenizer_class": tokenizer.tokenizer_class,
        "settings": tokenizer.settings,
    }
