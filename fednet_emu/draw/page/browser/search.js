"use strict";
// The trials of a search: the cost of each trial in order, or two costs of each trial; and a table of trials.

function studySearch(study) {
  const { words, columns, costs, least, finalists } = study.search;
  const place = fednet.section("search", "Search",
    "Each setting is tried with the same few seeds; the best ones race over the others. Curves and tables below are those of the settings that remained.");
  place.append(fednet.element("ul", {}, ...words.map((text) => fednet.element("li", { text }))));
  const column = (name) => columns.find((each) => each.name === name).values;
  const trial = column("trial"), label = column("setting"), why = column("why_not");
  const values = costs.map(({ name }) => column(name)), chosen = new Set(finalists);
  const known = Array.from(trial, (_, i) => i).filter((i) => values.every((each) => Number.isFinite(each[i])));
  const text = (i) => [`trial ${trial[i]}`, label[i], ...costs.map(({ name, kind }, k) => `${name} ${lines.show[kind](values[k][i])}`), why[i]].filter(Boolean).join("<br>");

  function draw() {
    const axes = costs.map(({ name, kind }, k) => lines.axis(kind, lines.largest([known.map((i) => values[k][i])]), name[0].toUpperCase() + name.slice(1)));
    const several = costs.length > 1, x = (i) => (several ? values[0][i] / axes[0].size : trial[i]);
    const vertical = several ? 1 : 0, y = (i) => values[vertical][i] / axes[vertical].size;
    const points = (name, places, marker) => ({ name, mode: "markers", x: places.map(x), y: places.map(y), text: places.map(text), hovertemplate: "%{text}<extra></extra>", marker });
    const data = [
      points("trial", known.filter((i) => !chosen.has(trial[i])), { color: fednet.colour("faint"), size: 7 }),
      points("remained", known.filter((i) => chosen.has(trial[i])), { color: lines.colour(0), size: 10, symbol: "diamond" }),
    ];
    if (!several && known.length) {
      let best = least ? Infinity : -Infinity;
      const line = known.map((i) => (best = least ? Math.min(best, y(i)) : Math.max(best, y(i))));
      data.unshift({ name: "best so far", mode: "lines", x: known.map(x), y: line, hoverinfo: "skip", line: { color: lines.colour(0), width: 1.5, shape: "hv" } });
      const top = Math.max(...known.map(y)), lost = Array.from(trial, (_, i) => i).filter((i) => !known.includes(i));
      data.push({ ...points("did not get there", lost, { symbol: "x", size: 8, color: fednet.colour("lost") }), y: lost.map(() => 1.05 * top) });
    }
    return {
      data: data.filter((trace) => trace.x.length),
      layout: { xaxis: { title: several ? axes[0].title : "Trial" }, yaxis: { title: axes[vertical].title } },
    };
  }
  fednet.figure(place, "What each trial of the search cost", draw, 360);
  fednet.table(place, `${study.name}-trials`, lines.columns(columns), { page: 20 });
}
