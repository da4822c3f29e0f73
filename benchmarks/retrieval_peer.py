"""sentence-transformers' process of benchmarks/retrieval.py.

See pretraining_worker.py. Batches take the pairs in the order of the file.
Texts are tokenized batch by batch, and each side of a batch is padded to its
longest text.
"""

import json
import sys

import pretraining_worker
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses


def prepare(job):
    """Returns a function that runs a given number of steps."""
    with open(job["pairs"], encoding="utf-8") as stream:
        pairs = json.load(stream)
    torch.manual_seed(1)
    model = SentenceTransformer(job["model_dir"], device="cpu")
    model.max_seq_length = job["length"]
    model.train()
    loss = losses.MultipleNegativesRankingLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    is_bfloat16 = job["precision"] == "bfloat16"
    size = job["batch_size"]
    num_batches = len(pairs) // size
    num_made = 0

    def make_steps(count):
        nonlocal num_made
        for _ in range(count):
            first = num_made % num_batches * size
            num_made += 1
            columns = zip(*pairs[first : first + size])
            features = [model.tokenize(list(column)) for column in columns]
            with torch.autocast("cpu", torch.bfloat16, enabled=is_bfloat16):
                value = loss(features, None)
            optimizer.zero_grad()
            value.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    return make_steps


def main():
    job = json.loads(sys.argv[1])
    pretraining_worker.serve(prepare(job), job["batch_size"])


if __name__ == "__main__":
    main()
