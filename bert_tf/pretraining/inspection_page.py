"""One HTML page on which a person sees pre-training examples at a glance.

The page needs nothing but itself: its data is JSON inside it, and a few lines
of script step through the examples.
"""

import html
import json

import numpy as np

from bert_tf import features
from bert_tf.pretraining import inspection


def describe(examples, row, vocabulary):
    """Returns one example as the page has it: JSON-able.

    Args:
        examples: A batch as `inspection.read` yields it.
        row: The number of the example in it.
        vocabulary: A `Vocabulary`.

    Returns:
        `{"tokens", "padding", "label"}`: a token is `[what it was, segment]`,
        at a prediction `[what it was, segment, what stands there now]`;
        padding is a number; the label is 0, 1 or None.
    """
    ids = examples[features.INPUT_IDS][row]
    length = int(examples[features.INPUT_MASK][row].sum())
    one = {name: values[row : row + 1] for name, values in examples.items()}
    original = inspection.restored(one)[0]
    chosen = set()
    if features.MASKED_LM_IDS in examples:
        is_used = examples[features.MASKED_LM_WEIGHTS][row] > 0
        chosen.update(
            examples[features.MASKED_LM_POSITIONS][row][is_used].tolist()
        )
    tokens = []
    for place in range(length):
        segment = int(examples[features.SEGMENT_IDS][row, place])
        token = [_name(original[place], vocabulary), segment]
        if place in chosen:
            token.append(_name(ids[place], vocabulary))
        tokens.append(token)
    label = None
    if features.NEXT_SENTENCE_LABELS in examples:
        label = int(examples[features.NEXT_SENTENCE_LABELS][row, 0])
    return {"tokens": tokens, "padding": len(ids) - length, "label": label}


def page(described, totals, rules, title):
    """Returns the page as text.

    Args:
        described: Examples, as `describe` returns them; one at least.
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


def _name(index, vocabulary):
    if 0 <= index < len(vocabulary):
        return vocabulary.tokens[np.int64(index)]
    return f"<{index}>"


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
#tokens { display: flex; flex-wrap: wrap; gap: .3rem .25rem;
  margin: 1rem 0; padding: 0; list-style: none; }
#tokens li { border-bottom: 3px solid var(--a); display: flex;
  flex-direction: column; padding: 0 .25rem; }
#tokens li.b { border-color: var(--b); }
#tokens li.special { opacity: .7; }
#tokens li.chosen { border: 2px solid var(--m); border-radius: .3rem; }
#tokens small { font-size: .7rem; opacity: .75; }
#tokens .now { color: var(--m); font-weight: 600; }
#label { font-weight: 600; }
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
<p id="label" aria-live="polite"></p>
<p><span class="key">segment A</span><span class="key b">segment B</span>
<span class="key m">to be predicted</span>: what stands there now, and below
it the token that was there. Small numbers are positions.</p>
<ol id="tokens"></ol>
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

function show() {
  const index = Number(number.value);
  const example = examples[index];
  const list = document.getElementById("tokens");
  list.replaceChildren();
  let chosen = 0;
  example.tokens.forEach(([was, segment, now], place) => {
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
  const next = { 0: "B follows A. ",
    1: "B is a random segment, or A and B are swapped. " };
  document.getElementById("label").textContent =
    (next[example.label] || "") + example.tokens.length + " tokens, " +
    example.padding + " of padding, " + chosen + " predictions.";
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
