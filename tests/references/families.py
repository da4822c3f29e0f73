"""Tiny models of every family as transformers makes them, and their outputs.

No module of bert_tf is used. With an environment that has torch and
transformers this file is also a program:

    python families.py golden ../golden/families.json
        writes what of each class of `CASES` transformers stores and computes;
    python families.py outputs FOLDER
        makes FOLDER/<case>/<class>, model folders, and outputs.npz in each:
        hidden states, logits, the loss and its gradients;
    python families.py call FOLDER
        calls models of such folders with what their tokenizer makes of a text,
        and prints what of the folders transformers misses or does not expect.
"""

import json
import pathlib
import sys

import numpy as np

NUM_LABELS = 4
SEED = 20191211
# Where RoBERTa has its special tokens.
TOKENS = (
    *("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"),
    *("the", "a", "cat", "dog", "sat", "##s", "##ed", "on", "mat"),
    *(".", ",", "e", "f", "g"),
)
PAD_ID = 1
# Without dropout, so that training computes the same.
_BERT = {
    "vocab_size": len(TOKENS),
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 9,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "pad_token_id": PAD_ID,
}
_ROBERTA = _BERT | {
    "max_position_embeddings": 11,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
}
_MPNET = _BERT | {"max_position_embeddings": 11, "layer_norm_eps": 1e-5}
_ELECTRA = _BERT | {"embedding_size": 6}
_ALBERT = _ELECTRA | {"classifier_dropout_prob": 0.0}
# The last layer has a window. Of a window without any token transformers has
# gradients, too: here there is none that the losses read.
_MODERN = {
    "vocab_size": len(TOKENS),
    "hidden_size": 8,
    "num_hidden_layers": 5,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 9,
    "local_attention": 8,
    "pad_token_id": PAD_ID,
}
# {case: (model_type, values of config.json)}
CASES = {
    "albert": ("albert", _ALBERT),
    "albert_groups": (
        "albert",
        _ALBERT | {"num_hidden_layers": 5, "num_hidden_groups": 2},
    ),
    "bert": ("bert", _BERT),
    "bert_silu": ("bert", _BERT | {"hidden_act": "silu"}),
    "camembert": ("camembert", _ROBERTA),
    "distilbert": (
        "distilbert",
        {
            "vocab_size": len(TOKENS),
            "dim": 8,
            "n_layers": 2,
            "n_heads": 2,
            "hidden_dim": 12,
            "max_position_embeddings": 9,
            **dict.fromkeys(("dropout", "attention_dropout"), 0.0),
            **dict.fromkeys(("qa_dropout", "seq_classif_dropout"), 0.0),
            "pad_token_id": PAD_ID,
        },
    ),
    "electra": ("electra", _ELECTRA),
    "electra_relu": ("electra", _ELECTRA | {"hidden_act": "relu"}),
    "electra_wide": ("electra", _ELECTRA | {"embedding_size": 8}),
    "modernbert": ("modernbert", _MODERN),
    "modernbert_mean": (
        "modernbert",
        _MODERN
        | {
            "num_hidden_layers": 4,
            "global_attn_every_n_layers": 2,
            "local_attention": 4,
            "global_rope_theta": 100.0,
            "local_rope_theta": 50.0,
            "hidden_activation": "silu",
            "classifier_activation": "relu",
            "classifier_pooling": "mean",
        },
    ),
    "mpnet": ("mpnet", _MPNET),
    "roberta": ("roberta", _ROBERTA),
    "roberta_quick": ("roberta", _ROBERTA | {"hidden_act": "quick_gelu"}),
    "xlm-roberta": ("xlm-roberta", _ROBERTA),
}
_PREFIXES = {
    "albert": "Albert",
    "bert": "Bert",
    "camembert": "Camembert",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "modernbert": "ModernBert",
    "mpnet": "MPNet",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
}
_CLASSES = (
    *("Model", "ForPreTraining", "ForMaskedLM", "ForSequenceClassification"),
    *("ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice"),
)
# Which families have pre-training of their own.
_PRETRAINED = ("albert", "bert", "electra")
# Of cases that differ from another in the encoder alone.
_FEW_CLASSES = (
    *("Model", "ForPreTraining", "ForMaskedLM", "ForSequenceClassification"),
)
_VARIANTS = (
    *("albert_groups", "bert_silu", "camembert", "electra_relu"),
    *("electra_wide", "modernbert_mean", "roberta_quick", "xlm-roberta"),
)
# Padding behind and in front, and its id inside of a text.
INPUTS = {
    "input_ids": [
        [0, 5, 7, 10, 9, 11, 2],
        [0, 4, 8, 2, 16, 14, 2],
        [0, 15, 2, 1, 1, 1, 1],
        [1, 1, 1, 0, 13, 6, 2],
        [0, 12, 1, 17, 2, 1, 1],
    ],
    "input_mask": [
        [1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 0, 0],
    ],
    "segment_ids": [
        [0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 1, 1],
        [0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 1, 1],
        [0, 0, 0, 1, 1, 0, 0],
    ],
}


