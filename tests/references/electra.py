"""ELECTRA's two losses and their gradients by transformers.

No module of bert_tf is used. This file is a program of an environment that
has torch and transformers:

    python electra.py step FOLDER
        FOLDER has the discriminator's model folder and in it the generator's,
        and batch.npz; writes the losses and gradients into step.npz;
    python electra.py names FOLDER CLASS
        loads FOLDER, prints what transformers misses or does not expect.
"""

import json
import pathlib
import sys

import numpy as np


def _step(folder):
    import torch
    import transformers

    folder = pathlib.Path(folder)
    found = {}
    discriminator, generator = (
        model_class.from_pretrained(path, attn_implementation="eager").eval()
        for model_class, path in (
            (transformers.ElectraForPreTraining, folder),
            (transformers.ElectraForMaskedLM, folder / "generator"),
        )
    )
    # Tables and LayerNorm are those of both; the output's stay tied.
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = (
        discriminator.electra.embeddings.word_embeddings.weight
    )
    batch = {
        name: torch.tensor(value)
        for name, value in np.load(folder / "batch.npz").items()
    }
    inputs = {
        "attention_mask": batch["input_mask"],
        "token_type_ids": batch["segment_ids"],
    }
    masked_lm = generator(
        input_ids=batch["input_ids"], labels=batch["labels"], **inputs
    )
    told = discriminator(
        input_ids=batch["corrupted_ids"], labels=batch["replaced"], **inputs
    )
    loss = masked_lm.loss + 50 * told.loss
    loss.backward()
    found = {
        "masked_lm_loss": masked_lm.loss.detach().numpy(),
        "discriminator_loss": told.loss.detach().numpy(),
    }
    for net, model in (("generator", generator), ("", discriminator)):
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                found[f"{net}/{name}"] = parameter.grad.numpy()
    np.savez(folder / "step.npz", **found)


def _names(folder, model_class):
    import transformers

    _, info = getattr(transformers, model_class).from_pretrained(
        folder, output_loading_info=True
    )
    names = sorted(f"{kind}: {key}" for kind in info for key in info[kind])
    print(json.dumps(names))


if __name__ == "__main__":
    {"step": _step, "names": _names}[sys.argv[1]](*sys.argv[2:])
