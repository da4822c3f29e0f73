"""run_search end to end: scores, hits, triplets, and what is refused."""

import json

import numpy as np
import pytest

from bert_tf.tasks.features import sentences
from references import retrieval as reference
from support import serving_models

PROGRAM = "bert_tf.run_search"
TEXTS = ["the fox", "quick lorem", "a b c d e f", "é 我 the", "lorem"]
QUESTIONS = ["a fox", "b c d", "我"]
# Grades of {query: {text}}.
RELEVANT = {0: {0: 1}, 1: {2: 2, 4: 1}}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    for name, texts in (("corpus", TEXTS), ("queries", QUESTIONS)):
        rows = [
            json.dumps({"_id": f"{name[0]}{n}", "text": text})
            for n, text in enumerate(texts)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(rows))
    rows = ["query-id\tcorpus-id\tscore"]
    for query, grades in RELEVANT.items():
        rows += [f"q{query}\tc{text}\t{grades[text]}" for text in grades]
    (folder / "qrels.tsv").write_text("\n".join(rows))
    return folder


def flags(files, *others):
    return [
        f"--model_dir={serving_models.model_dir('encoder')}",
        f"--corpus_file={files}/corpus.jsonl",
        f"--queries_file={files}/queries.jsonl",
        f"--relevance_file={files}/qrels.tsv",
        *others,
    ]


def test_scores_hits_and_triplets(run_program, files, tmp_path):
    work = tmp_path / "work"
    command = [
        *flags(files, f"--work_dir={work}", f"--output_dir={tmp_path}/out"),
        *("--do_eval", "--do_search", "--do_mine", "--top_k=3"),
        "--num_negatives=2",
    ]
    done = run_program(PROGRAM, *command)
    embedder = sentences.open_embedder(serving_models.model_dir("encoder"))
    corpus = embedder(TEXTS).tolist()
    orders = []
    for question in embedder(QUESTIONS).tolist():
        scores = [reference.cosine(question, text) for text in corpus]
        orders.append((reference.ranking(scores), scores))

    lines = (tmp_path / "out/eval_results.txt").read_text().splitlines()
    found = {
        line.split(" = ")[0]: float(line.split(" = ")[1]) for line in lines
    }
    assert f"MAP = {found['MAP']:.6g}\n" in done.stdout
    for name, score in (
        ("MAP", reference.average_precision),
        ("nDCG@10", lambda *told: reference.ndcg(*told, 10)),
        ("MRR@10", lambda *told: reference.reciprocal_rank(*told, 10)),
        ("recall@1", lambda *told: reference.recall(*told, 1)),
    ):
        wanted = [score(orders[row][0], RELEVANT[row]) for row in RELEVANT]
        assert found[name] == pytest.approx(np.mean(wanted)), name
    assert (found["queries"], found["texts"]) == (2, 5)

    rows = (tmp_path / "out/search.jsonl").read_text("utf-8").splitlines()
    for (order, scores), row, text in zip(orders, rows, QUESTIONS, strict=True):
        answer = json.loads(row)
        assert answer["query"] == text
        assert [hit["text"] for hit in answer["hits"]] == [
            TEXTS[index] for index in order[:3]
        ]
        assert [hit["score"] for hit in answer["hits"]] == pytest.approx(
            [scores[index] for index in order[:3]], abs=1e-5
        )
    rows = (tmp_path / "out/triplets.jsonl").read_text("utf-8").splitlines()
    found = [tuple(json.loads(row).values()) for row in rows]
    assert found == [
        (QUESTIONS[query], TEXTS[text], TEXTS[other])
        for query, grades in RELEVANT.items()
        for text in sorted(grades)
        for other in [n for n in orders[query][0] if n not in grades][:2]
    ]
    scores = (tmp_path / "out/query_scores.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in scores] == ["query-id", "q0", "q1"]
    report = (tmp_path / "out/report.md").read_text("utf-8")
    assert "## Worst queries" in report and "| pooling | mean |" in report

    # The vectors are there; those of another pooling are refused.
    kept = (work / "corpus/vectors-00000-of-00001.npy").stat().st_mtime_ns
    refused = run_program(PROGRAM, *command, "--pooling=cls", check=False)
    assert refused.returncode == 1
    (line,) = refused.stderr.strip().splitlines()[-1:]
    assert "`pooling` must be 'cls'. Received: 'mean'." in line
    path = work / "corpus/vectors-00000-of-00001.npy"
    assert path.stat().st_mtime_ns == kept
    # No queries remain of a run whose corpus is refused.
    refused = run_program(
        PROGRAM,
        *flags(files, f"--work_dir={work}", "--do_eval", "--pooling=cls"),
        check=False,
    )
    assert "corpus/manifest.json: the vectors are" in refused.stderr
    assert not (work / "judged_queries").exists()


def write_lines(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")


def test_the_text_of_a_query_s_id_is_neither_found_nor_mined(
    run_program, tmp_path
):
    texts = [{"_id": f"a{n}", "text": text} for n, text in enumerate(TEXTS)]
    write_lines(tmp_path / "corpus.jsonl", texts)
    # It would be the first of both, and the last is not in the corpus.
    queries = [*texts[:2], {"_id": "q", "text": TEXTS[0]}]
    write_lines(tmp_path / "queries.jsonl", queries)
    (tmp_path / "qrels.tsv").write_text(
        "query-id\tcorpus-id\tscore\na0\ta3\t1\na1\ta1\t1\n"
    )
    run_program(
        PROGRAM,
        *flags(tmp_path, f"--work_dir={tmp_path}/work"),
        *("--do_search", "--do_mine", "--top_k=5", "--num_negatives=9"),
    )
    lines = (tmp_path / "work/search.jsonl").read_text("utf-8").splitlines()
    found = [[hit["id"] for hit in json.loads(x)["hits"]] for x in lines]
    assert sorted(found[0]) == ["a1", "a2", "a3", "a4"]
    # That which is marked as relevant is ranked.
    assert found[1][0] == "a1" and len(found[1]) == 5
    assert found[2][0] == "a0"
    lines = (tmp_path / "work/triplets.jsonl").read_text("utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    assert {x["negative"] for x in found if x["anchor"] == TEXTS[0]} == {
        *(TEXTS[1], TEXTS[2], TEXTS[4])
    }


def test_numbers_of_questions_are_not_those_of_paragraphs(
    run_program, tmp_path
):
    paragraphs = [
        {
            "context": TEXTS[n],
            "qas": [
                {
                    # The number of another paragraph, which is nearest.
                    "id": f"{(n + 1) % 3}",
                    "question": TEXTS[(n + 1) % 3],
                    "answers": [{"text": TEXTS[n][:1], "answer_start": 0}],
                }
            ],
        }
        for n in range(3)
    ]
    path = tmp_path / "squad.json"
    path.write_text(
        json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]})
    )
    done = run_program(
        PROGRAM,
        f"--model_dir={serving_models.model_dir('encoder')}",
        f"--work_dir={tmp_path}/work",
        f"--squad_files={path}",
        "--do_eval",
    )
    assert "recall@1 = 0\n" in done.stdout
    assert "under the same id" not in done.stderr


