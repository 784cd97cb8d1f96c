"use strict";
// Distributions of round latencies, rates and staleness, and losses by reason.

/** A histogram with precomputed bins; `kind` is a kind of `units.axis`, `show` formats a value. */
function spreadFigure(parent, title, told, kind, show, colour) {
  const box = fednet.element("div");
  parent.append(box);
  box.append(fednet.element("h3", { text: title }), fednet.element("p", { class: "faint",
    text: `${units.count(told.number)} in all: median ${show(told.median)}, mean ${show(told.mean)}, 5 to 95 %: ${show(told.p5)} to ${show(told.p95)}` }));
  return fednet.figure(box, title, () => {
    const unit = units.axis(told.log ? told.median : told.edges.at(-1), kind), edges = Array.from(told.edges, (edge) => edge / unit.size);
    const counts = Array.from(told.counts), all = counts.reduce((sum, value) => sum + value, 0);
    const x = [], y = [];
    counts.forEach((number, bin) => { x.push(edges[bin], edges[bin + 1]); y.push((100 * number) / all, (100 * number) / all); });
    return {
      data: [{ x, y, mode: "lines", fill: "tozeroy", line: { width: 1.5, color: fednet.colour(colour) }, hovertemplate: `around %{x:.3g} ${unit.symbol}: %{y:.3g} %<extra></extra>` }],
      layout: { showlegend: false, xaxis: { title: `${title.split(":")[0]} (${unit.symbol})`, type: told.log ? "log" : "linear", ...(told.log ? { tickformat: "~g", ...(told.edges.at(-1) / told.edges[0] < 200 ? { dtick: "D2" } : { dtick: 1 }) } : {}) }, yaxis: { title: "Share in %", rangemode: "tozero" } },
    };
  }, 260);
}

const runSpreads = (told) => {
  const section = fednet.section("spreads", "Distributions"), columns = fednet.element("div", { class: "columns" });
  section.append(columns);
  const { latency_s, rate_bps, staleness } = told.spreads, figures = {};
  if (latency_s) figures.latency = spreadFigure(columns, "Round latency", latency_s, "time", units.seconds, "busy");
  for (const [kind, each] of Object.entries(rate_bps)) {
    if (each) figures[kind] = spreadFigure(columns, `Rate of transfers: ${kind}`, each, "rate", units.rate, kind);
  }
  if (staleness) {
    const box = fednet.element("div");
    columns.append(box);
    box.append(fednet.element("h3", { text: "Staleness of updates" }), fednet.element("p", { class: "faint", text: `from the series ${staleness.series}` }));
    const all = staleness.counts.reduce((sum, value) => sum + value, 0);
    figures.staleness = fednet.figure(box, "Staleness of updates", () => ({
      data: [{ type: "bar", x: Array.from(staleness.values), y: Array.from(staleness.counts, (value) => (100 * value) / all), marker: { color: fednet.colour("compute") }, hovertemplate: "%{x} steps: %{y:.3g} %<extra></extra>" }],
      layout: { xaxis: { title: "Steps since the update's model was sent" }, yaxis: { title: "Share in %" } },
    }), 260);
  }
  return figures;
};

const runLosses = (told) => {
  const lost = told.losses.filter((row) => row.lost), sum = (rows) => rows.reduce((all, row) => all + row.count, 0);
  const missed = sum(lost), all = sum(told.losses);
  const section = fednet.section("losses", "Losses", missed ? `${units.count(missed)} of ${units.count(all)} deliveries (${units.share(missed / all)}) were lost; a broadcast is one for each receiver.` :
    all ? `None of the ${units.count(all)} deliveries was lost; a broadcast is one for each receiver.` : "Nothing was sent.");
  const MEANING = { erased: "random loss", outage: "SINR below the threshold", unreachable: "the link never carries a bit", away: "the device was away when it was its turn",
    left: "the device left in the middle", timeout: "too long on the air", deadline: "the algorithm stopped waiting", end: "the run ended" };
  if (!all) return null;
  const figure = missed ? fednet.figure(section, "Lost deliveries by reason", () => {
    const reasons = [...new Set(lost.map((row) => row.lost))], kinds = [...new Set(lost.map((row) => row.kind))];
    return {
      data: kinds.map((kind) => ({ type: "bar", orientation: "h", name: kind, y: reasons, x: reasons.map((reason) => sum(lost.filter((row) => row.lost === reason && row.kind === kind))), marker: { color: fednet.colour(kind) }, hovertemplate: `%{y}: %{x} on the ${kind}<extra></extra>` })),
      layout: { barmode: "stack", showlegend: true, xaxis: { title: "Deliveries lost" }, yaxis: { autorange: "reversed" } },
    };
  }, 140 + 26 * new Set(lost.map((row) => row.lost)).size) : null;
  fednet.table(section, "losses", [
    { key: "kind", title: "Link", values: told.losses.map((row) => row.kind) }, { key: "reason", title: "Outcome", values: told.losses.map((row) => row.lost || "delivered") },
    { key: "meaning", title: "Meaning", values: told.losses.map((row) => MEANING[row.lost] ?? "") },
    { key: "deliveries", title: "Deliveries", values: told.losses.map((row) => row.count), show: units.count },
    { key: "bit", title: "Bits", values: told.losses.map((row) => row.bit), show: units.bits },
  ]);
  return figure;
};
