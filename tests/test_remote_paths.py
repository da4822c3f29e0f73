"""From text to answers with every path in an object store: ram:// here."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from bert_tf.config import BertConfig
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from support import paths

SCRIPT = paths.TESTS / "support/remote_programs.py"
WORDS = ("cat", "dog", "cow", "hen", "red", "blue", "green", "grey")
LENGTH = 12


def commands(local, root, out):
    """Returns the programs of a run below `root`, local or not.

    Args:
        local: Folder of the inputs, which are copied first.
        root: Where all else is.
        out: Local folder that takes all of it at the end.
    """
    inputs = f"{root}/in"
    names = [
        f"--vocab_file={inputs}/vocab.txt",
        f"--max_seq_length={LENGTH}",
    ]
    return [
        ["copy", f"{local}", inputs],
        [
            "bert_tf.data.learn_vocabulary",
            f"--input_file={inputs}/text*.txt",
            f"--output_file={root}/learned.txt",
            "--vocab_size=40",
        ],
        [
            "bert_tf.data.create_pretraining_data",
            f"--input_file={inputs}/text*.txt",
            f"--output_file={root}/records/a.tfrecord",
            "--max_predictions_per_seq=3",
            # What goes to and fro is on a local disk in any case.
            f"--work_dir={out}/work",
            *names,
        ],
        [
            "bert_tf.run_pretraining",
            "--do_train",
            "--do_eval",
            f"--input_file={root}/records/*.tfrecord",
            f"--output_dir={root}/pretrained",
            f"--bert_config_file={inputs}/config.json",
            f"--vocab_file={inputs}/vocab.txt",
            "--train_batch_size=4",
            "--num_train_steps=3",
            "--save_checkpoints_steps=2",
            "--num_warmup_steps=1",
        ],
        [
            "bert_tf.run_classifier",
            "--do_train",
            "--do_eval",
            "--task_name=SST-2",
            f"--data_dir={inputs}/SST-2",
            f"--init_checkpoint={root}/pretrained",
            f"--output_dir={root}/tuned",
            f"--max_seq_length={LENGTH}",
            "--train_batch_size=4",
            "--num_train_epochs=1",
        ],
        [
            "bert_tf.export.export_saved_model",
            f"--model_dir={root}/tuned",
            f"--export_dir={root}/servable",
        ],
        ["serve", f"{root}/servable/1", "cat dog", f"{out}/answer.json"],
        ["copy", f"{root}/learned.txt", f"{out}/learned.txt"],
        ["copy", f"{root}/pretrained", f"{out}/pretrained"],
        ["copy", f"{root}/tuned", f"{out}/tuned"],
    ]


@pytest.mark.slow
def test_all_paths_may_be_remote(tmp_path):
    local = tmp_path / "in"
    (local / "SST-2").mkdir(parents=True)
    tokens = (*SPECIAL_TOKENS, *WORDS)
    config = BertConfig(
        vocab_size=len(tokens),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=16,
    )
    (local / "config.json").write_text(json.dumps(config.to_dict()))
    (local / "vocab.txt").write_text("\n".join(tokens) + "\n")
    generator = np.random.default_rng(5)

    def sentences(count):
        return [" ".join(generator.choice(WORDS, 5)) for _ in range(count)]

    documents = ["\n".join(sentences(6)) for _ in range(8)]
    (local / "text.txt").write_text("\n\n".join(documents) + "\n")
    for split in ("train", "dev"):
        rows = [f"{text}\t{n % 2}" for n, text in enumerate(sentences(9))]
        lines = ["sentence\tlabel", *rows]
        (local / "SST-2" / f"{split}.tsv").write_text("\n".join(lines) + "\n")

    found = {}
    roots = {"remote": "ram://bucket/run", "local": f"{tmp_path}/run"}
    for kind, root in roots.items():
        out = tmp_path / kind
        out.mkdir()
        script = tmp_path / f"{kind}.json"
        script.write_text(json.dumps(commands(local, root, out)))
        process = subprocess.run(
            [sys.executable, SCRIPT, script],
            capture_output=True,
            text=True,
            env=os.environ | {"BERT_TF_TRACEBACK": "1"},
            cwd=tmp_path,
            timeout=600,
        )
        assert process.returncode == 0, process.stdout + process.stderr[-9000:]
        found[kind] = {
            name: (out / name).read_bytes()
            for name in (
                "learned.txt",
                "pretrained/model.safetensors",
                "pretrained/eval_results.txt",
                "tuned/model.safetensors",
                "tuned/eval_results.txt",
                "answer.json",
            )
        }
    # Nothing was written to a local folder of that name.
    assert not (tmp_path / "ram:").exists()
    assert found["remote"] == found["local"]
