// Fill the mask: the likeliest tokens in the place of one.

(() => {
  const {area, asking, bar, cutNote, shareBars, shareOf, texts, visible} = modelPage;

  function render(panel, {model}) {
    let position = null;
    const one = area("Text; " + model.mask_token + " is a mask", texts.first, 3,
      () => {
        texts.first = one.area.value;
        position = null;
        asked.soon();
      });
    panel.append(one.box, element("p", {}, "Choose a token to mask it."));
    const asked = asking(panel, "fill_mask",
      () => (texts.first ? {texts: [texts.first], position} : null), show);

    function open() {
      one.area.value = texts.first;
      position = null;
      asked.now();
    }

    function show(answer, output) {
      const last = answer.sequence.length - 1;
      if (position === null && !answer.masks.length && last > 1) {
        position = Math.max(1, Math.floor(last / 2));
        asked.now();
      }
      const chips = element("div", {class: "m-chips", role: "group",
        "aria-label": "Tokens"});
      answer.sequence.forEach((token, place) => {
        const isEdge = place === 0 || place === last;
        chips.append(element("button", {type: "button", class: "m-chip",
          dir: "auto", disabled: isEdge, "data-position": place,
          "aria-pressed": String(answer.masks.some(
            (mask) => mask.position === place)),
          onclick: () => {
            position = place;
            asked.now().then(() => {
              const chosen = panel.querySelector(
                "[data-position='" + place + "']");
              if (chosen) chosen.focus();
            });
          } }, visible(token.token)));
      });
      output.append(chips);
      const cut = cutNote(answer);
      if (cut) output.append(cut);
      for (const mask of answer.masks) {
        const given = mask.given;
        output.append(element("h3", {dir: "auto"},
          "Position " + mask.position + (given === null ? "" :
            ", in the place of \u2068\u201c" + visible(given.token) +
            "\u201d\u2069")));
        if (given !== null) {
          output.append(element("p", {}, "It has rank " + given.rank +
            " of " + model.vocab_size + ", " + shareOf(given.probability) +
            "."));
        }
        output.append(shareBars(mask.answers.map((each) => bar(
          visible(each.token), each.probability, shareOf(each.probability),
          given !== null && each.id === given.id))));
      }
    }
    open();
    return open;
  }

  registerTab({name: "fill_mask", title: "Fill the mask", render});
})();
