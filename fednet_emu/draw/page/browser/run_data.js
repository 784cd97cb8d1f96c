"use strict";
// Data split: the number of samples of each device, and below it the labels or targets of the samples.

const MOST_BUBBLES = 40;

const runData = (told) => {
  const { missing, devices, of, by, parts } = told.data, section = fednet.section("data", "Data split");
  if (!parts || !parts.train) {
    section.append(fednet.element("p", { text: `Who has which samples is not known: ${missing || "nobody has any"}` }));
    return null;
  }
  const count = devices.length, few = count <= MOST_BUBBLES, state = { part: "train", alike: !few };
  const names = { train: "training samples", test: "test samples" };
  const numbered = Array.from(devices, (_, place) => place).sort((a, b) => devices[a] - devices[b]), alike = Array.from(devices, (_, place) => place);
  const summary = fednet.element("p", { class: "faint", role: "status" });
  section.append(summary);

  const bubbles = (counts, places, text) => {
    const most = counts.reduce((all, row) => row.reduce((high, number) => Math.max(high, number), all), 1);
    const x = [], y = [], size = [], hover = [];
    counts.forEach((row, label) => places.forEach((place, at) => { if (row[place]) { x.push(at); y.push(label); size.push(Math.sqrt(row[place] / most) * (count > 20 ? 16 : 24)); hover.push(text(place, label, row[place])); } }));
    return [{ x, y, text: hover, hovertemplate: "%{text}<extra></extra>", mode: "markers", marker: { size, color: fednet.colour("busy"), opacity: 0.9, line: { width: 0 } } }];
  };
  const shades = (counts, sizes, places) => [{
    type: "heatmap", x: places.map((_, at) => at), y: counts.map((_, label) => label), z: counts.map((row) => places.map((place) => row[place] / Math.max(sizes[place], 1))),
    customdata: counts.map((row) => places.map((place) => [devices[place], row[place], sizes[place]])), zmin: 0, zmax: 1, showscale: true,
    colorscale: [[0, fednet.colour("panel")], [0.4, fednet.colour("busy")], [1, fednet.colour("text")]], colorbar: { title: { text: "Share of the device's samples", side: "right" }, thickness: 14, len: 0.72, y: 0, yanchor: "bottom", outlinewidth: 0 },
    hovertemplate: "device %{customdata[0]}<br>label %{y}: %{customdata[1]} of %{customdata[2]} samples<extra></extra>",
  }];
  const spread = (targets, places) => {
    const x = places.map((_, at) => at), [low, first, median, third, high] = targets.map((row) => places.map((place) => (Number.isFinite(row[place]) ? row[place] : null)));
    const band = (from, to, alpha) => [{ x, y: from, mode: "lines", line: { width: 0 }, hoverinfo: "skip" },
      { x, y: to, mode: "lines", line: { width: 0 }, fill: "tonexty", fillcolor: fednet.colour("busy") + alpha, hoverinfo: "skip" }];
    if (!few) return [...band(low, high, "50"), ...band(first, third, "90"), { x, y: median, mode: "lines", line: { color: fednet.colour("mark"), width: 2 }, text: places.map((place) => `device ${devices[place]}`), hovertemplate: "%{text}: median %{y:.4g}<extra></extra>" }];
    const bars = (from, to, width) => ({ x: x.flatMap((at) => [at, at, null]), y: from.flatMap((value, at) => [value, to[at], null]), mode: "lines", line: { color: fednet.colour("busy"), width }, hoverinfo: "skip" });
    return [bars(low, high, 1.5), bars(first, third, 7), { x, y: median, mode: "markers", marker: { size: 8, color: fednet.colour("mark") }, text: places.map((place) => `device ${devices[place]}`), hovertemplate: "%{text}: median %{y:.4g}<extra></extra>" }];
  };

  const figure = fednet.figure(section, "Data split", () => {
    const { sizes, counts, targets, all } = parts[state.part], places = state.alike ? alike : numbered;
    const text = (place, label, number) => `device ${devices[place]}<br>label ${label}: ${units.count(number)} of ${units.count(sizes[place])} samples`;
    const below = counts ? (few ? bubbles(counts, places, text) : shades(counts, sizes, places)) : targets ? spread(targets, places) : [];
    summary.textContent = `${units.count(all)} ${names[state.part]} at ${units.count(of)} devices` + (count < of ? `, of which ${units.count(count)} are shown, evenly spaced.` : ".") +
      (counts ? (few ? " Areas are numbers of samples." : "") : targets ? (few ? " Thin lines span 90 % of a device's targets, thick ones half of them." : " The outer band spans 90 % of a device's targets, the inner one half of them; the line is their median.") : "");
    const x = places.map((_, at) => at), alone = !below.length;
    const title = state.alike ? `Devices, ordered by their ${by} in training` : "Device", ticks = few ? { tickvals: x, ticktext: places.map((place) => String(devices[place])) } : state.alike || count < of ? { showticklabels: false } : {};
    return {
      data: [...below.map((trace) => ({ showlegend: false, ...trace })),
        { type: "bar", x, y: places.map((place) => sizes[place]), yaxis: "y2", marker: { color: fednet.colour("busy"), line: { width: 0 } }, text: places.map((place) => `device ${devices[place]}`), textposition: "none", hovertemplate: "%{text}: %{y} samples<extra></extra>", showlegend: false }],
      layout: {
        bargap: few ? 0.2 : 0, showlegend: false, xaxis: { title, range: [-0.6, count - 0.4], anchor: alone ? "y2" : "y", zeroline: false, showgrid: false, ...ticks },
        yaxis: { title: counts ? "Label" : "Targets", domain: [0, 0.72], zeroline: false, visible: !alone, ...(counts ? { range: [counts.length - 0.4, -0.6], ...(counts.length <= 12 ? { dtick: 1 } : {}) } : {}) },
        yaxis2: { title: "Samples", domain: alone ? [0, 1] : [0.78, 1], rangemode: "tozero", nticks: 4 },
      },
    };
  }, 520);
  const choices = Object.keys(parts).map((name) => [name, names[name]]);
  section.insertBefore(fednet.controls(
    choices.length > 1 ? fednet.select("Show", choices, (name) => { state.part = name; figure.redraw(); }) : null,
    fednet.checkbox("alike ones side by side", (on) => { state.alike = on; figure.redraw(); }, state.alike)), figure.element);
  return { ...figure, state };
};
