// Tabs, the theme, and helpers that build elements. HTML is never made from a
// string: text goes in as text.

const registeredTabs = [];

// A tab: {name, title, render(container, data)}. `render` is called once, when
// the tab is first shown; the container is an empty <section>. If it returns a
// function, that is called whenever the tab is shown again.
function registerTab(tab) {
  registeredTabs.push(tab);
}

// element("p", {class: "note", onclick: f}, "text", child, [more], null)
function element(kind, attributes, ...children) {
  const made = document.createElement(kind);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") made[name] = value;
    else if (name === "style") setStyle(made, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((each) =>
    each !== null && each !== undefined));
  return made;
}

// Sets the styles of an object, e.g. {"--share": 0.5}.
function setStyle(made, styles) {
  for (const [name, value] of Object.entries(styles)) {
    made.style.setProperty(name, value);
  }
}

function svg(kind, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes || {})) {
    made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity));
  return made;
}

let lastId = 0;

function newId(word) {
  lastId += 1;
  return `${word}-${lastId}`;
}

// A label above its input, and the hint, if any, below.
function field(label, input, hint) {
  input.id = input.id || newId("field");
  const parts = [element("label", {for: input.id}, label), input];
  if (hint) {
    const id = newId("hint");
    input.setAttribute("aria-describedby", id);
    parts.push(element("small", {id, class: "hint"}, hint));
  }
  return element("div", {class: "field"}, parts);
}

// A slider with its value beside the label. `say(value)` returns its text.
function slider({label, min, max, step, value, say, oninput}) {
  const output = element("output", {}, say(value));
  const input = element("input", {type: "range", min, max, step});
  input.value = value;
  const tell = () => {
    output.textContent = say(Number(input.value));
    input.setAttribute("aria-valuetext", say(Number(input.value)));
  };
  tell();
  input.addEventListener("input", () => {
    tell();
    oninput(Number(input.value));
  });
  const made = field(label, input);
  made.classList.add("slider");
  made.querySelector("label").append(output);
  // Sets the value without calling `oninput`.
  made.set = (now) => {
    input.value = now;
    tell();
  };
  return made;
}

function numberField({label, min, max, value, oninput, hint}) {
  const input = element("input", {
    type: "number", min, max, step: 1, inputmode: "numeric",
  });
  input.value = value;
  input.addEventListener("input", () => {
    const now = Number(input.value);
    const isGood = input.value !== "" && Number.isInteger(now) &&
      now >= min && now <= max;
    input.setAttribute("aria-invalid", String(!isGood));
    if (isGood) oninput(now);
  });
  const made = field(label, input, hint);
  made.set = (now) => {
    input.value = now;
    input.setAttribute("aria-invalid", "false");
  };
  return made;
}

// `options`: [value, text] pairs.
function select({label, options, value, onchange, hint}) {
  const input = element("select", {}, options.map(([each, says]) =>
    element("option", {value: each}, says)));
  input.value = value;
  input.addEventListener("change", () => onchange(input.value));
  const made = field(label, input, hint);
  made.set = (now) => {
    input.value = now;
  };
  return made;
}

// A choice of one from a few, as buttons in a row that are radio buttons.
function choice({label, options, value, onchange}) {
  const name = newId("choice");
  const inputs = options.map(([each, says]) => {
    const input = element("input", {
      type: "radio", name, value: each, id: newId("radio"),
    });
    input.checked = each === value;
    input.addEventListener("change", () => onchange(each));
    return [input, element("label", {for: input.id}, says)];
  });
  const made = element("fieldset", {class: "choice"},
    element("legend", {}, label), element("div", {}, inputs));
  made.set = (now) => {
    for (const [input] of inputs) input.checked = input.value === now;
  };
  return made;
}

function button(text, onclick, attributes) {
  return element("button", {type: "button", onclick, ...attributes}, text);
}

function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

function percent(share, digits = 1) {
  return `${(100 * share).toFixed(digits)}%`;
}

// A table of bars from rows of [name, number, text of the number].
function bars(rows, {caption, heads} = {}) {
  const most = Math.max(1e-9, ...rows.map(([, number]) => number));
  return element("table", {class: "bars"},
    caption ? element("caption", {}, caption) : null,
    heads ? element("thead", {}, element("tr", {}, heads.map((head) =>
      element("th", {scope: "col"}, head)))) : null,
    element("tbody", {}, rows.map(([name, number, says]) =>
      element("tr", {},
        element("th", {scope: "row"}, element("bdi", {}, name)),
        element("td", {class: "bar"},
          element("span", {style: {"--share": number / most}})),
        element("td", {class: "number"},
          says === undefined ? number.toLocaleString("en") : says)))));
}

function note(...children) {
  return element("p", {class: "note"}, children);
}

// ---- the theme: the system's, light, or dark ----

const THEMES = ["system", "light", "dark"];

function startTheme(toggle) {
  const root = document.documentElement;
  const read = () => {
    try {
      return localStorage.getItem("bert_tf-theme") || "system";
    } catch {
      return "system";
    }
  };
  const apply = (theme) => {
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
    toggle.textContent = `Theme: ${theme}`;
  };
  let theme = THEMES.includes(read()) ? read() : "system";
  apply(theme);
  toggle.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try {
      localStorage.setItem("bert_tf-theme", theme);
    } catch {
      // Some browsers store nothing for files: the choice lasts this visit.
    }
    apply(theme);
  });
}

// ---- tabs: arrow keys move, the URL's hash names the one shown ----

let showTab = () => {};

function startTabs(list, panels, data) {
  const made = registeredTabs.map((tab) => {
    const handle = element("button", {
      type: "button", role: "tab", id: `tab-${tab.name}`,
      "aria-controls": `panel-${tab.name}`,
    }, tab.title);
    const panel = element("section", {
      role: "tabpanel", id: `panel-${tab.name}`, tabindex: 0,
      "aria-labelledby": `tab-${tab.name}`, hidden: true,
    });
    list.append(handle);
    panels.append(panel);
    return {tab, handle, panel, isRendered: false, again: null};
  });
  showTab = (name, takesFocus) => {
    const shown = made.find(({tab}) => tab.name === name) || made[0];
    for (const each of made) {
      const isShown = each === shown;
      each.handle.setAttribute("aria-selected", String(isShown));
      each.handle.tabIndex = isShown ? 0 : -1;
      each.panel.hidden = !isShown;
    }
    if (!shown.isRendered) {
      shown.isRendered = true;
      shown.again = shown.tab.render(shown.panel, data);
    } else if (typeof shown.again === "function") {
      shown.again();
    }
    if (takesFocus) shown.handle.focus();
    shown.handle.scrollIntoView({block: "nearest", inline: "nearest"});
    if (location.hash !== `#${shown.tab.name}`) {
      history.replaceState(null, "", `#${shown.tab.name}`);
    }
  };
  made.forEach(({tab, handle}, place) => {
    handle.addEventListener("click", () => showTab(tab.name));
    handle.addEventListener("keydown", (event) => {
      const last = made.length - 1;
      const to = {
        ArrowRight: place === last ? 0 : place + 1,
        ArrowLeft: place === 0 ? last : place - 1,
        Home: 0,
        End: last,
      }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      showTab(made[to].tab.name, true);
    });
  });
  window.addEventListener("hashchange", () => showTab(location.hash.slice(1)));
  showTab(location.hash.slice(1));
}
