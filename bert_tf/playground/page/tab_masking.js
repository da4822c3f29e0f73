// Masking: which tokens are chosen and what becomes of them, drawn here exactly
// as in the library.

const TOGETHER = [["tokens", "tokens"], ["words", "whole words"],
  ["ngrams", "n-grams of words"], ["spans", "spans of words"]];
const MAX_TYPED = 120;
const MAX_WORD = 4294967295;
// The number of draws whose shares are averaged.
const MANY_DRAWS = 300;
// The builder's seeds can be searched for if the inputs and passes have no more
// places than this.
const MAX_PLACES = 2 ** 26;

registerTab({
  name: "masking",
  title: "Masking",
  render(container, data) {
    const vocabulary = makeVocabulary(data.vocabulary);
    const told = data.rules;
    const {builder, records} = data;
    // The texts to show: sequences of records. Typed text has index -1.
    const texts = records.flatMap((record) =>
      record.sequences.map((sequence, place) => ({record, sequence, place})));
    const state = {
      text: texts.length ? 0 : -1,
      typed: "",
      rules: {...told},
      origin: "training",
      seed: builder?.seed ?? 12345,
      number: 0,
      place: {file: 0, offset: 0, pass: 0, ordinal: 0},
    };
    container.append(element("p", {class: "lead"},
      "A model like BERT learns by filling gaps. Move the rate to see which " +
      "tokens are chosen, and what becomes of each: most turn into ",
      element("code", {}, vocabulary.name(vocabulary.maskId)),
      ", some stay as they are, some become a random entry."));

    const current = () => (state.text >= 0 ? texts[state.text] : null);
    const idsNow = () => (state.text >= 0 ? texts[state.text].sequence.ids :
      typedIds(state.typed, vocabulary));
    const segmentsNow = () => (state.text >= 0 ?
      texts[state.text].sequence.segments : undefined);

    function seedsOf(number) {
      if (state.origin === "builder") {
        return exampleWords(state.seed, {
          ...state.place, ordinal: state.place.ordinal + number,
        }).slice(2);
      }
      const seeds = trainingSeeds(state.seed, state.number + number);
      const text = current();
      return text?.record.isPacked ? sequenceSeeds(seeds, text.place) : seeds;
    }

    // ---- the text ----
    const isTypable = vocabulary.isWhole;
    const picker = select({
      label: "Text", value: String(state.text),
      options: [
        ...texts.map(({record, sequence, place}, index) => [String(index),
          `${record.number}${record.isPacked ? `.${place + 1}` : ""}: ` +
          `${joined(sequence.ids, vocabulary).slice(0, 60)}`]),
        ...(isTypable ? [["-1", "Your own words…"]] : []),
      ],
      onchange: (value) => {
        state.text = Number(value);
        typing.hidden = state.text >= 0;
        stopFinding();
        show();
      },
    });
    const typed = element("textarea", {dir: "auto", maxlength: 2000,
      spellcheck: "false"});
    typed.addEventListener("input", () => {
      state.typed = typed.value;
      show();
    });
    const typing = field("Your own words", typed, "Split greedily, the " +
      "longest entry of the vocabulary first. If the text has capitals, " +
      "accents or rare words, the library's tokenizer may split it " +
      "differently.");
    typing.hidden = state.text >= 0;
    typing.classList.add("wide");
    picker.classList.add("wide");

    // ---- rules ----
    const change = (name) => (value) => {
      state.rules[name] = value;
      if (name === "masked") state.rules.kept =
        Math.min(state.rules.kept, cleaned(1 - value));
      if (name === "kept") state.rules.masked =
        Math.min(state.rules.masked, cleaned(1 - value));
      setControls();
      show();
    };
    const rate = slider({label: "Mask rate", min: 0.01, max: 1, step: 0.01,
      value: state.rules.maskedLmProb, say: (value) => percent(value, 0),
      oninput: change("maskedLmProb")});
    const most = numberField({label: "At most", min: 1, max: 2000,
      value: state.rules.maxPredictions, oninput: change("maxPredictions")});
    const masked = slider({label: "Of these, masked", min: 0, max: 1,
      step: 0.01, value: state.rules.masked, say: (value) => percent(value, 0),
      oninput: change("masked")});
    const kept = slider({label: "… kept", min: 0, max: 1, step: 0.01,
      value: state.rules.kept, say: (value) => percent(value, 0),
      oninput: change("kept")});
    const together = choice({label: "Chosen together", options: TOGETHER,
      value: state.rules.together, onchange: change("together")});
    together.classList.add("wide");
    if (told.rule === "roberta") together.disabled = true;
    const reset = button(told.isTold ? "The records' rules" :
      "The usual rules", () => {
      state.rules = {...told};
      setControls();
      show();
    }, {class: "quiet"});
    function setControls() {
      rate.set(state.rules.maskedLmProb);
      most.set(state.rules.maxPredictions);
      masked.set(state.rules.masked);
      kept.set(state.rules.kept);
      together.set(state.rules.together);
    }

    // ---- where the draw's seed comes from ----
    const change_place = (name) => (value) => {
      state.place[name] = value;
      show();
    };
    const origin = choice({label: "Drawn as in", value: state.origin, options: [
      ["training", "training"], ["builder", "the builder"],
    ], onchange: (value) => {
      state.origin = value;
      setOrigin();
      show();
    }});
    const seed = numberField({label: "Seed", min: 0, max: MAX_WORD,
      value: state.seed, oninput: (value) => {
        state.seed = value;
        show();
      }});
    const number = numberField({label: "Number of the example", min: 0,
      max: 2 ** 48, value: 0, oninput: (value) => {
        state.number = value;
        show();
      }, hint: "Counted over all epochs."});
    const placeFields = {
      file: numberField({label: "Input file", min: 0, max: 2 ** 20 - 1,
        value: 0, oninput: change_place("file")}),
      offset: numberField({label: "Byte of the document", min: 0,
        max: 2 ** 44 - 1, value: 0, oninput: change_place("offset")}),
      pass: numberField({label: "Pass", min: 0, max: MAX_WORD, value: 0,
        oninput: change_place("pass")}),
      ordinal: numberField({label: "Example of the document", min: 0,
        max: MAX_WORD, value: 0, oninput: change_place("ordinal")}),
    };
    function setOrigin() {
      origin.set(state.origin);
      number.hidden = state.origin !== "training";
      for (const [name, each] of Object.entries(placeFields)) {
        each.hidden = state.origin !== "builder";
        each.set(state.place[name]);
      }
    }
    const draw = button("New draw", () => {
      stopFinding();
      if (state.origin === "training") {
        state.number += 1;
        number.set(state.number);
      } else {
        state.place.ordinal += 1;
        placeFields.ordinal.set(state.place.ordinal);
      }
      show();
    }, {class: "main", id: "new-draw"});

    // ---- the builder's own seed of a record ----
    const find = button("Find the builder's seed", startFinding,
      {id: "find-seed"});
    const finding = element("span", {class: "where", "aria-live": "polite"});
    let search = null;
    function stopFinding() {
      if (search) search.isStopped = true;
      search = null;
      find.textContent = "Find the builder's seed";
      finding.textContent = "";
    }
    function startFinding() {
      if (search) {
        stopFinding();
        return;
      }
      find.textContent = "Stop";
      search = findSeeds(current(), data, vocabulary, (text) => {
        finding.textContent = text;
      }, (place) => {
        stopFinding();
        if (place === null) {
          finding.textContent = "Not found.";
          return;
        }
        state.origin = "builder";
        state.seed = builder.seed;
        state.place = place;
        state.rules = {...told};
        seed.set(builder.seed);
        setOrigin();
        setControls();
        show();
      });
    }

    // ---- what is shown ----
    const shown = element("div", {});
    const verdict = element("p", {class: "verdict", "aria-live": "polite"});
    const shares = element("div", {class: "scroll"});
    function show() {
      const ids = idsNow();
      const text = current();
      const canFind = isFindable(text, data);
      find.hidden = !canFind;
      if (ids.length <= 2 && state.text < 0) {
        shown.replaceChildren(note("Write a few words above."));
        verdict.textContent = "";
        shares.replaceChildren();
        return;
      }
      const masks = maskTokens(ids, vocabulary, seedsOf(0), state.rules);
      shown.replaceChildren(tokensElement(ids, vocabulary, {
        segments: segmentsNow(), masks, label: "The masked text",
      }));
      const own = text?.sequence.masks;
      const isOwn = own && own.length === masks.length && own.every(
        ([place, now], slot) => masks[slot][0] === place &&
          masks[slot][1] === now);
      verdict.className = isOwn ? "verdict same" : "verdict";
      verdict.textContent = isOwn ?
        "These are the masks in the record, as the builder drew them." :
        own ? "The record itself has other masks: the builder's seed depends " +
          "on the example's place in the text." : "";
      const many = [];
      for (let place = 0; place < MANY_DRAWS; place += 1) {
        many.push(maskTokens(ids, vocabulary, seedsOf(place), state.rules));
      }
      shares.replaceChildren(sharesTable(ids, vocabulary, masks, many,
        state.rules));
    }

    container.append(
      element("div", {class: "card"},
        element("div", {class: "controls"}, picker, typing),
        shown, masksLegend(), verdict,
        element("div", {class: "row"}, draw, find, finding)),
      element("div", {class: "pair"},
        element("div", {class: "card"},
          element("div", {class: "head"}, element("h2", {}, "Rules"), reset),
          element("div", {class: "controls"}, rate, most, masked, kept,
            together),
          told.rule === "bert" ? null : note(`The records use the rule of ` +
            `${told.rule}.`)),
        element("div", {class: "card"},
          element("h2", {}, "Expected and drawn"), shares)),
      element("div", {class: "card"},
        element("h2", {}, "The draw"),
        element("div", {class: "controls"}, builder ? origin : null, seed,
          number, Object.values(placeFields)),
        note("Masks are a function of a seed, by Philox. With dynamic masks, " +
          "the seed is made of training's seed and the example's number. " +
          "For records with masks, it is made of the builder's seed and the " +
          "example's place: its file, document, pass and number. The same " +
          "numbers give the same masks here and in the library.")),
    );
    setOrigin();
    show();
  },
});

