"""Packages bert_tf.

The programs in data/ and export/ are installed as bert_tf.data and
bert_tf.export, so that nothing named `data` lands in site-packages.
"""

import re
from pathlib import Path

from setuptools import find_packages
from setuptools import setup

ROOT = Path(__file__).parent

setup(
    name="bert_tf",
    # Of one line there, which is not to be imported here.
    version=re.search(
        '^__version__ = "(.+)"$',
        (ROOT / "bert_tf" / "__init__.py").read_text("utf-8"),
        re.MULTILINE,
    )[1],
    description=(
        "BERT from raw text to a served SavedModel, in TensorFlow and Keras 3"
    ),
    long_description=(ROOT / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    license_expression="Apache-2.0",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    python_requires=">=3.11,<3.13",
    entry_points={"console_scripts": ["bert_tf = bert_tf.__main__:main"]},
    packages=[
        *find_packages(include=["bert_tf", "bert_tf.*"]),
        "bert_tf.data",
        "bert_tf.export",
    ],
    package_dir={"bert_tf.data": "data", "bert_tf.export": "export"},
    package_data={
        # Type checkers read the hints of a package that has it.
        "bert_tf": ["py.typed"],
        "bert_tf.export": ["serving/*"],
        # The parts of the page.
        "bert_tf.playground": ["page/*"],
    },
    install_requires=[
        # tensorflow-text is built against one minor version of TensorFlow
        # and requires exactly that one. 2.21.0 cannot be imported: a symbol of
        # ICU is missing.
        "tensorflow>=2.20,<2.22",
        "tensorflow-text>=2.20,!=2.21.0,<2.22",
        # The first with `keras.ops.view`.
        "keras>=3.12,<4",
        "safetensors>=0.6.1",
        # The first that reads sets with protobuf 7.
        "tensorflow-datasets>=4.9.10",
        # Imported by tensorflow-datasets 4.9.10, which does not declare it.
        "importlib_resources",
        "absl-py>=2.1",
        "tqdm>=4.66",
    ],
    extras_require={
        # TensorFlow with NVIDIA's libraries.
        "gpu": ["tensorflow[and-cuda]>=2.20,<2.22"],
        # Pre-training records on a cluster; for Dataflow apache-beam[gcp].
        "beam": ["apache-beam>=2.77"],
        # Warm-up requests in an export, and the gRPC client.
        "serving": ["tensorflow-serving-api>=2.20,<2.22"],
        # Models for ONNX Runtime, and the check of them.
        "onnx": ["onnx>=1.18", "onnxruntime>=1.22"],
        # A training's curves, in a browser.
        "tensorboard": ["tensorboard>=2.20"],
        # The curves of a fine-tuning's report.
        "report": ["matplotlib>=3.8"],
        # Vocabularies of byte-level BPE and of unigrams, learned.
        "tokenizers": ["tokenizers>=0.20", "sentencepiece>=0.2"],
        # Vectors of texts as .parquet, and tables of that form.
        "parquet": ["pyarrow>=17"],
        # Models by their names of the Hugging Face Hub.
        "hub": ["huggingface-hub>=0.26"],
        # A model in a browser of this machine.
        "playground": ["starlette>=1.0", "uvicorn>=0.34"],
        # The playground's tests, in a browser.
        "browser": ["selenium>=4.20"],
        # The documentation as a site.
        "docs": [
            "mkdocs>=1.6,<2",
            "mkdocs-material>=9.6,<10",
            "mkdocstrings[python]>=0.30,<2",
            # Formats signatures.
            "ruff==0.17.5",
        ],
        "test": [
            "matplotlib>=3.8",
            "tensorflow-serving-api>=2.20,<2.22",
            "pytest>=8",
            "pytest-xdist>=3.6.1",
            # Exactly one: what is well formatted changes from one to the next.
            "ruff==0.17.5",
            # Holds the type hints.
            "mypy>=2.0",
            # The models' other Keras backend.
            "jax>=0.4.30",
            # Files that are damaged in all ways.
            "hypothesis>=6.140",
            # Tables to tune on, and .parquet files.
            "pandas>=2.2",
            "pyarrow>=17",
            # The oracle of correlations.
            "scipy>=1.11.1",
            "huggingface-hub>=0.26",
            # What reads our model cards.
            "pyyaml>=6.0.1",
            # What reads our tokenizer.json.
            "tokenizers>=0.20",
            # Models in ONNX.
            "onnx>=1.18",
            "onnxruntime>=1.22",
            # What learns ALBERT's, and reads our model files.
            "sentencepiece>=0.2",
            # The oracle of entities' scores.
            "seqeval>=1.2.2",
            # The notebooks.
            "nbclient>=0.10",
            "nbformat>=5.10",
            "ipykernel>=6.29",
            # The playground, and what asks it.
            "starlette>=1.0",
            "uvicorn>=0.34",
            "httpx>=0.28",
        ],
    },
)
