"""Every loss of sentence embeddings against loops of NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import model_folder
from bert_tf.tasks import families
from bert_tf.tasks.retrieval.task import RetrievalTask
from references import sentences

SCORES = np.float32([0.2, 0.9, 0.9, 0.0, 0.5])


def make_vectors(num_texts=3, size=6):
    generator = np.random.default_rng(4)
    return generator.normal(size=(5, num_texts, size)).astype("float32")


def losses_of(vectors, labels=SCORES, **fields):
    task = RetrievalTask(**fields)
    return keras.ops.convert_to_numpy(task.losses(vectors, labels))


@pytest.mark.parametrize("is_symmetric", [False, True])
@pytest.mark.parametrize("num_texts", [2, 3, 4])
def test_multiple_negatives(num_texts, is_symmetric):
    vectors = make_vectors(num_texts)
    expected = sentences.multiple_negatives(vectors, 20.0, is_symmetric)
    found = losses_of(vectors, symmetric=is_symmetric)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    if num_texts == 2:
        # SimCSE is that of a text and itself.
        found = losses_of(vectors, loss_name="simcse")
        expected = sentences.multiple_negatives(vectors, 20.0)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_weight_is_of_the_own_hard_negative_alone():
    vectors = make_vectors()
    expected = sentences.multiple_negatives(vectors, 7.0, own_weight=0.8)
    found = losses_of(vectors, scale=7.0, hard_negative_weight=0.8)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_cosent_is_one_loss_of_the_batch():
    vectors = make_vectors(2)
    expected = sentences.cosent(vectors, SCORES, 20.0)
    found = losses_of(vectors, loss_name="cosent")
    np.testing.assert_allclose(
        found, np.full(5, expected), rtol=1e-5, atol=1e-6
    )
    # Nothing to order.
    equal = losses_of(vectors, np.ones(5, "float32"), loss_name="cosent")
    np.testing.assert_allclose(equal, np.zeros(5), atol=1e-6)


def test_cosines_and_triplets():
    pairs, triplets = make_vectors(2), make_vectors(4)
    np.testing.assert_allclose(
        losses_of(pairs, loss_name="cosine"),
        sentences.squared_cosines(pairs, SCORES),
        rtol=1e-5,
    )
    for margin in (0.5, 5.0):
        np.testing.assert_allclose(
            losses_of(triplets, loss_name="triplet", margin=margin),
            sentences.triplets(triplets, margin),
            atol=1e-5,
        )


def test_matryoshka_is_a_sum_over_the_first_numbers():
    vectors = make_vectors(size=6)
    expected = sum(
        np.array(sentences.multiple_negatives(vectors[..., :size], 20.0))
        for size in (6, 4, 1)
    )
    found = losses_of(vectors, matryoshka_sizes=(6, 4, 1))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    np.testing.assert_allclose(
        losses_of(vectors[:, :2], loss_name="cosine", matryoshka_sizes=[3]),
        sentences.squared_cosines(vectors[:, :2, :3], SCORES),
        rtol=1e-4,
    )


@pytest.mark.parametrize(
    "loss_name", ["multiple_negatives", "cosent", "cosine", "triplet"]
)
def test_equal_and_empty_vectors_have_finite_gradients(loss_name):
    vectors = make_vectors(2 if loss_name.startswith("cos") else 3)
    vectors[0, 1] = vectors[0, 0]
    vectors[1] = 0
    task = RetrievalTask(loss_name=loss_name)
    values = tf.constant(vectors)
    with tf.GradientTape() as tape:
        tape.watch(values)
        loss = tf.reduce_sum(task.losses(values, SCORES))
    assert np.isfinite(tape.gradient(loss, values)).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"loss_name": "mnrl"}, "--loss_name must be one of multiple_neg"),
        ({"scale": 0}, "--scale must be positive"),
        ({"margin": float("nan")}, "--margin must be a finite number"),
        ({"pooling": "sum"}, "--pooling must be one of"),
        (
            {"matryoshka_sizes": (0,)},
            "--matryoshka_sizes must be pos",
        ),
        ({"chunk_size": 0}, "--chunk_size must be positive"),
        ({"dense_size": 3}, "`dense_size` must only be given with a `head`"),
        ({"normalize": "yes"}, "--normalize must be true, false or None"),
        ({"query_prompt": 3}, "--query_prompt must be a string"),
        (
            {"symmetric": True, "loss_name": "cosent"},
            "`symmetric` must only be given with multiple_neg",
        ),
    ],
)
def test_bad_fields_are_told(fields, message):
    with pytest.raises(ValueError, match=message):
        RetrievalTask(**fields)


@pytest.mark.parametrize(
    ("loss_name", "pooling", "normalize", "head", "metric"),
    [
        ("multiple_negatives", "mean", True, "none", "nDCG@10"),
        ("simcse", "cls", True, "training_dense", "spearman"),
        ("cosent", "mean", True, "none", "spearman"),
        ("cosine", "mean", True, "none", "spearman"),
        # Normalised vectors are never 5, the margin, apart.
        ("triplet", "mean", False, "none", "nDCG@10"),
    ],
)
def test_defaults_depend_on_the_loss(
    loss_name, pooling, normalize, head, metric
):
    task = RetrievalTask(loss_name=loss_name)
    assert task.pooling == pooling
    assert task.normalize == normalize
    assert task.head == head
    assert task.metric == metric


def test_given_fields_win_over_defaults():
    task = RetrievalTask(
        loss_name="simcse", pooling="max", head="none", metric="MAP"
    )
    assert (task.pooling, task.head, task.metric) == ("max", "none", "MAP")
    assert RetrievalTask(loss_name="triplet", normalize=True).normalize


@pytest.mark.parametrize("field", ["pooling", "is_normalized", "metric"])
def test_a_damaged_file_has_no_defaults(tmp_path, field):
    values = RetrievalTask().to_dict()
    model_folder.write_task(str(tmp_path), values)
    # The hidden size.
    assert families.read_task(tmp_path).dense_size is None
    model_folder.write_task(str(tmp_path), values | {field: None})
    message = f"task.json: `{field}` must have a value. Received: {field}=null."
    with pytest.raises(ValueError, match=message):
        families.read_task(tmp_path)


def test_the_task_is_stored_whole():
    task = RetrievalTask(
        loss_name="triplet", matryoshka_sizes=(4, 2), query_prompt="q: "
    )
    assert RetrievalTask.from_dict(task.to_dict()) == task
    assert "chunk_size" not in task.to_dict()
    config = RetrievalTask(chunk_size=4).get_config()
    assert RetrievalTask.from_config(config).chunk_size == 4
