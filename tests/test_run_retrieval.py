"""run_retrieval from files to files, as a subprocess; and from Python."""

import dataclasses
import json

import numpy as np
import pytest
from scipy import stats

import bert_tf
from bert_tf import tuning
from bert_tf.checkpoints import sentence_folder
from bert_tf.tasks.features import sentences
from bert_tf.tasks.retrieval.task import RetrievalTask
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from support import releases
from support import sentence_models

PROGRAM = "bert_tf.run_retrieval"
WORDS = "abcdefgh"
TOKENS = (*SPECIAL_TOKENS, *WORDS)


def make_texts(count, seed):
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice([*WORDS], size=6)) for _ in range(count)]


def write_pairs(path, count, seed):
    pairs = zip(make_texts(count, seed), make_texts(count, seed + 1))
    lines = [json.dumps({"query": q, "positive": p}) for q, p in pairs]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_vectors_are_tuned_scored_and_resumed(tmp_path, run_program):
    output = tmp_path / "output"
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(make_texts(20, seed=9)) + "\n")
    test_file = tmp_path / "test.tsv"
    test_file.write_text("sentence1\tsentence2\na b\ta b\nc\tf g\n")
    flags = (
        *releases.write_flags(tmp_path, TOKENS),
        f"--output_dir={output}",
        "--max_seq_length=12",
        f"--train_file={write_pairs(tmp_path / 'train.jsonl', 14, 1)}",
        f"--eval_file={write_pairs(tmp_path / 'dev.jsonl', 9, 3)}",
        f"--corpus_file={corpus}",
        "--do_train",
        "--do_eval",
        "--train_batch_size=4",
        "--iterations_per_loop=1",
        "--query_prompt=a ",
        "--head=dense",
    )
    done = run_program(
        PROGRAM,
        *flags,
        f"--predict_file={test_file}",
        "--do_predict",
        "--num_train_epochs=2",
        "--chunk_size=2",
    )
    assert "step 7/7" in done.stderr
    results = releases.read_results(output)
    assert {*results} == {
        *("eval_recall@1", "eval_recall@10", "eval_recall@100"),
        *("eval_MRR@10", "eval_nDCG@10", "eval_MAP", "global_step"),
    }
    assert results["eval_recall@100"] == 1
    report = (output / "report.md").read_text()
    assert report.startswith("# retrieval: eval_nDCG@10 ")
    assert "## Worst queries" in report
    cosines = (output / "test_results.tsv").read_text().splitlines()
    assert cosines[0] == "cosine"
    assert len(cosines) == 3
    told = sentence_folder.read(output)
    assert (told.pooling, told.is_normalized) == ("mean", True)
    assert told.prompts == {"query": "a ", "document": ""}
    assert told.dense[0].kernel.shape == (8, 8)

    # The same folder from Python, head and all.
    tuned = tuning.run(
        RetrievalTask(head="dense", query_prompt="a "),
        start=output,
        output_dir=tmp_path / "again",
        test={"sentence1": ["a b", "c"], "sentence2": ["a b", "f g"]},
        max_seq_length=12,
    )
    assert tuned.answers["test"] == [
        {"score": pytest.approx(float(line), abs=1e-5)} for line in cosines[1:]
    ]
    model, preprocessor, task = bert_tf.load(output)
    assert task.head == "dense"
    vectors = model(preprocessor(["a a b", "c"])).numpy()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)

    # A tuned model is evaluated as it was tuned, or not at all.
    for flag, message in (
        ("--pooling=cls", "--pooling must be 'mean', as the model was tuned"),
        ("--query_prompt=", "--query_prompt must be 'a ', as the model was"),
        ("--chunk_size=2", "--chunk_size must be given with --do_train"),
    ):
        refused = run_program(
            PROGRAM,
            f"--output_dir={output}",
            f"--eval_file={tmp_path / 'dev.jsonl'}",
            "--do_eval",
            flag,
            check=False,
        )
        assert refused.returncode == 1
        assert message in refused.stderr.splitlines()[-1]

    # What a training was begun with is asked for again.
    refused = run_program(
        PROGRAM,
        *flags,
        "--num_train_epochs=3",
        "--chunk_size=4",
        check=False,
    )
    assert refused.returncode == 1
    assert "--chunk_size was 2 and is 4" in refused.stderr


