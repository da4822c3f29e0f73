// Tokens: the pieces of texts, and what normalisation changed.

(() => {
  const {asking, marked, twoTexts} = modelPage;

  // Groups neighbours that were made from the same character.
  function groupsOf(pieces) {
    const groups = [];
    for (const piece of pieces) {
      const last = groups[groups.length - 1];
      if (last && piece.start < last.limit) {
        last.limit = Math.max(last.limit, piece.limit);
        last.pieces.push(piece);
      } else {
        groups.push({start: piece.start, limit: piece.limit,
          pieces: [piece]});
      }
    }
    return groups;
  }

  function describe(model) {
    return `${model.family}, ${count(model.num_layers, "layer")} of ` +
      `${count(model.num_heads, "head")}, ` +
      `${count(model.num_parameters, "parameter")}, ${model.tokenizer} of ` +
      `${model.vocab_size.toLocaleString("en")} entries.`;
  }

  function render(panel, {model}) {
    panel.append(element("p", {class: "lead"}, describe(model)));
    const boxes = twoTexts(panel, () => asked.soon());
    const asked = asking(panel, "tokens", boxes.values, show);

    function open() {
      boxes.fetch();
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
          return element("span", {class: names.join(" "),
            title: told.concat(pieces[0].changes).join(", ")}, characters);
        },
      })));
    }

    function show(answer, output) {
      const pieces = answer.texts.flatMap((read) => read.pieces);
      const unknown = pieces.filter((each) => each.is_unknown).length;
      const changed = pieces.filter((each) => each.changes.length).length;
      const unread = pieces.filter((each) => !each.is_read).length;
      output.append(element("p", {class: "m-summary"}, [
        count(pieces.length, "piece"), unknown + " unknown",
        changed + " changed by normalisation",
        "a sequence of " + count(answer.sequence.length, "token") +
          " (at most " + answer.max_seq_length + ")",
      ].concat(unread ? [unread + " not read"] : []).join(", ") + "."));
      answer.texts.forEach((read) => {
        output.append(showText(read));
        if (read.dropped.length) {
          output.append(element("p", {class: "m-warning"},
            "Dropped: " + read.dropped.map((each) => each.code_point +
              (each.name ? " " + each.name : "")).join(", ") + "."));
        }
      });
      output.append(element("p", {class: "m-key"},
        element("span", {class: "m-piece m-even"}, "a piece"), " ",
        element("span", {class: "m-piece m-odd"}, "the next"), " ",
        element("span", {class: "m-piece m-even m-changed"}, "changed"), " ",
        element("span", {class: "m-piece m-even m-unknown"}, "unknown"), " ",
        element("span", {class: "m-piece m-even m-unread"}, "not read")));
      const body = element("tbody", {});
      answer.sequence.forEach((token, position) => {
        const piece = token.piece === null ? null :
          answer.texts[token.text_number].pieces[token.piece];
        const was = piece === null ? "" :
          Array.from(answer.texts[token.text_number].text)
            .slice(piece.start, piece.limit).join("");
        body.append(element("tr", {},
          element("td", {}, position),
          element("td", {class: "m-token", dir: "auto"}, token.token),
          element("td", {}, token.id),
          element("td", {}, token.segment),
          element("td", {dir: "auto"}, was),
          element("td", {}, piece === null ? "special token" :
            piece.is_unknown ? "unknown" : piece.changes.join(", "))));
      });
      output.append(element("div", {class: "m-scroll", tabindex: "0",
        role: "region", "aria-label": "What the model reads"},
        element("table", {class: "m-table"},
          element("caption", {}, "What the model reads"),
          element("thead", {}, element("tr", {},
            ...["Position", "Token", "Id", "Segment", "As typed",
              "Normalisation"].map((name) =>
              element("th", {scope: "col"}, name)))), body)));
    }
    open();
    return open;
  }

  registerTab({name: "tokens", title: "Tokens", render});
})();
