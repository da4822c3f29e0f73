"""Every mutation of a tokenizer's folder is read right, or refused.

    python -m pytest -m peers tests/text/test_tokenizer_mutations.py

compares all that are read with `tokenizers` and transformers; without
`-m peers`, a few of them with `tokenizers`.
"""

import functools
import json
import re
from typing import NamedTuple

import pytest
import tensorflow as tf

from bert_tf.text.preprocessor import Preprocessor
from references import mutated_tokenizers as peer
from support import mutation_bases as bases
from support import peers
from support.tokenizer_mutations import MUTATIONS
from support.tokenizer_mutations import READ
from support.tokenizer_mutations import REFUSED
from support.tokenizer_mutations import SETTINGS
from support.tokenizer_mutations import TOKENIZERS
from support.tokenizer_mutations import folder_of

REFUSED_ONES = [each for each in MUTATIONS if each.outcome == REFUSED]
READ_ONES = [each for each in MUTATIONS if each.outcome == READ]
# Of all kinds.
SAMPLE = [each for each in READ_ONES if TOKENIZERS in each.references][::23]
# {mode of the references: arguments of ours}
MODES = {"added": {}, "all": {"tokens_in_text": "all"}}


class Otherwise(NamedTuple):
    """Lines in which ours differ from a reference on purpose, and why."""

    why: str
    lines: str
    bases: tuple[str, ...]
    modes: tuple[str, ...] = ("added", "all")
    files: tuple[str, ...] = ()
    mutation: str = ""


# Classes whose tokenizers in transformers 5 give a model no token types by
# default, whatever tokenizer.json says.
WITHOUT_TYPES = (
    "DistilBertTokenizer",
    "DistilBertTokenizerFast",
    "PreTrainedTokenizerFast",
    "TokenizersBackend",
    "ATokenizerOfTheirOwn",
)
_ALBERT = (bases.ALBERT_JSON, bases.ALBERT_FILES)
# The first three are of folders without one of the files named.
OTHERWISE = (
    Otherwise(
        "without a tokenizer.json, words have up to 200 characters as in "
        "google-research/bert; 100 in transformers",
        r"\w{101}",
        (bases.UNCASED_FILES, bases.CASED, bases.GOOGLE),
        files=("tokenizer.json",),
    ),
    Otherwise(
        'pieces like "5," are split as in google-research/albert, and in '
        "transformers before version 5",
        r"\d,",
        (bases.ALBERT_FILES,),
        files=("tokenizer.json",),
    ),
    Otherwise(
        "<mask> takes the space before it in every tokenizer.json of a "
        "released model; in transformers 5 only where a file says so",
        "<mask>",
        (bases.ROBERTA_FILES,),
        ("all",),
        files=("tokenizer_config.json",),
    ),
    Otherwise(
        "a special token that lower case or `single_word` makes text is text, "
        "as SentencePiece has it; `tokenizers` finds it among the pieces",
        "<PAD>|<UNK>",
        _ALBERT,
        ("all",),
    ),
    Otherwise(
        "the same",
        r"\w<mask>|<mask>\w",
        (bases.XLM_ROBERTA,),
        ("all",),
    ),
    Otherwise(
        "beside SentencePiece's file alone, transformers 5 loses the tokens of "
        "special_tokens_map.json, which transformers 4 has",
        re.escape("[E1]"),
        (bases.ALBERT_FILES, bases.XLM_ROBERTA_FILES),
        mutation="special_tokens_map.json$",
    ),
)


def names(mutations):
    return [mutation.name for mutation in mutations]


def test_the_list_is_long_and_its_names_tell_apart():
    assert len(READ_ONES) > 300 and len(REFUSED_ONES) > 300
    assert len(set(names(MUTATIONS))) == len(MUTATIONS)
    for base in bases.NAMES:
        assert len(bases.lines_of(base)) >= 200
        assert any(each.base == base for each in READ_ONES)


@pytest.mark.parametrize("mutation", REFUSED_ONES, ids=names(REFUSED_ONES))
def test_what_is_refused(tmp_path, mutation):
    folder = bases.write(folder_of(mutation), tmp_path / "folder")
    with pytest.raises(ValueError) as caught:
        Preprocessor.from_folder(folder)
    message = str(caught.value)
    assert "\n" not in message
    settings = {
        part
        for place in mutation.changes
        for part in place.partition(": ")[2].split(".")
    }
    assert re.search(r"\.(json|txt|model)\b", message) or any(
        name in message for name in settings - {""}
    )


