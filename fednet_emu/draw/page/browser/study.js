"use strict";
// The page of a study: curves, costs to reach the target, paired differences, Pareto fronts, and tables.

fednet.page((study) => {
  const story = fednet.section("words", "In short");
  for (const text of study.words) story.append(fednet.element("p", { class: "story", text }));
  if (study.search) studySearch(study);
  if (study.curves.length) studyCurves(study);
  if (study.target) studyNeeded(study);
  if (study.best.length) studyBest(study);
  if (study.differences.length) studyDifferences(study);
  if (study.pareto.rounds.setting.length || study.pareto.ends.setting.length) studyFronts(study);
  const settings = fednet.section("settings", "Settings",
    "One row for each combination of levels: means over its seeds, with their 95 % intervals. Costs of reaching the target are means over the runs that did.");
  fednet.table(settings, `${study.name}-settings`, lines.columns(study.means));
  const runs = fednet.section("runs", "Runs", "One row for each run, as in runs.parquet; those that failed have a reason.");
  fednet.table(runs, `${study.name}-runs`, lines.columns(study.runs));
});

/** Drop-down lists of the levels of each axis with several levels; `state` maps axes to levels, or to "" for all levels. */
function levelChoices(study, state, changed) {
  return study.axes.filter(({ levels }) => levels.length > 1).map(({ name, levels }) =>
    fednet.select(name, [["", "all"], ...levels.map((level) => [level, level])], (value) => { state[name] = value; changed(); }));
}

const fitsLevels = (setting, chosen) => Object.entries(chosen).every(([axis, level]) => !level || setting.levels[axis] === level);

/** Return the dashes of a setting: by level on the first varying axis, if other axes vary and there are enough dashes. */
function dashOf(study, setting) {
  const [first, ...others] = study.axes.filter(({ levels }) => levels.length > 1);
  return others.length && first.levels.length <= 4 ? first.levels.indexOf(study.settings[setting].levels[first.name]) : undefined;
}

