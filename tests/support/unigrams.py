"""Small unigram tokenizers, learned from pages of the documentation."""

import functools
import json

import tokenizers

from bert_tf.text.learners import unigram as learner
from bert_tf.text.tokenizers import sentencepiece_model
from bert_tf.text.tokenizers import unigram
from bert_tf.text.tokenizers import unigram_files
from bert_tf.text.tokenizers.sentencepiece_model import Model
from bert_tf.text.tokenizers.sentencepiece_model import Piece
from support.paths import ROOT

HARD = (
    "",
    " ",
    "  a  b\t c\r\n\r\nd ",
    "``Quotes'' ''' ````` '' `'`",
    "日本語 model 中",
    "x\u200by \ufeffz \u2060",
    "a\x0bb a\x1cb a\x85b",
    "ΑΣ ΣΑΣ İI ß ẞ",
    "½ ﬁ ① ² ㎏ ¨ ´a",
    "1,000, 2, 33333 3.333",
    "a\0b",
    "e\u0301 é ñ q\u0307\u0323",
    "가나 각 ᄀ\u1161",
    "\u2581a b\u2581c \u2581",
    "👍🏽 x 👩\u200d👧",
    "\xa0\u3000 x\u2028y\u2029",
    "the tokenizer of the model",
    " \u0301x a \u0301b \u0301",
    "Vie\u0323\u0302t o\u031b\u0301 ớ a\u0301\u0323",
    "ﬁ\u0301 ½\u0301 ①\u20dd ´\u0301 1\u20e3",
    "ภาษาไทย น้ำ a\u0e33 हिन्दी क\u093c தமிழ்",
    "\u1112\u1161\u11ab ｶﾞ か\u3099",
    "\u0600e\u0301 \u05e9\u05c1 \u0627\u0653",
    "x \u2581",
    "\u2581\u2581 x",
    "  two  spaces  ",
    "x\u3000 \t",
    "\x85x",
    "\x0b x",
)
# The first pieces of fairseq's models.
FIRST = {
    unigram_files.XLM_ROBERTA_CLASS: ("<s>", "<pad>", "</s>", "<unk>"),
    unigram_files.CAMEMBERT_CLASS: (
        *("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"),
        *("<s>", "</s>"),
    ),
}
PAGES = ("families", "python_api", "serving")


@functools.cache
def learn(do_lower_case=True, vocab_size=500):
    texts = [
        line
        for page in PAGES
        for line in (ROOT / "docs" / f"{page}.md")
        .read_text("utf-8")
        .splitlines()
    ]
    return learner.learn([texts], vocab_size, do_lower_case, ["docs"])


@functools.cache
def make_spec(name):
    """Returns the spec of a class, of the same pieces."""
    if name == unigram_files.ALBERT_CLASS:
        return learn()
    pieces, charsmap = sentencepiece_model.parse(learn(False).model)
    pieces = (
        *(
            Piece(token, -100.0 if token == "<unk>NOTUSED" else 0.0)
            for token in FIRST[name]
        ),
        *pieces[5:],
        Piece("<mask>", 0.0),
    )
    return unigram.from_model(
        Model(pieces, charsmap), name, do_lower_case=False, keep_accents=True
    )


def theirs_of(spec):
    return tokenizers.Tokenizer.from_str(json.dumps(spec.tokenizer_json))
