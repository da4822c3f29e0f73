"""The page in a browser: every tab's main path, its numbers, no error."""

import base64
import contextlib
import dataclasses
import functools
import re
import threading
import time

import numpy as np
import pytest

from bert_tf import checkpoints
from bert_tf import manifest as manifests
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.playground import app
from bert_tf.playground import build_page
from bert_tf.playground import page
from bert_tf.playground import record_data
from bert_tf.playground.model import PlaygroundModel
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import Vocabulary
from support import browser
from support import playground_server
from support import serving_models
from support import tokenizer_families

HARMFUL = "</script><img src=x onerror=window.harmed=1><b>x</b>"
ARABIC = "الكتاب the quick"


def test_scripts_and_styles_are_the_pages_own():
    made = page.make(model("pretrainer").describe())
    assert "@" not in made.policy
    # What the policy's hashes are of, and nothing from elsewhere.
    assert made.text.count("<script>") == 1
    # The other one is data.
    assert made.text.count("<script") == 2
    assert made.text.count("<style") == made.text.count("<style>") == 1
    assert "https://" not in made.text
    assert "innerHTML" not in made.text
    assert " style=" not in made.text
    assert " onclick=" not in made.text


@pytest.mark.parametrize("kind", ["pretrainer", "encoder"])
def test_what_the_page_is_told_is_read(kind):
    told = model(kind).describe()
    script = build_page.build(
        {}, build_page.tab_names(), title="all", asks_server=True
    )
    # What is read by Python, and by nobody else.
    names = told.keys() - {"name", "fills_masks"} | (told["task"] or {}).keys()
    assert names
    unread = [name for name in names if not re.search(rf"\b{name}\b", script)]
    assert unread == []


@functools.cache
def model(kind):
    return PlaygroundModel(serving_models.model_dir(kind))


def pretrainer_with(folder, spec, config):
    """Returns a new model of a tokenizer, to be looked at."""
    checkpoints.save(str(folder), BertPretrainer(config), spec, 19)
    return PlaygroundModel(str(folder))


class Gate:
    """Keeps the answers of a model's method back while it is closed.

    `asked` is what the method was asked.
    """

    def __init__(self, monkeypatch, asked_model, name):
        self.asked = []
        self._is_open = threading.Event()
        self.open()
        answer = getattr(asked_model, name)

        def gated(values):
            self.asked.append(values)
            assert self._is_open.wait(60)
            return answer(values)

        monkeypatch.setattr(asked_model, name, gated)

    def open(self):
        self._is_open.set()

    def close(self):
        self._is_open.clear()


class Tab:
    """A tab of the page in a browser."""

    def __init__(self, driver, name):
        self._driver = driver
        self._path = f"#panel-{name}"
        playground_server.wait_for(lambda: self.all(f"#tab-{name}"))
        self.all(f"#tab-{name}")[0].click()

    def all(self, path):
        return self._driver.find_elements("css selector", path)

    def find(self, path):
        """Returns the elements of the panel."""
        return self.all(f"{self._path} {path}")

    def texts(self, path):
        # All at once: they may be gone when they are asked one by one.
        return self._driver.execute_script(
            "return [...document.querySelectorAll(arguments[0])]"
            ".map((each) => each.innerText);",
            f"{self._path} {path}",
        )

    def write(self, number, text):
        """Writes into one of its boxes, and waits for the answer."""
        self.begin(number, text)
        self.answered()

    def begin(self, number, text):
        """Writes into one of its boxes."""
        box = self.find("textarea")[number]
        self._driver.execute_script(
            "arguments[0].value = arguments[1];"
            "arguments[0].dispatchEvent(new Event('input'));",
            box,
            text,
        )

    def answered(self, state="answered"):
        (panel,) = self.all(self._path)
        playground_server.wait_for(
            lambda: panel.get_attribute("data-state") == state
        )


