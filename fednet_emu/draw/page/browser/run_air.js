"use strict";
// Use of the band over time, per cell and kind of link: no sender, one sender, or several senders at once.

const runAir = (told) => {
  const { edges_s, uses, several } = told.air;
  const section = fednet.section("air", "Use of the air", uses.length ? "Share of the time in which nobody, one sender or several at once were on the air." : "Nothing was sent.");
  if (!uses.length) return null;
  const kinds = [...new Set(uses.map((use) => use.kind))];
  const state = { kind: kinds[0], cell: "all" };
  const cellName = (kind) => (kind === "sidelink" ? "cluster" : "cell");
  const chosen = () => uses.filter((use) => use.kind === state.kind && (state.cell === "all" || String(use.cell) === state.cell));
  const told_several = () => `several at once, ${several[state.kind]}`;
  const mean = (parts, name) => Array.from(parts[0][name], (_, place) => parts.reduce((all, part) => all + part[name][place], 0) / parts.length);
  const figure = fednet.figure(section, "Use of the air", () => {
    const parts = chosen(), unit = units.axis(edges_s.at(-1), "time"), one = mean(parts, "one"), many = mean(parts, "several");
    const x = Array.from(edges_s.subarray(0, -1), (edge, place) => (edge + edges_s[place + 1]) / 2 / unit.size);
    const area = (name, y, colour) => ({ x, y: y.map((value) => 100 * value), name, stackgroup: "air", mode: "lines", line: { width: 0, shape: "hvh", color: fednet.colour(colour) },
      fillcolor: fednet.colour(colour), hovertemplate: `%{x:.4g} ${unit.symbol}: ${name} %{y:.3g} %<extra></extra>` });
    return {
      data: [area(told_several(), many, "several"), area("one sender", one, "busy"), area("idle", one.map((value, place) => Math.max(1 - value - many[place], 0)), "idle")],
      layout: { showlegend: true, xaxis: { title: `Time (${unit.symbol})`, range: [0, edges_s.at(-1) / unit.size] }, yaxis: { title: "Share of time in %", range: [0, 100] } },
    };
  });
  const share = (use, name) => use[name].reduce((all, value) => all + value, 0) / use[name].length;
  const cells = fednet.select("Cell", [], (value) => { state.cell = value; figure.redraw(); });
  function offerCells() {
    const name = cellName(state.kind), found = uses.filter((use) => use.kind === state.kind);
    cells.firstChild.textContent = name[0].toUpperCase() + name.slice(1);
    const options = found.length > 1 ? [["all", `mean of all ${found.length}`]] : [];
    cells.box.replaceChildren(...[...options, ...found.map((use) => [String(use.cell), String(use.cell)])].map(([value, text]) => fednet.element("option", { value, text })));
    state.cell = cells.box.value;
  }
  offerCells();
  section.insertBefore(fednet.controls(fednet.select("Link", kinds.map((kind) => [kind, kind]), (kind) => { state.kind = kind; offerCells(); figure.redraw(); }), cells), figure.element);
  fednet.table(section, "use of the air", [
    { key: "kind", title: "Link", values: uses.map((use) => use.kind) },
    { key: "cell", title: "Cell or cluster", values: uses.map((use) => use.cell) },
    { key: "one", title: "One sender", values: uses.map((use) => share(use, "one")), show: units.share },
    { key: "several", title: "Several at once", values: uses.map((use) => share(use, "several")), show: units.share },
    { key: "idle", title: "Idle", values: uses.map((use) => 1 - share(use, "one") - share(use, "several")), show: units.share },
  ], { page: 12 });
  return figure;
};
