"""Options of feature extraction."""

# How the vectors of the layers are combined.
SEPARATE, CONCATENATE, MEAN = "separate", "concatenate", "mean"
COMBINE = (SEPARATE, CONCATENATE, MEAN)
# How the vectors of the tokens are pooled.
NONE, CLS, MAX = "none", "cls", "max"
POOLING = (NONE, CLS, MEAN, MAX)

# Formats of the output file.
JSONL, NPZ, PARQUET = "jsonl", "npz", "parquet"
FORMATS = (JSONL, NPZ, PARQUET)
