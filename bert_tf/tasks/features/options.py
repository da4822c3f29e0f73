"""What feature extraction can be told."""

# The vectors of the layers: each apart, one after the other, or their mean.
SEPARATE, CONCATENATE, MEAN = "separate", "concatenate", "mean"
COMBINE = (SEPARATE, CONCATENATE, MEAN)
# The vectors of the tokens: all, the one of [CLS], their mean, or of each
# number the largest.
NONE, CLS, MAX = "none", "cls", "max"
POOLING = (NONE, CLS, MEAN, MAX)

# Of the file.
JSONL, NPZ, TFRECORD, PARQUET = "jsonl", "npz", "tfrecord", "parquet"
FORMATS = (JSONL, NPZ, TFRECORD, PARQUET)
DTYPES = ("float32", "float16")
