"""Model cards: their text, as people and as the Hub's client read it."""

import dataclasses
import hashlib
import math
import re

import huggingface_hub
import hypothesis
import pytest
import yaml
from hypothesis import strategies

from bert_tf.checkpoints import model_card
from bert_tf.config import BertConfig

CONFIG = BertConfig(
    vocab_size=30522,
    hidden_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=512,
    max_position_embeddings=256,
)
VALUES = {
    "architectures": ["BertForSequenceClassification"],
    "id2label": {"0": "no", "1": 'a: "yes" #_'},
}
ORIGIN = model_card.Origin(
    name="my: *task*",
    method="fine-tuned",
    start="hf:org/small@main",
    data={"Examples": {"train": "1,234 examples", "told": None}},
    datasets=("glue",),
    settings={"steps": 7, "learning_rate": 5e-05, "freeze": None},
)
GOLDEN = r"""---
library_name: "transformers"
tags:
- "bert_tf"
- "bert"
pipeline_tag: "text-classification"
base_model: "org/small"
datasets:
- "glue"
model-index:
- name: "my: *task*"
  results:
  - task:
      type: "text-classification"
    dataset:
      name: "glue/mrpc"
      type: "glue/mrpc"
    metrics:
    - type: "accuracy"
      name: "eval_accuracy"
      value: 0.875
    - type: "loss"
      name: "eval_loss"
      value: 1.0e-05
    - type: "examples"
      name: "examples"
      value: 123456.0
---

<!-- Written by bert_tf, which replaces this file when it writes the model again, unless you have changed it: DIGEST -->

# my: \*task\*

A `BertForSequenceClassification`, fine-tuned with bert_tf.

## Model

- Architecture: BertForSequenceClassification
- Layers: 2
- Hidden size: 128
- Attention heads: 4
- Intermediate size: 512
- Positions: 256
- Parameters: 4,386,178
- Vocabulary: 30,522 entries, lower-cased
- Tokenizer: BertTokenizer
- Longest sequence: 128 tokens
- Labels: no, a: "yes" #\_

## Training data

Examples:

- train: 1,234 examples

## Training procedure

Initial weights: hf:org/small@main.

- `steps`: 7
- `learning_rate`: 5e-05

## Evaluation

On glue/mrpc:

- `eval_accuracy`: 0.875
- `eval_loss`: 1e-05
- `eval_pearson`: nan
- `examples`: 123456
- `loss`: 1e-05

## How to use

```python
import bert_tf

predict = bert_tf.predictor("path/of/this/folder")
print(predict("A text."))
```

With transformers:

```python
from transformers import AutoTokenizer, BertForSequenceClassification

model = BertForSequenceClassification.from_pretrained("path/of/this/folder")
tokenizer = AutoTokenizer.from_pretrained("path/of/this/folder")
```

## Limitations

Nothing is known of this model beyond what stands here. It has not been evaluated on other data, for bias, or for any particular use.
"""  # noqa: E501
# Of all the rest.
GOLDEN = GOLDEN.replace(
    "DIGEST",
    hashlib.sha256(GOLDEN.replace("DIGEST", "").encode()).hexdigest()[:16],
)


def make(values=VALUES, origin=ORIGIN):
    return model_card.make(
        CONFIG,
        values,
        num_parameters=4386178,
        tokenizer_class="BertTokenizer",
        do_lower_case=True,
        max_seq_length=128,
        origin=origin,
    )


def evaluated(text, results, name=ORIGIN.name, dataset="glue/mrpc"):
    return model_card.with_results(
        text,
        name=name,
        task_type="text-classification",
        dataset=dataset,
        results=results,
    )


def test_card_is_as_it_was_written_by_hand():
    results = {"eval_loss": 1e-05, "eval_accuracy": 0.875}
    card = make()
    assert "has not been evaluated.\n\n## How to use" in card
    # Later results replace earlier ones.
    card = evaluated(card, {"eval_accuracy": 0.25, "other": 1.0})
    others = {
        "eval_pearson": math.nan,
        "examples": 123456.0,
        "global_step": 7,
        "loss": 1e-05,
    }
    assert evaluated(card, results | others) == GOLDEN

    # What the Hub's client makes of it, which checks the scores' form.
    data = huggingface_hub.ModelCard(GOLDEN).data
    assert data.base_model == "org/small"
    assert data.model_name == "my: *task*"
    found = {
        result.metric_name: (result.metric_type, result.metric_value)
        for result in data.eval_results
    }
    assert found == {
        "eval_accuracy": ("accuracy", 0.875),
        "eval_loss": ("loss", 1e-05),
        "examples": ("examples", 123456.0),
    }


def test_what_is_not_known_is_left_out():
    card = make({"architectures": ["BertModel"]}, origin=None)
    data = huggingface_hub.ModelCard(card).data
    assert data.to_dict() == {
        "library_name": "transformers",
        "tags": ["bert_tf", "bert"],
        "pipeline_tag": "feature-extraction",
    }
    assert "# BertModel\n" in card
    assert "Labels" not in card
    assert "## Training" not in card


