"""The playground's page in a browser: what it shows is what the library has."""

import json

import numpy as np
import pytest

from bert_tf.philox import philox
from bert_tf.playground import build_page
from bert_tf.playground import record_data
from bert_tf.pretraining.objectives import sentence_pairs
from bert_tf.pretraining.records import inspection
from bert_tf.pretraining.records import survey
from bert_tf.pretraining.settings import Settings
from bert_tf.text import dynamic_masking
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from support import browser
from support import masking as masking_support
from support.pretraining_data import VOCABULARY
from support.pretraining_data import make_documents
from support.pretraining_data import write_text

pytestmark = pytest.mark.browser

HOSTILE = "</script><img/src=x/onerror=document.title='run'>"


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with browser.opened(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def shown(driver, tmp_path):
    """Shows a page; at the end the console must be empty."""

    def show(page, tab=""):
        path = tmp_path / "page.html"
        path.write_text(page, "utf-8")
        driver.get("about:blank")
        driver.get(f"file://{path}#{tab}")
        return driver

    browser.set_size(driver, 1200, 900)
    yield show
    assert browser.complaints(driver) == []


@pytest.fixture
def records(tmp_path, run_program):
    """Returns a function that builds records and their page."""

    def build(**flags):
        (tmp_path / "vocab.txt").write_text(VOCABULARY.to_text())
        write_text(tmp_path / "text.txt", make_documents(12, 3))
        flags = {"max_seq_length": 32, "dupe_factor": 2} | flags
        run_program(
            "bert_tf.data.create_pretraining_data",
            f"--input_file={tmp_path}/text.txt",
            f"--output_file={tmp_path}/a.tfrecord,{tmp_path}/b.tfrecord",
            f"--vocab_file={tmp_path}/vocab.txt",
            *(f"--{name}={value}" for name, value in flags.items()),
        )
        run_program(
            "bert_tf.data.inspect_records",
            f"--input_file={tmp_path}/*.tfrecord",
            f"--vocab_file={tmp_path}/vocab.txt",
            f"--output_file={tmp_path}/records.html",
        )
        return (tmp_path / "records.html").read_text("utf-8")

    return build


def made(ids, vocabulary=VOCABULARY):
    """Returns a page of unmasked rows of ids."""
    data = record_data.RecordData(WordpieceSpec(vocabulary), 10)
    ids = np.array(ids)
    examples = {
        "input_ids": ids,
        "input_mask": (ids > 0).astype(int),
        "segment_ids": 0 * ids,
    }
    data.add(examples)
    totals = inspection.count(examples, vocabulary)
    found = survey.Survey(1, None, totals, {})
    return build_page.build(data.data(found), title="made")


def test_records_that_break_the_rules_are_shown(shown):
    data = record_data.RecordData(WordpieceSpec(VOCABULARY), 10)
    ids = np.array([[2, 5, 3, 6, 3, 0]] * 4)
    examples = {
        "input_ids": ids,
        "input_mask": np.where(ids > 0, 9, 0),
        # 7 beside 1.
        "segment_ids": np.array([[0, 0, 0, 7, 1, 0]] * 4),
        "next_sentence_labels": np.array([[7], [-1], [1], [1]]),
    }
    data.add(examples)
    totals = inspection.count(examples, VOCABULARY)
    found = survey.Survey(1, None, totals, {})
    page = build_page.build(data.data(found), title="made")
    for tab in build_page.RECORD_TABS:
        driver = shown(page, tab)
        text = text_of(driver, f"#panel-{tab}")
        assert len(text) > 100
        for wrong in ("undefined", "NaN"):
            assert wrong not in text, tab
    assert "random next 50.0%" in text_of(driver, "#panel-records")
    assert "second segment: label 7" in text_of(driver, "#panel-records")
    bars = driver.find_elements(browser.CSS, "#panel-records .bars")[-1]
    rows = bars.find_elements(browser.CSS, "tbody tr")
    assert [row.text.split() for row in rows] == [
        ["follows", "0.0%"],
        ["random", "next", "50.0%"],
        ["label", "-1", "25.0%"],
        ["label", "7", "25.0%"],
    ]
    # Of every pair the answer, whatever it is.
    driver = shown(page, "sentence")
    told = set()
    for number in range(4):
        of(driver, "#panel-sentence [data-label='1']").click()
        answer = text_of(driver, "#panel-sentence .answer")
        told.add(answer.partition(" (")[0])
        if number < 3:
            of(driver, "#panel-sentence button.main").click()
    assert told == {"Right: random next", "Wrong: label 7", "Wrong: label -1"}


def of(driver, selector):
    return driver.find_element(browser.CSS, selector)


def text_of(driver, selector):
    return of(driver, selector).text


def data_of(page):
    begin = page.index('id="data">') + len('id="data">')
    return json.loads(page[begin : page.index("</script>", begin)])


def test_philox_and_seeds_equal_the_librarys(shown):
    driver = shown(made([[2, 5, 3]]))
    edges = [0, 1, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
    rng = np.random.default_rng(0)
    table = np.concatenate(
        [
            np.repeat(np.array(edges)[:, None], 6, axis=1),
            rng.choice(edges, (50, 6)),
            rng.integers(0, 2**32, (200, 6)),
        ]
    ).astype(np.uint64)
    expected = np.stack(philox(table.T[:4], table.T[4:]), axis=1)
    got = driver.execute_script(
        "return arguments[0].map((row) => philox(...row));", table.tolist()
    )
    assert got == expected.tolist()
    # Random123's own values, of zeros and of ones.
    assert [f"{word:08x}" for word in got[0]] == (
        ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]
    )
    assert [f"{word:08x}" for word in got[len(edges) - 1]] == (
        ["408f276d", "41c83b0e", "a20bc7c6", "6d5451fd"]
    )
    numbers = [0, 1, 2**32 - 1, 2**32, 2**40 + 7]
    got = driver.execute_script(
        "return arguments[0].map((number) => trainingSeeds(4294967295, "
        "number));",
        numbers,
    )
    seeds = dynamic_masking.example_seeds(2**32 - 1, np.array(numbers))
    assert got == seeds.numpy().tolist()


RULES = [
    ("tokens", {}),
    ("words", {"do_whole_word_mask": True}),
    ("spans", {"do_span_mask": True}),
    ("ngrams", {"do_ngram_mask": True}),
    ("tokens", {"masking_rule": "roberta"}),
    ("words", {"masking_rule": "electra", "do_whole_word_mask": True}),
]


@pytest.mark.parametrize("together, flags", RULES)
def test_masks_equal_the_librarys(shown, together, flags):
    vocabulary = masking_support.VOCABULARY
    ids, mask, seeds = masking_support.make_inputs(64, 40, seed=5)
    driver = shown(made(ids[:1], vocabulary))
    for probability, most in ((0.15, 20), (0.5, 12), (1.0, 40)):
        flags = flags | {
            "masked_lm_prob": probability,
            "max_predictions_per_seq": most,
        }
        masked = masking_support.mask_tokens(ids, mask, seeds, **flags)
        shares = record_data.describe_rules(None) | {
            "maskedLmProb": probability,
            "maxPredictions": most,
            "together": together,
            "rule": flags.get("masking_rule", "bert"),
        }
        if shares["rule"] == "electra":
            shares |= {"masked": 0.85, "kept": 0.15}
        rows = [
            row[: row_mask.sum()].tolist() for row, row_mask in zip(ids, mask)
        ]
        got = driver.execute_script(
            """
            const [rows, seeds, rules] = arguments;
            const {vocabulary} = JSON.parse(
              document.getElementById("data").textContent);
            const made = makeVocabulary(vocabulary);
            return rows.map((ids, row) =>
              maskTokens(ids, made, seeds[row], rules));
            """,
            rows,
            seeds.tolist(),
            shares,
        )
        for row, choices in enumerate(got):
            count = int(masked["masked_lm_weights"][row].sum())
            places = masked["masked_lm_positions"][row, :count]
            assert [place for place, _, _ in choices] == places.tolist()
            assert [now for _, now, _ in choices] == (
                masked["input_ids"][row, places].tolist()
            )


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"do_whole_word_mask": True},
        {"do_span_mask": True, "max_sequences_per_row": 3},
    ],
    ids=["tokens", "words", "packed spans"],
)
def test_the_builders_masks_are_found(shown, records, flags):
    page = records(**flags)
    driver = shown(page)
    driver.set_script_timeout(120)
    texts = driver.execute_script(
        "return document.querySelectorAll('#panel-masking option').length;"
    )
    assert texts > 20
    verdict = "#panel-masking .verdict"
    assert "other masks" in text_of(driver, verdict)
    of(driver, "#find-seed").click()
    browser.wait_until(
        lambda: "These are the masks" in text_of(driver, verdict)
    )
    # What stands there now is the record's.
    record = data_of(page)["records"][0]["sequences"][0]
    pieces = driver.find_elements(browser.CSS, "#panel-masking [data-now]")
    assert [
        [int(piece.get_attribute(f"data-{name}")) for name in ("place", "now")]
        for piece in pieces
    ] == record["masks"]
    # And of more records, by places that are in the input.
    found = driver.execute_async_script(
        """
        const done = arguments[arguments.length - 1];
        const data = JSON.parse(document.getElementById("data").textContent);
        const vocabulary = makeVocabulary(data.vocabulary);
        const places = [];
        const next = (index) => {
          if (index === 4) return done(places);
          const record = data.records[index + 1];
          findSeeds({record, sequence: record.sequences[0]}, data, vocabulary,
            () => {}, (place) => { places.push(place); next(index + 1); });
        };
        next(0);
        """
    )
    assert len(found) == 4
    for place in found:
        assert place["file"] == 0
        assert place["pass"] in (0, 1)


