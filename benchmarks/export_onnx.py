"""Writes a model as ONNX, for a side of benchmarks/{serving,embedding}.py.

    python export_onnx.py MODEL [{classifier,encoder}]

MODEL is a model folder, which gets model.onnx: texts of any number and length.
A classifier, the default, answers with logits, an encoder with its last hidden
state. Runs in an environment with transformers, torch, onnx and onnxscript.
"""

import sys

import torch
import transformers

# Of transformers' kinds of attention the one that ONNX Runtime makes the fewest
# operations of.
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
        # Of sizes above 1, which else would stand in the graph, and tensors of
        # their own, which else would be one input.
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
