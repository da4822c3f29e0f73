"""What `tokenizers` and transformers make of lines, for many folders.

With an environment that has transformers, a program:

    python mutated_tokenizers.py TASKS RESULTS

TASKS is a JSON file, a list of {folder, lines, special}: `lines` names a JSON
file of texts, `special` are the five special tokens. RESULTS will be a list of
{library: {mode: index, ...}} or {library: {"error": text}}, and the list of
rows that the indices mean: most tasks have the same ones. Rows are [ids, token
type ids] of every text; after those of the texts come those of each text with
the next.

The modes are those of `Preprocessor`: in "all", all added tokens are found in
texts, as is the default of both libraries; in "added", the special tokens are
text there.
"""

import functools
import json
import pathlib
import sys

MODES = {"all", "added"}
_HIDDEN = "\ue000"


def main():
    tasks, results = map(pathlib.Path, sys.argv[1:])
    numbers = {}
    found = [results_of(task) for task in json.loads(tasks.read_text("utf-8"))]
    for result in found:
        for library in result.values():
            for mode in MODES & library.keys():
                rows = json.dumps(library[mode])
                library[mode] = numbers.setdefault(rows, len(numbers))
    rows = [json.loads(rows) for rows in numbers]
    results.write_text(json.dumps({"results": found, "rows": rows}), "utf-8")


def results_of(task):
    """Returns what both libraries make of a task."""
    lines = tuple(read_lines(task["lines"]))
    special = tuple(task["special"])
    return {
        "tokenizers": _guarded(by_tokenizers, task["folder"], lines, special),
        "transformers": _guarded(
            by_transformers, task["folder"], lines, special
        ),
    }


def _guarded(function, *arguments):
    try:
        return function(*arguments)
    # Whatever it is, that library does not read the folder. A panic of
    # `tokenizers` is no Exception.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return {"error": f"{type(error).__name__}: {error}"[:300]}


@functools.cache
def read_lines(path):
    return json.loads(pathlib.Path(path).read_text("utf-8"))


def by_tokenizers(folder, lines, special):
    """Returns {mode: rows} of a folder's tokenizer.json."""
    text = (pathlib.Path(folder) / "tokenizer.json").read_text("utf-8")
    return _both_modes(text, lines, special)


def by_transformers(folder, lines, special):
    """Returns {mode: rows} and facts of transformers' AutoTokenizer."""
    import transformers

    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = []
    for second in (None, list(lines[1:] + lines[:1])):
        found = tokenizer(list(lines), second, return_token_type_ids=True)
        assert all(min(mask) == 1 for mask in found["attention_mask"] if mask)
        rows += zip(found["input_ids"], found["token_type_ids"])
    modes = _both_modes(tokenizer.backend_tokenizer.to_str(), lines, special)
    return {
        "all": rows,
        "added": modes["added"],
        "class": type(tokenizer).__name__,
        "model_input_names": tokenizer.model_input_names,
    }


def _both_modes(text, lines, special):
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_str(text)
    ids = tokenizer.get_vocab(with_added_tokens=True)
    size = tokenizer.get_vocab_size(with_added_tokens=False)
    return {
        "all": _rows(tokenizer, lines),
        "added": [
            # An added token beyond the model's may have another id there.
            [[i if i < size else ids[t] for i, t in zip(row, tokens)], types]
            for row, types, tokens in _rows_with_tokens(
                _without_special(text, special), lines
            )
        ],
    }


def _without_special(text, special):
    """Returns the tokenizer that takes special tokens in texts for text."""
    import tokenizers

    contents = json.loads(text)
    contents["added_tokens"] = [
        token
        for token in contents["added_tokens"]
        if token["content"] not in special
    ]
    model = contents["model"]
    if isinstance(model["vocab"], list):
        # Unigrams would find them, too; SentencePiece does not.
        model["vocab"] = [
            [_HIDDEN + piece if piece in special else piece, score]
            for piece, score in model["vocab"]
        ]
    return tokenizers.Tokenizer.from_str(json.dumps(contents))


def _encode(tokenizer, lines):
    # Both are the caller's choice.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    pairs = list(zip(lines, lines[1:] + lines[:1]))
    return tokenizer.encode_batch(list(lines)) + tokenizer.encode_batch(pairs)


def _rows(tokenizer, lines):
    return [[row.ids, row.type_ids] for row in _encode(tokenizer, lines)]


def _rows_with_tokens(tokenizer, lines):
    return [
        [row.ids, row.type_ids, row.tokens]
        for row in _encode(tokenizer, lines)
    ]


if __name__ == "__main__":
    main()
