// Attention: what every head of every layer attends to.

(() => {
  const {asking, cutNote, directionOfEntries, spelled, twoTexts} = modelPage;

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

  // A picture of a head, with a row per query and a column per key.
  function draw(canvas, values, length) {
    canvas.width = length;
    canvas.height = length;
    const context = canvas.getContext("2d");
    const [red, green, blue] = getComputedStyle(canvas).color
      .match(/[\d.]+/g).map(Number);
    const picture = context.createImageData(length, length);
    for (let place = 0; place < length * length; place += 1) {
      picture.data.set([red, green, blue,
        Math.round(255 * Math.sqrt(values[place]))], 4 * place);
    }
    context.putImageData(picture, 0, 0);
  }

  function render(panel) {
    let head = 0;
    let query = 1;
    let redraw = () => {};
    const boxes = twoTexts(panel, () => asked.soon());
    const asked = asking(panel, "attention", boxes.values, show);
    // The pictures use the theme's colour.
    document.getElementById("theme").addEventListener("click", () => redraw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change",
      () => redraw());

    function open() {
      boxes.fetch();
      asked.now();
    }

    function show(answer, output) {
      const [numLayers, numHeads, length] = answer.shape;
      const size = length * length;
      const values = decoded(answer);
      const names = answer.sequence.map(spelled);
      const direction = directionOfEntries(answer.sequence);
      head = Math.min(head, numLayers * numHeads - 1);
      query = Math.min(query, length - 1);
      const grid = element("div", {class: "m-heads", role: "group",
        "aria-label": "Layers and heads"});
      grid.style.gridTemplateColumns =
        "auto repeat(" + numHeads + ", minmax(1.1rem, 3.5rem))";
      grid.append(element("span", {}));
      for (let number = 0; number < numHeads; number += 1) {
        grid.append(element("span", {class: "m-axis"}, number + 1));
      }
      const pictures = [];
      for (let layer = 0; layer < numLayers; layer += 1) {
        grid.append(element("span", {class: "m-axis"}, layer + 1));
        for (let number = 0; number < numHeads; number += 1) {
          const place = layer * numHeads + number;
          const canvas = element("canvas", {});
          const button = element("button", {type: "button", class: "m-head",
            "aria-label": "Layer " + (layer + 1) + ", head " + (number + 1),
            "data-head": place, onclick: () => choose(place),
            onkeydown: (event) => move(event, place)}, canvas);
          pictures.push({canvas, button});
          grid.append(button);
        }
      }
      const title = element("h3", {});
      const large = element("canvas", {class: "m-large", role: "img"});
      const told = element("p", {class: "m-told", "aria-live": "polite"});
      const chips = element("div", {class: "m-chips", role: "group",
        "aria-label": "Tokens", dir: direction});
      const onward = direction === "rtl" ? -1 : 1;
      const shown = names.map((name, place) => {
        const number = element("small", {});
        const chip = element("button", {type: "button",
          class: "m-chip m-key-of", "data-position": place,
          title: answer.sequence[place].token,
          onclick: () => look(place), onpointerenter: () => look(place),
          onfocus: () => look(place),
          onkeydown: (event) => {
            const by = {ArrowLeft: -onward, ArrowRight: onward}[event.key];
            const next = by === undefined ? null : chips.children[place + by];
            if (next) {
              event.preventDefault();
              next.focus();
            }
          } }, element("span", {dir: "auto"}, name), number);
        chips.append(chip);
        return {chip, number};
      });
      const cut = cutNote(answer);
      if (cut) {
        cut.textContent = "Not all of the text is here: attention is shown " +
          "for " + length + " tokens, and the model read no others.";
        output.append(cut);
      }
      output.append(
        element("p", {}, "One row per layer, one column per head. Each " +
          "picture has a row per token that attends and a column per token " +
          "attended to; the shade is the square root of the probability."),
        element("div", {class: "m-scroll"}, grid), title,
        element("p", {}, "Point at a token, or move with the arrow keys, to " +
          "see what it attends to: the probability of each token."),
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
        shown.forEach(({chip, number}, to) => {
          const share = of(head, from, to);
          if (share > of(head, from, most)) most = to;
          number.textContent = share.toFixed(3);
          number.dataset.value = share;
          chip.style.setProperty("--m-share", Math.sqrt(share).toFixed(3));
          chip.setAttribute("aria-pressed", String(to === from));
          // The Tab key stops at one chip; arrows move to the others.
          chip.tabIndex = to === from ? 0 : -1;
        });
        told.textContent = quoted(from) + " attends most to " +
          quoted(most) + ": " + of(head, from, most).toFixed(3) + ".";
      }

      function choose(place) {
        head = place;
        pictures.forEach(({button}, other) => {
          button.setAttribute("aria-pressed", String(other === place));
          button.tabIndex = other === place ? 0 : -1;
        });
        const name = pictures[place].button.getAttribute("aria-label");
        title.textContent = name;
        large.setAttribute("aria-label", "Attention of " + name.toLowerCase());
        draw(large, values.subarray(place * size, (place + 1) * size), length);
        look(query);
      }

      function move(event, place) {
        const by = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -numHeads,
          ArrowDown: numHeads}[event.key];
        const next = by === undefined ? null : pictures[place + by];
        if (next) {
          event.preventDefault();
          next.button.focus();
          choose(place + by);
        }
      }

      large.addEventListener("pointermove", (event) => {
        const box = large.getBoundingClientRect();
        const scale = length / box.width;
        const from = Math.floor((event.clientY - box.top) * scale);
        const to = Math.floor((event.clientX - box.left) * scale);
        if (from < 0 || to < 0 || from >= length || to >= length) return;
        look(from);
        told.textContent = quoted(from) + " attends to " + quoted(to) + ": " +
          of(head, from, to).toFixed(3) + ".";
      });
      redraw = () => {
        pictures.forEach(({canvas}, place) => draw(canvas,
          values.subarray(place * size, (place + 1) * size), length));
        choose(head);
      };
      redraw();
    }
    open();
    return open;
  }

  registerTab({name: "attention", title: "Attention", render});
})();
