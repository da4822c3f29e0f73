"""What transformers does in training, on batches that are given.

    python reference_tuning.py losses CLASS FOLDER BATCHES LOSSES LEARNING_RATE
        tunes a folder by the steps of benchmarks/finetune_transformers.py.
        BATCHES is an .npz of the model's inputs, under transformers' names,
        `[steps, B, ...]`; LOSSES, another, gets `losses`, float64 `[steps]`;
    python reference_tuning.py noise FOLDER BATCH NOISE NUM_DRAWS
        draws the outputs of a folder's blocks under dropout. BATCH is an .npz
        of inputs `[B, L]`; NOISE gets `draws`, float32
        `[NUM_DRAWS, blocks, B, L, D]`.

Runs with torch and transformers; no module of bert_tf is used.
"""

import argparse
import pathlib
import sys

import numpy as np
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import finetune_transformers  # noqa: E402


class _GivenBatches:
    """A task of finetune_transformers.py that disregards its order."""

    def __init__(self, model, batches):
        self.model = model
        num_steps, batch_size = batches["input_ids"].shape[:2]
        self.train = range(num_steps * batch_size)
        self._batches = iter(
            {name: tensor[step] for name, tensor in batches.items()}
            for step in range(num_steps)
        )

    def inputs(self, rows):
        del rows
        return next(self._batches)


def _read_tensors(path):
    return {
        name: torch.tensor(array.astype("int64"))
        for name, array in np.load(path).items()
    }


def _write_noise(folder, batch_file, noise_file, num_draws):
    batch = _read_tensors(batch_file)
    model = transformers.AutoModel.from_pretrained(folder).train()
    torch.manual_seed(0)
    draws = []
    with torch.inference_mode():
        for _ in range(int(num_draws)):
            outputs = model(**batch, output_hidden_states=True)
            # The embeddings are the first.
            draws.append(torch.stack(outputs.hidden_states[1:]).numpy())
    np.savez(noise_file, draws=draws)


def _write_losses(
    architecture, folder, batches_file, losses_file, learning_rate
):
    batches = _read_tensors(batches_file)
    model = getattr(transformers, architecture).from_pretrained(folder)
    losses = []
    model.register_forward_hook(
        lambda module, inputs, outputs: losses.append(float(outputs.loss))
    )
    finetune_transformers.train(
        _GivenBatches(model, batches),
        argparse.Namespace(
            batch_size=batches["input_ids"].shape[1],
            epochs=1,
            learning_rate=float(learning_rate),
            warmup_proportion=0.1,
            bfloat16=False,
            compile=False,
        ),
    )
    np.savez(losses_file, losses=losses)


if __name__ == "__main__":
    {"losses": _write_losses, "noise": _write_noise}[sys.argv[1]](*sys.argv[2:])