@contextlib.contextmanager
def looking(folder, kind, width=1000, scheme="light", records=None):
    """Yields a browser at the page of a model; at last it has no error.

    `kind` is of `serving_models`, or a `PlaygroundModel`.
    """
    asked = model(kind) if isinstance(kind, str) else kind
    with (
        playground_server.serving(asked, records) as url,
        browser.opened(folder / "browser" / asked.name) as driver,
    ):
        browser.set_size(driver, width, 900, scheme)
        driver.get(url)
        yield driver
        assert browser.complaints(driver) == []
        assert driver.execute_script("return window.harmed") is None
        width = "document.documentElement.scrollWidth <= innerWidth"
        assert driver.execute_script(f"return {width}")


@pytest.mark.browser
def test_tokens(tmp_path):
    with looking(tmp_path, "pretrainer") as driver:
        tab = Tab(driver, "tokens")
        tab.write(0, "Thé  quick ﬁ\u200b")
        wanted = model("pretrainer").read_tokens(
            {"texts": ["Thé  quick ﬁ\u200b"]}
        )
        assert tab.texts(".m-text .m-piece") == ["Thé", "quick", "ﬁ"]
        assert tab.texts(".m-text .m-unknown") == ["ﬁ"]
        assert tab.texts(".m-text .m-changed") == ["Thé"]
        assert tab.texts(".m-warning") == ["Dropped: U+200B ZERO WIDTH SPACE."]
        rows = [row.text.split() for row in tab.find("tbody tr")]
        assert [int(row[2]) for row in rows] == (
            [each["id"] for each in wanted["sequence"]]
        )
        assert rows[1][4:] == ["Thé", "accents", "dropped,", "lower", "case"]

        tab.write(1, "the lorem")
        assert len(tab.find("tbody tr")) == len(rows) + 3
        tab.write(0, HARMFUL)
        assert "".join(tab.texts(".m-text")[0].split()) == (
            "".join(HARMFUL.split())
        )
        assert tab.find("img") == tab.find("b") == []
        tab.write(0, ARABIC)
        first = tab.find(".m-text")[0]
        assert first.text == ARABIC
        direction = "return getComputedStyle(arguments[0]).direction"
        assert driver.execute_script(direction, first) == "rtl"
        # Half of a character, and what is too long.
        tab.write(0, "the \ud83d\ude00 quick")
        assert "quick" in tab.texts(".m-text .m-piece")
        box = tab.find("textarea")[0]
        driver.execute_script(
            "arguments[0].value = 'a'.repeat(10001);"
            "arguments[0].dispatchEvent(new Event('input'));",
            box,
        )
        tab.answered("refused")
        assert "at most 10,000 characters" in tab.texts(".m-status")[0]
        logged = browser.complaints(driver)
        # The one that Chromium itself tells: the answer's status is 400.
        assert [each.count("status of 400") for each in logged] == [1]


@pytest.mark.browser
def test_the_tabs_of_records_stand_beside_the_models(tmp_path, run_program):
    (tmp_path / "vocab.txt").write_text(serving_models.VOCABULARY.to_text())
    lines = [f"the quick {word} lorem {word}" for word in "abcdefgh"]
    (tmp_path / "text.txt").write_text("\n\n".join(["\n".join(lines)] * 4))
    run_program(
        "bert_tf.data.create_pretraining_data",
        f"--input_file={tmp_path}/text.txt",
        f"--output_file={tmp_path}/text.tfrecord",
        f"--vocab_file={tmp_path}/vocab.txt",
        "--max_seq_length=16",
        "--dupe_factor=2",
    )
    asked = model("pretrainer")
    records = record_data.read(
        manifests.find_records(f"{tmp_path}/text.tfrecord", "input_file"),
        asked.tokenizer,
    )
    with looking(tmp_path, "pretrainer", records=records) as driver:
        tab = Tab(driver, "fill_mask")
        tab.write(0, "the quick [MASK]")
        assert len(tab.find(".m-bar")) == 10
        tab = Tab(driver, "records")
        told = dict(records["totals"])["examples"]
        assert f"examples {told}" in " ".join(tab.texts("tr")).replace(
            "\t", " "
        )
        handles = tab.all("[role=tab]")
        assert [handle.text for handle in handles] == (
            ["Tokens", "Fill the mask", "Attention", "Masking", "Input"]
            + ["Next sentence", "Records"]
        )
        for handle in handles:
            handle.click()
            name = handle.get_attribute("aria-controls")
            (panel,) = tab.all(f"#{name}")
            playground_server.wait_for(lambda panel=panel: panel.text)