function studyCurves(study) {
  const place = fednet.section("curves", "Learning curves",
    "The mean over seeds and its 95 % band. Each run keeps its last score until the next evaluation, also when it has ended; from the end of the first run on the line is dotted. A cross marks the last evaluation of a run that diverged.");
  const state = { metric: Object.keys(study.metrics)[0], cost: "time", bands: true, levels: {} };
  const shown = () => study.curves.filter((curve) => curve.metric === state.metric && curve.cost === state.cost &&
    fitsLevels(study.settings[curve.setting], state.levels));
  const note = fednet.element("p", { class: "faint", role: "status" }), names = lines.shorten(study.settings.map(({ label }) => label));

  function traces(curve, unit) {
    const { label } = study.settings[curve.setting], { spent, mean, low, high, runs, seeds } = curve;
    const x = Array.from(spent, (value) => value / unit.size), line = lines.look(curve.setting, dashOf(study, curve.setting));
    const text = Array.from(mean, (value, i) => `${label}<br>${study.metrics[curve.metric]} ${lines.score(value)}` +
      (Number.isFinite(low[i]) ? ` (${lines.score(low[i])} to ${lines.score(high[i])})` : "") +
      `<br>${lines.show[curve.cost](spent[i])}, ${runs[i] < seeds ? `${runs[i]} of ${seeds} runs go on` : `${seeds} runs`}`);
    const part = (from, to) => ({ x: x.slice(from, to), y: Array.from(mean.slice(from, to)), text: text.slice(from, to) });
    const ending = runs.findIndex((left) => left < seeds), end = ending < 0 ? x.length : ending;
    const common = { mode: "lines", legendgroup: label, name: names[curve.setting], hovertemplate: "%{text}<extra></extra>" };
    const made = [{ ...common, ...part(0, end), line, meta: "mean" }];
    if (end < x.length) made.push({ ...common, ...part(Math.max(0, end - 1)), line: { ...line, dash: "dot", width: 1.2 }, showlegend: false, meta: "rest" });
    if (curve.diverged.spent.length) made.push({
      ...common, mode: "markers", x: Array.from(curve.diverged.spent, (value) => value / unit.size), y: Array.from(curve.diverged.mean),
      text: Array.from(curve.diverged.spent, (value) => `${label}<br>a run diverged after ${lines.show[curve.cost](value)}`),
      marker: { symbol: "x-thin", size: 8, line: { color: line.color, width: 2 } }, showlegend: false, meta: "diverged",
    });
    const known = x.map((_, i) => i).filter((i) => Number.isFinite(low[i]));
    if (state.bands && known.length) {
      const back = [...known].reverse();
      made.unshift({
        x: [...known, ...back].map((i) => x[i]), y: [...known.map((i) => high[i]), ...back.map((i) => low[i])],
        fill: "toself", fillcolor: lines.faded(curve.setting, 0.14), mode: "none", hoverinfo: "skip", legendgroup: label, showlegend: false, meta: "band",
      });
    }
    return made;
  }
  function alike(curves) {
    const groups = new Map();
    for (const curve of curves) {
      const key = `${curve.mean.join()}|${curve.spent.join()}`;
      groups.set(key, [...(groups.get(key) ?? []), curve]);
    }
    const same = [...groups.values()].filter((group) => group.length > 1).map((group) => group.map((curve) => study.settings[curve.setting].label).join(" = "));
    return same.length ? `The same line: ${same.join("; ")}.` : "";
  }
  function draw() {
    const curves = shown(), unit = lines.axis(state.cost, lines.largest(curves.map((curve) => curve.spent)));
    const many = curves.length > 16 ? "Too many lines for a legend: point at one to see its name, or choose levels. " : "";
    const cut = state.bands && curves.some((curve) => curve.cut) ? " Bands are clipped to what the score can be." : "";
    note.textContent = curves.length ? many + alike(curves) + cut : "No run of this choice has this metric and spends this.";
    return {
      data: curves.flatMap((curve) => traces(curve, unit)),
      layout: { xaxis: { title: unit.title, rangemode: "tozero" }, yaxis: { title: study.metrics[state.metric] }, showlegend: !many },
    };
  }
  const saved = () => {
    const rows = shown().flatMap((curve) => Array.from(curve.spent, (spent, i) => [`"${study.settings[curve.setting].label.replaceAll('"', '""')}"`,
      spent, curve.mean[i], curve.low[i], curve.high[i], curve.runs[i]].map((value) => (Number.isNaN(value) ? "" : value)).join(",")));
    return ["setting,cost,mean,low,high,runs", ...rows].join("\n") + "\n";
  };
  const changed = () => figure.redraw();
  place.append(fednet.controls(...lines.choices(state, study.metrics, study.costs, changed), ...levelChoices(study, state.levels, changed),
    fednet.checkbox("Bands", (on) => { state.bands = on; changed(); }, true),
    fednet.button("Save as CSV", () => fednet.download(`${study.name}-${state.metric}-${state.cost}.csv`, saved()))));
  const figure = fednet.figure(place, "Learning curves of the settings, mean and band over seeds", draw, 420);
  place.append(note);
}