// 0.30000000000000004 should be 0.3.
function cleaned(share) {
  return Math.round(share * 100) / 100;
}

function sharesTable(ids, vocabulary, masks, many, rules) {
  const limit = numPredictions(ids.length, rules);
  // BERT's rule never chooses [CLS] and [SEP], whatever the rate.
  const expected = rules.rule === "roberta" ?
    Math.min(ids.length * rules.maskedLmProb, limit) :
    Math.min(limit, ids.filter((id) => !vocabulary.isFrame(id)).length);
  const mean = many.reduce((sum, each) => sum + each.length, 0) / many.length;
  const shareOf = (some, action) => {
    const all = some.flat();
    return all.length === 0 ? 0 :
      all.filter((mask) => mask[2] === action).length / all.length;
  };
  const row = (name, share, one, all) => element("tr", {"data-row": name},
    element("th", {scope: "row"}, name),
    [share, one, all].map((cell) => element("td", {class: "number"}, cell)));
  const action = (name, share) => row(name, percent(share),
    percent(shareOf([masks], name)), percent(shareOf(many, name)));
  return element("table", {class: "lined shares"},
    element("thead", {}, element("tr", {}, ["", "expected", "this draw",
      `${MANY_DRAWS} draws`].map((head) =>
      element("th", {scope: "col", class: head ? "number" : ""}, head)))),
    element("tbody", {},
      row("tokens chosen", expected.toFixed(Number.isInteger(expected) ? 0 : 1),
        String(masks.length), mean.toFixed(1)),
      row("of all tokens", percent(expected / ids.length),
        percent(masks.length / ids.length), percent(mean / ids.length)),
      action("masked", rules.masked), action("kept", rules.kept),
      action("replaced", cleaned(1 - rules.masked - rules.kept))));
}