def test_records_of_another_vocabulary_are_refused(tmp_path, run_program):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text(serving_models.VOCABULARY.to_text() + "more\n")
    (tmp_path / "text.txt").write_text("the quick a\nlorem b\n" * 5)
    run_program(
        "bert_tf.data.create_pretraining_data",
        f"--input_file={tmp_path}/text.txt",
        f"--output_file={tmp_path}/text.tfrecord",
        f"--vocab_file={vocabulary}",
        *("--max_seq_length=16", "--dupe_factor=1"),
    )
    with pytest.raises(ValueError, match="with another vocabulary: .*vocab"):
        record_data.read(
            manifests.find_records(f"{tmp_path}/text.tfrecord", "input_file"),
            model("pretrainer").tokenizer,
        )


@pytest.mark.browser
def test_masks(tmp_path):
    with looking(tmp_path, "pretrainer") as driver:
        tab = Tab(driver, "fill_mask")
        tab.write(0, "The quick lorem.")
        tab.find("[data-position='2']")[0].click()
        playground_server.wait_for(
            lambda: "Position 2" in "".join(tab.texts("h3"))
        )
        (mask,) = model("pretrainer").fill_mask(
            {"texts": ["The quick lorem."], "position": 2}
        )["masks"]
        assert tab.texts(".m-name") == names(mask["answers"])
        shown = [float(text.rstrip("%")) for text in tab.texts(".m-number")]
        wanted = [100 * each["probability"] for each in mask["answers"]]
        assert shown == pytest.approx(wanted, abs=0.06)
        (told,) = tab.texts(".m-output p")
        assert f"rank {mask['given']['rank']} of 94" in told
        # With the keyboard: the next token.
        driver.switch_to.active_element.send_keys("\ue004\n")
        playground_server.wait_for(
            lambda: "Position 3" in "".join(tab.texts("h3"))
        )
        tab.write(0, "The [MASK] [MASK].")
        assert len(tab.find("h3")) == 2


def names(answers):
    """Returns what the answers are called: of equal ones, the entries too."""
    texts = [each["text"] for each in answers]
    return [
        each["text"]
        if texts.count(each["text"]) == 1
        else f"{each['text']} ({each['token']})"
        for each in answers
    ]


@pytest.mark.browser
def test_an_overtaken_answer_changes_nothing(tmp_path, monkeypatch):
    gate = Gate(monkeypatch, model("pretrainer"), "fill_mask")
    with looking(tmp_path, "pretrainer") as driver:
        tab = Tab(driver, "fill_mask")
        tab.write(0, "The quick lorem.")
        gate.close()
        tab.find("[data-position='2']")[0].click()
        playground_server.wait_for(lambda: gate.asked[-1]["position"] == 2)
        # The answer comes after the next letter.
        (box,) = tab.find("textarea")
        box.send_keys("x")
        gate.open()
        tab.answered()
        assert driver.switch_to.active_element == box
        assert gate.asked[-1] == {"texts": ["The quick lorem.x"], "position": 3}

        # A token of the text before is no token of the next one.
        driver.execute_script(
            "const [box, chip] = arguments;"
            "box.value = 'a';"
            "box.dispatchEvent(new Event('input'));"
            "chip.click();",
            box,
            tab.find("[data-position='4']")[0],
        )
        tab.answered()
        assert gate.asked[-1] == {"texts": ["a"], "position": 1}
        assert {"texts": ["a"], "position": 4} not in gate.asked


