"""Poolings and losses of sentence embeddings, in loops of NumPy.

Reimers & Gurevych 2019 (arXiv 1908.10084), section 3: the poolings, the losses
of scores and of triplets. Henderson et al. 2017 (arXiv 1705.00652), section
4.4: the multiple negatives. Su 2022 (kexue.fm/archives/8847): CoSENT.
"""

import numpy as np


def cosine(a, b):
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def cross_entropy(logits, label):
    logits = np.array(logits, np.float64)
    top = logits.max()
    return float(np.log(np.exp(logits - top).sum()) + top - logits[label])


def multiple_negatives(groups, scale, is_symmetric=False, own_weight=0.0):
    """Returns the loss of each group (anchor, positive, negatives)."""
    losses = []
    num_texts = len(groups[0])
    for i, (anchor, *_) in enumerate(groups):
        logits = []
        for text in range(1, num_texts):
            for j, group in enumerate(groups):
                logit = scale * cosine(anchor, group[text])
                logits.append(
                    logit + (own_weight if text > 1 and i == j else 0)
                )
        loss = cross_entropy(logits, i)
        if is_symmetric:
            back = [scale * cosine(groups[i][1], other[0]) for other in groups]
            loss = (loss + cross_entropy(back, i)) / 2
        losses.append(loss)
    return losses


def cosent(pairs, labels, scale):
    similarities = [cosine(*pair) for pair in pairs]
    total = 1.0
    for i, y_i in enumerate(labels):
        for k, y_k in enumerate(labels):
            if y_i > y_k:
                total += np.exp(scale * (similarities[k] - similarities[i]))
    return float(np.log(total))


def squared_cosines(pairs, labels):
    return [(cosine(*pair) - label) ** 2 for pair, label in zip(pairs, labels)]


def triplets(groups, margin):
    losses = []
    for anchor, positive, *negatives in groups:
        near = np.linalg.norm(anchor - positive)
        each = [
            max(0.0, near - np.linalg.norm(anchor - negative) + margin)
            for negative in negatives
        ]
        losses.append(np.mean(each))
    return losses


def pooled(vectors, mask, mode):
    """Returns the vector of each text, of those of its tokens."""
    rows = []
    for tokens, real in zip(vectors, mask):
        own = tokens[real == 1]
        if mode == "cls":
            rows.append(tokens[0])
        elif mode == "mean":
            rows.append(own.mean(axis=0))
        else:
            rows.append(own.max(axis=0))
    return np.stack(rows)
