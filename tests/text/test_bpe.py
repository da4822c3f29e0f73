"""Byte-level BPE against Hugging Face's `tokenizers`, and by its properties.

Texts of megabytes and every code point: tests/text/test_bpe_peers.py.
"""

import dataclasses
import itertools
import json
import pickle
import random

import numpy as np
import pytest
import tensorflow as tf
import tokenizers

from bert_tf import checkpoints
from bert_tf.config import BertConfig
from bert_tf.models.encoder import BertEncoder
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers import bpe_files
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.tokenizers.bpe import BpeSpec
from bert_tf.text.vocabulary import ROBERTA
from bert_tf.text.vocabulary import Vocabulary

MERGES = tuple(
    tuple(line.split())
    for line in (
        "Ġ t",
        "h e",
        "Ġt he",
        "i n",
        "Ġ c",
        "a t",
        "Ġc at",
        "Ġ Ġ",
        "ã ģ",
        "ã ĥ",
        "ð Ł",
        "ðŁ ¤",
        "a a",
        "aa aa",
        "' s",
        "1 2",
        "e r",
        "l l",
    )
)
HARD = (
    "",
    " ",
    "   ",
    "the cat  in the cat",
    "  the  ",
    " the\r\ncat\r\n\r\n in",
    "\t\tthe\t cat\n \n  in",
    "\xa0\xa0the \u3000ひらがな \u3000",
    "\u2028\u2029\x85\x1c the",
    "🤗 👩\u200d👩\u200d👧 x🤗",
    "cafe\u0301 n\u0303",
    "It's 'S we'll WE'LL 'd'd ''s",
    "٣٤ 12 १२ Ⅷ ½²",
    "a\0b\0",
    "</s><mask> <pad>",
    "\ufeffthe\uffff",
    "aaaaaaa aaaaaaaaa",
    "tℵ𝔸!?...\u00ad",
    # Letters and digits of Unicode 16.
    "a\u1c89\ua7cb 1\U00010d40\U0001e5f1",
)


def make_spec(merges=MERGES, **settings):
    results = dict.fromkeys(first + second for first, second in merges)
    # The order of the released vocabulary.
    special = (ROBERTA.cls, ROBERTA.pad, ROBERTA.sep, ROBERTA.unk)
    tokens = (*special, *bpe_files.BYTES, *results, ROBERTA.mask)
    vocabulary = Vocabulary(tokens=tokens, special=ROBERTA, is_wordpiece=False)
    return BpeSpec(vocabulary, merges, **settings)


SPEC = make_spec()
NEW_ID = len(SPEC.vocabulary)


def encode(texts):
    return tf.constant([text.encode("utf-8") for text in texts], tf.string)


def oracle(spec):
    """Returns `tokenizers` as it reads our tokenizer.json."""
    theirs = tokenizers.Tokenizer.from_str(json.dumps(spec.tokenizer_json))
    # Special tokens in texts are text, as ours has it.
    theirs.encode_special_tokens = True
    return theirs


def check_equal(spec, texts):
    """Checks ids and offsets of all texts; returns the pieces."""
    ids, offsets = spec.make().tokenize_with_offsets(encode(texts))
    starts, limits, byte_starts, byte_limits = (
        values.merge_dims(1, 2).to_list() for values in offsets
    )
    ids = ids.merge_dims(1, 2).to_list()
    theirs = oracle(spec).encode_batch(texts)
    for n, (text, found) in enumerate(zip(texts, theirs, strict=True)):
        assert ids[n] == found.ids[1:-1], text
        want = found.offsets[1:-1]
        assert list(zip(starts[n], limits[n])) == want, text
        # The same places in bytes.
        places = [0, *itertools.accumulate(len(c.encode()) for c in text)]
        assert byte_starts[n] == [places[start] for start, _ in want]
        assert byte_limits[n] == [places[limit] for _, limit in want]
    return ids


