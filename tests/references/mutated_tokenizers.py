"""What `tokenizers` and transformers make of lines, for many folders.

With an environment that has transformers, a program:

    python mutated_tokenizers.py TASKS RESULTS

TASKS is a JSON file, a list of {folder, lines, special, libraries}: `lines`
names a JSON file of texts, `special` are the five special tokens. RESULTS will
be a list of {library: {mode: index}}, and the rows that the indices mean: most
tasks have the same ones. Rows are [ids, token type ids] of every text and of
every pair of `pairs`.

The modes are those of `Preprocessor`: in "all", all added tokens are found in
texts, as is the default of both libraries; in "added", the special tokens are
text there.
"""

import functools
import json
import pathlib
import sys

_HIDDEN = "\ue000"


def main():
    tasks, results = map(pathlib.Path, sys.argv[1:])
    numbers, found = {}, []
    for task in json.loads(tasks.read_text("utf-8")):
        lines, special = read_lines(task["lines"]), tuple(task["special"])
        result = {}
        for library in task["libraries"]:
            modes = LIBRARIES[library](task["folder"], lines, special)
            result[library] = {
                mode: numbers.setdefault(json.dumps(rows), len(numbers))
                for mode, rows in modes.items()
            }
        found.append(result)
    rows = [json.loads(rows) for rows in numbers]
    results.write_text(json.dumps({"results": found, "rows": rows}), "utf-8")


def pairs(lines):
    """Returns the pairs of texts: every fourth, with the next but one."""
    return list(zip(lines[::4], lines[2::4]))


@functools.cache
def read_lines(path):
    return json.loads(pathlib.Path(path).read_text("utf-8"))


def by_tokenizers(folder, lines, special):
    """Returns {mode: rows} of a folder's tokenizer.json."""
    import tokenizers

    text = (pathlib.Path(folder) / "tokenizer.json").read_text("utf-8")
    return {
        "all": _rows(tokenizers.Tokenizer.from_str(text), lines),
        "added": _rows(_without_special(text, special), lines),
    }


def by_transformers(folder, lines, special):
    """Returns {mode: rows} of transformers' AutoTokenizer."""
    import transformers

    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = []
    for texts in ([list(lines)], list(map(list, zip(*pairs(lines))))):
        found = tokenizer(*texts, return_token_type_ids=True)
        assert all(min(mask) == 1 for mask in found["attention_mask"])
        rows += zip(found["input_ids"], found["token_type_ids"])
    text = tokenizer.backend_tokenizer.to_str()
    return {
        "all": rows,
        "added": _rows(_without_special(text, special), lines),
    }


def _without_special(text, special):
    """Returns the tokenizer that takes special tokens in texts for text."""
    import tokenizers

    contents = json.loads(text)
    model = contents["model"]
    is_unigram = isinstance(model["vocab"], list)
    entries = dict(model["vocab"])
    kept = []
    for token in contents["added_tokens"]:
        if token["content"] in special:
            if token["content"] in entries:
                continue
            # Those behind it keep their ids.
            token["content"] = _HIDDEN + token["content"]
        kept.append(token)
    contents["added_tokens"] = kept
    if is_unigram:
        # Unigrams would find them, too; SentencePiece does not.
        model["vocab"] = [
            [_HIDDEN + piece if piece in special else piece, score]
            for piece, score in model["vocab"]
        ]
    return tokenizers.Tokenizer.from_str(json.dumps(contents))


def _rows(tokenizer, lines):
    # Both are the caller's choice.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    texts = [*lines, *pairs(lines)]
    return [[row.ids, row.type_ids] for row in tokenizer.encode_batch(texts)]


LIBRARIES = {"tokenizers": by_tokenizers, "transformers": by_transformers}

if __name__ == "__main__":
    main()
