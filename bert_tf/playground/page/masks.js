// bert_tf/text/masking.py for one sequence, bit for bit: which tokens are
// chosen, and what becomes of them. Seeds are pairs of words.

const WORDS = 4294967296;
// Streams of random bits: for the order of positions; for what becomes of
// predictions; for spans and n-grams; for the sequences of a packed row; for
// the number of tokens that RoBERTa's rule chooses.
const STREAMS = {order: 0, actions: 1, spans: 2, sequences: 3, count: 5};
// The builder's draw for an example (bert_tf/pretraining/draws.py).
const DRAWN_EXAMPLE = 3;
// The bits of a document's key that hold the high part of its offset.
const OFFSET_HIGH_BITS = 12;

// Python's round: a half is rounded to the even neighbour.
function roundEven(number) {
  const below = Math.floor(number);
  const rest = number - below;
  if (rest !== 0.5) return Math.round(number);
  return below % 2 === 0 ? below : below + 1;
}

// 32 random bits scaled to an integer below the limit.
function scaled(bits, limit) {
  return Math.floor((bits * limit) / WORDS);
}

// `size` numbers of 32 random bits; each number is independent of the size.
function randomBits(seeds, stream, size) {
  const bits = [];
  for (let block = 0; bits.length < size; block += 1) {
    bits.push(...philox(block, stream, 0, 0, seeds[0], seeds[1]));
  }
  bits.length = size;
  return bits;
}

// The seeds of example `number` in training with dynamic masks.
function trainingSeeds(seed, number) {
  const high = Math.floor(number / WORDS);
  return philox(number % WORDS, high, 0, 0, seed, 0).slice(0, 2);
}

// The seeds of sequence `number` in a packed row of such an example.
function sequenceSeeds(seeds, number) {
  return philox(number, STREAMS.sequences, 0, 0, seeds[0], seeds[1])
    .slice(0, 2);
}

// Four words for an example of the builder: the first two are its place in the
// records, the others the seeds of its masks.
function exampleWords(seed, {file, offset, pass, ordinal}) {
  const high = file * 2 ** OFFSET_HIGH_BITS + Math.floor(offset / WORDS);
  return philox(offset % WORDS, high, ordinal, DRAWN_EXAMPLE, seed, pass);
}

function numPredictions(length, rules) {
  const share = length * rules.maskedLmProb;
  const most = rules.maxPredictions;
  if (rules.rule === "roberta") return Math.min(Math.ceil(share), most);
  return Math.min(Math.max(roundEven(share), 1), most);
}

// Places in descending order of their bits.
function byBits(places, bits) {
  return places.slice().sort((one, other) =>
    bits[other] - bits[one] || one - other);
}

// The words of a sequence, each with its places and the number of the stretch
// between special tokens that it is in.
function wordsOf(ids, vocabulary) {
  const words = [];
  let stretch = 0;
  let follows = false;
  ids.forEach((id, place) => {
    if (vocabulary.isFrame(id)) {
      stretch += 1;
      follows = true;
      return;
    }
    if (follows || vocabulary.startsWord(id)) {
      words.push({places: [], stretch});
    }
    follows = false;
    // Always true in a sequence that begins with [CLS].
    if (words.length) words[words.length - 1].places.push(place);
  });
  return words;
}

function chooseTokens(ids, vocabulary, bits, limit) {
  const places = ids.map((_, place) => place)
    .filter((place) => !vocabulary.isFrame(ids[place]));
  return byBits(places, bits).slice(0, limit);
}

// Takes words in order, and passes over those that no longer fit.
function chooseWords(ids, vocabulary, bits, limit) {
  const words = wordsOf(ids, vocabulary);
  const chosen = [];
  for (const word of byBits([...words.keys()], bits)) {
    const {places} = words[word];
    if (chosen.length + places.length <= limit) chosen.push(...places);
  }
  return chosen;
}

// Thresholds on 32 random bits for the lengths of spans, 1 to 10 words.
const SPAN_ENDS = (() => {
  const weights = Array.from({length: 10}, (_, n) => 0.2 * 0.8 ** n);
  const all = weights.reduce((sum, weight) => sum + weight, 0);
  let sum = 0;
  return weights.slice(0, -1).map((weight) => {
    sum += weight / all;
    return roundEven(sum * WORDS);
  });
})();
const MAX_SPAN_DRAWS = 10000;
const NGRAM_ENDS = [6, 9].map((end) => roundEven((end / 11) * WORDS));

function lengthOf(bits, ends) {
  return 1 + ends.filter((end) => end <= bits).length;
}

