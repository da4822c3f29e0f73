"""A model folder's README.md: a model card, as the Hugging Face Hub reads it.

The text says what the folder and its training know, and nothing else. YAML
with the Hub's keys comes first, then the part that people read.
"""

import dataclasses
import hashlib
import json
import math
import re
import sys
import types
from collections.abc import Mapping
from typing import Any

from bert_tf.config import BertConfig

CARD_FILE = "README.md"
# Stands before the digest of the rest of the card. A card without it, or with
# another digest, is not bert_tf's own or was edited.
_MARKER = (
    "<!-- Written by bert_tf, which replaces this file when it writes the "
    "model again, unless you have changed it: "
)
_DIGITS = 16
# The headings before and after the scores that people read.
_EVALUATION = "\n## Evaluation\n\n"
_USE = "\n## How to use\n"
_NOT_EVALUATED = "This model has not been evaluated."
# The Hub's task of a transformers class, by the end of the class's name.
# Pre-trained models are listed under their masked-LM head.
_PIPELINE_TAGS = {
    # The discriminator: the Hub has no task for it.
    "ElectraForPreTraining": None,
    "ForPreTraining": "fill-mask",
    "ForMaskedLM": "fill-mask",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "multiple-choice",
    "Model": "feature-extraction",
}
# Likewise: what `bert_tf.predictor` takes besides the folder, and a question.
_QUESTIONS = {
    "ElectraForPreTraining": None,
    "ForPreTraining": (', kind="fill_mask"', '"A text with a {mask}."'),
    "ForMaskedLM": (', kind="fill_mask"', '"A text with a {mask}."'),
    "ForQuestionAnswering": ("", '"A question?", "A text."'),
    "ForMultipleChoice": ("", '"A text.", {choices}'),
    "ForSequenceClassification": ("", "{texts}"),
    "ForTokenClassification": ("", '"A text."'),
    "Model": (', kind="embedding"', '["A text.", "Another."]'),
}
_SIZES = {
    "num_hidden_layers": "Layers",
    "hidden_size": "Hidden size",
    "num_attention_heads": "Attention heads",
    "intermediate_size": "Intermediate size",
    "max_position_embeddings": "Positions",
}
# Longest value, in characters.
_MAX_VALUE = 400
# JSON leaves these unescaped; YAML rejects them or reads them as line ends.
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
# A dataset's type, as the Hub accepts it, and the version that TensorFlow
# Datasets may add.
_DATASET = re.compile(r"((?:[\w-]+/)?[\w.-]+)(?::[\d.*]+)?", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a model comes from, as far as its writer knows.

    Args:
        name: The model's name, e.g. by its task.
        method: E.g. "fine-tuned".
        start: The checkpoint that it was made from; None for new weights.
        knows_start: Whether `start` is known; it may not be if the training
            was resumed.
        teacher: The checkpoint that it was distilled from, if any.
        data: {heading: {what: value}} that describes the training data.
        datasets: The full names of its TensorFlow Datasets.
        settings: {name: value} of the training; values of None are left out.
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
    """Returns the versions of bert_tf, TensorFlow and Keras, if imported."""
    found = {
        name: getattr(sys.modules.get(name), "__version__", None)
        for name in ("bert_tf", "tensorflow", "keras")
    }
    return ", ".join(f"{name} {found[name]}" for name in found if found[name])


def pipeline_tag(config_values: Mapping[str, Any]) -> str | None:
    """Returns the Hub's name for a model's task, None if it has none.

    Args:
        config_values: The contents of its config.json.
    """
    if config_values.get("is_decoder"):
        return None
    architectures = config_values.get("architectures") or [""]
    return _by_class(architectures[0], _PIPELINE_TAGS)


def is_own(text: str) -> bool:
    """Returns whether bert_tf wrote a card and nobody has changed it since."""
    return _MARKER in text and _stamped(text) == text


def make(
    config: BertConfig,
    config_values: Mapping[str, Any],
    *,
    num_parameters: int,
    tokenizer_class: str,
    do_lower_case: bool,
    max_seq_length: int,
    mask: str = "[MASK]",
    task: Mapping[str, Any] = types.MappingProxyType({}),
    origin: Origin | None = None,
) -> str:
    """Returns the text of a card, without scores.

    Args:
        config: The model's `BertConfig`.
        config_values: The contents of its config.json.
        num_parameters: Number of parameters of the whole model.
        tokenizer_class: What transformers calls the tokenizer.
        do_lower_case: Whether the tokenizer lower-cases.
        max_seq_length: Longest sequence that users should give the model.
        mask: The token that stands for a masked word.
        task: The contents of its task.json, if any.
        origin: None if unknown.
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
        **{label: getattr(config, name) for name, label in _SIZES.items()},
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
        _usage(architecture, mask, task),
        "## Limitations",
        "Nothing is known of this model beyond what stands here. It has not "
        "been evaluated on other data, for bias, or for any particular use.",
    ]
    marker = f"{_MARKER}{' ' * _DIGITS} -->"
    body = "\n\n".join([marker, f"# {_plain(name)}", summary, *parts])
    # `with_results` appends the scores to the YAML.
    return _stamped(f"---\n{_yaml(metadata)}---\n\n{body}\n")


def with_results(
    text: str,
    *,
    name: str,
    task_type: str | None,
    dataset: str,
    results: Mapping[str, float],
) -> str:
    """Returns a card with the results of an evaluation, replacing older ones.

    Args:
        text: A card that `make` or this function returned.
        name: Name of the model.
        task_type: As in `pipeline_tag`.
        dataset: What it was evaluated on.
        results: {name: float}.

    Returns:
        The new text; the same text if it is not `is_own`.
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
        # Steps and temperatures are not scores, some scores have two names,
        # and the Hub's JSON allows only finite numbers.
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
        # The training section has the step.
        if key != "global_step"
    }
    section = f"On {_plain(dataset)}:\n\n{_bullets(scores)}\n"
    return _stamped(f"{head}---\n{body}{_EVALUATION}{section}{_USE}{rest}")


