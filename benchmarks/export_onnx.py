"""Exports a model to ONNX, for a side of benchmarks/{serving,embedding}.py.

    python export_onnx.py MODEL [{classifier,encoder}]

MODEL is a model folder. model.onnx is written into it and takes any number of
texts of any length. A classifier, the default, returns logits, an encoder its
last hidden state. Needs an environment with transformers, torch, onnx and
onnxscript.
"""

import sys

import torch
import transformers

# The attention of transformers that ONNX Runtime turns into the fewest
# operations.
_ATTENTION = "eager"


def main():
    path, *kind = sys.argv[1:]
    if kind == ["encoder"]:
        output = "last_hidden_state"
        model = transformers.AutoModel.from_pretrained(
            path, attn_implementation=_ATTENTION, add_pooling_layer=False
        ).eval()
    else:
        output = "logits"
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            path, attn_implementation=_ATTENTION
        ).eval()
    names = ("input_ids", "attention_mask", "token_type_ids")
    shape = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    torch.onnx.export(
        model,
        # Sizes above 1, as a 1 would become a constant of the graph. Separate
        # tensors, as a shared one would become a single input.
        kwargs={name: torch.ones((2, 3), dtype=torch.long) for name in names},
        f=f"{path}/model.onnx",
        input_names=names,
        output_names=[output],
        dynamic_shapes=dict.fromkeys(names, shape),
        dynamo=True,
        external_data=False,
    )


if __name__ == "__main__":
    main()