def test_golden():
    # `tokenizers` 0.23.3, of SPEC.tokenizer_json.
    texts = ["the cat's in", " the  cat", "ひ🤗"]
    found = SPEC.make().tokenize(encode(texts))
    tokens = SPEC.vocabulary.tokens
    assert [
        [[tokens[index] for index in word] for word in text]
        for text in found.to_list()
    ] == [
        [["t", "he"], ["Ġcat"], ["'s"], ["Ġ", "in"]],
        [["Ġthe"], ["Ġ"], ["Ġcat"]],
        [["ãģ", "²"], ["ðŁ¤", "Ĺ"]],
    ]
    assert found.flat_values.dtype == tf.int32


@pytest.mark.parametrize("add_prefix_space", [False, True])
@pytest.mark.parametrize("trim_offsets", [False, True])
def test_hard_strings(add_prefix_space, trim_offsets):
    spec = make_spec(
        add_prefix_space=add_prefix_space, trim_offsets=trim_offsets
    )
    check_equal(spec, list(HARD))


def random_merges(generator, characters, number, are_results_shared):
    tokens, merges = list(characters), []
    while len(merges) < number:
        merge = generator.choice(tokens), generator.choice(tokens)
        token = "".join(merge)
        if merge in merges or len(token) > 9:
            continue
        if are_results_shared or token not in tokens:
            merges.append(merge)
            tokens.append(token)
    if are_results_shared:
        # Then a merge may come before the one that makes its parts.
        generator.shuffle(merges)
    return tuple(merges)


# One word of merges that share results is merged pair by pair.
@pytest.mark.parametrize(
    ("seed", "longest"),
    [
        *((seed, 3000) for seed in range(3)),
        *((seed, 400) for seed in range(3, 6)),
        *(
            pytest.param(seed, 3000, marks=pytest.mark.slow)
            for seed in range(3, 6)
        ),
    ],
)
def test_random_merges(seed, longest):
    generator = random.Random(seed)
    characters = ["ab", "abc", "Ġab"][seed % 3]
    merges = random_merges(generator, characters, 20, seed > 2)
    spec = make_spec(merges)
    letters = characters.replace("Ġ", " ")
    texts = [
        "".join(generator.choices(letters, k=length))
        for length in (1, 2, 3, 5, 9, 20, 31, 33, 70, 400, longest)
    ]
    # Runs, which are merged two by two from their beginning.
    texts += ["a" * length for length in (2, 3, 7, 8, 40, 41, 999)]
    check_equal(spec, texts)
    # Some merge there is one that another has to come before.
    assert (spec._tables.is_early is not None) == (seed > 2)


def test_a_word_of_100_000_bytes():
    generator = random.Random(5)
    word = "".join(generator.choices("aatheincr", k=100_000))
    check_equal(SPEC, [word, "the cat", "a" * 100_000])


def test_every_byte_and_what_texts_spell():
    tokenizer = SPEC.make()
    texts = [*HARD, "".join(map(chr, range(0x800)))]
    ids = tokenizer.tokenize(encode(texts))
    assert tokenizer.detokenize(ids).numpy().tolist() == [
        text.encode("utf-8") for text in texts
    ]
    words = tokenizer.split_words(encode(texts))
    np.testing.assert_array_equal(words.row_lengths(), ids.row_lengths())
    joined = tf.strings.reduce_join(words, axis=1)
    assert joined.numpy().tolist() == [text.encode() for text in texts]


def test_offsets_cover_the_text():
    spec = make_spec(trim_offsets=False)
    text = "".join(map(chr, range(0x500)))
    _, offsets = spec.make().tokenize_with_offsets(encode([text]))
    starts, limits = (
        values.flat_values.numpy()
        for values in (offsets.byte_starts, offsets.byte_limits)
    )
    assert starts[0] == 0
    assert limits[-1] == len(text.encode("utf-8"))
    # Pieces of one character have its range, all others follow each other.
    is_same = (starts[1:] == starts[:-1]) & (limits[1:] == limits[:-1])
    assert (is_same | (starts[1:] == limits[:-1])).all()


