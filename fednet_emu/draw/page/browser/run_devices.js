"use strict";
// Totals of each device: time, energy, and contribution to the training.

const MOST_BARS = 250;

/** Split devices, in order, into groups of neighbours: one group for each bar that fits. */
function barGroups(order) {
  const size = Math.ceil(order.length / MOST_BARS);
  return Array.from({ length: Math.ceil(order.length / size) }, (_, k) => order.slice(k * size, (k + 1) * size));
}

/** Return all devices, sorted by a list of numbers, largest first. */
const byNumbers = (values) => Array.from(values, (_, device) => device).sort((a, b) => (values[b] || 0) - (values[a] || 0) || a - b);

/**
 * Stacked bars of all devices, which can be sorted by each part and by the sum.
 * `parts` is a list of {name, colour, values}; `unit` is a kind of `units.axis`. Returns the figure.
 */
function deviceBars(section, label, parts, unit, total = "sum") {
  const sum = Array.from(parts[0].values, (_, device) => parts.reduce((all, part) => all + part.values[device], 0));
  const state = { sort: "device", share: false };
  const orders = { device: sum.map((_, device) => device), sum: byNumbers(sum) };
  parts.forEach((part) => { orders[part.name] = byNumbers(part.values); });
  const figure = fednet.figure(section, label, () => {
    const groups = barGroups(orders[state.sort]), single = groups.every((group) => group.length === 1);
    const mean = (values, group) => group.reduce((all, device) => all + values[device], 0) / group.length;
    const axis = units.axis(Math.max(...groups.map((group) => mean(sum, group))), unit);
    const names = groups.map((group) => (group.length === 1 ? `device ${group[0]}` : `${group.length} devices from ${group[0]} on`));
    return {
      data: parts.map((part) => ({
        type: "bar", name: part.name, marker: { color: part.colour.startsWith("#") ? part.colour : fednet.colour(part.colour), line: { width: 0 } },
        x: groups.map((_, place) => place), text: names, textposition: "none",
        y: groups.map((group) => (state.share ? (100 * mean(part.values, group)) / (mean(sum, group) || 1) : mean(part.values, group) / axis.size)),
        hovertemplate: `%{text}: ${part.name} %{y:.3g} ${state.share ? "%" : axis.symbol}<extra></extra>`,
      })),
      layout: {
        barmode: "stack", bargap: groups.length > 60 ? 0 : 0.15,
        xaxis: { title: single ? "Device" : `Devices in this order, ${groups[0].length} in each bar`, ...deviceTicks(groups, single) },
        yaxis: { title: state.share ? "Share in %" : `${single ? label : `Mean ${label.toLowerCase()}`} (${axis.symbol})` },
      },
    };
  });
  const choices = [["device", "number"], ["sum", total], ...parts.map((part) => [part.name, part.name])];
  section.insertBefore(fednet.controls(
    fednet.select("Devices by", choices.filter(([key]) => key !== "sum" || total), (key) => { state.sort = key; figure.redraw(); }),
    total ? fednet.checkbox("as shares", (on) => { state.share = on; figure.redraw(); }) : null), figure.element);
  return figure;
}

/** Ticks of an axis of groups: some device numbers, or positions if a group contains several devices. */
function deviceTicks(groups, single, most = 20) {
  const every = Math.ceil(groups.length / most), places = groups.map((_, place) => place).filter((place) => place % every === 0);
  return { tickmode: "array", tickvals: places, ticktext: places.map((place) => (single ? groups[place][0] : place * groups[0].length)), tickangle: 0, showgrid: false };
}

const runTime = (told) => {
  const section = fednet.section("time", "Where the time went",
    "Each second of a device counts once, for the first of these that it does: uplink, downlink, sidelink, computing, waiting. Idle is the rest, being away included.");
  const parts = Object.keys(told.split).map((key) => ({ name: vocabulary.activities[key], colour: key, values: told.split[key] }))
    .filter((part) => part.name === "idle" || part.values.some((value) => value > 0));
  return deviceBars(section, "Time", parts, "time", "");
};

