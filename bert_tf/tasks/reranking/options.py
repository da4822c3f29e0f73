"""Options of reranking."""

# "pointwise": the binary cross-entropy of every text. "softmax": the
# cross-entropy of a text that answers its query among texts that do not.
POINTWISE, SOFTMAX = "pointwise", "softmax"
LOSSES = (POINTWISE, SOFTMAX)
# With the positive, rows have 8 texts.
NUM_NEGATIVES = 7
# Each negative adds a sequence to every step.
MOST_NEGATIVES = 1000
