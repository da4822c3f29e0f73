"""Steps traced for TPUs: every task, on a mocked topology, without a TPU.

A `TPUStrategy` is made over a topology that is not there, inside a `tf.Graph`,
where nothing runs, and a step is traced on it. That proves that the step is
legal there, and shows what a core does: its sums over the cores, its shapes
and types. It does not prove that a TPU runs it. TensorFlow has no public way
to do this, so the releases that it was done with are named here.
"""

import collections
import dataclasses
import functools
import re
import warnings

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import backend
from bert_tf import features
from bert_tf.input import array_source
from bert_tf.models import distillation
from bert_tf.models import distiller
from bert_tf.models import lesson as lesson_lib
from bert_tf.models import replaced_tokens as electra
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.replaced_tokens import ReplacedTokensPretrainer
from bert_tf.models.replaced_tokens import generator_config
from bert_tf.models.span_boundaries import SPAN_BOUNDARIES
from bert_tf.models.span_boundaries import SpanBoundaryPretrainer
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from bert_tf.tasks.question_answering.task import OUTPUTS
from bert_tf.tasks.question_answering.task import SquadTask
from bert_tf.tasks.retrieval.task import RetrievalTask
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.training import compiled_steps
from bert_tf.training import randomness
from bert_tf.training import step as step_lib
from bert_tf.training import strategy as strategies
from bert_tf.tuning.predictor import Predictor
from references import training as reference
from support.family_models import OWN_LAYERS
from support.family_models import of_family

pytestmark = pytest.mark.skipif(
    not tf.__version__.startswith(("2.20.", "2.21.")),
    reason="the mocked topology is made of private parts of TensorFlow",
)

ROWS = 3
CHOICES = 4
PASSAGES = 2
# What a task does not train: tokens and spans are not told by the pooler.
UNTRAINED = {
    "squad": "/pooler/",
    "tagging": "/pooler/",
    "distillation": "/pooler/|next_sentence/",
}
# Much like others, and dear.
SLOW = ("distillation", "span_boundaries", "retrieval in chunks")
# What XLA knows on TPUs alone.
OF_CORES = {"AllToAll", "CrossReplicaSum", "TPUReplicateMetadata"}
# What is made of shapes alone: constants, to the compiler.
OF_SHAPES = {"BroadcastGradientArgs"}