@pytest.mark.parametrize(
    "others, message",
    [
        (["--do_search", "--top_k=6"], "--top_k must be at most 5, the texts"),
        (["--do_eval", "--squad_files=a"], "--corpus_file must not be given"),
        (["--do_mine", "--output_file=a.csv"], "end with .jsonl or .tsv"),
        (
            ["--do_mine", "--queries_file=a.jsonl", "--output_file=a.jsonl"],
            "`output_file` is also one of the input files: a.jsonl",
        ),
        (
            ["--do_search", "--queries_file=./search.jsonl", "--output_dir=."],
            "`output_dir/search.jsonl` is also one of the input files: "
            "./search.jsonl",
        ),
        ([], "One of --do_eval, --do_search and --do_mine must be given"),
        (["--do_eval", "--top_k=3"], "--top_k must be given with --do_search"),
        (["--do_eval", "--range_min=3"], "--range_min must be given with --do"),
        (["--do_eval", "--corpus_file="], "--corpus_file must be given"),
    ],
)
def test_wrong_flags_are_one_line(
    run_program, files, tmp_path, others, message
):
    done = run_program(
        PROGRAM,
        *flags(files, f"--work_dir={tmp_path}/work", *others),
        check=False,
    )
    assert done.returncode == 1
    assert message in done.stderr.strip().splitlines()[-1]
    assert not (tmp_path / "work").exists()


def test_a_corpus_of_one_text_is_searched_but_not_scored(
    run_program, files, tmp_path
):
    corpus = tmp_path / "corpus.jsonl"
    write_lines(corpus, [{"_id": "c0", "text": "the fox"}])
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq0\tc0\t1")
    command = [
        *flags(files, f"--work_dir={tmp_path}/work"),
        f"--corpus_file={corpus}",
        f"--relevance_file={tmp_path}/qrels.tsv",
    ]
    done = run_program(PROGRAM, *command, "--do_eval", check=False)
    assert done.returncode == 1
    assert (
        f"{corpus}: the texts of the corpus: must be two or more, to score "
        "their ranking. Received: 1."
    ) in done.stderr.strip().splitlines()[-1]
    run_program(PROGRAM, *command, "--do_search", "--top_k=1")
    (line, *_) = (tmp_path / "work" / "search.jsonl").read_text().splitlines()
    assert [hit["id"] for hit in json.loads(line)["hits"]] == ["c0"]


def test_scores_are_kept_if_no_negative_is_found(run_program, files, tmp_path):
    done = run_program(
        PROGRAM,
        *flags(files, f"--work_dir={tmp_path}/work"),
        *("--do_eval", "--do_mine", "--relative_margin=0.99"),
        check=False,
    )
    assert done.returncode == 1
    assert "No negative was found for any" in done.stderr
    assert "MRR@10 = " in done.stdout
    results = (tmp_path / "work" / "eval_results.txt").read_text()
    assert "\nMRR@10 = " in results


def test_a_file_at_output_dir_is_told_before_the_vectors(
    run_program, files, tmp_path
):
    (tmp_path / "out").write_text("")
    done = run_program(
        PROGRAM,
        *flags(files, f"--work_dir={tmp_path}/work", "--do_search"),
        "--top_k=2",
        f"--output_dir={tmp_path}/out",
        check=False,
    )
    assert done.returncode == 1
    assert "out must be a folder, but a file is in the way" in done.stderr
    assert not (tmp_path / "work").exists()
