// Input: three rows added up, truncation, padding, packed rows.

// The coins of truncation in the builder's table of draws: for A, then for B.
const DRAWN_TRUNCATION = 16;
const MAX_WORD_INPUT = 4294967295;

registerTab({
  name: "input",
  title: "Input",
  render(container, data) {
    const vocabulary = makeVocabulary(data.vocabulary);
    const {records} = data;
    if (!records.length) {
      container.append(note("There is no record to show."));
      return;
    }
    container.append(element("p", {class: "lead"},
      "The encoder gets one vector per token: the sum of three learned ",
      "vectors, for the token, its segment and its position."));
    // The shortest record shows padding; a packed row shows its blocks.
    const lengthOf = ({sequences}) => sequences[0].ids.length;
    let record = records[0].isPacked ? records[0] :
      records.reduce((short, each) =>
        (lengthOf(each) < lengthOf(short) ? each : short));
    let hasMasks = true;
    const rows = element("div", {});
    const truncation = element("div", {});
    const attention = element("div", {});

    const picker = select({
      label: "Record", value: String(records.indexOf(record)),
      options: records.map(({number, sequences}, place) => [String(place),
        `${number}: ${joined(sequences[0].ids, vocabulary).slice(0, 60)}`]),
      onchange: (value) => {
        record = records[Number(value)];
        show();
      },
    });
    const masks = choice({label: "Tokens", value: "masked", options: [
      ["masked", "as the model gets them"], ["was", "before masking"],
    ], onchange: (value) => {
      hasMasks = value === "masked";
      show();
    }});
    const isMasked = records.some(({sequences}) => sequences[0].masks);
    container.append(element("div", {class: "card"},
      element("div", {class: "controls"}, picker, isMasked ? masks : null),
      rows));
    container.append(truncation, attention);

    function show() {
      rows.replaceChildren(...inputRows(record, vocabulary, hasMasks, data));
      truncation.replaceChildren(...truncationElements(record, vocabulary,
        data));
      attention.replaceChildren(...attentionElements(record, records));
    }
    show();
  },
});

// A record's tokens with what is added up. Each sequence's [CLS] is at 0.
function columnsOf(record, hasMasks) {
  return record.sequences.flatMap(({ids, segments, masks}, number) => {
    const now = new Map(hasMasks ? masks || [] : []);
    return ids.map((id, position) => ({
      id: now.get(position) ?? id, segment: segments[position], position,
      number,
    }));
  });
}

function inputRows(record, vocabulary, hasMasks, data) {
  const columns = columnsOf(record, hasMasks);
  const padding = record.columns - columns.length;
  const hasSegments = data.vocabulary.secondSegment > 0;
  const line = (head, cells, name) => element("tr", {class: name},
    element("th", {scope: "row"}, head), cells,
    padding ? element("td", {class: "padding"}, {
      token: `${vocabulary.name(vocabulary.special.pad)} × ${padding}`,
      segment: "0", position: record.isPacked ? "0" : columns.length === 0 ?
        "" : `${columns.length}…`, mask: "0", sequence: "0",
    }[name]) : null);
  const cells = (make) => columns.map((column) => {
    const {text, kind} = make(column);
    return element("td", {class: kind}, element("bdi", {}, text));
  });
  return [
    element("div", {class: "scroll sum", tabindex: 0, role: "region",
      "aria-label": "The rows of the input"},
    element("table", {dir: "ltr"},
      line("Token", cells(({id}) => ({text: vocabulary.shown(id),
        kind: vocabulary.isSpecial(id) ? "special token" : "token"})),
      "token"),
      hasSegments ? line("+ segment", cells(({segment}) => ({
        text: segment ? "B" : "A", kind: segment ? "b" : "a"})), "segment") :
        null,
      line("+ position", cells(({position}) => ({text: String(position),
        kind: "p"})), "position"),
      record.isPacked ? line("Sequence", cells(({number}) => ({
        text: String(number + 1), kind: "plain"})), "sequence") : null,
      line("Mask", cells(() => ({text: "1", kind: "plain"})), "mask"))),
    note(`${count(columns.length, "token")} and ${padding} of padding make ` +
      `${record.columns}. Positions where the mask is 0 are not attended to. ` +
      (record.isPacked ? "Positions start again at 0 in each sequence." : "") +
      (hasSegments ? "" : " This model's family has no segments.")),
  ];
}

