"""The files that the documents' commands begin with, made by chance.

text/*.txt, heldout/*.txt        a sentence a line, a blank line between
                                 documents
glue/MRPC, SST-2, CoLA           train.tsv, dev.tsv and test.tsv, as published
squad/{train,dev}-v{1.1,2.0}.json
ner/{train,dev,test}.txt         a token, a tab and its tag a line
train.csv, dev.csv               subject, body, label
beir                             corpus.jsonl, queries.jsonl, qrels/test.tsv
sts.tsv                          sentence1, sentence2, score
rerank/{train,dev,test}.tsv      query, text, label
minilm                           a folder of Hugging Face's, an encoder
uncased_L-12_H-768_A-12          a release of Google's
pretrained                       a model folder of ours, with both heads
models                           a folder of each of `_TASKS`, untrained
"""

import csv
import json
import random

import keras

import bert_tf
from bert_tf import checkpoints
from bert_tf.config import BertConfig
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.multi_label import MultiLabelTask
from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from bert_tf.tasks.question_answering.task import SquadTask
from bert_tf.tasks.reranking.task import RerankingTask
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary

_NOUNS = "market river teacher city garden book train winter window price"
_VERBS = "opens crosses follows finds reads moves sees likes keeps leaves"
_ADJECTIVES = "old small green quiet good bad late early dark new"
_NAMES = ("Anna", "Berlin", "Siemens")
_TAGS = ("B-PER", "B-LOC", "B-ORG")
_WORDS = " ".join((_NOUNS, _VERBS, _ADJECTIVES, *_NAMES, "the a is in"))
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
VOCABULARY = Vocabulary(
    tokens=(
        *SPECIAL_TOKENS,
        *dict.fromkeys(_WORDS.lower().split()),
        *(letter for letter in _LETTERS if letter != "a"),
        *(f"##{letter}" for letter in _LETTERS),
        *".,?!'-",
    )
)

_TASKS = {
    "tickets": ClassificationTask(
        name="tickets",
        text_features=("text",),
        labels=("law", "sales"),
        metrics=("accuracy",),
    ),
    "topics": MultiLabelTask(
        name="topics", text_features=("text",), labels=("law", "sales", "art")
    ),
    "stars": ClassificationTask(
        name="stars", text_features=("text",), metrics=("pearson",)
    ),
    "ner": TaggingTask(labels=("O", *_TAGS), scheme="bio"),
    "squad": SquadTask(),
    "choices": MultipleChoiceTask(num_choices=3),
    "reranker": RerankingTask(),
}


def write(folder):
    """Writes all of the files into a folder."""
    rng = random.Random(24)
    for name, num_documents in (("text", 60), ("heldout", 20)):
        (folder / name).mkdir()
        for part in "ab":
            _write_text(folder / name / f"{part}.txt", num_documents, rng)
    _write_glue(folder / "glue", rng)
    (folder / "squad").mkdir()
    for version in ("1.1", "2.0"):
        for split, num_questions in (("train", 24), ("dev", 12)):
            path = folder / "squad" / f"{split}-v{version}.json"
            _write_squad(path, num_questions, version == "2.0", rng)
    (folder / "ner").mkdir()
    for split, num_sentences in (("train", 32), ("dev", 12), ("test", 12)):
        _write_tags(folder / "ner" / f"{split}.txt", num_sentences, rng)
    for split, num_rows in (("train", 32), ("dev", 16)):
        with open(folder / f"{split}.csv", "w", newline="") as stream:
            rows = csv.writer(stream)
            rows.writerow(("subject", "body", "label"))
            for index in range(num_rows):
                label = ("law", "sales")[index % 2]
                rows.writerow((_sentence(rng), _sentence(rng), label))
    (folder / "rerank").mkdir()
    for split, num_queries in (("train", 12), ("dev", 6), ("test", 4)):
        _write_groups(folder / "rerank" / f"{split}.tsv", num_queries, rng)
    _write_beir(folder / "beir", rng)
    with open(folder / "sts.tsv", "w") as stream:
        print("sentence1", "sentence2", "score", sep="\t", file=stream)
        for index in range(12):
            pair = (_sentence(rng), _sentence(rng))
            print(*pair, index % 6, sep="\t", file=stream)
    _write_models(folder)


