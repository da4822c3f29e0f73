"""A small tokenizer of ModernBERT's form, made with `tokenizers`.

Of the released one (answerdotai/ModernBERT-base, tokenizer.json): NFC, the
splits, the frame and all added tokens, in the order of their ids.
"""

import json
from collections.abc import Iterable
from typing import Any

import tokenizers
from tokenizers import AddedToken
from tokenizers import decoders
from tokenizers import models
from tokenizers import normalizers
from tokenizers import pre_tokenizers
from tokenizers import processors
from tokenizers import trainers

# In the vocabulary of the model, too.
_FIRST = ("|||IP_ADDRESS|||", "<|padding|>")
_PRIVATE = ("|||EMAIL_ADDRESS|||", "|||PHONE_NUMBER|||")
_SPECIAL = ("<|endoftext|>", "[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
NUM_ADDED = 23 + len(_PRIVATE) + len(_SPECIAL) + 83


def make(lines: Iterable[str], vocab_size: int) -> dict[str, Any]:
    """Returns the contents of tokenizer.json.

    Args:
        lines: What the merges are learned from.
        vocab_size: Entries without the added tokens behind them.
    """
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(each, special=False) for each in _FIRST],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    spaces = [" " * count for count in range(24, 1, -1)]
    tokenizer.add_tokens(
        [AddedToken(each, normalized=True) for each in (*spaces, *_PRIVATE)]
    )
    tokenizer.add_special_tokens(
        [AddedToken(each, lstrip=each == "[MASK]") for each in _SPECIAL]
    )
    tokenizer.add_tokens(
        [AddedToken(f"[unused{n}]", normalized=True) for n in range(83)]
    )
    ids = [(each, tokenizer.token_to_id(each)) for each in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0",
        special_tokens=ids,
    )
    contents = json.loads(tokenizer.to_str())
    for token in contents["added_tokens"]:
        if token["content"] == _FIRST[0]:
            token.update(special=False, normalized=True)
    return contents


# Of tokenizer_config.json.
SETTINGS = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "model_input_names": ["input_ids", "attention_mask"],
    "clean_up_tokenization_spaces": True,
    "model_max_length": 8192,
    **{
        f"{name}_token": f"[{name.upper()}]"
        for name in ("unk", "cls", "sep", "pad", "mask")
    },
}