// Ids of [CLS], the words and [SEP]. Words are split with the longest entry
// first; an unknown word is one token.
function typedIds(text, vocabulary) {
  const {spelled} = vocabulary.entries;
  if (!vocabulary.bySpelling) {
    vocabulary.bySpelling = new Map(spelled.map((each, id) => [each, id]));
    vocabulary.longest = Math.max(...spelled.map((each) => each.length));
  }
  const {bySpelling, longest, special} = vocabulary;
  const longestAt = (word, from) => {
    for (let to = Math.min(word.length, from + longest); to > from; to -= 1) {
      const id = bySpelling.get(word.slice(from, to));
      if (id !== undefined) return [id, to];
    }
    return null;
  };
  const piecesOf = (word) => {
    const ids = [];
    for (let from = 0; from < word.length;) {
      const found = longestAt(word, from);
      if (found === null) return null;
      ids.push(found[0]);
      [, from] = found;
    }
    return ids;
  };
  const ids = text.split(/\s+/u).filter(Boolean)
    .flatMap((word) => word.match(/[\p{L}\p{M}\p{N}]+|[^\p{L}\p{M}\p{N}]/gu))
    .flatMap((word) => piecesOf(` ${word}`) ||
      piecesOf(` ${word.toLowerCase()}`) || [special.unk]);
  return [special.cls, ...ids.slice(0, MAX_TYPED), special.sep];
}

