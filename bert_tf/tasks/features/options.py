"""Options of feature extraction."""

# How the vectors of the layers are combined.
SEPARATE, CONCATENATE, MEAN = "separate", "concatenate", "mean"
COMBINE = (SEPARATE, CONCATENATE, MEAN)
# How the vectors of the tokens are pooled.
NONE, CLS, MAX = "none", "cls", "max"
POOLING = (NONE, CLS, MEAN, MAX)

# Formats of the output file.
JSONL, NPZ, TFRECORD, PARQUET = "jsonl", "npz", "tfrecord", "parquet"
FORMATS = (JSONL, NPZ, TFRECORD, PARQUET)
DTYPES = ("float32", "float16")
