"""Finds the files that a model starts from; checks that they fit together."""

import dataclasses

from absl import logging

from bert_tf import files
from bert_tf import messages
from bert_tf import sizes
from bert_tf.checkpoints import families
from bert_tf.checkpoints import loading
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import reader
from bert_tf.config import BertConfig
from bert_tf.text import vocabulary as vocabulary_lib
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.tokenizers.tokenizer import Spec

# Families whose config.json has the ids of the special tokens.
_CHECKED_IDS = ("albert", "camembert", "mpnet", "roberta", "xlm-roberta")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartingPoint:
    """An optional checkpoint, its architecture and its tokenizer.

    Args:
        init_checkpoint: A model folder of bert_tf or Hugging Face, or a
            release of Google's; None for new weights.
        config: The `BertConfig`.
        tokenizer: The spec of the tokenizer.
        allow_partial: Whether the checkpoint may lack weights, or hold
            additional ones or ones of another shape.
        extend_positions: Whether the configuration may have more positions
            than the checkpoint.

    Raises:
        ValueError: If the vocabulary has more entries than the configuration,
            or another padding, or no model of the family can have this
            configuration.
    """

    init_checkpoint: str | None
    config: BertConfig
    tokenizer: Spec
    allow_partial: bool = False
    extend_positions: bool = False

    def __post_init__(self):
        num_entries = len(self.tokenizer.vocabulary)
        # The model may have more rows: they are never used.
        if num_entries > self.config.vocab_size:
            raise ValueError(
                "The vocabulary must have at most as many entries as the "
                f"configuration's vocab_size={self.config.vocab_size}. "
                f"Received: {num_entries} entries."
            )
        model_folder.check_padding(self.config, self.tokenizer.vocabulary)
        # Fail early: a model that cannot be saved is not worth training.
        families.write_config(self.config)

    def preprocessor(self, max_seq_length: int) -> Preprocessor:
        """Returns the `Preprocessor` for sequences of this length.

        Raises:
            ValueError: If it is longer than the model's positions.
        """
        self.config.check_length(max_seq_length)
        return Preprocessor(self.tokenizer, max_seq_length)


def find(
    init_checkpoint: files.AnyPath | None = None,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    *,
    allow_partial: bool = False,
    max_position_embeddings: int | None = None,
    extend_positions: bool = True,
    is_trained: bool = True,
) -> StartingPoint:
    """Finds what belongs to a checkpoint.

    Args:
        init_checkpoint: A model folder, a release's folder, the prefix of its
            files (".../bert_model.ckpt"), or a name on the Hub
            ("hf:organisation/name@revision"); None for new weights.
        bert_config_file: A configuration file, or one of `sizes.NAMES`, with
            the size of the vocabulary; None for the checkpoint's own.
        vocab_file: A vocabulary file, or the folder of a tokenizer, which must
            equal the checkpoint's if that has one; None for the checkpoint's
            own.
        do_lower_case: Whether texts are lower-cased; None for what the
            checkpoint's tokenizer_config.json says, or True without one.
        allow_partial: As in `checkpoints.load`.
        max_position_embeddings: None, or the new number of positions; see
            `checkpoints.load`.
        extend_positions: Whether that number may be larger than the
            checkpoint's or the configuration file's. Otherwise only a size's
            name takes another one.
        is_trained: Whether the model is to be trained. If so, its vocabulary
            may have other entries in place of unused ones. If not, it must be
            the checkpoint's own.

    Returns:
        A `StartingPoint`.

    Raises:
        ValueError: If a file is missing, or two contradict each other.
    """
    config, folder, config_values = None, None, {}
    if init_checkpoint is not None:
        init_checkpoint = str(init_checkpoint).rstrip("/")
        with reader.open_checkpoint(
            init_checkpoint, allow_partial
        ) as checkpoint:
            config = checkpoint.config
            folder = checkpoint.folder
            config_values = checkpoint.config_values
    if config is None and bert_config_file is None:
        raise ValueError(
            "`bert_config_file` must be given if no checkpoint has one. "
            f"Received: init_checkpoint={init_checkpoint}."
        )
    tokenizer = _find_tokenizer(
        init_checkpoint, folder, vocab_file, do_lower_case, is_trained
    )
    if vocab_file is not None:
        _check_special_ids(init_checkpoint, config_values, tokenizer.vocabulary)
    # The one that says how many positions there are: a size's name does not.
    fixed_config = config
    if bert_config_file is not None:
        config = read_config(bert_config_file, tokenizer.vocabulary)
        if fixed_config is None and _is_file(bert_config_file):
            fixed_config = config
    assert config is not None
    if folder is not None and vocab_file is not None:
        _check_num_entries(folder, vocab_file, config, tokenizer.vocabulary)
    if max_position_embeddings is not None:
        if extend_positions:
            config = loading.longer_config(config, max_position_embeddings)
        else:
            if fixed_config is not None:
                _check_positions(fixed_config, max_position_embeddings)
            config = dataclasses.replace(
                config, max_position_embeddings=max_position_embeddings
            )
    return StartingPoint(
        init_checkpoint=init_checkpoint,
        config=config,
        tokenizer=tokenizer,
        allow_partial=allow_partial,
        extend_positions=extend_positions
        and max_position_embeddings is not None,
    )


