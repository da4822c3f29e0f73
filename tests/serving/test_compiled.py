"""SavedModels that XLA compiles for a few shapes."""

import contextlib
import dataclasses

import pytest
import tensorflow as tf

from bert_tf.models.classifier import BertClassifier
from bert_tf.serving import options as options_lib
from bert_tf.serving import saved_model
from bert_tf.serving.formats import warmup
from bert_tf.serving.graph.compiled import CompiledModel
from bert_tf.serving.kinds import opening
from bert_tf.serving.kinds.classification import Classification
from bert_tf.serving.options import ExportOptions
from bert_tf.serving.proof import check
from bert_tf.serving.proof import compilation
from bert_tf.serving.proof import report
from support import serving_models

v1 = tf.compat.v1


@pytest.fixture
def calls():
    """A list of the shapes that the model of `make_compiled` is called with."""
    return []


def make_compiled(calls, lengths, batch_sizes):
    def call_model(inputs):
        ids = inputs["input_ids"]
        # Once a shape: XLA's shapes are those of the run.
        tf.py_function(lambda ids: calls.append(tuple(ids.shape)), [ids], [])
        return tf.cast(
            tf.reduce_sum(ids * inputs["input_mask"], axis=1), tf.float32
        )

    specs = {
        name: tf.TensorSpec([None, None], tf.int32)
        for name in ("input_ids", "input_mask")
    }
    return CompiledModel(call_model, specs, [], lengths, batch_sizes, 7)


@pytest.fixture
def not_compiled(monkeypatch):
    """Lets Python see what is called: XLA has no operation for that."""
    function = tf.function
    monkeypatch.setattr(
        tf,
        "function",
        lambda call, autograph, jit_compile: function(
            call, autograph=autograph
        ),
    )


@pytest.mark.parametrize(
    "num_rows, length, shapes",
    [
        (1, 1, [(1, 4)]),
        (1, 4, [(1, 4)]),
        (2, 5, [(3, 9)]),
        (3, 9, [(3, 9)]),
        # Chunks of the largest size, and what is left.
        (7, 2, [(3, 4), (3, 4), (1, 4)]),
        (0, 3, [(1, 4)]),
    ],
)
def test_rows_are_filled_up_and_cut_back(
    calls, not_compiled, num_rows, length, shapes
):
    compiled = make_compiled(calls, (4, 9), (1, 3))
    ids = tf.reshape(tf.range(num_rows * length), [num_rows, length])
    mask = tf.ones_like(ids)
    found = compiled({"input_ids": ids, "input_mask": mask})
    assert calls == shapes
    tf.debugging.assert_equal(
        found, tf.cast(tf.reduce_sum(ids, axis=1), tf.float32)
    )


def test_answers_are_those_of_the_trained_model():
    path = serving_models.exported("compiled_pair")
    servable = check.trained_servable(path, serving_models.model_dir("pair"))
    assert servable.options.jit_lengths == (8, 19)
    # Short and long ones, and more than a batch.
    texts = [(b"a", b"b c"), (b"", b""), (b"lorem " * 30, b"the quick")]
    inputs = servable.encode(texts)
    trained = servable.trained_answers(inputs, texts)["probabilities"]
    # As a server runs it: in a session.
    with v1.Session(graph=tf.Graph()) as session:
        loaded = v1.saved_model.load(session, ["serve"], path)
        signature = loaded.signature_def["serving_default"]
        (found,) = session.run(
            [signature.outputs["probabilities"].name],
            {
                signature.inputs[name].name: column
                for name, column in zip(
                    ("sentence_1", "class_"), zip(*texts), strict=True
                )
            },
        )
    assert abs(found - trained).max() < check.TOLERANCE


def test_ids_may_be_longer_than_texts_are_read():
    signature = serving_models.loaded("compiled_pair").signatures["ids"]
    model = serving_models.servable("pair").model
    longest = serving_models.CONFIG.max_position_embeddings
    ids = tf.constant([[2, *range(5, 4 + longest)]], tf.int32)
    inputs = {
        "input_ids": ids,
        "input_mask": tf.ones_like(ids),
        "segment_ids": tf.zeros_like(ids),
    }
    found = signature(**inputs)["probabilities"]
    temperature = serving_models.servable("pair").task.temperature
    wanted = tf.nn.softmax(model(inputs) / temperature)
    assert abs(found - wanted).numpy().max() < check.TOLERANCE
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 23 in"):
        signature(
            **{name: tf.pad(x, [[0, 0], [0, 1]]) for name, x in inputs.items()}
        )
    # XLA would take the last row of the table.
    for name in ("input_ids", "segment_ids"):
        wrong = inputs | {name: inputs[name] + len(serving_models.VOCABULARY)}
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=f"`{name}` must be from 0 to"
        ):
            signature(**wrong)


def test_robertas_positions_are_as_many_as_its_configuration_says():
    # Its table has more: those of the padding, and before.
    config = dataclasses.replace(
        serving_models.CONFIG,
        padding_idx=0,
        type_vocab_size=1,
        num_hidden_layers=1,
    )
    servable = serving_models.make_servable(
        Classification,
        BertClassifier(config, 3),
        serving_models.servable("pair").preprocessor,
        serving_models.PAIR_TASK,
        is_jit_compiled=True,
        is_frozen=True,
        jit_lengths=(8,),
        jit_batch_sizes=(1,),
    )
    module = servable.make_module(
        f"{serving_models.model_dir('pair')}/vocab.txt"
    )
    module.trace()
    ids = tf.range(5, 5 + config.max_position_embeddings)[tf.newaxis]
    inputs = {
        "input_ids": ids,
        "input_mask": tf.ones_like(ids),
        # Of one segment its number is of no account.
        "segment_ids": tf.ones_like(ids),
    }
    wanted = servable.model(inputs)
    found = module(inputs)
    assert abs(found - wanted).numpy().max() < check.TOLERANCE


