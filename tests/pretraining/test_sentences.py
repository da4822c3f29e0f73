"""The sentence splitter, on what trips simple rules."""

import random
import re
import time

import pytest

from bert_tf.pretraining.sources import sentences as sentences_lib
from bert_tf.pretraining.sources.sentences import split_sentences

# In ASCII, of a letter that may begin a sentence after white space alone.
_EVERY_MARK = re.compile(
    r"""(?P<mark>[.!?]+)["')\]]*(?P<space>\s)(?=["'(\[]?[A-Z0-9])"""
)


def split_ascii(text):
    """As `split_sentences` does, with a regular expression of ASCII alone."""
    text = " ".join(text.split())
    sentences = []
    start = 0
    for match in _EVERY_MARK.finditer(text):
        if match["mark"] != "." or not sentences_lib._goes_on(
            text, start, match
        ):
            sentences.append(text[start : match.start("space")])
            start = match.end()
    return sentences + [text[start:]] * (start < len(text))


@pytest.mark.parametrize(
    "sentences",
    [
        ["One.", "Two!", "Three?", "Four"],
        ["Dr. Smith met Mrs. Jones at St. Paul's.", "They left."],
        ["J. R. R. Tolkien wrote it.", "C. S. Lewis read it."],
        ["The U.S. Navy sailed.", "It was 3.5 miles long."],
        ["It costs $3.50.", "That is 2.5 times as much."],
        ["Use a list, e.g. [1, 2], or a tuple, i.e. (1, 2).", "Done."],
        ['"Stop!" he said.', '"Why?"', "She ran."],
        ["(See fig. 3.)", "It shows the rest."],
        ["He took vitamin C.", "It helped."],
        ["Is it true?!", "Yes."],
        ["On Jan. 5 it rained.", "See no. 7 for that."],
        ["The answer was no.", "He went home."],
        ["See example.com for more.", "The file is a.out there."],
        ["Wait... what is it?", "Nothing."],
        ["First, cf. Brown et al. 1992.", "Then, pp. 3-7."],
    ],
)
def test_sentences_are_found(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


def test_white_space_is_folded():
    assert split_sentences("  One\n  line.\tTwo\u00a0words.\n") == [
        "One line.",
        "Two words.",
    ]
    assert split_sentences(" \n ") == []


@pytest.mark.parametrize(
    "sentences",
    [
        ["Это Пушкин.", "Он А. С. Пушкин!", "Да?"],
        ["Αυτή είναι μία.", "Άλλη."],
        ["„Ja.“", "Über uns.", "»Nein!«", "»Gut.«"],
        ["« Oui. »", "« Non ! »", "Été 1990."],
        ["¿Qué?", "¡Nada!", "La 5. ª vez."],
        ["Łódź jest.", "Żółw i in. ryby."],
        ["ეს ერთია.", "ეს მეორეა."],
        ["Սա մեկն է։", "Սա երկուսն է։"],
        ["هل أنت بخير؟", "نعم، بخير.", "شكرا!"],
        ["یہ ایک ہے۔", "یہ دوسرا ہے۔"],
        ["זה אחד.", "זה עוד."],
        ["यह एक है।", "यह दूसरा है॥", "क्या?", "३ हैं।"],
        ["그는 갔다.", "나는 남았다!"],
        ["นี่คือประโยค นี่คืออีกประโยค"],
    ],
)
def test_sentences_of_other_scripts_are_found(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["今天天气很好。", "我们去公园吧！", "你来吗？", "好的,走吧。"],
        [
            "他说：“你好。”",
            "（他走了。）",
            "真的吗?",
            "用Python。",
            "pip是工具",
        ],
        ["价格是３．１４元。", "2020年上涨了．", "没有！？", "嗯（！），好。"],
        ["「はい！」", "次の日、雨だった｡", "おわり"],
        ["ይህ ነው።", "ይህ ሌላ ነው።"],
        ["នេះជា។", "ទីពីរ។"],
        ["နေကောင်းလား။", "ကောင်းပါတယ်။"],
        ["यह एक है।", "यह दूसरा है।"],
    ],
)
def test_their_marks_want_no_blank(sentences):
    assert split_sentences("".join(sentences)) == sentences


def test_rows_of_marks_are_split_as_mark_by_mark():
    generator = random.Random(1)
    texts = [
        "".join(generator.choices(["a", "Mr", "B", "3", *"..!?   '\")("], k=40))
        for _ in range(2000)
    ]
    found = [split_sentences(text) for text in texts]

    assert found == [split_ascii(text) for text in texts]
    assert sum(map(len, found)) > 3000


@pytest.mark.parametrize(
    "row", [".", "...\"')", ". ", "a.b ", "«", "a.» b ", ".a", "。，", "Ä.b "]
)
def test_the_time_of_marks_grows_with_their_number(row):
    def seconds_of(size):
        text = row * (size // len(row)) + "a"
        start = time.process_time()
        assert len(split_sentences(text)) == 1
        return time.process_time() - start

    # Ten times as long; of quadratic time it would be a hundred times.
    tenth = min(seconds_of(100_000) for _ in range(3))
    assert seconds_of(1_000_000) < 30 * tenth