@pytest.mark.parametrize(
    ("start", "told", "base_model"),
    [
        (None, "new", None),
        ("hf:org/my_model", "hf:org/my_model", "org/my_model"),
        # The folders of one's own machine are nobody's business.
        ("/home/me/tuned/", "tuned", None),
        ("/d/uncased_L-2/bert_model.ckpt", "uncased_L-2/bert_model.ckpt", None),
    ],
)
def test_start_is_told_and_a_base_model_on_the_hub_alone(
    start, told, base_model
):
    card = make(
        origin=model_card.Origin(
            name="n", method="pre-trained", start=start, data={}, settings={}
        )
    )
    assert f"\nInitial weights: {told}.\n" in card
    assert huggingface_hub.ModelCard(card).data.base_model == base_model


def test_start_that_is_not_known_is_left_out():
    card = make(origin=dataclasses.replace(ORIGIN, knows_start=False))
    assert "Initial weights" not in card
    assert huggingface_hub.ModelCard(card).data.base_model is None


@pytest.mark.parametrize(
    ("architecture", "tag"),
    [
        ("BertForPreTraining", "fill-mask"),
        ("BertForTokenClassification", "token-classification"),
        ("BertForQuestionAnswering", "question-answering"),
        ("BertForMultipleChoice", "multiple-choice"),
        ("BertForNextSentencePrediction", None),
    ],
)
def test_task_of_a_class(architecture, tag):
    values = VALUES | {"architectures": [architecture]}
    assert model_card.pipeline_tag(values) == tag
    # A left-to-right model fills no masks.
    assert model_card.pipeline_tag(values | {"is_decoder": True}) is None
    card = make(values)
    assert ("pipeline_tag" in yaml.safe_load(card.split("---\n")[1])) == (
        tag is not None
    )


def test_a_card_that_was_changed_stays():
    for text in (
        "",
        "---\n",
        GOLDEN[-90:],
        GOLDEN.replace("- `steps`: 7", "- `steps`: 8"),
        GOLDEN.replace("tags:", 'license: "mit"\ntags:'),
        GOLDEN.removesuffix("\n"),
        # It took a minute to find that this is none.
        GOLDEN + "---\nmodel-index:\n\n## Evaluation\n\nx\n" * 100,
    ):
        assert not model_card.is_own(text)
        assert evaluated(text, {"eval_accuracy": 0.5}) == text
    assert model_card.is_own(GOLDEN)


def test_paths_that_are_no_utf8_are_told():
    # As Python has the bytes of another encoding in its arguments.
    odd = "mod\udce9le"
    origin = model_card.Origin(
        name=odd,
        method="tuned",
        start=f"/d/{odd}",
        data={"Set": {odd: odd}},
        settings={"dev": odd},
    )
    card = evaluated(make(origin=origin), {"f1": 0.5}, name=odd, dataset=odd)
    data = huggingface_hub.ModelCard(card.encode().decode()).data
    assert data.model_name == "mod?le"
    assert "Initial weights: mod?le." in card
    assert "On mod?le:" in card


def test_architecture_need_not_be_told():
    assert model_card.pipeline_tag({"architectures": None}) is None
    assert model_card.pipeline_tag({}) is None


@pytest.mark.parametrize(
    ("name", "dataset_type", "datasets"),
    [
        ("glue/mrpc:1.0.0", "glue/mrpc", ["glue"]),
        ("imdb_reviews:2.*.*", "imdb_reviews", ["imdb_reviews"]),
        # Not the Hub's.
        ("mine:glue/mrpc:1.0.0", "unknown", None),
    ],
)
def test_hub_takes_the_names_of_sets_of_data(name, dataset_type, datasets):
    origin = model_card.Origin(
        name="n",
        method="tuned",
        start=None,
        data={},
        datasets=(name, name),
        settings={},
    )
    card = evaluated(make(origin=origin), {"f1": 0.5}, dataset=name)
    data = huggingface_hub.ModelCard(card).data
    assert data.datasets == datasets
    assert data.eval_results[0].dataset_name == name
    assert data.eval_results[0].dataset_type == dataset_type


TEXTS = strategies.text(min_size=1) | strategies.sampled_from(
    [
        "---",
        "x\n---\n",
        "model-index:\n",
        "## How to use\n",
        "a: b # c",
        "'\"\\",
        "\x85\u2028\u2029\ufeff\x7f",
        "\U0001f600 ü",
        "1e5",
        "null",
        "glue/mrpc:1.0.0",
        "<!-- Written by bert_tf, which replaces this file when it writes the "
        "model again, unless you have changed it: ",
    ]
)


@hypothesis.given(
    TEXTS,
    TEXTS,
    strategies.floats(allow_nan=False, allow_infinity=False),
)
@hypothesis.settings(deadline=None, max_examples=200)
def test_yaml_holds_any_name_and_number(name, dataset, value):
    origin = model_card.Origin(
        name=name, method="fine-tuned", start=None, data={}, settings={}
    )
    card = make(VALUES | {"id2label": {"0": name, "1": dataset}}, origin)
    once = evaluated(card, {"f1": 0.5}, name, dataset)
    card = evaluated(once, {"f1": value}, name, dataset)
    (index,) = yaml.safe_load(card[4 : card.index("\n---\n")])["model-index"]
    assert index["name"] == name
    (result,) = index["results"]
    assert result["dataset"]["name"] == dataset
    # The Hub's own test of it.
    assert re.fullmatch(
        r"(?:[\w-]+/)?[\w.-]+", result["dataset"]["type"], re.ASCII
    )
    assert result["metrics"] == [{"type": "f1", "name": "f1", "value": value}]
    # The text goes on as it did, with one list of scores.
    assert card.count("\n- `f1`: ") == 1
    assert card.endswith("particular use.\n")