def classes(case):
    """Returns the classes of transformers for a case."""
    model_type, _ = CASES[case]
    return [
        _PREFIXES[model_type] + name
        for name in (_FEW_CLASSES if case in _VARIANTS else _CLASSES)
        if name != "ForPreTraining" or model_type in _PRETRAINED
    ]


def config_values(case, architecture):
    """Returns the contents of config.json."""
    model_type, values = CASES[case]
    values = {
        "model_type": model_type,
        "architectures": [architecture],
    } | values
    if architecture.endswith(
        ("ForSequenceClassification", "ForTokenClassification")
    ):
        names = [f"L{index}" for index in range(NUM_LABELS)]
        values["id2label"] = {str(i): name for i, name in enumerate(names)}
    return values


def tensors(shapes):
    """Returns {name: float32 array}: N(0, 0.3), in the order of the names.

    Of LayerNorm too: ones and zeros would hide what is taken for another.
    """
    generator = np.random.default_rng(SEED)
    return {
        name: generator.normal(0, 0.3, shape).astype("float32")
        for name, shape in sorted(shapes.items())
    }


def inputs_of(architecture):
    """Returns `INPUTS` as int32 arrays: of multiple choice one row of five."""
    arrays = {name: np.array(ids, "int32") for name, ids in INPUTS.items()}
    if architecture.endswith("ForMultipleChoice"):
        return {name: ids[None] for name, ids in arrays.items()}
    return arrays


def labels_of(architecture):
    """Returns the labels of the inputs, by the names of transformers.

    -100 where there is none.
    """
    ids = np.array(INPUTS["input_ids"])
    is_token = np.array(INPUTS["input_mask"]) == 1
    if architecture == "ElectraForPreTraining":
        return {"labels": ids % 2}
    if architecture.endswith(("ForMaskedLM", "ForPreTraining")):
        labels = {"labels": np.where(is_token, (ids + 3) % len(TOKENS), -100)}
        if architecture.startswith("Albert") and "PreTraining" in architecture:
            labels["sentence_order_label"] = ids[:, 1] % 2
        elif "PreTraining" in architecture:
            labels["next_sentence_label"] = ids[:, 1] % 2
        return labels
    if architecture.endswith("ForSequenceClassification"):
        return {"labels": ids[:, 1] % NUM_LABELS}
    if architecture.endswith("ForTokenClassification"):
        return {"labels": np.where(is_token, ids % NUM_LABELS, -100)}
    if architecture.endswith("ForQuestionAnswering"):
        return {
            "start_positions": np.array([1, 3, 0, 4, 2]),
            "end_positions": np.array([2, 3, 1, 6, 4]),
        }
    if architecture.endswith("ForMultipleChoice"):
        return {"labels": np.array([3])}
    return {}


def golden_slice(array):
    """Returns the part of an output that the golden file holds."""
    array = np.asarray(array)
    return array[:, ::3, ::2] if array.ndim == 3 else array


