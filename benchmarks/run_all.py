r"""Runs every benchmark in this folder, one after the other.

    make bench BENCH='--model_dir=minilm --data_dir=data'

--model_dir is a folder of sentence-transformers with an uncased vocab.txt.
--data_dir holds wiki.txt and books.txt (one sentence per line, a blank line
between documents), and the published glue/<task>/, ner/wnut17/ and squad/. The
other libraries' environments are made in --output_dir with pip. Prints each
command and its output. If a benchmark fails, the others still run, and the exit
code is not 0.
"""

import pathlib
import shlex
import subprocess
import sys

from absl import flags

from bert_tf import program

_MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "A model folder.", required=True
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Folder of all the data.", required=True
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder for environments and runs.", required=True
)

_FOLDER = pathlib.Path(__file__).resolve().parent


def make_commands(model_dir, data_dir, output_dir):
    """Returns lists of a script and its flags, in the order of running."""
    vocab = f"--vocab_file={model_dir}/vocab.txt"
    wiki = f"{data_dir}/wiki.txt"
    environments = f"{output_dir}/environments"
    transformers = f"{environments}/transformers/bin/python"
    commands = []
    records = {"padded": 1, "packed": 8}
    for name, num_sequences in records.items():
        commands.append(
            [
                "../data/create_pretraining_data.py",
                f"--input_file={wiki}",
                f"--output_file={output_dir}/{name}.tfrecord",
                vocab,
                "--max_seq_length=128",
                "--max_predictions_per_seq=20",
                "--dupe_factor=1",
                f"--max_sequences_per_row={num_sequences}",
            ]
        )
    # The first of those with peers, because it makes their environments.
    for size, batch_size, seconds in (("mini", 32, 5), ("base", 8, 20)):
        commands.append(
            [
                "pretraining.py",
                f"--size={size}",
                f"--batch_size={batch_size}",
                f"--seconds={seconds}",
                "--precision=float32,bfloat16",
                vocab,
                *(
                    f"--records={name}={output_dir}/{name}.tfrecord"
                    for name in records
                ),
                f"--make_environments={environments}",
            ]
        )
    commands += [
        ["freed_memory.py", "--precision=float32", "--precision=bfloat16"],
        ["data.py", f"--input_file={wiki}", vocab],
        ["data.py", "--what=memory", f"--input_file={wiki}", vocab],
        [
            "data.py",
            "--what=vocabulary",
            f"--input_file={wiki}",
            f"--held_out_file={data_dir}/books.txt",
            vocab,
        ],
        [
            "tokenizer.py",
            f"--model_dir={model_dir}",
            f"--text_file={wiki}",
            f"--peer=transformers={transformers}",
            f"--peer=keras_hub={environments}/keras_hub/bin/python",
        ],
        ["checkpoints.py"],
    ]
    commands.append(
        [
            "serving.py",
            f"--model_dir={model_dir}",
            f"--text_file={data_dir}/glue/SST-2/dev.tsv",
            f"--peer_python={transformers}",
            f"--onnxruntime_python={environments}/onnxruntime/bin/python",
        ]
    )
    commands.append(["int8.py", f"--init_checkpoint={model_dir}"])
    commands.append(
        [
            "playground.py",
            f"--model_dir={model_dir}",
            f"--text_file={wiki}",
        ]
    )
    commands.append(
        [
            "embedding.py",
            f"--model_dir={model_dir}",
            f"--text_file={wiki}",
            f"--peer_python={environments}/sentence_transformers/bin/python",
            f"--onnxruntime_python={environments}/onnxruntime/bin/python",
            f"--export_python={transformers}",
        ]
    )
    commands.append(
        [
            "feature_based_ner.py",
            f"--init_checkpoint={model_dir}",
            f"--data_dir={data_dir}/ner/wnut17",
        ]
    )
    for tasks, seeds, learning_rate in (
        ("MRPC,CoLA", "0,1,2", 5e-5),
        ("SST-2,WNUT17", "0", 5e-5),
        # At 5e-5, so few questions are hardly learned.
        ("SQuAD", "0", 1e-4),
    ):
        commands.append(
            [
                "finetuning.py",
                f"--tasks={tasks}",
                f"--seeds={seeds}",
                f"--learning_rate={learning_rate}",
                f"--init_checkpoint={model_dir}",
                f"--data_dir={data_dir}",
                f"--peer_python={transformers}",
                "--peers=transformers,transformers_compiled",
                f"--output_dir={output_dir}/finetuning",
            ]
        )
    commands.append(
        [
            "retrieval.py",
            f"--model_dir={model_dir}",
            f"--squad_dir={data_dir}/squad",
            f"--text_file={wiki}",
            f"--peer_python={environments}/sentence_transformers/bin/python",
            f"--output_dir={output_dir}/retrieval",
        ]
    )
    commands.append(["start.py", f"--input_file={wiki}"])
    commands.append(
        [
            "two_hours.py",
            f"--input_file={wiki},{data_dir}/books.txt",
            f"--glue_dir={data_dir}/glue",
            f"--output_dir={output_dir}/two_hours",
        ]
    )
    commands.append(
        [
            "families.py",
            f"--input_file={wiki}",
            f"--glue_dir={data_dir}/glue",
            f"--output_dir={output_dir}/families",
        ]
    )
    commands.append(
        [
            "objectives.py",
            f"--input_file={wiki}",
            f"--glue_dir={data_dir}/glue",
            f"--output_dir={output_dir}/objectives",
        ]
    )
    commands.append(
        [
            "distillation.py",
            f"--teacher={model_dir}",
            f"--input_file={wiki},{data_dir}/books.txt",
            f"--glue_dir={data_dir}/glue",
            f"--output_dir={output_dir}/distillation",
        ]
    )
    return commands


def main(_):
    pathlib.Path(_OUTPUT_DIR.value).mkdir(parents=True, exist_ok=True)
    failed = []
    for script, *options in make_commands(
        *(
            str(pathlib.Path(folder.value).resolve())
            for folder in (_MODEL_DIR, _DATA_DIR, _OUTPUT_DIR)
        )
    ):
        command = [sys.executable, str((_FOLDER / script).resolve()), *options]
        print(f"\n$ {shlex.join(command)}", flush=True)
        if subprocess.run(command).returncode:
            failed.append(script)
    if failed:
        print(f"Failed: {', '.join(failed)}.", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    program.run(main)
