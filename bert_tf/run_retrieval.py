r"""Tunes sentence embeddings: search, similarity, SimCSE.

    python -m bert_tf.run_retrieval --train_file=squad/train-v1.1.json \
        --eval_file=squad/dev-v1.1.json --corpus_file=squad/train-v1.1.json \
        --init_checkpoint=uncased_L-12_H-768_A-12 --output_dir=embeddings \
        --train_batch_size=64 --learning_rate=2e-5 --num_train_epochs=1 \
        --do_train --do_eval

reads pairs of a query and its positive (perhaps with hard negatives), scored
pairs, NLI, SQuAD's questions or single texts, from .tsv, .csv, .jsonl,
.parquet, .json and .txt files (see `tasks.retrieval.files`). It writes into
--output_dir the tuned model as a model folder that sentence-transformers reads
too (modules.json and 1_Pooling beside config.json, model.safetensors and the
tokenizer), the state of the training in train/, the scores of --eval_file in
eval_results.txt, and a report with the worst queries in report.md. For scored
pairs, the scores are Spearman's and Pearson's correlations; otherwise recall,
MRR@10, nDCG@10 and MAP over all passages of --eval_file and --corpus_file. The
cosines of the pairs of --test_file are written to test_results.tsv.

Rerun the same command to resume after a stop, or after the end with more
--num_train_epochs.
"""

from absl import flags
from absl import logging

from bert_tf import fine_tuning_flags
from bert_tf import program
from bert_tf import training_flags
from bert_tf.tasks.retrieval import options

_TRAIN_FILE = flags.DEFINE_string(
    "train_file",
    None,
    "File to train on: .tsv, .csv, .jsonl or .parquet; SQuAD's .json; with "
    "--loss=simcse also .txt, one text a line.",
)
_EVAL_FILE = flags.DEFINE_string(
    "eval_file",
    None,
    "File for --do_eval: scored pairs, or queries with passages.",
)
_CORPUS_FILE = flags.DEFINE_list(
    "corpus_file",
    [],
    "Files, comma-separated, of further passages that the queries of "
    "--eval_file are compared with: SQuAD's .json, .txt, BEIR's corpus.jsonl, "
    "or a table with `text`.",
)
_TEST_FILE = flags.DEFINE_string(
    "test_file", None, "File for --do_predict: pairs of texts."
)
# The files of the training, development and test sets.
_FILES = (_TRAIN_FILE, _EVAL_FILE, _TEST_FILE)
_TEXT_COLUMNS = flags.DEFINE_list(
    "text_columns",
    [],
    "Names of the columns of texts, comma-separated: query, positive, "
    "negatives. Default: query (or anchor), positive, negative...; sentence1 "
    "and sentence2; or text. For scored pairs in --eval_file and for "
    "--test_file, the first two are used if the file has them.",
)
_SCORE_COLUMN = flags.DEFINE_string(
    "score_column", "score", "Name of the column of human scores."
)
_MAX_SCORE = flags.DEFINE_float(
    "max_score",
    1.0,
    "Divisor of the scores in --score_column, e.g. 5 for STS-B; --loss=cosine "
    "takes the result as cosines.",
)
_LOSS = flags.DEFINE_enum(
    "loss",
    options.MULTIPLE_NEGATIVES,
    options.LOSSES,
    "multiple_negatives: find the positive among all passages of the batch. "
    "simcse: find the same text under another dropout. cosent: order scored "
    "pairs. cosine: the cosine is the score. triplet: the positive is nearer "
    "than the negative by --margin.",
)
_POOLING = flags.DEFINE_enum(
    "pooling",
    None,
    ["mean", "cls", "max"],
    "How the vectors of tokens become one. Default: as a checkpoint of "
    "sentence-transformers says; otherwise cls with --loss=simcse, mean with "
    "all others.",
)
_NORMALIZE = flags.DEFINE_bool(
    "normalize",
    None,
    "Whether vectors are divided by their length. Default: as a checkpoint of "
    "sentence-transformers says; otherwise false with --loss=triplet, true "
    "with all others.",
)
_HEAD = flags.DEFINE_enum(
    "head",
    None,
    options.HEADS,
    "dense: a dense layer with tanh on the pooled vector. training_dense: the "
    "same, but left out after training. Default: as a checkpoint of "
    "sentence-transformers says; otherwise training_dense with --loss=simcse, "
    "none with all others.",
)
_DENSE_SIZE = flags.DEFINE_integer(
    "dense_size",
    None,
    "Number of outputs of the dense layer. Default: the checkpoint's, "
    "otherwise the hidden size.",
    lower_bound=1,
)
_SCALE = flags.DEFINE_float(
    "scale",
    20.0,
    "Factor of the cosines in multiple_negatives, simcse and cosent: the "
    "inverse of a temperature.",
)
_MARGIN = flags.DEFINE_float(
    "margin",
    5.0,
    "With --loss=triplet: how much nearer than the negative the positive must "
    "be.",
)
_SYMMETRIC = flags.DEFINE_bool(
    "symmetric", False, "Whether a positive must find its query, too."
)
_HARD_NEGATIVE_WEIGHT = flags.DEFINE_float(
    "hard_negative_weight",
    0.0,
    "Added to the logits of a query's own hard negatives.",
)
_MATRYOSHKA_SIZES = flags.DEFINE_list(
    "matryoshka_sizes",
    [],
    "E.g. 384,256,128,64: the loss is summed over the vectors cut to each of "
    "these sizes, so that the tuned model's vectors may be cut to them, too.",
)
_TRUNCATE_DIM = flags.DEFINE_integer(
    "truncate_dim",
    None,
    "The tuned model keeps only this many first numbers of a vector; 0: all. "
    "It is trained with all. Default: as a checkpoint of sentence-transformers "
    "says; otherwise all.",
    lower_bound=0,
)
_QUERY_PROMPT = flags.DEFINE_string(
    "query_prompt", None, 'Text to put before each query, e.g. "query: ".'
)
_PASSAGE_PROMPT = flags.DEFINE_string(
    "passage_prompt", None, "Text to put before each passage."
)
_CHUNK_SIZE = flags.DEFINE_integer(
    "chunk_size",
    None,
    "Number of texts in memory at once. This allows batches of thousands, "
    "whose texts are all negatives, and costs one more forward pass.",
)
_METRIC = flags.DEFINE_string(
    "metric",
    None,
    "With --do_eval: the score that --keep_best compares: spearman, pearson; "
    "nDCG@10, MRR@10, recall@1, recall@10, recall@100, MAP. Default: spearman "
    "for scored pairs, otherwise nDCG@10.",
)

