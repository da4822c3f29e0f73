// Your task: answers of the task that the model was tuned to.

(() => {
  const {SAMPLES, area, asking, bar, cutNote, marked, shareBars,
    shareOf} = modelPage;

  // By the kind of the task: samples of its texts, and how an answer is shown.
  const TASKS = {
    classes: {
      show: (answer, output) => output.append(shareBars([...answer.classes]
        .sort((one, other) => other.probability - one.probability)
        .map((each) => bar(each.name, each.probability,
          shareOf(each.probability), each.is_chosen)))),
    },
    number: {
      show: (answer, output) => output.append(element("p", {class: "m-big",
        "data-value": answer.score}, answer.score.toFixed(4))),
    },
    entities: {
      samples: () => [SAMPLES.text],
      show: (answer, output) => {
        const kinds = [...new Set(answer.entities.map((each) => each.label))];
        output.append(element("p", {class: "m-summary"},
          answer.entities.length === 1 ? "1 entity." :
            answer.entities.length + " entities."));
        output.append(marked(answer.text, answer.entities.map((each) => ({
          start: each.start,
          limit: each.limit,
          element: (characters) => element("mark", {
            class: "m-entity m-kind-" + kinds.indexOf(each.label) % 4,
            title: shareOf(each.score)}, characters,
          element("small", {}, " " + each.label + " " + shareOf(each.score))),
        }))));
      },
    },
    answers: {
      samples: () => [SAMPLES.question, SAMPLES.context],
      show: (answer, output) => {
        const best = answer.best;
        const has = best.start >= 0;
        output.append(element("p", {class: "m-big", dir: "auto"},
          has ? best.text : "No answer"));
        output.append(marked(answer.context, has ? [{
          start: best.start,
          limit: best.limit,
          element: (characters) => element("mark", {}, characters),
        }] : []));
        output.append(shareBars(answer.answers.map((each) => bar(
          each.start >= 0 ? each.text : "(no answer)", each.score,
          shareOf(each.score), each.start === best.start &&
            each.limit === best.limit))));
        if (answer.null_odds !== undefined) {
          output.append(element("p", {}, "Odds of no answer, its score less " +
            "the best one's: " + answer.null_odds.toFixed(3) + "."));
        }
      },
    },
    choices: {
      samples: (task) => [SAMPLES.context, ...Array.from(
        {length: task.text_names.length - 1},
        (_, place) => SAMPLES.choice[place % SAMPLES.choice.length])],
      show: (answer, output, texts) => output.append(shareBars(
        answer.probabilities.map((share, place) => bar(texts[place + 1], share,
          shareOf(share), place === answer.choice)))),
    },
    ranked: {
      lines: {name: "Texts, one per line", after: 1,
        sample: SAMPLES.lines},
      samples: () => [SAMPLES.query],
      show: (answer, output, texts) => output.append(shareBars(answer.order.map(
        (place, rank) => bar(texts[place + 1], answer.probabilities[place],
          answer.scores[place].toFixed(3), rank === 0)))),
    },
    sentences: {
      lines: {name: "Sentences, one per line", after: 0,
        sample: SAMPLES.sentences},
      samples: () => [],
      show: showSentences,
    },
  };

  function showSentences(answer, output, texts) {
    const nearest = element("div", {});
    const table = element("table", {class: "m-table m-cosines"},
      element("caption", {}, "Cosines; choose a sentence to see its nearest"));
    const heading = element("tr", {}, element("td", {}));
    texts.forEach((_, place) => heading.append(
      element("th", {scope: "col"}, place + 1)));
    table.append(heading);
    const buttons = texts.map((sentence, row) => {
      const button = element("button", {type: "button", dir: "auto",
        onclick: () => choose(row)}, (row + 1) + ". " + sentence);
      const line = element("tr", {}, element("th", {scope: "row"}, button));
      answer.cosines[row].forEach((cosine) => {
        const cell = element("td", {"data-value": cosine}, cosine.toFixed(3));
        cell.style.setProperty("--m-share", Math.max(0, cosine).toFixed(3));
        line.append(cell);
      });
      table.append(line);
      return button;
    });

    function choose(row) {
      buttons.forEach((button, place) =>
        button.setAttribute("aria-pressed", String(place === row)));
      const others = texts.map((_, place) => place)
        .filter((place) => place !== row)
        .sort((one, other) => answer.cosines[row][other] -
          answer.cosines[row][one]);
      nearest.replaceChildren(
        element("h3", {dir: "auto"}, "Nearest to: " + texts[row]),
        shareBars(others.map((place, rank) => bar(texts[place],
          answer.cosines[row][place], answer.cosines[row][place].toFixed(3),
          rank === 0))));
    }
    output.append(nearest, element("div", {class: "m-scroll", tabindex: "0",
      role: "region", "aria-label": "Cosines"}, table));
    choose(0);
  }

  function render(panel, {model}) {
    const {task} = model;
    const kind = TASKS[task.kind];
    if (task.title) {
      panel.append(element("p", {class: "m-summary"},
        "This model's task: " + task.title + "."));
    }
    if (task.prompt) {
      panel.append(element("p", {}, "This prompt is put before each text: " +
        `\u2068\u201c${task.prompt}\u201d\u2069.`));
    }
    const samples = kind.samples ? kind.samples(task) :
      task.text_names.map(() => SAMPLES.text);
    const names = kind.lines ? task.text_names.slice(0, kind.lines.after) :
      task.text_names;
    const fields = names.map((name, place) => area(
      name + (names.indexOf(name) === names.lastIndexOf(name) ? "" :
        " " + (place - names.indexOf(name) + 1)),
      samples[place], name === "context" ? 4 : 2, () => asked.soon()));
    if (kind.lines) {
      fields.push(area(kind.lines.name, kind.lines.sample.join("\n"), 5,
        () => asked.soon()));
    }
    panel.append(...fields.map((each) => each.box));
    let texts = [];
    const asked = asking(panel, "predict", () => {
      texts = fields.map((each) => each.area.value);
      if (kind.lines) {
        texts.push(...texts.pop().split("\n").filter((line) => line.trim()));
      }
      return texts.length < task.least_texts ? null : {texts};
    }, (answer, output) => {
      const cut = cutNote(answer);
      if (cut) output.append(cut);
      kind.show(answer, output, texts);
    });

    asked.now();
  }

  registerTab({name: "task", title: "Your task", render});
})();
