"""What a reranking can be told."""

# The binary cross-entropy of every text; the cross-entropy of one that answers
# its query among those that do not.
POINTWISE, SOFTMAX = "pointwise", "softmax"
LOSSES = (POINTWISE, SOFTMAX)
# Rows of 8 texts.
NUM_NEGATIVES = 7
# Each is a sequence of its own in every step.
MOST_NEGATIVES = 1000