def test_masking_can_be_played_with(shown, records):
    driver = shown(records(), "masking")
    panel = "#panel-masking "
    drawn = text_of(driver, panel + ".tokens")
    of(driver, "#new-draw").click()
    assert text_of(driver, panel + ".tokens") != drawn

    def row(name):
        cells = driver.find_elements(
            browser.CSS, f'{panel}[data-row="{name}"] td'
        )
        return [cell.text for cell in cells]

    assert row("masked")[0] == "80.0%"
    assert float(row("masked")[2][:-1]) == pytest.approx(80, abs=5)
    assert float(row("kept")[2][:-1]) == pytest.approx(10, abs=4)
    # Keys move a slider: to its end, all is chosen; then all is kept.
    sliders = driver.find_elements(browser.CSS, panel + 'input[type="range"]')
    sliders[0].send_keys(browser.END)
    most = of(driver, panel + 'input[type="number"]')
    most.clear()
    most.send_keys("200")
    specials = len(
        driver.find_elements(browser.CSS, panel + ".tokens .special")
    )
    assert len(
        driver.find_elements(browser.CSS, panel + ".tokens .piece")
    ) - specials == int(row("tokens chosen")[1])
    # More there is not, at a rate of 100% either.
    assert row("tokens chosen")[0] == row("tokens chosen")[1]
    sliders[2].send_keys(browser.END)
    assert row("kept") == ["100.0%"] * 3
    # One's own words, in pieces of the vocabulary.
    choose(driver, panel + "select", "-1")
    of(driver, panel + "textarea").send_keys("abc a")
    assert of(driver, panel + ".tokens").text.split() == [
        *("[CLS]", "a", "kept", "b", "kept", "c", "kept", "a", "kept"),
        "[SEP]",
    ]