// ---- truncation ----

// The dropped tokens in order: [segment, at the front?]. `coin(segment, n)`
// tells whether the segment's n-th lost token is lost at its front.
function truncationSteps(lengthA, lengthB, room, coin) {
  const left = [lengthA, lengthB];
  const lost = [0, 0];
  const steps = [];
  while (left[0] + left[1] > room) {
    // The longer one, or B if they are equally long.
    const segment = left[0] > left[1] ? 0 : 1;
    steps.push([segment, coin(segment, lost[segment])]);
    left[segment] -= 1;
    lost[segment] += 1;
  }
  return steps;
}

// The builder's coins for an example.
function truncationCoin(seed, {file, offset, pass, ordinal}) {
  const high = file * 2 ** OFFSET_HIGH_BITS + Math.floor(offset / WORDS);
  return (segment, n) => {
    const words = philox(offset % WORDS, high, ordinal,
      DRAWN_TRUNCATION + 2 * Math.floor(n / 128) + segment, seed, pass);
    return ((words[Math.floor((n % 128) / 32)] >>> (n % 32)) & 1) === 1;
  };
}

function segmentsOf({ids, segments}, vocabulary) {
  // If the family has no segments, they are before and after the first [SEP].
  const text = [[], []];
  let isB = false;
  ids.forEach((id, place) => {
    if (vocabulary.isFrame(id)) {
      if (place > 0) isB = true;
      return;
    }
    const isSecond = segments.includes(1) ? segments[place] : isB;
    text[isSecond ? 1 : 0].push(id);
  });
  return text;
}

function truncationElements(record, vocabulary, data) {
  const [a, b] = segmentsOf(record.sequences[0], vocabulary);
  const made = [element("h2", {}, "Too long: token by token")];
  if (!a.length || !b.length) {
    return [...made, note("This record has one segment. Pairs lose tokens " +
      "one by one until they fit; records of full sentences are cut between " +
      "sentences instead.")];
  }
  const frame = 2 + data.vocabulary.numBetween;
  let room = Math.max(2, Math.floor((a.length + b.length) * 0.6));
  let seed = data.builder?.seed ?? 12345;
  let way = "builder";
  let at = 0;
  const shown = element("div", {});
  const said = element("span", {class: "where", "aria-live": "polite"});
  const steps = () => truncationSteps(a.length, b.length, room,
    way === "builder" ? truncationCoin(seed, {file: 0, offset: record.number,
      pass: 0, ordinal: 0}) : () => false);
  const back = button("Back", () => move(-1));
  const on = button("Drop a token", () => move(1), {class: "main",
    id: "drop"});
  const all = button("All", () => move(Infinity));
  const move = (by) => {
    at = Math.max(0, Math.min(steps().length, at + by));
    show();
  };
  function show() {
    const list = steps();
    at = Math.min(at, list.length);
    const front = [0, 0], end = [a.length, b.length];
    for (const [segment, isFront] of list.slice(0, at)) {
      if (isFront) front[segment] += 1;
      else end[segment] -= 1;
    }
    back.disabled = at === 0;
    on.disabled = all.disabled = at === list.length;
    said.textContent = `A ${end[0] - front[0]} + B ${end[1] - front[1]}` +
      ` + ${frame} special = ${end[0] - front[0] + end[1] - front[1] + frame}` +
      ` of ${room + frame}`;
    shown.replaceChildren(...[a, b].map((ids, segment) => {
      const list = tokensElement(ids, vocabulary, {
        segments: ids.map(() => segment), label: segment ? "B" : "A"});
      [...list.querySelectorAll(".piece")].forEach((piece, place) => {
        if (place < front[segment] || place >= end[segment]) {
          piece.classList.add("dropped");
        }
      });
      return list;
    }));
  }
  const length = slider({label: "Longest sequence", min: frame + 2,
    max: frame + a.length + b.length, step: 1, value: room + frame,
    say: (value) => `${value} tokens`, oninput: (value) => {
      room = value - frame;
      at = steps().length;
      show();
    }});
  const seedField = numberField({label: "Seed of the coins", min: 0,
    max: MAX_WORD_INPUT, value: seed, oninput: (value) => {
      seed = value;
      show();
    }});
  const ways = choice({label: "As", value: way, options: [
    ["builder", "records are made"], ["tuning", "texts are fine-tuned on"],
  ], onchange: (value) => {
    way = value;
    seedField.hidden = way !== "builder";
    show();
  }});
  ways.classList.add("wide");
  show();
  return [...made,
    element("p", {}, "The longer segment, or B if they are equally long, " +
      "loses a token until the pair fits. For records, a coin decides " +
      "between its front and its end; for fine-tuning, it is always the end."),
    element("div", {class: "card", id: "truncation"},
      element("div", {class: "controls"}, ways, length, seedField), shown,
      element("div", {class: "row"}, on, back, all, said))];
}

