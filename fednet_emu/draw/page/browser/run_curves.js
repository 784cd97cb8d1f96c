"use strict";
// Learning curves: each score of the evaluations against its cost.

const runCurves = (told) => {
  const { scores, values } = told.curves;
  const section = fednet.section("learning", "Learning", scores.length ? "" :
    "No model was evaluated in this run, so there are no curves.");
  if (!scores.length) return null;
  const COSTS = Object.fromEntries(Object.entries(vocabulary.costs).map(([name, { title, column }]) => [column, [title, name === "rounds" ? null : name]]));
  const state = { score: scores.includes("accuracy") ? "accuracy" : scores[0], cost: "simulated_s", log: false };
  const figure = fednet.figure(section, "Learning curve", () => {
    const [title, kind] = COSTS[state.cost], x = Array.from(values[state.cost]);
    const unit = kind ? units.axis(Math.max(...x), kind) : { size: 1, symbol: "" };
    const shown = vocabulary.metrics[state.score] ?? state.score, y = Array.from(values[state.score], (value) => (Number.isFinite(value) ? value : null));
    const range = /accuracy|success/.test(state.score) && !state.log ? { rangemode: "tozero" } : {};
    return {
      data: [{ x: x.map((value) => value / unit.size), y, mode: "lines+markers", marker: { size: 5 }, name: shown,
        hovertemplate: `%{x:.4g} ${unit.symbol}: %{y:.4g}<extra></extra>` }],
      layout: { xaxis: { title: unit.symbol ? `${title} (${unit.symbol})` : title }, yaxis: { title: shown, type: state.log ? "log" : "linear", ...range } },
    };
  });
  const change = (name) => (value) => { state[name] = value; figure.redraw(); };
  section.insertBefore(fednet.controls(
    fednet.select("Show", scores.map((score) => [score, vocabulary.metrics[score] ?? score]), change("score"), state.score),
    fednet.select("against", Object.entries(COSTS).map(([key, [title]]) => [key, title]), change("cost")),
    fednet.checkbox("logarithmic", change("log"))), figure.element);
  return figure;
};
