"""Which folder a program may write, and which model it evaluates."""

import pytest

from bert_tf.tasks import starting_point


def test_a_model_of_another_run_is_not_written_over(tmp_path):
    starting_point.check_output_dir(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="was not trained there"):
        starting_point.check_output_dir(str(tmp_path))
    (tmp_path / "train").mkdir()
    starting_point.check_output_dir(str(tmp_path))


def test_the_model_of_the_output_folder_comes_first(tmp_path):
    folder = str(tmp_path)
    with pytest.raises(ValueError, match="there must be a tuned model"):
        starting_point.tuned_folder(folder, None)
    assert starting_point.tuned_folder(folder, "other") == "other"
    (tmp_path / "config.json").write_text("{}")
    assert starting_point.tuned_folder(folder, "other") == folder