// ---- attention of packed rows ----

// Lengths of a row's sequences: the record's own and, if it is not packed, up
// to five others of the sample that fit.
function rowOf(record, records) {
  if (record.isPacked) return record.sequences.map(({ids}) => ids.length);
  const lengths = [record.sequences[0].ids.length];
  let left = record.columns - lengths[0];
  for (const other of records) {
    const {length} = other.sequences[0].ids;
    if (other !== record && length <= left && lengths.length < 6) {
      lengths.push(length);
      left -= length;
    }
  }
  return lengths;
}

function attentionElements(record, records) {
  const lengths = rowOf(record, records);
  const size = record.columns;
  const used = lengths.reduce((sum, each) => sum + each, 0);
  const pairs = lengths.reduce((sum, each) => sum + each * each, 0);
  let first = 0;
  const blocks = lengths.flatMap((length, number) => {
    const block = svg("rect", {x: first, y: first, width: length,
      height: length, class: `block ${number % 2 ? "odd" : "even"}`});
    block.append(svg("title", {}, `Sequence ${number + 1}: ${length} tokens`));
    const text = svg("text", {x: first + length / 2, y: first + length / 2,
      "font-size": Math.min(size / 16, length / 1.6), class: "inside"},
    String(number + 1));
    first += length;
    return [block, text];
  });
  const picture = svg("svg", {viewBox: `0 0 ${size} ${size}`, role: "img",
    class: "attention", "aria-label": `${lengths.length} blocks on the ` +
    `diagonal of a square of ${size} tokens: ${lengths.join(", ")}`},
  svg("rect", {width: size, height: size, class: "square"}), blocks);
  const told = record.isPacked ?
    `This row holds ${count(lengths.length, "sequence")}.` :
    lengths.length > 1 ? "These records are not packed. A packed row could " +
      `hold this one and ${lengths.length - 1} of the sample that fit.` :
      "No other record of the sample fits into this row.";
  return [
    element("h2", {}, "Which tokens attend to which"),
    element("div", {class: "card split"}, element("figure", {}, picture,
      element("figcaption", {class: "note"},
        "Rows: tokens that attend. Columns: tokens attended to.")),
    element("div", {},
      element("p", {}, told, " Each token attends only to its own sequence, " +
        "so the picture shows blocks on the diagonal. The rest of the " +
        "diagonal is padding."),
      element("table", {class: "lined", id: "attention-numbers"},
        [["sequences", String(lengths.length)], ["tokens", `${used} of ${size}`],
          ["padding", percent(1 - used / size)],
          ["pairs attended to", `${pairs.toLocaleString("en")} of ` +
            `${(size * size).toLocaleString("en")}`]].map(([name, value]) =>
          element("tr", {}, element("th", {scope: "row"}, name),
            element("td", {class: "number"}, value)))))),
  ];
}
