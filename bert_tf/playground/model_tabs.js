// The tabs of a model. Every text goes into the page as `textContent`.
function modelTabs(addTab) {
  const PAUSE = 250;
  const SERVING = "This page is for looking: one question at a time, from " +
    "this machine. To serve the model, export it (bert_tf export) to " +
    "TensorFlow Serving.";
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

  function make(kind, options, ...children) {
    const element = document.createElement(kind);
    for (const [name, value] of Object.entries(options || {})) {
      if (name === "text") element.textContent = value;
      else if (name === "class") element.className = value;
      else if (name.startsWith("on")) {
        element.addEventListener(name.slice(2), value);
      } else if (value !== false && value !== null && value !== undefined) {
        element.setAttribute(name, value === true ? "" : value);
      }
    }
    element.append(...children.filter((child) => child !== null));
    return element;
  }

  function percent(share) {
    const digits = share < 0.001 ? 3 : share < 0.1 ? 2 : 1;
    return (100 * share).toFixed(digits) + " %";
  }

  function count(number, noun) {
    return number + " " + noun + (number === 1 ? "" : "s");
  }

  function visible(text) {
    return text.replace(/\s/g, "\u2423") || "\u2205";
  }

  async function ask(name, values) {
    let response;
    try {
      response = await fetch("api/" + name, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(values || {}),
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
  // answer, or what is wrong with the question.
  function asking(panel, name, values, show) {
    const status = make("p", { class: "m-status", role: "status" });
    const output = make("div", { class: "m-output" });
    let number = 0;
    let timer = 0;
    async function now() {
      clearTimeout(timer);
      const asked = ++number;
      const question = values();
      status.textContent = "";
      if (question === null) {
        output.replaceChildren();
        panel.dataset.state = "empty";
        return;
      }
      panel.dataset.state = "asking";
      try {
        const answer = await ask(name, question);
        if (asked !== number) return;
        output.replaceChildren();
        show(answer, output);
        // Unless what is shown has asked for more.
        if (asked === number) panel.dataset.state = "answered";
      } catch (error) {
        if (asked !== number) return;
        output.replaceChildren();
        status.textContent = error.message;
        panel.dataset.state = "refused";
      }
    }
    function soon() {
      // What is being answered is of another text.
      number += 1;
      panel.dataset.state = "asking";
      clearTimeout(timer);
      timer = setTimeout(now, PAUSE);
    }
    panel.append(status, output, make("p", { class: "m-note", text: SERVING }));
    return { now, soon };
  }

  let numberOfFields = 0;

  function field(label, value, rows, oninput) {
    const id = "m-field-" + ++numberOfFields;
    const area = make("textarea", { id, rows, dir: "auto", spellcheck: "false",
      oninput });
    area.value = value;
    return { area, box: make("div", { class: "m-field" },
      make("label", { for: id, text: label }), area) };
  }

  function bar(name, share, told, isChosen) {
    const fill = make("span", { class: "m-fill" });
    fill.style.width = (100 * Math.max(0, Math.min(1, share))) + "%";
    return make("li", { class: isChosen ? "m-bar m-chosen" : "m-bar" },
      make("span", { class: "m-name", dir: "auto", text: name }),
      make("span", { class: "m-track", "aria-hidden": "true" }, fill),
      make("span", { class: "m-number", text: told }));
  }

  function bars(rows) {
    return make("ol", { class: "m-bars" }, ...rows);
  }

  function cutNote(answer) {
    return answer.is_cut ? make("p", { class: "m-warning",
      text: "The end of the text was not read: it is too long." }) : null;
  }

  // The text, with marks round ranges of its characters, which are code points.
  function marked(text, ranges) {
    const characters = Array.from(text);
    const shown = make("p", { class: "m-text", dir: "auto" });
    let place = 0;
    for (const range of ranges) {
      shown.append(characters.slice(place, range.start).join(""),
        range.element(characters.slice(range.start, range.limit).join("")));
      place = range.limit;
    }
    shown.append(characters.slice(place).join(""));
    return shown;
  }

  // One text for the three tabs of any model.
  let text = SAMPLES.text;
  let second = "";

  function twoTexts(panel, changed) {
    const one = field("Text", text, 3, () => {
      text = one.area.value;
      changed();
    });
    const two = field("Second text, or none", second, 1, () => {
      second = two.area.value;
      changed();
    });
    panel.append(one.box, two.box);
    return {
      fetch: () => { one.area.value = text; two.area.value = second; },
      values: () => {
        if (!text && !second) return null;
        return { texts: second ? [text, second] : [text] };
      },
    };
  }

  // Neighbours that were made from the same character are shown as one.
  function groupsOf(pieces) {
    const groups = [];
    for (const piece of pieces) {
      const last = groups[groups.length - 1];
      if (last && piece.start < last.limit) {
        last.limit = Math.max(last.limit, piece.limit);
        last.pieces.push(piece);
      } else {
        groups.push({ start: piece.start, limit: piece.limit,
          pieces: [piece] });
      }
    }
    return groups;
  }

  function tokensTab() {
    const panel = addTab("tokens", "Tokens", open);
    const texts = twoTexts(panel, () => asked.soon());
    const asked = asking(panel, "tokens", texts.values, show);

    function open() {
      texts.fetch();
      asked.now();
    }

    function showText(read) {
      const groups = groupsOf(read.pieces);
      return marked(read.text, groups.map((group, place) => ({
        start: group.start,
        limit: group.limit,
        element: (characters) => {
          const names = ["m-piece", place % 2 ? "m-odd" : "m-even"];
          const pieces = group.pieces;
          if (pieces.some((each) => each.is_unknown)) names.push("m-unknown");
          if (pieces.some((each) => each.changes.length)) {
            names.push("m-changed");
          }
          if (!pieces.every((each) => each.is_read)) names.push("m-unread");
          const told = pieces.map((each) => each.token + " " + each.id);
          return make("span", { class: names.join(" "), text: characters,
            title: told.concat(pieces[0].changes).join(", ") });
        },
      })));
    }

    function show(answer, output) {
      const pieces = answer.texts.flatMap((read) => read.pieces);
      const unknown = pieces.filter((each) => each.is_unknown).length;
      const changed = pieces.filter((each) => each.changes.length).length;
      const unread = pieces.filter((each) => !each.is_read).length;
      output.append(make("p", { class: "m-summary", text: [
        count(pieces.length, "piece"), unknown + " unknown",
        changed + " changed by normalisation",
        "a sequence of " + count(answer.sequence.length, "token") +
          " (at most " + answer.max_seq_length + ")",
      ].concat(unread ? [unread + " not read"] : []).join(", ") + "." }));
      answer.texts.forEach((read) => {
        output.append(showText(read));
        if (read.dropped.length) {
          output.append(make("p", { class: "m-warning",
            text: "Dropped: " + read.dropped.map((each) => each.code_point +
              (each.name ? " " + each.name : "")).join(", ") + "." }));
        }
      });
      output.append(make("p", { class: "m-key" },
        make("span", { class: "m-piece m-even", text: "a piece" }), " ",
        make("span", { class: "m-piece m-odd", text: "the next" }), " ",
        make("span", { class: "m-piece m-even m-changed", text: "changed" }),
        " ", make("span", { class: "m-piece m-even m-unknown",
          text: "unknown" }), " ",
        make("span", { class: "m-piece m-even m-unread", text: "not read" })));
      const body = make("tbody");
      answer.sequence.forEach((token, position) => {
        const piece = token.piece === null ? null :
          answer.texts[token.text_number].pieces[token.piece];
        const was = piece === null ? "" :
          Array.from(answer.texts[token.text_number].text)
            .slice(piece.start, piece.limit).join("");
        body.append(make("tr", {},
          make("td", { text: position }),
          make("td", { class: "m-token", dir: "auto", text: token.token }),
          make("td", { text: token.id }),
          make("td", { text: token.segment }),
          make("td", { dir: "auto", text: was }),
          make("td", { text: piece === null ? "special token" :
            piece.is_unknown ? "unknown" : piece.changes.join(", ") })));
      });
      output.append(make("div", { class: "m-scroll", tabindex: "0" },
        make("table", { class: "m-table" },
          make("caption", { text: "What the model reads" }),
          make("thead", {}, make("tr", {},
            ...["Position", "Token", "Id", "Segment", "As typed",
              "Normalisation"].map((name) =>
              make("th", { scope: "col", text: name })))), body)));
    }
    return open;
  }

  function maskTab(model) {
    let position = null;
    const panel = addTab("fill_mask", "Fill the mask", open);
    const one = field("Text; " + model.mask_token + " is a mask", text, 3,
      () => {
        text = one.area.value;
        position = null;
        asked.soon();
      });
    panel.append(one.box, make("p", { text: "Choose a token to mask it." }));
    const asked = asking(panel, "fill_mask",
      () => (text ? { texts: [text], position } : null), show);

    function open() {
      one.area.value = text;
      position = null;
      asked.now();
    }

    function show(answer, output) {
      const last = answer.sequence.length - 1;
      if (position === null && !answer.masks.length && last > 1) {
        position = Math.max(1, Math.floor(last / 2));
        asked.now();
      }
      const chips = make("div", { class: "m-chips", role: "group",
        "aria-label": "Tokens" });
      answer.sequence.forEach((token, place) => {
        const isEdge = place === 0 || place === last;
        chips.append(make("button", { type: "button", class: "m-chip",
          dir: "auto", disabled: isEdge, "data-position": place,
          "aria-pressed": String(answer.masks.some(
            (mask) => mask.position === place)),
          text: visible(token.token),
          onclick: () => {
            position = place;
            asked.now().then(() => {
              const chosen = panel.querySelector(
                "[data-position='" + place + "']");
              if (chosen) chosen.focus();
            });
          } }));
      });
      output.append(chips);
      for (const mask of answer.masks) {
        const given = mask.given;
        output.append(make("h3", { dir: "auto",
          text: "Position " + mask.position + (given === null ? "" :
            ", in the place of \u2068\u201c" + visible(given.token) +
            "\u201d\u2069") }));
        if (given !== null) {
          output.append(make("p", { text: "It has rank " + given.rank +
            " of " + model.vocab_size + ", " + percent(given.probability) +
            "." }));
        }
        output.append(bars(mask.answers.map((each) => bar(
          visible(each.token), each.probability, percent(each.probability),
          given !== null && each.id === given.id))));
      }
    }
    return open;
  }

  function decoded(answer) {
    const bytes = Uint8Array.from(atob(answer.probabilities),
      (character) => character.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    const values = new Float32Array(bytes.length / 4);
    for (let place = 0; place < values.length; place += 1) {
      values[place] = view.getFloat32(4 * place, true);
    }
    return values;
  }

  // A picture of a head: a row of each query, a column of each key.
  function draw(canvas, values, length) {
    canvas.width = length;
    canvas.height = length;
    const context = canvas.getContext("2d");
    const [red, green, blue] = getComputedStyle(canvas)
      .getPropertyValue("--m-rgb").split(",").map(Number);
    const picture = context.createImageData(length, length);
    for (let place = 0; place < length * length; place += 1) {
      picture.data.set([red, green, blue,
        Math.round(255 * Math.sqrt(values[place]))], 4 * place);
    }
    context.putImageData(picture, 0, 0);
  }

  function attentionTab() {
    let head = 0;
    let query = 1;
    const panel = addTab("attention", "Attention", open);
    const texts = twoTexts(panel, () => asked.soon());
    const asked = asking(panel, "attention", texts.values, show);

    function open() {
      texts.fetch();
      asked.now();
    }

    function show(answer, output) {
      const [numLayers, numHeads, length] = answer.shape;
      const size = length * length;
      const values = decoded(answer);
      const names = answer.sequence.map((token) => visible(token.token));
      head = Math.min(head, numLayers * numHeads - 1);
      query = Math.min(query, length - 1);
      const grid = make("div", { class: "m-heads", role: "group",
        "aria-label": "Layers and heads" });
      grid.style.gridTemplateColumns =
        "auto repeat(" + numHeads + ", minmax(1.1rem, 3.5rem))";
      grid.append(make("span"));
      for (let number = 0; number < numHeads; number += 1) {
        grid.append(make("span", { class: "m-axis", text: number + 1 }));
      }
      const pictures = [];
      for (let layer = 0; layer < numLayers; layer += 1) {
        grid.append(make("span", { class: "m-axis", text: layer + 1 }));
        for (let number = 0; number < numHeads; number += 1) {
          const place = layer * numHeads + number;
          const canvas = make("canvas");
          const button = make("button", { type: "button", class: "m-head",
            "aria-label": "Layer " + (layer + 1) + ", head " + (number + 1),
            "data-head": place, onclick: () => choose(place),
            onkeydown: (event) => move(event, place) }, canvas);
          pictures.push({ canvas, button });
          grid.append(button);
        }
      }
      const title = make("h3");
      const large = make("canvas", { class: "m-large", role: "img" });
      const told = make("p", { class: "m-told", "aria-live": "polite" });
      const chips = make("div", { class: "m-chips", role: "group",
        "aria-label": "Tokens" });
      const shown = names.map((name, place) => {
        const number = make("small");
        const chip = make("button", { type: "button", class: "m-chip m-key-of",
          "data-position": place, onclick: () => look(place),
          onpointerenter: () => look(place), onfocus: () => look(place),
          onkeydown: (event) => {
            const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
            const next = by === undefined ? null : chips.children[place + by];
            if (next) {
              event.preventDefault();
              next.focus();
            }
          } }, make("span", { dir: "auto", text: name }), number);
        chips.append(chip);
        return { chip, number };
      });
      const cut = cutNote(answer);
      if (cut) {
        cut.textContent = "Attention is shown of the first " + length +
          " tokens: the model read no others.";
        output.append(cut);
      }
      output.append(
        make("p", { text: "A row of each layer, a column of each head. In a " +
          "picture, a row of each token that looks, a column of each that is " +
          "looked at; the shade is the square root of the probability." }),
        make("div", { class: "m-scroll" }, grid), title,
        make("p", { text: "Point at a token, or move with the arrow keys, to " +
          "see what it looks at: of each token the probability." }),
        chips, told, large);

      function quoted(place) {
        return "\u2068\u201c" + names[place] + "\u201d\u2069";
      }

      function of(place, from, to) {
        return values[place * size + from * length + to];
      }

      function look(from) {
        query = from;
        let most = 0;
        shown.forEach(({ chip, number }, to) => {
          const share = of(head, from, to);
          if (share > of(head, from, most)) most = to;
          number.textContent = share.toFixed(3);
          number.dataset.value = share;
          chip.style.setProperty("--m-share", Math.sqrt(share).toFixed(3));
          chip.setAttribute("aria-pressed", String(to === from));
        });
        told.textContent = quoted(from) + " looks most at " +
          quoted(most) + ": " + of(head, from, most).toFixed(3) + ".";
      }

      function choose(place) {
        head = place;
        pictures.forEach(({ button }, other) => {
          button.setAttribute("aria-pressed", String(other === place));
        });
        const name = pictures[place].button.getAttribute("aria-label");
        title.textContent = name;
        large.setAttribute("aria-label", "Attention of " + name.toLowerCase());
        draw(large, values.subarray(place * size, (place + 1) * size), length);
        look(query);
      }

      function move(event, place) {
        const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -numHeads,
          ArrowDown: numHeads }[event.key];
        const next = by === undefined ? null : pictures[place + by];
        if (next) {
          event.preventDefault();
          next.button.focus();
          choose(place + by);
        }
      }

      large.addEventListener("pointermove", (event) => {
        const box = large.getBoundingClientRect();
        const from = Math.floor((event.clientY - box.top) / box.height * length);
        const to = Math.floor((event.clientX - box.left) / box.width * length);
        if (from < 0 || to < 0 || from >= length || to >= length) return;
        look(from);
        told.textContent = quoted(from) + " looks at " + quoted(to) + ": " +
          of(head, from, to).toFixed(3) + ".";
      });
      pictures.forEach(({ canvas }, place) => draw(canvas,
        values.subarray(place * size, (place + 1) * size), length));
      choose(head);
    }
    return open;
  }

  // By the kind of the task: samples of its texts, and how an answer is shown.
  const TASKS = {
    classes: {
      show: (answer, output) => output.append(bars([...answer.classes]
        .sort((one, other) => other.probability - one.probability)
        .map((each) => bar(each.name, each.probability,
          percent(each.probability), each.is_chosen)))),
    },
    number: {
      show: (answer, output) => output.append(make("p", { class: "m-big",
        "data-value": answer.score, text: answer.score.toFixed(4) })),
    },
    entities: {
      samples: () => [text],
      show: (answer, output) => {
        const kinds = [...new Set(answer.entities.map((each) => each.label))];
        output.append(make("p", { class: "m-summary",
          text: answer.entities.length === 1 ? "1 entity." :
            answer.entities.length + " entities." }));
        output.append(marked(answer.text, answer.entities.map((each) => ({
          start: each.start,
          limit: each.limit,
          element: (characters) => make("mark", {
            class: "m-entity m-kind-" + kinds.indexOf(each.label) % 4,
            title: percent(each.score) }, characters,
          make("small", { text: " " + each.label + " " + percent(each.score),
          })),
        }))));
      },
    },
    answers: {
      samples: () => [SAMPLES.question, SAMPLES.context],
      show: (answer, output) => {
        const best = answer.best;
        const has = best.start >= 0;
        output.append(make("p", { class: "m-big", dir: "auto",
          text: has ? best.text : "No answer" }));
        output.append(marked(answer.context, has ? [{
          start: best.start,
          limit: best.limit,
          element: (characters) => make("mark", { text: characters }),
        }] : []));
        output.append(bars(answer.answers.map((each) => bar(
          each.start >= 0 ? each.text : "(no answer)", each.score,
          percent(each.score), each.start === best.start &&
            each.limit === best.limit))));
        if (answer.null_odds !== undefined) {
          output.append(make("p", { text: "Odds of no answer, its score less " +
            "the best one's: " + answer.null_odds.toFixed(3) + "." }));
        }
      },
    },
    choices: {
      samples: (task) => [SAMPLES.context, ...Array.from(
        { length: task.text_names.length - 1 },
        (_, place) => SAMPLES.choice[place % SAMPLES.choice.length])],
      show: (answer, output, texts) => output.append(bars(
        answer.probabilities.map((share, place) => bar(texts[place + 1], share,
          percent(share), place === answer.choice)))),
    },
    ranked: {
      lines: { name: "Texts, one a line", after: 1,
        sample: SAMPLES.lines },
      samples: () => [SAMPLES.query],
      show: (answer, output, texts) => output.append(bars(answer.order.map(
        (place, rank) => bar(texts[place + 1], answer.probabilities[place],
          answer.scores[place].toFixed(3), rank === 0)))),
    },
    sentences: {
      lines: { name: "Sentences, one a line", after: 0,
        sample: SAMPLES.sentences },
      samples: () => [],
      show: showSentences,
    },
  };

  function showSentences(answer, output, texts) {
    const nearest = make("div");
    const table = make("table", { class: "m-table m-cosines" },
      make("caption", { text: "Cosines; choose a sentence to see its nearest",
      }));
    const heading = make("tr", {}, make("td"));
    texts.forEach((_, place) => heading.append(
      make("th", { scope: "col", text: place + 1 })));
    table.append(heading);
    const buttons = texts.map((sentence, row) => {
      const button = make("button", { type: "button", dir: "auto",
        text: (row + 1) + ". " + sentence, onclick: () => choose(row) });
      const line = make("tr", {}, make("th", { scope: "row" }, button));
      answer.cosines[row].forEach((cosine) => {
        const cell = make("td", { "data-value": cosine,
          text: cosine.toFixed(3) });
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
        make("h3", { dir: "auto", text: "Nearest to: " + texts[row] }),
        bars(others.map((place, rank) => bar(texts[place],
          answer.cosines[row][place], answer.cosines[row][place].toFixed(3),
          rank === 0))));
    }
    output.append(nearest, make("div", { class: "m-scroll", tabindex: "0" },
      table));
    choose(0);
  }

  function taskTab(model) {
    const task = model.task;
    const kind = TASKS[task.kind];
    const panel = addTab("task",
      task.title ? "Your task" : "Nearest sentences", open);
    if (task.title) {
      panel.append(make("p", { class: "m-summary",
        text: "This model was tuned to: " + task.title + "." }));
    }
    const samples = kind.samples ? kind.samples(task) :
      task.text_names.map(() => SAMPLES.text);
    const names = kind.lines ? task.text_names.slice(0, kind.lines.after) :
      task.text_names;
    const fields = names.map((name, place) => field(
      name + (names.indexOf(name) === names.lastIndexOf(name) ? "" :
        " " + (place - names.indexOf(name) + 1)),
      samples[place], name === "context" ? 4 : 2, () => asked.soon()));
    if (kind.lines) {
      fields.push(field(kind.lines.name, kind.lines.sample.join("\n"), 5,
        () => asked.soon()));
    }
    panel.append(...fields.map((each) => each.box));
    let texts = [];
    const asked = asking(panel, "predict", () => {
      texts = fields.map((each) => each.area.value);
      if (kind.lines) {
        texts.push(...texts.pop().split("\n").filter((line) => line.trim()));
      }
      return texts.length < task.least_texts ? null : { texts };
    }, (answer, output) => {
      const cut = cutNote(answer);
      if (cut) output.append(cut);
      kind.show(answer, output, texts);
    });

    function open() {
      asked.now();
    }
    return open;
  }

  async function start() {
    const model = await ask("model", {});
    const told = model.name + ": " + model.family + ", " +
      count(model.num_layers, "layer") + " of " +
      count(model.num_heads, "head") + ", " +
      model.num_parameters.toLocaleString("en") + " parameters, " +
      model.tokenizer + " of " + model.vocab_size.toLocaleString("en") +
      " entries.";
    tokensTab();
    if (model.fills_masks) maskTab(model);
    attentionTab();
    if (model.task !== null) taskTab(model);
    return told;
  }
  return start();
}