@pytest.mark.browser
def test_whoever_types_on_waits_for_the_last_answer_alone(
    tmp_path, monkeypatch
):
    gate = Gate(monkeypatch, model("pretrainer"), "read_tokens")
    with looking(tmp_path, "pretrainer") as driver:
        tab = Tab(driver, "tokens")
        tab.answered()
        gate.close()
        gate.asked.clear()
        for number in range(1, 6):
            tab.begin(0, "the " * number)
            # Longer than the page waits for another letter.
            time.sleep(0.5)
        gate.open()
        tab.answered()
    assert gate.asked == [{"texts": ["the "]}, {"texts": ["the " * 5]}]


@pytest.mark.browser
def test_too_many_questions_are_told_on_the_page(tmp_path, monkeypatch):
    with looking(tmp_path, "pretrainer") as driver:
        tab = Tab(driver, "tokens")
        tab.answered()
        monkeypatch.setattr(app, "MAX_QUESTIONS", 0)
        tab.begin(0, "the quick")
        tab.answered("refused")
        assert "other questions to answer" in tab.texts(".m-status")[0]
        logged = browser.complaints(driver)
        assert [each.count("status of 503") for each in logged] == [1]


@pytest.mark.browser
def test_tokens_of_right_to_left_text_stand_so(tmp_path):
    words = ARABIC.split()
    vocabulary = Vocabulary(
        tokens=(*serving_models.VOCABULARY.tokens[:-1], words[0])
    )
    asked = pretrainer_with(
        tmp_path / "arabic", WordpieceSpec(vocabulary), serving_models.CONFIG
    )
    with looking(tmp_path, asked) as driver:
        for name in ("fill_mask", "attention"):
            tab = Tab(driver, name)
            for text, first, direction in (
                (ARABIC, words[0], "rtl"),
                (f"the {ARABIC}", "the", "ltr"),
            ):
                tab.write(0, text)
                (chips,) = tab.find(".m-chips")
                assert chips.value_of_css_property("direction") == direction
                one, two, three = (
                    tab.find(f"[data-position='{place}']")[0]
                    for place in (1, 2, 3)
                )
                assert one.text.split("\n")[0] == first
                assert (one.rect["x"] > two.rect["x"]) == (direction == "rtl")
            if name == "fill_mask":
                continue
            # Keys move as the tokens stand.
            tab.write(0, ARABIC)
            two = tab.find("[data-position='2']")[0]
            two.click()
            two.send_keys(browser.ARROW_LEFT)
            focused = driver.switch_to.active_element
            assert focused.get_attribute("data-position") == "3"


@pytest.mark.browser
def test_pieces_of_bytes_are_shown_as_text(tmp_path):
    config, spec, _ = tokenizer_families.FAMILIES["roberta"]
    asked = pretrainer_with(tmp_path / "bytes", spec, config)
    text = "The quick fox"
    read = asked.read_tokens({"texts": [text]})["sequence"]
    assert any(each["token"].startswith("\u0120") for each in read)
    with looking(tmp_path, asked) as driver:
        for name in ("fill_mask", "attention"):
            tab = Tab(driver, name)
            tab.write(0, text)
            chips = tab.find(".m-chip")
            assert [chip.text.split("\n")[0] for chip in chips] == (
                [each["text"] or "\u2205" for each in read]
            )
            assert "".join(each["text"] for each in read[1:-1]) == (
                text.replace(" ", "")
            )
            assert [chip.get_attribute("title") for chip in chips] == (
                [each["token"] for each in read]
            )
        tab = Tab(driver, "fill_mask")
        tab.write(0, "The <mask> fox")
        (mask,) = asked.fill_mask({"texts": ["The <mask> fox"]})["masks"]
        assert [
            each.get_attribute("title") for each in tab.find(".m-name")
        ] == [each["token"] for each in mask["answers"]]