@functools.cache
def rows_of_spec(spec, base):
    """Returns what a `Preprocessor` makes of a base's lines and their pairs.

    Most mutations have equal specs, which alone tell what it makes.
    """
    preprocessor = Preprocessor(spec, bases.MAX_LENGTH)
    lines = bases.lines_of(base)
    pairs = zip(*peer.pairs(lines))
    rows = []
    for texts in (tf.constant(lines), tuple(map(tf.constant, pairs))):
        inputs = preprocessor(texts)
        ids, mask, types = (
            inputs[name].numpy().tolist()
            for name in ("input_ids", "input_mask", "segment_ids")
        )
        for row, length in enumerate(map(sum, mask)):
            assert 0 not in mask[row][:length]
            rows.append([ids[row][:length], types[row][:length]])
    return rows


def with_types(mutation, rows):
    """Returns rows of a reference with the token types that a model reads."""
    settings = folder_of(mutation).get(SETTINGS) or {}
    names_of_inputs = settings.get("model_input_names")
    if names_of_inputs:
        is_given = "token_type_ids" in names_of_inputs
    else:
        # Models without segments do not look at them.
        is_given = (
            mutation.base not in (bases.UNCASED, bases.CASED)
            or mutation.name.endswith(": distilbert")
            or settings.get("tokenizer_class") not in WITHOUT_TYPES
        )
    if not is_given:
        # Models feed zeros for what is not there.
        return [[ids, [0] * len(ids)] for ids, _ in rows]
    return rows


def is_otherwise(text, mutation, mode):
    """Returns whether ours differ on purpose in a line or a pair."""
    folder = folder_of(mutation)
    lines = text if isinstance(text, tuple) else (text,)
    return any(
        mutation.base in each.bases
        and mode in each.modes
        and not any(name in folder for name in each.files)
        and re.search(each.mutation, mutation.name)
        and any(re.search(each.lines, line) for line in lines)
        for each in OTHERWISE
    )


def check(mutation, folder, mode, expected):
    spec = Preprocessor.from_folder(folder, **MODES[mode]).tokenizer.spec
    found = rows_of_spec(spec, mutation.base)
    assert len(found) == len(expected)
    lines = bases.lines_of(mutation.base)
    texts = [*lines, *peer.pairs(lines)]
    different = [
        (text, ours, theirs)
        for text, ours, theirs in zip(texts, found, expected)
        if ours != theirs and not is_otherwise(text, mutation, mode)
    ]
    assert not different, f"{mode}: {len(different)}, first {different[0]}"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mutation", SAMPLE, ids=names(SAMPLE))
def test_what_is_read(tmp_path, mutation, mode):
    folder = bases.write(folder_of(mutation), tmp_path / "folder")
    special = bases.special_of(mutation.base).names
    rows = peer.by_tokenizers(folder, bases.lines_of(mutation.base), special)
    check(mutation, folder, mode, with_types(mutation, rows[mode]))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """{name of a mutation: (its folder, {library: {mode: rows}})}"""
    root = tmp_path_factory.mktemp("mutations")
    lines = {}
    for number, base in enumerate(bases.NAMES):
        lines[base] = root / f"lines-{number}.json"
        lines[base].write_text(json.dumps(bases.lines_of(base)), "utf-8")
    tasks = [
        {
            "folder": str(bases.write(folder_of(each), root / str(number))),
            "lines": str(lines[each.base]),
            "special": bases.special_of(each.base).names,
            "libraries": each.references,
        }
        for number, each in enumerate(READ_ONES)
    ]
    (root / "tasks.json").write_text(json.dumps(tasks), "utf-8")
    peers.run(peer.__file__, root / "tasks.json", root / "results.json")
    found = json.loads((root / "results.json").read_text("utf-8"))
    return {
        each.name: (
            task["folder"],
            {
                library: {
                    mode: found["rows"][number]
                    for mode, number in facts.items()
                }
                for library, facts in result.items()
            },
        )
        for each, task, result in zip(READ_ONES, tasks, found["results"])
    }


@pytest.mark.peers
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mutation", READ_ONES, ids=names(READ_ONES))
def test_what_is_read_as_peers_do(theirs, mutation, mode):
    folder, rows = theirs[mutation.name]
    if not mutation.references:
        _, rows = theirs[f"{mutation.base}: as it is"]
    for found in rows.values():
        check(mutation, folder, mode, with_types(mutation, found[mode]))
