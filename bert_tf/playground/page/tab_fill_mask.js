// Fill the mask: the likeliest tokens for each mask.

(() => {
  const {area, asking, bar, cutNote, directionOfEntries, shareBars, shareOf,
    spelled, texts} = modelPage;

  // Names of answers; those that spell the same also get their entries.
  function namesOf(answers) {
    const names = answers.map(spelled);
    return names.map((name, place) =>
      (names.indexOf(name) === names.lastIndexOf(name) ? name :
        `${name} (${answers[place].token})`));
  }

  function render(panel, {model}) {
    // The current question. Another tab may change the shared text meanwhile.
    let text = "";
    let position = null;
    const one = area("Text; " + model.mask_token + " is a mask", texts.first, 3,
      () => {
        texts.first = one.area.value;
        forget();
        asked.soon();
      });
    panel.append(one.box, element("p", {}, "Choose a token to mask it."));
    const asked = asking(panel, "fill_mask",
      () => (text ? {texts: [text], position} : null), show, forget);

    // Another text has other tokens: none is chosen, and those still shown of
    // the old text cannot be chosen.
    function forget() {
      text = texts.first;
      position = null;
      panel.querySelectorAll(".m-chip").forEach((chip) => {
        chip.disabled = true;
      });
    }

    function open() {
      one.area.value = texts.first;
      forget();
      asked.now();
    }

    function show(answer, output) {
      const last = answer.sequence.length - 1;
      if (position === null && !answer.masks.length && last > 1) {
        position = Math.max(1, Math.floor(last / 2));
        asked.now();
      }
      const chips = element("div", {class: "m-chips", role: "group",
        "aria-label": "Tokens", dir: directionOfEntries(answer.sequence)});
      answer.sequence.forEach((token, place) => {
        const isEdge = place === 0 || place === last;
        chips.append(element("button", {type: "button", class: "m-chip",
          dir: "auto", disabled: isEdge, "data-position": place,
          "aria-pressed": String(answer.masks.some(
            (mask) => mask.position === place)),
          onclick: () => {
            position = place;
            asked.now().then((isShown) => {
              // The chip that had the focus is gone; focus its successor.
              if (isShown && document.activeElement === document.body) {
                panel.querySelector(`[data-position="${place}"]`)?.focus();
              }
            });
          }, title: token.token}, spelled(token)));
      });
      output.append(chips);
      const cut = cutNote(answer);
      if (cut) output.append(cut);
      for (const mask of answer.masks) {
        const given = mask.given;
        output.append(element("h3", {dir: "auto"},
          "Position " + mask.position + (given === null ? "" :
            ", in the place of \u2068\u201c" + spelled(given) +
            "\u201d\u2069")));
        if (given !== null) {
          output.append(element("p", {}, "It has rank " + given.rank +
            " of " + model.vocab_size + ", " + shareOf(given.probability) +
            "."));
        }
        const names = namesOf(mask.answers);
        output.append(shareBars(mask.answers.map((each, rank) => bar(
          names[rank], each.probability, shareOf(each.probability),
          given !== null && each.id === given.id, each.token))));
      }
    }
    open();
    return open;
  }

  registerTab({name: "fill_mask", title: "Fill the mask", render});
})();
