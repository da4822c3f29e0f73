"""Names of folders, and values of flags; no TensorFlow."""

import re

# The state of the training, in the folder of the model.
FOLDER = "train"
# The best model of a run so far, in the folder of the last one.
BEST_FOLDER = "best"
# ELECTRA's generator, in the folder of its discriminator.
GENERATOR_FOLDER = "generator"
# Modules of sentence-transformers, as checkpoints/sentence_files.py names them.
MODULE_FOLDER = re.compile(r"\d+_(Transformer|Pooling|Dense|Normalize)")

STRATEGIES = ("one_device", "mirrored", "multi_worker", "tpu")
MIXED_PRECISION = ("auto", "float32", "bfloat16", "float16")
JIT_COMPILE = ("true", "false", "auto")
