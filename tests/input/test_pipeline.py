"""Records and arrays to batches: order, resuming, shards, checks."""

import contextlib
import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf import manifest
from bert_tf.input import array_source
from bert_tf.input import errors
from bert_tf.input import pretraining
from bert_tf.input import record_source
from bert_tf.text import dynamic_masking
from bert_tf.text import masking
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from references import training as reference
from support.family_models import of_family

SIZES = (7, 1, 12, 5, 9)
NUM_EXAMPLES = sum(SIZES)
VOCAB_SHA256 = manifest.text_sha256(reference.vocabulary().to_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of records; the first id of each tells which example it is."""
    folder = tmp_path_factory.mktemp("records")
    start = 0
    for index, size in enumerate(SIZES):
        arrays = reference.pretraining_arrays(size, seed=index)
        arrays[features.INPUT_IDS][:, 0] = range(start, start + size)
        start += size
        reference.write_records(folder / f"{index}.tfrecord", arrays)
    return folder


@pytest.fixture
def small_groups(monkeypatch):
    """Makes groups and blocks that these few records fill."""
    monkeypatch.setattr(record_source, "_GROUP_SIZE", 2)
    monkeypatch.setattr(record_source, "_BLOCK_SIZE", 4)


def make_records(folder, **options):
    return pretraining.pretraining_records(
        f"{folder}/*.tfrecord",
        **{
            "config": reference.tiny_config(),
            "tokenizer": WordpieceSpec(reference.vocabulary()),
            "max_seq_length": reference.LENGTH,
            "max_predictions_per_seq": reference.PREDICTIONS,
        }
        | options,
    )


def changed_config(**changes):
    return dataclasses.replace(reference.tiny_config(), **changes)


def make_source(kind, folder, seed=3, num_shares=None):
    if kind == "records":
        return make_records(folder, seed=seed, num_shares=num_shares)
    ids = np.zeros((NUM_EXAMPLES, reference.LENGTH), "int32")
    ids[:, 0] = range(NUM_EXAMPLES)
    return array_source.ArraySource(arrays={features.INPUT_IDS: ids}, seed=seed)


def first_ids(batches, num_batches=None):
    """Returns which examples the batches hold, in a list."""
    return [
        int(number)
        for batch in itertools.islice(batches.as_numpy_iterator(), num_batches)
        for number in batch[features.INPUT_IDS][:, 0]
    ]


def test_shapes_of_records_are_those_of_their_batches(folder):
    records = make_records(folder)
    masked = dataclasses.replace(
        records, mask=lambda batch, seeds: batch | {"seeds": seeds}
    )
    for source in (records, masked):
        specs = source.training_batches(4).element_spec
        shapes = {name: tuple(spec.shape[1:]) for name, spec in specs.items()}
        # Evaluations have the weights of the examples too.
        assert source.shapes | shapes == source.shapes
        assert source.shapes.keys() - shapes.keys() <= {
            features.EXAMPLE_WEIGHTS
        }
    assert masked.shapes["seeds"] == (2,)


both = pytest.mark.parametrize("kind", ["records", "arrays"])


@both
def test_orders_are_functions_of_seed_and_epoch_from_any_example_on(
    kind, folder, small_groups
):
    source = make_source(kind, folder)
    assert source.num_examples == NUM_EXAMPLES
    whole = first_ids(source.training_batches(1), 3 * NUM_EXAMPLES)
    first, second = whole[:NUM_EXAMPLES], whole[NUM_EXAMPLES:][:NUM_EXAMPLES]
    assert sorted(first) == sorted(second) == list(range(NUM_EXAMPLES))
    assert first != second
    assert first != sorted(first)
    tf.random.set_seed(99)
    again = make_source(kind, folder).training_batches(5)
    assert first_ids(again, 9) == whole[:45]
    other = make_source(kind, folder, seed=4).training_batches(5)
    assert first_ids(other, 9) != whole[:45]
    # Within a block, at its end, at a group's, at an epoch's, in the third.
    starts = (1, 4, 6, 13, 21, 33, 34, 35, 71)
    # Arrays have no blocks.
    for start in starts[-4:] if kind == "arrays" else starts:
        rest = source.training_batches(1, start_example=start)
        assert first_ids(rest, 10) == whole[start : start + 10]


def test_a_file_that_is_named_twice_is_read_twice(folder):
    twice = pretraining.pretraining_records(
        f"{folder}/0.tfrecord,{folder}/0.tfrecord,{folder}/1.tfrecord",
        reference.tiny_config(),
        WordpieceSpec(reference.vocabulary()),
        max_seq_length=reference.LENGTH,
        max_predictions_per_seq=reference.PREDICTIONS,
    )
    num_examples = 2 * SIZES[0] + SIZES[1]
    assert twice.num_examples == num_examples
    found = first_ids(twice.training_batches(1), num_examples)
    wanted = [*range(SIZES[0])] * 2 + [*range(SIZES[0], SIZES[0] + SIZES[1])]
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize(
    ("kind", "num_shares"),
    [("arrays", None), ("records", 1), ("records", 4)],
)
def test_replicas_share_the_same_global_batches(
    kind, num_shares, folder, small_groups
):
    source = make_source(kind, folder, num_shares=num_shares)
    whole = first_ids(source.training_batches(8), 6)
    # Two hosts of two replicas, whose batches come one after the other.
    shards = []
    for host in (0, 1):
        context = tf.distribute.InputContext(2, host, 4)
        batches = source.training_batches(8, context=context)
        assert batches.element_spec[features.INPUT_IDS].shape == (
            2,
            reference.LENGTH,
        )
        # Else shapes are lost where there are several workers.
        assert batches.cardinality() == tf.data.INFINITE_CARDINALITY
        shards.append(np.reshape(first_ids(batches, 12), (6, 4)))
    assert np.concatenate(shards, axis=1).ravel().tolist() == whole


def share_of(source, host, num_hosts, count, start_example=0):
    """Returns the examples that a host reads, of batches of one a host."""
    context = tf.distribute.InputContext(num_hosts, host, num_hosts)
    batches = source.training_batches(num_hosts, start_example, context)
    return first_ids(batches, count)


def test_hosts_have_each_record_once_an_epoch(folder, small_groups):
    source = make_source("records", folder)
    num_epochs = 3
    # 34 records on 3 hosts: 102 of three epochs.
    shares = [share_of(source, host, 3, NUM_EXAMPLES) for host in range(3)]
    for epoch in range(num_epochs):
        # What is consumed before, of hosts that take turns.
        start, end = (
            [(number * NUM_EXAMPLES + host) // 3 for host in range(3)]
            for number in (epoch, epoch + 1)
        )
        ids = [
            share[start[host] : end[host]] for host, share in enumerate(shares)
        ]
        assert sorted(sum(ids, [])) == list(range(NUM_EXAMPLES))
        # A host's are of files one after the other, of the epoch's order.
        edges = np.cumsum(SIZES)
        in_files = [set(np.searchsorted(edges, own, "right")) for own in ids]
        assert max(map(len, in_files)) < len(SIZES)
    assert shares[0][:11] != shares[0][11:22]


def test_a_share_goes_on_at_any_example(folder, small_groups):
    source = make_source("records", folder)
    whole = share_of(source, 2, 3, 40)
    for consumed in (11, 12, 23):
        rest = share_of(source, 2, 3, 9, 3 * consumed)
        assert rest == whole[consumed : consumed + 9]


@pytest.mark.parametrize(
    ("num_hosts", "batch_size", "num_shares", "message"),
    [
        (6, 6, None, "5 files for 6. Make more files: .*=records@6"),
        (2, 6, 3, "1 or a multiple of the number of hosts. Received: .*=3, 2"),
        (1, 6, 4, "must be a multiple of 4, the number of input shares"),
    ],
)
def test_shares_that_cannot_be_made_are_named(
    folder, num_hosts, batch_size, num_shares, message
):
    context = tf.distribute.InputContext(num_hosts, 0, num_hosts)
    source = make_source("records", folder, num_shares=num_shares)
    with pytest.raises(ValueError, match=message):
        source.training_batches(batch_size, context=context)


@both
@pytest.mark.parametrize("num_replicas", [1, 3])
def test_evaluation_has_every_example_once(kind, folder, num_replicas):
    source = make_source(kind, folder)
    context = tf.distribute.InputContext(1, 0, num_replicas)
    batches = source.evaluation_batches(9, context=context)
    ids, weights = [], []
    for batch in batches.as_numpy_iterator():
        assert batch[features.INPUT_IDS].shape[0] == 9 // num_replicas
        ids += batch[features.INPUT_IDS][:, 0].tolist()
        weights += batch[features.EXAMPLE_WEIGHTS].tolist()
    # 34 examples in batches of 9.
    assert ids == [*range(NUM_EXAMPLES), 0, 0]
    assert weights == [1.0] * NUM_EXAMPLES + [0.0] * 2


def test_batches_are_the_records_in_int32(folder):
    records = make_records(folder)
    batch = next(records.evaluation_batches(7).as_numpy_iterator())
    arrays = reference.pretraining_arrays(7, seed=0)
    arrays[features.INPUT_IDS][:, 0] = range(7)
    for name, array in arrays.items():
        np.testing.assert_array_equal(batch[name], array)
        wanted = "float32" if array.dtype == np.float32 else "int32"
        assert batch[name].dtype == wanted
    for spec in records.training_batches(5).element_spec.values():
        assert spec.shape.is_fully_defined()


def test_counts_of_the_manifest_spare_reading(folder, small_groups):
    records = make_records(folder)
    told = dict(zip(records.paths, SIZES))
    source = record_source.RecordSource(
        paths=records.paths,
        spec=records.spec,
        limits=records.limits,
        counts=told,
        seed=12345,
    )
    assert source.num_examples == NUM_EXAMPLES
    assert first_ids(source.training_batches(1, 50), 10) == first_ids(
        records.training_batches(1, 50), 10
    )


def test_counting_tells_how_far_it_is(folder, small_groups, monkeypatch):
    records = make_records(folder)
    shown = []

    @contextlib.contextmanager
    def track(items, title, total=None, unit="batch"):
        shown.append((title, total, unit))
        yield iter(items)

    monkeypatch.setattr(record_source.progress_bar, "track", track)
    assert records.num_examples == NUM_EXAMPLES
    # Where a run goes on, and where there are shares: all is counted before.
    list(records.training_batches(1, 50).take(1))
    assert shown == [("count the examples", len(records.paths), "file")]


def test_files_in_an_object_store_are_read_in_large_parts(folder, monkeypatch):
    local = make_records(folder)
    for path in local.paths:
        name = path.rsplit("/", 1)[-1]
        tf.io.gfile.copy(path, f"ram://parts/{name}", overwrite=True)
    sizes = []
    dataset = tf.data.TFRecordDataset

    def read(paths, buffer_size):
        sizes.append(buffer_size)
        return dataset(paths, buffer_size=buffer_size)

    remote = make_records("ram://parts")
    monkeypatch.setattr(tf.data, "TFRecordDataset", read)
    wanted = first_ids(local.training_batches(5), 20)
    assert set(sizes) == {None}
    sizes.clear()
    assert first_ids(remote.training_batches(5), 20) == wanted
    assert set(sizes) == {8 * 2**20}


def test_batch_must_divide_among_replicas(folder):
    context = tf.distribute.InputContext(1, 0, 4)
    with pytest.raises(ValueError, match="multiple of 4.*Received: 6"):
        make_records(folder).training_batches(6, context=context)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_seq_length": 12}, "`input_ids` must have 12 int64.*: 11"),
        (
            {"max_predictions_per_seq": 4},
            "`masked_lm_positions` must have 4 int64.*Received: 3",
        ),
        (
            {"config": changed_config(vocab_size=20)},
            r"`input_ids` must be in \[0, 20\)",
        ),
    ],
)
def test_records_of_another_kind_are_named(folder, options, message):
    with pytest.raises(ValueError, match=r"\d.tfrecord: " + message):
        make_records(folder, **options)


def write_bad_records(kind, folder):
    arrays = reference.pretraining_arrays(3)
    if kind == "no_file":
        return
    if kind == "empty":
        (folder / "bad.tfrecord").write_bytes(b"")
        return
    if kind == "text":
        (folder / "bad.tfrecord").write_text("No record, but a sentence.\n")
        return
    if kind == "no_example":
        with tf.io.TFRecordWriter(str(folder / "bad.tfrecord")) as writer:
            writer.write(b"\xff\xff")
        return
    if kind == "no_feature":
        del arrays[features.NEXT_SENTENCE_LABELS]
    if kind == "floats":
        arrays[features.INPUT_IDS] = arrays[features.INPUT_IDS].astype(
            "float32"
        )
    if kind == "negative":
        arrays[features.MASKED_LM_IDS][0, 1] = -1
    reference.write_records(folder / "bad.tfrecord", arrays)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("no_file", "`input_file` matches no file"),
        ("empty", "bad.tfrecord: the file has no records"),
        ("text", "bad.tfrecord: not a TFRecord file"),
        ("no_example", "bad.tfrecord: the first record is not a tf.train.Ex"),
        ("no_feature", "bad.tfrecord: .* no feature `next_sentence_labels`"),
        ("floats", "bad.tfrecord: `input_ids` must have 11 .* Received: 0"),
        ("negative", "`masked_lm_ids` must be in .* values from -1 to"),
    ],
)
def test_bad_files_are_named(tmp_path, kind, message):
    write_bad_records(kind, tmp_path)
    with pytest.raises(ValueError, match=message):
        make_records(tmp_path)


def bad_later_record(kind, folder):
    arrays = reference.pretraining_arrays(6)
    if kind == "other_ids":
        arrays[features.INPUT_IDS][4, 2] = reference.VOCAB_SIZE
    reference.write_records(folder / "a.tfrecord", arrays)
    if kind == "other_length":
        arrays = {name: array[:, :1] for name, array in arrays.items()}
        reference.write_records(folder / "b.tfrecord", arrays)
        data = (folder / "b.tfrecord").read_bytes()
        with open(folder / "a.tfrecord", "ab") as stream:
            stream.write(data)
        (folder / "b.tfrecord").unlink()
    if kind == "cut_short":
        with open(folder / "a.tfrecord", "r+b") as stream:
            stream.truncate(stream.seek(0, 2) - 5)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("other_ids", r"`input_ids` must be in \[0, 37\)"),
        ("other_length", "Bad records: Key: .*values != expected"),
        ("cut_short", "a.tfrecord: record [2-9] is dam"),
    ],
)
def test_bad_records_beyond_the_first_are_clear_errors(tmp_path, kind, message):
    bad_later_record(kind, tmp_path)
    records = make_records(tmp_path)
    with (
        pytest.raises(ValueError, match=message),
        errors.clear_errors(records.paths),
    ):
        list(records.evaluation_batches(3))
    if kind == "cut_short":
        # Its records are counted where no manifest tells their number.
        with pytest.raises(ValueError, match=message):
            _ = records.num_examples


def test_a_file_that_is_cut_in_a_header_is_not_counted(tmp_path):
    reference.write_records(
        tmp_path / "a.tfrecord", reference.pretraining_arrays(6)
    )
    records = make_records(tmp_path)
    data = (tmp_path / "a.tfrecord").read_bytes()
    (tmp_path / "a.tfrecord").write_bytes(data + data[:5])
    message = "a.tfrecord: record 7 is damaged or cut"
    with pytest.raises(ValueError, match=message):
        _ = records.num_examples


def flip_byte(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("place", "number"),
    [
        # Of 3 x (12 + 5 + 4) bytes: a length, its checksum, data, theirs.
        (21 + 2, 2),
        (21 + 9, 2),
        (21 + 14, 2),
        (21 + 20, 2),
        (0, 1),
    ],
)
def test_the_damaged_one_of_many_files_is_named(tmp_path, place, number):
    paths = [tmp_path / f"{name}.tfrecord" for name in "abcd"]
    for path, size in zip(paths, (3, 5, 5, 5)):
        with tf.io.TFRecordWriter(str(path)) as writer:
            for _ in range(3):
                writer.write(b"x" * size)
    flip_byte(paths[2], place)
    names = [str(path) for path in paths]
    message = rf"^Bad records: .*c\.tfrecord: record {number} is dam"
    with (
        pytest.raises(ValueError, match=message) as raised,
        errors.clear_errors(names),
    ):
        list(tf.data.TFRecordDataset(names))
    assert "\n" not in str(raised.value)
    # Cut short, in a header that says more than there is.
    flip_byte(paths[2], place)
    with open(paths[2], "r+b") as stream:
        stream.truncate(21 + 15)
    with (
        pytest.raises(ValueError, match="c.tfrecord: record 2 is dam"),
        errors.clear_errors(names),
    ):
        list(tf.data.TFRecordDataset(names))


def test_damage_that_is_not_found_again_is_told_all_the_same(tmp_path):
    error = tf.errors.DataLossError(None, None, "corrupted record at 9\ny\n")
    for names in ((), (f"{tmp_path}/gone.tfrecord", "gone")):
        with (
            pytest.raises(ValueError, match="a file .*: corrupted record at 9"),
            errors.clear_errors(names),
        ):
            raise error


def write_manifest(folder, arrays=None, name="a", **changes):
    """Writes records, and the manifest that tells what they are."""
    path = folder / f"{name}.tfrecord"
    arrays = arrays or reference.pretraining_arrays(6)
    reference.write_records(path, arrays)
    count = len(arrays[features.INPUT_IDS])
    values = {
        "max_seq_length": reference.LENGTH,
        "max_predictions_per_seq": reference.PREDICTIONS,
        "vocab_size": reference.VOCAB_SIZE,
        "vocab_sha256": VOCAB_SHA256,
        "do_lower_case": True,
        "settings": {},
        "inputs": [],
        "counts": {},
        "records": {
            path.name: {"examples": count, "bytes": path.stat().st_size}
        },
    }
    manifest.write(
        manifest.Manifest(**(values | changes)),
        manifest.path_beside([str(path)]),
    )


def test_a_manifest_tells_the_counts(tmp_path):
    write_manifest(tmp_path)
    records = make_records(tmp_path)
    assert records.counts == {str(tmp_path / "a.tfrecord"): 6}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {
                "vocab_sha256": "ab",
                "settings": {"vocab_file": "bert/vocab.txt"},
            },
            "made with another vocabulary: bert/vocab.txt of 37 entries. "
            "Received: one of 37 entries",
        ),
        ({"vocab_size": 41}, "vocab_size=41, .* run has vocab_size=37"),
        ({"max_seq_length": 12}, "max_seq_length=12"),
        ({"do_lower_case": False}, "do_lower_case=False"),
    ],
)
def test_records_that_a_manifest_tells_to_be_others_are_refused(
    tmp_path, changes, message
):
    write_manifest(tmp_path, **changes)
    with pytest.raises(ValueError, match=f"a.tfrecord: .*{message}"):
        make_records(tmp_path)


@pytest.mark.parametrize(
    "arrays", [{"a": np.zeros(3), "b": np.zeros(4)}, {"a": np.zeros(0)}]
)
def test_arrays_must_be_of_one_length(arrays):
    with pytest.raises(ValueError, match="the same number of examples"):
        array_source.ArraySource(arrays=arrays)


DYNAMIC = {
    "masking_mode": "dynamic",
    "masked_lm_prob": 0.3,
    "do_whole_word_mask": False,
    "do_span_mask": False,
}


def without_masks(arrays):
    return {
        name: array for name, array in arrays.items() if "masked_lm" not in name
    }


@pytest.fixture(scope="module")
def dynamic_folder(tmp_path_factory):
    """Records without masks: [CLS], and other tokens than special ones."""
    folder = tmp_path_factory.mktemp("dynamic")
    arrays = without_masks(reference.pretraining_arrays(NUM_EXAMPLES))
    arrays[features.INPUT_IDS] = np.maximum(arrays[features.INPUT_IDS], 5)
    arrays[features.INPUT_IDS][:, 0] = 2
    arrays[features.SEGMENT_IDS][:] = 0
    arrays[features.NEXT_SENTENCE_LABELS][:, 0] = np.arange(NUM_EXAMPLES) % 2
    write_manifest(folder, arrays, settings=DYNAMIC)
    return folder


@pytest.mark.parametrize(("rate", "needed"), [(0.15, None), (0.9, 10)])
def test_a_rate_that_the_predictions_cannot_reach_is_told(
    tmp_path, caplog, rate, needed
):
    arrays = without_masks(reference.pretraining_arrays(6))
    write_manifest(
        tmp_path, arrays, settings=DYNAMIC | {"masked_lm_prob": rate}
    )
    make_records(tmp_path)
    (told,) = caplog.messages or [""]
    assert told.endswith(f"max_predictions_per_seq={needed}." if needed else "")
    assert bool(told) == bool(needed)


def rows_of(batches, num_batches=None):
    """Returns {name: [N, ...]} of the batches."""
    batches = list(itertools.islice(batches.as_numpy_iterator(), num_batches))
    return {
        name: np.concatenate([batch[name] for batch in batches])
        for name in batches[0]
    }


def assert_equal_rows(got, wanted, rows=slice(None)):
    assert got.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_array_equal(got[name], values[rows], err_msg=name)


def test_dynamic_masks_are_a_function_of_seed_and_number(
    dynamic_folder, small_groups
):
    source = make_records(dynamic_folder, num_shares=1)
    batches = source.training_batches(2)
    for spec in batches.element_spec.values():
        assert spec.shape.is_fully_defined()
    whole = rows_of(batches, NUM_EXAMPLES)
    assert set(whole) == set(features.pretraining_record(1, 1))
    # Two epochs: other masks in the second.
    counts = whole[features.MASKED_LM_WEIGHTS].sum(axis=1)
    lengths = whole[features.INPUT_MASK].sum(axis=1)
    np.testing.assert_array_equal(
        counts, np.clip(np.round(lengths * 0.3), 1, reference.PREDICTIONS)
    )
    chosen = restored(whole)
    first, second = chosen[:NUM_EXAMPLES], chosen[NUM_EXAMPLES:]
    assert sorted(ids for ids, _ in first) == sorted(ids for ids, _ in second)
    other = dict(second)
    same = np.mean([other[ids] == positions for ids, positions in first])
    assert same < 0.3

    # In batches of another size, from an example on and into the second
    # epoch, on two hosts of two.
    rest = source.training_batches(3, start_example=25)
    assert_equal_rows(rows_of(rest, 5), whole, slice(25, 40))
    hosts = []
    for host in (0, 1):
        context = tf.distribute.InputContext(2, host, 4)
        shard = source.training_batches(8, 20, context)
        hosts.append(rows_of(shard, 6))
    for name, values in whole.items():
        shards = [host[name].reshape(3, 4, *values.shape[1:]) for host in hosts]
        np.testing.assert_array_equal(
            np.concatenate(shards, axis=1).reshape(24, *values.shape[1:]),
            values[20:44],
        )
    reseeded = rows_of(
        make_records(dynamic_folder, seed=4).training_batches(2), 9
    )
    assert not np.array_equal(
        reseeded[features.MASKED_LM_POSITIONS],
        whole[features.MASKED_LM_POSITIONS][:18],
    )


def restored(rows):
    """Returns of each row its ids before masking, and the places chosen."""
    results = []
    for index, ids in enumerate(rows[features.INPUT_IDS]):
        ids = ids.copy()
        count = int(rows[features.MASKED_LM_WEIGHTS][index].sum())
        places = rows[features.MASKED_LM_POSITIONS][index, :count]
        ids[places] = rows[features.MASKED_LM_IDS][index, :count]
        results.append((tuple(ids), tuple(places)))
    return results


def test_evaluation_of_dynamic_records_has_the_same_masks_each_time(
    dynamic_folder,
):
    def evaluate(batch_size, seed):
        source = make_records(dynamic_folder, seed=seed)
        rows = rows_of(source.evaluation_batches(batch_size))
        del rows[features.EXAMPLE_WEIGHTS]
        return {name: values[:NUM_EXAMPLES] for name, values in rows.items()}

    rows = evaluate(17, seed=3)
    assert_equal_rows(evaluate(5, seed=4), rows)
    expected = dynamic_masking.mask_examples(
        {
            name: tf.constant(values.astype("int32"))
            for name, values in unmasked(rows).items()
        },
        dynamic_masking.example_seeds(
            record_source._EVALUATION_SEED, tf.range(NUM_EXAMPLES)
        ),
        WordpieceSpec(reference.vocabulary()),
        masking.Rules(
            max_predictions_per_seq=reference.PREDICTIONS, masked_lm_prob=0.3
        ),
    )
    assert_equal_rows(rows, {k: v.numpy() for k, v in expected.items()})


def unmasked(rows):
    ids = np.array([ids for ids, _ in restored(rows)])
    return without_masks(rows) | {features.INPUT_IDS: ids}


@pytest.mark.parametrize(
    ("settings", "is_dynamic", "has_labels", "num_sequences"),
    [
        ({"objective": "full_sentences"}, False, False, 1),
        ({"objective": "full_sentences"} | DYNAMIC, True, False, 3),
        ({"objective": "sentence_order"}, False, True, 3),
        ({"objective": "sentence_order"} | DYNAMIC, True, True, 1),
    ],
)
def test_the_manifest_tells_the_kind(
    tmp_path, settings, is_dynamic, has_labels, num_sequences
):
    arrays = reference.pretraining_arrays(6)
    if is_dynamic:
        arrays = without_masks(arrays)
    if not has_labels:
        del arrays[features.NEXT_SENTENCE_LABELS]
    length, predictions = reference.LENGTH, reference.PREDICTIONS
    if num_sequences > 1:
        # Longer than the model has positions: they begin anew.
        length, predictions = 33, 9
        arrays = reference.pack_rows(
            arrays, [[0, 1, 2], [3, 4], [5]], length, predictions, num_sequences
        )
        settings = settings | {"max_sequences_per_row": num_sequences}
    write_manifest(
        tmp_path,
        arrays,
        settings=settings,
        max_seq_length=length,
        max_predictions_per_seq=predictions,
    )
    source = make_records(
        tmp_path, max_seq_length=None, max_predictions_per_seq=None
    )
    record = features.pretraining_record(
        length,
        predictions,
        has_labels=has_labels,
        max_sequences_per_row=num_sequences,
    )
    for batches in (
        source.training_batches(2),
        source.evaluation_batches(2),
    ):
        specs = dict(batches.element_spec)
        specs.pop(features.EXAMPLE_WEIGHTS, None)
        assert {name: spec.shape for name, spec in specs.items()} == {
            name: (2, *shape) for name, (_, shape) in record.items()
        }
        assert next(iter(batches))[features.MASKED_LM_WEIGHTS].numpy().any()


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_left_to_right_model_predicts_next_tokens(tmp_path, is_dynamic):
    arrays = reference.pretraining_arrays(6)
    text = arrays[features.INPUT_IDS].copy()
    for row in range(6):
        chosen = arrays[features.MASKED_LM_WEIGHTS][row] > 0
        text[row, arrays[features.MASKED_LM_POSITIONS][row, chosen]] = arrays[
            features.MASKED_LM_IDS
        ][row, chosen]
    if is_dynamic:
        arrays = without_masks(arrays) | {features.INPUT_IDS: text}
    write_manifest(tmp_path, arrays, settings=DYNAMIC if is_dynamic else {})
    source = make_records(tmp_path, config=changed_config(is_decoder=True))
    for spec in source.training_batches(2).element_spec.values():
        assert spec.shape.is_fully_defined()
    rows = rows_of(source.evaluation_batches(6))
    np.testing.assert_array_equal(rows[features.INPUT_IDS], text)
    is_predicted = arrays[features.INPUT_MASK][:, 1:]
    np.testing.assert_array_equal(
        rows[features.MASKED_LM_WEIGHTS], is_predicted
    )
    np.testing.assert_array_equal(
        rows[features.MASKED_LM_IDS], is_predicted * text[:, 1:]
    )
    assert features.NEXT_SENTENCE_LABELS not in rows


def test_records_of_different_kinds_are_not_mixed(tmp_path):
    write_manifest(tmp_path, name="a")
    reference.write_records(
        tmp_path / "b.tfrecord", reference.pretraining_arrays(2)
    )
    # The same kind, told by its manifest and not.
    assert make_records(tmp_path).num_examples == 8
    arrays = without_masks(reference.pretraining_arrays(2))
    write_manifest(tmp_path, arrays, "c", settings=DYNAMIC)
    with pytest.raises(
        ValueError,
        match="a.tfrecord and .*c.tfrecord hold .* different kinds: "
        "masking_mode is 'static' in the one and 'dynamic' in the other",
    ):
        make_records(tmp_path)


def test_dynamic_records_of_other_rules_are_not_mixed(tmp_path):
    arrays = without_masks(reference.pretraining_arrays(2))
    write_manifest(tmp_path, arrays, "a", settings=DYNAMIC)
    write_manifest(
        tmp_path, arrays, "b", settings=DYNAMIC | {"masked_lm_prob": 0.4}
    )
    with pytest.raises(ValueError, match="masked_lm_prob is 0.3 .* and 0.4"):
        make_records(tmp_path)


def test_records_without_masks_need_their_manifest(tmp_path):
    reference.write_records(
        tmp_path / "a.tfrecord", without_masks(reference.pretraining_arrays(2))
    )
    with pytest.raises(ValueError, match="`masked_lm_positions`.* manifest"):
        make_records(tmp_path)


def test_sequences_longer_than_the_model_s_positions_are_refused(tmp_path):
    write_manifest(tmp_path)
    config = changed_config(max_position_embeddings=10)
    with pytest.raises(
        ValueError, match="max_position_embeddings=10. .*max_seq_length=11"
    ):
        make_records(tmp_path, config=config)
    # Of packed rows it is the positions that count.
    arrays = reference.pack_rows(
        reference.pretraining_arrays(2), [[0], [1]], reference.LENGTH, 3, 2
    )
    write_manifest(tmp_path, arrays, settings={"max_sequences_per_row": 2})
    with pytest.raises(ValueError, match=r"`position_ids` must be in \[0, 5\)"):
        make_records(tmp_path, config=changed_config(max_position_embeddings=5))
    # A teacher is shown them too; the fewer positions count.
    with pytest.raises(ValueError, match=r"`position_ids` must be in \[0, 4\)"):
        make_records(tmp_path, teacher_positions=4)
    source = make_records(tmp_path, teacher_positions=99)
    positions = reference.tiny_config().max_position_embeddings
    assert source.limits[features.POSITION_IDS] == positions < 99


@pytest.mark.parametrize("window_batches", [2, 64])
def test_windows_sorted_by_length(window_batches):
    num_examples, batch_size = 23, 4
    lengths = np.random.default_rng(2).integers(1, 30, num_examples)
    rows = np.arange(num_examples)
    plain = array_source.ArraySource(arrays={"row": rows}, seed=5)
    source = dataclasses.replace(
        plain, lengths=lengths, window_batches=window_batches
    )

    def batches(source, start=0, count=20):
        found = source.training_batches(batch_size, start).take(count)
        return np.array([b["row"] for b in found.as_numpy_iterator()])

    shuffled, found = batches(plain), batches(source)
    # Never more batches than an epoch has.
    size = min(window_batches, num_examples // batch_size)
    for start in range(0, 20 - size, size):
        window = found[start : start + size]
        before = shuffled[start : start + size].flatten()
        assert sorted(window.flatten()) == sorted(before)
        epochs = (start * batch_size + np.arange(len(before))) // num_examples
        order = np.lexsort((lengths[before], epochs))
        expected = {tuple(row) for row in before[order].reshape(size, -1)}
        assert {tuple(row) for row in window} == expected
    spread = np.ptp(lengths[found], axis=1).mean()
    assert spread < 0.8 * np.ptp(lengths[shuffled], axis=1).mean()
    # Batches do not come by length, and a resumed run sees the same ones.
    longest = lengths[found].max(axis=1)[: 20 - 20 % size].reshape(-1, size)
    assert np.any(np.diff(longest, axis=1) < 0)
    assert np.any(np.diff(longest, axis=1) > 0)
    np.testing.assert_array_equal(batches(source, 7 * 4, 9), found[7:16])


# Segments are of no account to it.
@pytest.mark.parametrize("family", ["distilbert", "roberta"])
def test_a_family_without_pairs_takes_records_with_pairs(tmp_path, family):
    write_manifest(tmp_path, reference.pretraining_arrays(6))
    config = of_family(reference.tiny_config(), family)
    source = make_records(tmp_path, config=config)
    rows = rows_of(source.evaluation_batches(6))
    assert rows[features.SEGMENT_IDS].max() == 1
    assert features.NEXT_SENTENCE_LABELS not in rows
