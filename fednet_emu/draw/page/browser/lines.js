"use strict";
// Learning curves with a choice of metric and cost, for pages with several lines in one figure.

const lines = (() => {
  const DASHES = ["solid", "dash", "dashdot", "longdash"];
  const SCALED = ["time", "bits", "energy", "carbon"];
  const TITLES = Object.fromEntries(Object.entries(vocabulary.costs).map(([name, { title }]) => [name, title]));

  /** Short, distinct names for a figure: without parts that all names share; the middle of names that are too long is cut. */
  function shorten(names, most = innerWidth < 900 ? 26 : 44) {
    const parts = names.map((name) => name.split(/(?<=[,:]) /)), count = parts[0]?.length ?? 0;
    const even = new Set(names).size > 1 && parts.every((each) => each.length === count);
    const own = even ? parts.map((each) => each.filter((part, i) => parts.some((other) => other[i] !== part)).join(" ").replace(/[,:]$/, "")) : names;
    const half = Math.floor((most - 1) / 2);
    const cut = own.map((name) => (name.length <= most ? name : `${name.slice(0, half)}…${name.slice(-half)}`));
    return [cut, own].find((each) => new Set(each).size === new Set(names).size) ?? names;
  }

  /** Return a score as text with four digits. */
  const score = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(4))) : "unknown");

  /** Return the function that formats values of a kind. */
  const show = {
    time: units.seconds, bits: units.bits, energy: units.energy, carbon: units.carbon, count: units.count, score,
    number: (value) => String(value), text: (value) => value, rounds: (value) => units.count(value),
  };

  /** Return the unit and title of an axis that ends at `largest`, for values of a kind. */
  function axis(kind, largest, title = TITLES[kind]) {
    const unit = SCALED.includes(kind) ? units.axis(largest, kind) : { size: 1, symbol: "" };
    return { size: unit.size, title: unit.symbol ? `${title} (${unit.symbol})` : title };
  }

  const colour = fednet.lineColour;

  /** Return the style of a line by index; the dashes by a second index, by default new dashes when all colours are used. */
  const look = (place, dash = Math.floor(place / vocabulary.lines)) => ({ color: colour(place), dash: DASHES[dash % DASHES.length], width: 2 });

  /** Return the colour of a line with an opacity. */
  const faded = (place, opacity) => colour(place) + Math.round(255 * opacity).toString(16).padStart(2, "0");

  /** Return the maximum of several arrays; 0 without numbers. */
  const largest = (arrays) => arrays.reduce((most, array) => array.reduce((a, b) => (b > a ? b : a), most), 0);

  /** Return a value of a kind as text; the values of `row` (a mean and the ends of its interval) have one unit. */
  const alike = (value, row, kind) => (SCALED.includes(kind) ? units.alike(value, row, kind) : show[kind](value));

  /** Columns for `fednet.table` from Python's {name, title, kind, values}; the ends of an interval follow its mean. */
  function columns(given) {
    let group = [];
    return given.map(({ name, title, kind, values }) => {
      const own = group = ["from", "to", "95 % from"].includes(title) ? group : [];
      own.push(values);
      return { key: name, title, values, show: (value, row) => (own.length > 1 ? alike(value, own.map((each) => each[row]), kind) : show[kind](value)) };
    });
  }

  /** Drop-down lists for metric and cost; `state` stores both choices, `changed()` is called on a change. */
  const choices = (state, metrics, costs, changed) => [
    fednet.select("Show", Object.entries(metrics), (value) => { state.metric = value; changed(); }, state.metric),
    fednet.select("against", Object.entries(costs), (value) => { state.cost = value; changed(); }, state.cost),
  ];

  return { shorten, score, show, axis, colour, look, faded, largest, alike, columns, choices, TITLES };
})();
