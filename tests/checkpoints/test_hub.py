"""Models by their names of the Hugging Face Hub, from a server on loopback."""

import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

import bert_tf
from bert_tf import checkpoints
from bert_tf.checkpoints import hub
from bert_tf.checkpoints import starting_point
from bert_tf.checkpoints.sentence_folder import DenseLayer
from bert_tf.checkpoints.sentence_folder import SentenceVectors
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.sentence_encoder import BertSentenceEncoder
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from support import pytorch_files
from support import releases

TOKENS = (*SPECIAL_TOKENS, *"abc")
# Other than what a model has by itself: the mean, not divided by its length.
VECTORS = SentenceVectors(
    pooling="cls",
    is_normalized=True,
    dense=(
        DenseLayer(
            kernel=np.linspace(-1, 1, 32, dtype="float32").reshape(8, 4),
            bias=np.float32([0.5, 0, -0.5, 1]),
            activation="tanh",
        ),
    ),
    prompts={"query": "a "},
    default_prompt_name="query",
)
COMMITS = {"main": "1" * 40, "old": "2" * 40}
# Asks for each name, and prints {name: folder or error}. No TensorFlow.
ASK = """
import json, sys
from bert_tf.checkpoints import hub
told = {}
for name in sys.argv[1:]:
    try:
        told[name] = hub.local_path(name)
    except ValueError as error:
        told[name] = f"error: {error}"
assert "tensorflow" not in sys.modules
print(json.dumps(told))
"""


