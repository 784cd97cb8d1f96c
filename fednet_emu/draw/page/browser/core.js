"use strict";
// The basis of every page: unpack the numbers, build sections and controls, and switch between the light and dark theme.
//
// A page's script calls `fednet.page(build)`; `build(document)` runs when the numbers are unpacked. See document.py.

const fednet = (() => {
  const builders = [], listeners = [];
  const TYPES = { u1: Uint8Array, i2: Int16Array, i4: Int32Array, i8: BigInt64Array, f4: Float32Array, f8: Float64Array };

  // ---- unpacking ----------------------------------------------------------------------------------------------------

  /** Decode base64 text, and decompress the bytes with zlib. */
  async function inflate(base64) {
    const text = atob(base64.trim());
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  /** Read one array of the block: bytes are in planes (first bytes first), and integers may be differences of neighbours. */
  function unpack(block, [kind, offset, length, differences]) {
    const width = Number(kind[1]), bytes = new Uint8Array(length * width);
    for (let plane = 0; plane < width; plane++) {
      const start = offset + plane * length;
      for (let i = 0; i < length; i++) bytes[i * width + plane] = block[start + i];
    }
    const numbers = new TYPES[kind](bytes.buffer);
    if (!differences && kind !== "i8") return numbers;
    const whole = Float64Array.from(numbers, Number);
    if (differences) for (let i = 1; i < length; i++) whole[i] += whole[i - 1];
    return whole;
  }

  /** Return the document with an array in place of each packed array. */
  function unpacked(content, block) {
    if (Array.isArray(content)) return content.map((item) => unpacked(item, block));
    if (content === null || typeof content !== "object") return content;
    if (content.$array) return unpack(block, content.$array);
    return Object.fromEntries(Object.entries(content).map(([key, value]) => [key, unpacked(value, block)]));
  }

  // ---- elements -----------------------------------------------------------------------------------------------------

  /** Create an element; attributes that are functions are event listeners, `text` is the text; null children are omitted. */
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (typeof value === "function") made.addEventListener(name, value);
      else if (name === "text") made.textContent = value;
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }

  /** Add a section with a heading, listed in the contents; `told` describes the section. Returns the element. */
  function section(id, title, told = "") {
    const made = element("section", { id, "aria-labelledby": `${id}-title` },
      element("h2", { id: `${id}-title`, text: title }), told ? element("p", { class: "faint", text: told }) : null);
    document.getElementById("page").append(made);
    document.getElementById("contents").append(element("a", { href: `#${id}-title`, text: title }));
    return made;
  }

  /** A drop-down list with a label. `options` is a list of [value, text]; `changed(value)` is called on a change. */
  function select(label, options, changed, initial = options[0]?.[0]) {
    const box = element("select", { change: () => changed(box.value) },
      ...options.map(([value, text]) => element("option", { value, text })));
    box.value = initial;
    const made = element("label", {}, element("span", { text: label }), box);
    made.box = box;
    return made;
  }

  /** A slider with a label; `changed(number)` is called while the slider moves; `show(number)` is the text beside it. */
  function slider(label, [least, most, step], changed, show, initial = least) {
    const text = element("output", { text: show(initial) });
    const box = element("input", {
      type: "range", min: least, max: most, step, value: initial, "aria-valuetext": show(initial),
      input: () => {
        text.textContent = show(Number(box.value));
        box.setAttribute("aria-valuetext", text.textContent);
        changed(Number(box.value));
      },
    });
    const made = element("label", {}, element("span", { text: label }), box, text);
    made.box = box;
    return made;
  }

  /** A switch with a label; `changed(on)` is called on a change. */
  function checkbox(label, changed, initial = false) {
    const box = element("input", { type: "checkbox", change: () => changed(box.checked) });
    box.checked = initial;
    const made = element("label", {}, box, element("span", { text: label }));
    made.box = box;
    return made;
  }

  const button = (text, pressed, attributes = {}) => element("button", { type: "button", text, click: pressed, ...attributes });

  const controls = (...items) => element("div", { class: "controls" }, ...items);

  /** A legend; an entry is [name of a colour or CSS colour, text]. */
  const legend = (entries) => element("div", { class: "legend" }, ...entries.map(([colour, text]) =>
    element("span", {}, element("i", { style: `background:${/^[a-z]+$/.test(colour) ? `var(--${colour})` : colour}` }), text)));

  // ---- colours ------------------------------------------------------------------------------------------------------

  /** Return a named colour in the current theme. */
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  const dark = () => document.documentElement.dataset.theme === "dark";

  /** Return the colour of a line by its index, as in figures. */
  const lineColour = (index) => colour(`line-${index % vocabulary.lines}`);

  function setTheme(name) {
    document.documentElement.dataset.theme = name;
    document.getElementById("theme").textContent = name === "dark" ? "Light" : "Dark";
    document.getElementById("theme").setAttribute("aria-label", `Switch to ${name === "dark" ? "light" : "dark"} colours`);
    listeners.forEach((listener) => listener());
  }

  /** Call a function after each change of the theme. */
  const onTheme = (listener) => listeners.push(listener);

  // ---- start --------------------------------------------------------------------------------------------------------

  /** Call the build function of a page when its numbers are unpacked. */
  const page = (build) => builders.push(build);

  async function start() {
    setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    document.getElementById("theme").addEventListener("click", () => setTheme(dark() ? "light" : "dark"));
    const wait = document.getElementById("wait");
    try {
      const text = (id) => document.getElementById(id).textContent;
      const [block, plotly] = await Promise.all([inflate(text("arrays")), inflate(text("plotly"))]);
      document.head.append(element("script", { text: new TextDecoder().decode(plotly) }));
      fednet.document = unpacked(JSON.parse(text("document")), block);
      for (const id of ["arrays", "plotly", "document"]) document.getElementById(id).remove();
      for (const build of builders) await build(fednet.document);
      wait.remove();
      document.documentElement.dataset.ready = "yes";
    } catch (error) {
      wait.className = "problem";
      wait.textContent = `This page could not be drawn: ${error.message}. A browser of 2023 or later is needed.`;
      throw error;
    }
  }

  return {
    page, start, element, section, select, slider, checkbox, button, controls, legend, colour, lineColour, dark, onTheme,
  };
})();
