"""Losses of sentence-transformers over steps of given batches; a program.

    python tests/references/sentence_losses_peer.py folder runs.json out.json

Run by tests/tasks/retrieval/test_peers.py with the peers' Python. `runs.json`
is a list of {"loss": name, "chunk_size": int, "learning_rate": float,
"max_length": int, "batches": [{"texts": [column of strings, ...], "labels":
[float, ...]}, ...]}. Writes for each the list of the losses, every one before
its step of plain gradient descent.
"""

import json
import sys

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses


def make_loss(name, model, chunk_size):
    if name == "multiple_negatives":
        return losses.MultipleNegativesRankingLoss(model)
    if name == "cached":
        return losses.CachedMultipleNegativesRankingLoss(
            model, mini_batch_size=chunk_size
        )
    return losses.CoSENTLoss(model)


def main(folder, runs_path, output_path):
    with open(runs_path, encoding="utf-8") as stream:
        runs = json.load(stream)
    found = [losses_of(folder, settings) for settings in runs]
    with open(output_path, "w", encoding="utf-8") as stream:
        json.dump(found, stream)


def losses_of(folder, settings):
    model = SentenceTransformer(folder, device="cpu")
    model.max_seq_length = settings["max_length"]
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.train()
    loss = make_loss(settings["loss"], model, settings["chunk_size"])
    optimizer = torch.optim.SGD(
        model.parameters(), lr=settings["learning_rate"]
    )
    found = []
    for batch in settings["batches"]:
        columns = [model.tokenize(column) for column in batch["texts"]]
        value = loss(columns, torch.tensor(batch["labels"]))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        found.append(float(value.detach()))
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
