"""Tunes a model with transformers and PyTorch: a side of finetuning.py.

    python finetune_transformers.py --task=MRPC --data_dir=glue/MRPC \
        --model=minilm --seed=0

Runs in an environment of its own, with transformers, torch and scikit-learn.
The hyper-parameters are those of `bert_tf.run_classifier --bias_correction`:
AdamW (epsilon 1e-6, decay 0.01 but for biases and layer normalisation),
clipping at 1, linear warmup and decay, batches padded to their longest. Prints
one JSON object: the dev scores and the training examples a second.
"""

import argparse
import csv
import json
import pathlib
import time

import sklearn.metrics
import torch
import transformers

# {task: (header?, columns of the texts, column of the label, scores)}
TASKS = {
    "CoLA": (False, (3,), 1, ("matthews_correlation",)),
    "MRPC": (True, (3, 4), 0, ("accuracy", "f1")),
    "SST-2": (True, (0,), 1, ("accuracy",)),
}
SCORES = {
    "accuracy": sklearn.metrics.accuracy_score,
    "f1": sklearn.metrics.f1_score,
    "matthews_correlation": sklearn.metrics.matthews_corrcoef,
}


def read(path, task):
    """Returns (texts, label) of every row."""
    has_header, text_columns, label_column, _ = TASKS[task]
    with pathlib.Path(path).open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))[
            has_header:
        ]
    return [
        ([row[column] for column in text_columns], int(row[label_column]))
        for row in rows
    ]


def batches(rows, order, size, tokenizer, max_length):
    for start in range(0, len(order), size):
        chosen = [rows[index] for index in order[start : start + size]]
        texts = zip(*(texts for texts, _ in chosen))
        inputs = tokenizer(
            *map(list, texts),
            padding=True,
            truncation=True,
            max_length=max_length,
            return_tensors="pt",
        )
        yield inputs, torch.tensor([label for _, label in chosen])


def make_optimizer(model, learning_rate):
    plain, decayed = [], []
    for name, parameter in model.named_parameters():
        is_plain = "bias" in name or "LayerNorm" in name
        (plain if is_plain else decayed).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": 0.01},
            {"params": plain, "weight_decay": 0.0},
        ],
        lr=learning_rate,
        eps=1e-6,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--warmup_proportion", type=float, default=0.1)
    parser.add_argument("--max_length", type=int, default=128)
    parser.add_argument("--threads", type=int, help="Of PyTorch.")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    transformers.set_seed(options.seed)

    folder = pathlib.Path(options.data_dir)
    train = read(folder / "train.tsv", options.task)
    dev = read(folder / "dev.tsv", options.task)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        options.model, num_labels=2
    )
    optimizer = make_optimizer(model, options.learning_rate)
    num_steps = int(len(train) / options.batch_size * options.epochs)
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, int(num_steps * options.warmup_proportion), num_steps
    )

    model.train()
    step = 0
    start = time.perf_counter()
    while step < num_steps:
        order = torch.randperm(len(train)).tolist()
        order = order[: (num_steps - step) * options.batch_size]
        for inputs, labels in batches(
            train, order, options.batch_size, tokenizer, options.max_length
        ):
            loss = model(**inputs, labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
    seconds = time.perf_counter() - start

    model.eval()
    predictions, labels = [], []
    with torch.inference_mode():
        for inputs, batch_labels in batches(
            dev, range(len(dev)), 64, tokenizer, options.max_length
        ):
            predictions += model(**inputs).logits.argmax(-1).tolist()
            labels += batch_labels.tolist()
    results = {
        name: float(SCORES[name](labels, predictions))
        for name in TASKS[options.task][3]
    }
    results |= {
        "task": options.task,
        "seed": options.seed,
        "steps": step,
        "examples_per_second": step * options.batch_size / seconds,
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
