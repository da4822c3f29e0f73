"""Options of searches and of mining negatives, without TensorFlow."""

import dataclasses
import math
from collections.abc import Sequence

from bert_tf import atomic
from bert_tf import described
from bert_tf import files
from bert_tf.tasks.features import options as feature_options

RANGE_MAX = 100

COSINE, DOT = "cosine", "dot"
SIMILARITIES = (COSINE, DOT)
# What a search writes.
HITS_FILE = "search.jsonl"
RESULTS_FILE = "eval_results.txt"
REPORT_FILE = "report.md"
QUERIES_FILE = "query_scores.tsv"


def _rule(default, text, values=None):
    return described.option(
        default, text, values, only_with={"do_mine": (True,)}
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """Which texts are negatives of a query and a relevant text.

    The fields are described by the help of their flags.

    Raises:
        ValueError: If a value is out of its range; it names the field.
    """

    num_negatives: int = _rule(
        1,
        "Most negatives for a query and a relevant text.",
        described.POSITIVE,
    )
    range_min: int = _rule(
        0,
        "How many of the highest-ranked texts to skip.",
        described.Range("from 0 to 99", lambda value: 0 <= value < RANGE_MAX),
    )
    # How many of the highest-ranked texts are considered, with those skipped.
    range_max: int = RANGE_MAX
    relative_margin: float | None = _rule(
        None,
        "How far the score of a negative must be below that of the relevant "
        "text, as a share of it.",
        described.Range("in [0, 1)", lambda value: 0 <= value < 1),
    )

    def __post_init__(self):
        described.check(self)

    def highest(self, positive: float) -> float:
        """Returns the highest score that a negative may have.

        Args:
            positive: The score of the relevant text.
        """
        if self.relative_margin is None:
            return math.inf
        # Of the absolute value: a negative score is also undercut.
        return positive - self.relative_margin * abs(positive)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions(Rules):
    """What is searched for in what, with which model.

    The fields are described by the help of their flags.

    Raises:
        ValueError: If a value is out of its range or two values do not fit
            together; the message names the flags.
    """

    model_dir: str | None = described.option(
        None,
        "A model folder of sentence-transformers, bert_tf or Hugging Face, or "
        "the name of a model on the Hub.",
    )
    work_dir: str | None = described.option(
        None,
        "Folder of the vectors; each model needs its own.",
    )
    output_dir: str | None = described.option(
        None, "Folder of the results. Default: --work_dir."
    )
    output_file: str | None = described.option(
        None,
        "The .jsonl or .tsv of triplets that --do_mine writes. Default: "
        "triplets.jsonl in --output_dir.",
        only_with={"do_mine": (True,)},
    )
    corpus_file: str | None = described.option(
        None, "BEIR's corpus.jsonl: _id, title, text."
    )
    queries_file: str | None = described.option(
        None, "BEIR's queries.jsonl: _id, text."
    )
    relevance_file: str | None = described.option(
        None,
        "BEIR's qrels: query-id, corpus-id, score, with tabs and a header.",
    )
    squad_files: Sequence[str] = described.option(
        (),
        "SQuAD's files instead of --corpus_file, --queries_file and "
        "--relevance_file, comma-separated: the questions of the first file, "
        "the paragraphs of all.",
    )
    do_eval: bool = described.option(False, "Whether to score the search.")
    do_search: bool = described.option(
        False, "Whether to write the best texts for every query."
    )
    do_mine: bool = described.option(False, "Whether to mine negatives.")
    top_k: int = described.option(
        10,
        "Texts a query for --do_search to write.",
        described.POSITIVE,
        only_with={"do_search": (True,)},
    )
    pooling: str | None = described.option(
        None,
        "How vectors of tokens become one. Default: as the folder says, "
        "otherwise their mean.",
        choices=feature_options.POOLING[1:],
    )
    normalize: bool | None = described.option(
        None,
        "Whether a vector is divided by its length. Default: as the folder "
        "says, otherwise false.",
    )
    max_seq_length: int | None = described.option(
        None,
        "Longest sequence, in word pieces. Default: as the folder says.",
        described.Range("3 or more", lambda value: value >= 3),
    )
    query_prompt: str | None = described.option(
        None,
        "Text to put before a query. Default: the folder's prompt `query`, "
        "otherwise its default prompt.",
    )
    passage_prompt: str | None = described.option(
        None,
        "Text to put before a text of the corpus. Default: the folder's prompt "
        "`document`, `passage` or `corpus`, otherwise its default prompt.",
    )
    precision: str = described.option(
        "float32",
        "Arithmetic of the model; vectors are always float32. On GPUs, float32 "
        "is never computed in TF32.",
        choices=("float32", "bfloat16"),
    )
    batch_size: int = described.option(32, "Texts a step.", described.POSITIVE)

    def __post_init__(self):
        super().__post_init__()
        if not (self.do_eval or self.do_search or self.do_mine):
            raise ValueError(
                "One of --do_eval, --do_search and --do_mine must be given."
            )
        self._check_inputs()
        check_triplets_file(self.triplets_path)
        self._check_written_files()

    def _check_inputs(self):
        """Raises `ValueError` if there is nothing to search, or twice."""
        beir = self._beir
        if self.squad_files:
            for name, value in beir.items():
                if value:
                    raise ValueError(
                        f"--{name} must not be given with --squad_files. "
                        f"Received: --{name}={value}."
                    )
        else:
            if not (self.do_eval or self.do_mine):
                del beir["relevance_file"]
            _require(**beir)
        _require(work_dir=self.work_dir)

    def _check_written_files(self):
        """Raises `ValueError` if a written file would replace another one."""
        inputs = [*filter(None, self._beir.values()), *self.squad_files]
        names = [HITS_FILE] if self.do_search else []
        if self.do_eval:
            names += [RESULTS_FILE, REPORT_FILE, QUERIES_FILE]
        results = {name: f"{self.results_dir}/{name}" for name in names}
        for name, path in results.items():
            atomic.check_is_no_input(f"output_dir/{name}", [path], inputs)
        if self.do_mine:
            inputs += results.values()
            written = [self.triplets_path]
            atomic.check_is_no_input("output_file", written, inputs)

    @property
    def _beir(self):
        names = ("corpus_file", "queries_file", "relevance_file")
        return {name: getattr(self, name) for name in names}

    @property
    def results_dir(self) -> str:
        """The folder of the results."""
        return (self.output_dir or self.work_dir or "").rstrip("/")

    @property
    def triplets_path(self) -> str:
        """The file of mined triplets."""
        return self.output_file or f"{self.results_dir}/triplets.jsonl"


def _require(**values):
    for name, value in values.items():
        if not value:
            raise ValueError(f"--{name} must be given.")


def check_triplets_file(path: files.AnyPath) -> None:
    """Raises `ValueError` if triplets cannot be written to such a file."""
    if not str(path).endswith((".jsonl", ".tsv")):
        raise ValueError(
            "The file of triplets must end with .jsonl or .tsv. "
            f"Received: {path}."
        )
