"""Fine-tunes a model with transformers and PyTorch: a side of finetuning.py.

    python finetune_transformers.py --task=MRPC --train_file=MRPC/train.tsv \
        --dev_file=MRPC/dev.tsv --model=minilm --seed=0 --output_file=out.json

Runs in a separate environment with transformers and torch. The hyper-parameters
are those of bert_tf's programs with --bias_correction and
--nolearning_rate_drop: AdamW (epsilon 1e-6, decay 0.01 except for biases and
layer normalisation), clipping at 1, linear warmup and decay, and batches padded
to their longest example. With --compile the model is trained under
`torch.compile` with dynamic shapes. Writes one JSON object: the predictions for
the dev set, and the seconds of training.
"""

import argparse
import csv
import json
import pathlib
import sys
import time

import torch
import transformers

# {task: (whether there is a header, text columns, label column)}
GLUE = {
    "CoLA": (False, (3,), 1),
    "MRPC": (True, (3, 4), 0),
    "SST-2": (True, (0,), 1),
}

# bert_tf's --doc_stride.
DOC_STRIDE = 128


class Glue:
    """Rows of one or two texts and a label."""

    def __init__(self, options, tokenizer):
        self.tokenizer, self.max_length = tokenizer, options.max_length
        self.train = self._read(options.train_file, options.task)
        self.dev = self._read(options.dev_file, options.task)
        self.model = (
            transformers.AutoModelForSequenceClassification.from_pretrained(
                options.model, num_labels=2
            )
        )

    def _read(self, path, task):
        has_header, text_columns, label_column = GLUE[task]
        text = pathlib.Path(path).read_text("utf-8-sig")
        rows = list(
            csv.reader(text.split("\n"), delimiter="\t", quoting=csv.QUOTE_NONE)
        )
        return [
            ([row[column] for column in text_columns], int(row[label_column]))
            for row in rows[has_header:]
            if row
        ]

    def inputs(self, rows):
        texts = zip(*(texts for texts, _ in rows))
        inputs = self.tokenizer(
            *map(list, texts),
            padding=True,
            truncation=True,
            max_length=self.max_length,
            return_tensors="pt",
        )
        return inputs | {"labels": torch.tensor([label for _, label in rows])}

    def predictions(self, outputs):
        return [
            prediction
            for _, output in outputs
            for prediction in output.logits.argmax(-1).tolist()
        ]


class Tagging:
    """Words and their tags; a word's tag is that of its first piece."""

    def __init__(self, options, tokenizer):
        self.tokenizer, self.max_length = tokenizer, options.max_length
        self.train = self._read(options.train_file)
        self.dev = self._read(options.dev_file)
        self.tags = sorted({tag for _, tags in self.train for tag in tags})
        self.model = (
            transformers.AutoModelForTokenClassification.from_pretrained(
                options.model, num_labels=len(self.tags)
            )
        )

    def _read(self, path):
        text = pathlib.Path(path).read_text("utf-8")
        sentences = [([], [])]
        for line in text.split("\n"):
            if line.strip():
                for column, value in zip(sentences[-1], line.split("\t")):
                    column.append(value)
            elif sentences[-1][0]:
                sentences.append(([], []))
        return [sentence for sentence in sentences if sentence[0]]

    def inputs(self, rows):
        inputs = self.tokenizer(
            [words for words, _ in rows],
            is_split_into_words=True,
            padding=True,
            truncation=True,
            max_length=self.max_length,
            return_tensors="pt",
        )
        labels = torch.full(inputs["input_ids"].shape, -100)
        for number, (_, tags) in enumerate(rows):
            for word, place in self._first_pieces(inputs, number).items():
                labels[number, place] = self.tags.index(tags[word])
        return inputs | {"labels": labels}

    def _first_pieces(self, inputs, number):
        places = {}
        for place, word in enumerate(inputs.word_ids(number)):
            if word is not None:
                places.setdefault(word, place)
        return places

    def predictions(self, outputs):
        found = []
        for rows, output in outputs:
            best = output.logits.argmax(-1)
            encoded = self.tokenizer(
                [words for words, _ in rows],
                is_split_into_words=True,
                truncation=True,
                max_length=self.max_length,
            )
            for number, (words, _) in enumerate(rows):
                places = self._first_pieces(encoded, number)
                found.append(
                    [
                        self.tags[best[number, places[word]]]
                        if word in places
                        else "O"
                        for word in range(len(words))
                    ]
                )
        return found