def test_invalid_bytes_are_dropped():
    tokenizer = SPEC.make()
    texts = [b"the\xff c\xc3at", b"\x80", b"in"]
    ids, offsets = tokenizer.tokenize_with_offsets(tf.constant(texts))
    clean = tokenizer.tokenize(encode(["the cat", "", "in"]))
    assert ids.to_list() == clean.to_list()
    # "t", "he", " cat" without its space.
    assert offsets.starts.merge_dims(1, 2).to_list() == [[0, 1, 4], [], [0]]
    assert offsets.byte_starts.merge_dims(1, 2).to_list()[0] == [0, 1, 5]
    assert offsets.byte_limits.merge_dims(1, 2).to_list()[0] == [1, 3, 9]


def test_nothing_at_all():
    ids, offsets = SPEC.make().tokenize_with_offsets(tf.zeros([0], tf.string))
    assert ids.shape.as_list() == [0, None, None]
    assert offsets.starts.to_list() == []


def test_eagerly_in_a_data_set_and_saved(tmp_path):
    tokenizer = SPEC.make()
    want = tokenizer.tokenize(encode(HARD)).to_list()
    dataset = tf.data.Dataset.from_tensor_slices(encode(HARD)).batch(4)
    found = []
    for batch in dataset.map(tokenizer.tokenize, num_parallel_calls=2):
        found += batch.to_list()
    assert found == want

    module = tf.Module()
    module.tokenizer = tokenizer
    module.tokenize = tf.function(
        lambda texts: tokenizer.tokenize(texts),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    assert loaded.tokenize(encode(HARD)).to_list() == want


def test_words_begin_at_a_space():
    tokens = [ROBERTA.cls, "the", "Ġcat", "Ġ", "'s", "in", "Ġthe", "²"]
    names = [token for token in tokens if token not in ("the",)]
    ids = tf.constant([[SPEC.vocabulary.index(token) for token in names]])
    assert SPEC.starts_word(ids).numpy().tolist() == [
        [False, True, True, False, False, True, False]
    ]


def test_entries_are_spelled():
    tokens = tf.constant([["Ġcat", "in", "ãģ"], ["<mask>", "Ċ", "ÿ"]])
    assert SPEC.spell(tokens).numpy().tolist() == [
        [b" cat", b"in", b"\xe3\x81"],
        [b"<mask>", b"\n", b"\xff"],
    ]


def test_a_spec_is_pickled_and_told_from_another():
    SPEC.make().tokenize(encode(["the"]))
    assert pickle.loads(pickle.dumps(SPEC)) == SPEC
    assert hash(make_spec()) == hash(SPEC)
    others = [make_spec(MERGES[:-1]), make_spec(add_prefix_space=True)]
    settings = [json.dumps(spec.settings) for spec in (SPEC, *others)]
    assert len(set(settings)) == 3


def test_words_that_are_given_one_by_one():
    tokenizer = SPEC.make().for_words()
    texts = ["(the U.S. cat's, don't!)", "", "\u3000日本x", " in\xa0 the", "' "]
    words = tokenizer.split_words(encode(texts))
    found = [[word.decode() for word in row] for row in words.to_list()]
    assert found == [
        ["(", "the", "U.S", ".", "cat's", ",", "don't", "!", ")"],
        [],
        ["日", "本", "x"],
        ["in", "the"],
        ["'"],
    ]
    ids, offsets = tokenizer.tokenize_with_offsets(encode(texts))
    alone = tokenizer.tokenize(words.flat_values).merge_dims(1, 2)
    assert ids.values.to_list() == alone.to_list()
    # As transformers does with words, of which each has a space before it.
    theirs = oracle(make_spec(add_prefix_space=True))
    want = theirs.encode(found[0], is_pretokenized=True)
    assert ids[0].flat_values.numpy().tolist() == want.ids[1:-1]
    for row, text in enumerate(texts):
        starts, limits, byte_starts, byte_limits = (
            values[row].to_list() for values in offsets
        )
        assert found[row] == [
            text[first[0] : last[-1]] for first, last in zip(starts, limits)
        ]
        assert found[row] == [
            text.encode()[first[0] : last[-1]].decode()
            for first, last in zip(byte_starts, byte_limits)
        ]


def test_invalid_bytes_between_words():
    tokenizer = SPEC.make().for_words()
    _, offsets = tokenizer.tokenize_with_offsets(
        tf.constant([b"\xff in\xff, x"])
    )
    # The space before a word is a piece of its own here.
    assert offsets.starts.to_list() == [[[1, 1], [3, 3], [5, 5]]]
    assert offsets.limits.to_list() == [[[1, 3], [3, 4], [5, 6]]]
    last_starts, last_limits = (
        values.flat_values.numpy()[1::2].tolist()
        for values in (offsets.byte_starts, offsets.byte_limits)
    )
    assert last_starts == [2, 5, 7]
    assert last_limits == [4, 6, 8]


# Files.


def write(folder, *names, tokenizer_class=None, **settings):
    """Writes those of a folder's files."""
    folder.mkdir(exist_ok=True)
    if tokenizer_class is not None:
        settings["tokenizer_class"] = tokenizer_class
    contents = SPEC.vocabulary_files | {
        "tokenizer.json": json.dumps(SPEC.tokenizer_json),
        "tokenizer_config.json": json.dumps(settings),
    }
    for name in names:
        (folder / name).write_text(contents[name], "utf-8")
    return str(folder)


@pytest.mark.parametrize(
    "names",
    [
        ("vocab.json", "merges.txt"),
        ("tokenizer.json",),
        ("tokenizer.json", "vocab.json", "merges.txt"),
    ],
)
@pytest.mark.parametrize(
    "tokenizer_class",
    [
        None,
        "RobertaTokenizer",
        "RobertaTokenizerFast",
        "LongformerTokenizer",
        "PreTrainedTokenizerFast",
        "TokenizersBackend",
    ],
)
def test_files_tell_the_kind(tmp_path, names, tokenizer_class):
    names = (*names, *["tokenizer_config.json"] * bool(tokenizer_class))
    folder = write(tmp_path / "x", *names, tokenizer_class=tokenizer_class)
    assert tokenizer_files.read(folder) == SPEC
    assert not tokenizer_files.is_wordpiece(folder)
    assert tokenizer_files.from_vocabulary_file(folder, None) == SPEC
    assert tokenizer_files.read_vocabulary(folder) == SPEC.vocabulary


def change(values, **changes):
    return {
        name: values[name] | changes.get(name, {})
        if isinstance(values[name], dict)
        else changes.get(name, values[name])
        for name in values
    }


def test_a_tokenizer_json_of_another_version_is_read(tmp_path):
    values = SPEC.tokenizer_json
    # Before 0.20: no type, and pairs as strings; from it on pairs as lists.
    del values["model"]["type"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    assert tokenizer_files.read(str(tmp_path)) == SPEC
    values["model"]["merges"] = [list(pair) for pair in MERGES]
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    assert tokenizer_files.read(str(tmp_path)) == SPEC


FRAME = [
    {"SpecialToken": {"id": "<s>", "type_id": 0}},
    {"Sequence": {"id": "A", "type_id": 0}},
    {"SpecialToken": {"id": "</s>", "type_id": 0}},
]
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": FRAME,
    "pair": [
        *FRAME,
        FRAME[2],
        {"Sequence": {"id": "B", "type_id": 0}},
        FRAME[2],
    ],
    "special_tokens": {
        "<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]},
        "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]},
    },
}


@pytest.mark.parametrize(
    "changes",
    [
        {"normalizer": {"type": "Sequence", "normalizers": []}},
        {"model": {"dropout": 0.0}},
        {"model": {"byte_fallback": True, "fuse_unk": True}},
        {"model": {"unk_token": "<unk>"}},
        {"post_processor": TEMPLATE},
        {
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [SPEC.tokenizer_json["pre_tokenizer"]],
            },
        },
        {
            "post_processor": {
                "type": "Sequence",
                "processors": [SPEC.tokenizer_json["post_processor"]],
            },
        },
    ],
)
def test_other_spellings_are_read(tmp_path, changes):
    values = SPEC.tokenizer_json
    changes["model"] = values["model"] | changes.get("model", {})
    text = json.dumps(values | changes)
    (tmp_path / "tokenizer.json").write_text(text)
    spec = tokenizer_files.read(str(tmp_path))
    assert spec == SPEC
    theirs = tokenizers.Tokenizer.from_str(text)
    pair = ("the cat's in", "cat")
    ids = Preprocessor(spec, 20)(pair)["input_ids"].numpy().tolist()
    expected = theirs.encode(*pair).ids
    assert ids[: len(expected)] == expected