def choose(driver, selector, value):
    driver.execute_script(
        "const input = document.querySelector(arguments[0]);"
        "input.value = arguments[1];"
        "input.dispatchEvent(new Event('change'));",
        selector,
        value,
    )


def test_input_is_added_up_and_truncated(shown, records):
    page = records(max_sequences_per_row=3, short_seq_prob=0.9)
    record = data_of(page)["records"][0]
    driver = shown(page, "input")
    rows = {
        name: [
            cell.text
            for cell in driver.find_elements(
                browser.CSS, f"#panel-input tr.{name} td:not(.padding)"
            )
        ]
        for name in ("token", "segment", "position", "sequence")
    }
    sequences = record["sequences"]
    now = []
    for sequence in sequences:
        ids = dict(enumerate(sequence["ids"])) | dict(sequence["masks"])
        now += [VOCABULARY.tokens[ids[place]] for place in sorted(ids)]
    assert rows["token"] == [token.removeprefix("##") for token in now]
    assert rows["segment"] == [
        "AB"[segment] for each in sequences for segment in each["segments"]
    ]
    assert rows["position"] == [
        str(place) for each in sequences for place in range(len(each["ids"]))
    ]
    lengths = [len(each["ids"]) for each in sequences]
    told = text_of(driver, "#attention-numbers")
    assert f"sequences {len(lengths)}" in told
    pairs = sum(length**2 for length in lengths)
    assert f"pairs attended to {pairs:,} of 1,024" in told

    # What is left, and how much goes at the front, by the builder's function.
    for a, b, room in ((50, 9, 29), (20, 300, 29), (40, 41, 30), (5, 6, 29)):
        place = {"file": 0, "offset": 77, "pass": 1, "ordinal": 3}
        steps = driver.execute_script(
            "const [a, b, room, place] = arguments;"
            "return truncationSteps(a, b, room, truncationCoin(9, place));",
            *(a, b, room, place),
        )
        pair = {
            "a_start": np.array([0]),
            "a_length": np.array([a]),
            "b_start": np.array([0]),
            "b_length": np.array([b]),
            "pass_number": np.array([1]),
            "ordinal": np.array([3]),
        }
        kept = sentence_pairs._truncated(
            pair, np.array([77], np.uint64), Settings(random_seed=9), room
        )
        for segment, (name, length) in enumerate((("a", a), ("b", b))):
            lost = [front for each, front in steps if each == segment]
            assert length - len(lost) == kept[f"{name}_length"][0]
            assert sum(lost) == kept[f"{name}_start"][0]
    of(driver, "#drop").click()
    dropped = driver.find_elements(browser.CSS, "#truncation .dropped")
    assert len(dropped) == 1


