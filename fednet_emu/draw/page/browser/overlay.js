"use strict";
// The page of several runs: their learning curves on one axis, and their summaries side by side.

fednet.page((told) => {
  overlaidCurves(told);
  const place = fednet.section("summaries", "Summaries", "One row for each run; scores are those of its last evaluation.");
  fednet.table(place, "summaries", lines.columns(told.summaries));
});

function overlaidCurves(told) {
  const place = fednet.section("curves", "Learning curves", "Each point is an evaluation of the global model.");
  const state = { metric: Object.keys(told.metrics)[0], cost: "time" }, names = lines.shorten(told.labels);
  if (!state.metric) {
    place.append(fednet.element("p", { text: "No run has learnt anything: there is nothing to draw." }));
    return;
  }
  function draw() {
    const known = told.curves.map(({ costs, metrics }, run) => ({ run, x: costs[state.cost], y: metrics[state.metric] })).filter(({ y }) => y && y.some(Number.isFinite));
    const unit = lines.axis(state.cost, lines.largest(known.map(({ x }) => x)));
    return {
      data: known.map(({ run, x, y }) => ({
        x: Array.from(x, (value) => value / unit.size), y: Array.from(y), name: names[run], mode: x.length < 60 ? "lines+markers" : "lines",
        line: lines.look(run), marker: { size: 5 }, hovertemplate: "%{text}<extra></extra>",
        text: Array.from(x, (value, i) => `${told.labels[run]}<br>${told.metrics[state.metric]} ${lines.score(y[i])}<br>${lines.show[state.cost](value)}, round ${told.curves[run].costs.rounds[i]}`),
      })),
      layout: { xaxis: { title: unit.title, rangemode: "tozero" }, yaxis: { title: told.metrics[state.metric] }, showlegend: true },
    };
  }
  const rows = () => told.curves.flatMap(({ costs, metrics }, run) => Array.from(costs.time, (_, i) =>
    [`"${told.labels[run].replaceAll('"', '""')}"`, ...Object.keys(costs).map((name) => costs[name][i]), ...Object.keys(told.metrics).map((name) => metrics[name]?.[i] ?? "")]
      .map((value) => (Number.isNaN(value) ? "" : value)).join(",")));
  const csv = () => [["run", ...Object.keys(told.costs), ...Object.keys(told.metrics)].join(","), ...rows()].join("\n") + "\n";
  place.append(fednet.controls(...lines.choices(state, told.metrics, told.costs, () => figure.redraw()),
    fednet.button("Save as CSV", () => fednet.download("curves.csv", csv()))));
  const figure = fednet.figure(place, "Learning curves of the runs", draw, 420);
}