def mocked_strategy(num_cores):
    """Returns a `TPUStrategy` of one host, two cores a chip."""
    from tensorflow.python.tpu import device_assignment
    from tensorflow.python.tpu import topology as topologies
    from tensorflow.python.tpu import tpu_system_metadata

    topology = topologies.Topology(
        mesh_shape=(num_cores // 2, 1, 1, 2),
        device_coordinates=np.array(
            [[[core // 2, 0, 0, core % 2] for core in range(num_cores)]]
        ),
    )
    device = collections.namedtuple("Device", ["name", "device_type"])
    host = "/job:localhost/replica:0/task:0/device"
    metadata = tpu_system_metadata.TPUSystemMetadata(
        num_cores=num_cores,
        num_hosts=1,
        num_of_cores_per_host=num_cores,
        topology=topology,
        devices=[
            device(f"{host}:{kind}:{index}", kind)
            for kind, count in (("TPU", num_cores), ("CPU", 1))
            for index in range(count)
        ],
    )

    class Resolver(tf.distribute.cluster_resolver.TPUClusterResolver):
        def __init__(self):
            pass

        def get_tpu_system_metadata(self):
            return metadata

    return tf.distribute.TPUStrategy(
        Resolver(),
        experimental_device_assignment=device_assignment.device_assignment(
            topology, num_replicas=num_cores
        ),
    )


def pretraining():
    specs = {
        name: ((ROWS, *shape), dtype.replace("int64", "int32"))
        for name, (dtype, shape) in features.pretraining_record(
            reference.LENGTH, reference.PREDICTIONS
        ).items()
    }
    return BertPretrainer, reference.pretraining_objective(), specs


def distillation_of_all():
    """Every loss, from a teacher that is wider."""

    def make_model(config, dtype):
        wider = dataclasses.replace(config, hidden_size=24)
        losses = dict.fromkeys(lesson_lib.ON_RECORDS, 1.0)
        return distiller.Distiller(
            BertPretrainer(config, dtype=dtype),
            BertPretrainer(wider, dtype=dtype),
            lesson_lib.Lesson(losses=losses),
        )

    lesson = lesson_lib.Lesson(
        losses=dict.fromkeys(lesson_lib.ON_RECORDS, 1.0),
        relation_heads=3,
    )
    _, _, specs = pretraining()
    return make_model, distillation.pretraining_objective(lesson, False), specs


def replaced_tokens():
    """ELECTRA's two nets; their batches have what they sample by."""
    _, _, specs = pretraining()
    del specs[features.NEXT_SENTENCE_LABELS]
    shape = (ROWS, reference.PREDICTIONS, 2)

    def make_model(config, dtype):
        return ReplacedTokensPretrainer(
            config, generator_config(config, 0.5), dtype=dtype
        )

    return (
        make_model,
        electra.replaced_tokens(),
        specs | {features.REPLACEMENT_DRAWS: (shape, "int32")},
    )


def span_boundaries():
    _, _, specs = pretraining()
    return SpanBoundaryPretrainer, SPAN_BOUNDARIES, specs


def tuned_to(task, rows=(ROWS,), labels=((ROWS,), "int32")):
    shape = (*rows, reference.LENGTH)
    specs = dict.fromkeys(features.MODEL_INPUTS, (shape, "int32"))
    specs[features.LABELS] = labels
    return task.make_model, task.objective(), specs


def retrieval(**fields):
    make_model, objective, specs = tuned_to(
        RetrievalTask(head="dense", **fields), labels=((ROWS,), "float32")
    )
    shape = (ROWS, PASSAGES, reference.LENGTH)
    specs |= dict.fromkeys(features.PASSAGE_INPUTS, (shape, "int32"))
    return make_model, objective, specs


def glue(labels):
    return ClassificationTask(
        name="made",
        text_features=("sentence",),
        labels=labels,
        metrics=("accuracy",) if labels else ("pearson",),
    )


TASKS = {
    "pretraining": pretraining,
    "distillation": distillation_of_all,
    "replaced_tokens": replaced_tokens,
    "span_boundaries": span_boundaries,
    "classification": lambda: tuned_to(glue(("a", "b", "c"))),
    "regression": lambda: tuned_to(glue(()), labels=((ROWS,), "float32")),
    "squad": lambda: tuned_to(
        SquadTask(), labels=dict.fromkeys(OUTPUTS, ((ROWS,), "int32"))
    ),
    "tagging": lambda: tuned_to(
        TaggingTask(scheme="bio", labels=("O", "B-X", "I-X")),
        labels=((ROWS, reference.LENGTH, 2), "float32"),
    ),
    "multiple_choice": lambda: tuned_to(
        MultipleChoiceTask(num_choices=CHOICES), (ROWS, CHOICES)
    ),
    "retrieval": retrieval,
    "retrieval in chunks": lambda: retrieval(chunk_size=ROWS),
}


def trace(task, num_cores, family="bert"):
    """Returns the operations of a core, of training and of evaluation.

    They come with the paths of the trainable variables.
    """
    make_model, objective, specs = TASKS[task]()
    config = dataclasses.replace(
        of_family(reference.tiny_config(dropout=0.1), family),
        num_hidden_layers=1,
    )
    traced = {}
    with tf.Graph().as_default():
        strategy = mocked_strategy(num_cores)
        assert strategy.num_replicas_in_sync == num_cores
        policy = strategies.dtype_policy("auto", strategy)
        assert policy == "mixed_bfloat16"
        with strategy.scope():
            model = make_model(config, dtype=policy)
            optimizer = BertOptimizer(1e-3)
            optimizer.build(model.trainable_variables)
        states = backend.seed_states(model)

        def train_step(batch, step):
            randomness.set_seeds(states, 1, step)
            return step_lib.train_step(model, objective, optimizer, batch)

        steps = {
            "train": (train_step, specs),
            "evaluate": (
                lambda batch, step: step_lib.eval_step(model, objective, batch),
                specs | {features.EXAMPLE_WEIGHTS: ((ROWS,), "float32")},
            ),
        }
        for name, (step, batch) in steps.items():
            run = tf.function(
                functools.partial(strategy.run, step), autograph=False
            )
            arguments = _tensor_specs(batch), tf.TensorSpec([], tf.int64)
            graph = run.get_concrete_function(args=arguments).graph
            traced[name] = [
                operation
                for operation in graph.get_operations()
                if "_tpu_replicate" in operation.node_def.attr
            ]
        paths = [variable.path for variable in model.trainable_variables]
    return traced, paths


def _tensor_specs(specs):
    if isinstance(specs, dict):
        return {name: _tensor_specs(spec) for name, spec in specs.items()}
    return tf.TensorSpec(*specs)


@functools.cache
def has_xla_kernel(kind):
    from tensorflow.python.framework import kernels

    # The kernels are registered when XLA is first used.
    tf.function(tf.identity, jit_compile=True)(0.0)
    found = kernels.get_registered_kernels_for_op(kind).kernel
    return any(kernel.device_type == "XLA_CPU_JIT" for kernel in found)


# The tasks differ in their heads and losses, which see one core's rows: that
# the sums are over all cores is the same code for every one.
@pytest.mark.parametrize(
    ("task", "num_cores", "family"),
    [
        pytest.param(
            task,
            8 if task == "pretraining" else 2,
            "electra" if task == "replaced_tokens" else "bert",
            marks=[pytest.mark.slow] * (task in SLOW),
        )
        for task in TASKS
    ]
    + [
        pytest.param(
            "classification",
            2,
            family,
            marks=[pytest.mark.slow] * (family != "albert"),
        )
        for family in OWN_LAYERS
    ],
)
def test_steps_are_legal_on_tpu_cores(task, num_cores, family):
    traced, paths = trace(task, num_cores, family)
    untrained = UNTRAINED.get(task, "$^")
    num_gradients = sum(not re.search(untrained, path) for path in paths)
    # Sums of every gradient, of the weights before it, of what is reported.
    num_sums = {"train": num_gradients + 2, "evaluate": 1}
    num_ids = ROWS * reference.LENGTH
    if task == "multiple_choice":
        num_ids *= CHOICES
    if task.startswith("retrieval"):
        # Vectors and labels of all cores, and the gradient of the vectors.
        num_sums = {"train": num_sums["train"] + 3, "evaluate": 3}
        num_ids *= PASSAGES
    all_cores = [list(range(num_cores))]
    for step, operations in traced.items():
        kinds = collections.Counter(operation.type for operation in operations)
        assert kinds["CrossReplicaSum"] == num_sums[step]
        unknown = {kind for kind in kinds if not has_xla_kernel(kind)}
        assert unknown <= OF_CORES
        for operation in operations:
            if operation.type == "CrossReplicaSum":
                groups = tf.get_static_value(operation.inputs[1])
                assert groups.tolist() == all_cores
            if operation.type in OF_SHAPES:
                continue
            for output in operation.outputs:
                assert output.shape.is_fully_defined(), operation
                # TPUs make 64 bits of 32: ids at most, never activations.
                if output.dtype.base_dtype in (tf.int64, tf.float64):
                    assert output.shape.num_elements() <= num_ids, operation


@pytest.fixture
def cores():
    """A strategy of 8 cores, in a graph."""
    with warnings.catch_warnings(), tf.Graph().as_default():
        # Datasets in a graph: so they are nowhere else.
        warnings.filterwarnings("ignore", "To make it possible to preserve tf")
        yield mocked_strategy(8)


def test_many_steps_a_call_on_eight_cores(cores):
    config = dataclasses.replace(reference.tiny_config(), num_hidden_layers=1)
    with cores.scope():
        model = BertPretrainer(config, dtype="mixed_bfloat16")
        optimizer = BertOptimizer(1e-3)
        optimizer.build(model.trainable_variables)
    steps = compiled_steps.CompiledSteps(
        model, reference.pretraining_objective(), optimizer
    )
    arrays = {
        name: value.astype("int32") if value.dtype == np.int64 else value
        for name, value in reference.pretraining_arrays(17).items()
    }
    source = array_source.ArraySource(arrays=arrays)

    @tf.function
    def run():
        batches = cores.distribute_datasets_from_function(
            lambda context: source.training_batches(16, 0, context)
        )
        return steps._run_in_graph(
            cores, iter(batches), tf.constant(2, tf.int64), tf.constant(3)
        )

    library = run.get_concrete_function().graph.as_graph_def().library
    kinds = collections.Counter(
        node.op for function in library.function for node in function.node_def
    )
    # The step is there once, in a loop on the host.
    assert kinds["TPUReplicateMetadata"] == 1
    assert kinds["While"] + kinds["StatelessWhile"] == 1
    num_gradients = len(model.trainable_variables)
    assert kinds["CrossReplicaSum"] == num_gradients + 2


def test_steps_of_cores_are_compiled_by_the_strategy(cores):
    # The loop is not to do it a second time.
    for value in ("auto", "true"):
        assert not strategies.compiles_step(value, cores)
    with pytest.raises(ValueError, match="Received: jit_compile='false'"):
        strategies.compiles_step("false", cores)


def test_predictions_of_eight_cores_are_gathered(cores):
    task = glue(("a", "b", "c"))
    with cores.scope():
        model = task.make_model(reference.tiny_config(), dtype="mixed_bfloat16")
    predictor = Predictor(model, cores)
    inputs = {
        name: np.ones((21, reference.LENGTH), "int32")
        for name in features.MODEL_INPUTS
    }
    source = array_source.ArraySource(arrays=inputs)

    @tf.function
    def run():
        batches = cores.distribute_datasets_from_function(
            lambda context: source.evaluation_batches(16, context=context).map(
                lambda batch: {name: batch[name] for name in inputs}
            )
        )
        return cores.gather(predictor._run_step(iter(batches)), axis=0)

    logits = run.get_concrete_function().structured_outputs
    assert logits.shape.as_list() == [16, 3]
    assert logits.dtype == tf.float32
