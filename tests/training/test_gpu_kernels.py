"""What a step has in the host's memory on a GPU, by TensorFlow's own register.

No GPU is needed, and no kernel runs: it is the graph of the step, before
TensorFlow optimizes it.
"""

import dataclasses

import pytest
import tensorflow as tf

from bert_tf import backend
from bert_tf import features
from bert_tf.layers.attention import attend
from bert_tf.models import distillation
from bert_tf.models import objectives
from bert_tf.models import replaced_tokens as electra
from bert_tf.models.distiller import Distiller
from bert_tf.models.lesson import ON_RECORDS
from bert_tf.models.lesson import Lesson
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.replaced_tokens import ReplacedTokensPretrainer
from bert_tf.models.replaced_tokens import generator_config
from bert_tf.models.span_boundaries import SPAN_BOUNDARIES
from bert_tf.models.span_boundaries import SpanBoundaryPretrainer
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.lamb import LambOptimizer
from bert_tf.optimizers.loss_scale import LossScaleOptimizer
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.training import randomness
from bert_tf.training import step as step_lib
from references import training as reference
from support import gpu_kernels

pytestmark = pytest.mark.skipif(
    not gpu_kernels.has_gpu_kernels(),
    reason="this TensorFlow was built without kernels for GPUs",
)

ROWS = 4
# Shapes, axes, rates, seeds of one layer: fine everywhere.
FEW = 8
# At most an integer for each token of the batch, and what is so may be of
# these alone. Activations, attention masks and random words are larger, and
# nowhere.
NUM_TOKENS = ROWS * reference.LENGTH
OF_TOKENS = {
    # Keras's `take` counts negative ids from the end.
    "AddV2": "ids and positions",
    "Less": "ids and positions",
    # The gradient of `take`: which rows of the table are hit.
    "Reshape": "ids, positions and labels",
    # Of the last block: the pooled places before the predicted ones.
    "ConcatV2": "positions",
    "Pack": "places of the labels",
    "Range": "places of the labels, and of all tokens left to right",
    "StridedSlice": "labels, and the rows of a part of the batch",
    "Equal": "predictions that are right",
    "Sum": "number of tokens",
    "Unpack": "seeds of all layers",
    "Mul": "first rows of the blocks that samples are of",
    "Minimum": "samples",
    "NotEqual": "samples that are not the text's",
    "BroadcastTo": "positions of a student, who predicts at all",
    "While": "the batch, of which each turn takes a part",
}
# Their sizes are not known while tracing, and are numbers of axes.
OF_AXES = {"BroadcastGradientArgs", "Sum"}

TASK = ClassificationTask(
    name="made",
    text_features=("sentence",),
    labels=("a", "b", "c"),
    metrics=("accuracy",),
)


def pretraining(
    policy,
    num_sequences=1,
    parts=1,
    make=BertOptimizer,
    make_model=BertPretrainer,
    objective=objectives.PRETRAINING,
    **config,
):
    """Returns the graph of a step of pre-training."""
    record = features.pretraining_record(
        reference.LENGTH,
        reference.PREDICTIONS,
        max_sequences_per_row=num_sequences,
    )
    specs = {
        name: tf.TensorSpec((ROWS, *shape), dtype.replace("int64", "int32"))
        for name, (dtype, shape) in record.items()
    }
    specs[features.REPLACEMENT_DRAWS] = tf.TensorSpec(
        (ROWS, reference.PREDICTIONS, 2), tf.int32
    )
    model = make_model(
        dataclasses.replace(reference.tiny_config(0.1), **config), dtype=policy
    )
    optimizer = make(1e-3)
    if policy == "mixed_float16":
        optimizer = LossScaleOptimizer(optimizer)
    optimizer.build(model.trainable_variables)
    states = backend.seed_states(model)

    @tf.function(autograph=False)
    def run(batch, step):
        randomness.set_seeds(states, 1, step)
        return step_lib.train_step(model, objective, optimizer, batch, parts)

    return run.get_concrete_function(specs, tf.TensorSpec([], tf.int64)).graph


def replaced_tokens(policy):
    return pretraining(
        policy,
        make_model=lambda config, dtype: ReplacedTokensPretrainer(
            config, generator_config(config, 0.5), dtype=dtype
        ),
        objective=electra.replaced_tokens(),
    )


def distilled(policy):
    """Every loss on records, of a student and a teacher that is wider."""
    lesson = Lesson(losses=dict.fromkeys(ON_RECORDS, 1.0), relation_heads=3)

    def make_model(config, dtype):
        wider = dataclasses.replace(config, hidden_size=24)
        return Distiller(
            BertPretrainer(config, dtype=dtype),
            BertPretrainer(wider, dtype=dtype),
            lesson,
        )

    config = dataclasses.replace(reference.tiny_config(), num_hidden_layers=1)
    return pretraining(
        policy,
        make_model=make_model,
        objective=distillation.pretraining_objective(
            lesson.for_models(config, config), left_to_right=False
        ),
        num_hidden_layers=1,
    )