NO_OTHER = {"type": "BertNormalizer", "lowercase": True}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"normalizer": NO_OTHER}, "`normalizer` must be null"),
        (
            {"pre_tokenizer": {"type": "Whitespace"}},
            "`pre_tokenizer.type` must be 'ByteLevel'.*'Whitespace'",
        ),
        ({"pre_tokenizer": {"use_regex": False}}, "use_regex` must be True"),
        ({"post_processor": {"type": "BertProcessing"}}, "must frame texts"),
        (
            {"post_processor": {"type": "ByteLevel"}},
            "must frame texts",
        ),
        ({"post_processor": {"cls": ["<s>", 7]}}, "with the ids of"),
        ({"post_processor": {"sep": ["</s>", 1]}}, "with the ids of"),
        ({"model": {"dropout": 0.1}}, "model.dropout` must be None or 0.*0.1"),
        ({"model": {"ignore_merges": True}}, "ignore_merges` must be False"),
        ({"model": {"end_of_word_suffix": "</w>"}}, "end_of_word_suffix"),
        ({"model": {"merges": None}}, "`tokenizers` writes it"),
        ({"model": {"merges": []}}, "merges` must hold a merge"),
        ({"model": {"merges": ["a b c"]}}, "merge 1: must be two entries"),
        ({"model": {"merges": [["a"]]}}, "merge 1: must be two entries"),
        ({"model": {"merges": ["z z"]}}, "merge 1.*must have the entry 'zz'"),
        ({"model": {"vocab": {"<s>": 7}}}, "must be 0, 1, 2"),
        (
            {"added_tokens": [{"content": "<user>", "id": NEW_ID + 1}]},
            f"added token '<user>' must have the id {NEW_ID}",
        ),
        ({"truncation": {"direction": "Left"}}, "direction 'Right'.*'Left'"),
        ({"model": {"type": "Other"}}, "WordPiece, BPE or Unigram.*'Other'"),
    ],
)
def test_what_is_not_done_is_refused(tmp_path, changes, match):
    values = change(SPEC.tokenizer_json | {"x": 0}, **changes)
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=f"tokenizer.json: .*{match}"):
        tokenizer_files.read(str(tmp_path))


