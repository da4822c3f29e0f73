"""What run_glue keeps of a finished run, killed at any moment."""

import pytest

from bert_tf import atomic
from bert_tf import files
from bert_tf.runs import output_folder
from bert_tf.tasks.classification import glue_runs

FLAGS = ["--do_train", "--learning_rate=3e-05"]
RESULTS = {"eval_accuracy": 0.75, "global_step": 3.0}
STATE = ["model.json", "state-3.data-00000-of-00001", "state-3.index"]


class Killed(BaseException):
    """As if the process ended there."""


@pytest.fixture
def folder(tmp_path):
    """A run's folder as run_classifier leaves it."""
    (tmp_path / "train").mkdir()
    for name in STATE:
        (tmp_path / "train" / name).write_text("{}")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "eval_results.txt").write_text(
        "eval_accuracy = 0.75\nglobal_step = 3\n"
    )
    return tmp_path


def make_run(folder, flags):
    return glue_runs.Run(
        task="rte", learning_rate=3e-5, seed=1, folder=str(folder), flags=flags
    )


def finish(folder):
    run = make_run(folder, FLAGS)
    run.finish()
    return run.results


def found_results(folder, flags=FLAGS):
    run = make_run(folder, flags)
    run.find_results()
    return run.results


@pytest.mark.parametrize("num_moments", range(5))
def test_killed_run_can_be_resumed_or_is_finished(
    folder, monkeypatch, num_moments
):
    write_text, remove = atomic.write_text, files.remove
    left = num_moments

    def live():
        nonlocal left
        if left == 0:
            raise Killed
        left -= 1

    def write(path, text):
        live()
        write_text(path, text)
        live()

    def remove_slowly(path):
        live()
        remove(folder / "train" / STATE[-1])
        live()
        remove(path)

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "write_text", write)
        patch.setattr(files, "remove", remove_slowly)
        if num_moments < 4:
            with pytest.raises(Killed):
                finish(folder)
        else:
            assert finish(folder) == RESULTS

    if num_moments == 0:
        # run_classifier resumes at the last step, and does all again.
        assert found_results(folder) is None
        assert files.list_folder(folder / "train") == STATE
        output_folder.check(folder)
        finish(folder)
    assert found_results(folder) == RESULTS
    assert not (folder / "train").exists()


def test_a_run_of_other_flags_is_refused(folder):
    finish(folder)
    with pytest.raises(ValueError, match="other flags: --learning_rate=3e-05"):
        found_results(folder, FLAGS[:1])
