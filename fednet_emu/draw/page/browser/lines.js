"use strict";
// Learning curves with a choice of metric and cost, for pages that put several lines into one figure.

const lines = (() => {
  const DASHES = ["solid", "dash", "dashdot", "longdash"];
  const TITLES = Object.fromEntries(Object.entries(vocabulary.costs).map(([name, { title }]) => [name, title]));

  /** Names for a figure: without the parts that all share, and without their middle where they are too long; still distinct. */
  function shorten(names, most = innerWidth < 900 ? 26 : 44) {
    const parts = names.map((name) => name.split(/(?<=[,:]) /)), count = parts[0]?.length ?? 0;
    const even = new Set(names).size > 1 && parts.every((each) => each.length === count);
    const own = even ? parts.map((each) => each.filter((part, i) => parts.some((other) => other[i] !== part)).join(" ").replace(/[,:]$/, "")) : names;
    const half = Math.floor((most - 1) / 2);
    const cut = own.map((name) => (name.length <= most ? name : `${name.slice(0, half)}…${name.slice(-half)}`));
    return [cut, own].find((each) => new Set(each).size === new Set(names).size) ?? names;
  }

  /** A score with four digits. */
  const score = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(4))) : "unknown");

  /** How values of a kind are written. */
  const show = {
    time: units.seconds, bits: units.bits, energy: units.energy, count: units.count, score,
    number: (value) => String(value), text: (value) => value, rounds: (value) => units.count(value),
  };

  /** The unit of an axis of some kind that ends at `largest`, and its title. */
  function axis(kind, largest, title = TITLES[kind]) {
    const unit = kind in TITLES && kind !== "rounds" ? units.axis(largest, kind) : { size: 1, symbol: "" };
    return { size: unit.size, title: unit.symbol ? `${title} (${unit.symbol})` : title };
  }

  /** The colour of a line by its number. */
  const colour = fednet.lineColour;

  /** The look of a line by its number, in dashes by another one: by default all colours, then other dashes. */
  const look = (place, dash = Math.floor(place / vocabulary.lines)) => ({ color: colour(place), dash: DASHES[dash % DASHES.length], width: 2 });

  /** A colour of a line with an opacity. */
  const faded = (place, opacity) => colour(place) + Math.round(255 * opacity).toString(16).padStart(2, "0");

  /** The largest number of several arrays; 0 if there is none. */
  const largest = (arrays) => arrays.reduce((most, array) => array.reduce((a, b) => (b > a ? b : a), most), 0);

  /** Values of a kind as text; a mean and the ends of its interval, the values of `row`, have one unit. */
  const alike = (value, row, kind) => (["time", "bits", "energy"].includes(kind) ? units.alike(value, row, kind) : show[kind](value));

  /** Columns for `fednet.table` from those of Python: {name, title, kind, values}; the ends of an interval follow its mean. */
  function columns(given) {
    let group = [];
    return given.map(({ name, title, kind, values }) => {
      const own = group = ["from", "to", "95 % from"].includes(title) ? group : [];
      own.push(values);
      return { key: name, title, values, show: (value, row) => (own.length > 1 ? alike(value, own.map((each) => each[row]), kind) : show[kind](value)) };
    });
  }

  /** The choice of a metric and of a cost; `state` has both, `changed()` is called on a change. */
  const choices = (state, metrics, costs, changed) => [
    fednet.select("Show", Object.entries(metrics), (value) => { state.metric = value; changed(); }, state.metric),
    fednet.select("against", Object.entries(costs), (value) => { state.cost = value; changed(); }, state.cost),
  ];

  return { shorten, score, show, axis, colour, look, faded, largest, alike, columns, choices, TITLES };
})();
