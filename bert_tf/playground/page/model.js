// Shared by the tabs that ask a model: questions to the server, texts, bars.

const modelPage = (() => {
  const PAUSE = 250;
  const SERVING = "This page is for exploring a model: it answers one " +
    "question at a time, and only from this machine. To serve the model, " +
    "export it (bert_tf export) for TensorFlow Serving.";
  const SAMPLES = {
    text: "The quick brown fox jumps over the lazy dog in Zürich.",
    question: "Where does the river rise?",
    context: "The river rises in the mountains of the north and flows " +
      "through three lakes before it reaches the sea.",
    query: "how to reset a password",
    lines: ["To reset your password, open the settings.",
      "The river rises in the north.", "Passwords are kept as hashes."],
    choice: ["It rises in the north.", "It sings.", "It is a lake.",
      "Nobody knows."],
    sentences: ["A man is eating food.", "A man eats a piece of bread.",
      "The girl carries a baby.", "Someone is having a meal."],
  };

  // A small share gets more digits.
  function shareOf(share) {
    return percent(share, share < 0.001 ? 3 : share < 0.1 ? 2 : 1);
  }

  // Makes white space and the empty string visible.
  function visible(text) {
    return text.replace(/\s/g, "\u2423") || "\u2205";
  }

  async function ask(name, values, signal) {
    let response;
    try {
      response = await fetch("api/" + name, {
        method: "POST",
        headers: {"Content-Type": "application/json"},
        body: JSON.stringify(values),
        signal,
      });
    } catch (error) {
      throw new Error("The server does not answer. Is it still running?");
    }
    let answer;
    try {
      answer = await response.json();
    } catch (error) {
      throw new Error("The server refused the request (" + response.status +
        "). Open the URL that it printed.");
    }
    if (!response.ok) throw new Error(answer.error);
    return answer;
  }

  // A panel that asks again when its texts have changed, and shows the last
  // answer, or what is wrong with the question. `now()` returns whether the
  // answer to its own question was shown; `refused()` is called on an error.
  function asking(panel, name, values, show, refused = () => {}) {
    const status = element("p", {class: "m-status", role: "status"});
    const output = element("div", {class: "m-output"});
    let number = 0;
    let timer = 0;
    let underWay = new AbortController();
    // Aborts the question, so that the server need not answer it.
    function overtake() {
      clearTimeout(timer);
      underWay.abort();
      underWay = new AbortController();
      number += 1;
    }
    async function now() {
      overtake();
      const asked = number;
      const question = values();
      status.textContent = "";
      if (question === null) {
        output.replaceChildren();
        panel.dataset.state = "empty";
        return false;
      }
      panel.dataset.state = "asking";
      try {
        const answer = await ask(name, question, underWay.signal);
        if (asked !== number) return false;
        output.replaceChildren();
        show(answer, output);
        // `show` may have asked the next question.
        if (asked === number) panel.dataset.state = "answered";
        return true;
      } catch (error) {
        if (asked !== number) return false;
        output.replaceChildren();
        status.textContent = error.message;
        panel.dataset.state = "refused";
        refused();
        return false;
      }
    }
    function soon() {
      // The pending question has the old text.
      overtake();
      panel.dataset.state = "asking";
      timer = setTimeout(now, PAUSE);
    }
    panel.append(status, output,
      element("p", {class: "note m-note"}, SERVING));
    return {now, soon};
  }

  function area(label, value, rows, oninput) {
    const input = element("textarea", {rows, dir: "auto", spellcheck: "false",
      oninput, value});
    return {area: input, box: field(label, input)};
  }

  function bar(name, share, told, isChosen, title) {
    const fill = element("span", {class: "m-fill",
      style: {"--share": Math.max(0, Math.min(1, share))}});
    return element("li", {class: isChosen ? "m-bar m-chosen" : "m-bar"},
      element("span", {class: "m-name", dir: "auto", title}, name),
      element("span", {class: "m-track", "aria-hidden": "true"}, fill),
      element("span", {class: "m-number"}, told));
  }

  function shareBars(rows) {
    return element("ol", {class: "m-bars"}, rows);
  }

  function cutNote(answer) {
    return answer.is_cut ? element("p", {class: "m-warning"},
      "Not all of the text was read: it is too long.") : null;
  }

  // What an entry of the vocabulary adds to a text.
  function spelled(entry) {
    return visible(entry.text);
  }

  function directionOfEntries(entries) {
    return directionOfTexts(entries.filter((each) =>
      !each.is_special && !each.is_unknown).map((each) => each.text));
  }

  // The text with elements around ranges of its characters (code points).
  function marked(text, ranges) {
    const characters = Array.from(text);
    const shown = element("p", {class: "m-text", dir: "auto"});
    let place = 0;
    for (const range of ranges) {
      shown.append(characters.slice(place, range.start).join(""),
        range.element(characters.slice(range.start, range.limit).join("")));
      place = range.limit;
    }
    shown.append(characters.slice(place).join(""));
    return shown;
  }

  // The texts that the tabs for every model share.
  const texts = {first: SAMPLES.text, second: ""};

  function twoTexts(panel, changed) {
    const one = area("Text", texts.first, 3, () => {
      texts.first = one.area.value;
      changed();
    });
    const two = area("Second text (optional)", texts.second, 1, () => {
      texts.second = two.area.value;
      changed();
    });
    panel.append(one.box, two.box);
    return {
      fetch: () => {
        one.area.value = texts.first;
        two.area.value = texts.second;
      },
      values: () => {
        const {first, second} = texts;
        if (!first && !second) return null;
        return {texts: second ? [first, second] : [first]};
      },
    };
  }

  return {SAMPLES, area, asking, bar, cutNote, directionOfEntries, marked,
    shareBars, shareOf, spelled, texts, twoTexts};
})();
