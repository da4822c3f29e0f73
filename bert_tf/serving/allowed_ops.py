r"""The operations that an export may hold.

A server links one release of TensorFlow and of tensorflow_text: a single
operation that it does not have makes it refuse the whole SavedModel. A list
of names proves nothing, as kernels and attributes change too; what stands
here was therefore exported by TensorFlow 2.21, and loaded and run in
TensorFlow 2.12.1 with tensorflow_text 2.12.1, whose operations TensorFlow
Serving 2.13 to 2.19 link, with the same answers:

    python export/check_saved_model.py --export_dir=... --model_dir=... \
        --python=/environment/with/tensorflow/2.12.1/bin/python

Add an operation only after such a run.
"""

TEXT_OPS = frozenset(("FastWordpieceTokenizeWithOffsets", "NormalizeUTF8"))

CORE_OPS = frozenset(
    (
        "AddV2",
        "All",
        "ArgMax",
        "Assert",
        "AssignVariableOp",
        "BatchMatMulV2",
        "BiasAdd",
        "BroadcastTo",
        "Cast",
        "ConcatV2",
        "Const",
        "Cumsum",
        "DenseBincount",
        "DisableCopyOnRead",
        "Equal",
        "Erfc",
        "Fill",
        "FloorMod",
        "GatherV2",
        "Greater",
        "GreaterEqual",
        "Identity",
        "If",
        "Less",
        "LessEqual",
        "LogicalAnd",
        "MatMul",
        "Max",
        "Maximum",
        "Mean",
        "MergeV2Checkpoints",
        "Minimum",
        "Mul",
        "Neg",
        "NoOp",
        "OneHot",
        "OnesLike",
        "Pack",
        "ParseExampleV2",
        "Placeholder",
        "Pow",
        "Prod",
        "RaggedGather",
        "RaggedRange",
        "RaggedTensorToTensor",
        "Range",
        "ReadVariableOp",
        "Relu",
        "Reshape",
        "RestoreV2",
        "Rsqrt",
        "SaveV2",
        "Select",
        "SelectV2",
        "Shape",
        "ShardedFilename",
        "Size",
        "Softmax",
        "SquaredDifference",
        "Squeeze",
        "StatefulPartitionedCall",
        "StatelessIf",
        "StatelessRandomGetKeyCounter",
        "StatelessRandomUniformV2",
        "StaticRegexFullMatch",
        "StaticRegexReplace",
        "StopGradient",
        "StridedSlice",
        "StringJoin",
        "StringLength",
        "StringLower",
        "StringSplitV2",
        "Sub",
        "Sum",
        "Tanh",
        "Tile",
        "Transpose",
        "UnicodeDecode",
        "UnicodeEncode",
        "UnicodeTranscode",
        "VarHandleOp",
        "VarIsInitializedOp",
        "ZerosLike",
    )
)