# (flag, losses that it applies to).
_FLAGS_OF_LOSSES = (
    (_SCALE, options.IN_BATCH),
    (_MARGIN, (options.TRIPLET,)),
    (_SYMMETRIC, (options.MULTIPLE_NEGATIVES,)),
    (_HARD_NEGATIVE_WEIGHT, (options.MULTIPLE_NEGATIVES,)),
)
# (flag, field of the task), for what the folder of a tuned model holds.
_STORED = (
    (_LOSS, "loss_name"),
    (_POOLING, "pooling"),
    (_NORMALIZE, "is_normalized"),
    (_HEAD, "head"),
    (_DENSE_SIZE, "dense_size"),
    (_SCALE, "scale"),
    (_MARGIN, "margin"),
    (_SYMMETRIC, "is_symmetric"),
    (_HARD_NEGATIVE_WEIGHT, "hard_negative_weight"),
    (_MATRYOSHKA_SIZES, "matryoshka_sizes"),
    (_TRUNCATE_DIM, "truncate_dim"),
    (_QUERY_PROMPT, "query_prompt"),
    (_PASSAGE_PROMPT, "passage_prompt"),
)


def main(argv):
    del argv
    logging.set_verbosity(logging.INFO)
    config = fine_tuning_flags.make_config()
    sizes = _check_flags(config)

    from bert_tf.tasks import task_folder
    from bert_tf.tasks.retrieval.task import RetrievalTask
    from bert_tf.tuning import tuning_run

    _check_scores_are_read(config)
    strategy = training_flags.make_strategy()
    folder, stored = tuning_run.tuned_folder(config), None
    if folder is not None:
        stored = task_folder.stored_task(folder, RetrievalTask)
    task = _make_task(config, folder, stored, sizes)
    examples = {
        split: task.read(path, split, _SCORE_COLUMN.value)
        for split, path in fine_tuning_flags.wanted_files(
            config, *_FILES
        ).items()
    }
    fine_tuning_flags.execute(config, task, examples, strategy)


def _check_flags(config):
    """Checks the flags; returns --matryoshka_sizes as numbers."""
    fine_tuning_flags.require_files(config, *_FILES)
    for flag in (_CORPUS_FILE, _METRIC):
        if flag.value and not config.do_eval:
            raise ValueError(f"--{flag.name} must be given with --do_eval.")
    for flag, losses in _FLAGS_OF_LOSSES:
        if config.do_train and flag.present and _LOSS.value not in losses:
            raise ValueError(
                f"--{flag.name} must be given with --loss={', '.join(losses)}. "
                f"Received: --loss={_LOSS.value}."
            )
    if _CHUNK_SIZE.present and not config.do_train:
        raise ValueError("--chunk_size must be given with --do_train.")
    if config.gradient_accumulation_steps > 1 and _CHUNK_SIZE.value:
        raise ValueError(
            "--gradient_accumulation_steps must not be given with --chunk_size."
        )
    return program.numbers(_MATRYOSHKA_SIZES)


