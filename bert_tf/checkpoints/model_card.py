"""A model folder's README.md: a model card, as the Hugging Face Hub reads it.

Text made of what the folder and its training know, and of nothing else. YAML
with the Hub's keys stands above, what people read below.
"""

import dataclasses
import hashlib
import json
import math
import re
import sys
from collections.abc import Mapping
from typing import Any

from bert_tf.config import BertConfig

CARD_FILE = "README.md"
# Before the digest of all the rest: a card without it, or with another digest,
# is somebody's own.
_MARKER = (
    "<!-- Written by bert_tf, which replaces this file when it writes the "
    "model again, unless you have changed it: "
)
_DIGITS = 16
# What stands before the scores that people read, and after these.
_EVALUATION = "\n## Evaluation\n\n"
_USE = "\n## How to use\n"
_NOT_EVALUATED = "This model has not been evaluated."
# The task of a class of transformers, by the end of its name. A model that has
# been pre-trained is known by its masked words.
_PIPELINE_TAGS = {
    # The discriminator, of which the Hub has no task.
    "ElectraForPreTraining": None,
    "ForPreTraining": "fill-mask",
    "ForMaskedLM": "fill-mask",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "multiple-choice",
    "Model": "feature-extraction",
}
_TEXTS = '["A text.", "Another."]'
# Likewise, what its preprocessor and then it itself is called with.
_CALLS = {
    "ElectraForPreTraining": (_TEXTS, "model(inputs)"),
    # A text does not tell which places to predict.
    "ForPreTraining": (_TEXTS, "model.encoder(inputs)"),
    "ForMaskedLM": (_TEXTS, "model.encoder(inputs)"),
    "ForQuestionAnswering": (
        '(["A question?"], ["A text."])',
        "model(inputs)",
    ),
    "ForMultipleChoice": (
        '(["A text."] * 2, ["One way on.", "Another."])',
        "model({name: ids[None] for name, ids in inputs.items()})",
    ),
    "": (_TEXTS, "model(inputs)"),
}
_SIZES = {
    "num_hidden_layers": "Layers",
    "hidden_size": "Hidden size",
    "num_attention_heads": "Attention heads",
    "intermediate_size": "Intermediate size",
    "max_position_embeddings": "Positions",
}
# Of a value in characters.
_MAX_VALUE = 400
# What YAML reads as a line's end, or refuses, and JSON has unescaped.
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
# What the Hub takes as the type of a set of data, and a version of TensorFlow
# Datasets after it.
_DATASET = re.compile(r"((?:[\w-]+/)?[\w.-]+)(?::[\d.*]+)?", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a model is from, as far as its writer knows.

    Args:
        name: What it is called, e.g. by its task.
        method: E.g. "fine-tuned".
        start: The checkpoint that it was made from; None for new weights.
        knows_start: Whether that is known: of a training that was resumed it
            may not be.
        teacher: The checkpoint that it was distilled from, if any.
        data: {heading: {what: value}} of what it was trained on.
        datasets: Names of sets of TensorFlow Datasets among them, in full.
        settings: {name: value} of the training; those that are None are left
            out.
    """

    name: str
    method: str
    start: str | None
    knows_start: bool = True
    teacher: str | None = None
    data: Mapping[str, Mapping[str, Any]]
    datasets: tuple[str, ...] = ()
    settings: Mapping[str, Any]


def versions() -> str:
    """Returns the versions of what trains: of those that are imported."""
    found = {
        name: getattr(sys.modules.get(name), "__version__", None)
        for name in ("bert_tf", "tensorflow", "keras")
    }
    return ", ".join(f"{name} {found[name]}" for name in found if found[name])


def pipeline_tag(config_values: Mapping[str, Any]) -> str | None:
    """Returns what the Hub calls the task of a model, None if it has none.

    Args:
        config_values: The contents of its config.json.
    """
    if config_values.get("is_decoder"):
        return None
    architectures = config_values.get("architectures") or [""]
    return _by_class(architectures[0], _PIPELINE_TAGS)


def is_own(text: str) -> bool:
    """Returns whether a card is one of bert_tf's, and as it was written."""
    return _MARKER in text and _stamped(text) == text


def make(
    config: BertConfig,
    config_values: Mapping[str, Any],
    *,
    num_parameters: int,
    tokenizer_class: str,
    do_lower_case: bool,
    max_seq_length: int,
    origin: Origin | None = None,
) -> str:
    """Returns the text of a card, without scores.

    Args:
        config: The model's `BertConfig`.
        config_values: The contents of its config.json.
        num_parameters: Of the whole model.
        tokenizer_class: What transformers calls the tokenizer.
        do_lower_case: Whether it lower-cases.
        max_seq_length: Longest sequence that users should give it.
        origin: None where it is not known.
    """
    architecture = config_values["architectures"][0]
    metadata: dict[str, Any] = {
        "library_name": "transformers",
        "tags": ["bert_tf", config.model_type],
        "pipeline_tag": pipeline_tag(config_values),
    }
    labels = list(config_values.get("id2label", {}).values())
    model = {
        "Architecture": architecture,
        **{told: getattr(config, name) for name, told in _SIZES.items()},
        "Parameters": f"{num_parameters:,}",
        "Vocabulary": f"{config.vocab_size:,} entries, "
        + ("lower-cased" if do_lower_case else "cased"),
        "Tokenizer": tokenizer_class,
        "Longest sequence": f"{max_seq_length} tokens",
        "Attention": "left to right" if config.is_decoder else None,
        "Problem type": config_values.get("problem_type"),
        "Labels": ", ".join(map(str, labels)) or None,
    }
    name, summary = architecture, f"A `{architecture}`, saved by bert_tf."
    parts = ["## Model", _bullets(model)]
    if origin is not None:
        name = origin.name
        summary = f"A `{architecture}`, {origin.method} with bert_tf."
        if origin.knows_start:
            metadata["base_model"] = _hub_name(origin.start)
        matches = map(_DATASET.fullmatch, origin.datasets)
        names = [match[1].split("/")[0] for match in matches if match]
        metadata["datasets"] = list(dict.fromkeys(names)) or None
        parts += ["## Training data"] if origin.data else []
        for heading, values in origin.data.items():
            parts += [f"{heading}:", _bullets(values)]
        parts += [
            "## Training procedure",
            *(
                [f"Initial weights: {_start(origin.start)}."]
                if origin.knows_start
                else []
            ),
            *(
                [f"Teacher: {_start(origin.teacher)}."]
                if origin.teacher
                else []
            ),
            _bullets(
                {f"`{key}`": value for key, value in origin.settings.items()}
            ),
        ]
    parts += [
        "## Evaluation",
        _NOT_EVALUATED,
        "## How to use",
        _usage(architecture),
        "## Limitations",
        "Nothing is known of this model beyond what stands here. It has not "
        "been evaluated on other data, for bias, or for any particular use.",
    ]
    marker = f"{_MARKER}{' ' * _DIGITS} -->"
    body = "\n\n".join([marker, f"# {_plain(name)}", summary, *parts])
    # The scores will stand at the end of the YAML.
    return _stamped(f"---\n{_yaml(metadata)}---\n\n{body}\n")


def with_results(
    text: str,
    *,
    name: str,
    task_type: str | None,
    dataset: str,
    results: Mapping[str, float],
) -> str:
    """Returns a card with the results of an evaluation, instead of any.

    Args:
        text: What `make` or this returned.
        name: Of the model.
        task_type: As of `pipeline_tag`.
        dataset: What it was evaluated on.
        results: {name: float}.

    Returns:
        The text; as it was where it is not `is_own`.
    """
    if not is_own(text):
        return text
    head, _, body = text.partition("\n---\n")
    head = head.partition("\nmodel-index:\n")[0] + "\n"
    body, _, rest = body.partition(_EVALUATION)
    rest = rest.partition(_USE)[2]
    metrics = [
        {
            "type": key.removeprefix("eval_"),
            "name": key,
            "value": float(results[key]),
        }
        for key in sorted(results)
        # Steps and temperatures are no scores, some have two names, and the
        # Hub's JSON has no other numbers.
        if key not in ("global_step", "temperature")
        and f"eval_{key}" not in results
        and math.isfinite(results[key])
    ]
    if task_type is not None and metrics:
        match = _DATASET.fullmatch(dataset)
        result = {
            "task": {"type": task_type},
            "dataset": {
                "name": dataset,
                "type": match[1] if match else "unknown",
            },
            "metrics": metrics,
        }
        index = [{"name": name, "results": [result]}]
        head += _yaml({"model-index": index})
    scores = {
        f"`{key}`": _number(results[key])
        for key in sorted(results)
        # The step stands with the training.
        if key != "global_step"
    }
    section = f"On {_plain(dataset)}:\n\n{_bullets(scores)}\n"
    return _stamped(f"{head}---\n{body}{_EVALUATION}{section}{_USE}{rest}")


def _stamped(text):
    """Returns a card with the digest of all the rest of it in its marker."""
    # Paths that are no UTF-8 have halves of pairs, which have no UTF-8 either.
    text = text.encode("utf-8", "replace").decode("utf-8")
    # What stands below the marker has it with its "<" escaped, if at all.
    head, _, rest = text.rpartition(_MARKER)
    head, rest = f"{head}{_MARKER}", rest[_DIGITS:]
    digest = hashlib.sha256(f"{head}{rest}".encode()).hexdigest()
    return f"{head}{digest[:_DIGITS]}{rest}"


def _by_class(architecture, values):
    """Returns the value of the first end that a class's name has, or None."""
    for end, value in values.items():
        if architecture.endswith(end):
            return value
    return None


def _hub_name(start):
    """Returns "organisation/name" of a checkpoint of the Hub, or None."""
    if start is None or not start.startswith("hf:"):
        return None
    return start.removeprefix("hf:").partition("@")[0]


def _start(start):
    """Returns what a checkpoint is called; no folder of one's own machine."""
    if start is None:
        return "new"
    if _hub_name(start):
        return _plain(start)
    parts = start.rstrip("/").split("/")
    # A checkpoint of Google's has one name in all folders.
    return _plain("/".join(parts[-2 if parts[-1].endswith(".ckpt") else -1 :]))


def _usage(architecture):
    texts, call = _by_class(architecture, _CALLS)
    return f"""```python
import bert_tf

model, preprocessor, task = bert_tf.load("path/of/this/folder")
inputs = preprocessor({texts})
outputs = {call}
```

With transformers:

```python
from transformers import AutoTokenizer, {architecture}

model = {architecture}.from_pretrained("path/of/this/folder")
tokenizer = AutoTokenizer.from_pretrained("path/of/this/folder")
```"""


def _bullets(values):
    """Returns a list in Markdown of {what: value}, None left out."""
    return "\n".join(
        f"- {what}: {_plain(value)}"
        for what, value in values.items()
        if value is not None
    )


def _number(value):
    """Returns four digits of a score, and all those of a whole number."""
    return f"{value:.4g}" if value % 1 else f"{value:.0f}"


def _plain(value):
    """Returns one line of Markdown that shows a value, a long one cut."""
    if isinstance(value, (list, tuple)):
        value = ", ".join(map(str, value)) or "none"
    text = " ".join(str(value).split())
    if len(text) > _MAX_VALUE:
        text = text[: _MAX_VALUE - 1] + "…"
    # Inside a word an underscore is one.
    return re.sub(r"[\\`*<>\[\]|~&$]|\b_|_\b", r"\\\g<0>", text)


def _yaml(values, indent=""):
    """Returns a dictionary in block style, what is None left out."""
    text = ""
    for key, value in values.items():
        if value is None:
            continue
        text += f"{indent}{key}:"
        if isinstance(value, dict):
            text += "\n" + _yaml(value, f"{indent}  ")
        elif isinstance(value, list):
            items = (
                _yaml(item, f"{indent}  ").removeprefix(f"{indent}  ")
                if isinstance(item, dict)
                else f"{_scalar(item)}\n"
                for item in value
            )
            text += "\n" + "".join(f"{indent}- {item}" for item in items)
        else:
            text += f" {_scalar(value)}\n"
    return text


def _scalar(value):
    """Returns a string or a number in YAML, of which JSON is nearly a part."""
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and "." not in text:
        # 1e-05 is a string to YAML 1.1.
        return text.replace("e", ".0e")
    return _NOT_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
