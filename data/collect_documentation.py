r"""Collects English text that every machine with bert_tf has.

    bert_tf collect-documentation --output_dir=/tmp/documentation

The text is the documentation inside the installed Python: pydoc's topics, and
the docstrings of the standard library, NumPy, Keras and TensorFlow, read from
their sources. Code, tables and signatures are left out. The program writes

    corpus_train.txt, corpus_dev.txt
        one sentence a line, a blank line between documents: the input of
        create_pretraining_data. corpus_dev.txt is a held-out tenth.
    train.tsv, dev.tsv, test.tsv
        columns `text` and `library`: which library does this docstring come
        from? The docstrings of dev and test are not in corpus_train.txt.
"""

import ast
import collections
import hashlib
import importlib.util
import inspect
import pathlib
import re
import sysconfig
import warnings
from pydoc_data import topics

from absl import flags

from bert_tf import atomic
from bert_tf import files
from bert_tf import program
from bert_tf import progress_bar
from bert_tf.pretraining.sources.sentences import split_sentences

_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Folder for the files.")
LIBRARIES = ("python", "numpy", "keras", "tensorflow")
_MAX_EXAMPLES = flags.DEFINE_integer(
    "max_examples_per_library",
    3000,
    "Most labelled docstrings of one library, over train, dev and test.",
    lower_bound=10,
)
# Most words of a labelled text.
_MAX_WORDS = 40

_SKIPPED_FOLDERS = {"test", "tests", "testing", "site-packages", "idlelib"}
_CODE = re.compile(r">>>|```|::$|^\s*[-=~^*+|]{3,}|^\.\. ", re.MULTILINE)
# Nodes that hold statements; functions may be inside `if` and `except`.
_BLOCKS = (ast.stmt, ast.excepthandler, ast.match_case)
_ROLE = re.compile(r":[a-z:]+:`~?([^`<]+)[^`]*`")


def library_folder(name):
    """Returns the folder of a library's sources without importing it."""
    if name == "python":
        return pathlib.Path(sysconfig.get_paths()["stdlib"])
    return pathlib.Path(importlib.util.find_spec(name).origin).parent


def docstrings(library):
    """Yields the docstrings of modules, classes and functions, in order."""
    paths = _source_files(library_folder(library))
    with progress_bar.track(
        paths, f"read {library}", len(paths), " files"
    ) as tracked:
        for path in tracked:
            try:
                with warnings.catch_warnings():
                    # Old sources have escapes that newer Pythons warn about.
                    warnings.simplefilter("ignore")
                    tree = ast.parse(path.read_text("utf-8"))
            except (SyntaxError, UnicodeDecodeError):
                continue
            yield from _docstrings_of(tree)


def _source_files(folder):
    """Returns the paths of a library's sources, without its tests, sorted."""
    return [
        path
        for path in sorted(folder.rglob("*.py"))
        if not _SKIPPED_FOLDERS & {*path.relative_to(folder).parts}
        and not path.name.startswith("test")
    ]


def _docstrings_of(tree):
    for node in _statements(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring:
                yield docstring


def _statements(node):
    """Yields a tree's statements, in `ast.walk`'s order.

    Most nodes are expressions, which hold no docstrings.
    """
    nodes = collections.deque([node])
    while nodes:
        node = nodes.popleft()
        yield node
        for field in node._fields:
            if isinstance(children := getattr(node, field, None), list):
                nodes.extend(c for c in children if isinstance(c, _BLOCKS))


def prose(text):
    """Returns the paragraphs that read as English, each on one line."""
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if _CODE.search(paragraph):
            continue
        paragraph = _ROLE.sub(r"\1", paragraph)
        paragraph = paragraph.replace("`", "").replace("*", "")
        paragraph = " ".join(paragraph.split())
        letters = sum(c.isalpha() or c == " " for c in paragraph)
        if paragraph.count(" ") >= 5 and letters >= 0.9 * len(paragraph):
            paragraphs.append(paragraph)
    return paragraphs


def bucket(text):
    """Returns 0 to 9 from the text alone, the same on every machine."""
    return hashlib.sha256(text.encode("utf-8")).digest()[0] % 10


def collect(libraries, max_examples):
    """Returns {part: [paragraphs]} and {part: [(text, library)]}."""
    documents = {"train": [], "dev": [], "test": []}
    examples = {"train": [], "dev": [], "test": []}
    seen = set()
    for text in topics.topics.values():
        documents["train"].append(prose(text))
    for library in libraries:
        labelled = []
        for docstring in docstrings(library):
            paragraphs = prose(docstring)
            text = " ".join(" ".join(paragraphs).split()[:_MAX_WORDS])
            # Wrappers repeat the docstring of the function they wrap.
            if not text or text in seen:
                continue
            seen.add(text)
            part = {8: "dev", 9: "test"}.get(bucket(text), "train")
            labelled.append((part, text))
            documents[part].append(paragraphs)
        # Sorted by hash: a random choice, whatever the place in the library.
        labelled.sort(
            key=lambda pair: hashlib.sha256(pair[1].encode()).digest()
        )
        for part, text in labelled[:max_examples]:
            examples[part].append((text, library))
    for rows in examples.values():
        rows.sort(key=lambda row: hashlib.sha256(row[0].encode()).digest())
    return documents, examples


def write_corpus(name, documents):
    blocks = []
    num_sentences = 0
    for paragraphs in documents:
        sentences = [s for p in paragraphs for s in split_sentences(p)]
        if sentences:
            blocks.append("\n".join(sentences) + "\n")
            num_sentences += len(sentences)
    corpus = "\n".join(blocks)
    atomic.write_text(f"{_OUTPUT_DIR.value}/{name}", corpus)
    print(
        f"{name}: {len(blocks):,} documents, {num_sentences:,} sentences, "
        f"{len(corpus) / 1e6:.1f} MB"
    )


def main(_):
    program.require(output_dir=_OUTPUT_DIR.value)
    # Collecting takes seconds, and would be in vain.
    files.make_folder(_OUTPUT_DIR.value)
    documents, examples = collect(LIBRARIES, _MAX_EXAMPLES.value)
    for part in ("train", "dev"):
        write_corpus(f"corpus_{part}.txt", documents[part])
    for part, rows in examples.items():
        lines = ["text\tlibrary", *("\t".join(row) for row in rows)]
        atomic.write_text(
            f"{_OUTPUT_DIR.value}/{part}.tsv", "\n".join(lines) + "\n"
        )
        counts = collections.Counter(library for _, library in rows)
        print(
            f"{part}.tsv: {len(rows):,} docstrings: "
            + ", ".join(f"{name} {counts[name]:,}" for name in LIBRARIES)
        )


if __name__ == "__main__":
    program.run(main)