def _check_scores_are_read(config):
    """Raises `ValueError` if a flag describes scores that nothing reads."""
    from bert_tf.tasks.retrieval import files

    given = [flag.name for flag in (_SCORE_COLUMN, _MAX_SCORE) if flag.present]
    if (
        not given
        or (config.do_train and _LOSS.value in options.SCORED)
        or (
            config.do_eval
            and files.has_scores(_EVAL_FILE.value, _SCORE_COLUMN.value)
        )
    ):
        return
    raise ValueError(
        f"--{given[0]} must be given with --do_train and --loss="
        f"{' or '.join(options.SCORED)}, or with --do_eval and an --eval_file "
        f"that has the column {_SCORE_COLUMN.value!r}. "
        f"Received: --loss={_LOSS.value}, --eval_file={_EVAL_FILE.value}."
    )


def _check_is_stored(stored, sizes):
    """Raises `ValueError` if a flag contradicts the tuned model's task."""
    for flag, field in _STORED:
        value, wanted = flag.value, getattr(stored, field)
        if flag is _MATRYOSHKA_SIZES:
            value = sizes
        elif flag is _TRUNCATE_DIM:
            wanted = wanted or 0
        program.check_as_tuned(flag, value == wanted, repr(wanted), str(value))


def _check_is_trainable(folder, vectors):
    """Raises `ValueError` if no --head is like the checkpoint's layers."""
    if not vectors.is_trainable:
        found = [
            f"{each.activation} with{'out' * (each.bias is None)} a bias"
            for each in vectors.dense
        ]
        raise ValueError(
            f"{folder}: its Dense layers must be one, tanh with a bias: no "
            "other can be trained. --head=dense begins with a new one, "
            f"--head=none has none. Received: {', '.join(found)}."
        )


def _make_task(config, folder, stored, sizes):
    """Returns the `RetrievalTask` that the flags ask for.

    Args:
        config: The `FineTuningConfig`.
        folder: The folder of the tuned model; None if one is to be trained.
        stored: The task in that folder; None if it has none or a model is to be
            trained.
        sizes: The numbers in --matryoshka_sizes.
    """
    import dataclasses

    from bert_tf.checkpoints import sentence_folder
    from bert_tf.tasks.retrieval import files
    from bert_tf.tasks.retrieval.task import RetrievalTask

    values = {
        "max_score": _MAX_SCORE.value,
        "text_columns": tuple(_TEXT_COLUMNS.value),
        "corpus": tuple(_CORPUS_FILE.value),
        "metric": _METRIC.value,
    }
    if config.do_eval and values["metric"] is None:
        is_scored = files.has_scores(_EVAL_FILE.value, _SCORE_COLUMN.value)
        values["metric"] = "spearman" if is_scored else "nDCG@10"
    if stored is not None:
        stored = stored.with_checkpoint_fields(folder)
        _check_is_stored(stored, sizes)
        return dataclasses.replace(stored, **values)
    if folder is None and config.init_checkpoint is not None:
        from bert_tf.checkpoints import hub

        folder = hub.local_path(config.init_checkpoint)
    vectors = None if folder is None else sentence_folder.read(folder)
    task = RetrievalTask(
        loss_name=_LOSS.value,
        scale=_SCALE.value,
        margin=_MARGIN.value,
        is_symmetric=_SYMMETRIC.value,
        hard_negative_weight=_HARD_NEGATIVE_WEIGHT.value,
        matryoshka_sizes=sizes,
        truncate_dim=_TRUNCATE_DIM.value,
        chunk_size=_CHUNK_SIZE.value,
        **_vector_fields(folder, vectors),
        **values,
    )
    return task.with_truncate_dim_of(folder, vectors)


def _vector_fields(folder, vectors):
    """Returns the task's fields on how vectors are made, by name.

    A flag overrides the checkpoint. A field that neither sets is None, for
    which the task has a default.

    Args:
        folder: The checkpoint's folder, or None.
        vectors: Its `SentenceVectors`, or None.
    """
    pooling = is_normalized = head = dense_size = None
    prompts = ["", ""]
    if vectors is not None:
        pooling, is_normalized = vectors.pooling, vectors.is_normalized
        prompts = [vectors.query_prompt, vectors.passage_prompt]
        if vectors.dense:
            head = options.DENSE
            dense_size = vectors.dense_size
    if _HEAD.value is not None:
        head = _HEAD.value
    if head == options.NO_HEAD:
        dense_size = None
    if _NORMALIZE.value is not None:
        is_normalized = _NORMALIZE.value
    prompts = [
        default if flag.value is None else flag.value
        for flag, default in zip((_QUERY_PROMPT, _PASSAGE_PROMPT), prompts)
    ]
    if vectors is not None and not vectors.include_prompt and any(prompts):
        raise ValueError(
            f"{folder}: its prompts are left out of the pooling "
            "(include_prompt: false), which is not done here. --query_prompt "
            "and --passage_prompt must be empty. "
            f"Received: {', '.join(map(repr, prompts))}."
        )
    if vectors is not None and _HEAD.value is None:
        _check_is_trainable(folder, vectors)
    return {
        "pooling": _POOLING.value or pooling,
        "is_normalized": is_normalized,
        "head": head,
        "dense_size": _DENSE_SIZE.value or dense_size,
        "query_prompt": prompts[0],
        "passage_prompt": prompts[1],
    }


if __name__ == "__main__":
    program.run(main)