def test_simcse_is_trained_from_python_on_a_list_of_texts(tmp_path):
    release = releases.write(tmp_path, TOKENS)
    # Else all vectors are alike, and rounding tells their order.
    config = releases.tiny_config(len(TOKENS))
    config = dataclasses.replace(config, initializer_range=0.5)
    (tmp_path / "bert_config.json").write_text(json.dumps(config.to_dict()))
    dev = {
        "sentence1": make_texts(6, seed=6),
        "sentence2": make_texts(6, seed=7),
        "score": [0, 1, 2, 3, 4, 5],
    }
    tuned = tuning.run(
        RetrievalTask(loss_name="simcse", pooling="cls", head="training_dense"),
        train={"text": make_texts(12, seed=5)},
        dev=dev,
        output_dir=tmp_path / "output",
        max_seq_length=12,
        train_batch_size=4,
        num_train_epochs=2,
        keep_best=True,
        **release,
    )
    model, preprocessor, _ = bert_tf.load(tmp_path / "output")
    one, other = (
        model(preprocessor(dev[name])).numpy().astype("float64")
        for name in ("sentence1", "sentence2")
    )
    one, other = (
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        for vectors in (one, other)
    )
    wanted = stats.spearmanr(np.sum(one * other, axis=1), dev["score"])
    assert tuned.results["eval_spearman"] == pytest.approx(wanted.statistic)
    assert tuned.results["global_step"] in (3, 6)
    told = sentence_folder.read(tmp_path / "output")
    assert (told.pooling, told.dense) == ("cls", ())


def test_vectors_stay_cut(tmp_path, run_program, caplog):
    start, output = tmp_path / "start", tmp_path / "output"
    cut = sentence_folder.SentenceVectors(
        pooling="mean", is_normalized=True, truncate_dim=3
    )
    sentence_models.save(start, cut)
    dev = write_pairs(tmp_path / "dev.jsonl", 9, 3)
    flags = (f"--output_dir={output}", f"--eval_file={dev}", "--do_eval")
    run_program(
        PROGRAM,
        *flags,
        f"--init_checkpoint={start}",
        f"--train_file={write_pairs(tmp_path / 'train.jsonl', 8, 1)}",
        *("--do_train", "--train_batch_size=4", "--num_train_epochs=1"),
        *("--max_seq_length=9", "--learning_rate=0.01"),
    )
    assert sentence_folder.read(output).truncate_dim == 3
    task = json.loads((output / "task.json").read_text())
    assert (task["truncate_dim"], task["format_version"]) == (3, 2)
    # Scored are the vectors that the folder makes.
    pairs = [json.loads(line) for line in dev.read_text().splitlines()]
    embed = sentences.open_embedder(output)
    queries, passages = (
        embed([pair[name] for pair in pairs]).astype("float64")
        for name in ("query", "positive")
    )
    assert queries.shape == (9, 3)
    queries, passages = (
        each / np.linalg.norm(each, axis=1, keepdims=True)
        for each in (queries, passages)
    )
    scores = queries @ passages.T
    ranks = (scores >= np.diag(scores)[:, None]).sum(axis=1)
    results = releases.read_results(output)
    assert results["eval_MRR@10"] == pytest.approx(np.mean(1 / ranks))
    refused = run_program(PROGRAM, *flags, "--truncate_dim=0", check=False)
    assert "--truncate_dim must be 3, as the mod" in refused.stderr
    loaded = bert_tf.load(output)
    assert loaded.task.truncate_dim == loaded.model.truncate_dim == 3
    # From Python, too; pooling and so on are the task's.
    tuned = tuning.run(
        RetrievalTask(pooling="max"),
        dev=dev,
        start=start,
        output_dir=tmp_path / "python",
        max_seq_length=9,
    )
    assert tuned.model.vector_size == 3
    assert (
        "start: vectors are not made as the checkpoint says: the task has "
        "pooling='max', not 'mean'."
    ) in caplog.text
    assert "Vectors are truncated to 3 numbers, as in" in caplog.text
    # Saved, the task has the size of its model.
    task = RetrievalTask(query_prompt="a ")
    bert_tf.save(tmp_path / "saved", loaded.model, loaded.preprocessor, task)
    assert bert_tf.load(tmp_path / "saved").task.truncate_dim == 3
    for size in (0, 5):
        with pytest.raises(ValueError, match="of the task must be 3, as in th"):
            bert_tf.save(
                tmp_path / "saved",
                loaded.model,
                loaded.preprocessor,
                RetrievalTask(truncate_dim=size),
            )