function chooseSpans(ids, vocabulary, seeds, most) {
  const words = wordsOf(ids, vocabulary);
  const limit = Math.min(most, ids.filter((id) =>
    !vocabulary.isFrame(id)).length);
  const chosen = new Set();
  for (let draw = 0; draw < MAX_SPAN_DRAWS && chosen.size < limit; draw += 1) {
    const [anchorBits, lengthBits] =
      philox(draw, STREAMS.spans, 0, 0, seeds[0], seeds[1]);
    const anchor = scaled(anchorBits, words.length);
    const {places, stretch} = words[anchor];
    if (places.some((place) => chosen.has(place))) continue;
    const span = words
      .slice(anchor, anchor + lengthOf(lengthBits, SPAN_ENDS))
      .filter((word) => word.stretch === stretch)
      .flatMap((word) => word.places)
      .filter((place) => !chosen.has(place));
    span.slice(0, limit - chosen.size).forEach((place) => chosen.add(place));
  }
  return [...chosen];
}

function chooseNgrams(ids, vocabulary, bits, seeds, limit) {
  const words = wordsOf(ids, vocabulary);
  const chosen = new Set();
  for (const anchor of byBits([...words.keys()], bits)) {
    if (chosen.size >= limit) break;
    const [own] = philox(anchor, STREAMS.spans, 0, 0, seeds[0], seeds[1]);
    let taken = [];
    for (let n = 1; n <= lengthOf(own, NGRAM_ENDS); n += 1) {
      const longer = words.slice(anchor, anchor + n)
        .filter((word) => word.stretch === words[anchor].stretch)
        .flatMap((word) => word.places);
      if (longer.length <= limit - chosen.size) taken = longer;
    }
    if (!taken.some((place) => chosen.has(place))) {
      taken.forEach((place) => chosen.add(place));
    }
  }
  return [...chosen];
}

// RoBERTa's rule: [CLS] and [SEP] may be chosen, and the number of tokens is
// rounded at random.
function chooseOfAll(ids, bits, seeds, rules, limit) {
  const [own] = philox(0, STREAMS.count, 0, 0, seeds[0], seeds[1]);
  const number = Math.trunc(ids.length * rules.maskedLmProb + own / WORDS);
  return byBits([...ids.keys()], bits).slice(0, Math.min(number, limit));
}

function choosePlaces(ids, vocabulary, seeds, rules) {
  const limit = numPredictions(ids.length, rules);
  const bits = randomBits(seeds, STREAMS.order, ids.length);
  let chosen;
  if (rules.rule === "roberta") {
    chosen = chooseOfAll(ids, bits, seeds, rules, limit);
  } else if (rules.together === "spans") {
    chosen = chooseSpans(ids, vocabulary, seeds, limit);
  } else if (rules.together === "ngrams") {
    chosen = chooseNgrams(ids, vocabulary, bits, seeds, limit);
  } else if (rules.together === "words") {
    chosen = chooseWords(ids, vocabulary, bits, limit);
  } else {
    chosen = chooseTokens(ids, vocabulary, bits, limit);
  }
  return chosen.sort((one, other) => one - other);
}

// Masks one sequence.
//   ids         without padding
//   vocabulary  as made in tokens.js
//   rules       {maskedLmProb, maxPredictions, together, rule, masked, kept}:
//               together is "tokens", "words", "spans" or "ngrams"; masked and
//               kept are shares of the chosen tokens, the rest is replaced
// Returns rows of [place, new id, "masked"|"kept"|"replaced"].
function maskTokens(ids, vocabulary, seeds, rules) {
  const places = choosePlaces(ids, vocabulary, seeds, rules);
  const actionBits = randomBits(seeds, STREAMS.actions, 2 * places.length);
  const maskBelow = roundEven(rules.masked * WORDS);
  const keepBelow = roundEven((rules.masked + rules.kept) * WORDS);
  const first = vocabulary.firstEntry(rules.rule);
  let run = -1;
  return places.map((place, slot) => {
    // Neighbours in a span share one decision, drawn by their run's number.
    if (slot === 0 || places[slot - 1] !== place - 1) run += 1;
    const actions = actionBits[2 * (rules.together === "spans" ? run : slot)];
    if (actions < maskBelow) return [place, vocabulary.maskId, "masked"];
    if (actions < keepBelow) return [place, ids[place], "kept"];
    const entry = first +
      scaled(actionBits[2 * slot + 1], vocabulary.size - first);
    return [place, entry, "replaced"];
  });
}

// Whether the seeds draw these masks. What becomes of each mask is checked
// first: few wrong seeds pass.
function drawsMasks(masks, ids, vocabulary, seeds, rules) {
  const maskBelow = roundEven(rules.masked * WORDS);
  const keepBelow = roundEven((rules.masked + rules.kept) * WORDS);
  if (rules.together !== "spans") {
    let bits;
    for (let slot = 0; slot < masks.length; slot += 1) {
      if (slot % 2 === 0) {
        bits = philox(slot / 2, STREAMS.actions, 0, 0, seeds[0], seeds[1]);
      }
      const actions = bits[(2 * slot) % 4];
      const [place, now] = masks[slot];
      if (actions < maskBelow ? now !== vocabulary.maskId :
        actions < keepBelow && now !== ids[place]) return false;
    }
  }
  const drawn = maskTokens(ids, vocabulary, seeds, rules);
  return drawn.length === masks.length && drawn.every(([place, now], slot) =>
    place === masks[slot][0] && now === masks[slot][1]);
}
