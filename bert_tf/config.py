"""The architecture of a model: its fields, and what they may be."""

import dataclasses
from typing import Any
from typing import Self

from bert_tf import files

# Hugging Face's names, by meaning: "gelu" is the exact erf form, "gelu_new"
# the tanh approximation that Google's files call "gelu".
ACTIVATIONS = ("gelu", "gelu_new", "linear", "relu", "tanh")

# Ids and sizes are int32, and other numbers float32.
_LARGEST_INT = 2**31 - 1
_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig:
    """The hyper-parameters of the encoder (Devlin et al. 2018, section 3).

    Args:
        model_type: The family of models, by Hugging Face's name; see
            `checkpoints.families`.
        vocab_size: Number of WordPiece entries.
        hidden_size: Width of every layer's output.
        num_hidden_layers: Number of encoder blocks.
        num_attention_heads: Number of heads; must divide `hidden_size`.
        intermediate_size: Width inside the feed-forward layers.
        hidden_act: Activation of the feed-forward layers and the masked-LM
            head, one of `ACTIVATIONS`: "gelu_new" is what Google's BERT
            computes, "gelu" (exact) what Hugging Face's does.
        hidden_dropout_prob: Dropout of embeddings and block outputs, in
            `[0, 1)`.
        attention_probs_dropout_prob: Dropout of the attention probabilities,
            in `[0, 1)`.
        max_position_embeddings: The longest sequence.
        type_vocab_size: Number of segments. Differs from BERT: the original
            class defaults to 16, but every released model has 2.
        initializer_range: Standard deviation of the truncated normal that
            initialises kernels and embeddings.
        layer_norm_eps: Added to the variance in every LayerNorm.
        is_decoder: Whether a token sees only itself and those before it, left
            to right (the LTR ablation, section 5.1); Hugging Face's name.

    Raises:
        ValueError: If a value is out of its range; it names the field.

    Example:

        >>> from bert_tf import BertConfig
        >>> BertConfig(vocab_size=8000).num_hidden_layers
        12
        >>> config = BertConfig.named("tiny", vocab_size=8000)
        >>> config.num_hidden_layers, config.hidden_size
        (2, 128)
    """

    model_type: str = "bert"
    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu_new"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    is_decoder: bool = False

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is int:
                valid = type(value) is int and 0 < value <= _LARGEST_INT
                expected = "a positive integer of 32 bits"
            elif field.type is bool:
                valid = type(value) is bool
                expected = "True or False"
            elif field.name in ("initializer_range", "layer_norm_eps"):
                valid = _is_number(value) and 0 < value <= _LARGEST_FLOAT
                expected = "a positive, finite number"
            elif field.type is float:
                valid = _is_number(value) and 0 <= value < 1
                expected = "a number in [0, 1)"
            elif field.name == "model_type":
                valid = isinstance(value, str)
                expected = "a name"
            else:
                valid = value in ACTIVATIONS
                expected = f"one of {', '.join(ACTIVATIONS)}"
            if not valid:
                raise ValueError(
                    f"`{field.name}` must be {expected}. "
                    f"Received: {field.name}={files.shortened(value)}."
                )
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                "`num_attention_heads` must divide `hidden_size`. Received: "
                f"num_attention_heads={self.num_attention_heads}, "
                f"hidden_size={self.hidden_size}."
            )

    @classmethod
    def named(cls, name: str, **overrides: Any) -> Self:
        """Returns one of the published sizes.

        Args:
            name: A key of `SIZES`: "tiny", "mini", "small", "medium", "base",
                "large", or "L-4_H-256" and so on for the 24 sizes of Turc et
                al. 2019.
            **overrides: Fields to replace; `vocab_size` is 30,522 (the
                English uncased vocabulary) unless given.
        """
        if name not in SIZES:
            raise ValueError(
                f"`name` must be one of {', '.join(SIZES)}. "
                f"Received: name={name!r}."
            )
        num_layers, hidden_size = SIZES[name]
        fields = {
            "vocab_size": 30522,
            "hidden_size": hidden_size,
            "num_hidden_layers": num_layers,
            "num_attention_heads": hidden_size // 64,
            "intermediate_size": 4 * hidden_size,
        }
        return cls(**(fields | overrides))

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as Hugging Face's `config.json` has them.

        `is_decoder` is among them where it is true, as in Hugging Face's own.
        """
        values = dataclasses.asdict(self)
        if not self.is_decoder:
            del values["is_decoder"]
        return values


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# (number of layers, hidden size): the 24 of Turc et al. 2019 (arXiv
# 1908.08962), their names, and large.
SIZES = {
    f"L-{num_layers}_H-{hidden_size}": (num_layers, hidden_size)
    for num_layers in (2, 4, 6, 8, 10, 12)
    for hidden_size in (128, 256, 512, 768)
} | {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}
