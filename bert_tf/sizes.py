"""The sizes of published models, by name, as fields of a `BertConfig`."""

from typing import Any

# {name: (number of layers, hidden size)}: the 24 sizes of Turc et al. 2019
# (arXiv 1908.08962), the names that some of them have, and large.
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

# {Hugging Face's name of a family: the fields in which all its models differ
# from BERT}.
FAMILIES: dict[str, dict[str, Any]] = {
    # Google's code has the tanh form; its v2 trains without dropout.
    "albert": {
        "vocab_size": 30000,
        "embedding_size": 128,
        "num_hidden_groups": 1,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
    "distilbert": {
        "hidden_act": "gelu",
        "type_vocab_size": 0,
        "has_pooler": False,
        "classifier_hidden_act": "relu",
        "classifier_dropout_prob": 0.2,
        "span_dropout_prob": 0.1,
    },
    "electra": {
        "hidden_act": "gelu",
        "has_pooler": False,
        "classifier_hidden_act": "gelu",
        "drops_classifier_input": True,
    },
    "roberta": {
        "vocab_size": 50265,
        "hidden_act": "gelu",
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "padding_idx": 1,
        "classifier_hidden_act": "tanh",
        "drops_classifier_input": True,
    },
}
# transformers' defaults, but for sizes and pooling.
FAMILIES["modernbert"] = {
    "vocab_size": 50368,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 8192,
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-5,
    "has_pooler": False,
    "classifier_hidden_act": "gelu",
    "classifier_dropout_prob": 0.0,
    "norm_first": True,
    "has_biases": False,
    "embedding_dropout_prob": 0.0,
    "rotary_theta": 160000.0,
    "local_rotary_theta": 10000.0,
    "attention_window": 64,
    "full_attention_every": 3,
    "shared_head": True,
}
FAMILIES["mpnet"] = FAMILIES["roberta"] | {
    "vocab_size": 30527,
    "type_vocab_size": 0,
    "has_relative_bias": True,
}
FAMILIES["xlm-roberta"] = FAMILIES["roberta"] | {"vocab_size": 250002}
FAMILIES["camembert"] = FAMILIES["roberta"] | {"vocab_size": 32005}
# {family: activation of its masked-LM heads, whatever that of the encoder is},
# as in transformers.
MASKED_LM_ACTS = dict.fromkeys(
    ("camembert", "electra", "mpnet", "roberta", "xlm-roberta"), "gelu"
)


def _modern(intermediate_size, local_rotary_theta=10000.0):
    """Returns in what released models differ from transformers' defaults."""
    return {
        "intermediate_size": intermediate_size,
        "local_rotary_theta": local_rotary_theta,
        "classifier_pooling": "mean",
    }


# {name: (family, number of layers, hidden size, other fields)}.
_NAMED: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    **{name: ("bert", *size, {}) for name, size in SIZES.items()},
    # Jiao et al. 2020 (arXiv 1909.10351), table 1.
    "tinybert-4L": (
        *("bert", 4, 312),
        {
            "num_attention_heads": 12,
            "intermediate_size": 1200,
            "hidden_act": "gelu",
        },
    ),
    "tinybert-6L": ("bert", 6, 768, {"hidden_act": "gelu"}),
    # Joshi et al. 2020 (arXiv 1907.10529): cased BERTs.
    "spanbert-base": (
        *("bert", 12, 768),
        {"vocab_size": 28996, "hidden_act": "gelu"},
    ),
    "spanbert-large": (
        *("bert", 24, 1024),
        {"vocab_size": 28996, "hidden_act": "gelu"},
    ),
    # Sanh et al. 2019 (arXiv 1910.01108).
    "distilbert-base-uncased": ("distilbert", 6, 768, {}),
    "distilbert-base-cased": ("distilbert", 6, 768, {"vocab_size": 28996}),
    "distilbert-base-multilingual": (
        *("distilbert", 6, 768),
        {"vocab_size": 119547},
    ),
    "distilroberta-base": ("roberta", 6, 768, {}),
    # Clark et al. 2020 (arXiv 2003.10555), table 6.
    "electra-small": ("electra", 12, 256, {"embedding_size": 128}),
    "electra-base": ("electra", 12, 768, {}),
    "electra-large": ("electra", 24, 1024, {}),
    "electra-small-generator": ("electra", 12, 64, {"embedding_size": 128}),
    "electra-base-generator": ("electra", 12, 256, {"embedding_size": 768}),
    "electra-large-generator": ("electra", 24, 256, {"embedding_size": 1024}),
    # Liu et al. 2019 (arXiv 1907.11692); Conneau et al. 2020 (1911.02116).
    "roberta-base": ("roberta", 12, 768, {}),
    "roberta-large": ("roberta", 24, 1024, {}),
    "xlm-roberta-base": ("xlm-roberta", 12, 768, {}),
    "xlm-roberta-large": ("xlm-roberta", 24, 1024, {}),
    # Martin et al. 2020 (arXiv 1911.03894).
    "camembert-base": ("camembert", 12, 768, {}),
    "camembert-large": ("camembert", 24, 1024, {}),
    # Song et al. 2020 (arXiv 2004.09297).
    "mpnet-base": ("mpnet", 12, 768, {}),
    # Lan et al. 2020 (arXiv 1909.11942), table 1.
    "albert-base": ("albert", 12, 768, {}),
    "albert-large": ("albert", 24, 1024, {}),
    "albert-xlarge": ("albert", 24, 2048, {"num_attention_heads": 16}),
    "albert-xxlarge": ("albert", 12, 4096, {}),
    # Warner et al. 2024 (arXiv 2412.13663), table 4.
    "modernbert-base": ("modernbert", 22, 768, _modern(1152)),
    "modernbert-large": ("modernbert", 28, 1024, _modern(2624)),
    # Weller et al. 2025, Ettin (arXiv 2507.11412), table 1.
    "ettin-17m": ("modernbert", 7, 256, _modern(384, 160000.0)),
    "ettin-32m": ("modernbert", 10, 384, _modern(576, 160000.0)),
    "ettin-68m": ("modernbert", 19, 512, _modern(768, 160000.0)),
    "ettin-150m": ("modernbert", 22, 768, _modern(1152, 160000.0)),
    "ettin-400m": ("modernbert", 28, 1024, _modern(2624, 160000.0)),
    "ettin-1b": ("modernbert", 28, 1792, _modern(3840, 160000.0)),
}
NAMES = tuple(_NAMED)

# The help of --bert_config_file, the same in every program.
HELP = (
    "JSON of the architecture, or a size's name: tiny, mini, small, medium, "
    "base, large, L-4_H-256, roberta-base and so on. Default: the "
    "checkpoint's own."
)


def fields(name: str) -> dict[str, Any]:
    """Returns the fields of a published size.

    Args:
        name: One of `NAMES`.
    """
    family, num_layers, hidden_size, others = _NAMED[name]
    return {
        "model_type": family,
        "vocab_size": 30522,
        "hidden_size": hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": hidden_size // 64,
        "intermediate_size": 4 * hidden_size,
        **FAMILIES.get(family, {}),
        **others,
    }
