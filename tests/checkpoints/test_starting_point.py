"""The architecture of a model that begins anew: a file, or a size's name."""

import dataclasses

import pytest

from bert_tf import checkpoints
from bert_tf.checkpoints import starting_point
from bert_tf.config import BertConfig
from bert_tf.models.encoder import BertEncoder
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.tokenizers import sentencepiece_model
from bert_tf.text.tokenizers import unigram
from bert_tf.text.tokenizers.sentencepiece_model import Model
from bert_tf.text.tokenizers.sentencepiece_model import Piece
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from support.tokenizer_families import BPE
from support.tokenizer_families import FAMILIES
from support.tokenizer_families import MAX_SEQ_LENGTH


@pytest.fixture
def vocab_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join((*SPECIAL_TOKENS, "the", "fox")) + "\n")
    return path


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("mini", (256, 4, 4, 1024)), ("L-2_H-768", (768, 2, 12, 3072))],
)
def test_a_size_is_of_the_vocabulary(vocab_file, name, sizes):
    start = starting_point.find(
        bert_config_file=name,
        vocab_file=vocab_file,
        max_position_embeddings=700,
    )
    hidden, layers, heads, intermediate = sizes
    assert start.config == BertConfig(
        vocab_size=7,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        max_position_embeddings=700,
    )


def test_a_file_comes_before_a_size(vocab_file):
    vocab_file.with_name("mini").write_text(
        '{"vocab_size": 7, "hidden_size": 8, "num_attention_heads": 2}'
    )
    start = starting_point.find(bert_config_file="mini", vocab_file=vocab_file)
    assert start.config.hidden_size == 8


def test_what_is_neither_is_told_the_sizes(vocab_file):
    with pytest.raises(ValueError, match="a file or one of .*L-12_H-768, tiny"):
        starting_point.find(bert_config_file="minni", vocab_file=vocab_file)


def test_only_a_size_takes_other_positions_in_pre_training(
    vocab_file, tmp_path
):
    def find(*files, **positions):
        return starting_point.find(
            *files,
            vocab_file=vocab_file,
            extend_positions=False,
            **positions,
        )

    for number in (16, 4096):
        start = find(None, "tiny", max_position_embeddings=number)
        assert start.config.max_position_embeddings == number
        assert not start.extend_positions
    assert find(None, "tiny").config.max_position_embeddings == 512
    config = dataclasses.replace(start.config, max_position_embeddings=16)
    folder = str(tmp_path / "model")
    checkpoints.save(folder, BertEncoder(config), start.tokenizer, 16)
    # What a run gives again that is resumed or evaluated.
    for arguments in (
        (folder,),
        (folder, "tiny"),
        (None, f"{folder}/config.json"),
    ):
        found = find(*arguments, max_position_embeddings=16)
        assert found.config.max_position_embeddings == 16
        message = (
            "`max_position_embeddings` must be that of the checkpoint or the "
            "configuration, 16. Received: max_position_embeddings=32. bert_tf "
            "convert --max_position_embeddings gives a checkpoint more."
        )
        with pytest.raises(ValueError) as error:
            find(*arguments, max_position_embeddings=32)
        assert str(error.value) == message


def test_a_model_that_is_not_trained_has_its_own_vocabulary(
    vocab_file, tmp_path
):
    config = BertConfig(vocab_size=7, hidden_size=8, num_attention_heads=2)
    folder = str(tmp_path / "model")
    spec = starting_point.find(
        bert_config_file="tiny", vocab_file=vocab_file
    ).tokenizer
    checkpoints.save(folder, BertEncoder(config), spec, 8)
    other = tmp_path / "other.txt"
    other.write_text("\n".join((*SPECIAL_TOKENS, "the", "law")))
    # In training it may have others in place of unused ones.
    assert starting_point.find(folder, vocab_file=other).tokenizer != spec
    start = starting_point.find(folder, vocab_file=vocab_file, is_trained=False)
    assert start.tokenizer == spec
    message = "vocabulary of the model.*model/vocab.txt. Received: .*other.txt"
    with pytest.raises(ValueError, match=message):
        starting_point.find(folder, vocab_file=other, is_trained=False)


def test_how_long_a_word_may_be_does_not_tell_tokenizers_apart(tmp_path):
    # Folders of older releases do not say it.
    vocab_file = tmp_path / "vocab.txt"
    vocab_file.write_text("\n".join((*SPECIAL_TOKENS, "the", "bill")))
    new = starting_point.find(bert_config_file="tiny", vocab_file=vocab_file)
    config, spec = new.config, new.tokenizer
    folder, other = str(tmp_path / "model"), str(tmp_path / "other")
    checkpoints.save(folder, BertEncoder(config), spec, 8)
    shorter = dataclasses.replace(spec, max_chars_per_word=100)
    tokenizer_files.write(other, shorter)
    start = starting_point.find(folder, vocab_file=other)
    assert start.tokenizer == shorter


def test_a_tokenizer_s_folder_is_the_checkpoint_s(tmp_path):
    config, spec, _ = FAMILIES["roberta"]
    folder, other = str(tmp_path / "model"), str(tmp_path / "other")
    checkpoints.save(folder, BertEncoder(config), spec, MAX_SEQ_LENGTH)
    tokenizer_files.write(str(tmp_path / "same"), spec)
    tokenizer_files.write(
        other, dataclasses.replace(spec, add_prefix_space=True)
    )
    start = starting_point.find(folder, vocab_file=str(tmp_path / "same"))
    assert start.tokenizer == spec
    with pytest.raises(
        ValueError, match="the tokenizer of the checkpoint.*oth"
    ):
        starting_point.find(folder, vocab_file=other)


def test_a_tokenizer_of_another_family_is_not_the_checkpoint_s(tmp_path):
    """Where a folder has its own, and where only config.json tells of it."""
    config, spec, _ = FAMILIES["albert"]
    folder, other = tmp_path / "model", str(tmp_path / "other")
    config = dataclasses.replace(config, vocab_size=len(BPE.vocabulary))
    pieces, charsmap = sentencepiece_model.parse(spec.model)
    more = [
        Piece(f"x{number}", -20.0)
        for number in range(config.vocab_size - len(pieces))
    ]
    spec = unigram.from_model(
        Model((*pieces, *more), charsmap),
        spec.tokenizer_class,
        do_lower_case=True,
        keep_accents=False,
    )
    checkpoints.save(str(folder), BertEncoder(config), spec, MAX_SEQ_LENGTH)
    tokenizer_files.write(other, BPE)
    with pytest.raises(ValueError, match="hold the tokenizer of the checkpoin"):
        starting_point.find(str(folder), vocab_file=other)
    for name in ("spiece.model", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(ValueError, match="config.json says pad_token_id=0.*1"):
        starting_point.find(str(folder), vocab_file=other)