def _make(case, architecture):
    """Returns a model of transformers with the values of `tensors`."""
    import torch
    import transformers

    values = config_values(case, architecture)
    model_type = values.pop("model_type")
    config = transformers.AutoConfig.for_model(model_type, **values)
    config._attn_implementation = "eager"
    model = getattr(transformers, architecture)(config).eval()
    shapes = {
        name: tuple(parameter.shape) for name, parameter in _parameters(model)
    }
    arrays = tensors(shapes)
    with torch.no_grad():
        for name, parameter in _parameters(model):
            parameter.copy_(torch.tensor(arrays[name]))
    return model, shapes


def _parameters(model):
    """Yields names and parameters, of tied ones the name that is stored."""
    tied = model.all_tied_weights_keys
    for name, parameter in model.named_parameters():
        yield tied.get(name, name), parameter


def _compute(model, architecture):
    """Returns {name: array}: outputs, loss and "gradient/<parameter>"."""
    import torch

    inputs = {
        name: torch.tensor(ids.astype("int64"))
        for name, ids in inputs_of(architecture).items()
    }
    arguments = {
        "input_ids": inputs["input_ids"],
        "attention_mask": inputs["input_mask"],
        "output_hidden_states": True,
    }
    if getattr(model.config, "type_vocab_size", 0) > 1:
        arguments["token_type_ids"] = inputs["segment_ids"]
    labels = {
        name: torch.tensor(value.astype("int64"))
        for name, value in labels_of(architecture).items()
    }
    outputs = model(**arguments, **labels)
    arrays = {}
    for name, output in outputs.items():
        if name == "hidden_states":
            for layer, states in enumerate(output[1:]):
                arrays[f"layer_{layer}"] = states.detach().numpy()
        else:
            arrays[name] = output.detach().numpy()
    if labels:
        outputs.loss.backward()
        for name, parameter in _parameters(model):
            if parameter.grad is not None:
                arrays[f"gradient/{name}"] = parameter.grad.numpy()
    return arrays


def _write_golden(path):
    import platform

    import torch
    import transformers

    models = {}
    for case in CASES:
        models[case] = {}
        for architecture in classes(case):
            model, shapes = _make(case, architecture)
            outputs = {
                name: np.round(
                    golden_slice(array).astype("float64"), 6
                ).tolist()
                for name, array in _compute(model, architecture).items()
                if "gradient/" not in name and "layer_" not in name
            }
            models[case][architecture] = {"shapes": shapes, "outputs": outputs}
    golden = {
        "provenance": {
            "command": (
                "python tests/references/families.py golden "
                "tests/golden/families.json"
            ),
            "values": "tensors of tests/references/families.py",
            "slice": "golden_slice of tests/references/families.py",
            "python": platform.python_version(),
            "numpy": np.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "models": models,
    }
    with open(path, "w") as stream:
        json.dump(golden, stream, separators=(",", ":"))
        stream.write("\n")


def _write_outputs(folder):
    for case in CASES:
        for architecture in classes(case):
            path = pathlib.Path(folder, case, architecture)
            model, _ = _make(case, architecture)
            model.save_pretrained(path)
            np.savez(path / "outputs.npz", **_compute(model, architecture))


def _call(folder):
    import transformers

    found = {}
    for path in sorted(pathlib.Path(folder).glob("*/*")):
        model_class = getattr(transformers, path.name)
        model, info = model_class.from_pretrained(
            path, output_loading_info=True
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        inputs = tokenizer("the cat", "a dog", return_tensors="pt")
        if path.name.endswith("ForMultipleChoice"):
            inputs = {name: ids[None] for name, ids in inputs.items()}
        model(**inputs)
        found[str(path.relative_to(folder))] = sorted(
            f"{kind}: {key}" for kind, keys in info.items() for key in keys
        )
    print(json.dumps(found))


if __name__ == "__main__":
    {"golden": _write_golden, "outputs": _write_outputs, "call": _call}[
        sys.argv[1]
    ](*sys.argv[2:])
