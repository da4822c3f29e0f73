"""A tiny BERT in Hugging Face's form, made by formula, and golden outputs.

No module of bert_tf is used: names and shapes are written down here a second
time, after the files that transformers saves. With an environment that has
torch and transformers this file is also a program:

    python checkpoints.py golden ../golden/checkpoints_tiny.json
        computes the golden outputs;
    python checkpoints.py outputs CLASS FOLDER INPUTS OUTPUTS DTYPE
        computes a folder's outputs in that dtype, from .npz to .npz;
    python checkpoints.py keys CLASS FOLDER
        prints what of a folder transformers misses or does not expect;
    python checkpoints.py save CLASS FOLDER SHARD_SIZE
        saves a new random model and its tokenizer as transformers does;
    python checkpoints.py tokens FOLDER TEXT...
        prints the ids that its tokenizer gives.
"""

import json
import os
import sys

import numpy as np

CONFIG = {
    "model_type": "bert",
    "vocab_size": 17,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 10,
    "hidden_act": "gelu",
    "max_position_embeddings": 9,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
TOKENS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *(
        "the",
        "a",
        "cat",
        "dog",
        "sat",
        "##s",
        "##ed",
        "on",
        "mat",
        ".",
        ",",
        "e",
    ),
)
NUM_LABELS = 4
ARCHITECTURES = (
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
)
INPUTS = {
    "input_ids": [
        [2, 5, 7, 10, 9, 11, 3],
        [2, 4, 8, 3, 16, 14, 3],
        [2, 15, 3, 0, 0, 0, 0],
    ],
    "input_mask": [[1] * 7, [1] * 7, [1, 1, 1, 0, 0, 0, 0]],
    "segment_ids": [[0] * 7, [0, 0, 0, 0, 1, 1, 1], [0] * 7],
}


def shapes(architecture, config=None):
    """Returns {name: shape} of a class, as transformers stores it."""
    config = CONFIG if config is None else config
    hidden = config["hidden_size"]
    inner = config["intermediate_size"]
    bert = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], hidden),
        "embeddings.position_embeddings.weight": (
            config["max_position_embeddings"],
            hidden,
        ),
        "embeddings.token_type_embeddings.weight": (2, hidden),
        "embeddings.LayerNorm.weight": (hidden,),
        "embeddings.LayerNorm.bias": (hidden,),
    }
    for layer in range(config["num_hidden_layers"]):
        for name, shape in {
            "attention.self.query": (hidden, hidden),
            "attention.self.key": (hidden, hidden),
            "attention.self.value": (hidden, hidden),
            "attention.output.dense": (hidden, hidden),
            "attention.output.LayerNorm": (hidden,),
            "intermediate.dense": (inner, hidden),
            "output.dense": (hidden, inner),
            "output.LayerNorm": (hidden,),
        }.items():
            bert[f"encoder.layer.{layer}.{name}.weight"] = shape
            bert[f"encoder.layer.{layer}.{name}.bias"] = shape[:1]
    pooler = {
        "pooler.dense.weight": (hidden, hidden),
        "pooler.dense.bias": (hidden,),
    }
    masked_lm = {
        "cls.predictions.bias": (config["vocab_size"],),
        "cls.predictions.transform.dense.weight": (hidden, hidden),
        "cls.predictions.transform.dense.bias": (hidden,),
        "cls.predictions.transform.LayerNorm.weight": (hidden,),
        "cls.predictions.transform.LayerNorm.bias": (hidden,),
    }
    next_sentence = {
        "cls.seq_relationship.weight": (2, hidden),
        "cls.seq_relationship.bias": (2,),
    }
    classifier = {
        "classifier.weight": (NUM_LABELS, hidden),
        "classifier.bias": (NUM_LABELS,),
    }
    if architecture == "BertModel":
        return bert | pooler
    has_pooler = architecture in (
        "BertForPreTraining",
        "BertForSequenceClassification",
        "BertForMultipleChoice",
    )
    prefixed = {
        f"bert.{name}": shape
        for name, shape in (bert | (pooler if has_pooler else {})).items()
    }
    return (
        prefixed
        | {
            "BertForPreTraining": masked_lm | next_sentence,
            "BertForMaskedLM": masked_lm,
            "BertForSequenceClassification": classifier,
            "BertForTokenClassification": classifier,
            "BertForMultipleChoice": {
                "classifier.weight": (1, hidden),
                "classifier.bias": (1,),
            },
            "BertForQuestionAnswering": {
                "qa_outputs.weight": (2, hidden),
                "qa_outputs.bias": (2,),
            },
        }[architecture]
    )


def tensors(architecture, seed=20181011):
    """Returns {name: float32 array}: one generator, in the order of names."""
    generator = np.random.default_rng(seed)
    return {
        name: (
            generator.normal(0, 0.4, shape) + name.endswith("LayerNorm.weight")
        ).astype("float32")
        for name, shape in sorted(shapes(architecture).items())
    }


