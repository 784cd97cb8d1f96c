"use strict";
// Pareto fronts of a study over any two of time, bits, energy and accuracy; each data set has its own front.

function studyFronts(study) {
  const costs = ["time", "bits", "energy"].map((name) => [vocabulary.costs[name].column, [lines.TITLES[name], name]]);
  const QUANTITIES = { ...Object.fromEntries(costs), accuracy: [vocabulary.metrics.accuracy, "score"] };
  if (!study.pareto.rounds.setting.length) delete QUANTITIES.accuracy;
  const NAMES = Object.keys(QUANTITIES), SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "star"];
  const state = { x: "simulated_s", y: NAMES.at(-1), data: "" };
  const place = fednet.section("fronts", "Pareto front",
    "What no other choice beats in both. Points are means over seeds; points that gained at most a tenth of the largest gain in accuracy do not count, nor do settings of which a run diverged, and different data sets are never weighed against each other.");
  const told = fednet.element("p", { role: "status" }), list = fednet.element("div"), names = lines.shorten(study.settings.map(({ label }) => label));

  /** Return the points of the chosen pair of quantities: {part, front, what}. */
  function chosen() {
    const ends = state.x !== "accuracy" && state.y !== "accuracy", part = study.pareto[ends ? "ends" : "rounds"];
    const pair = [state.x, state.y].sort((a, b) => NAMES.indexOf(a) - NAMES.indexOf(b)).join(":");
    const right = (i) => !state.data || study.pareto.data_sets[part.data_set[i]] === state.data;
    const places = Array.from(part.setting, (_, i) => i).filter(right), on = new Set(part.fronts[pair]);
    const what = !ends ? "after each round" : study.target ? `of reaching ${study.target}, where every run did` : "of the whole run";
    return { part, front: places.filter((i) => on.has(i)), rest: places.filter((i) => !on.has(i)), what };
  }
  function draw() {
    const { part, front, rest, what } = chosen();
    const [x, y] = [state.x, state.y].map((name) => {
      const [title, kind] = QUANTITIES[name];
      return { name, ...lines.axis(kind, lines.largest([part[name].filter(Number.isFinite)]), title) };
    });
    const label = (i) => study.settings[part.setting[i]].label;
    const text = (i) => `${label(i)}${part.round[i] >= 0 ? `, round ${part.round[i]}` : ""}<br>` +
      NAMES.filter((name) => Number.isFinite(part[name][i])).map((name) => `${QUANTITIES[name][0]} ${lines.show[QUANTITIES[name][1]](part[name][i])}`).join("<br>") +
      (study.pareto.data_sets.length > 1 ? `<br>data set ${study.pareto.data_sets[part.data_set[i]]}` : "");
    const points = (places) => ({
      x: places.map((i) => part[x.name][i] / x.size), y: places.map((i) => part[y.name][i] / y.size), text: places.map(text),
      mode: "markers", hovertemplate: "%{text}<extra></extra>",
    });
    const on = [...new Set(front.map((i) => part.setting[i]))];
    const groups = on.map((setting) => {
      const places = front.filter((i) => part.setting[i] === setting);
      return { ...points(places), name: names[setting], meta: "front",
        marker: { color: lines.colour(setting), size: 9, symbol: places.map((i) => SYMBOLS[part.data_set[i] % SYMBOLS.length]) } };
    });
    told.textContent = front.length ? `On the front ${what}: ${on.map((setting) => study.settings[setting].label).join("; ")}.` : `Nothing to weigh: no setting has a point ${what}.`;
    const columns = [
      { key: "setting", title: "Setting", values: front.map(label) },
      { key: "data_set", title: "Data set", values: front.map((i) => study.pareto.data_sets[part.data_set[i]]) },
      { key: "round", title: "Round", values: front.map((i) => (part.round[i] >= 0 ? part.round[i] : null)) },
      ...NAMES.map((name) => ({ key: name, title: QUANTITIES[name][0], values: front.map((i) => part[name][i]), show: lines.show[QUANTITIES[name][1]] })),
    ];
    list.replaceChildren();
    fednet.table(list, `${study.name}-front`, columns.filter(({ values }) => Array.from(values).some((value) => value !== null && !Number.isNaN(value))), { page: 10 });
    return {
      data: [{ ...points(rest), name: "beaten", meta: "beaten", marker: { color: fednet.colour("faint"), size: 5, opacity: 0.4 } }, ...groups].filter((trace) => trace.x.length),
      layout: { xaxis: { title: x.title, rangemode: "tozero" }, yaxis: { title: y.title }, showlegend: groups.length <= 16 },
    };
  }
  const options = NAMES.map((name) => [name, QUANTITIES[name][0]]);
  const choice = (label, own, other) => fednet.select(label, options, (value) => {
    if (value === state[other]) { state[other] = state[own]; boxes[other].box.value = state[other]; }
    state[own] = value;
    figure.redraw();
  }, state[own]);
  const boxes = { x: choice("Weigh", "x", "y"), y: choice("against", "y", "x") };
  const data = study.pareto.data_sets.length > 1
    ? fednet.select("data set", [["", "each by itself"], ...study.pareto.data_sets.map((name) => [name, name])], (value) => { state.data = value; figure.redraw(); }) : null;
  place.append(fednet.controls(boxes.x, boxes.y, ...(data ? [data] : [])));
  const figure = fednet.figure(place, "Points of all settings, and the Pareto front of two quantities", draw, 400);
  place.append(told, list);
}