@pytest.mark.parametrize(
    "objective, words",
    [
        ("next_sentence", ["Follows", "Random next"]),
        ("sentence_order", ["In order", "Swapped"]),
    ],
)
def test_sentences_are_guessed(shown, records, objective, words):
    page = records(objective=objective)
    driver = shown(page, "sentence")
    panel = "#panel-sentence "
    buttons = driver.find_elements(browser.CSS, panel + "[data-label]")
    assert [button.text for button in buttons] == words
    assert text_of(driver, panel + ".answer") == ""
    buttons[0].click()
    first = text_of(driver, panel + ".answer")
    right = first.startswith("Right")
    assert (f"{words[0].lower()} (" in first) == right
    # The label is the record's.
    number = int(first.rpartition("record ")[2].removesuffix(")."))
    label = next(
        record["sequences"][0]["label"]
        for record in data_of(page)["records"]
        if record["number"] == number
    )
    assert f": {words[label].lower()} " in first
    of(driver, panel + "button.main").click()
    of(driver, "body").send_keys("2")
    second = text_of(driver, panel + ".answer")
    right += second.startswith("Right")
    assert text_of(driver, "#score").startswith(f"{right} of 2 right")


def test_records_without_labels_say_so(shown, records):
    driver = shown(records(objective="full_sentences"), "sentence")
    assert "have no label" in text_of(driver, "#panel-sentence")


