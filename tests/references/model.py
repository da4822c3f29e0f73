"""BERT in NumPy, written for the eye: one example, one head at a time.

The oracle of the layer and model tests. Letters: L position, D hidden size,
H size of one head. Weights are read from a Keras model's paths.
"""

import math

import numpy as np


def weights_of(model):
    """Returns {path below the model: float64 array}."""
    return {
        variable.path.split("/", 1)[1]: np.array(variable, "float64")
        for variable in model.weights
    }


def scope(weights, prefix):
    """Returns the weights below `prefix`, with the rest of their paths."""
    prefix += "/"
    return {
        path.removeprefix(prefix): value
        for path, value in weights.items()
        if path.startswith(prefix)
    }


def dense(weights, x):
    return x @ weights["kernel"] + weights["bias"]


def layer_norm(weights, x, epsilon=1e-12):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    normalized = (x - mean) / np.sqrt(variance + epsilon)
    return normalized * weights["gamma"] + weights["beta"]


def gelu_tanh(x):
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + np.tanh(inner))


def gelu_erf(x):
    """x Phi(x)."""
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def softmax(x):
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def attention_probs(weights, x_LD, mask_LL, num_heads, bias_of=None):
    """Returns what every query of every head looks at, [heads, L, L].

    `mask_LL[query, key]` is true where the query may look at the key. `bias_of`
    is a function of how far the key is from the query, and of the head.
    """
    query_LD = dense(scope(weights, "query"), x_LD)
    key_LD = dense(scope(weights, "key"), x_LD)
    length, hidden_size = x_LD.shape
    head_size = hidden_size // num_heads
    probs = np.zeros((num_heads, length, length))
    for head in range(num_heads):
        columns = slice(head * head_size, (head + 1) * head_size)
        for query in range(length):
            scores = np.full(length, -np.inf)
            for key in range(length):
                if mask_LL[query, key]:
                    product = query_LD[query, columns] @ key_LD[key, columns]
                    scores[key] = product / math.sqrt(head_size)
                    if bias_of is not None:
                        scores[key] += bias_of(key - query, head)
            probs[head, query] = softmax(scores)
    return probs


def self_attention(weights, x_LD, mask_LL, num_heads):
    """`mask_LL` is that of `attention_probs`."""
    probs = attention_probs(weights, x_LD, mask_LL, num_heads)
    value_LD = dense(scope(weights, "value"), x_LD)
    head_size = x_LD.shape[1] // num_heads
    context_LD = np.zeros_like(x_LD)
    for head in range(num_heads):
        columns = slice(head * head_size, (head + 1) * head_size)
        context_LD[:, columns] = probs[head] @ value_LD[:, columns]
    return dense(scope(weights, "merge_heads"), context_LD)


def encoder_block(weights, x_LD, mask_LL, num_heads, activation=gelu_tanh):
    attended_LD = layer_norm(
        scope(weights, "attention_layer_norm"),
        x_LD
        + self_attention(scope(weights, "attention"), x_LD, mask_LL, num_heads),
    )
    inner_LF = activation(dense(scope(weights, "intermediate"), attended_LD))
    return layer_norm(
        scope(weights, "output_layer_norm"),
        attended_LD + dense(scope(weights, "output"), inner_LF),
    )


def embeddings(weights, input_ids, segment_ids, position_ids=None):
    rows = []
    for position, (word, segment) in enumerate(zip(input_ids, segment_ids)):
        if position_ids is not None:
            position = position_ids[position]
        rows.append(
            weights["word_embeddings"][word]
            + weights["position_embeddings"][position]
            + weights["segment_embeddings"][segment]
        )
    return layer_norm(scope(weights, "layer_norm"), np.stack(rows))


def encoder(
    weights, config, input_ids, mask_LL, segment_ids, position_ids=None
):
    """Returns the outputs of every block for one example, [L, D] each."""
    activation = {"gelu": gelu_erf, "gelu_new": gelu_tanh}[config.hidden_act]
    x_LD = embeddings(
        scope(weights, "embeddings"), input_ids, segment_ids, position_ids
    )
    outputs = []
    for index in range(config.num_hidden_layers):
        x_LD = encoder_block(
            scope(weights, f"layer_{index}"),
            x_LD,
            mask_LL,
            config.num_attention_heads,
            activation,
        )
        outputs.append(x_LD)
    return outputs


def pooled(weights, x_D):
    return np.tanh(dense(scope(weights, "pooler/dense"), x_D))


def masked_lm_logits(weights, x_PD, word_embeddings_VD):
    x_PD = gelu_tanh(dense(scope(weights, "transform"), x_PD))
    x_PD = layer_norm(scope(weights, "layer_norm"), x_PD)
    return x_PD @ word_embeddings_VD.T + weights["output_bias"]


def cross_entropy(logits, label):
    return -math.log(softmax(logits)[label])