class _Hub(http.server.BaseHTTPRequestHandler):
    """/ORGANISATION/NAME/resolve/REVISION/FILE, as the Hub answers it."""

    def do_HEAD(self):  # noqa: N802
        self._answer(False)

    def do_GET(self):  # noqa: N802
        self._answer(True)

    def log_message(self, *args):
        pass

    def _answer(self, has_body):
        name, _, rest = self.path[1:].partition("/resolve/")
        revision, _, file_name = rest.partition("/")
        folder = self.server.root / name
        commit = COMMITS.get(revision, revision)
        error = None
        if not folder.is_dir():
            error = "RepoNotFound"
        elif name.endswith("gated"):
            error = "GatedRepo"
        elif commit not in COMMITS.values():
            error = "RevisionNotFound"
        elif not (folder / file_name).is_file():
            error = "EntryNotFound"
        content = b"" if error else (folder / file_name).read_bytes()
        self.server.asked.append((self.command, self.path))
        self.send_response(
            (404 if error != "GatedRepo" else 403) if error else 200
        )
        if error:
            self.send_header("X-Error-Code", error)
        else:
            self.send_header("ETag", hashlib.sha256(content).hexdigest())
        self.send_header("X-Repo-Commit", commit)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if has_body:
            self.wfile.write(content)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("hub")
    model = BertEncoder(releases.tiny_config(len(TOKENS)))
    spec = WordpieceSpec(Vocabulary(tokens=TOKENS))
    folder = root / "org" / "tiny"
    checkpoints.save(folder, model, spec, 16)
    (folder / "README.md").write_text("Not asked for.")
    for name in ("keras", "gated", "unsafe", "sharded"):
        (root / "org" / name).mkdir()
        config = (folder / "config.json").read_text()
        (root / "org" / name / "config.json").write_text(config)
    (root / "org/keras/tf_model.h5").write_bytes(b"other weights")
    for name, shard in (
        ("unsafe", "../a.safetensors"),
        ("sharded", "model-1-of-1.safetensors"),
    ):
        index = json.dumps({"weight_map": {"x": shard}})
        path = root / "org" / name / "model.safetensors.index.json"
        path.write_text(index)
    (root / "org/sharded/model-1-of-1.safetensors").write_bytes(b"shard")
    for name in tokenizer_files.vocabulary_files():
        (root / "org/sharded" / name).write_text("{}")
    checkpoints.save(root / "org/sentences", model, spec, 8, vectors=VECTORS)
    shutil.copytree(root / "org/sentences", root / "org/pytorch")
    pytorch_files.convert(root / "org/pytorch", num_shards=2)
    pytorch_files.convert(root / "org/pytorch/2_Dense")
    for name in ("", "2_Dense"):
        # Not asked for beside safetensors.
        path = root / "org/sentences" / name / "pytorch_model.bin"
        path.write_bytes(b"pickle")
    shutil.copytree(root / "org/sentences", root / "org/outside")
    path = root / "org/outside/modules.json"
    path.write_text(path.read_text().replace("1_Pooling", "../1_Pooling"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hub) as server:
        server.root, server.asked, server.folder = root, [], folder
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def ask(server, tmp_path):
    def ask(*names, **environment):
        port = server.server_address[1]
        done = subprocess.run(
            [sys.executable, "-c", ASK, *names],
            env=os.environ
            | {
                "HF_ENDPOINT": f"http://127.0.0.1:{port}",
                "HF_HOME": str(tmp_path / "cache"),
                "HF_HUB_OFFLINE": "0",
                "HF_HUB_DISABLE_XET": "1",
                **environment,
            },
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ask


def test_model_is_fetched_once_and_without_other_files(
    server, ask, tmp_path, monkeypatch
):
    name = "hf:org/tiny"
    offline = {"HF_HUB_OFFLINE": "1"}
    assert "is not in the cache" in ask(name, **offline)[name]
    folder = ask(name)[name]
    assert os.path.basename(folder) == COMMITS["main"]
    assert sorted(os.listdir(folder)) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]
    server.asked.clear()
    assert ask(name, **offline)[name] == folder
    # As of a cache that others have filled, who never ask for task.json.
    shutil.rmtree(tmp_path / "cache/hub/models--org--tiny/.no_exist")
    assert ask(name, **offline)[name] == folder
    assert server.asked == []
    old = ask(f"{name}@old")[f"{name}@old"]
    assert os.path.basename(old) == COMMITS["old"]

    # The rest of the library takes the name as it takes the folder.
    monkeypatch.setattr(hub, "_download", {name: folder}.__getitem__)
    start = starting_point.find(name)
    assert start.init_checkpoint == name
    assert start.tokenizer.vocabulary.tokens == TOKENS
    model = checkpoints.load(name, BertEncoder)
    expected = checkpoints.load(server.folder, BertEncoder)
    for left, right in zip(model.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(left, right)


def test_models_of_sentences_are_fetched_with_their_modules(
    server, ask, monkeypatch
):
    name, outside = "hf:org/sentences", "hf:org/outside"
    server.asked.clear()
    folders = ask(name, outside)
    # What modules.json says of other folders is not followed.
    assert os.path.isfile(f"{folders[outside]}/modules.json")
    assert not any(".." in path for _, path in server.asked)

    monkeypatch.setattr(hub, "_download", folders.__getitem__)
    model, preprocessor, _ = bert_tf.load(name)
    local = bert_tf.load(server.root / "org/sentences")
    assert isinstance(model, BertSentenceEncoder)
    assert isinstance(local.model, BertSentenceEncoder)
    assert (model.pooling, model.is_normalized) == ("cls", True)
    assert model.sentence_vectors.prompts == {"query": "a "}
    assert preprocessor.max_seq_length == 8
    texts = ["a b", "c"]
    found = model(preprocessor(texts)).numpy()
    assert found.shape == (2, 4)
    expected = local.model(local.preprocessor(texts))
    np.testing.assert_array_equal(found, expected)


def test_pickles_are_fetched_where_there_are_no_safetensors(
    server, ask, monkeypatch
):
    server.asked.clear()
    names = ("hf:org/sentences", "hf:org/pytorch")
    folders = ask(*names)
    assert not any(
        "org/sentences" in path and path.endswith(".bin")
        for _, path in server.asked
    )
    monkeypatch.setattr(hub, "_download", folders.__getitem__)
    wanted, found = map(bert_tf.load, names)
    assert isinstance(found.model, BertSentenceEncoder)
    for left, right in zip(
        found.model.weights, wanted.model.weights, strict=True
    ):
        np.testing.assert_array_equal(left, right)


def test_what_is_not_there_is_told(ask):
    names = {
        "hf:org/none": "the Hub has no such model",
        "hf:org/tiny@new": "the model has no revision 'new'",
        "hf:org/keras": "pytorch_model.bin.index.json (offline: not in the",
        "hf:org/gated": "is gated",
        "hf:org/unsafe": "'../a.safetensors' is not a shard's name",
        "hf:a/b/c": "a/b/c",
    }
    told = ask(*names, "hf:org/sharded", "folder")
    for name, message in names.items():
        assert told[name].startswith("error: ")
        assert message in told[name]
        assert "\n" not in told[name]
    found = os.listdir(told["hf:org/sharded"])
    assert "model-1-of-1.safetensors" in found
    assert {*tokenizer_files.vocabulary_files()} <= {*found}
    assert told["folder"] == "folder"


def test_huggingface_hub_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"pip install 'bert_tf\[hub\]'"):
        hub.local_path("hf:org/missing")
