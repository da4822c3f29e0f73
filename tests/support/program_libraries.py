"""What `program_server`'s server imports before it forks, as programs do."""

import absl.app  # noqa: F401
import keras  # noqa: F401
import matplotlib.figure  # noqa: F401
import safetensors.numpy  # noqa: F401
import tensorflow  # noqa: F401
import tensorflow_datasets  # noqa: F401
import tensorflow_text  # noqa: F401
