"""What `program_server`'s server imports before it forks, as programs do."""

import sys

from bert_tf import lean_imports

# Without what programs leave out, half of the time.
lean_imports.leave_out()

import absl.app  # noqa: E402, F401
import keras  # noqa: E402, F401
import matplotlib.figure  # noqa: E402, F401
import safetensors.numpy  # noqa: E402, F401
import tensorflow  # noqa: E402, F401
import tensorflow_datasets  # noqa: E402, F401
import tensorflow_text  # noqa: E402, F401

# Each fork executes the modules of bert_tf itself.
for _name in [*sys.modules]:
    if _name.split(".")[0] == "bert_tf":
        del sys.modules[_name]