def test_dense_layers_that_a_task_leaves_out_are_told(monkeypatch, caplog):
    layer = sentence_folder.DenseLayer(
        kernel=np.eye(8, 3, dtype="float32"), bias=None, activation="linear"
    )
    vectors = sentence_folder.SentenceVectors(
        pooling="mean", is_normalized=True, dense=(layer, layer)
    )
    with caplog.at_level("WARNING", logger="absl"):
        monkeypatch.setattr(sentence_folder, "read_known", lambda _: vectors)
        RetrievalTask(head="dense", dense_size=3).with_checkpoint_fields(
            "start"
        )
        assert not caplog.text
        RetrievalTask().with_checkpoint_fields("start")
    assert "the task has head='none', not its Dense layers." in caplog.text


def test_all_numbers_of_a_vector_are_kept_if_so_told(tmp_path):
    start = tmp_path / "start"
    cut = sentence_folder.SentenceVectors(
        pooling="mean", is_normalized=True, truncate_dim=3
    )
    sentence_models.save(start, cut)
    whole = RetrievalTask(truncate_dim=0).with_checkpoint_fields(start)
    assert whole.truncate_dim is None
    assert RetrievalTask().with_checkpoint_fields(start).truncate_dim == 3
    config = bert_tf.load(start).model.config
    size = config.hidden_size
    assert whole.make_model(config).vector_size == size
    with pytest.raises(
        ValueError, match=f"`truncate_dim` must be at most {size}"
    ):
        RetrievalTask(truncate_dim=size + 1).make_model(config)
    # As sentence-transformers reads it.
    sentence_models.save(start, dataclasses.replace(cut, truncate_dim=size + 1))
    assert bert_tf.load(start).model.vector_size == size


def test_bad_flags_are_told_at_once(tmp_path, run_program):
    path = tmp_path / "one.tsv"
    path.write_text("query\na\n")
    for flag, message in (
        ("--scale=20", "one.tsv: there must be two columns of texts"),
        ("--margin=1", "--margin must be given with --loss_name=triplet"),
        (
            f"--label_column=scroe --do_eval --eval_file={path}",
            "--label_column must be given with --do_train and --loss_name=",
        ),
    ):
        refused = run_program(
            PROGRAM,
            *releases.write_flags(tmp_path, TOKENS),
            f"--train_file={path}",
            f"--output_dir={tmp_path / 'output'}",
            "--do_train",
            *flag.split(),
            check=False,
        )
        assert refused.returncode == 1
        assert message in refused.stderr.splitlines()[-1]
    assert not (tmp_path / "output").exists()


def test_prompts_that_are_not_pooled_are_refused(tmp_path, run_program):
    sentence_models.save(tmp_path / "model", sentence_models.VECTORS)
    refused = run_program(
        PROGRAM,
        f"--init_checkpoint={tmp_path / 'model'}",
        f"--eval_file={write_pairs(tmp_path / 'dev.jsonl', 9, 3)}",
        f"--output_dir={tmp_path / 'output'}",
        "--do_eval",
        check=False,
    )
    assert refused.returncode == 1
    line = refused.stderr.splitlines()[-1]
    assert "model: its prompts are left out of the pooling" in line
    assert "Received: 'query: ', ''." in line


def test_dense_layers_that_are_not_trained_are_refused(tmp_path, run_program):
    tanh, linear = sentence_models.VECTORS.dense
    flags = (
        f"--train_file={write_pairs(tmp_path / 'train.jsonl', 4, 3)}",
        f"--output_dir={tmp_path / 'output'}",
        *("--do_train", "--train_batch_size=4", "--num_train_epochs=1"),
        "--max_seq_length=12",
    )
    for name, dense, found in (
        ("two", (tanh, linear), "tanh with a bias, linear without a bias."),
        (
            "linear",
            (dataclasses.replace(tanh, activation="linear"),),
            "linear with a bias.",
        ),
    ):
        folder = tmp_path / name
        sentence_models.save(
            folder,
            sentence_folder.SentenceVectors(
                pooling="mean", is_normalized=True, dense=dense
            ),
        )
        start = f"--init_checkpoint={folder}"
        refused = run_program(PROGRAM, start, *flags, check=False)
        assert refused.returncode == 1
        line = refused.stderr.splitlines()[-1]
        assert f"{name}: its Dense layers must be one, tanh with a bias" in line
        assert line.endswith(f"Received: {found}")
    assert not (tmp_path / "output").exists()
    # Who asks for a new one gets it.
    run_program(PROGRAM, start, *flags, "--head=dense")
    (layer,) = sentence_folder.read(tmp_path / "output").dense
    assert (layer.activation, layer.kernel.shape) == ("tanh", (8, 5))