def config_values(architecture, **changes):
    """Returns the contents of config.json."""
    values = CONFIG | {"architectures": [architecture]}
    if shapes(architecture).get("classifier.bias") == (NUM_LABELS,):
        names = [f"L{index}" for index in range(NUM_LABELS)]
        values["id2label"] = dict(enumerate(names))
        values["label2id"] = {name: i for i, name in enumerate(names)}
    return values | changes


def write_folder(folder, architecture, weights=None, **changes):
    """Writes a folder as transformers does; returns its path.

    Args:
        folder: Path to make.
        architecture: One of `ARCHITECTURES`.
        weights: {name: array}; `tensors` if None.
        **changes: Of the configuration.
    """
    import safetensors.numpy

    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as stream:
        json.dump(config_values(architecture, **changes), stream)
    with open(os.path.join(folder, "vocab.txt"), "w") as stream:
        stream.writelines(f"{token}\n" for token in TOKENS)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as stream:
        json.dump({"do_lower_case": True, "model_max_length": 9}, stream)
    safetensors.numpy.save_file(
        tensors(architecture) if weights is None else weights,
        os.path.join(folder, "model.safetensors"),
        metadata={"format": "pt"},
    )
    return str(folder)


def peer_outputs(architecture, folder, inputs, dtype="float32"):
    """Returns what transformers computes: {name: array}."""
    import torch
    import transformers

    model_class = getattr(transformers, architecture)
    model = model_class.from_pretrained(folder, attn_implementation="eager")
    model = model.to(getattr(torch, dtype))
    with torch.no_grad():
        outputs = model.eval()(
            input_ids=torch.tensor(np.array(inputs["input_ids"], "int64")),
            attention_mask=torch.tensor(
                np.array(inputs["input_mask"], "int64")
            ),
            token_type_ids=torch.tensor(
                np.array(inputs["segment_ids"], "int64")
            ),
            output_hidden_states=True,
        )
    arrays = {}
    for name, output in outputs.items():
        if name == "hidden_states":
            for layer, states in enumerate(output[1:]):
                arrays[f"layer_{layer}"] = states.numpy()
        else:
            arrays[name] = output.numpy()
    return arrays


def golden_slice(array):
    """Returns the part of an output that the golden file holds."""
    array = np.asarray(array)
    if array.ndim == 3:
        return array[:, ::2, ::3]
    return array


def _write_golden(path):
    import platform
    import tempfile

    import torch
    import transformers

    values = {}
    for hidden_act in ("gelu", "gelu_new"):
        values[hidden_act] = {}
        for architecture in ARCHITECTURES:
            with tempfile.TemporaryDirectory() as folder:
                write_folder(folder, architecture, hidden_act=hidden_act)
                outputs = peer_outputs(architecture, folder, INPUTS)
            values[hidden_act][architecture] = {
                name: np.round(
                    golden_slice(array).astype("float64"), 7
                ).tolist()
                for name, array in outputs.items()
                # The encoder's outputs once: the heads share its values only
                # in name, each class draws its own.
                if not name.startswith("layer_") or architecture == "BertModel"
            }
    golden = {
        "provenance": {
            "command": (
                "python tests/references/checkpoints.py golden "
                "tests/golden/checkpoints_tiny.json"
            ),
            "model": "write_folder of tests/reference_checkpoints.py",
            "slice": "golden_slice of tests/reference_checkpoints.py",
            "python": platform.python_version(),
            "numpy": np.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "outputs": values,
    }
    with open(path, "w") as stream:
        json.dump(golden, stream)
        stream.write("\n")


def _print_keys(architecture, folder):
    import transformers

    model_class = getattr(transformers, architecture)
    _, info = model_class.from_pretrained(folder, output_loading_info=True)
    print(
        json.dumps(
            {
                name: sorted(map(str, info[name]))
                for name in ("missing_keys", "unexpected_keys")
            }
            | {"mismatched_keys": [str(key) for key in info["mismatched_keys"]]}
        )
    )


def _save(architecture, folder, shard_size):
    import tempfile

    import transformers

    values = config_values(architecture, initializer_range=0.4)
    del values["architectures"]
    model = getattr(transformers, architecture)(
        transformers.BertConfig(**values)
    )
    model.save_pretrained(folder, max_shard_size=shard_size)
    with tempfile.TemporaryDirectory() as vocabulary:
        write_folder(vocabulary, "BertModel")
        transformers.AutoTokenizer.from_pretrained(vocabulary).save_pretrained(
            folder
        )


def _print_tokens(folder, *texts):
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    print(json.dumps(tokenizer(list(texts))["input_ids"]))


def _main(command, *arguments):
    if command == "golden":
        _write_golden(*arguments)
    elif command == "outputs":
        architecture, folder, inputs, outputs, dtype = arguments
        arrays = peer_outputs(architecture, folder, np.load(inputs), dtype)
        np.savez(outputs, **arrays)
    elif command == "keys":
        _print_keys(*arguments)
    elif command == "save":
        _save(*arguments)
    else:
        _print_tokens(*arguments)


if __name__ == "__main__":
    _main(*sys.argv[1:])