@pytest.mark.browser
def test_attention(tmp_path):
    with looking(tmp_path, "pretrainer", 390, "dark") as driver:
        tab = Tab(driver, "attention")
        tab.write(0, "The quick lorem.")
        told = model("pretrainer").attention({"texts": ["The quick lorem."]})
        probs = decoded(told)
        assert len(tab.find(".m-head canvas")) == 4

        def shown():
            values = [
                each.get_attribute("data-value")
                for each in tab.find(".m-key-of small")
            ]
            return list(map(float, values))

        for layer, head, query in ((0, 1, 2), (1, 0, 3)):
            tab.find(f"[data-head='{2 * layer + head}']")[0].click()
            tab.find(f"[data-position='{query}']")[0].click()
            wanted = probs[layer, head, query].tolist()
            assert shown() == pytest.approx(wanted, abs=1e-7)
            assert tab.texts("h3") == [f"Layer {layer + 1}, head {head + 1}"]
        # With the keyboard: the token before, the head above.
        driver.switch_to.active_element.send_keys("\ue012")
        assert shown() == pytest.approx(probs[1, 0, 2].tolist(), abs=1e-7)
        tab.find("[data-head='2']")[0].send_keys("\ue013")
        assert shown() == pytest.approx(probs[0, 0, 2].tolist(), abs=1e-7)
        # The tab key stops once at all heads, and once at all tokens.
        for group in (".m-heads", ".m-chips"):
            stops = [
                each.get_attribute("aria-pressed")
                for each in tab.find(f"{group} button")
                if each.get_property("tabIndex") == 0
            ]
            assert stops == ["true"]
        # The picture: the shade of a pixel is the root of its probability.
        pixel = driver.execute_script(
            "return [...arguments[0].getContext('2d')"
            ".getImageData(1, 2, 1, 1).data]",
            tab.find(".m-large")[0],
        )
        assert pixel[3] == pytest.approx(255 * probs[0, 0, 2, 1] ** 0.5, abs=1)


@pytest.mark.browser
def test_what_attention_is_not_shown_of_is_told(tmp_path):
    with looking(tmp_path, "pretrainer") as driver:
        tab = Tab(driver, "attention")
        tab.write(0, "The quick lorem.")
        assert tab.find(".m-warning") == []
        # Of either text the end is missing.
        tab.write(0, "a " * 12)
        tab.write(1, "b " * 12)
        (told,) = tab.texts(".m-warning")
        assert "Not all of the text is here" in told
        assert f"{serving_models.MAX_SEQ_LENGTH} tokens" in told
        assert "first" not in told


def decoded(told):
    values = np.frombuffer(base64.b64decode(told["probabilities"]), "<f4")
    return values.reshape(told["shape"])


def percents(tab):
    return [float(text.rstrip("%")) for text in tab.texts(".m-number")]


@pytest.mark.browser
def test_classes_and_labels(tmp_path):
    for kind in ("pair", "topics"):
        with looking(tmp_path, kind, 390) as driver:
            tab = Tab(driver, "task")
            texts = ["the quick", "a lorem"][: 2 if kind == "pair" else 1]
            for number, text in enumerate(texts):
                tab.write(number, text)
            classes = model(kind).predict({"texts": texts})["classes"]
            classes.sort(key=lambda each: -each["probability"])
            assert tab.texts(".m-name") == [each["name"] for each in classes]
            assert percents(tab) == pytest.approx(
                [100 * each["probability"] for each in classes], abs=0.06
            )
            assert tab.texts(".m-chosen .m-name") == [
                each["name"] for each in classes if each["is_chosen"]
            ]