const runEnergy = (told) => {
  const section = fednet.section("energy", "Energy", "");
  const names = { uplink: "sending up", sidelink: "sending to devices", receiving: "receiving", computing: "computing", idle: "idle power meanwhile", waiting: "waiting" };
  const colours = { uplink: "uplink", sidelink: "sidelink", receiving: "downlink", computing: "compute", idle: "idle", waiting: "waiting" };
  const sum = (values) => values.reduce((all, value) => all + value, 0);
  const parts = Object.entries(names).map(([key, name]) => ({ name, colour: colours[key], values: told.energy[key] ?? [] })).filter((part) => sum(part.values) > 0);
  const spent = parts.map((part) => `${part.name} ${units.energy(sum(part.values))}`);
  section.append(fednet.element("p", { text: (spent.length ? `All devices together: ${spent.join(", ")}.` : "No device spent energy in this scenario.") +
    (told.energy.stations > 0 ? ` Base stations spent ${units.energy(told.energy.stations)}.` : "") }));
  return parts.length ? deviceBars(section, "Energy", parts, "energy") : null;
};

const runFairness = (told) => {
  const { delivered, uplinks, computations } = told.device, count = told.devices;
  const took = uplinks.some((value) => value > 0) ? delivered : computations, what = took === delivered ? "uplinks delivered" : "computations";
  const sum = took.reduce((all, value) => all + value, 0), squares = took.reduce((all, value) => all + value * value, 0);
  const index = squares > 0 ? (sum * sum) / (count * squares) : NaN, none = took.filter((value) => value === 0).length;
  const section = fednet.section("fairness", "Participation and fairness", !(sum > 0) ? "No device computed or delivered anything." :
    `Jain's index of ${what} is ${units.digits(index)}: 1 if all devices take part equally, ${units.digits(1 / count)} if one does alone. ${none ? `${none} of ${units.count(count)} devices had none.` : "Every device had at least one."}`);
  if (!(sum > 0)) return null;
  const columns = fednet.element("div", { class: "columns" }), bars = fednet.element("div"), curve = fednet.element("div");
  section.append(columns);
  columns.append(bars, curve);
  const state = { sort: byNumbers(took) };
  const shown = fednet.figure(bars, what, () => {
    const groups = barGroups(state.sort), single = groups.every((group) => group.length === 1);
    const mean = (values) => groups.map((group) => group.reduce((all, device) => all + values[device], 0) / group.length);
    const hover = { text: groups.map((group) => `device ${group[0]}`), textposition: "none" };
    const data = [{ type: "bar", name: what, x: groups.map((_, k) => k), y: mean(took), marker: { color: fednet.colour("busy") }, ...hover, hovertemplate: "%{text}: %{y:.4g}<extra></extra>" }];
    if (took === delivered && uplinks.some((value, device) => value > delivered[device])) data.push({ type: "bar", name: "not delivered", x: groups.map((_, k) => k), y: mean(uplinks.map((value, device) => value - delivered[device])), marker: { color: fednet.colour("lost") }, ...hover, hovertemplate: "%{text}: %{y:.4g} not delivered<extra></extra>" });
    return { data, layout: { barmode: "stack", bargap: groups.length > 60 ? 0 : 0.15, showlegend: true, xaxis: { title: `Devices, most active first${single ? "" : `, ${groups[0].length} in each bar`}`, ...deviceTicks(groups, single, 10) }, yaxis: { title: "Number", rangemode: "tozero" } } };
  });
  fednet.figure(curve, "Lorenz curve", () => {
    const rising = Array.from(took).sort((a, b) => a - b), x = [0], y = [0];
    let all = 0;
    rising.forEach((value, place) => {
      all += value;
      if (place % Math.ceil(count / 400) === 0 || place === count - 1) { x.push((100 * (place + 1)) / count); y.push((100 * all) / (sum || 1)); }
    });
    return {
      data: [{ x, y, name: "this run", mode: "lines", hovertemplate: "the least active %{x:.3g} % have %{y:.3g} %<extra></extra>" },
        { x: [0, 100], y: [0, 100], name: "all equal", mode: "lines", line: { dash: "dot", color: fednet.colour("faint") }, hoverinfo: "skip" }],
      layout: { showlegend: true, xaxis: { title: "Devices in %, least active first", range: [0, 100] }, yaxis: { title: "Their part in %", range: [0, 100] } },
    };
  });
  return shown;
};
