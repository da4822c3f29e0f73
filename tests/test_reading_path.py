"""The files that docs/architecture.md lists to read a training step."""

import io
import pathlib
import re
import tokenize

from test_house import loaded_by

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = pathlib.Path("bert_tf")
# What a step consists of; the rest is found by the imports.
ENDS = ("models/pretrainer.py", "training/step.py", "optimizers/bert.py")


def tables():
    """Returns the names in the first column of each table of the section."""
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    section = text.split("## A training step, file by file")[1].split("\n## ")[
        0
    ]
    path, rooms = section.split("These load a few rooms more")
    return [
        [
            name
            for row in re.findall(r"^\| (`[^|]*) \|", part, re.MULTILINE)
            for name in re.findall(r"`([^`]*)`", row)
        ]
        for part in (path, rooms)
    ]


def count_code_lines(path):
    """Returns the lines that have code: no comments, docstrings and blanks."""
    lines, is_statement = set(), True
    skipped = (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    )
    text = (ROOT / PACKAGE / path).read_text("utf-8")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in skipped:
            continue
        if token.type == tokenize.NEWLINE:
            is_statement = True
            continue
        # A string that begins a statement is a docstring.
        if not (is_statement and token.type == tokenize.STRING):
            lines |= set(range(token.start[0], token.end[0] + 1))
        is_statement = False
    return len(lines)


def test_the_path_is_short():
    path, _ = tables()
    assert len(path) <= 14
    assert sum(map(count_code_lines, path)) <= 1700


def test_the_tables_have_all_files_that_a_step_loads():
    loaded = set()
    for end in ENDS:
        loaded |= loaded_by(PACKAGE / end)
    path, rooms = tables()
    names = {
        str(each.relative_to(PACKAGE))
        for each in loaded
        if each.name != "__init__.py"
    }
    # Those of `import bert_tf` itself.
    names -= {"keras_files.py", "lazy.py"}
    assert sorted(path + rooms) == sorted(names)