class Squad:
    """Windows of SQuAD 1.1, each DOC_STRIDE pieces after the previous one."""

    def __init__(self, options, tokenizer):
        self.tokenizer, self.max_length = tokenizer, options.max_length
        questions = self._read(options.train_file)
        # As in google-research/bert, an epoch has as many windows as there are
        # questions.
        self.epoch_size = len(questions)
        self.train = self._windows(questions)
        self.dev_questions = self._read(options.dev_file)
        self.dev = self._windows(self.dev_questions)
        self.model = transformers.AutoModelForQuestionAnswering.from_pretrained(
            options.model
        )

    def _read(self, path):
        data = json.loads(pathlib.Path(path).read_text("utf-8"))["data"]
        return [
            (each["id"], each["question"], paragraph["context"])
            + (each["answers"][0]["answer_start"], each["answers"][0]["text"])
            for article in data
            for paragraph in article["paragraphs"]
            for each in paragraph["qas"]
        ]

    def _windows(self, questions):
        return [
            window
            for number, question in enumerate(questions)
            for window in self._question_windows(number, question)
        ]

    def _question_windows(self, number, question):
        _, text, context, answer_start, answer = question
        text = text.strip()
        pieces = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        # Leave room for [CLS] and two [SEP]. The tokenizer's `stride` is the
        # overlap of two windows, not the distance between their starts.
        room = self.max_length - 3 - len(pieces)
        encoded = self.tokenizer(
            text,
            context,
            truncation="only_second",
            max_length=self.max_length,
            stride=max(0, room - DOC_STRIDE),
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for window, all_offsets in enumerate(encoded["offset_mapping"]):
            offsets = [
                offset if sequence == 1 else None
                for offset, sequence in zip(
                    all_offsets, encoded.sequence_ids(window)
                )
            ]
            yield {
                "question": number,
                "offsets": offsets,
                "span": self._span(
                    offsets, answer_start, answer_start + len(answer)
                ),
                "inputs": {
                    name: encoded[name][window]
                    for name in self.tokenizer.model_input_names
                },
            }

    def _span(self, offsets, start, stop):
        inside = [
            place
            for place, offset in enumerate(offsets)
            if offset and offset[0] < stop and offset[1] > start
        ]
        is_whole = (
            inside
            and offsets[inside[0]][0] <= start
            and offsets[inside[-1]][1] >= stop
        )
        return (inside[0], inside[-1]) if is_whole else (0, 0)

    def inputs(self, rows):
        inputs = self.tokenizer.pad(
            [row["inputs"] for row in rows], return_tensors="pt"
        )
        starts, ends = zip(*(row["span"] for row in rows))
        return inputs | {
            "start_positions": torch.tensor(starts),
            "end_positions": torch.tensor(ends),
        }

    def predictions(self, outputs):
        best = {}
        for rows, output in outputs:
            for number, row in enumerate(rows):
                found = self._best_span(
                    row, output.start_logits[number], output.end_logits[number]
                )
                known = best.get(row["question"], (float("-inf"), ""))
                best[row["question"]] = max(found, known)
        return {
            question[0]: best[number][1]
            for number, question in enumerate(self.dev_questions)
        }

    def _best_span(self, row, start_logits, end_logits):
        context = self.dev_questions[row["question"]][2]
        best = (float("-inf"), "")
        ends = end_logits.topk(min(20, len(end_logits))).indices.tolist()
        for start in start_logits.topk(len(ends)).indices.tolist():
            for end in ends:
                if (
                    max(start, end) < len(row["offsets"])
                    and row["offsets"][start]
                    and row["offsets"][end]
                    and start <= end < start + 30
                ):
                    score = float(start_logits[start] + end_logits[end])
                    text = context[
                        row["offsets"][start][0] : row["offsets"][end][1]
                    ]
                    best = max(best, (score, text))
        return best


def make_optimizer(model, learning_rate):
    plain, decayed = [], []
    for name, parameter in model.named_parameters():
        # ALBERT and DistilBERT have such names in lower case.
        is_plain = any(
            part in name for part in ("bias", "LayerNorm", "layer_norm")
        )
        (plain if is_plain else decayed).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": 0.01},
            {"params": plain, "weight_decay": 0.0},
        ],
        lr=learning_rate,
        eps=1e-6,
    )


def train(task, options):
    """Trains; returns the number of steps and their seconds."""
    optimizer = make_optimizer(task.model, options.learning_rate)
    size = options.batch_size
    epoch_size = getattr(task, "epoch_size", len(task.train))
    num_steps = int(epoch_size / size * options.epochs)
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, int(num_steps * options.warmup_proportion), num_steps
    )
    task.model.train()
    model = task.model
    if options.compile:
        model = torch.compile(model, dynamic=True)
    step = 0
    losses = []
    start = time.perf_counter()
    while step < num_steps:
        order = torch.randperm(len(task.train)).tolist()
        order = order[: (num_steps - step) * size]
        for first in range(0, len(order), size):
            rows = [task.train[index] for index in order[first : first + size]]
            with torch.autocast(
                "cpu", torch.bfloat16, enabled=options.bfloat16
            ):
                loss = model(**task.inputs(rows)).loss
            losses.append(loss.detach())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(task.model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            if step % 50 == 0 or step == num_steps:
                mean = float(torch.stack(losses).mean())
                print(f"step {step}/{num_steps} {mean:.3f}", file=sys.stderr)
                losses.clear()
    return step, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", required=True)
    parser.add_argument("--train_file", required=True)
    parser.add_argument("--dev_file", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--output_file", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--warmup_proportion", type=float, default=0.1)
    parser.add_argument("--max_length", type=int, default=128)
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    transformers.set_seed(options.seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    kinds = {"WNUT17": Tagging, "SQuAD": Squad}
    task = kinds.get(options.task, Glue)(options, tokenizer)
    num_steps, seconds = train(task, options)

    task.model.eval()
    outputs = []
    with torch.inference_mode():
        for first in range(0, len(task.dev), 64):
            rows = task.dev[first : first + 64]
            outputs.append((rows, task.model(**task.inputs(rows))))
    results = {
        "predictions": task.predictions(outputs),
        "examples": num_steps * options.batch_size,
        "seconds": seconds,
    }
    pathlib.Path(options.output_file).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