def _sentence(rng):
    noun, other = rng.choices(_NOUNS.split(), k=2)
    adjective = rng.choice(_ADJECTIVES.split())
    verb = rng.choice(_VERBS.split())
    return f"The {adjective} {noun} {verb} the {other} in {rng.choice(_NAMES)}."


def _write_text(path, num_documents, rng):
    documents = (
        "\n".join(_sentence(rng) for _ in range(rng.randint(4, 12)))
        for _ in range(num_documents)
    )
    path.write_text("\n\n".join(documents) + "\n")


def _write_glue(folder, rng):
    def write_rows(task, split, header, rows):
        path = folder / task / f"{split}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = ["\t".join(row) for row in ([header] if header else []) + rows]
        path.write_text("\n".join(lines) + "\n")

    for split, num_rows in (("train", 32), ("dev", 16), ("test", 8)):
        labels = [str(index % 2) for index in range(num_rows)]
        mrpc = [
            [label, "1", "2", _sentence(rng), _sentence(rng)]
            for label in labels
        ]
        header = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
        write_rows("MRPC", split, header, mrpc)
        if split == "test":
            rows = [[str(i), _sentence(rng)] for i in range(num_rows)]
            for task in ("SST-2", "CoLA"):
                write_rows(task, split, ["index", "sentence"], rows)
        else:
            rows = [[_sentence(rng), label] for label in labels]
            write_rows("SST-2", split, ["sentence", "label"], rows)
            rows = [["gj04", label, "", text] for text, label in rows]
            write_rows("CoLA", split, None, rows)


def _write_squad(path, num_questions, has_unanswerable, rng):
    paragraphs = []
    for index in range(num_questions):
        context = " ".join(_sentence(rng) for _ in range(3))
        words = context.split()
        answer = words[rng.randrange(len(words) - 1)]
        question = {
            "id": f"q{index}",
            "question": f"What {rng.choice(_VERBS.split())} the {answer}?",
            "answers": [
                {"text": answer, "answer_start": context.index(answer)}
            ],
        }
        if has_unanswerable:
            question["is_impossible"] = index % 3 == 0
            if question["is_impossible"]:
                question["answers"] = []
        paragraphs.append({"context": context, "qas": [question]})
    data = [{"title": "made", "paragraphs": paragraphs}]
    path.write_text(
        json.dumps({"version": path.stem.rpartition("v")[2], "data": data})
    )


def _write_tags(path, num_sentences, rng):
    tags = dict(zip(_NAMES, _TAGS))
    sentences = (
        "\n".join(
            f"{word}\t{tags.get(word, 'O')}"
            for word in _sentence(rng).removesuffix(".").split()
        )
        for _ in range(num_sentences)
    )
    path.write_text("\n\n".join(sentences) + "\n")


def _write_groups(path, num_queries, rng):
    lines = ["query\ttext\tlabel"]
    for number in range(num_queries):
        right = _sentence(rng)
        query = f"{number} {right.removesuffix('.').lower()}?"
        for label, text in ((1, right), *((0, _sentence(rng)) for _ in "abc")):
            lines.append(f"{query}\t{text}\t{label}")
    path.write_text("\n".join(lines) + "\n")


def _write_beir(folder, rng):
    (folder / "qrels").mkdir(parents=True)
    for name, letter, num_texts in (("corpus", "c", 24), ("queries", "q", 8)):
        rows = [
            json.dumps({"_id": f"{letter}{index}", "text": _sentence(rng)})
            for index in range(num_texts)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    rows = [f"q{index}\tc{2 * index}\t1" for index in range(8)]
    header = "query-id\tcorpus-id\tscore"
    (folder / "qrels/test.tsv").write_text("\n".join([header, *rows]) + "\n")


def _write_models(folder):
    keras.utils.set_random_seed(24)
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=512,
        # Its vectors of two texts differ by more than --relative_margin.
        initializer_range=0.5,
    )
    spec = WordpieceSpec(VOCABULARY)
    minilm, ours = str(folder / "minilm"), str(folder / "pretrained")
    checkpoints.save(minilm, BertEncoder(config), spec, 512)
    checkpoints.save(ours, BertPretrainer(config), spec, 512)
    checkpoints.convert(ours, str(folder / "uncased_L-12_H-768_A-12"), "google")
    preprocessor = Preprocessor(spec, 128)
    for name, task in _TASKS.items():
        model = task.make_model(config)
        bert_tf.save(folder / "models" / name, model, preprocessor, task)