@pytest.mark.parametrize("model", [None, 7, [], {"type": "WordLevel"}])
def test_settings_of_another_model_than_its_file_are_refused(tmp_path, model):
    names = ("tokenizer.json", "tokenizer_config.json")
    folder = write(tmp_path / "x", *names, tokenizer_class="RobertaTokenizer")
    values = SPEC.tokenizer_json | {"model": model}
    (tmp_path / "x/tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match="tokenizer.json: `model.type` must b"):
        tokenizer_files.read(folder)


def test_settings_that_contradict_are_refused(tmp_path):
    names = ("tokenizer.json", "tokenizer_config.json")
    folder = write(tmp_path / "x", *names, add_prefix_space=True)
    with pytest.raises(ValueError, match="config.json: `add_prefix_space` mus"):
        tokenizer_files.read(folder)
    folder = write(tmp_path / "x", *names, trim_offsets=False)
    with pytest.raises(ValueError, match="config.json: `trim_offsets` must"):
        tokenizer_files.read(folder)
    # transformers sets no space where the settings do not say so.
    spec = dataclasses.replace(SPEC, add_prefix_space=True)
    (tmp_path / "x/tokenizer.json").write_text(json.dumps(spec.tokenizer_json))
    name = {"tokenizer_class": "RobertaTokenizer"}
    (tmp_path / "x/tokenizer_config.json").write_text(json.dumps(name))
    with pytest.raises(ValueError, match="`add_prefix_space` must .*default"):
        tokenizer_files.read(folder)
    name = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (tmp_path / "x/tokenizer_config.json").write_text(json.dumps(name))
    assert tokenizer_files.read(folder) == spec
    # Like transformers, a tokenizer that knows no case has no use for this.
    folder = write(tmp_path / "x", *names, do_lower_case=True)
    assert tokenizer_files.read(folder) == SPEC
    assert not tokenizer_files.read_settings(folder)["do_lower_case"]
    folder = write(tmp_path / "x", *names)
    with pytest.raises(ValueError, match="`do_lower_case` must be False"):
        tokenizer_files.read(folder, do_lower_case=True)


def test_files_that_are_missing_or_damaged(tmp_path):
    folder = write(tmp_path / "x", "vocab.json")
    with pytest.raises(ValueError, match=r"x: must .* It has no merges.txt"):
        tokenizer_files.read(folder)
    path = tmp_path / "x/merges.txt"
    path.write_text("#version: 0.2\nĠ t\nh e x\n", "utf-8")
    with pytest.raises(ValueError, match=r"merges.txt, line 3: must be two"):
        tokenizer_files.read(folder)
    path.write_text("Ġ t\r\nh e\r\n", "utf-8", newline="")
    ids = {token: n for n, token in enumerate(ROBERTA.names)}
    (tmp_path / "x/vocab.json").write_text(json.dumps(ids))
    with pytest.raises(ValueError, match=r"vocab.json: .* each of the 256"):
        tokenizer_files.read(folder)
    with pytest.raises(ValueError, match=r"must hold the vocabulary .*merges"):
        tokenizer_files.read(str(tmp_path))


ROWS = 17


def save_model(folder):
    config = BertConfig.named("roberta-base", vocab_size=len(SPEC.vocabulary))
    config = dataclasses.replace(
        config,
        hidden_size=6,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=7,
        max_position_embeddings=ROWS,
    )
    checkpoints.save(folder, BertEncoder(config), SPEC, ROWS)


def test_a_model_folder_is_read_as_it_was_written(tmp_path):
    save_model(tmp_path)
    assert tokenizer_files.read(str(tmp_path)) == SPEC
    for name in ("tokenizer.json", "vocab.json"):
        assert (tmp_path / name).exists()
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    inputs = Preprocessor.from_folder(tmp_path)(("the cat", "in"))
    num_tokens = int(inputs["input_mask"].numpy().sum())
    ids = inputs["input_ids"].numpy().tolist()
    assert ids[:num_tokens] == theirs.encode("the cat", "in").ids
    assert not inputs["segment_ids"].numpy().any()
    # A mask takes the space before it.
    want = [SPEC.vocabulary.index(token) for token in ("t", "he", "<mask>")]
    assert theirs.encode("the <mask>").ids[1:-1] == want


def test_the_longest_text_of_roberta(tmp_path):
    save_model(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    values = json.loads(path.read_text())
    assert values["model_max_length"] == ROWS
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["max_position_embeddings"] == ROWS + 2
    del values["model_max_length"]
    path.write_text(json.dumps(values))
    assert Preprocessor.from_folder(tmp_path).max_seq_length == ROWS