function isFindable(text, data) {
  const {builder} = data;
  if (!text?.sequence.masks?.length || !builder || builder.isDynamic ||
    !builder.isText || builder.isCompressed) return false;
  const bytes = builder.inputs.reduce((sum, [, each]) => sum + each, 0);
  return bytes > 0 && bytes * builder.passes <= MAX_PLACES;
}

// Tries every place that an example can have: a document may begin at each byte
// of the input. Works in slices of time, so that the page stays responsive.
function findSeeds({record, sequence}, data, vocabulary, tell, done) {
  const {builder, rules} = data;
  const search = {isStopped: false};
  // Records are sorted by their first random word. If the page counts all of
  // the builder's records, a record's number bounds that word, within six
  // standard deviations.
  let low = 0, high = WORDS;
  if (!record.isPacked && data.numRecords === builder.examples) {
    const at = (record.number + 0.5) / builder.examples;
    const margin = 3 / Math.sqrt(builder.examples) + 1 / builder.examples;
    low = (at - margin) * WORDS;
    high = (at + margin) * WORDS;
  }
  const sizes = builder.inputs.map(([, bytes]) => bytes);
  const place = {ordinal: 0, pass: 0, file: 0, offset: -1};
  // Documents have fewer examples than this.
  const lastOrdinal = builder.examples;
  const next = () => {
    place.offset += 1;
    while (place.offset >= sizes[place.file]) {
      place.offset = 0;
      place.file += 1;
      if (place.file < sizes.length) continue;
      place.file = 0;
      place.pass += 1;
      if (place.pass < builder.passes) continue;
      place.pass = 0;
      place.ordinal += 1;
    }
    return place.ordinal <= lastOrdinal;
  };
  const work = () => {
    if (search.isStopped) return;
    const end = performance.now() + 40;
    while (performance.now() < end) {
      for (let tries = 0; tries < 2000; tries += 1) {
        if (!next()) {
          done(null);
          return;
        }
        const words = exampleWords(builder.seed, place);
        if (words[0] >= low && words[0] <= high && drawsMasks(sequence.masks,
          sequence.ids, vocabulary, words.slice(2), rules)) {
          done({...place});
          return;
        }
      }
    }
    tell(`Trying example ${place.ordinal + 1} of every document …`);
    setTimeout(work);
  };
  work();
  return search;
}