@pytest.mark.browser
def test_number_and_choices(tmp_path):
    with looking(tmp_path, "regression") as driver:
        tab = Tab(driver, "task")
        tab.write(0, "the quick")
        wanted = model("regression").predict({"texts": ["the quick"]})["score"]
        shown = tab.find(".m-big")[0].get_attribute("data-value")
        assert float(shown) == pytest.approx(wanted, abs=1e-6)
    with looking(tmp_path, "choice") as driver:
        tab = Tab(driver, "task")
        texts = ["the quick", "a", "lorem", "x y"]
        for number, text in enumerate(texts):
            tab.write(number, text)
        told = model("choice").predict({"texts": texts})
        assert percents(tab) == pytest.approx(
            [100 * each for each in told["probabilities"]], abs=0.06
        )
        assert tab.texts(".m-chosen .m-name") == [texts[told["choice"] + 1]]


@pytest.mark.browser
def test_entities_and_answers(tmp_path):
    with looking(tmp_path, "tagger", 390, "dark") as driver:
        tab = Tab(driver, "task")
        text = "The 😀 quick, the 我 a lorem x"
        tab.write(0, text)
        entities = model("tagger").predict({"texts": [text]})["entities"]
        assert entities
        for each, shown in zip(
            entities, tab.texts("mark.m-entity"), strict=True
        ):
            cited = text[each["start"] : each["limit"]]
            share = f"{100 * each['score']:.1f}%"
            assert shown == f"{cited} {each['label']} {share}"
        assert tab.texts(".m-status") == [""]
    with looking(tmp_path, "squad") as driver:
        tab = Tab(driver, "task")
        texts = ["the quick?", "😀 A 我 lorem b the quick x. Lorem a b c"]
        for number, text in enumerate(texts):
            tab.write(number, text)
        told = model("squad").predict({"texts": texts})
        best = told["best"]
        has = best["start"] >= 0
        assert tab.texts(".m-big") == [best["text"] if has else "No answer"]
        assert tab.texts("mark") == ([best["text"]] if has else [])
        assert percents(tab) == pytest.approx(
            [100 * each["score"] for each in told["answers"]], abs=0.06
        )


@pytest.mark.browser
def test_sentences_and_ranks(tmp_path):
    with looking(tmp_path, "encoder") as driver:
        tab = Tab(driver, "task")
        texts = ["the quick", HARMFUL, "x the quick"]
        tab.write(0, "\n".join(texts) + "\n\n")
        wanted = model("encoder").predict({"texts": texts})["cosines"]
        cells = [
            float(each.get_attribute("data-value"))
            for each in tab.find("td[data-value]")
        ]
        assert cells == pytest.approx(sum(wanted, []), abs=1e-9)
        tab.find("th button")[2].click()
        assert tab.texts("h3") == ["Nearest to: x the quick"]
        order = sorted((0, 1), key=lambda place: -wanted[2][place])
        assert tab.texts(".m-name") == [texts[place] for place in order]
    with looking(tmp_path, "reranker") as driver:
        tab = Tab(driver, "task")
        texts = ["the quick", "a", "lorem b"]
        tab.write(0, texts[0])
        tab.write(1, "\n".join(texts[1:]))
        told = model("reranker").predict({"texts": texts})
        assert tab.texts(".m-name") == [
            texts[place + 1] for place in told["order"]
        ]


@pytest.mark.browser
def test_the_prompt_of_sentences_is_told(tmp_path, monkeypatch):
    servable = model("encoder")._servable
    options = dataclasses.replace(servable.options, prompt="query: ")
    monkeypatch.setattr(servable, "options", options)
    with looking(tmp_path, "encoder") as driver:
        tab = Tab(driver, "task")
        tab.answered()
        assert "\u201cquery: \u201d" in " ".join(tab.texts("p"))


@pytest.mark.browser
def test_a_server_that_has_ended_is_told(tmp_path):
    with browser.opened(tmp_path) as driver:
        with playground_server.serving(model("pretrainer")) as url:
            driver.get(url)
            tab = Tab(driver, "tokens")
            tab.answered()
        box = tab.find("textarea")[0]
        box.send_keys("x")
        tab.answered("refused")
        assert "Is it still running?" in tab.texts(".m-status")[0]
