// Entries of the vocabulary, and how tokens are shown.

// `entries`: the result of record_data.describe_vocabulary. Its ids are those
// of the entries included, or null if all are.
function makeVocabulary(entries) {
  const places = entries.ids === null ? null :
    new Map(entries.ids.map((id, place) => [id, place]));
  const placeOf = (id) => (places === null ? id : places.get(id));
  const {special} = entries;
  const specialIds = new Set(Object.values(special));
  const name = (id) => entries.names[placeOf(id)] ?? `#${id}`;
  const spelled = (id) => entries.spelled[placeOf(id)] ?? `#${id}`;
  return {
    size: entries.size,
    isWhole: places === null,
    maskId: special.mask,
    special,
    entries,
    name,
    spelled,
    isSpecial: (id) => specialIds.has(id),
    isUnknown: (id) => id === special.unk,
    // [CLS] and [SEP], which frame texts.
    isFrame: (id) => id === special.cls || id === special.sep,
    startsWord: (id) => entries.starts[placeOf(id)] === "1",
    firstEntry: (rule) => (rule === "roberta" ?
      Math.max(entries.firstEntry, 4) : entries.firstEntry),
    // The text to show, without the space that begins a word.
    shown: (id) => (specialIds.has(id) ? name(id) :
      spelled(id).replace(/^ /, "") || "␣"),
  };
}

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;

// The direction of consecutive texts: that of their first letter.
function directionOfTexts(texts) {
  for (const text of texts) {
    if (RIGHT_TO_LEFT.test(text)) return "rtl";
    if (/\p{L}/u.test(text)) return "ltr";
  }
  return "ltr";
}

// The direction of a sequence: that of its text.
function directionOf(ids, vocabulary) {
  return directionOfTexts(ids.filter((id) => !vocabulary.isSpecial(id))
    .map((id) => vocabulary.spelled(id)));
}

// The meaning of a records' label, or its number if the label is invalid.
function meaningOf(label, meanings) {
  return meanings[label] ?? `label ${label}`;
}

// The text of ids, with pieces joined to words.
function joined(ids, vocabulary) {
  return ids.filter((id) => !vocabulary.isFrame(id))
    .map((id) => (vocabulary.isSpecial(id) ? ` ${vocabulary.name(id)}` :
      vocabulary.spelled(id)))
    .join("").trim();
}

// Adds what became of each mask to masks of records, [place, id].
function withActions(masks, ids, vocabulary) {
  return masks.map(([place, now]) => {
    if (now === vocabulary.maskId) return [place, now, "masked"];
    return [place, now, now === ids[place] ? "kept" : "replaced"];
  });
}

// One token as an element; `mask` is its row of `maskTokens` if it is chosen.
function pieceElement(id, vocabulary, {segment, mask, title} = {}) {
  const classes = ["piece"];
  if (vocabulary.isSpecial(id)) classes.push("special");
  else if (segment !== undefined) classes.push(segment ? "b" : "a");
  if (vocabulary.isUnknown(id)) classes.push("unknown");
  const said = `${vocabulary.name(id)}, id ${id}`;
  if (!mask) {
    return element("span", {class: classes.join(" "), title: title || said},
      element("bdi", {}, vocabulary.shown(id)));
  }
  const [, now, action] = mask;
  classes.push(action);
  const below = {masked: vocabulary.shown(id), kept: "kept",
    replaced: vocabulary.shown(id)}[action];
  return element("span", {
    class: classes.join(" "), "data-place": mask[0], "data-now": now,
    title: `${said}: ${action}`,
  }, element("bdi", {class: "now"}, vocabulary.shown(now)),
  element("small", {}, element("bdi", {}, below)));
}

// Returns the element of a sequence: words of pieces.
//   segments  of each token, or undefined
//   masks     rows of `maskTokens`
function tokensElement(ids, vocabulary, {segments, masks = [], label} = {}) {
  const byPlace = new Map(masks.map((mask) => [mask[0], mask]));
  const list = element("div", {
    class: "tokens", dir: directionOf(ids, vocabulary), role: "group",
    "aria-label": label || "Tokens",
  });
  let word = null;
  ids.forEach((id, place) => {
    const isFrame = vocabulary.isFrame(id);
    if (word === null || isFrame || vocabulary.startsWord(id) ||
      vocabulary.isFrame(ids[place - 1])) {
      word = element("span", {class: "word"});
      list.append(word);
    }
    word.append(pieceElement(id, vocabulary, {
      segment: segments ? segments[place] : undefined,
      mask: byPlace.get(place),
    }));
  });
  return list;
}
