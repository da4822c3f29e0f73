"""Tunes a model folder with transformers, on batches that are given.

    python reference_tuning.py CLASS FOLDER BATCHES LOSSES LEARNING_RATE

The steps are those of benchmarks/finetune_transformers.py. BATCHES is an .npz
of the model's inputs, under transformers' names, `[steps, B, ...]`; LOSSES,
another, gets `losses`, float64 `[steps]`. Runs with torch and transformers;
no module of bert_tf is used.
"""

import argparse
import pathlib
import sys

import numpy as np
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import finetune_transformers  # noqa: E402


class _GivenBatches:
    """A task of finetune_transformers.py that disregards its order."""

    def __init__(self, model, batches):
        self.model = model
        num_steps, batch_size = batches["input_ids"].shape[:2]
        self.train = range(num_steps * batch_size)
        self._batches = iter(
            {name: array[step] for name, array in batches.items()}
            for step in range(num_steps)
        )

    def inputs(self, rows):
        del rows
        batch = next(self._batches)
        return {name: torch.tensor(array) for name, array in batch.items()}


def main(architecture, folder, batches_file, losses_file, learning_rate):
    batches = {
        name: array.astype("int64")
        for name, array in np.load(batches_file).items()
    }
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
        ),
    )
    np.savez(losses_file, losses=losses)


if __name__ == "__main__":
    main(*sys.argv[1:])