function studyNeeded(study) {
  const place = fednet.section("needed", `What ${study.target} costs`,
    "Each run is a point, the line its setting's mean with the 95 % interval over the runs that got there. A cross is a run that did not.");
  const state = { cost: "time" };
  const COLUMNS = { time: "time_to_target_s", bits: "bits_to_target", energy: "energy_to_target_j" };
  const settings = study.needed.map(({ setting }) => study.settings[setting].label);

  function draw() {
    const column = COLUMNS[state.cost], most = lines.largest(study.needed.map((each) => each.costs[column].values)) || 1;
    const unit = lines.axis(state.cost, most), show = lines.show[state.cost], strip = [1.1 * most / unit.size, 1.3 * most / unit.size];
    const runs = { x: [], y: [], text: [], marker: { color: [], size: 8, opacity: 0.55 } };
    const lost = { x: [], y: [], text: [] }, means = { x: [], y: [], text: [], low: [], high: [] };
    const counts = [];
    study.needed.forEach(({ setting, seeds, status, reached, of, failures, costs }, row) => {
      const { label } = study.settings[setting], { values, mean, low, high } = costs[column], late = [], beside = new Map();
      seeds.forEach((seed, run) => {
        if (Number.isFinite(values[run])) {
          const place = Math.round(200 * values[run] / most), same = beside.get(place) ?? 0;
          beside.set(place, same + 1);
          runs.x.push(values[run] / unit.size); runs.y.push(row + (same % 2 ? 0.08 : -0.08) * Math.ceil(same / 2)); runs.marker.color.push(lines.colour(setting));
          runs.text.push(`${label}<br>seed ${seed}: ${show(values[run])}`);
        } else late.push([seed, status[run] === "done" ? "ended without reaching it" : status[run]]);
      });
      late.forEach(([seed, why], i) => {
        lost.x.push(strip[0] + (strip[1] - strip[0]) * (i + 1) / (late.length + 1)); lost.y.push(row);
        lost.text.push(`${label}<br>seed ${seed}: ${why}`);
      });
      if (reached) {
        means.x.push(mean / unit.size); means.y.push(row);
        means.low.push(Number.isFinite(low) ? (mean - low) / unit.size : 0);
        means.high.push(Number.isFinite(high) ? (high - mean) / unit.size : 0);
        const [middle, from, to] = [mean, low, high].map((value) => lines.alike(value, [mean, low, high], state.cost));
        means.text.push(`${label}<br>mean ${middle}` + (Number.isFinite(low) ? `, 95 % ${from} to ${to}` : "") + `<br>${reached} of ${of} runs reached it`);
      }
      if (failures) counts.push({ x: 1, xref: "paper", xanchor: "left", y: row, showarrow: false, text: `${reached} of ${of}`, font: { color: fednet.colour("lost") } });
    });
    const text = { hovertemplate: "%{text}<extra></extra>", mode: "markers" };
    const data = [
      { ...text, ...runs, name: "a run" },
      { ...text, ...means, name: "mean and 95 % interval", marker: { symbol: "line-ns", size: 16, line: { width: 3, color: fednet.colour("text") } },
        error_x: { type: "data", symmetric: false, array: means.high, arrayminus: means.low, color: fednet.colour("text"), thickness: 1.2, width: 4 } },
      { ...text, ...lost, name: "did not reach it", marker: { symbol: "x", size: 9, color: fednet.colour("lost") } },
    ].filter((trace) => trace.x.length);
    return {
      data,
      layout: {
        xaxis: { title: unit.title, range: [0, lost.x.length ? strip[1] : 1.08 * most / unit.size] },
        yaxis: { tickvals: settings.map((_, row) => row), ticktext: lines.shorten(settings), range: [settings.length - 0.4, -0.6], zeroline: false },
        margin: { l: 56, r: counts.length ? 56 : 16, t: 28, b: 44 }, annotations: counts,
        shapes: lost.x.length ? [{ type: "rect", xref: "x", yref: "paper", x0: strip[0], x1: strip[1], y0: 0, y1: 1, line: { width: 0 }, fillcolor: fednet.colour("lost"), opacity: 0.08, layer: "below" }] : [],
      },
    };
  }
  place.append(fednet.controls(fednet.select("Cost", Object.keys(COLUMNS).map((cost) => [cost, lines.TITLES[cost]]), (value) => { state.cost = value; figure.redraw(); })));
  const figure = fednet.figure(place, `What reaching ${study.target} cost each run`, draw, 90 + 34 * settings.length);
  const failed = study.needed.filter((each) => each.failures);
  if (failed.length) {
    place.append(fednet.element("ul", {}, ...failed.map(({ setting, reached, of, failures }) =>
      fednet.element("li", { text: `${study.settings[setting].label}: ${reached} of ${of} runs reached it; ${failures}.` }))));
  }
}

