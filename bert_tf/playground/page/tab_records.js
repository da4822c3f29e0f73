// Records: a sample to look through, and counts over all records.

registerTab({
  name: "records",
  title: "Records",
  render(container, data) {
    const vocabulary = makeVocabulary(data.vocabulary);
    const {records} = data;
    const all = data.numRecords;
    container.append(element("p", {class: "lead"},
      records.length === all ?
        `All ${count(all, "record")}.` :
        `A sample of ${records.length.toLocaleString("en")} of ` +
        `${count(all, "record")}, over all files.`));

    let found = records.map((_, place) => place);
    let at = 0;
    const search = element("input", {type: "search", autocomplete: "off",
      spellcheck: "false", placeholder: "a word, a token or a number"});
    const where = element("span", {class: "where", "aria-live": "polite"});
    const back = button("Previous", () => step(-1));
    const on = button("Next", () => step(1));
    const shown = element("div", {class: "shown"});
    const step = (by) => {
      at += by;
      show();
    };

    // The text of each record and its tokens' names, for the search.
    const texts = records.map(({number, sequences}) => ({
      number: String(number),
      names: new Set(sequences.flatMap(({ids}) =>
        ids.map((id) => vocabulary.name(id)))),
      text: sequences.map(({ids}) => joined(ids, vocabulary)).join(" ")
        .toLowerCase(),
    }));
    search.addEventListener("input", () => {
      const asked = search.value.trim();
      found = [...records.keys()].filter((place) => asked === "" ||
        texts[place].number === asked || texts[place].names.has(asked) ||
        texts[place].text.includes(asked.toLowerCase()));
      at = 0;
      show();
    });
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && at < found.length - 1) step(1);
    });

    function show() {
      back.disabled = at <= 0;
      on.disabled = at >= found.length - 1;
      if (!found.length) {
        where.textContent = "None has it.";
        shown.replaceChildren(note("You can search for text, for entries of " +
          "the vocabulary, and for record numbers."));
        return;
      }
      const record = records[found[at]];
      where.textContent = `${at + 1} of ${found.length}`;
      shown.replaceChildren(...recordElements(record, vocabulary, data));
    }

    container.append(element("div", {class: "card"},
      element("div", {class: "controls"}, field("Search", search),
        element("div", {class: "row"}, back, on, where)),
      shown));
    container.append(element("h2", {}, "All records in numbers"));
    container.append(histograms(data));
    container.append(element("div", {class: "columns"},
      data.totals.length ? element("div", {},
        element("h2", {}, "Totals"),
        element("table", {class: "lined"}, data.totals.map(([name, value]) =>
          element("tr", {}, element("th", {scope: "row"}, name.trim()),
            element("td", {class: "number"}, value))))) : null,
      data.checks.length ? element("div", {},
        element("h2", {}, "Rules"),
        element("ul", {class: "checks"}, data.checks.map(([rule, broken]) =>
          element("li", {class: broken ? "broken" : "holds"},
            broken ? `${rule}: broken by ${broken.toLocaleString("en")}` :
              rule)))) : null));
    show();
  },
});

function recordElements(record, vocabulary, data) {
  const {sequences} = record;
  const length = sequences.reduce((sum, {ids}) => sum + ids.length, 0);
  const made = [element("h2", {}, `Record ${record.number}`,
    element("span", {class: "note"}, " ", [
      sequences.length > 1 ? count(sequences.length, "sequence") : null,
      count(length, "token"),
      `${(record.columns - length).toLocaleString("en")} of padding`,
    ].filter(Boolean).join(", ")))];
  sequences.forEach(({ids, segments, masks, label}, place) => {
    const told = [
      sequences.length > 1 ? `Sequence ${place + 1}` : null,
      label === null ? null :
        `second segment: ${meaningOf(label, data.meanings)}`,
      masks === null ? "masked while training reads it" :
        count(masks.length, "prediction"),
    ].filter(Boolean).join(", ");
    made.push(element("p", {class: "told"}, told),
      tokensElement(ids, vocabulary, {
        segments, masks: withActions(masks || [], ids, vocabulary), label: told,
      }),
      element("details", {}, element("summary", {}, "As text"),
        element("p", {class: "text",
          dir: directionOf(ids, vocabulary)}, joined(ids, vocabulary))));
  });
  made.push(masksLegend());
  return made;
}

function masksLegend() {
  return element("ul", {class: "legend"},
    [["a", "segment A"], ["b", "segment B"], ["masked", "masked"],
      ["kept", "chosen, kept"], ["replaced", "replaced"]].map(([key, says]) =>
      element("li", {style: {"--key": `var(--${key})`}}, says)));
}

const HISTOGRAMS = [
  ["length", "Tokens in a sequence"],
  ["predictions", "Masks in a sequence"],
  ["unknown", "Unknown words in a sequence"],
];

function histograms(data) {
  const made = HISTOGRAMS.filter(([name]) => data.counts[name]).map(
    ([name, title]) => histogram(data.counts[name], title));
  if (data.counts.label && data.meanings.length) {
    const all = data.counts.label.reduce((sum, [, number]) => sum + number, 0);
    const numbers = new Map([...data.meanings.map((_, label) => [label, 0]),
      ...data.counts.label]);
    made.push(bars([...numbers].map(([label, number]) =>
      [meaningOf(label, data.meanings), number, percent(number / all)]),
    {caption: "Second segment"}));
  }
  return element("div", {class: "grid"}, made.map((each) =>
    element("div", {class: "card"}, each)));
}

// `counts`: ascending [value, number] pairs. At most ten bars of equal width.
function histogram(counts, title) {
  const values = counts.map(([value]) => value);
  const low = Math.min(...values), high = Math.max(...values);
  const width = Math.max(1, Math.ceil((high - low + 1) / 10));
  const rows = [];
  for (let first = low; first <= high; first += width) {
    const last = Math.min(first + width - 1, high);
    const number = counts.reduce((sum, [value, each]) =>
      sum + (value >= first && value <= last ? each : 0), 0);
    rows.push([first === last ? String(first) : `${first}–${last}`, number]);
  }
  return bars(rows, {caption: title});
}
