"""tokenizer.json, from which Hugging Face's `tokenizers` reads a tokenizer.

`tokenizers` then gives the same ids as ours, except for:

- a special token in a text, such as "[SEP]": it is a token there, text here by
  default;
- a capital sigma at the end of a word, which has a lower case of its own;
- characters of private use, which are dropped there;
- punctuation, accents and formats that are newer than its Unicode tables, and
  the 256 ideographs from U+2B820, which it does not separate;
- a pair that is cut to an odd number of tokens: here A keeps the odd one
  (`packing.pack`), with its `enable_truncation` B does.
"""

import contextlib
import itertools
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from bert_tf import messages
from bert_tf.text.tokenizers import added_tokens as added_tokens_lib
from bert_tf.text.tokenizers.added_tokens import AddedToken
from bert_tf.text.vocabulary import SpecialTokens
from bert_tf.text.vocabulary import Vocabulary

SETTINGS_FILE = "tokenizer_config.json"
TOKENIZER_FILE = "tokenizer.json"

WORDPIECE = "WordPiece"
# The list in a "Sequence", by the part of the file.
_LISTS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
}
_RIGHT = "Right"


def make(
    vocabulary: Vocabulary,
    added_tokens: tuple[AddedToken, ...],
    *,
    normalizer: dict[str, Any] | None,
    pre_tokenizer: dict[str, Any],
    decoder: dict[str, Any],
    model: dict[str, Any],
    post_processor: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the contents of the file.

    Args:
        vocabulary: A `Vocabulary`.
        added_tokens: Those of the tokenizer's spec.
        normalizer, pre_tokenizer, decoder, model: The file's parts.
        post_processor: Likewise; None for a template with the vocabulary's
            special tokens.
    """
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens_lib.to_json(added_tokens, vocabulary),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor or _template(vocabulary),
        "decoder": decoder,
        "model": model,
    }


def _template(vocabulary):
    special = vocabulary.special

    def step(name, segment):
        kind = "Sequence" if name in ("A", "B") else "SpecialToken"
        return {kind: {"id": name, "type_id": segment}}

    single, pair = _framed(special)
    return {
        "type": "TemplateProcessing",
        "single": [step(*each) for each in single],
        "pair": [step(*each) for each in pair],
        "special_tokens": {
            token: {
                "id": token,
                "ids": [vocabulary.index(token)],
                "tokens": [token],
            }
            for token in (special.cls, special.sep)
        },
    }


def _framed(special):
    """Returns how texts and pairs are framed: lists of (token, segment).

    The texts are "A" and "B".
    """
    sep, segment = special.sep, special.second_segment
    single = [(special.cls, 0), ("A", 0), (sep, 0)]
    between = [(sep, 0)] * (special.num_between - 1)
    return single, [*single, *between, ("B", segment), (sep, segment)]


@contextlib.contextmanager
def errors_named(path: str) -> Iterator[None]:
    """Puts the file's path before the messages of `ValueError`s in the block.

    What the block cannot find in the file becomes one.
    """
    try:
        with messages.errors_named(path):
            yield
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: must be as Hugging Face's `tokenizers` writes it. "
            f"Received: {type(error).__name__}: {error}."
        ) from error


def model_type(tokenizer: dict[str, Any]) -> Any:
    """Returns the type of a file's `model`.

    Args:
        tokenizer: The contents of the file.
    """
    model = tokenizer.get("model")
    if not isinstance(model, dict):
        return model
    # Older files do not name the type.
    return model.get("type", "BPE" if "merges" in model else WORDPIECE)


def check_truncation(tokenizer: dict[str, Any]) -> None:
    """Checks that a file keeps the first pieces of long texts, as we do.

    Padding is not checked: on whichever side it is, a text has the results of
    the text without padding here.

    Args:
        tokenizer: The contents of the file.

    Raises:
        ValueError: If it keeps the last pieces.
    """
    truncation = tokenizer.get("truncation")
    if isinstance(truncation, dict):
        truncation = truncation.get("direction", _RIGHT)
    if truncation not in (None, _RIGHT):
        raise ValueError(
            f"`truncation` must be null or have the direction {_RIGHT!r}. "
            f"Received: {messages.shortened(tokenizer['truncation'])}."
        )


def part(tokenizer: dict[str, Any], name: str) -> dict[str, Any]:
    """Returns a part of a file, or the only part of its sequence.

    Args:
        tokenizer: The contents of the file.
        name: "normalizer", "pre_tokenizer" or "post_processor".

    Returns:
        The part, which has a `type`: None if there is no part.
    """
    found = tokenizer.get(name)
    while isinstance(found, dict) and found.get("type") == "Sequence":
        steps = found.get(_LISTS[name])
        if not isinstance(steps, list) or len(steps) > 1:
            break
        found = steps[0] if steps else None
    return found if isinstance(found, dict) else {"type": found}


def frame(tokenizer: dict[str, Any], ids: Mapping[str, int]) -> SpecialTokens:
    """Returns how a file frames texts and pairs.

    Args:
        tokenizer: The contents of the file.
        ids: {entry: its id}.

    Returns:
        `SpecialTokens`, of which `cls`, `sep`, `num_between` and
        `second_segment` are the file's.

    Raises:
        ValueError: If they are framed in another way, or with other ids than
            the entries have.
    """
    framed = _frames(part(tokenizer, "post_processor"), ids)
    if framed is not None and len(framed[0]) == 3:
        (cls, _), _, (sep, _) = framed[0]
        for num_between, segment in itertools.product((1, 2), (0, 1)):
            found = SpecialTokens(
                cls=cls,
                sep=sep,
                num_between=num_between,
                second_segment=segment,
            )
            if framed == _framed(found):
                return found
    raise ValueError(
        "`post_processor` must frame texts as CLS A SEP, and pairs as CLS A "
        "SEP B SEP or CLS A SEP SEP B SEP, with the ids of the vocabulary. "
        f"Received: {messages.shortened(tokenizer.get('post_processor'))}."
    )


def second_segment(
    tokenizer: dict[str, Any], special: SpecialTokens, ids: Mapping[str, int]
) -> int:
    """Checks how a file frames texts; returns the segment of B.

    Args:
        tokenizer: The contents of the file.
        special: The kind's `SpecialTokens`.
        ids: {entry: its id}.

    Raises:
        ValueError: If they are framed in another way than the kind's.
    """
    found = frame(tokenizer, ids)
    if (found.cls, found.sep, found.num_between) != (
        special.cls,
        special.sep,
        special.num_between,
    ):
        raise ValueError(
            f"`post_processor` must frame texts with {special.cls} and "
            f"{special.sep}, and set {special.num_between} of these between a "
            f"pair. Received: {found.cls}, {found.sep}, {found.num_between}."
        )
    return found.second_segment


def _frames(processor, ids):
    """Returns how texts and pairs are framed, as `_framed` does.

    None if that is not known, or a token has another id than its entry.
    """

    def entry(name, its_ids):
        if its_ids != [ids[name]]:
            raise ValueError
        return name

    def named(step):
        ((kind, value),) = step.items()
        name = value["id"]
        if kind == "SpecialToken":
            entry(name, processor["special_tokens"][name]["ids"])
        return name, value["type_id"]

    kind = processor["type"]
    try:
        if kind == "TemplateProcessing":
            single, pair = processor["single"], processor["pair"]
            return [*map(named, single)], [*map(named, pair)]
        # Without its other keys, `tokenizers` takes RoBERTa's for BERT's.
        is_roberta = kind == "RobertaProcessing" and "trim_offsets" in processor
        if not is_roberta and kind != "BertProcessing":
            return None
        (cls, cls_id), (sep, sep_id) = processor["cls"], processor["sep"]
        return _framed(
            SpecialTokens(
                cls=entry(cls, [cls_id]),
                sep=entry(sep, [sep_id]),
                num_between=2 if is_roberta else 1,
                second_segment=0 if is_roberta else 1,
            )
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def by_id(ids: dict[str, Any]) -> tuple[str, ...]:
    """Returns the entries of {entry: id} in the order of their ids.

    Raises:
        ValueError: If the ids are not 0, 1, 2 and so on.
    """
    tokens = {
        index: token for token, index in ids.items() if type(index) is int
    }
    if tokens.keys() != set(range(len(ids))):
        raise ValueError(
            "the ids of the vocabulary must be 0, 1, 2, ..., each once."
        )
    return tuple(tokens[index] for index in range(len(ids)))


def tokens_of(tokenizer: dict[str, Any]) -> tuple[str, ...]:
    """Returns the entries of a file whose `model` maps entries to ids.

    Args:
        tokenizer: The contents of the file, with a `model`.

    Raises:
        ValueError: If the ids are not 0, 1, 2 and so on.
    """
    return by_id(vocabulary_of(tokenizer))


def vocabulary_of(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """Returns the `vocab` of a file's `model`, {entry: id}.

    Raises:
        ValueError: If there is none.
    """
    vocabulary = tokenizer["model"].get("vocab")
    if not isinstance(vocabulary, dict):
        raise ValueError("`model` must have a `vocab`, tokens and their ids.")
    return vocabulary