function studyBest(study) {
  const place = fednet.section("best", "Which setting is best",
    "By the mean cost of reaching the target; two runs of a seed are compared up to where the first of them ended without it. Which of all settings may be the best is decided by exchanging their costs within seeds, which accounts for their number; intervals are of the mean of one setting. Limits: fednet best --within.");
  const state = { cost: study.best[0].cost, data: study.best[0].data_set };
  const told = fednet.element("div", { "aria-live": "polite" }), kinds = [...new Set(study.best.map(({ data_set }) => data_set))];
  function draw() {
    const its = study.best.find(({ cost, data_set }) => cost === state.cost && data_set === state.data);
    told.replaceChildren(...its.words.map((text) => fednet.element("p", { class: "story", text })));
    if (its.columns.length) fednet.table(told, `${study.name}-best-${state.cost}`, lines.columns(its.columns));
  }
  const choices = [fednet.select("Cost", ["time", "bits", "energy", "rounds"].map((cost) => [cost, study.costs[cost]]), (value) => { state.cost = value; draw(); })];
  if (kinds.length > 1) choices.push(fednet.select("Data", kinds.map((kind) => [kind, kind]), (value) => { state.data = value; draw(); }));
  place.append(fednet.controls(...choices), told);
  draw();
}

function studyDifferences(study) {
  const place = fednet.section("differences", "Paired differences",
    `Equal seeds have the same channel, data and stragglers, so differences are taken seed by seed. Each sentence asks about two settings alone, chosen before the runs: of many intervals one in twenty excludes zero by chance, and fewer than six seeds have none. The ranking asks which of all settings may be the best.${study.left_out ? ` Left out: ${study.left_out}.` : ""}`);
  const pairs = [...new Map(study.differences.map(({ axis, a, b }) => [`${axis}: ${b} rather than ${a}`, { axis, a, b }]))];
  const state = { pair: pairs[0][0], where: "" };
  const list = fednet.element("ul", { "aria-live": "polite" }), places = fednet.element("span");
  const ofPair = () => { const { axis, a, b } = new Map(pairs).get(state.pair); return study.differences.filter((each) => each.axis === axis && each.a === a && each.b === b); };

  function chosen() {
    const wheres = [...new Set(ofPair().map(({ where }) => where))];
    state.where = wheres.includes(state.where) ? state.where : wheres.at(-1);
    places.replaceChildren(fednet.select("where", wheres.map((where) => [where, where]), (value) => { state.where = value; told(); }, state.where));
    told();
  }
  const capital = (text) => text[0].toUpperCase() + text.slice(1);
  function told() {
    const told = new Map(ofPair().filter(({ where }) => where === state.where).map(({ sentence, certain }) => [sentence, certain]));
    list.replaceChildren(...[...told].map(([sentence, certain]) =>
      fednet.element("li", {}, fednet.element(certain ? "strong" : "span", { text: `${capital(sentence)}.` }))));
  }
  place.append(fednet.controls(fednet.select("Compare", pairs.map(([name]) => [name, name]), (value) => { state.pair = value; chosen(); }), places), list,
    fednet.element("p", { class: "faint", text: "In bold: the 95 % interval excludes zero. All comparisons:" }));
  chosen();
  const KINDS = { simulated_s: "time", total_bit: "bits", energy_j: "energy", time_to_target_s: "time", bits_to_target: "bits", energy_to_target_j: "energy" };
  const signed = (value, row) => `${value < 0 ? "−" : value > 0 ? "+" : ""}${plain(Math.abs(value), row)}`;
  const plain = (value, row) => {
    const { quantity, a_mean, b_mean, mean, low, high } = study.differences[row];
    return lines.alike(value, [a_mean, b_mean, mean, low, high], KINDS[quantity] ?? "score");
  };
  const TITLES = [["axis", "Axis"], ["a", "A"], ["b", "B"], ["where", "Where"], ["title", "Quantity"], ["a_mean", "A, mean", plain], ["b_mean", "B, mean", plain],
    ["mean", "B − A", signed], ["low", "95 % from", signed], ["high", "to", signed], ["pairs", "Pairs"], ["sentence", "In words"]];
  fednet.table(place, `${study.name}-differences`, TITLES.map(([key, title, show]) => ({
    key, title, show, values: study.differences.map((each) => each[key]),
  })), { page: 20 });
}
