"""The architecture of a model: its fields and their valid values."""

import dataclasses
from typing import Any
from typing import Self

from bert_tf import formats
from bert_tf import messages
from bert_tf import sizes

# Hugging Face's names, by meaning: "gelu" is the exact erf form, "gelu_new"
# the tanh approximation that Google's files call "gelu".
ACTIVATIONS = (
    "gelu",
    "gelu_new",
    "linear",
    "quick_gelu",
    "relu",
    "silu",
    "tanh",
)

# Attention draws the dropout of so many rows of scores at once, and is computed
# in chunks of a multiple of them.
ATTENTION_TILE = 128
# Rows of MPNet's table of relative positions, whatever its config.json says, as
# in transformers.
RELATIVE_BUCKETS = 32

# Ids and sizes are int32, and other numbers float32.
_LARGEST_INT = 2**31 - 1
_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127
# Valid values of fields that are no activations.
_CHOICES = {"classifier_pooling": ("cls", "mean")}
# Sizes that may be 0 in some families.
_MAY_BE_0 = ("type_vocab_size", "padding_idx")
_POSITIVE = ("initializer_range", "layer_norm_eps")


def _stored_if_set(default: Any) -> Any:
    return dataclasses.field(default=default, metadata=formats.STORED_IF_SET)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig:
    """The hyper-parameters of the encoder (Devlin et al. 2018, section 3).

    The fields from `embedding_size` on describe how other families differ from
    BERT; `named` and the config readers set them.

    Args:
        model_type: The family of models, by Hugging Face's name; see
            `checkpoints.families`.
        vocab_size: Number of entries of the vocabulary.
        hidden_size: Width of every layer's output.
        num_hidden_layers: Number of encoder blocks.
        num_attention_heads: Number of heads; must divide `hidden_size`.
        intermediate_size: Width inside the feed-forward layers.
        hidden_act: Activation of the feed-forward layers, one of
            `ACTIVATIONS`: "gelu_new" is what Google's BERT computes, "gelu"
            (exact) what Hugging Face's does. The masked-LM head has it, too,
            except in RoBERTa and ELECTRA, where it always has "gelu".
        hidden_dropout_prob: Dropout of embeddings and block outputs, in
            `[0, 1)`.
        attention_probs_dropout_prob: Dropout of the attention probabilities,
            in `[0, 1)`.
        max_position_embeddings: The longest sequence, in every family. In
            RoBERTa's config.json the number is larger by `padding_idx` + 1.
        type_vocab_size: Number of segments. Differs from BERT: the original
            class defaults to 16, but every released model has 2. A model
            with 0 (DistilBERT) or 1 (RoBERTa) does not use `segment_ids`.
        initializer_range: Standard deviation of the truncated normal that
            initialises kernels and embeddings.
        layer_norm_eps: Added to the variance in every LayerNorm.
        is_decoder: Whether a token sees only itself and those before it, left
            to right (the LTR ablation, section 5.1); Hugging Face's name.
        embedding_size: Width of the embeddings, if a dense layer projects them
            to `hidden_size` (ALBERT, ELECTRA); None if there is no such layer.
        num_hidden_groups: Number of blocks that have weights; each is applied
            in several consecutive layers (ALBERT). None for one block a layer.
        padding_idx: Id of the padding in families whose positions are counted
            from `padding_idx` + 1 and skip padding (RoBERTa); None for
            positions counted from 0 (BERT).
        has_relative_bias: Whether a bias by the distance of key and query is
            added to the scores of attention (MPNet).
        has_pooler: Whether the pooled output is the pooler's; otherwise it is
            the first token's vector (DistilBERT, ELECTRA).
        classifier_hidden_act: Activation of a classifier's hidden layer, in
            families that are not pre-trained on pairs of sentences; None if
            the pooler is trained on pairs and serves as that layer.
        drops_classifier_input: Whether there is dropout before that layer too.
        classifier_dropout_prob: Dropout of a new classifier, in `[0, 1)`.
        span_dropout_prob: Dropout before the span head, in `[0, 1)`.
        norm_first: Whether blocks normalise what they read, not what they add
            up, and have a gated feed-forward layer (ModernBERT): see
            `PreNormBlock`. `hidden_dropout_prob` then is what follows the
            attention.
        has_biases: Whether layers have biases, apart from outputs of heads.
        embedding_dropout_prob: Dropout of the embeddings, in `[0, 1)`; None
            for `hidden_dropout_prob`.
        inner_dropout_prob: Dropout inside of a gated layer, in `[0, 1)`.
        rotary_theta: Base of the angles by which queries and keys are turned,
            instead of position embeddings; None for the latter.
        local_rotary_theta: The same in layers with windows; None for the same.
        attention_window: How many tokens to each side a token sees in layers
            with windows; None if all layers see the whole row.
        full_attention_every: Every so many layers, the first one included,
            there is no window.
        shared_head: Whether all heads begin with what BERT's masked-LM head
            begins with: dense, `classifier_hidden_act`, LayerNorm.
        classifier_pooling: What a classifier sees: "cls", the first vector, or
            "mean", that of all tokens.

    Raises:
        ValueError: If a value is out of its range; the message names the field.

    Example:

        >>> from bert_tf import BertConfig
        >>> BertConfig(vocab_size=8000).num_hidden_layers
        12
        >>> config = BertConfig.named("tiny", vocab_size=8000)
        >>> config.num_hidden_layers, config.hidden_size
        (2, 128)
        >>> BertConfig.named("roberta-base").model_type
        'roberta'
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
    is_decoder: bool = _stored_if_set(False)
    embedding_size: int | None = _stored_if_set(None)
    num_hidden_groups: int | None = _stored_if_set(None)
    padding_idx: int | None = _stored_if_set(None)
    has_relative_bias: bool = _stored_if_set(False)
    has_pooler: bool = _stored_if_set(True)
    classifier_hidden_act: str | None = _stored_if_set(None)
    drops_classifier_input: bool = _stored_if_set(False)
    classifier_dropout_prob: float = _stored_if_set(0.1)
    span_dropout_prob: float = _stored_if_set(0.0)
    norm_first: bool = _stored_if_set(False)
    has_biases: bool = _stored_if_set(True)
    embedding_dropout_prob: float | None = _stored_if_set(None)
    inner_dropout_prob: float = _stored_if_set(0.0)
    rotary_theta: float | None = _stored_if_set(None)
    local_rotary_theta: float | None = _stored_if_set(None)
    attention_window: int | None = _stored_if_set(None)
    full_attention_every: int = _stored_if_set(1)
    shared_head: bool = _stored_if_set(False)
    classifier_pooling: str = _stored_if_set("cls")

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            if field.type in (int, int | None):
                smallest = 0 if field.name in _MAY_BE_0 else 1
                valid = type(value) is int and smallest <= value <= _LARGEST_INT
                expected = "a positive integer of 32 bits"
                if not smallest:
                    expected += ", or 0"
            elif field.type is bool:
                valid = type(value) is bool
                expected = "True or False"
            elif "theta" in field.name or field.name in _POSITIVE:
                valid = _is_number(value) and 0 < value <= _LARGEST_FLOAT
                expected = "a positive, finite number"
            elif field.type in (float, float | None):
                valid = _is_number(value) and 0 <= value < 1
                expected = "a number in [0, 1)"
            elif field.name == "model_type":
                valid = isinstance(value, str)
                expected = "a name"
            else:
                choices = _CHOICES.get(field.name, ACTIVATIONS)
                valid = value in choices
                expected = f"one of {', '.join(choices)}"
            if not valid:
                raise ValueError(
                    f"`{field.name}` must be {expected}. "
                    f"Received: {field.name}={messages.shortened(value)}."
                )
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                "`num_attention_heads` must divide `hidden_size`. Received: "
                f"num_attention_heads={self.num_attention_heads}, "
                f"hidden_size={self.hidden_size}."
            )
        if self.num_blocks > self.num_hidden_layers:
            raise ValueError(
                "`num_hidden_groups` must be at most `num_hidden_layers`. "
                f"Received: num_hidden_groups={self.num_hidden_groups}, "
                f"num_hidden_layers={self.num_hidden_layers}."
            )

    @classmethod
    def named(cls, name: str, **overrides: Any) -> Self:
        """Returns one of the published sizes.

        Args:
            name: One of `sizes.NAMES`: "tiny", "mini", "small", "medium",
                "base", "large", or "L-4_H-256" and so on for the 24 sizes of
                Turc et al. 2019; "roberta-base", "albert-xxlarge" and so on.
            **overrides: Fields to replace. `vocab_size` defaults to that of
                the released model, for BERT 30,522 (the English uncased
                vocabulary). `max_position_embeddings=4096` makes a model for
                sequences of 4,096 tokens, for which RoBERTa has 4,098 rows of
                position embeddings.
        """
        if name not in sizes.NAMES:
            raise ValueError(
                f"`name` must be one of {', '.join(sizes.NAMES)}. "
                f"Received: name={name!r}."
            )
        return cls(**(sizes.fields(name) | overrides))

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings."""
        return self.embedding_size or self.hidden_size

    @property
    def num_blocks(self) -> int:
        """Number of blocks that have weights."""
        return self.num_hidden_groups or self.num_hidden_layers

    @property
    def first_position(self) -> int:
        """Row of the position embeddings for a sequence's first token."""
        return 0 if self.padding_idx is None else self.padding_idx + 1

    @property
    def masked_lm_act(self) -> str:
        """Activation of the masked-LM head."""
        if self.shared_head:
            return self.classifier_hidden_act or self.hidden_act
        return sizes.MASKED_LM_ACTS.get(self.model_type, self.hidden_act)

    @property
    def is_trained_on_pairs(self) -> bool:
        """Whether pre-training has a head for pairs of sentences."""
        return self.classifier_hidden_act is None

    @property
    def output_range(self) -> float:
        """`initializer_range` of kernels whose outputs are added up.

        It falls with the depth where nothing normalises the sum.
        """
        depth = 2 * self.num_hidden_layers if self.norm_first else 1
        return self.initializer_range / depth**0.5

    def is_local(self, layer: int) -> bool:
        """Returns whether a layer has a window."""
        is_full = layer % self.full_attention_every == 0
        return self.attention_window is not None and not is_full

    def check_length(self, max_seq_length: int) -> None:
        """Checks that the model has positions for such sequences.

        Raises:
            ValueError: If they are too long.
        """
        if max_seq_length > self.max_position_embeddings:
            raise ValueError(
                "`max_seq_length` must be at most the model's "
                f"max_position_embeddings={self.max_position_embeddings}. "
                f"Received: max_seq_length={max_seq_length}."
            )

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields under the names of Hugging Face's `config.json`.

        The fields that other families than BERT set, and `is_decoder`, are
        included only if they are not the default.
        """
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if formats.is_stored(field, getattr(self, field.name))
        }


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)