def _stamped(text):
    """Returns a card whose marker holds the digest of all other text."""
    # Paths that are not UTF-8 have lone surrogates, which UTF-8 cannot encode.
    text = text.encode("utf-8", "replace").decode("utf-8")
    # Below the marker, its text can occur only with an escaped "<".
    head, _, rest = text.rpartition(_MARKER)
    head, rest = f"{head}{_MARKER}", rest[_DIGITS:]
    digest = hashlib.sha256(f"{head}{rest}".encode()).hexdigest()
    return f"{head}{digest[:_DIGITS]}{rest}"


def _by_class(architecture, values):
    """Returns the value of the first ending that a class name has, or None."""
    for end, value in values.items():
        if architecture.endswith(end):
            return value
    return None


def _hub_name(start):
    """Returns "organisation/name" of a checkpoint on the Hub, or None."""
    if start is None or not start.startswith("hf:"):
        return None
    return start.removeprefix("hf:").partition("@")[0]


def _start(start):
    """Returns a checkpoint's name, without the folders of this machine."""
    if start is None:
        return "new"
    if _hub_name(start):
        return _plain(start)
    parts = start.rstrip("/").split("/")
    # Google's checkpoints have the same name in every folder.
    return _plain("/".join(parts[-2 if parts[-1].endswith(".ckpt") else -1 :]))


def _usage(architecture, mask, task):
    # A reranker's texts always are a query and a text, and have no names.
    num_texts = 2 if task.get("family") == "reranking" else 1
    num_texts = len(task.get("text_features", range(num_texts)))
    asked = _by_class(architecture, _QUESTIONS)
    if asked is None:
        call = """\
model, preprocessor, _ = bert_tf.load("path/of/this/folder")
outputs = model(preprocessor(["A text.", "Another."]))"""
    else:
        options, question = asked
        texts = ", ".join(['"A text."', '"Another."'][:num_texts])
        choices = json.dumps(["A way on."] * task.get("num_choices", 2))
        call = f"""\
predict = bert_tf.predictor("path/of/this/folder"{options})
print(predict({question.format(mask=mask, texts=texts, choices=choices)}))"""
    return f"""```python
import bert_tf

{call}
```

With transformers:

```python
from transformers import AutoTokenizer, {architecture}

model = {architecture}.from_pretrained("path/of/this/folder")
tokenizer = AutoTokenizer.from_pretrained("path/of/this/folder")
```"""


def _bullets(values):
    """Returns {what: value} as a Markdown list, without values of None."""
    return "\n".join(
        f"- {what}: {_plain(value)}"
        for what, value in values.items()
        if value is not None
    )


def _number(value):
    """Returns a score to four digits, or a whole number in full."""
    return f"{value:.4g}" if value % 1 else f"{value:.0f}"


def _plain(value):
    """Returns a value as one line of Markdown, cut if it is long."""
    if isinstance(value, (list, tuple)):
        value = ", ".join(map(str, value)) or "none"
    text = " ".join(str(value).split())
    if len(text) > _MAX_VALUE:
        text = text[: _MAX_VALUE - 1] + "…"
    # An underscore inside a word needs no escape.
    return re.sub(r"[\\`*<>\[\]|~&$]|\b_|_\b", r"\\\g<0>", text)


def _yaml(values, indent=""):
    """Returns a dictionary as block-style YAML, without values of None."""
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
    """Returns a string or a number as YAML, nearly a superset of JSON."""
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and "." not in text:
        # YAML 1.1 reads 1e-05 as a string.
        return text.replace("e", ".0e")
    return _NOT_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
