"""ELECTRA's and SpanBERT's runs from text to tuning, against transformers.

python -m pytest -m peers tests/runs/test_objective_peers.py
"""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf import features
from bert_tf.checkpoints import families
from bert_tf.checkpoints import starting_point
from bert_tf.checkpoints import variables
from bert_tf.config import BertConfig
from bert_tf.layers.sampling import sample_classes
from bert_tf.models.replaced_tokens import replace_tokens
from bert_tf.models.replaced_tokens import replaced_tokens
from bert_tf.runs import objectives
from bert_tf.text import dynamic_masking
from references import electra as peer
from references import training as reference
from support import page_fixtures
from support import peers
from support import pretraining_options
from support.family_models import of_family

pytestmark = pytest.mark.peers

LENGTH = 24
SIZES = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 40,
    "max_position_embeddings": LENGTH,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Texts, tasks, configurations and a vocabulary."""
    folder = tmp_path_factory.mktemp("objectives")
    page_fixtures.write(folder)
    size = len(page_fixtures.VOCABULARY)
    (folder / "vocab.txt").write_text(page_fixtures.VOCABULARY.to_text())
    bert = BertConfig(vocab_size=size, hidden_act="gelu", **SIZES)
    for config in (bert, of_family(bert, "electra")):
        path = folder / f"{config.model_type}.json"
        path.write_text(json.dumps(families.write_config(config)))
    return folder


def make_records(run_program, folder, name, *arguments):
    run_program(
        "bert_tf.data.create_pretraining_data",
        f"--input_file={folder}/text/*.txt",
        f"--output_file={folder}/{name}",
        f"--vocab_file={folder}/vocab.txt",
        f"--max_seq_length={LENGTH}",
        "--max_predictions_per_seq=5",
        "--dupe_factor=1",
        *arguments,
    )
    return f"{folder}/{name}"


def pretrain(run_program, folder, records, output, *arguments, **kwargs):
    return run_program(
        "bert_tf.run_pretraining",
        f"--input_file={records}",
        f"--output_dir={folder}/{output}",
        "--num_warmup_steps=1",
        "--learning_rate=1e-3",
        *arguments,
        **kwargs,
    )


def new(folder, family):
    return (
        "--do_train",
        f"--bert_config_file={folder}/{family}.json",
        f"--vocab_file={folder}/vocab.txt",
    )


def names_of(folder, model_class):
    return json.loads(peers.run(peer.__file__, "names", folder, model_class))


def weights_of(folder):
    return (folder / "model.safetensors").read_bytes()


def test_electra_from_text_to_a_tuned_discriminator(folder, run_program):
    records = make_records(
        run_program,
        folder,
        "electra.tfrecord",
        "--objective=full_sentences",
        "--masking=dynamic",
        "--masking_rule=electra",
    )
    electra = ("--objective=replaced_tokens", "--train_batch_size=8")

    def train():
        return pretrain(
            run_program,
            folder,
            f"{records};{records}",
            "electra",
            *new(folder, "electra"),
            "--objective=replaced_tokens",
            "--generator_size=0.5",
            "--do_eval",
            "--keep_best",
            f"--phases={LENGTH}:2:8,{LENGTH}:2:4",
            "--gradient_accumulation_steps=2",
            "--save_checkpoints_steps=2",
        )

    process = train()
    # The line has both nets.
    assert "discriminator_recall" in process.stdout
    assert "masked_lm_accuracy" in process.stdout
    output = folder / "electra"
    for each in (output, output / "best"):
        assert names_of(each, "ElectraForPreTraining") == []
        assert names_of(each / "generator", "ElectraForMaskedLM") == []
    left, right = (
        safetensors.numpy.load_file(path / "model.safetensors")
        for path in (output, output / "generator")
    )
    shared = [name for name in left if "_embeddings" in name]
    assert len(shared) == 3
    for name in shared:
        np.testing.assert_array_equal(left[name], right[name])

    # The same folder is evaluated to the same numbers.
    again = pretrain(
        run_program, folder, records, "electra", *electra, "--do_eval"
    )
    assert again.stdout == process.stdout

    # The last steps once more, from the state before them: the same files.
    before = [weights_of(output), weights_of(output / "generator")]
    for path in (output / "train").glob("state-4.*"):
        path.unlink()
    resumed = train()
    assert "Resuming from step 2" in resumed.stderr
    assert [weights_of(output), weights_of(output / "generator")] == before

    # Both nets go on from there; one that is another is refused by name.
    pretrain(
        run_program,
        folder,
        records,
        "further",
        *electra,
        f"--init_checkpoint={output}",
        "--do_train",
        "--num_train_steps=2",
    )
    assert names_of(folder / "further/generator", "ElectraForMaskedLM") == []
    bad = pretrain(
        run_program,
        folder,
        records,
        "bad",
        *electra,
        f"--init_checkpoint={output}",
        "--generator_size=0.25",
        "--do_train",
        check=False,
    )
    assert bad.returncode == 1
    assert (
        "--generator_size must be that of the checkpoint's generator, 0.5. "
        "Received: --generator_size=0.25."
    ) in bad.stderr.strip().splitlines()[-1]

    run_program(
        "bert_tf.run_glue",
        f"--data_dir={folder}/glue",
        "--task_name=SST-2",
        f"--output_dir={folder}/tuned",
        f"--init_checkpoint={output}",
        "--learning_rate=1e-3",
        "--random_seed=0",
        "--num_train_epochs=1",
        f"--max_seq_length={LENGTH}",
    )
    tuned, *_ = (
        path.parent for path in (folder / "tuned").rglob("config.json")
    )
    assert names_of(tuned, "ElectraForSequenceClassification") == []


def test_a_step_of_both_nets_is_transformers(folder):
    config = dataclasses.replace(
        families.read_config(str(folder / "electra.json")),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    start = starting_point.find(
        None, str(folder / "electra.json"), str(folder / "vocab.txt")
    )
    start = dataclasses.replace(start, config=config)
    options = pretraining_options.make_options(
        input_file="",
        max_seq_length=LENGTH,
        num_train_steps=1,
        train_batch_size=1,
        output_dir=str(folder / "step"),
        do_eval=True,
        objective="replaced_tokens",
        num_warmup_steps=0,
    )
    pretraining = objectives.make(options, start, "float32")
    model = pretraining.model
    random = np.random.default_rng(8)
    for weight in model.weights:
        weight.assign(random.normal(0, 0.3, weight.shape))

    arrays = reference.pretraining_arrays(6)
    del arrays[features.NEXT_SENTENCE_LABELS]
    batch = dynamic_masking.draw_replacements(
        reference.as_batch(arrays),
        dynamic_masking.example_seeds(5, tf.range(6)),
    )
    objective = replaced_tokens()
    with tf.GradientTape() as tape:
        outputs = model(batch, training=True)
        totals = objective.losses(outputs, batch)
        terms = objective.loss_terms(totals, objective.weights(batch))
        loss = objective.loss(terms)

    path = folder / "step"
    for name, each in pretraining.saved.items():
        checkpoints.save(path / name, each, start.tokenizer, LENGTH)
    sampled = sample_classes(
        outputs["masked_lm_logits"], batch[features.REPLACEMENT_DRAWS]
    )
    corrupted, replaced = replace_tokens(batch, sampled)
    labels = np.full(arrays[features.INPUT_IDS].shape, -100)
    for row, slot in np.argwhere(arrays[features.MASKED_LM_WEIGHTS]):
        position = arrays[features.MASKED_LM_POSITIONS][row, slot]
        labels[row, position] = arrays[features.MASKED_LM_IDS][row, slot]
    np.savez(
        path / "batch.npz",
        **{name: arrays[name] for name in features.MODEL_INPUTS},
        labels=labels,
        corrupted_ids=corrupted.numpy().astype("int64"),
        replaced=replaced.numpy().astype("int64"),
    )
    peers.run(peer.__file__, "step", path)
    expected = dict(np.load(path / "step.npz"))
    np.testing.assert_allclose(
        terms["masked_lm_loss"], expected.pop("masked_lm_loss"), rtol=1e-5
    )
    np.testing.assert_allclose(
        terms["discriminator_loss"],
        expected.pop("discriminator_loss"),
        rtol=1e-5,
    )
    checked = [
        (f"{net}/{tensor.hugging_face.name}", tensor, variable)
        for net, each in (
            ("generator", model.generator),
            ("", model.discriminator),
        )
        for tensor, variable in variables.match(each).items()
    ]
    wanted = [variable.value for _, _, variable in checked]
    found = tape.gradient(loss, wanted)
    names = set()
    for (name, tensor, _), gradient in zip(checked, found):
        if name not in expected:
            # torch has no gradient of what the loss does not depend on.
            assert gradient is None, name
            continue
        names.add(name)
        target = tensor.hugging_face.transform.to_variable(expected[name])
        got = np.array(tf.convert_to_tensor(gradient))
        if name.endswith(
            ("word_embeddings.weight", "position_embeddings.weight")
        ):
            # transformers does not train the embedding of padding.
            rows = np.arange(len(got)) != 0
            got, target = got[rows], target[rows]
        np.testing.assert_allclose(
            got, target, atol=2e-4, rtol=2e-4, err_msg=name
        )
    assert len(names) > 70
    assert expected.keys() - names <= {"generator/generator_lm_head.weight"}
    assert any("embeddings_project" in name for name in names)


def test_spanbert_leaves_a_bert_folder(folder, run_program):
    records = make_records(
        run_program, folder, "spans.tfrecord", "--do_span_mask"
    )
    for steps in (2, 4):
        process = pretrain(
            run_program,
            folder,
            records,
            "spans",
            *new(folder, "bert"),
            "--span_boundary_objective",
            f"--num_train_steps={steps}",
            "--train_batch_size=8",
            "--do_eval",
        )
    assert "span_boundary_loss = " in process.stdout
    assert "Resuming from step 2" in process.stderr
    assert names_of(folder / "spans", "BertForPreTraining") == []
    # The head is in the state alone; without the objective it is another run.
    bad = pretrain(
        run_program,
        folder,
        records,
        "spans",
        *new(folder, "bert"),
        "--num_train_steps=6",
        check=False,
    )
    assert bad.returncode == 1
    assert (
        "holds the training of another model: span_boundary_objective was "
        "True and is None."
    ) in bad.stderr.strip().splitlines()[-1]