def test_records_are_searched_and_counted(shown, records):
    page = records()
    driver = shown(page, "records")
    data = data_of(page)
    panel = "#panel-records "
    assert text_of(driver, panel + ".where").endswith(
        f"of {len(data['records'])}"
    )
    # An entry of the vocabulary, the text of pieces joined, a number.
    number = data["records"][5]["number"]
    for asked, condition in (
        ("##m", lambda tokens, text: "##m" in tokens),
        ("ab", lambda tokens, text: "ab" in text),
    ):
        search(driver, asked)
        expected = 0
        for record in data["records"]:
            tokens = [
                VOCABULARY.tokens[index]
                for index in record["sequences"][0]["ids"]
            ]
            text = " ".join(tokens).replace(" ##", "")
            expected += condition(tokens, text)
        shown_of = text_of(driver, panel + ".where")
        assert shown_of == (f"1 of {expected}" if expected else "None has it.")
    search(driver, str(number))
    assert text_of(driver, panel + ".shown h2").startswith(f"Record {number} ")
    search(driver, "nothing has this")
    assert text_of(driver, panel + ".where") == "None has it."
    # The histogram's numbers add up to all sequences.
    histogram = of(driver, panel + ".bars")
    numbers = histogram.find_elements(browser.CSS, "td.number")
    total = sum(int(cell.text.replace(",", "")) for cell in numbers)
    assert total == data["numRecords"]


def search(driver, text):
    box = of(driver, "#panel-records input")
    box.clear()
    box.send_keys(text)


def test_tabs_are_reached_by_keys_and_the_theme_changes(shown):
    driver = shown(made([[2, 5, 3]]))
    of(driver, "#tab-masking").send_keys(browser.ARROW_LEFT)
    assert driver.switch_to.active_element.get_attribute("id") == "tab-records"
    assert of(driver, "#panel-records").is_displayed()
    assert not of(driver, "#panel-masking").is_displayed()
    assert driver.current_url.endswith("#records")

    def paper():
        return driver.execute_script(
            "return getComputedStyle(document.body).backgroundColor;"
        )

    light = paper()
    browser.set_size(driver, 1200, 900, "dark")
    dark = paper()
    assert light != dark
    toggle = of(driver, "#theme")
    toggle.click()
    assert (toggle.text, paper()) == ("Theme: light", light)
    toggle.click()
    assert (toggle.text, paper()) == ("Theme: dark", dark)
    toggle.click()
    assert toggle.text == "Theme: system"


def test_nothing_is_wider_than_a_phone(shown, records):
    page = records(max_sequences_per_row=3)
    for tab in build_page.RECORD_TABS:
        driver = shown(page, tab)
        browser.set_size(driver, 360, 800)
        width = driver.execute_script(
            "return document.documentElement.scrollWidth;"
        )
        assert width == 360, tab


def test_hostile_and_right_to_left_text_is_text(shown):
    vocabulary = masking_support.Vocabulary(
        tokens=(
            *masking_support.SPECIAL_TOKENS,
            HOSTILE,
            "\u05e9\u05dc\u05d5\u05dd",
        )
    )
    page = made([[2, 5, 5, 3], [2, 6, 6, 3]], vocabulary)
    for tab in build_page.RECORD_TABS:
        driver = shown(page, tab)
        assert driver.find_elements(browser.CSS, "img") == []
        assert driver.title == "made"
    assert HOSTILE in text_of(driver, "#panel-records .tokens")
    tokens = of(driver, "#panel-records .tokens")
    assert tokens.get_attribute("dir") == "ltr"
    search(driver, "1")
    tokens = of(driver, "#panel-records .tokens")
    assert tokens.get_attribute("dir") == "rtl"
