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
    # Read from the source: building should not import the package.
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
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    python_requires=">=3.11,<3.14",
    entry_points={"console_scripts": ["bert_tf = bert_tf.__main__:main"]},
    packages=[
        *find_packages(include=["bert_tf", "bert_tf.*"]),
        "bert_tf.data",
        "bert_tf.export",
    ],
    package_dir={"bert_tf.data": "data", "bert_tf.export": "export"},
    package_data={
        # Marks the package as typed for type checkers.
        "bert_tf": ["py.typed"],
        "bert_tf.export": ["serving/*"],
        # The parts of the playground's page.
        "bert_tf.playground": ["page/*"],
    },
    install_requires=[
        # tensorflow-text is built for one minor version of TensorFlow and
        # requires exactly that one. Its 2.21.0 cannot be imported: it lacks an
        # ICU symbol. For Linux on ARM there is none: models then take ids.
        "tensorflow>=2.20,<2.22",
        "tensorflow-text>=2.20,!=2.21.0,<2.22; platform_machine != 'aarch64'",
        # The first release with `keras.ops.view`.
        "keras>=3.12,<4",
        "safetensors>=0.6.1",
        # The first release that reads sets under protobuf 7.
        "tensorflow-datasets>=4.9.10",
        # Imported by tensorflow-datasets 4.9.10, which does not declare it.
        "importlib_resources",
        # Reads and writes .parquet; tensorflow-datasets requires it, too.
        "pyarrow>=17",
        "absl-py>=2.1",
        "tqdm>=4.66",
    ],
    extras_require={
        # TensorFlow with NVIDIA's libraries.
        "gpu": ["tensorflow[and-cuda]>=2.20,<2.22"],
        # Pre-training records on a cluster. Dataflow needs apache-beam[gcp].
        "beam": ["apache-beam>=2.77"],
        # Warm-up requests in an export, and the gRPC client.
        "serving": ["tensorflow-serving-api>=2.20,<2.22"],
        # Exports models for ONNX Runtime, and checks them.
        "onnx": ["onnx>=1.18", "onnxruntime>=1.22"],
        # Training curves in a browser.
        "tensorboard": ["tensorboard>=2.20"],
        # The curves in fine-tuning reports.
        "report": ["matplotlib>=3.8"],
        # Learns vocabularies of byte-level BPE and unigrams.
        "tokenizers": ["tokenizers>=0.20", "sentencepiece>=0.2"],
        # Models from the Hugging Face Hub.
        "hub": ["huggingface-hub>=0.26"],
        # The playground, which shows a model in a local browser.
        "playground": ["starlette>=1.0", "uvicorn>=0.34"],
        # The playground's tests in a browser.
        "browser": ["selenium>=4.20"],
        # The documentation as a site.
        "docs": [
            "mkdocs>=1.6,<2",
            "mkdocs-material>=9.6,<10",
            "mkdocstrings[python]>=0.30,<2",
            # Formats signatures in the documentation.
            "ruff==0.17.5",
        ],
        "test": [
            "matplotlib>=3.8",
            "tensorflow-serving-api>=2.20,<2.22",
            "pytest>=8",
            "pytest-xdist>=3.6.1",
            # Pinned: the formatting differs between releases.
            "ruff==0.17.5",
            # Checks the type hints.
            "mypy>=2.0",
            # The other Keras backend of the models.
            "jax>=0.6",
            # Generates damaged files.
            "hypothesis>=6.140",
            # Tables to tune on.
            "pandas>=2.2",
            # Reference for correlations.
            "scipy>=1.11.1",
            "huggingface-hub>=0.26",
            # Reads our model cards.
            "pyyaml>=6.0.1",
            # Reads our tokenizer.json.
            "tokenizers>=0.20",
            # Models in ONNX.
            "onnx>=1.18",
            "onnxruntime>=1.22",
            # Learns ALBERT's vocabularies, and reads our model files.
            "sentencepiece>=0.2",
            # Reference for the scores of entities.
            "seqeval>=1.2.2",
            # The notebooks.
            "nbclient>=0.10",
            "nbformat>=5.10",
            "ipykernel>=6.29",
            # The playground, and its client in tests.
            "starlette>=1.0",
            "uvicorn>=0.34",
            "httpx>=0.28",
        ],
    },
)
