"""Names of the losses and heads, for flags and checks."""

MULTIPLE_NEGATIVES, SIMCSE = "multiple_negatives", "simcse"
COSENT, COSINE, TRIPLET = "cosent", "cosine", "triplet"
LOSSES = (MULTIPLE_NEGATIVES, SIMCSE, COSENT, COSINE, TRIPLET)
# Losses of pairs with human scores.
SCORED = (COSENT, COSINE)
# Losses that compare all texts of the batch.
IN_BATCH = (MULTIPLE_NEGATIVES, SIMCSE, COSENT)

NO_HEAD, DENSE, TRAINING_DENSE = "none", "dense", "training_dense"
HEADS = (NO_HEAD, DENSE, TRAINING_DENSE)
