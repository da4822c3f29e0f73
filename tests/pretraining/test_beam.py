"""The builder as a Beam pipeline: the local builder's files, byte for byte.

Needs apache-beam beside TensorFlow, in an environment of its own.
"""

import pytest

from bert_tf.pretraining import record_set
from bert_tf.pretraining import run_local
from bert_tf.pretraining.corpus import blocks
from bert_tf.pretraining.settings import Settings
from bert_tf.pretraining.sources import text_files
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from support.pretraining_data import VOCABULARY
from support.pretraining_data import contents
from support.pretraining_data import make_documents
from support.pretraining_data import write_text

pytest.importorskip("apache_beam")

from apache_beam.runners.runner import PipelineResult  # noqa: E402
from apache_beam.runners.runner import PipelineRunner  # noqa: E402
from apache_beam.runners.runner import PipelineState  # noqa: E402

from bert_tf.pretraining import run_beam  # noqa: E402

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]

IN_MEMORY = ["--runner=DirectRunner"]
PROCESSES = [
    "--runner=DirectRunner",
    "--direct_num_workers=2",
    "--direct_running_mode=multi_processing",
]


@pytest.fixture
def small(monkeypatch):
    """Many parts, blocks and ranges of a small input."""
    monkeypatch.setattr(text_files, "PART_BYTES", 700)
    monkeypatch.setattr(blocks, "BLOCK_TOKENS", 1500)
    monkeypatch.setattr(blocks.num_blocks, "__defaults__", (1500,))
    monkeypatch.setattr(record_set, "RANGE_SIZE", 50)


@pytest.mark.parametrize(
    "options, changes, num_shards",
    [
        (IN_MEMORY, {}, 3),
        (PROCESSES, {"dupe_factor": 1}, 2),
        (IN_MEMORY, {"max_sequences_per_row": 4, "short_seq_prob": 0.5}, 1),
        (IN_MEMORY, {"objective": "full_sentences"}, 2),
        (IN_MEMORY, {"masking_mode": "dynamic", "dupe_factor": 1}, 400),
    ],
)
def test_files_are_the_local_builders(
    tmp_path, small, options, changes, num_shards
):
    text = write_text(tmp_path / "a.txt", make_documents(60, seed=4))
    last = write_text(tmp_path / "b.txt", make_documents(9, seed=5))
    with open(last, "ab") as stream:
        stream.write(b"\n\xff\n")
    tokenizer = WordpieceSpec(VOCABULARY)
    settings = Settings(
        **{"max_seq_length": 37, "max_predictions_per_seq": 5, "dupe_factor": 3}
        | changes
    )
    arguments = f"{text},{last}", tokenizer, settings

    def path(name):
        return f"{tmp_path}/{name}/x@{num_shards}"

    counts = run_local.build(
        arguments[0], path("local"), *arguments[1:], max_bad_lines=1
    )
    assert counts.tokens > 2 * 1500
    assert counts.examples > 2 * 50
    assert counts.bad_lines == 1
    # A folder of the user's: what is in it stays.
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("mine")
    found = run_beam.build(
        arguments[0],
        path("beam"),
        *arguments[1:],
        options,
        str(tmp_path / "home"),
        max_bad_lines=1,
    )
    assert found == counts
    assert contents(tmp_path / "beam") == contents(tmp_path / "local")
    assert contents(tmp_path / "home") == {"letter": b"mine"}


class Interrupted(PipelineRunner):
    """A runner elsewhere, whose job goes on when the driver is interrupted."""

    def is_fnapi_compatible(self):
        return True

    def run_pipeline(self, pipeline, options):
        del pipeline, options

        class Result(PipelineResult):
            def wait_until_finish(self, duration=None):
                raise KeyboardInterrupt

        return Result(PipelineState.RUNNING)


class Refused(Interrupted):
    """A runner that refuses jobs, or says so."""

    def run_pipeline(self, pipeline, options):
        raise RuntimeError("connection lost")


@pytest.mark.parametrize(
    "options, error",
    [
        ([f"--runner={__name__}.Interrupted"], KeyboardInterrupt),
        ([f"--runner={__name__}.Refused"], RuntimeError),
        (
            [
                f"--runner={__name__}.Interrupted",
                "--no_wait_until_finish",
            ],
            None,
        ),
    ],
)
def test_folder_of_a_job_that_may_run_stays(tmp_path, caplog, options, error):
    text = write_text(tmp_path / "a.txt", make_documents(2, seed=4))

    def build():
        return run_beam.build(
            text,
            f"{tmp_path}/out/x",
            WordpieceSpec(VOCABULARY),
            Settings(max_seq_length=37),
            options,
        )

    if error:
        with pytest.raises(error):
            build()
    else:
        assert build() is None
    (folder,) = (tmp_path / "out").iterdir()
    assert f"It works in {folder}: remove" in caplog.text


def test_the_program_tells_what_it_tells_of_local_records(
    tmp_path, run_program
):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(VOCABULARY.tokens))
    text = write_text(tmp_path / "a.txt", make_documents(9, seed=4))
    told = {}
    for name, flags in (
        ("local", ()),
        ("beam", ("--beam_runner=DirectRunner",)),
    ):
        process = run_program(
            "bert_tf.data.create_pretraining_data",
            f"--input_file={text}",
            f"--output_file={tmp_path}/{name}/x.tfrecord",
            f"--vocab_file={vocabulary}",
            "--max_seq_length=37",
            *flags,
        )
        # The last two are of the time.
        *told[name], seconds, rate = process.stdout.splitlines()
        assert seconds.startswith("seconds") and rate.startswith("examples/s")
    assert told["beam"] == told["local"]
    assert told["beam"][0].split() == ["documents", "9"]


def test_errors_and_unknown_options(tmp_path):
    tokenizer = WordpieceSpec(VOCABULARY)
    settings = Settings(max_seq_length=37)
    text = write_text(tmp_path / "a.txt", make_documents(2, seed=4))

    def build(*options):
        run_beam.build(text, f"{tmp_path}/out/x", tokenizer, settings, options)

    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").write_text("old")
    with pytest.raises(ValueError, match="x already exists, in an incomplete"):
        build(*IN_MEMORY)
    (tmp_path / "out" / "x").unlink()
    with pytest.raises(ValueError, match="`beam_option` must .*: no_such"):
        build("--no_such=1")
    (tmp_path / "a.txt").write_text("\n\u200b\n")
    with pytest.raises(Exception, match="no sentence in the input"):
        build(*IN_MEMORY)
    (tmp_path / "a.txt").write_bytes(b"a b\n\n\xff\n")
    with pytest.raises(Exception, match=r"a\.txt, line 3: not UTF-8"):
        build(*IN_MEMORY)
    assert not list((tmp_path / "out").iterdir())
