"""What sentence-transformers makes of a search: every query's scores.

With an environment that has it, a program:

    python sentence_search.py MODEL SETS FOLDER

SETS is a JSON file of {"queries": {id: text}, "corpus": {id: text},
"relevant": {id of a query: [ids of texts]}}. Writes the vectors to FOLDER,
queries.npy and corpus.npy, and prints JSON: {score: [of each query]}.
"""

import json
import pathlib
import sys


def main():
    import numpy as np
    import sentence_transformers
    from sentence_transformers import util
    from sentence_transformers.sentence_transformer import evaluation

    path, sets, folder = sys.argv[1:]
    model = sentence_transformers.SentenceTransformer(path, device="cpu")
    sets = json.loads(pathlib.Path(sets).read_text("utf-8"))
    queries, corpus = sets["queries"], sets["corpus"]
    vectors = {
        "queries": model.encode_query(list(queries.values())),
        "corpus": model.encode_document(list(corpus.values())),
    }
    for name, values in vectors.items():
        np.save(f"{folder}/{name}.npy", values)
    scores = util.cos_sim(vectors["queries"], vectors["corpus"]).tolist()
    ids = list(corpus)
    found = {}
    for (query, text), row in zip(queries.items(), scores):
        evaluator = evaluation.InformationRetrievalEvaluator(
            {query: text},
            corpus,
            {query: set(sets["relevant"][query])},
            precision_recall_at_k=[1, 10, 100],
            map_at_k=[len(corpus)],
        )
        hits = [
            {"corpus_id": name, "score": score} for name, score in zip(ids, row)
        ]
        told = evaluator.compute_metrics([hits])
        for k, value in told["recall@k"].items():
            found.setdefault(f"recall@{k}", []).append(float(value))
        for name, key in (("MRR@10", "mrr@k"), ("nDCG@10", "ndcg@k")):
            found.setdefault(name, []).append(float(told[key][10]))
        average = told["map@k"][len(corpus)]
        found.setdefault("MAP", []).append(float(average))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
