"""The program that shows records, on records that break a rule."""

import json

import numpy as np

from bert_tf.pretraining.records import tfrecord


def test_broken_records_are_told(tmp_path, run_program):
    (tmp_path / "vocab.txt").write_text(
        "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n"
    )
    ids = np.array([[2, 5, 3, 6, 4, 3, 0]] * 3)
    examples = {
        "input_ids": ids,
        "input_mask": (ids > 0).astype(int),
        "segment_ids": np.array([[0, 0, 0, 1, 1, 1, 0]] * 3),
        "masked_lm_positions": np.array([[4, 0], [2, 0], [4, 0]]),
        "masked_lm_ids": np.array([[6, 0], [3, 0], [6, 0]]),
        "masked_lm_weights": np.array([[1, 0]] * 3, np.float32),
        "next_sentence_labels": np.array([[1], [0], [1]]),
    }
    tfrecord.write(str(tmp_path / "x.tfrecord"), [tfrecord.serialize(examples)])
    process = run_program(
        "bert_tf.data.inspect_records",
        f"--input_file={tmp_path}/x.tfrecord",
        # A folder, as those of other tokenizers are.
        f"--vocab_file={tmp_path}",
        f"--output_file={tmp_path}/page.html",
        check=False,
    )
    assert process.returncode == 1
    output = process.stdout
    assert (
        "    4  b                          1        4  [MASK]     b" in output
    )
    assert "Example 1" in output
    assert "Example 2" not in output
    lines = output.splitlines()
    assert "random next                66.7%" in lines
    broken = [line for line in lines if "broken by" in line]
    assert len(broken) == 1
    assert broken[0].startswith("[CLS] and [SEP] are never masked")
    assert broken[0].endswith("broken by 1")
    page = (tmp_path / "page.html").read_text()
    begin = page.index('id="data">') + len('id="data">')
    data = json.loads(page[begin : page.index("</script>", begin)])
    assert [(rule, number) for rule, number in data["checks"] if number] == [
        ("[CLS] and [SEP] are never masked", 1)
    ]
    assert [record["number"] for record in data["records"]] == [0, 1, 2]
    assert ["random next", "66.7%"] in data["totals"]


def test_the_page_does_not_take_the_place_of_its_records(tmp_path, run_program):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    path = tmp_path / "x.tfrecord"
    path.write_bytes(b"records")
    process = run_program(
        "bert_tf.data.inspect_records",
        f"--input_file={path}",
        f"--vocab_file={tmp_path}/vocab.txt",
        f"--output_file={path}",
        check=False,
    )
    message = f"`output_file` is also one of the input files: {path}"
    assert message in process.stderr
    assert path.read_bytes() == b"records"