def fit(policy):
    """Returns the graph of a step of `keras.Model.fit`, a classification's."""
    model = TASK.make_model(reference.tiny_config(0.1), dtype=policy)
    model.compile(BertOptimizer(), TASK.loss(), metrics=TASK.fit_metrics)
    model.optimizer.build(model.trainable_variables)
    run = tf.function(model.train_step, autograph=False)
    inputs = dict.fromkeys(
        features.MODEL_INPUTS, tf.TensorSpec((ROWS, reference.LENGTH), tf.int32)
    )
    labels = tf.TensorSpec((ROWS,), tf.int32)
    return run.get_concrete_function((inputs, labels)).graph


@pytest.mark.parametrize(
    "make_graph",
    [
        lambda: pretraining("float32"),
        lambda: pretraining("mixed_float16"),
        lambda: pretraining("float32", num_sequences=2, is_decoder=True),
        lambda: pretraining(
            "mixed_bfloat16", num_sequences=2, parts=2, make=LambOptimizer
        ),
        lambda: fit("mixed_bfloat16"),
        lambda: replaced_tokens("mixed_bfloat16"),
        pytest.param(
            lambda: pretraining(
                "mixed_bfloat16",
                make_model=SpanBoundaryPretrainer,
                objective=SPAN_BOUNDARIES,
            ),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda: distilled("mixed_bfloat16"), marks=pytest.mark.slow
        ),
    ],
    ids=(
        *("padded", "float16", "packed", "in_parts", "fit"),
        *("replaced_tokens", "span_boundaries", "distilled"),
    ),
)
def test_a_step_has_nothing_large_in_the_hosts_memory(make_graph):
    check(make_graph())


def test_nor_has_attention_in_chunks():
    @tf.function(autograph=False)
    def run(query, key, value, mask, seed):
        with tf.GradientTape() as tape:
            tape.watch([query, key, value])
            outputs = attend(query, key, value, mask, 0.1, seed, 128)
        return tape.gradient(outputs, [query, key, value])

    heads = tf.TensorSpec((2, 3, 160, 4), tf.bfloat16)
    mask, seed = (
        tf.TensorSpec((2, 1, 160), tf.bool),
        tf.TensorSpec((2,), tf.int64),
    )
    run = run.get_concrete_function(heads, heads, heads, mask, seed)
    check(run.graph, least=20)


def check(graph, least=100):
    found = gpu_kernels.host_tensors(graph)
    # Shapes there are in every step.
    assert len(found) > least
    wrong = [
        tensor
        for tensor in found
        if not (
            tensor.kind in OF_AXES
            if tensor.size is None
            else tensor.size <= FEW
            or (tensor.size <= NUM_TOKENS and tensor.kind in OF_TOKENS)
        )
        or tensor.argument == gpu_kernels.NO_KERNEL
    ]
    assert wrong == []


def test_what_is_in_the_hosts_memory_is_found():
    @tf.function(input_signature=[tf.TensorSpec([5, 7], tf.int32)])
    def run(x):
        (total,) = tf.while_loop(
            lambda total: tf.reduce_max(total) < 9,
            lambda total: [tf.reshape(tf.reshape(total, [-1]), [5, 7]) + x],
            [x],
        )
        return tf.reshape(tf.bitcast(total, "float32"), [7, 5])

    graph = run.get_concrete_function().graph
    sizes = {}
    for tensor in gpu_kernels.host_tensors(graph):
        key = tensor.kind, tensor.argument
        sizes[key] = sizes.get(key, 0) + tensor.size
    # Both in the loop: the one of floats has its shape alone there.
    assert sizes["Reshape", "tensor"] == sizes["Reshape", "output"] == 2 * 35
    assert sizes["Reshape", "shape"] == 1 + 2 + 2
    # And the loop's counter.
    assert sizes["AddV2", "z"] == 35 + 1
    assert sizes["StatelessWhile", "input"] >= 35
    assert ("Bitcast", "input") not in sizes


def test_what_has_no_kernel_is_found():
    graph = (
        tf.function(tf.strings.length)
        .get_concrete_function(tf.TensorSpec([3], tf.string))
        .graph
    )
    found = {
        (tensor.kind, tensor.argument, tensor.size)
        for tensor in gpu_kernels.host_tensors(graph)
    }
    assert ("StringLength", gpu_kernels.NO_KERNEL, 3) in found
