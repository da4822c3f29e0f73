"""Text files to documents of tokenised sentences."""

import hashlib

import numpy as np
import pytest

from bert_tf.pretraining import documents
from bert_tf.text.tokenizer import WordpieceTokenizer
from bert_tf.text.vocabulary import Vocabulary

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@pytest.fixture(scope="module")
def tokenizer():
    letters = tuple("abcdefgh") + tuple(f"##{c}" for c in "abcdefgh")
    return WordpieceTokenizer(Vocabulary(tokens=SPECIAL + letters))


def write(folder, **contents):
    """Writes files a.txt, b.txt...; returns their paths in this order."""
    paths = []
    for name, data in contents.items():
        path = folder / f"{name}.txt"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        paths.append(str(path))
    return paths


def nested(corpus, tokenizer):
    """Returns the corpus as lists of documents, sentences and tokens."""
    tokens = tokenizer.vocabulary.tokens
    starts = corpus.sentence_starts
    sentences = [
        [tokens[i] for i in corpus.tokens[begin:end]]
        for begin, end in zip(starts, starts[1:])
    ]
    return [
        sentences[begin:end]
        for begin, end in zip(
            corpus.document_starts, corpus.document_starts[1:]
        )
    ]


def test_blank_lines_end_documents_and_files_do_not(tmp_path, tokenizer):
    paths = write(
        tmp_path, a="a b\nab\n\n\nc\nd", b="e f\n\ng\n", c="\nh\n  \t\n"
    )
    corpus = documents.read(paths, tokenizer)
    assert nested(corpus, tokenizer) == [
        [["a", "b"], ["a", "##b"]],
        [["c"], ["d"], ["e", "f"]],
        [["g"]],
        [["h"]],
    ]
    # The number of the file, and where the document's first line begins.
    assert [divmod(int(key), 1 << 44) for key in corpus.document_keys] == [
        (0, 0),
        (0, 9),
        (1, 5),
        (2, 1),
    ]
    assert corpus.num_documents == 4
    assert corpus.num_sentences == 7
    assert corpus.tokens.dtype == np.int32


def test_lines_without_tokens_and_empty_documents_are_dropped(
    tmp_path, tokenizer
):
    # A zero-width space is no blank, and no token either.
    paths = write(tmp_path, a="\u200b\n\n\u200b\na\n\u200b\nb\n\n\u200b\n")
    corpus = documents.read(paths, tokenizer)
    assert nested(corpus, tokenizer) == [[["a"], ["b"]]]
    assert corpus.document_keys.tolist() == [5]


def test_windows_line_ends_and_unicode_blanks(tmp_path, tokenizer):
    paths = write(tmp_path, a="a\r\n\r\nb\r\n\u00a0\u3000\nc d")
    corpus = documents.read(paths, tokenizer)
    assert nested(corpus, tokenizer) == [[["a"]], [["b"]], [["c", "d"]]]


def test_batches_change_nothing(tmp_path, tokenizer, monkeypatch):
    rng = np.random.default_rng(1)
    lines = [
        " ".join(rng.choice(list("abcdefgh"), rng.integers(0, 9)))
        for _ in range(200)
    ]
    paths = write(tmp_path, a="\n".join(lines), b="\n".join(lines[::-1]))
    whole = documents.read(paths, tokenizer)
    done = []
    monkeypatch.setattr(documents, "_MAX_BATCH_LINES", 7)
    small = documents.read(paths, tokenizer, done.append)
    assert nested(small, tokenizer) == nested(whole, tokenizer)
    assert small.document_keys.tolist() == whole.document_keys.tolist()
    assert len(done) > 20
    assert done == sorted(done)
    assert done[-1] == sum(len("\n".join(lines)) for _ in paths)


def test_inputs_are_described(tmp_path, tokenizer):
    paths = write(tmp_path, a="a\n\nb", b="c\n")
    assert documents.read(paths, tokenizer).inputs == [
        {
            "name": f"{name}.txt",
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        for name, data in (("a", b"a\n\nb"), ("b", b"c\n"))
    ]


def test_input_paths_keep_the_order_of_the_globs(tmp_path):
    paths = write(tmp_path, b2="x", b1="x", a="x")
    globs = f"{tmp_path}/b*.txt, {tmp_path}/a.txt,{tmp_path}/b1.txt,"
    assert documents.input_paths(globs) == sorted(paths[:2]) + paths[2:]


@pytest.mark.parametrize("patterns", ["", " ,", "{folder}/none-*.txt"])
def test_input_that_names_no_file(tmp_path, patterns):
    with pytest.raises(ValueError, match="`input_file`"):
        documents.input_paths(patterns.format(folder=tmp_path))


def test_not_utf8_names_file_and_line(tmp_path, tokenizer):
    paths = write(tmp_path, a="a\n", b=b"a\n\nb\xe9 c\nd\n")
    with pytest.raises(ValueError, match=r"b\.txt, line 3: not UTF-8.*0xe9"):
        documents.read(paths, tokenizer)


def test_empty_file_is_refused(tmp_path, tokenizer):
    paths = write(tmp_path, a="a\n", b="")
    with pytest.raises(ValueError, match=r"b\.txt is empty"):
        documents.read(paths, tokenizer)


def test_text_without_a_sentence_is_refused(tmp_path, tokenizer):
    paths = write(tmp_path, a="\n\n", b=" \n\u200b\n")
    with pytest.raises(ValueError, match=r"no sentence in .*a\.txt, .*b\.txt"):
        documents.read(paths, tokenizer)
