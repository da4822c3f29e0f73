"""One HTML page on which a person sees pre-training examples at a glance.

The page needs nothing but itself: its data is JSON inside it, and a few lines
of script step through the examples.
"""

import html
import json

from bert_tf import features
from bert_tf.pretraining.records import inspection
from bert_tf.text.vocabulary import Vocabulary


def describe(examples: dict, row: int, vocabulary: Vocabulary) -> dict:
    """Returns one record as the page has it: JSON-able.

    Args:
        examples: A batch as `inspection.read` yields it.
        row: The number of the record in it.
        vocabulary: A `Vocabulary`.

    Returns:
        `{"sequences", "padding", "labels"}`: a sequence, of which a packed
        row has several, is a list of tokens: `[what it was, segment]`, at a
        prediction `[what it was, segment, what stands there now]`; padding is
        a number; a label for each sequence is 0, 1 or None.
    """
    one = {name: values[row : row + 1] for name, values in examples.items()}
    padding = int((one[features.INPUT_MASK] == 0).sum())
    if features.SEQUENCE_IDS in one:
        one, _ = inspection.unpack(one, vocabulary)
    labels = one.get(features.NEXT_SENTENCE_LABELS)
    sequences = []
    for number in range(len(one[features.INPUT_IDS])):
        tokens = inspection.tokens_of(one, number, vocabulary)
        sequences.append(
            [
                [was, segment] if now is None else [was, segment, now]
                for was, segment, now in tokens
            ]
        )
    return {
        "sequences": sequences,
        "padding": padding,
        "labels": [None] * len(sequences)
        if labels is None
        else labels[:, 0].tolist(),
    }


def page(
    described: list[dict],
    totals: list[tuple[str, str]],
    rules: list[tuple[str, int]],
    title: str,
) -> str:
    """Returns the page as text.

    Args:
        described: Records, as `describe` returns them; one at least.
        totals: (name, value) pairs, text both.
        rules: (rule, number of examples that break it) pairs.
        title: What the examples are of.
    """
    # "<" could end the element that holds the data.
    data = json.dumps(described).replace("<", "\\u003c")
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in totals
    )
    checks = "".join(
        f'<li class="{"broken" if number else "holds"}">{html.escape(rule)}: '
        f"{f'broken by {number:,}' if number else 'holds'}</li>"
        for rule, number in rules
    )
    return (
        _PAGE.replace("@TITLE@", html.escape(title))
        .replace("@TOTALS@", rows)
        .replace("@RULES@", checks)
        .replace("@DATA@", data)
    )


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>@TITLE@</title>
<style>
:root { color-scheme: light dark; --a: #2563b8; --b: #b85c00; --m: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --a: #7db3ff; --b: #ffb266; --m: #ff8a80; }
}
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 62rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; }
nav { align-items: center; display: flex; flex-wrap: wrap; gap: .75rem; }
nav input { flex: 1; min-width: 8rem; }
button { font: inherit; min-width: 6rem; padding: .25rem .75rem; }
#sequences ol { display: flex; flex-wrap: wrap; gap: .3rem .25rem;
  margin: 1rem 0; padding: 0; list-style: none; }
#sequences li { border-bottom: 3px solid var(--a); display: flex;
  flex-direction: column; padding: 0 .25rem; }
#sequences li.b { border-color: var(--b); }
#sequences li.special { opacity: .7; }
#sequences li.chosen { border: 2px solid var(--m); border-radius: .3rem; }
#sequences small { font-size: .7rem; opacity: .75; }
#sequences .now { color: var(--m); font-weight: 600; }
.label, #total { font-weight: 600; margin-bottom: 0; }
.key { border-bottom: 3px solid var(--a); margin-right: 1rem; }
.key.b { border-color: var(--b); }
.key.m { border: 2px solid var(--m); border-radius: .3rem; padding: 0 .3rem; }
table { border-collapse: collapse; }
th { font-weight: normal; text-align: left; padding-right: 2rem; }
td { text-align: right; font-variant-numeric: tabular-nums; }
.broken { color: var(--m); font-weight: 600; }
</style>
</head>
<body>
<h1>@TITLE@</h1>
<nav>
<button id="back" type="button">Previous</button>
<input id="number" type="range" min="0" value="0" aria-label="Example">
<button id="on" type="button">Next</button>
<output id="where"></output>
</nav>
<p id="total" aria-live="polite"></p>
<p><span class="key">segment A</span><span class="key b">segment B</span>
<span class="key m">to be predicted</span>: what stands there now, and below
it the token that was there. Small numbers are positions.</p>
<div id="sequences"></div>
<h2>All examples</h2>
<table>@TOTALS@</table>
<h2>Rules</h2>
<ul>@RULES@</ul>
<script type="application/json" id="data">@DATA@</script>
<script>
"use strict";
const examples = JSON.parse(document.getElementById("data").textContent);
const number = document.getElementById("number");
number.max = examples.length - 1;

function add(parent, kind, text, name) {
  const element = document.createElement(kind);
  element.textContent = text;
  if (name) element.className = name;
  parent.append(element);
  return element;
}

const NEXT = { 0: "B follows A. ",
  1: "B is a random segment, or A and B are swapped. " };

function count(number, noun) {
  return number + " " + noun + (number === 1 ? "" : "s");
}

function showSequence(parent, tokens, title) {
  add(parent, "p", title, "label");
  const list = add(parent, "ol", "");
  let chosen = 0;
  tokens.forEach(([was, segment, now], place) => {
    const item = add(list, "li", "", segment ? "b" : "");
    add(item, "small", place);
    add(item, "span", now === undefined ? was : now, now && "now");
    if (now !== undefined) {
      chosen += 1;
      item.classList.add("chosen");
      add(item, "small", now === was ? was + " (kept)" : was);
    } else if (was === "[CLS]" || was === "[SEP]") {
      item.classList.add("special");
    }
  });
  return chosen;
}

function show() {
  const index = Number(number.value);
  const example = examples[index];
  const parent = document.getElementById("sequences");
  parent.replaceChildren();
  const several = example.sequences.length > 1;
  let length = 0;
  let chosen = 0;
  example.sequences.forEach((tokens, place) => {
    const title = several ? "Sequence " + (place + 1) + ". " : "";
    length += tokens.length;
    chosen += showSequence(parent, tokens,
      title + (NEXT[example.labels[place]] || ""));
  });
  document.getElementById("total").textContent =
    (several ? count(example.sequences.length, "sequence") + ", " : "") +
    count(length, "token") + ", " + example.padding + " of padding, " +
    count(chosen, "prediction") + ".";
  document.getElementById("where").textContent =
    "Example " + (index + 1) + " of " + examples.length;
  document.getElementById("back").disabled = index === 0;
  document.getElementById("on").disabled = index === examples.length - 1;
}

function step(by) {
  number.value = Number(number.value) + by;
  show();
}

number.addEventListener("input", show);
document.getElementById("back").addEventListener("click", () => step(-1));
document.getElementById("on").addEventListener("click", () => step(1));
document.addEventListener("keydown", (event) => {
  if (event.target === number) return;
  if (event.key === "ArrowLeft") step(-1);
  if (event.key === "ArrowRight") step(1);
});
show();
</script>
</body>
</html>
"""
