// Next sentence: a pair whose label is hidden. The records' objective gives the
// names of the labels.

const PAIR_QUESTIONS = {
  next_sentence: "Does B follow A in the text, or is it from elsewhere?",
  sentence_order: "Are the two in order, or swapped?",
};

registerTab({
  name: "sentence",
  title: "Next sentence",
  render(container, data) {
    const vocabulary = makeVocabulary(data.vocabulary);
    const pairs = data.records.flatMap(({number, sequences}) =>
      sequences.filter(({label}) => label !== null)
        .map((sequence) => ({number, sequence})));
    if (!pairs.length || !data.meanings.length) {
      container.append(element("p", {class: "lead"},
        "These records have no label for two segments."),
      note("Their objective is full sentences, as in RoBERTa: the model " +
        "learns from masks alone."));
      return;
    }
    const question = PAIR_QUESTIONS[data.objective];
    container.append(element("p", {class: "lead"}, "The question that " +
      "pre-training asks of every pair: ", question));
    // Shuffled, so that neighbours in the sample give no hints.
    const order = byBits([...pairs.keys()], randomBits(
      [0, DRAWN_EXAMPLE], STREAMS.order, pairs.length));
    let at = 0, right = 0, asked = 0, guess = null;
    const shown = element("div", {});
    const answer = element("p", {class: "answer", role: "status"});
    const score = element("span", {class: "where", id: "score"});
    const answers = data.meanings.map((meaning, label) =>
      button(capital(meaning), () => choose(label), {
        "data-label": label, "aria-keyshortcuts": String(label + 1)}));
    const on = button("Next pair", () => {
      at += 1;
      guess = null;
      show();
      answers[0].focus();
    }, {class: "main"});

    function choose(label) {
      if (guess !== null) return;
      guess = label;
      asked += 1;
      const truth = pairs[order[at]].sequence.label;
      if (label === truth) right += 1;
      show();
      if (!on.disabled) on.focus();
    }

    function show() {
      const {number, sequence} = pairs[order[at]];
      const truth = sequence.label;
      shown.replaceChildren(...segmentsOf(sequence, vocabulary).map(
        (ids, segment) => element("blockquote", {class: segment ? "b" : "a",
          dir: directionOf(ids, vocabulary)},
        element("small", {}, segment ? "B" : "A"), joined(ids, vocabulary))));
      answers.forEach((each, label) => {
        each.disabled = guess !== null;
        each.classList.toggle("right", guess !== null && label === truth);
        each.classList.toggle("wrong", guess === label && label !== truth);
      });
      answer.className = "answer";
      answer.textContent = "";
      if (guess !== null) {
        answer.classList.add(guess === truth ? "good" : "bad");
        answer.textContent = `${guess === truth ? "Right" : "Wrong"}: ` +
          `${meaningOf(truth, data.meanings)} (record ${number}).`;
      }
      on.disabled = guess === null || at === order.length - 1;
      score.textContent = asked === 0 ? `${pairs.length} pairs` :
        `${right} of ${asked} right, ${percent(right / asked, 0)}`;
    }

    document.addEventListener("keydown", (event) => {
      if (container.hidden || event.ctrlKey || event.metaKey || event.altKey ||
        /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
      if (event.key === "1" || event.key === "2") {
        choose(Number(event.key) - 1);
      }
    });
    container.append(element("div", {class: "card"}, shown,
      element("div", {class: "row guesses"}, answers), answer,
      element("div", {class: "row"}, on, score)),
    note("Keys 1 and 2 answer. The original text is not shown. By chance, a " +
      "random B may come from a similar text."));
    show();
  },
});

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