def must_compile(path):
    """Returns how many calls of functions XLA must compile."""
    library = saved_model._read(path).meta_graphs[0].graph_def.library
    return sum(
        node.attr["_XlaMustCompile"].b
        for function in library.function
        for node in function.node_def
    )


def test_the_default_export_is_never_compiled():
    assert must_compile(serving_models.exported("compiled_pair")) > 0
    assert must_compile(serving_models.exported("pair")) == 0


def test_requests_before_traffic_have_every_shape():
    options = {
        "is_jit_compiled": True,
        "jit_lengths": (9, 40),
        "jit_batch_sizes": (4, 1),
    }
    servable = serving_models.servable("pair", **options)
    # The longest sequence is one, and a longer one is none.
    assert servable.options.jit_lengths == (9, 19)
    shapes = warmup.compiled_shapes(servable)
    assert [*shapes] == [(1, 9), (4, 9), (1, 19), (4, 19)]
    for (_, length), row in shapes.items():
        (mask,) = servable.encode([row])["input_mask"].numpy()
        assert mask.sum() == length
    assert warmup.compiled_shapes(serving_models.servable("pair")) == {}


@pytest.mark.parametrize("kind", ["pair", "regression"])
def test_requests_tell_lengths_that_are_neighbours_apart(kind):
    options = {"jit_lengths": (14, 15, 16), "jit_batch_sizes": (1,)}
    servable = serving_models.servable(kind, is_jit_compiled=True, **options)
    shapes = warmup.compiled_shapes(servable)
    lengths = servable.encode([*shapes.values()])["input_mask"].numpy()
    assert lengths.sum(axis=1).tolist() == [14, 15, 16, 19]
    assert [*shapes] == [(1, 14), (1, 15), (1, 16), (1, 19)]


def test_lengths_that_no_request_has_are_told(caplog, monkeypatch):
    # [CLS] and two [SEP] are more.
    options = {"jit_lengths": (1, 2, 8), "jit_batch_sizes": (1,)}
    servable = serving_models.servable("pair", is_jit_compiled=True, **options)
    assert [*warmup.compiled_shapes(servable)] == [(1, 8), (1, 19)]
    monkeypatch.setattr(warmup, "MAX_REQUESTS", 0)
    path = serving_models.exported("compiled_pair")
    with (
        caplog.at_level("WARNING", logger="absl"),
        pytest.raises(ValueError, match="at most 0"),
    ):
        warmup.write_requests(path, servable, (), "name")
    assert "No warm-up request has the length 1 or 2: it is" in caplog.text


@pytest.mark.parametrize("contents", ["text", "ids"])
def test_times_are_of_requests_of_each_length(monkeypatch, contents):
    servable = serving_models.servable(
        "pair",
        contents=contents,
        is_jit_compiled=True,
        jit_lengths=(9,),
        jit_batch_sizes=(1, 4),
    )
    called = []

    @contextlib.contextmanager
    def calling(path, requests, times, **_):
        for name, inputs in requests:
            called.append(called_shape(servable, name, inputs))
            times.append(float(len(times)))
        yield "2.0", iter(())

    monkeypatch.setattr(compilation.caller, "calling", calling)
    # Of three calls a shape the first and the last.
    assert compilation.seconds_by_shape("", servable) == {
        (1, 9): (0.0, 2.0),
        (4, 9): (3.0, 5.0),
        (1, 19): (6.0, 8.0),
        (4, 19): (9.0, 11.0),
    }
    assert called[::3] == [(1, 9), (4, 9), (1, 19), (4, 19)]


def called_shape(servable, name, inputs):
    """Returns the (rows, length) of what goes into a signature."""
    if servable.forms[name].examples:
        (serialized,) = inputs.values()
        features = [
            tf.train.Example.FromString(each).features.feature
            for each in serialized
        ]
        lengths = [len(each["input_ids"].int64_list.value) for each in features]
        return len(lengths), max(lengths)
    if servable.forms[name].of == "ids":
        return inputs["input_ids"].shape
    ids = servable.preprocessor([*inputs.values()])
    lengths = ids["input_mask"].numpy().sum(axis=1)
    return len(lengths), max(lengths)


def test_times_are_shown_with_what_the_server_needs():
    table = report.compilation_table({(1, 16): (1.234, 0.0045)})
    assert "--xla_cpu_compilation_enabled" in table
    assert table.splitlines()[-1].split() == [
        "1",
        "16",
        "1.23",
        "s",
        "4.5",
        "ms",
    ]


@pytest.mark.parametrize(
    "kind, values, message",
    [
        ("squad", {"is_jit_compiled": True}, "must be False for this kind"),
        ("pair", {"jit_lengths": (8,)}, "not be given without `is_jit_co"),
        (
            "pair",
            {"is_jit_compiled": True, "jit_batch_sizes": (0,)},
            "`jit_batch_sizes` must be positive",
        ),
    ],
)
def test_wrong_options(kind, values, message):
    with pytest.raises(ValueError, match=message):
        opening.open_folder(
            serving_models.model_dir(kind), ExportOptions(**values)
        )


def test_defaults_are_kept_to_what_can_be_read():
    servable = serving_models.servable("pair", is_jit_compiled=True)
    assert servable.options.jit_lengths == (16, 19)
    assert servable.options.jit_batch_sizes == options_lib.JIT_BATCH_SIZES
