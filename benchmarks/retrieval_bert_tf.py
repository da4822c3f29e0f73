"""bert_tf's process of benchmarks/retrieval.py; see pretraining_worker.py."""

import json
import resource
import sys

import keras
import pretraining_worker

from bert_tf.checkpoints import starting_point
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.tasks import task_folder
from bert_tf.tasks.retrieval.task import RetrievalTask
from bert_tf.training import compiled_steps
from bert_tf.training.strategy import make_strategy


def prepare(job):
    """Returns a function that runs a given number of steps."""
    with open(job["pairs"], encoding="utf-8") as stream:
        pairs = json.load(stream)
    queries, passages = zip(*pairs)
    task = RetrievalTask(chunk_size=job["chunk_size"])
    examples = task.read(
        {"query": list(queries), "positive": list(passages)}, "train"
    )
    keras.utils.set_random_seed(1)
    start = starting_point.find(job["model_dir"])
    source = task.make_sources(
        {"train": examples},
        start.preprocessor(job["length"]),
        is_trimmed=True,
    )["train"]
    policy = "float32" if job["precision"] == "float32" else "mixed_bfloat16"
    strategy = make_strategy()
    with strategy.scope():
        model = task_folder.new_model(start, task, policy)
        optimizer = BertOptimizer(2e-5)
        optimizer.build(model.trainable_variables)
    steps = compiled_steps.CompiledSteps(model, task.objective(), optimizer)
    batches = iter(
        strategy.distribute_datasets_from_function(
            lambda context: source.training_batches(
                job["batch_size"], 0, context
            )
        )
    )
    num_made = 0

    def make_steps(count):
        nonlocal num_made
        results, _ = steps.run(strategy, batches, num_made, count)
        num_made += count
        padding = [step["metrics"]["padding"] for step in results]
        return [sum(numbers) for numbers in zip(*padding)]

    return make_steps


def main():
    job = json.loads(sys.argv[1])
    make_steps = prepare(job)
    if not job.get("is_one_step"):
        pretraining_worker.serve(make_steps, job["batch_size"])
        return
    make_steps(1)
    print("ready", flush=True)
    for _ in sys.stdin:
        # ru_maxrss is the peak so far, in kilobytes on Linux.
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps({"peak_bytes": peak}), flush=True)


if __name__ == "__main__":
    main()