def _check_positions(config, max_position_embeddings):
    """Raises `ValueError` if a given configuration has another number."""
    if max_position_embeddings != config.max_position_embeddings:
        raise ValueError(
            "`max_position_embeddings` must be that of the checkpoint or the "
            f"configuration, {config.max_position_embeddings}. Received: "
            f"max_position_embeddings={max_position_embeddings}. bert_tf "
            "convert --max_position_embeddings gives a checkpoint more."
        )


def _find_tokenizer(
    init_checkpoint, folder, vocab_file, do_lower_case, is_trained
):
    """Returns the spec of the tokenizer; the arguments are those of `find`.

    `folder` is the checkpoint's, None without one.
    """
    settings = {}
    if folder is not None:
        settings = model_folder.read_tokenizer_config(folder)
    given_case = do_lower_case
    if do_lower_case is None:
        do_lower_case = settings.get("do_lower_case")
    elif settings.get("do_lower_case", do_lower_case) != do_lower_case:
        raise ValueError(
            f"`do_lower_case` must be {settings['do_lower_case']}, as the "
            f"tokenizer_config.json of {init_checkpoint} says. Received: "
            f"do_lower_case={do_lower_case}."
        )
    if folder is None and vocab_file is None:
        raise ValueError(
            "`vocab_file` must be given without a checkpoint. "
            "Received: init_checkpoint=None."
        )
    if folder is not None and (
        vocab_file is None or not files.is_folder(vocab_file)
    ):
        vocabulary = None
        # Other kinds have no setting of case: they know it themselves.
        if do_lower_case is None and tokenizer_files.is_wordpiece(folder):
            do_lower_case = True
        if vocab_file is not None:
            vocabulary = vocabulary_lib.load_vocabulary(vocab_file)
        tokenizer = tokenizer_files.read(folder, vocabulary, do_lower_case)
        own = tokenizer_files.vocabulary_path(folder)
        if (
            vocabulary is not None
            and not is_trained
            and own is not None
            and tokenizer_files.read(folder, None, do_lower_case) != tokenizer
        ):
            raise ValueError(
                "`vocab_file` must hold the vocabulary of the model, which is "
                f"not trained here: {own}. Received: vocab_file={vocab_file}, "
                "with a different one."
            )
        return tokenizer
    # Other kinds know their case, whatever the checkpoint's settings say.
    is_wordpiece = not files.is_folder(vocab_file) or (
        tokenizer_files.is_wordpiece(vocab_file)
    )
    tokenizer = tokenizer_files.from_vocabulary_file(
        vocab_file, do_lower_case if is_wordpiece else given_case
    )
    if (
        folder is not None
        and tokenizer_files.vocabulary_path(folder) is not None
        and not tokenizer_files.are_alike(
            tokenizer_files.read(folder), tokenizer
        )
    ):
        raise ValueError(
            "`vocab_file` must hold the tokenizer of the checkpoint. "
            f"Received: vocab_file={vocab_file}, which differs from the one "
            f"in {folder}."
        )
    return tokenizer


def _check_num_entries(folder, vocab_file, config, vocabulary):
    """Checks that a vocabulary from elsewhere may be the checkpoint's."""
    num_entries = len(vocabulary)
    own = tokenizer_files.read_vocabulary(folder)
    if own is not None and len(own) != num_entries:
        raise ValueError(
            f"`vocab_file` must have as many entries as {own.path}, "
            f"{len(own)}. Received: vocab_file={vocab_file}, with "
            f"{num_entries}."
        )
    if own is None and num_entries < config.vocab_size:
        logging.warning(
            "%s: has %d entries, and the model %d rows. Is it the model's "
            "vocabulary?",
            vocab_file,
            num_entries,
            config.vocab_size,
        )


def _check_special_ids(init_checkpoint, config_values, vocabulary):
    """Checks that a tokenizer from other files has the ids of config.json.

    BERT's ids are not checked: in many folders they are another model's.
    """
    if config_values.get("model_type") not in _CHECKED_IDS:
        return
    for name, index in (
        ("pad_token_id", vocabulary.pad_id),
        ("bos_token_id", vocabulary.cls_id),
        ("eos_token_id", vocabulary.sep_id),
    ):
        stored = config_values.get(name)
        if stored not in (None, index):
            raise ValueError(
                f"`vocab_file` must hold the tokenizer of {init_checkpoint}, "
                f"whose config.json says {name}={messages.shortened(stored)}. "
                f"Received: vocab_file={vocabulary.path}, with {index}."
            )


def read_config(name: str, vocabulary: vocabulary_lib.Vocabulary) -> BertConfig:
    """Reads a configuration, or makes one of a named size.

    Args:
        name: A file, or one of `sizes.NAMES`.
        vocabulary: The vocabulary, whose length a named size takes.

    Raises:
        ValueError: If it is neither, or the file is not a configuration.
    """
    if _is_file(name):
        return families.read_config(name)
    if name in sizes.NAMES:
        config = BertConfig.named(name, vocab_size=len(vocabulary))
        if config.padding_idx is not None:
            config = dataclasses.replace(config, padding_idx=vocabulary.pad_id)
        return config
    raise ValueError(
        "`bert_config_file` must be a file or one of "
        f"{', '.join(sizes.NAMES)}. Received: bert_config_file={name}."
    )


def _is_file(name):
    """Returns whether it is a file, which may have a size's name."""
    return files.exists(name) and not files.is_folder(name)
