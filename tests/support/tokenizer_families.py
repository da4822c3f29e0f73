"""Small configurations of the families with tokenizers of their own.

A new family is one line in `FAMILIES`.
"""

import dataclasses

from bert_tf.config import BertConfig
from bert_tf.text.learners import byte_bpe
from bert_tf.text.learners import unigram as unigram_learner
from bert_tf.text.tokenizers import sentencepiece_model
from bert_tf.text.tokenizers import unigram
from bert_tf.text.tokenizers import unigram_files
from bert_tf.text.tokenizers.added_tokens import AddedToken
from bert_tf.text.tokenizers.sentencepiece_model import Model
from bert_tf.text.tokenizers.sentencepiece_model import Piece
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import ALBERT
from bert_tf.text.vocabulary import BERT
from bert_tf.text.vocabulary import MPNET
from bert_tf.text.vocabulary import ROBERTA
from bert_tf.text.vocabulary import Vocabulary
from support.paths import ROOT

MAX_SEQ_LENGTH = 23
TEXTS = [
    "The quick brown fox jumps over the lazy dog, the 字 quick.",
    "ééé",
] * 2
BPE = byte_bpe.learn([TEXTS], 300, ["here"])
DOCUMENT = (ROOT / "docs" / "families.md").read_text("utf-8").splitlines()
UNIGRAM = unigram_learner.learn([DOCUMENT], 200, True, ["docs"])
SENTENCEPIECE_OPS = ("SentencepieceOp", "SentencepieceTokenizeOp")
SMALL = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": MAX_SEQ_LENGTH,
}


def small(name, spec):
    config = BertConfig.named(name, vocab_size=len(spec.vocabulary))
    return dataclasses.replace(config, **SMALL)


def as_xlm_roberta(spec):
    """Returns the pieces of ALBERT's tokenizer as XLM-RoBERTa has them."""
    pieces, charsmap = sentencepiece_model.parse(spec.model)
    special = (ROBERTA.cls, ROBERTA.pad, ROBERTA.sep, ROBERTA.unk)
    pieces = (
        *(Piece(token, 0.0) for token in special),
        *pieces[len(ALBERT.names) :],
        Piece(ROBERTA.mask, 0.0),
    )
    return unigram.from_model(
        Model(pieces, charsmap),
        unigram_files.XLM_ROBERTA_CLASS,
        do_lower_case=False,
        keep_accents=True,
    )


def as_modernbert(spec):
    """Returns a byte-level BPE as ModernBERT has it."""
    runs = tuple(" " * count for count in range(4, 1, -1))
    pieces = [t for t in spec.vocabulary.tokens if t not in ROBERTA.names]
    vocabulary = dataclasses.replace(
        spec.vocabulary,
        tokens=(*pieces, *runs, *BERT.names),
        special=dataclasses.replace(BERT, second_segment=0),
    )
    added = [AddedToken(content=t, normalized=True) for t in runs]
    return dataclasses.replace(
        spec, vocabulary=vocabulary, added_tokens=tuple(added), nfc=True
    )


def as_mpnet():
    """Returns a WordPiece tokenizer as MPNet has it."""
    pieces = sorted({*"".join(TEXTS).lower()} - {" "})
    pieces += [f"##{piece}" for piece in pieces] + ["the", "quick", "##own"]
    first = (MPNET.cls, MPNET.pad, MPNET.sep, ROBERTA.unk)
    tokens = (*first, *BERT.names, *pieces, MPNET.mask)
    return WordpieceSpec(Vocabulary(tokens=tokens, special=MPNET))


WORDPIECE_OPS = ("FastWordpieceTokenize", "NormalizeUTF8")
# {family: (its configuration, its tokenizer, the operations that are not
# core TensorFlow's)}
FAMILIES = {
    "roberta": (small("roberta-base", BPE), BPE, ()),
    "albert": (small("albert-base", UNIGRAM), UNIGRAM, SENTENCEPIECE_OPS),
    "mpnet": (small("mpnet-base", as_mpnet()), as_mpnet(), WORDPIECE_OPS),
    "modernbert": (
        small("modernbert-base", as_modernbert(BPE)),
        as_modernbert(BPE),
        ("NormalizeUTF8",),
    ),
    "xlm-roberta": (
        small("xlm-roberta-base", as_xlm_roberta(UNIGRAM)),
        as_xlm_roberta(UNIGRAM),
        SENTENCEPIECE_OPS,
    ),
}
